package skills_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// oneSkill scans a root with the one skill "pdf".
func oneSkill(tb testing.TB, opts *skills.ScanOptions, tree map[string]string) (sk *skills.Skill, dir string) {
	tb.Helper()
	root := tb.TempDir()
	dir = filepath.Join(root, "pdf")
	writeTree(tb, dir, tree)
	if _, ok := tree["SKILL.md"]; !ok {
		writeTree(tb, dir, map[string]string{"SKILL.md": document("pdf", "d")})
	}
	snapshot := scan(tb, opts, skills.Root{Dir: root})
	sk = snapshot.Skill("pdf")
	if sk == nil {
		tb.Fatalf("no skill: %v", snapshot.Diagnostics)
	}
	return sk, dir
}

func index(tb testing.TB, sk *skills.Skill) *skills.Index {
	tb.Helper()
	x, err := sk.Index(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

func TestIndex(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 32<<10-1) + "é" // cut by the buffer
	sk, dir := oneSkill(t, nil, map[string]string{
		"references/guide.md": "# G", "references": "/", "assets/x.bin": "a\x00b", "templates/t.html": "<p>", "scripts/run.py": "#!/usr/bin/env python3\r\nprint()\n",
		"scripts/odd": "#!/usr/bin/perl\n", "top.txt": long, "bad.txt": "\xff", "cut.txt": "x\xc3", "sub/n/SKILL.md": document("n", "d"), "link.md": "-> references/guide.md",
		"dir": "-> references", "loop": "-> .", "out": "-> ../../elsewhere", "passwd": "-> /etc/passwd", "gone": "-> nothing",
		".git/config": "x", "a~": "x", "new\nline": "x", "%41 #?.md": "odd",
	})
	if err := os.Chmod(filepath.Join(dir, "scripts/run.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	x := index(t, sk)
	var got []string
	for i := range x.Resources {
		r := &x.Resources[i]
		line := r.Path + " " + string(r.Kind) + " " + r.MIMEType
		if !r.Text {
			line += " binary"
		}
		if r.Script != nil {
			line += " runtime=" + string(r.Script.Runtime) + " " + r.Script.Shebang
		}
		got = append(got, line)
	}
	want := []string{
		"%41 #?.md other text/markdown", "assets/x.bin asset application/octet-stream binary", "bad.txt other application/octet-stream binary", "cut.txt other application/octet-stream binary",
		"dir/guide.md other text/markdown", "link.md other text/markdown", "references/guide.md reference text/markdown",
		"scripts/odd script text/plain runtime= /usr/bin/perl", "scripts/run.py script text/x-python runtime=python3 /usr/bin/env python3",
		"sub/n/SKILL.md other text/markdown", "templates/t.html template text/html", "top.txt other text/plain",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"invalid-path .", "skill-resource-outside-root out", "skill-resource-outside-root passwd", "unportable-name %41 #?.md", "unreadable-skill-resource gone"}, codes(x.Diagnostics)); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	if len(x.Files) != len(want)+1 || x.TreeDigest != store.TreeDigest(x.Files) {
		t.Errorf("%d files with tree digest %s", len(x.Files), x.TreeDigest)
	}
	r := x.Resource("top.txt")
	if r == nil || r.Digest != digest.FromString(long) || r.Size != int64(len(long)) || x.Resource("SKILL.md") != nil || x.Resource("nothing") != nil {
		t.Errorf("Resource(top.txt) = %+v", r)
	}
	if !x.Publishable || !x.Resource("scripts/run.py").Script.Executable || x.Resource("scripts/odd").Script.Executable {
		t.Errorf("publishable %v, scripts %+v", x.Publishable, x.Resource("scripts/run.py").Script)
	}
}

func TestIndexLimits(t *testing.T) {
	t.Parallel()
	tree := map[string]string{}
	for _, name := range strings.Fields("a b c d e f g h") {
		tree[name] = "12345"
	}
	sk, _ := oneSkill(t, &skills.ScanOptions{MaxFiles: 5}, tree)
	if x := index(t, sk); len(x.Files) != 5 || !cmp.Equal(codes(x.Diagnostics), []string{"resource-file-limit-exceeded"}) {
		t.Errorf("%d files, %v", len(x.Files), x.Diagnostics)
	}
	full := map[string]string{}
	for _, name := range strings.Fields("1 2 3 4 5 6") {
		full[name] = "x"
	}
	sk, _ = oneSkill(t, &skills.ScanOptions{MaxFiles: 3}, full)
	if x := index(t, sk); len(x.Files) != 3 || x.Files[2].Path != "SKILL.md" {
		t.Errorf("files before SKILL.md fill the limit: %+v", x.Files)
	}
	if err := sk.Verify(t.Context()); err != nil {
		t.Errorf("Verify = %v", err)
	}
	sk, _ = oneSkill(t, &skills.ScanOptions{MaxTree: 12}, tree)
	if x := index(t, sk); len(x.Resources) != 2 || len(x.Diagnostics) != 6 || x.Diagnostics[0].Code != skills.CodeResourceSize {
		t.Errorf("%d resources, %v", len(x.Resources), x.Diagnostics)
	}
	many := map[string]string{}
	for i := range 520 {
		many["f"+strings.Repeat("x", i)[:i%60]+string(rune('a'+i%26))+string(rune('a'+i/26))] = ""
	}
	sk, _ = oneSkill(t, nil, many)
	if x := index(t, sk); len(x.Files) < 513 || x.Publishable || !sk.Form.Publishable || !cmp.Equal(codes(x.Diagnostics), []string{"not-publishable"}) {
		t.Errorf("%d files, publishable %v, %v", len(x.Files), x.Publishable, x.Diagnostics)
	}
}

func TestIndexWithoutSkillFile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "/", "-> /etc/passwd", "-> ."} {
		sk, dir := oneSkill(t, nil, map[string]string{"a": "x"})
		replace(t, dir, "SKILL.md", content)
		if x, err := sk.Index(t.Context()); !errors.Is(err, skills.ErrNotFound) || strings.Contains(err.Error(), dir) {
			t.Errorf("Index with SKILL.md %q = %v, %v; want ErrNotFound", content, x, err)
		}
	}
}

