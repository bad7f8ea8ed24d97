package skills_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/skills"
)

// TestHostileFiles puts what is no regular file, or no file that can be read, in the place of a
// SKILL.md and of a resource. Each costs itself, with a diagnostic; nothing but regular files is
// opened.
func TestHostileFiles(t *testing.T) {
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "SKILL.md"), document("bad", "SECRET"))
	tests := []struct {
		name     string
		plant    func(name string) error
		watch    bool // it must not be opened
		skill    skills.Code
		resource skills.Code
	}{
		{"FIFO", func(name string) error { return unix.Mkfifo(name, 0o644) }, true, skills.CodeUnreadableSkill, skills.CodeUnreadableResource},
		{"socket", func(name string) error { return unix.Mknod(name, unix.S_IFSOCK|0o644, 0) }, true, skills.CodeUnreadableSkill, skills.CodeUnreadableResource},
		// /dev/zero has no end.
		{"device", func(name string) error { return unix.Mknod(name, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) }, true, skills.CodeUnreadableSkill, skills.CodeUnreadableResource},
		{"directory", func(name string) error { return os.Mkdir(name, 0o755) }, false, skills.CodeUnreadableSkill, ""},
		{"link to a device", func(name string) error { return os.Symlink("/dev/zero", name) }, false, skills.CodeOutsideRoot, skills.CodeResourceOutside},
		{"link to /etc/passwd", func(name string) error { return os.Symlink("/etc/passwd", name) }, false, skills.CodeOutsideRoot, skills.CodeResourceOutside},
		{"link out by dots", func(name string) error {
			return os.Symlink(strings.Repeat("../", 30)+"etc/passwd", name)
		}, false, skills.CodeOutsideRoot, skills.CodeResourceOutside},
		{"link to another skill", func(name string) error { return os.Symlink(filepath.Join(outside, "SKILL.md"), name) }, false, skills.CodeOutsideRoot, skills.CodeResourceOutside},
		{"link to itself", func(name string) error { return os.Symlink(filepath.Base(name), name) }, false, skills.CodeUnreadableSkill, skills.CodeUnreadableResource},
		{"link to its directory", func(name string) error { return os.Symlink(".", name) }, false, skills.CodeUnreadableSkill, ""},
		{"link to a process's memory", func(name string) error { return os.Symlink("/proc/self/mem", name) }, false, skills.CodeOutsideRoot, skills.CodeResourceOutside},
		{"1 GiB of holes", func(name string) error { return sparse(name, 1<<30) }, true, skills.CodeScanLimit, skills.CodeResourceSize},
		{"8 TiB of holes", func(name string) error { return sparse(name, 1<<43) }, true, skills.CodeScanLimit, skills.CodeResourceSize},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeTree(t, dir, map[string]string{"good/SKILL.md": document("good", "d"), "good/scripts/a.sh": "#!/bin/sh\n", "bad/x": "x"})
			inSkill, inResource := filepath.Join(dir, "bad", "SKILL.md"), filepath.Join(dir, "good", "scripts", "bad.sh")
			for _, name := range []string{inSkill, inResource} {
				if err := test.plant(name); errors.Is(err, unix.EPERM) {
					t.Skipf("missing capability: CAP_MKNOD, for a device: %v", err)
				} else if err != nil {
					t.Skipf("missing capability: a file system for a %s: %v", test.name, err)
				}
			}
			opened := func() bool { return false }
			if test.watch {
				opened = attackWatch(t, inSkill, inResource)
			}
			guarded(t, func(ctx context.Context) {
				snapshot := servesGood(ctx, t, nil, dir)
				if got := codes(snapshot.Diagnostics); snapshot.Skill("bad") != nil || !slices.Contains(got, string(test.skill)+" bad/SKILL.md") {
					t.Errorf("the scan says %v, want %s of bad/SKILL.md", got, test.skill)
				}
				sk := snapshot.Skill("good")
				x := index(t, sk)
				if got := codes(x.Diagnostics); x.Resource("scripts/a.sh") == nil || test.resource != "" && !slices.Contains(got, string(test.resource)+" scripts/bad.sh") {
					t.Errorf("the index says %v, want %s of scripts/bad.sh", got, test.resource)
				}
				if content, err := sk.Read(ctx, "scripts/bad.sh", skills.MaxFile); !errors.Is(err, skills.ErrNotIndexed) {
					t.Errorf("Read = %v, %v; want ErrNotIndexed", content, err)
				}
				if err := sk.Verify(ctx); err != nil {
					t.Errorf("Verify = %v", err)
				}
			})
			// A file beyond a limit is known by its size.
			if !strings.Contains(test.name, "holes") && opened() {
				t.Error("it was opened")
			}
		})
	}
}

