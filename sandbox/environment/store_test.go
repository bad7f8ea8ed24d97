package environment_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

func openStore(t testing.TB, dir string) *environment.Store {
	t.Helper()
	s, err := environment.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return os.Chmod(name, 0o700)
			}
			return nil
		})
	})
	return s
}

var sample = map[string]string{"m/__init__.py": "x = 1\n", "m/a.py": "", "n.py": "y = 2\n"}

// stored makes an environment of one wheel.
func stored(t testing.TB, s *environment.Store, files map[string]string) *environment.Tree {
	t.Helper()
	b := environment.NewBuild(s, "3.11")
	if err := addWheel(b, "x", "1.0", wheelOf(t, "x", "1.0", files)); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stage(t.Context(), b.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	err = errors.Join(st.Add("pyvenv.cfg", false, strings.NewReader("home = /usr/bin\n")),
		st.Link("bin/python3", "/usr/bin/python3"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := st.Seal(t.Context(), digest.FromString("interpreter"))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func treeDir(s *environment.Store, t *environment.Tree) string {
	return filepath.Join(s.Dir(), "trees", t.Name)
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	tree := stored(t, s, sample)
	for name, want := range map[string]fs.FileMode{
		"": fs.ModeDir | 0o755, site + "m": fs.ModeDir | 0o755, site + "n.py": 0o644, "bin/python3": fs.ModeSymlink | 0o777,
		"pyvenv.cfg": 0o644,
	} {
		if info, err := os.Lstat(filepath.Join(treeDir(s, tree), name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info, err, want)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the store is %v, %v", info, err)
	}
	if checked, err := tree.Check(t.Context()); err != nil || checked.At.IsZero() {
		t.Errorf("Check = %v, %v", checked, err)
	}
	// Another process knows it by its digest.
	again, err := openStore(t, dir).Tree(t.Context(), tree.Digest, digest.FromString("interpreter"))
	if err != nil || again.Digest != tree.Digest || len(again.Manifest()) != len(tree.Manifest()) {
		t.Fatalf("Tree = %v, %v", again, err)
	}
	if _, err := s.Tree(t.Context(), tree.Digest, ""); !errors.Is(err, environment.ErrNotMade) {
		t.Errorf("of no interpreter: %v", err)
	}
	handle, err := again.Open()
	if err != nil {
		t.Fatal(err)
	}
	handle.Close()
}

// Two environments share equal contents.
func TestStoreShares(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "environments"))
	one := stored(t, s, sample)
	two := stored(t, s, map[string]string{"m/__init__.py": "x = 1\n", "other.py": ""})
	a, errA := os.Stat(filepath.Join(treeDir(s, one), site+"m/__init__.py"))
	b, errB := os.Stat(filepath.Join(treeDir(s, two), site+"m/__init__.py"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("equal files are two: %v, %v", errA, errB)
	}
	// A further name of a file changes what the system says of it, not what it has.
	for _, tree := range []*environment.Tree{one, two} {
		if err := tree.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A content or a package that cannot be read to its end leaves nothing.
func TestStoreKeepsNoPart(t *testing.T) {
	s := openStore(t, t.TempDir())
	damaged := errors.New("damaged")
	part := func() io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)), iotest.ErrReader(damaged))
	}
	if _, _, err := s.Put(part(), false); !errors.Is(err, damaged) {
		t.Errorf("Put = %v", err)
	}
	if err := s.Keep("sha256", strings.Repeat("a", 64), part()); !errors.Is(err, damaged) {
		t.Errorf("Keep = %v", err)
	}
	for _, dir := range []string{"tmp", "blobs", "downloads"} {
		if left, err := os.ReadDir(filepath.Join(s.Dir(), dir)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
}

func TestStoreFindsChanges(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: modes of files")
	}
	write := func(name, text string) error {
		return errors.Join(os.Chmod(name, 0o644), os.WriteFile(name, []byte(text), 0o644), os.Chmod(name, 0o444))
	}
	for name, change := range map[string]func(dir string) error{
		"content":    func(dir string) error { return write(filepath.Join(dir, site+"n.py"), "y = 3\n") },
		"derived":    func(dir string) error { return write(filepath.Join(dir, "pyvenv.cfg"), "home = /tmp/evil\n") },
		"mode":       func(dir string) error { return os.Chmod(filepath.Join(dir, site+"n.py"), 0o664) },
		"owner":      func(dir string) error { return os.Chown(filepath.Join(dir, site+"n.py"), 65534, -1) },
		"executable": func(dir string) error { return os.Chmod(filepath.Join(dir, site+"n.py"), 0o555) },
		"added": func(dir string) error {
			return errors.Join(os.Chmod(filepath.Join(dir, site), 0o755), os.WriteFile(filepath.Join(dir, site+"json.py"), nil, 0o444))
		},
		"removed": func(dir string) error {
			return errors.Join(os.Chmod(filepath.Join(dir, site), 0o755), os.Remove(filepath.Join(dir, site+"n.py")))
		},
		"replaced": func(dir string) error {
			return errors.Join(os.Chmod(filepath.Join(dir, site), 0o755), os.Remove(filepath.Join(dir, site+"n.py")),
				os.Symlink("/etc/passwd", filepath.Join(dir, site+"n.py")))
		},
		"link": func(dir string) error {
			return errors.Join(os.Chmod(filepath.Join(dir, "bin"), 0o755), os.Remove(filepath.Join(dir, "bin/python3")),
				os.Symlink("/tmp/evil", filepath.Join(dir, "bin/python3")), os.Chmod(filepath.Join(dir, "bin"), 0o555))
		},
		"directory": func(dir string) error {
			return errors.Join(os.Chmod(filepath.Join(dir, site), 0o755), os.Chmod(filepath.Join(dir, site+"m"), 0o755),
				os.Rename(filepath.Join(dir, site+"m"), filepath.Join(dir, site+"old")), os.Mkdir(filepath.Join(dir, site+"m"), 0o555))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "environments")
			s := openStore(t, dir)
			tree := stored(t, s, sample)
			if err := change(treeDir(s, tree)); errors.Is(err, os.ErrPermission) {
				t.Skipf("missing capability: giving files away: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			var changed *environment.ChangedError
			if err := tree.Verify(t.Context()); !errors.As(err, &changed) {
				t.Errorf("Verify = %v", err)
			}
			for range 2 { // it stays found
				if _, err := s.Tree(t.Context(), tree.Digest, digest.FromString("interpreter")); !errors.As(err, &changed) {
					t.Errorf("Tree = %v", err)
				}
			}
			next := openStore(t, dir)
			if _, err := next.Tree(t.Context(), tree.Digest, digest.FromString("interpreter")); !errors.As(err, &changed) {
				t.Errorf("Tree in another process = %v", err)
			}
			s.Close()
			next.Close()
			if err := stored(t, openStore(t, dir), sample).Verify(t.Context()); err != nil {
				t.Errorf("made anew: %v", err)
			}
		})
	}
}

// Once the kernel is asked for changes, one of a file in its place is found at once too.
func TestCheckFindsWrites(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: inotify")
	}
	s := openStore(t, filepath.Join(t.TempDir(), "environments"))
	tree := stored(t, s, sample)
	if err := tree.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(treeDir(s, tree), site, "n.py")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, bytes.ToUpper(text), 0o644),
		os.Chmod(file, 0o444)); err != nil {
		t.Fatal(err)
	}
	var changed *environment.ChangedError
	if _, err := tree.Check(t.Context()); !errors.As(err, &changed) {
		t.Errorf("Check = %v", err)
	}
}

