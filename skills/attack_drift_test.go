package skills_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// attackTree has a file of each place a change can hide in.
func attackTree(tb testing.TB) (dir string, sk *skills.Skill, registry *skills.Registry) {
	tb.Helper()
	dir = tb.TempDir()
	attackPlant(tb, dir, map[string]string{
		"a/SKILL.md": attackManifest("a"), "a/references/r.md": "reference", "a/scripts/s.sh": "#!/bin/sh\necho 1\n", "a/sub/deep/x.bin": "\x00\x01",
		"b/SKILL.md": attackManifest("b"),
	})
	registry = skills.NewRegistry([]skills.Root{{Dir: dir, Tier: skills.TierOrg}}, nil)
	if _, err := registry.Rescan(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	sk = registry.Snapshot().Skill("a")
	if _, err := sk.Index(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return dir, sk, registry
}

func attackWrite(tb testing.TB, name, content string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// TestAttackDrift changes a tree after it was indexed: Verify and Stage must notice every change,
// and Read must not pass the bytes of now for those of the snapshot.
func TestAttackDrift(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
		path   string // of the drift
		read   string // a file whose bytes differ
	}{
		{"a byte", func(t *testing.T, dir string) { attackWrite(t, dir+"/references/r.md", "Reference") }, "references/r.md", "references/r.md"},
		{"a byte, the old time", func(t *testing.T, dir string) {
			name := dir + "/scripts/s.sh"
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			attackWrite(t, name, "#!/bin/sh\necho 2\n")
			if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}, "scripts/s.sh", "scripts/s.sh"},
		{"longer", func(t *testing.T, dir string) { attackWrite(t, dir+"/references/r.md", "reference and more") }, "references/r.md", "references/r.md"},
		{"SKILL.md", func(t *testing.T, dir string) { attackWrite(t, dir+"/SKILL.md", attackManifest("a")+"more\n") }, "SKILL.md", "SKILL.md"},
		{"a new file", func(t *testing.T, dir string) { attackWrite(t, dir+"/lib/new.py", "x") }, "lib/new.py", ""},
		{"a new file beside a script", func(t *testing.T, dir string) { attackWrite(t, dir+"/scripts/json.py", "x") }, "scripts/json.py", ""},
		{"a file less", func(t *testing.T, dir string) { attackRemove(t, dir+"/sub/deep/x.bin") }, "sub/deep/x.bin", ""},
		{"the last file less", func(t *testing.T, dir string) { attackRemove(t, dir+"/SKILL.md") }, "SKILL.md", ""},
		{"all less", func(t *testing.T, dir string) { attackRemove(t, dir) }, "SKILL.md", ""},
		{"renamed", func(t *testing.T, dir string) {
			if err := os.Rename(dir+"/references/r.md", dir+"/references/q.md"); err != nil {
				t.Fatal(err)
			}
		}, "references/q.md", ""},
		{"a directory in its place", func(t *testing.T, dir string) {
			attackRemove(t, dir+"/references/r.md")
			attackWrite(t, dir+"/references/r.md/x", "x")
		}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, sk, _ := attackTree(t)
			if err := sk.Verify(t.Context()); err != nil {
				t.Fatalf("Verify before the change: %v", err)
			}
			tt.change(t, dir+"/a")
			drift, ok := errors.AsType[*skills.DriftError](sk.Verify(t.Context()))
			if !ok || tt.path != "" && drift.Path != tt.path {
				t.Errorf("Verify = %v, want drift of %s", sk.Verify(t.Context()), tt.path)
			}
			if ok && drift.Want == drift.Got {
				t.Errorf("drift %+v has equal digests", drift)
			}
			if tt.read != "" {
				content, err := sk.Read(t.Context(), tt.read, skills.MaxFile)
				if err != nil || content.Matches || content.Digest != digest.FromBytes(content.Data) || content.Size != int64(len(content.Data)) {
					t.Errorf("Read = %+v, %v; want bytes that do not match, with their digest", content, err)
				}
			}
			st, err := store.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			tree, err := sk.Stage(t.Context(), st)
			index, _ := sk.Index(t.Context())
			if err == nil {
				// What was added is not copied: the tree is still the one that was indexed.
				if tree.Digest != index.TreeDigest || len(tree.Files) != len(index.Files) {
					t.Errorf("Stage after a change = %s with %d files, want %s with %d", tree.Digest, len(tree.Files), index.TreeDigest, len(index.Files))
				}
			} else if _, ok := errors.AsType[*skills.DriftError](err); !ok {
				t.Errorf("Stage = %v, want *DriftError", err)
			}
			if tt.read != "" && err == nil {
				t.Errorf("Stage accepted changed bytes")
			}
		})
	}
}

func attackRemove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

// TestAttackSettled proves that a file that looks untouched is not read again, and one that was
// touched is, even when its size and modification time were put back.
func TestAttackSettled(t *testing.T) {
	dir := t.TempDir()
	attackPlant(t, dir, map[string]string{"a/SKILL.md": attackManifest("a"), "a/x.md": "one"})
	// The scan believes itself to be an hour later, so every file counts as settled.
	opts := &skills.ScanOptions{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	sk := attackScan(t, opts, skills.Root{Dir: dir}).Skill("a")
	if _, err := sk.Index(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sk.Verify(t.Context()); err != nil {
		t.Fatalf("Verify: %v", err)
	}
	name := filepath.Join(dir, "a", "x.md")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	attackWrite(t, name, "two")
	if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if drift, ok := errors.AsType[*skills.DriftError](sk.Verify(t.Context())); !ok || drift.Got != digest.FromString("two") {
		t.Errorf("Verify = %v, want drift to the digest of the new bytes", sk.Verify(t.Context()))
	}
}

// TestAttackBetweenScanAndIndex changes SKILL.md before the files are first hashed: there is no index
// of two versions, the change is drift.
func TestAttackBetweenScanAndIndex(t *testing.T) {
	dir := t.TempDir()
	attackPlant(t, dir, map[string]string{"a/SKILL.md": attackManifest("a")})
	sk := attackScan(t, nil, skills.Root{Dir: dir}).Skill("a")
	attackWrite(t, filepath.Join(dir, "a", "SKILL.md"), attackManifest("a")+"changed")
	index, err := sk.Index(t.Context())
	if _, ok := errors.AsType[*skills.DriftError](err); !ok || index != nil {
		t.Errorf("Index = %v, %v; want drift", index, err)
	}
	if _, ok := errors.AsType[*skills.DriftError](sk.Verify(t.Context())); !ok {
		t.Error("Verify does not see the change")
	}
}

// TestAttackRegistry proves that a snapshot in use never changes and a failed scan takes nothing.
func TestAttackRegistry(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	attackPlant(t, root, map[string]string{"a/SKILL.md": attackManifest("a"), "b/SKILL.md": attackManifest("b")})
	registry := skills.NewRegistry([]skills.Root{{Dir: root}}, &skills.ScanOptions{StrictRoots: true})
	if registry.Snapshot() == nil || len(registry.Snapshot().Skills) != 0 {
		t.Fatalf("first snapshot %+v", registry.Snapshot())
	}
	diff, err := registry.Rescan(t.Context())
	if err != nil || !slices.Equal(diff.Added, []string{"a", "b"}) {
		t.Fatalf("Rescan = %+v, %v", diff, err)
	}
	good := registry.Snapshot()
	if err := os.Rename(root, root+"-away"); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Rescan(t.Context()); err == nil || registry.Snapshot() != good {
		t.Errorf("Rescan without its root: %v; the snapshot changed: %v", err, registry.Snapshot() != good)
	}
	if err := os.Rename(root+"-away", root); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := registry.Rescan(cancelled); !errors.Is(err, context.Canceled) || registry.Snapshot() != good {
		t.Errorf("Rescan cancelled: %v", err)
	}
	attackWrite(t, root+"/a/SKILL.md", attackManifest("a")+"more")
	attackWrite(t, root+"/c/SKILL.md", attackManifest("c"))
	attackRemove(t, root+"/b")
	diff, err = registry.Rescan(t.Context())
	if err != nil || !slices.Equal(diff.Added, []string{"c"}) || !slices.Equal(diff.Removed, []string{"b"}) || !slices.Equal(diff.Changed, []string{"a"}) {
		t.Errorf("Rescan = %+v, %v", diff, err)
	}
	if got := attackPaths(good.Skills); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the old snapshot has %q", got)
	}
	// A skill that became invalid stays as it was until a scan drops it.
	sk := registry.Snapshot().Skill("a")
	attackWrite(t, root+"/a/SKILL.md", "---\n{{},<<}\n---\n")
	if _, err := registry.RescanSkill(t.Context(), sk); err == nil || strings.Contains(err.Error(), root) {
		t.Errorf("RescanSkill of an invalid skill: %v", err)
	}
	if registry.Snapshot().Skill("a") != sk {
		t.Error("a failed RescanSkill took the skill away")
	}
}

// TestAttackConcurrent reads, indexes and rescans at once; the race detector judges.
func TestAttackConcurrent(t *testing.T) {
	dir, sk, registry := attackTree(t)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 10 {
				switch i {
				case 0:
					registry.Rescan(t.Context())
				case 1:
					registry.RescanSkill(t.Context(), registry.Snapshot().Skill("a"))
				case 2:
					// Renamed into place: a scan must never find the file empty.
					os.WriteFile(dir+"/next", []byte(attackManifest("b")+time.Now().String()), 0o644)
					os.Rename(dir+"/next", dir+"/b/SKILL.md")
					registry.RescanSkill(t.Context(), registry.Snapshot().Skill("b"))
				default:
					for _, sk := range registry.Snapshot().Skills {
						sk, first, err := registry.Index(t.Context(), sk)
						if _, drift := errors.AsType[*skills.DriftError](err); drift {
							continue // renamed once more than the registry has patience for
						}
						if err != nil {
							t.Error(err)
							continue
						}
						if second, err := sk.Index(t.Context()); err != nil || first != second {
							t.Errorf("Index = %p, %p, %v", first, second, err)
						}
						sk.Read(t.Context(), "references/r.md", 100)
						sk.Verify(t.Context())
						registry.Snapshot().Lookup(sk.Name())
						registry.Snapshot().NotFound("x")
					}
				}
			}
		})
	}
	group.Wait()
	if err := sk.Verify(t.Context()); err != nil {
		t.Errorf("Verify: %v", err)
	}
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := attackPaths(registry.Snapshot().Skills); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the last snapshot has %q", got)
	}
}

// TestAttackReadLimit: the limit is for the whole file, and passing it is an error, not a cut.
func TestAttackReadLimit(t *testing.T) {
	_, sk, _ := attackTree(t)
	size := int64(len("reference"))
	if content, err := sk.Read(t.Context(), "references/r.md", size); err != nil || !content.Matches {
		t.Errorf("Read at the limit = %+v, %v", content, err)
	}
	if _, err := sk.Read(t.Context(), "references/r.md", size-1); !errors.Is(err, skills.ErrTooLarge) {
		t.Errorf("Read beyond the limit: %v", err)
	}
	for _, name := range []string{"references", "nothing", "references/../SKILL.md", "/etc/passwd", "", "references\\r.md", "../b/SKILL.md", "a\x00b"} {
		if content, err := sk.Read(t.Context(), name, 1<<20); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read(%q) = %+v, %v", name, content, err)
		}
	}
}