func sparse(name string, size int64) error {
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(name, size)
}

// memoryDir returns a directory for a tree that a disk would take long to make.
func memoryDir(t *testing.T) string {
	t.Helper()
	var fsinfo unix.Statfs_t
	const room = 200_000 // names
	if unix.Statfs("/dev/shm", &fsinfo) != nil || fsinfo.Type != unix.TMPFS_MAGIC || fsinfo.Files > 0 && fsinfo.Ffree < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "skills")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestHostileManyFiles gives one skill 100,000 files: those of the limit are served, in the same
// choice every time.
func TestHostileManyFiles(t *testing.T) {
	const n = 100_000
	dir := memoryDir(t)
	writeTree(t, dir, map[string]string{"good/SKILL.md": document("good", "d"), "good/files": "/", "other/SKILL.md": document("other", "d")})
	linkFiles(t, filepath.Join(dir, "good", "files"), n)
	guarded(t, func(ctx context.Context) {
		sk := servesGood(ctx, t, nil, dir).Skill("good")
		x := index(t, sk)
		if len(x.Files) != 2_000 || x.Publishable || !slices.Contains(codes(x.Diagnostics), string(skills.CodeResourceCount)) {
			t.Errorf("%d files, publishable %v, diagnostics %v", len(x.Files), x.Publishable, x.Diagnostics)
		}
		if err := sk.Verify(ctx); err != nil {
			t.Errorf("Verify = %v", err)
		}
		again := index(t, servesGood(ctx, t, nil, dir).Skill("good"))
		if again.TreeDigest != x.TreeDigest {
			t.Error("a second scan serves other files")
		}
	})
}

// linkFiles makes n names of a few empty files: a file may not have them all.
func linkFiles(t *testing.T, dir string, n int) {
	t.Helper()
	const each = 10_000
	source := ""
	for i := range n {
		name := filepath.Join(dir, fmt.Sprintf("f%06d", i))
		var err error
		if i%each == 0 {
			source = name
			err = os.WriteFile(name, nil, 0o644)
		} else {
			err = unix.Link(source, name)
		}
		if err != nil {
			t.Skipf("missing capability: a file system with room for %d names: %v", n, err)
		}
	}
}

// TestHostileManyDirectories has 100,000 directories beside a skill, then inside of one.
func TestHostileManyDirectories(t *testing.T) {
	dir := memoryDir(t)
	writeTree(t, dir, map[string]string{"a": "/", "good/SKILL.md": document("good", "d"), "other/SKILL.md": document("other", "d")})
	makeDirs(t, filepath.Join(dir, "a"), 99_000)
	makeDirs(t, filepath.Join(dir, "good"), 1_000)
	guarded(t, func(ctx context.Context) {
		snapshot := servesGood(ctx, t, nil, dir)
		if got := codes(snapshot.Diagnostics); !slices.Equal(paths(snapshot.Skills), []string{"good", "other"}) || !slices.Equal(got, []string{"scan-limit-exceeded " + dir}) {
			t.Errorf("skills %q, diagnostics %v", paths(snapshot.Skills), got)
		}
	})
	writeTree(t, dir, map[string]string{"a/SKILL.md": document("a", "d")})
	guarded(t, func(ctx context.Context) {
		snapshot := servesGood(ctx, t, nil, dir)
		if got := codes(snapshot.Diagnostics); !slices.Equal(paths(snapshot.Skills), []string{"a", "good", "other"}) || !slices.Equal(got, []string{"scan-limit-exceeded a"}) {
			t.Errorf("skills %q, diagnostics %v", paths(snapshot.Skills), got)
		}
		if x := index(t, snapshot.Skill("a")); len(x.Files) != 1 || !slices.Equal(codes(x.Diagnostics), []string{"resource-file-limit-exceeded"}) {
			t.Errorf("%d files, diagnostics %v", len(x.Files), x.Diagnostics)
		}
	})
}