// A change of directories is found at once, however lately all files were looked at, and whether the kernel is
// asked for changes already or not.
func TestCheckFindsDirectories(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"added":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "json.py"), nil, 0o444) },
		"mode":    func(dir string) error { return os.Chmod(dir, 0o777) },
		"removed": func(dir string) error { return os.RemoveAll(dir) },
		"moved":   func(dir string) error { return os.Rename(dir, dir+"2") },
		"swapped": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o755), os.Remove(dir), os.Rename(dir+"2", dir),
				os.Rename(filepath.Join(dir, "n.py"), filepath.Join(dir, "m.py")))
		},
	} {
		for before := range 3 {
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				s := openStore(t, filepath.Join(t.TempDir(), "environments"))
				tree := stored(t, s, sample)
				at := filepath.Join(treeDir(s, tree), site)
				if err := tree.Verify(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range before {
					if _, err := tree.Check(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.Chmod(filepath.Dir(at), 0o755), os.Chmod(at, 0o755), change(at)); err != nil {
					t.Fatal(err)
				}
				var changed *environment.ChangedError
				if _, err := tree.Check(t.Context()); !errors.As(err, &changed) {
					t.Errorf("Check = %v", err)
				}
			})
		}
	}
}

// Marks are of this boot only: without them every file is hashed.
func TestMarksOfAnotherBoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	tree := stored(t, s, sample)
	marks := filepath.Join(dir, "marks", tree.Name)
	data, err := os.ReadFile(marks)
	if err != nil {
		t.Skipf("missing capability: marks: %v", err)
	}
	lines := strings.SplitN(string(data), "\n", 3)
	for _, forged := range []string{
		lines[0] + "\n00000000-0000-0000-0000-000000000000\n" + lines[2], "", "x", lines[0] + "\n" + lines[1] + "\n",
		lines[0] + "\n" + lines[1] + "\n" + strings.Replace(lines[2], "n.py", "z.py", 1),
	} {
		if err := os.WriteFile(marks, []byte(forged), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openStore(t, dir).Tree(t.Context(), tree.Digest, digest.FromString("interpreter"))
		if good := strings.Contains(forged, "00000000-"); good != (err == nil) {
			t.Errorf("%.60q: %v", forged, err)
		}
	}
}

