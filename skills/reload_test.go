package skills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/skills"
)

// Fifty readers take what they need from one snapshot each while generations of the whole tree
// replace each other: nothing of another generation is among it.
func TestReloadIsNeverTorn(t *testing.T) {
	t.Parallel()
	const n = 10
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, generation := range []string{"even", "odd"} {
		for i := range n {
			name := fmt.Sprintf("skill-%02d", i)
			dir := filepath.Join(base, generation, name)
			writeFile(t, filepath.Join(dir, "SKILL.md"), fmt.Sprintf("---\nname: %s-%s\ndescription: %s\n---\n%s\n", name, generation, generation, generation))
			writeFile(t, filepath.Join(dir, "file.txt"), generation)
		}
		writeFile(t, filepath.Join(base, generation, generation, "SKILL.md"), "---\nname: only\ndescription: "+generation+"\n---\n")
	}
	root := filepath.Join(base, "root")
	turn := func(generation string) {
		next := filepath.Join(base, "next")
		if err := os.Symlink(generation, next); err != nil {
			t.Skip("missing capability: symbolic links")
		}
		if err := os.Rename(next, root); err != nil {
			t.Error(err)
		}
	}
	turn("even")
	registry := skills.NewRegistry([]skills.Root{{Dir: root}}, &skills.ScanOptions{Now: settled})
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var done atomic.Bool
	var seen [2]atomic.Int64
	for i := range 50 {
		group.Go(func() {
			for !done.Load() {
				generation := readGeneration(t, registry, n, i)
				seen[len(generation)%2].Add(1)
			}
		})
	}
	// Each generation must have been read by somebody, who may come late on a busy machine.
	for i := 0; i < 30 || !t.Failed() && (seen[0].Load() == 0 || seen[1].Load() == 0); i++ {
		generation := []string{"odd", "even"}[i%2]
		turn(generation)
		changed := []string{filepath.Join(base, generation, "skill-00", "SKILL.md")}
		var err error
		switch i % 3 {
		case 0:
			_, err = registry.Rescan(t.Context())
		case 1:
			_, err = registry.Refresh(t.Context(), changed)
		case 2:
			_, err = registry.Refresh(t.Context(), nil)
			if err == nil {
				_, err = registry.RescanSkill(t.Context(), registry.Snapshot().Skill("skill-01"))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	group.Wait()
}

// readGeneration takes all there is from one snapshot and returns the generation it belongs to.
func readGeneration(t *testing.T, registry *skills.Registry, n, reader int) string {
	snapshot := registry.Snapshot()
	only, err := snapshot.Lookup("only")
	if err != nil || len(snapshot.Skills) != n+1 {
		t.Errorf("%d skills, %v", len(snapshot.Skills), err)
		return ""
	}
	generation := only.Path
	for i, sk := range snapshot.Skills {
		byName, err := snapshot.Lookup(sk.Name())
		if err != nil || byName != sk || snapshot.Skill(sk.Path) != sk || sk.Description() != generation || sk.Path != generation && !strings.HasSuffix(sk.Name(), generation) {
			t.Errorf("%s %q %q is not of the generation %s; its name finds %v, %v", sk.Path, sk.Name(), sk.Description(), generation, byName, err)
		}
		if i != reader%len(snapshot.Skills) {
			continue
		}
		index, err := sk.Index(t.Context())
		if err != nil {
			t.Error(err)
			continue
		}
		for _, file := range index.Files {
			content, err := sk.Read(t.Context(), file.Path, 1000)
			if err != nil || !content.Matches || content.Digest != file.Digest || !strings.Contains(string(content.Data), generation) {
				t.Errorf("%s of %s: %+v, %v", file.Path, sk.Path, content, err)
			}
		}
	}
	return generation
}

// A skill that was moved to a root of the same trust is served from there; a less trusted one takes no place of
// a root that cannot be read.
func TestMovedToAnotherRoot(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := func(name string) string { return filepath.Join(base, name) }
	roots := []skills.Root{{Dir: dir("one"), Tier: skills.TierUser}, {Dir: dir("two"), Tier: skills.TierUser, Awaited: true},
		{Dir: dir("strange"), Tier: skills.TierThirdParty}}
	writeFile(t, filepath.Join(dir("one"), "a", "SKILL.md"), "---\nname: a\ndescription: ours\n---\n")
	writeFile(t, filepath.Join(dir("one"), "b", "SKILL.md"), "---\nname: b\ndescription: ours\n---\n")
	writeFile(t, filepath.Join(dir("strange"), "b", "SKILL.md"), "---\nname: b\ndescription: strange\n---\n")
	registry := skills.NewRegistry(roots, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir("one"), dir("two")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir("two"), "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := registry.Snapshot()
	if a := s.Skill("a"); a == nil || a.Root.Dir != dir("two") {
		t.Errorf("a is of %+v", a)
	}
	if b := s.Skill("b"); b == nil || b.Root.Dir != dir("one") {
		t.Errorf("b is of %+v", b)
	}
}

// A root that goes keeps its skills, what is behind its links included; when it is back all is as a
// scan from nothing finds it.
func TestRootGoneAndBack(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "root")
	roots := []skills.Root{{Dir: dir, Tier: skills.TierOrg}, {Dir: filepath.Join(base, "other"), Tier: skills.TierUser}}
	opts := &skills.ScanOptions{AllowRoots: []string{filepath.Join(base, "allowed")}}
	for _, name := range []string{"root/a", "root/b", "other/a", "other/c", "allowed/d"} {
		writeFile(t, filepath.Join(base, name, "SKILL.md"), "---\nname: x\ndescription: "+name+"\n---\n")
	}
	writeFile(t, filepath.Join(dir, "broken", "SKILL.md"), "---\n")
	linked := os.Symlink(filepath.Join(base, "allowed", "d"), filepath.Join(dir, "link")) == nil
	registry := skills.NewRegistry(roots, opts)
	first, err := registry.Rescan(t.Context())
	if err != nil || len(first.Added) < 3 {
		t.Fatal(first, err)
	}
	want := facts(t, registry.Snapshot())
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, changed := range [][]string{{dir}, {filepath.Join(dir, "a", "SKILL.md")}, nil} {
			diff, err := registry.Refresh(t.Context(), changed)
			if err != nil || !diff.Empty() {
				t.Fatalf("Refresh without the root = %+v, %v", diff, err)
			}
		}
		s := registry.Snapshot()
		if sk := s.Skill("a"); sk == nil || sk.Description() != "root/a" {
			t.Fatalf("a is %+v without its root", sk)
		}
		if linked && s.Skill("link") == nil {
			t.Error("the skill behind a link is gone with the root")
		}
		if !slices.ContainsFunc(s.Diagnostics, func(d skills.Diagnostic) bool {
			return d.Code == skills.CodeUnreadableRoot && strings.Contains(d.Detail, "as they were")
		}) {
			t.Errorf("nothing is said of the root: %v", s.Diagnostics)
		}
		if _, err := s.Skill("a").Read(t.Context(), "SKILL.md", 1000); err == nil {
			t.Error("a file of the root is read though it is gone")
		}
	}
	// Other roots live on.
	writeFile(t, filepath.Join(base, "other", "e", "SKILL.md"), "---\nname: e\ndescription: new\n---\n")
	if diff, err := registry.Refresh(t.Context(), []string{filepath.Join(base, "other", "e")}); err != nil || !slices.Equal(diff.Added, []string{"e"}) {
		t.Errorf("Refresh of another root = %+v, %v", diff, err)
	}
	if err := os.RemoveAll(filepath.Join(base, "other", "e")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Refresh(t.Context(), []string{dir, filepath.Join(base, "other", "e")}); err != nil {
		t.Fatal(err)
	}
	if got := facts(t, registry.Snapshot()); !slices.Equal(got, want) {
		t.Errorf("after its return: %q\nbefore: %q", got, want)
	}
	sameAsScan(t, registry, roots, opts)
}

// A scan that fails leaves the snapshot alone.
func TestFailedRescanKeepsSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "root", "a", "SKILL.md"), "---\nname: a\ndescription: d\n---\n")
	registry := skills.NewRegistry([]skills.Root{{Dir: filepath.Join(dir, "root")}}, &skills.ScanOptions{StrictRoots: true})
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	good := registry.Snapshot()
	if err := os.Rename(filepath.Join(dir, "root"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, refresh := range map[string]func() (skills.Diff, error){
		"Rescan": func() (skills.Diff, error) { return registry.Rescan(t.Context()) },
		"Refresh": func() (skills.Diff, error) {
			return registry.Refresh(t.Context(), []string{filepath.Join(dir, "root", "a")})
		},
		"cancelled Rescan":  func() (skills.Diff, error) { return registry.Rescan(cancelled) },
		"cancelled Refresh": func() (skills.Diff, error) { return registry.Refresh(cancelled, []string{dir}) },
	} {
		if diff, err := refresh(); err == nil || !diff.Empty() || registry.Snapshot() != good {
			t.Errorf("%s = %+v, %v; the snapshot changed: %v", name, diff, err, registry.Snapshot() != good)
		}
	}
}

// A change of one skill leaves all others, and what is known of their files, as they are.
func TestRefreshTouchesOneSkill(t *testing.T) {
	t.Parallel()
	registry, dir := newRegistry(t, 20)
	indexAll(t, registry.Snapshot())
	before := registry.Snapshot()
	for i := range nightly.Size(90, 300) {
		file := filepath.Join(dir, fmt.Sprintf("skill-%05d", i%15), []string{"SKILL.md", "references/guide.md"}[i%2])
		writeFile(t, file, fmt.Sprintf("---\nname: skill-%05d\ndescription: version %d\n---\n", i%15, i))
		diff, err := registry.Refresh(t.Context(), []string{file})
		path := filepath.Base(strings.TrimSuffix(filepath.Dir(file), "/references"))
		if runtime.GOOS == "windows" {
			path = fmt.Sprintf("skill-%05d", i%15)
		}
		if err != nil || !slices.Equal(diff.Changed, []string{path}) || len(diff.Added)+len(diff.Removed) > 0 {
			t.Fatalf("Refresh = %+v, %v, want a change of %s", diff, err, path)
		}
		after := registry.Snapshot()
		for at, sk := range after.Skills {
			if (sk == before.Skills[at]) != (sk.Path != path) {
				t.Fatalf("after a change of %s, %s is another one", path, sk.Path)
			}
			if after.Skill(sk.Path) != sk {
				t.Fatalf("%s is not what its path finds", sk.Path)
			}
			if named, err := after.Lookup(sk.Name()); err != nil || named != sk {
				t.Fatalf("%s is not what its name finds: %v", sk.Path, err)
			}
		}
		before = after
	}
	if diff, err := registry.Refresh(t.Context(), []string{filepath.Join(dir, "skill-00000", "SKILL.md")}); err != nil || !diff.Empty() {
		t.Errorf("Refresh without a change = %+v, %v", diff, err)
	}
}

// A file that was changed while it was being scanned is read again by the next scan, though its
// size and its times are what they were.
func TestRescanReadsUnsettledFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "SKILL.md")
	writeFile(t, file, "---\nname: a\ndescription: one\n---\n")
	registry := skills.NewRegistry([]skills.Root{{Dir: dir}}, nil)
	for _, text := range []string{"one", "two", "six"} {
		data := "---\nname: a\ndescription: " + text + "\n---\n"
		// Written through, so that no clock need have moved on.
		if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sk := registry.Snapshot().Skill("a"); sk.Digest != digest.FromString(data) {
			t.Errorf("the skill is %q, want %q", sk.Description(), text)
		}
	}
}

