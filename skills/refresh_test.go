package skills_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

// settled is a clock by which every file has rested, so that marks vouch for what was just written.
func settled() time.Time { return time.Now().Add(time.Hour) }

// facts renders what clients can see of a snapshot, and the diagnostics in any order.
func facts(t *testing.T, s *skills.Snapshot) []string {
	t.Helper()
	var out []string
	for _, list := range [][]*skills.Skill{s.Skills, s.Shadowed, s.Withheld} {
		for _, sk := range list {
			status := s.Status(sk)
			out = append(out, fmt.Sprintf("%s %q %s %s %s %v %v", sk.Path, sk.Name(), sk.Root.Dir, sk.Dir, sk.Digest, sk.Diagnostics, status))
			if index, err := sk.Index(t.Context()); err == nil {
				out = append(out, fmt.Sprintf("  %s %v %v", index.TreeDigest, index.Publishable, index.Diagnostics))
				for _, r := range index.Resources {
					script := ""
					if r.Script != nil {
						script = fmt.Sprint(*r.Script)
					}
					out = append(out, fmt.Sprintf("  %s %s %d %s %v %s %s", r.Path, r.Kind, r.Size, r.Digest, r.Text, r.MIMEType, script))
				}
			}
		}
		out = append(out, "-")
	}
	var notes []string
	for _, d := range s.Diagnostics {
		notes = append(notes, fmt.Sprint(d))
	}
	slices.Sort(notes)
	return append(out, notes...)
}

// sameAsScan holds a registry's snapshot to a scan of the same roots from nothing.
func sameAsScan(t *testing.T, registry *skills.Registry, roots []skills.Root, opts *skills.ScanOptions) {
	t.Helper()
	want, err := skills.Scan(t.Context(), roots, opts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(facts(t, want), facts(t, registry.Snapshot())); diff != "" {
		t.Fatalf("the snapshot is not that of a scan from nothing (-want +got):\n%s", diff)
	}
}

// Whatever changes on disk, refreshing the changed paths ends in what a scan from nothing finds.
func TestRefreshEqualsScan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			m := &mutator{t: t, rand: rand.New(rand.NewPCG(seed, 0)), dirs: []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "allowed")}}
			for _, d := range m.dirs {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			roots := []skills.Root{{Dir: m.dirs[0], Tier: skills.TierUser}, {Dir: m.dirs[1], Tier: skills.TierOrg}}
			if seed%3 == 0 {
				roots = append(roots, skills.Root{Dir: filepath.Join(m.dirs[0], "x"), Tier: skills.TierBuiltin, Prefix: "inner"})
			}
			opts := &skills.ScanOptions{AllowRoots: m.dirs[2:], Now: settled, StrictSkills: seed%5 == 0, Disabled: []string{"y"}}
			for range 30 {
				m.mutate()
			}
			registry := skills.NewRegistry(roots, opts)
			if _, err := registry.Rescan(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 25 {
				if m.rand.IntN(2) == 0 {
					for _, sk := range registry.Snapshot().Skills {
						if _, err := sk.Index(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				m.changed = nil
				for range 1 + m.rand.IntN(3) {
					m.mutate()
				}
				before := registry.Snapshot()
				diff, err := registry.Refresh(t.Context(), m.changed)
				if err != nil {
					t.Fatal(err)
				}
				checkDiff(t, before, registry.Snapshot(), diff)
				sameAsScan(t, registry, roots, opts)
			}
		})
	}
}

// checkDiff holds a diff to the two snapshots it is between.
func checkDiff(t *testing.T, before, after *skills.Snapshot, diff skills.Diff) {
	t.Helper()
	var want skills.Diff
	for _, sk := range after.Skills {
		if was := before.Skill(sk.Path); was == nil {
			want.Added = append(want.Added, sk.Path)
		} else if was.Digest != sk.Digest && !slices.Contains(diff.Changed, sk.Path) {
			t.Errorf("%s changed, the diff is %+v", sk.Path, diff)
		}
	}
	for _, sk := range before.Skills {
		if after.Skill(sk.Path) == nil {
			want.Removed = append(want.Removed, sk.Path)
		}
	}
	if !slices.Equal(want.Added, diff.Added) || !slices.Equal(want.Removed, diff.Removed) {
		t.Errorf("diff %+v, want %+v", diff, want)
	}
}

// mutator makes random changes in some directories and notes the paths of what it changed, as a
// watcher of directories would see them.
type mutator struct {
	t       *testing.T
	rand    *rand.Rand
	dirs    []string
	changed []string
	count   int
}

func (m *mutator) pick(names ...string) string { return names[m.rand.IntN(len(names))] }

func (m *mutator) path() string {
	dir := m.dirs[m.rand.IntN(len(m.dirs))]
	for range 1 + m.rand.IntN(3) {
		dir = filepath.Join(dir, m.pick("x", "y", "z", "scripts", ".git"))
	}
	return dir
}

// mutate makes one change.
func (m *mutator) mutate() {
	m.count++
	dir := m.path()
	switch m.rand.IntN(10) {
	case 0, 1, 2, 3:
		m.write(filepath.Join(dir, m.pick("SKILL.md", "SKILL.md", "skill.md")), m.document())
	case 4, 5:
		m.write(filepath.Join(dir, m.pick("a.sh", "b.txt", "SKILL.md~")), m.pick("#!/bin/sh\n", "text", "\x00"))
	case 6:
		m.note(dir)
		m.check(os.RemoveAll(dir))
	case 7:
		file := filepath.Join(dir, "SKILL.md")
		m.note(file)
		m.check(os.RemoveAll(file))
	case 8:
		to := m.path()
		if _, err := os.Lstat(to); err == nil || strings.HasPrefix(to, dir) || os.MkdirAll(filepath.Dir(to), 0o755) != nil {
			return
		}
		if os.Rename(dir, to) == nil {
			m.note(dir)
			m.note(to)
		}
	case 9:
		if m.rand.IntN(4) > 0 || os.MkdirAll(filepath.Dir(dir), 0o755) != nil {
			return
		}
		if os.Symlink(m.path(), dir) == nil {
			m.note(dir)
		}
	}
}

// note notes a path, unless it leads through a link: a watcher sees only real ones.
func (m *mutator) note(path string) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			rel, _ := filepath.Rel(dir, path)
			path = filepath.Join(real, rel)
			break
		}
	}
	m.changed = append(m.changed, path)
}

func (m *mutator) document() string {
	name := m.pick("x", "y", "z", "other")
	switch m.rand.IntN(6) {
	case 0:
		return "---\nname: [\n"
	case 1:
		return "---\nname: " + name + "\n---\n"
	}
	return fmt.Sprintf("---\nname: %s\ndescription: %d\n---\nbody\n", name, m.count)
}

func (m *mutator) write(file, content string) {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		m.note(dir)
	}
	if os.MkdirAll(filepath.Dir(file), 0o755) != nil {
		return // a link or a file is in the way
	}
	m.note(file)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil && !os.IsNotExist(err) {
		return // a directory has the name
	}
}

func (m *mutator) check(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}