func TestRemoveInUse(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: locks that end with their process")
	}
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	tree := stored(t, s, sample)
	other := openStore(t, dir)
	if err := other.Remove(tree.Name); !errors.Is(err, environment.ErrInUse) {
		t.Errorf("Remove = %v", err)
	}
	if err := tree.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := other.Remove(tree.Name); err != nil {
		t.Error(err)
	}
	if _, err := other.Tree(t.Context(), tree.Digest, digest.FromString("interpreter")); !errors.Is(err, environment.ErrNotMade) {
		t.Errorf("Tree = %v", err)
	}
}

// lockOf returns a lock that names trees.
func lockOf(trees ...*environment.Tree) *environment.Lock {
	lock := &environment.Lock{Environments: map[string]*environment.Locked{}}
	for _, tree := range trees {
		lock.Environments[tree.Name] = &environment.Locked{Digest: tree.Digest}
	}
	return lock
}

// count returns how many files a directory of a store has.
func count(t *testing.T, dir, sub string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, sub))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// What no lock names is collected, with its contents and marks, but for what a process has open; what one of
// several locks names stays.
func TestCollect(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: numbers of names")
	}
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	one := stored(t, s, sample)
	two := stored(t, s, map[string]string{"m/__init__.py": "x = 1\n", "other.py": "only here"})
	three := stored(t, s, map[string]string{"third.py": "3"})
	if err := s.Keep("sha256", "00", strings.NewReader("packed")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	server := openStore(t, dir)
	if _, err := server.Tree(t.Context(), two.Digest, digest.FromString("interpreter")); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	if err := s.Lock(t.Context(), func() { t.Error("a server keeps a command waiting") }); err != nil {
		t.Fatal(err)
	}
	if got := s.Unused(lockOf(one), lockOf(three)); !slices.Equal(got, []string{two.Name}) {
		t.Errorf("unused: %v", got)
	}
	all := count(t, dir, "blobs")
	got, err := s.Collect(t.Context(), lockOf(one))
	if err != nil || !slices.Equal(got.Trees, []string{three.Name}) || !slices.Equal(got.InUse, []string{two.Name}) || got.Bytes == 0 {
		t.Errorf("Collect = %+v, %v", got, err)
	}
	if left := count(t, dir, "blobs"); left >= all || count(t, dir, "downloads") != 0 || count(t, dir, "marks") != 2 {
		t.Errorf("%d contents of %d are left, %d packages, %d marks", left, all, count(t, dir, "downloads"), count(t, dir, "marks"))
	}
	for name, at := range map[string]*environment.Store{one.Name: s, two.Name: server} {
		sum, _, _ := strings.Cut(name, "-")
		tree, err := at.Tree(t.Context(), digest.Digest("sha256:"+sum), digest.FromString("interpreter"))
		if err == nil {
			err = tree.Rehash(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	server.Close()
	got, err = s.Collect(t.Context(), lockOf(one))
	if err != nil || !slices.Equal(got.Trees, []string{two.Name}) {
		t.Errorf("Collect = %+v, %v", got, err)
	}
}

// One process makes and removes at a time; what one that died was making is removed by the next.
func TestStoreLock(t *testing.T) {
	if !fsys.Locks {
		t.Skip("missing capability: locks that end with their process")
	}
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	if err := s.Lock(t.Context(), func() { t.Error("it waits for nobody") }); err != nil {
		t.Fatal(err)
	}
	b := environment.NewBuild(s, "3.11")
	if err := addWheel(b, "x", "1.0", wheelOf(t, "x", "1.0", sample)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stage(t.Context(), b.Manifest()); err != nil {
		t.Fatal(err)
	}
	other, waits, has := openStore(t, dir), make(chan bool), make(chan error)
	go func() { has <- other.Lock(t.Context(), func() { close(waits) }) }()
	<-waits
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := openStore(t, dir).Lock(ctx, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock = %v", err)
	}
	if count(t, dir, "trees") != 1 {
		t.Error("what is being made is removed")
	}
	s.Close()
	if err := <-has; err != nil {
		t.Fatal(err)
	}
	if n := count(t, dir, "trees"); n != 0 {
		t.Errorf("%d unfinished trees are left", n)
	}
}

// One lock gives one digest in another time zone, with another umask, for another user.
func TestDigestElsewhere(t *testing.T) {
	if dir := os.Getenv("ENVIRONMENT_TEST_DIR"); dir != "" {
		tree := stored(t, openStore(t, dir), sample)
		fmt.Printf("digest %s\n", tree.Digest)
		return
	}
	want := stored(t, openStore(t, filepath.Join(t.TempDir(), "environments")), sample).Digest
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: sh")
	}
	for _, umask := range []string{"000", "077"} {
		dir, err := os.MkdirTemp("", "environment")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		cmd := exec.CommandContext(t.Context(), "sh", "-c",
			"umask "+umask+`; exec "$0" -test.run='^TestDigestElsewhere$'`, os.Args[0])
		cmd.Env = append(os.Environ(), "TZ=Asia/Kathmandu", "ENVIRONMENT_TEST_DIR="+filepath.Join(dir, "e"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "digest "+want.String()+"\n") {
			t.Errorf("umask %s: %v\n%s, want %s", umask, err, out, want)
		}
	}
}

// A file that has as many names as it may have gets another copy.
func TestManyLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	sum, _, err := s.Put(strings.NewReader(""), false)
	if err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(dir, "blobs", sum.Encoded())
	for i := range 70_000 {
		if err := os.Link(blob, filepath.Join(dir, "downloads", fmt.Sprint(i))); err != nil {
			if !errors.Is(err, syscall.EMLINK) {
				t.Fatal(err)
			}
			break
		}
	}
	stored(t, s, sample)
}

func BenchmarkCheck(b *testing.B) {
	files := map[string]string{}
	for i := range 5000 {
		files[fmt.Sprintf("p%d/q%d/f%d.py", i%50, i%500, i)] = strings.Repeat(fmt.Sprint("x = ", i, "\n"), 300)
	}
	dir := filepath.Join(b.TempDir(), "environments")
	s := openStore(b, dir)
	tree := stored(b, s, files)
	b.Run("directories", func(b *testing.B) {
		for b.Loop() {
			if _, err := tree.Check(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			if err := tree.Verify(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			s, err := environment.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.Tree(b.Context(), tree.Digest, digest.FromString("interpreter")); err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
}
