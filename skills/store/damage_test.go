package store

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
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// stored puts the sample and opens its directory to the test's hands.
func stored(t *testing.T) (*Store, *Tree, string) {
	t.Helper()
	s, _ := openStore(t)
	tree, err := s.Put(t.Context(), sample.files(), sample.open)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Dir(), tree.Digest.Encoded())
	for _, name := range []string{"", "scripts", "scripts/run.sh"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s, tree, dir
}

func wantCorrupt(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		t.Errorf("err = %v, want *CorruptError", err)
	}
}

// Bytes of the same length under the same times differ only in what the system records of a change.
func TestTreeFindsDisguisedChange(t *testing.T) {
	s, tree, dir := stored(t)
	if _, err := s.Tree(t.Context(), tree.Digest); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "scripts/run.sh")
	info, err := os.Stat(script)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("echo ho\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(script, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Tree(t.Context(), tree.Digest)
	wantCorrupt(t, err)
	_, err = tree.ReadFile("scripts/run.sh")
	wantCorrupt(t, err)
}

// A process vouches for nothing it has not hashed itself.
func TestTreeHashesAfterRestart(t *testing.T) {
	s, tree, dir := stored(t)
	if err := os.WriteFile(filepath.Join(dir, "scripts/run.sh"), []byte("echo ho\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := Open(filepath.Dir(s.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	_, err = next.Tree(t.Context(), tree.Digest)
	wantCorrupt(t, err)
}

func TestTreeFindsExtraDirectory(t *testing.T) {
	s, tree, dir := stored(t)
	if err := os.Mkdir(filepath.Join(dir, "scripts/json"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.Tree(t.Context(), tree.Digest)
	wantCorrupt(t, err)
}

func TestOpenRefusesReplacedDirectory(t *testing.T) {
	_, tree, dir := stored(t)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	handle, err := tree.Open()
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: inode numbers")
	}
	wantCorrupt(t, err)
	if handle != nil {
		t.Error("Open returned a handle of another directory")
	}
}

func TestReadFileUnknown(t *testing.T) {
	_, tree, _ := stored(t)
	for _, name := range []string{"nope", "../" + tree.Digest.Encoded() + "/empty", "scripts",
		"/etc/passwd"} {
		if _, err := tree.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadFile(%q) = %v, want ErrNotExist", name, err)
		}
	}
}

func TestTreeRefusesDigests(t *testing.T) {
	s, _ := openStore(t)
	for _, want := range []digest.Digest{"", "sha256:", "sha256:../../etc",
		digest.Digest("sha512:" + strings.Repeat("a", 128)), digest.FromString("x")} {
		if _, err := s.Tree(t.Context(), want); !errors.Is(err, ErrNotFound) {
			t.Errorf("Tree(%q) = %v, want ErrNotFound", want, err)
		}
	}
}

func TestPutErrors(t *testing.T) {
	changed := errors.New("source is gone")
	for _, test := range []struct {
		name  string
		files []File
		open  func(string) (io.ReadCloser, error)
		is    func(error) bool
	}{
		{"wrong digest", sample.files(), texts{}.open, func(err error) bool {
			_, ok := errors.AsType[*ContentError](err)
			return ok
		}},
		{"unreadable", sample.files(), func(string) (io.ReadCloser, error) { return nil, changed },
			func(err error) bool { return errors.Is(err, changed) }},
		{"one path twice", append(sample.files(), sample.files()...), sample.open,
			func(err error) bool { return errors.Is(err, fs.ErrExist) }},
		{"no digest", []File{{Path: "a"}}, sample.open, func(err error) bool { return err != nil }},
		{"bad path", texts{"a/../b": ""}.files(), texts{"a/../b": ""}.open, func(err error) bool {
			_, ok := errors.AsType[*PathError](err)
			return ok
		}},
		{"file and directory", texts{"a": "", "a/b": ""}.files(), texts{}.open,
			func(err error) bool { return err != nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, _ := openStore(t)
			tree, err := s.Put(t.Context(), test.files, test.open)
			if tree != nil || !test.is(err) {
				t.Errorf("Put = %v, %v", tree, err)
			}
			if entries, err := os.ReadDir(s.Dir()); err != nil || len(entries) != 0 {
				t.Errorf("the store holds %v, %v", entries, err)
			}
		})
	}
}

func TestPutCanceled(t *testing.T) {
	s, _ := openStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Put(ctx, sample.files(), func(path string) (io.ReadCloser, error) {
		cancel()
		return sample.open(path)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Put = %v, want context.Canceled", err)
	}
	if entries, err := os.ReadDir(s.Dir()); err != nil || len(entries) != 0 {
		t.Errorf("the store holds %v, %v", entries, err)
	}
}

func TestOpenRemovesWhatDeadProcessesLeft(t *testing.T) {
	s, dir := openStore(t)
	long := time.Now().Add(-2 * tempLife)
	for _, name := range []string{"tmp-dead", "tmp-live"} {
		if err := os.MkdirAll(filepath.Join(s.Dir(), name, "scripts"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(s.Dir(), name, "scripts"), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(s.Dir(), "tmp-dead"), long, long); err != nil {
		t.Fatal(err)
	}
	next, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if _, err := os.Lstat(filepath.Join(s.Dir(), "tmp-dead")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tmp-dead is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(s.Dir(), "tmp-live")); err != nil {
		t.Errorf("tmp-live is gone: %v", err)
	}
	if runtime.GOOS == "windows" {
		return // nobody can be known to be alone here
	}
	next.Close()
	s.Close()
	// Nobody else has the store open: who made the directory is dead, however lately.
	last, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if _, err := os.Lstat(filepath.Join(s.Dir(), "tmp-live")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tmp-live is still there after its process: %v", err)
	}
}

func TestOpenUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "state")); !errors.Is(err, ErrUnwritable) {
		t.Errorf("Open below a file = %v, want ErrUnwritable", err)
	}
}

// The digest is the one sha256sum's output has, for names it escapes too.
func TestTreeDigestIsThatOfSha256sum(t *testing.T) {
	tool, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("missing capability: sha256sum")
	}
	dir := t.TempDir()
	tree := texts{"b": "2", "B": "3", "a.txt": "0", "back\\slash": "4", "line\nbreak": "5", "ü": "6"}
	for name, data := range tree {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Skipf("needs a file system with such names: %v", err)
		}
	}
	sorted := sortFiles(tree.files())
	cmd := exec.CommandContext(t.Context(), tool, "--")
	cmd.Dir = dir
	for _, file := range sorted {
		cmd.Args = append(cmd.Args, file.Path)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := TreeDigest(tree.files()), digest.FromBytes(out); got != want {
		t.Errorf("TreeDigest = %s, want %s of\n%s", got, want, out)
	}
}

// A file's name must not be able to stand for two files.
func TestTreeDigestIsInjective(t *testing.T) {
	honest := texts{"a": "1", "b": "2"}.files()
	forged := []File{{Path: "a\n" + digest.FromString("2").Encoded() + "  b", Digest: digest.FromString("1")}}
	if TreeDigest(honest) == TreeDigest(forged) {
		t.Error("one file with a line break in its name has the digest of two files")
	}
}

// Two processes store one tree at the same time, each many times over.
func TestPutInTwoProcesses(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_PUT"); dir != "" {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			tree := texts{"SKILL.md": fmt.Sprint(i), "scripts/a": strings.Repeat("x", i)}
			if _, err := s.Put(t.Context(), tree.files(), tree.open); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	s, dir := openStore(t)
	var running []*exec.Cmd
	var out [2]bytes.Buffer
	for i := range out {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPutInTwoProcesses$")
		cmd.Env = append(os.Environ(), "STORE_TEST_PUT="+dir)
		cmd.Stdout = &out[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, out[i].Bytes())
		}
	}
	if entries, err := os.ReadDir(s.Dir()); err != nil || len(entries) != 50 {
		t.Errorf("the store holds %d entries, %v, want 50 trees", len(entries), err)
	}
}

func BenchmarkPut(b *testing.B) {
	tree := texts{}
	for i := range 512 {
		tree[fmt.Sprintf("references/%d.md", i)] = strings.Repeat(fmt.Sprint(i), 4<<10)
	}
	for b.Loop() {
		s, err := Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Put(b.Context(), tree.files(), tree.open); err != nil {
			b.Fatal(err)
		}
	}
}