// makeDirs makes n directories, in others of a thousand each.
func makeDirs(t *testing.T, dir string, n int) {
	t.Helper()
	for i := range n {
		name := filepath.Join(dir, fmt.Sprintf("%03d", i/1_000))
		var err error
		if i%1_000 == 0 {
			err = os.Mkdir(name, 0o755)
		}
		if err == nil {
			err = os.Mkdir(filepath.Join(name, fmt.Sprintf("%03d", i%1_000)), 0o755)
		}
		if err != nil {
			t.Skipf("missing capability: a file system with room for %d directories: %v", n, err)
		}
	}
}

// TestHostileDepth nests 10,000 directories, beside skills and inside of one.
func TestHostileDepth(t *testing.T) {
	dir := memoryDir(t)
	writeTree(t, dir, map[string]string{"good/SKILL.md": document("good", "d"), "good/a.md": "x", "deep": "/"})
	nest(t, filepath.Join(dir, "deep"), 10_000)
	nest(t, filepath.Join(dir, "good"), 10_000)
	guarded(t, func(ctx context.Context) {
		snapshot := servesGood(ctx, t, nil, dir)
		if got := codes(snapshot.Diagnostics); !slices.Equal(got, []string{"max-depth-exceeded deep/d/d/d/d/d/d/d/d"}) {
			t.Errorf("the scan says %v", got)
		}
		sk := snapshot.Skill("good")
		x := index(t, sk)
		if got := codes(x.Diagnostics); len(x.Files) != 2 || !slices.Equal(got, []string{"resource-file-limit-exceeded"}) {
			t.Errorf("the index has %d files and says %v", len(x.Files), got)
		}
		if err := sk.Verify(ctx); err != nil {
			t.Errorf("Verify = %v", err)
		}
	})
}

// nest makes a chain of directories below dir. No path can name the last of them, so they are made
// and, at the end of the test, removed one by one from where the last step led.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	step := func(name string) bool {
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		unix.Close(fd)
		fd = next
		return true
	}
	made := 0
	for made < depth && unix.Mkdirat(fd, "d", 0o755) == nil && step("d") {
		made++
	}
	t.Cleanup(func() {
		for range made {
			if !step("..") || unix.Unlinkat(fd, "d", unix.AT_REMOVEDIR) != nil {
				t.Errorf("the directories below %s are left behind", dir)
				break
			}
		}
		unix.Close(fd)
	})
	if made < depth {
		t.Skipf("missing capability: a file system for %d nested directories, it took %d", depth, made)
	}
}

// TestHostileLinks has links that lead to each other in every way: a directory behind two links at
// every level, and thousands of links to directories that no walk has seen.
func TestHostileLinks(t *testing.T) {
	dir := t.TempDir()
	tree := map[string]string{"good/SKILL.md": document("good", "d")}
	for i := range 40 {
		next := fmt.Sprintf("../%02d", i+1)
		tree[fmt.Sprintf("good/%02d/a", i)], tree[fmt.Sprintf("good/%02d/b", i)] = "-> "+next, "-> "+next
		tree[fmt.Sprintf("fork/%02d/a", i)], tree[fmt.Sprintf("fork/%02d/b", i)] = "-> "+next, "-> "+next
	}
	tree["good/40/x"], tree["fork/40/x"] = "x", "x"
	for i := range 3_000 {
		tree[fmt.Sprintf("node_modules/%04d/x", i)] = "x"
		tree[fmt.Sprintf("links/%04d", i)] = fmt.Sprintf("-> ../node_modules/%04d", i)
	}
	writeTree(t, dir, tree)
	guarded(t, func(ctx context.Context) {
		sk := servesGood(ctx, t, nil, dir).Skill("good")
		if x := index(t, sk); !slices.Contains(codes(x.Diagnostics), string(skills.CodeResourceCount)) {
			t.Errorf("%d files, diagnostics %v", len(x.Files), x.Diagnostics)
		}
	})
}