func TestIndexSparseFile(t *testing.T) {
	t.Parallel()
	quick(t, func() {
		sk, dir := oneSkill(t, nil, map[string]string{"huge": "", "small": "x"})
		if err := os.Truncate(filepath.Join(dir, "huge"), 1<<40); err != nil {
			t.Skipf("needs sparse files: %v", err)
		}
		if x := index(t, sk); len(x.Resources) != 1 || !cmp.Equal(codes(x.Diagnostics), []string{"resource-size-limit-exceeded huge"}) {
			t.Errorf("resources %+v, %v", x.Resources, x.Diagnostics)
		}
	})
}

// quick does what takes no time to speak of. The machine may stand still in one of the tries, not in each.
func quick(t *testing.T, do func()) {
	t.Helper()
	var took [3]time.Duration
	for i := range took {
		start := time.Now()
		do()
		took[i] = time.Since(start)
		if took[i] <= 5*time.Second {
			return
		}
	}
	t.Errorf("it took %v", took)
}

func TestIndexOnce(t *testing.T) {
	t.Parallel()
	sk, _ := oneSkill(t, nil, map[string]string{"a": "x", "b/c": "y"})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sk.Index(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("Index with a cancelled context = %v", err)
	}
	var group sync.WaitGroup
	indexes := make([]*skills.Index, 16)
	for i := range indexes {
		group.Go(func() { indexes[i], _ = sk.Index(t.Context()) })
	}
	group.Wait()
	for _, x := range indexes {
		if x == nil || x != indexes[0] {
			t.Fatalf("indexes differ: %p, %p", x, indexes[0])
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	sk, dir := oneSkill(t, nil, map[string]string{"a.txt": "one", "gone.txt": "x", "dir.txt": "x", "link.txt": "x", "same.txt": "x", "sub/b": "b", "unlisted/.git/x": "y"})
	index(t, sk)
	for _, test := range []struct {
		path string
		want error
	}{
		{"nothing", skills.ErrNotIndexed}, {"sub", skills.ErrNotIndexed}, {"unlisted/.git/x", skills.ErrNotIndexed}, {"a.txt", nil}, {"./sub//b", nil}, {"SKILL.md", nil},
	} {
		content, err := sk.Read(t.Context(), test.path, 1000)
		if !errors.Is(err, test.want) || err == nil && (!content.Matches || content.Digest != digest.FromBytes(content.Data) || content.Size != int64(len(content.Data))) {
			t.Errorf("Read(%q) = %+v, %v; want %v", test.path, content, err, test.want)
		}
	}
	if _, err := sk.Read(t.Context(), "../x", 10); !isPathError(err) {
		t.Errorf("Read(../x) = %v, want *PathError", err)
	}
	if _, err := sk.Read(t.Context(), "a.txt", 2); !errors.Is(err, skills.ErrTooLarge) {
		t.Errorf("Read over the limit = %v, want ErrTooLarge", err)
	}

	writeTree(t, dir, map[string]string{"a.txt": "two!", "same.txt": "x"})
	replace(t, dir, "gone.txt", "")
	replace(t, dir, "dir.txt", "/")
	replace(t, dir, "link.txt", "-> /etc/passwd")
	content, err := sk.Read(t.Context(), "a.txt", 1000)
	if err != nil || content.Matches || string(content.Data) != "two!" || content.Digest != digest.FromString("two!") || content.Size != 4 {
		t.Errorf("Read of a changed file = %+v, %v", content, err)
	}
	if content, err := sk.Read(t.Context(), "same.txt", 1000); err != nil || !content.Matches {
		t.Errorf("Read of a file written with equal bytes = %+v, %v", content, err)
	}
	for path, want := range map[string]error{"gone.txt": skills.ErrNotFound, "dir.txt": skills.ErrNotFile, "link.txt": skills.ErrOutsideRoot} {
		if _, err := sk.Read(t.Context(), path, 1000); !errors.Is(err, want) {
			t.Errorf("Read(%s) = %v, want %v", path, err, want)
		} else if strings.Contains(err.Error(), dir) {
			t.Errorf("Read(%s) names the host's directory: %v", path, err)
		}
	}
}

func isPathError(err error) bool {
	_, ok := errors.AsType[*skills.PathError](err)
	return ok
}

// replace removes a file and makes another in its place, nothing for "".
func replace(tb testing.TB, dir, name, content string) {
	tb.Helper()
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		tb.Fatal(err)
	}
	if content != "" {
		writeTree(tb, dir, map[string]string{name: content})
	}
}

func TestVerifyAndStage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
		path   string // of the drift; empty for none
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"written with equal bytes", func(t *testing.T, dir string) { replace(t, dir, "scripts/x.sh", "#!/bin/sh\n") }, ""},
		{"an ignored name", func(t *testing.T, dir string) { writeTree(t, dir, map[string]string{".git/x": "y", "a~": "z"}) }, ""},
		{"one byte, same size and time", func(t *testing.T, dir string) {
			info, err := os.Stat(filepath.Join(dir, "scripts/x.sh"))
			if err != nil {
				t.Fatal(err)
			}
			writeTree(t, dir, map[string]string{"scripts/x.sh": "#!/bin/sx\n"})
			if err := os.Chtimes(filepath.Join(dir, "scripts/x.sh"), info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}, "scripts/x.sh"},
		{"SKILL.md", func(t *testing.T, dir string) { replace(t, dir, "SKILL.md", document("pdf", "other")) }, "SKILL.md"},
		{"a file more", func(t *testing.T, dir string) { writeTree(t, dir, map[string]string{"scripts/y.sh": "x"}) }, "scripts/y.sh"},
		{"a file more, last", func(t *testing.T, dir string) { writeTree(t, dir, map[string]string{"zzz": "x"}) }, "zzz"},
		{"a link more", func(t *testing.T, dir string) { writeTree(t, dir, map[string]string{"l": "-> /etc/passwd"}) }, "l"},
		{"a file less", func(t *testing.T, dir string) { replace(t, dir, "b.txt", "") }, "b.txt"},
		{"the last file less", func(t *testing.T, dir string) { replace(t, dir, "scripts", "") }, "scripts/x.sh"},
		{"a file became a link out", func(t *testing.T, dir string) { replace(t, dir, "b.txt", "-> /etc/passwd") }, "b.txt"},
		{"a directory became a link out", func(t *testing.T, dir string) { replace(t, dir, "scripts", "-> /usr") }, "scripts"},
		{"all gone", func(t *testing.T, dir string) { replace(t, dir, ".", "") }, "SKILL.md"},
	}
	// Times vouch only for files that were settled when they were indexed, so both ways are taken.
	settled := &skills.ScanOptions{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	for i := range 2 * len(tests) {
		test, options, name := tests[i/2], (*skills.ScanOptions)(nil), "unsettled"
		if i%2 == 1 {
			options, name = settled, "settled"
		}
		t.Run(test.name+", "+name, func(t *testing.T) {
			t.Parallel()
			sk, dir := oneSkill(t, options, map[string]string{"scripts/x.sh": "#!/bin/sh\n", "b.txt": "b"})
			x := index(t, sk)
			st, err := store.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if test.name == "all gone" {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			} else {
				test.change(t, dir)
			}
			err = sk.Verify(t.Context())
			if test.path == "" {
				if err != nil {
					t.Fatalf("Verify = %v, want nil", err)
				}
				tree, err := sk.Stage(t.Context(), st)
				if err != nil || tree.Digest != x.TreeDigest {
					t.Fatalf("Stage = %+v, %v; want tree %s", tree, err, x.TreeDigest)
				}
				if data, err := tree.ReadFile("scripts/x.sh"); err != nil || string(data) != "#!/bin/sh\n" {
					t.Errorf("staged scripts/x.sh = %q, %v", data, err)
				}
				return
			}
			drift, ok := errors.AsType[*skills.DriftError](err)
			if !ok || drift.Path != test.path || drift.Want == drift.Got {
				t.Errorf("Verify = %#v, want drift of %s", err, test.path)
			}
			tree, err := sk.Stage(t.Context(), st)
			if err == nil && tree.Digest != x.TreeDigest {
				t.Errorf("Stage = %s, not the indexed tree %s", tree.Digest, x.TreeDigest)
			}
			if _, isDrift := errors.AsType[*skills.DriftError](err); err != nil && !isDrift {
				t.Errorf("Stage = %v, want *DriftError", err)
			}
		})
	}
}