// A skill was read on its own, changed, and was read by a scan before the first reading was swapped in: the
// later reading counts.
func TestRefreshAfterSlowRescan(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: the time of a change of a file")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "SKILL.md")
	put := func(text string) string {
		data := "---\nname: a\ndescription: " + text + "\n---\n"
		writeFile(t, file, data)
		return data
	}
	put("first")
	// The clock is read after a file was.
	scanned, swapped, refreshed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var registry *skills.Registry
	var readings atomic.Int64
	begun, last := false, ""
	registry = skills.NewRegistry([]skills.Root{{Dir: dir}}, &skills.ScanOptions{Now: func() time.Time {
		if begun {
			switch readings.Add(1) {
			case 1:
				time.Sleep(20 * time.Millisecond) // so that the change has another time
				last = put("third, after a change of the second")
				go func() {
					_, err := registry.Refresh(context.WithoutCancel(t.Context()), []string{file})
					refreshed <- err
				}()
				<-scanned
			case 2:
				close(scanned)
				<-swapped
			}
		}
		return time.Now()
	}})
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	put("second")
	begun = true
	if _, err := registry.RescanSkill(t.Context(), registry.Snapshot().Skill("a")); err != nil {
		t.Fatal(err)
	}
	close(swapped)
	if err := <-refreshed; err != nil {
		t.Fatal(err)
	}
	if sk := registry.Snapshot().Skill("a"); sk.Digest != digest.FromString(last) {
		t.Errorf("the skill is %q", sk.Description())
	}
}

// A skill that was read again on its own stays so when another one is refreshed.
func TestRefreshKeepsRescanned(t *testing.T) {
	t.Parallel()
	registry, dir := newRegistry(t, 3)
	a, b := filepath.Join(dir, "skill-00000", "SKILL.md"), filepath.Join(dir, "skill-00001", "SKILL.md")
	for i := range 4 {
		data := fmt.Sprintf("---\nname: skill-00000\ndescription: version %d\n---\n", i)
		writeFile(t, a, data)
		fresh, err := registry.RescanSkill(t.Context(), registry.Snapshot().Skill("skill-00000"))
		if err != nil || fresh.Digest != digest.FromString(data) {
			t.Fatalf("RescanSkill = %+v, %v", fresh, err)
		}
		if i%2 == 0 {
			continue
		}
		writeFile(t, b, fmt.Sprintf("---\nname: skill-00001\ndescription: version %d\n---\n", i))
		if _, err := registry.Refresh(t.Context(), []string{b}); err != nil {
			t.Fatal(err)
		}
		if got := registry.Snapshot().Skill("skill-00000"); got != fresh {
			t.Errorf("the skill is another reading: %q", got.Description())
		}
	}
}