// Times vouch for files that were settled when they were indexed, until they are touched.
func TestVerifySettledFiles(t *testing.T) {
	t.Parallel()
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	sk, dir := oneSkill(t, &skills.ScanOptions{Now: ahead}, map[string]string{"a.txt": "one"})
	index(t, sk)
	if err := sk.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeTree(t, dir, map[string]string{"a.txt": "two"})
	if err := sk.Verify(t.Context()); err == nil {
		t.Error("Verify = nil after a change of equal size")
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a/SKILL.md": document("a", "one"), "b/SKILL.md": document("b", "d")})
	registry := skills.NewRegistry([]skills.Root{{Dir: dir}}, &skills.ScanOptions{StrictRoots: true})
	if s := registry.Snapshot(); s == nil || len(s.Skills) != 0 {
		t.Fatalf("first snapshot = %+v, want an empty one", s)
	}
	got, err := registry.Rescan(t.Context())
	if diff := cmp.Diff(skills.Diff{Added: []string{"a", "b"}}, got); err != nil || diff != "" {
		t.Fatalf("Rescan: %v (-want +got):\n%s", err, diff)
	}
	old := registry.Snapshot()
	sk := old.Skill("a")
	writeTree(t, dir, map[string]string{"a/SKILL.md": document("a", "two")})
	fresh, err := registry.RescanSkill(t.Context(), sk)
	if err != nil || fresh.Description() != "two" || registry.Snapshot().Skill("a") != fresh || registry.Snapshot().Skill("b") != old.Skill("b") {
		t.Errorf("RescanSkill = %+v, %v", fresh, err)
	}
	// Handles of older snapshots can be read again too.
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh, err = registry.RescanSkill(t.Context(), sk)
	if err != nil || registry.Snapshot().Skill("a") != fresh || fresh.Root != registry.Snapshot().Skill("b").Root {
		t.Errorf("RescanSkill of an older snapshot's skill = %+v, %v", fresh, err)
	}
	if sk.Description() != "one" || old.Skill("a") != sk {
		t.Error("an old snapshot changed")
	}
	writeTree(t, dir, map[string]string{"a/SKILL.md": "---\nname: {\n---\n"})
	if _, err := registry.RescanSkill(t.Context(), fresh); err == nil || registry.Snapshot().Skill("a") != fresh {
		t.Errorf("RescanSkill of a broken skill = %v, want an error and the last good one", err)
	}
	writeTree(t, dir, map[string]string{"b/SKILL.md": document("b", "changed"), "c/SKILL.md": document("c", "d")})
	got, err = registry.Rescan(t.Context())
	if diff := cmp.Diff(skills.Diff{Added: []string{"c"}, Changed: []string{"b"}, Removed: []string{"a"}}, got); err != nil || diff != "" {
		t.Errorf("Rescan: %v (-want +got):\n%s", err, diff)
	}
	good := registry.Snapshot()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Rescan(t.Context()); err == nil || registry.Snapshot() != good {
		t.Errorf("Rescan without the root = %v, want an error and the last good snapshot", err)
	}
}

func TestRegistryConcurrent(t *testing.T) {
	t.Parallel()
	dir := writeSkills(t, 20)
	registry := skills.NewRegistry([]skills.Root{{Dir: dir}}, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 5 {
				sk := registry.Snapshot().Skills[i]
				if _, err := registry.RescanSkill(t.Context(), sk); err != nil {
					t.Error(err)
				}
				if _, err := registry.Rescan(t.Context()); err != nil {
					t.Error(err)
				}
				if err := registry.Snapshot().Skills[i].Verify(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := len(registry.Snapshot().Skills); n != 20 {
		t.Errorf("%d skills, want 20", n)
	}
}
