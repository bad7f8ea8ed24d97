package filestore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

var madeAt = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// catalogue is a registry as a server has it that generated it at a time.
type catalogue struct {
	provenance.Shared
	written int // how often it was written
}

func generated(at time.Time, skills string) *catalogue {
	c := &catalogue{}
	c.Write = func(w io.Writer, made func(time.Time) error) error {
		c.written++
		_, err := io.WriteString(w, "{\n  \"generatedAt\": \"")
		err = errors.Join(err, made(at))
		_, failed := io.WriteString(w, "\",\n  \"skills\": \""+skills+"\"\n}\n")
		return errors.Join(err, failed)
	}
	return c
}

// beginShared records the start of a session and its registry.
func beginShared(t *testing.T, st provenance.Store, id string, c *catalogue) {
	t.Helper()
	storetest.Append(t, st, id, provenance.KindSessionStarted)
	f, err := st.PutShared(t.Context(), id, provenance.RegistryFile, &c.Shared)
	if err != nil {
		t.Fatal(err)
	}
	e := storetest.Event(id, provenance.KindRegistrySnapshot, 2)
	e.Files = []provenance.File{f}
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// generatedAt returns the time in the registry of a session.
func generatedAt(t *testing.T, dir, id string) time.Time {
	t.Helper()
	data, err := os.ReadFile(registryPath(dir, id))
	var text struct{ GeneratedAt time.Time }
	if err := errors.Join(err, json.Unmarshal(data, &text)); err != nil {
		t.Fatal(err)
	}
	return text.GeneratedAt
}

var many = strings.Repeat("skill ", 100_000)

// Servers that start one after another share the registry of an unchanged catalogue, with the time of the
// first; another catalogue has a registry of its own.
func TestRegistryIsSharedByServers(t *testing.T) {
	dir := t.TempDir()
	for server := range 3 {
		st := open(t, dir, nil)
		c := generated(madeAt.Add(time.Duration(server)*time.Hour), many)
		for n := range 3 {
			beginShared(t, st, fmt.Sprintf("s%d-%d", server, n), c)
		}
		if c.written != 1 {
			t.Errorf("server %d wrote the registry %d times", server, c.written)
		}
		closeStore(t, st)
	}
	st := open(t, dir, nil)
	beginShared(t, st, "other", generated(madeAt, many[1:]))
	closeStore(t, st)
	for server := range 3 {
		for n := range 3 {
			id := fmt.Sprintf("s%d-%d", server, n)
			if r := verify(t, dir, id); len(r.Unrecorded)+len(r.Stale) != 0 {
				t.Errorf("Verify = %+v", r)
			}
			if at := generatedAt(t, dir, id); !at.Equal(madeAt) {
				t.Errorf("registry of %s is of %v, want %v", id, at, madeAt)
			}
		}
	}
	if first, other := stat(t, registryPath(dir, "s0-0")), stat(t, registryPath(dir, "other")); first.Nlink != 10 || other.Nlink != 2 {
		t.Errorf("the registries have %d and %d names, want 10 and 2, one of each in the pool", first.Nlink, other.Nlink)
	}
	if used := diskUse(t, dir); used > 2*int64(len(many))+10*60<<10 {
		t.Errorf("10 sessions take %d bytes, the two registries %d", used, 2*len(many))
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// Whoever changes it changes it for all, and Verify says so of each.
	data, err := os.ReadFile(registryPath(dir, "s1-1"))
	rewrite(t, registryPath(dir, "s1-1"), append([]byte("["), data[1:]...))
	for _, id := range []string{"s0-0", "s1-1", "s2-2"} {
		var ve *provenance.VerifyError
		if _, failed := filestore.Verify(dir, id); err != nil || !errors.As(failed, &ve) || ve.File != provenance.RegistryFile {
			t.Errorf("Verify of %s with a changed registry = %v", id, failed)
		}
	}
	if err := os.Remove(registryPath(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if _, err := filestore.Verify(dir, "other"); err == nil || !strings.Contains(err.Error(), "skill-registry.json:1: missing") {
		t.Errorf("Verify without a registry = %v", err)
	}
}

// rewrite changes a file in place as its owner can, and puts its time back.
func rewrite(t *testing.T, file string, data []byte) {
	t.Helper()
	info, err := os.Stat(file)
	if err := errors.Join(err, os.Chmod(file, 0o600), os.WriteFile(file, data, 0o600), os.Chmod(file, 0o400),
		os.Chtimes(file, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
}

// What became of the shared registry is not passed on: neither by the server that wrote it and need not read
// it again, nor by one that finds it.
func TestChangedRegistryIsNotShared(t *testing.T) {
	later := "2027-11-22T09:00:00.000Z"
	for name, change := range map[string]func(t *testing.T, pooled string, data []byte){
		"bytes":   func(t *testing.T, pooled string, data []byte) { rewrite(t, pooled, append([]byte("["), data[1:]...)) },
		"longer":  func(t *testing.T, pooled string, data []byte) { rewrite(t, pooled, append(data, '\n')) },
		"cut":     func(t *testing.T, pooled string, data []byte) { rewrite(t, pooled, data[:len(data)-1]) },
		"emptied": func(t *testing.T, pooled string, _ []byte) { rewrite(t, pooled, nil) },
		"a later time": func(t *testing.T, pooled string, data []byte) {
			rewrite(t, pooled, bytes.Replace(data, []byte(provenance.FormatTime(madeAt)), []byte(later), 1))
		},
		"no time": func(t *testing.T, pooled string, data []byte) {
			rewrite(t, pooled, bytes.Replace(data, []byte("2026-11-22T09"), []byte("\", \"skills\":"), 1))
		},
		"removed": func(t *testing.T, pooled string, _ []byte) { must(t, os.Remove(pooled)) },
		"fifo": func(t *testing.T, pooled string, _ []byte) {
			must(t, os.Remove(pooled), syscall.Mkfifo(pooled, 0o600))
		},
		"link": func(t *testing.T, pooled string, _ []byte) {
			must(t, os.Rename(pooled, pooled+"-away"), os.Symlink(filepath.Base(pooled)+"-away", pooled))
		},
		"another file": func(t *testing.T, pooled string, data []byte) {
			must(t, os.Remove(pooled), os.WriteFile(pooled, append([]byte("["), data[1:]...), 0o400))
		},
		"directory": func(t *testing.T, pooled string, _ []byte) { must(t, os.Remove(pooled), os.Mkdir(pooled, 0o700)) },
		"no pool":   func(t *testing.T, pooled string, _ []byte) { must(t, os.RemoveAll(filepath.Dir(pooled))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir, nil)
			mine := generated(madeAt, many)
			beginShared(t, st, "a", mine)
			pooled, err := filepath.Glob(filepath.Join(dir, "~shown", "*"))
			if err != nil || len(pooled) != 1 {
				t.Fatalf("the pool has %v, %v", pooled, err)
			}
			data, err := os.ReadFile(pooled[0])
			must(t, err)
			change(t, pooled[0], data)
			beginShared(t, st, "b", mine)
			if mine.written != 2 {
				t.Errorf("the registry was written %d times, want once more after it changed", mine.written)
			}
			closeStore(t, st)
			must(t, os.RemoveAll(filepath.Join(dir, "b")))
			pooled, _ = filepath.Glob(filepath.Join(dir, "~shown", "common-*"))
			if len(pooled) > 0 {
				data, err = os.ReadFile(pooled[0])
				if err == nil {
					change(t, pooled[0], data)
				}
			}
			st = open(t, dir, nil)
			for _, id := range []string{"c", "d"} {
				beginShared(t, st, id, generated(madeAt.Add(time.Hour), many))
			}
			closeStore(t, st)
			for _, id := range []string{"c", "d"} {
				if r := verify(t, dir, id); len(r.Unrecorded) != 0 {
					t.Errorf("Verify(%s) = %+v", id, r)
				}
				if at := generatedAt(t, dir, id); at.After(madeAt.Add(time.Hour)) {
					t.Errorf("registry of %s is of %v", id, at)
				}
			}
			if name != "directory" && stat(t, registryPath(dir, "c")).Ino != stat(t, registryPath(dir, "d")).Ino {
				t.Error("the sessions after the change share no file")
			}
		})
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Servers that begin at once leave one registry; a collection in between takes none that a session has.
func TestRegistryOfServersAtOnce(t *testing.T) {
	if n := registriesOfServers(t, false); n != 1 {
		t.Errorf("the sessions have %d registries", n)
	}
	// A server writes its own when a collection takes the name that no session has yet, or when the one that
	// is there was made later.
	registriesOfServers(t, true)
}

// registriesOfServers has servers begin sessions at once, verifies all, and returns how many registries they
// have.
func registriesOfServers(t *testing.T, collect bool) int {
	t.Helper()
	dir := t.TempDir()
	const servers, each = 4, 5
	var done, collecting sync.WaitGroup
	stop := make(chan struct{})
	collecting.Go(func() {
		for collect {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := filestore.Collect(t.Context(), dir, provenance.CollectOptions{Before: time.Now(), Keep: 1000}); err != nil {
				t.Error(err)
			}
		}
	})
	for server := range servers {
		st := open(t, dir, nil)
		done.Go(func() {
			at := madeAt
			if collect {
				at = at.Add(time.Duration(server) * time.Hour)
			}
			c := generated(at, many)
			for n := range each {
				beginShared(t, st, fmt.Sprintf("s%d-%d", server, n), c)
			}
			closeStore(t, st)
		})
	}
	done.Wait()
	close(stop)
	collecting.Wait()
	files := map[uint64]bool{}
	for server := range servers {
		for n := range each {
			id := fmt.Sprintf("s%d-%d", server, n)
			verify(t, dir, id)
			files[stat(t, registryPath(dir, id)).Ino] = true
		}
	}
	return len(files)
}

// The registry goes with the last session that has it, and the total of records counts it once. The quota of
// a principal does not.
func TestSharedRegistryIsCounted(t *testing.T) {
	dir := t.TempDir()
	size := int64(len(many))
	st := open(t, dir, &filestore.Options{Quota: func(string) filestore.Quota { return filestore.Quota{Bytes: size} }})
	for i, id := range []string{"a", "b", "c"} {
		e := storetest.Event(id, provenance.KindSessionStarted, 1)
		e.Time = madeAt.Add(time.Duration(i) * time.Hour)
		must(t, st.Append(t.Context(), e))
		beginSharedAgain(t, st, id)
	}
	if err := st.Append(t.Context(), storetest.Event("d", provenance.KindSessionStarted, 1)); err != nil {
		t.Errorf("the registry counts for the quota of a principal: %v", err)
	}
	closeStore(t, st)
	total := func(bytes int64, dry bool) []string {
		return collect(t, dir, provenance.CollectOptions{Total: bytes, DryRun: dry})
	}
	if got := total(size+1<<20, true); len(got) != 0 {
		t.Errorf("a total with room for the registry deletes %v", got)
	}
	if got := total(size/2, true); len(got) < 3 {
		t.Errorf("a total below the size of the registry deletes %v, want all that have it", got)
	}
	pooled := func() int { names, _ := filepath.Glob(filepath.Join(dir, "~shown", "*")); return len(names) }
	must(t, os.RemoveAll(filepath.Join(dir, "a")))
	total(1<<40, false)
	if pooled() != 1 {
		t.Errorf("the pool has %d files although sessions have the registry", pooled())
	}
	total(1, false)
	if pooled() != 0 {
		t.Errorf("the pool has %d files although no session is left", pooled())
	}
}

func beginSharedAgain(t *testing.T, st provenance.Store, id string) {
	t.Helper()
	f, err := st.PutShared(t.Context(), id, provenance.RegistryFile, &generated(madeAt, many).Shared)
	must(t, err)
	e := storetest.Event(id, provenance.KindRegistrySnapshot, 2)
	e.Files = []provenance.File{f}
	must(t, st.Append(t.Context(), e))
}

// A failure of writing the content leaves nothing, and the next session can have it.
func TestSharedContentThatFails(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	storetest.Append(t, st, "a", provenance.KindSessionStarted)
	broken := errors.New("no such skill")
	write := func(w io.Writer, made func(time.Time) error) error {
		_, err := io.WriteString(w, many)
		return errors.Join(err, broken)
	}
	c := &provenance.Shared{Write: write}
	if _, err := st.PutShared(t.Context(), "a", provenance.RegistryFile, c); !errors.Is(err, broken) {
		t.Errorf("PutShared = %v", err)
	}
	for _, name := range []string{"outputs/o.stdout", "../x", provenance.SessionFile} {
		if _, err := st.PutShared(t.Context(), "a", name, c); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("PutShared of %s = %v", name, err)
		}
	}
	c.Write = func(_ io.Writer, made func(time.Time) error) error { return errors.Join(made(madeAt), made(madeAt)) }
	if _, err := st.PutShared(t.Context(), "a", provenance.RegistryFile, c); err == nil {
		t.Error("a content with two times is shared")
	}
	closeStore(t, st)
	left := 0
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, en fs.DirEntry, err error) error {
		if strings.Contains(path, "common-") || strings.Contains(path, ".tmp-") || strings.Contains(path, provenance.RegistryFile) {
			left++
		}
		return err
	}))
	if left != 0 {
		t.Errorf("%d files are left", left)
	}
}

// BenchmarkPutShared begins sessions of a server with a registry of 35 MB, and of servers that start one after
// another.
func BenchmarkPutShared(b *testing.B) {
	large := strings.Repeat(many, 58)
	for _, name := range []string{"one server", "servers"} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			st, err := filestore.Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			c, n := generated(madeAt, large), 0
			b.ReportAllocs()
			for b.Loop() {
				if name == "servers" {
					c = generated(madeAt.Add(time.Hour), large)
				}
				id := fmt.Sprint("s", n)
				n++
				if _, err := st.PutShared(b.Context(), id, provenance.RegistryFile, &c.Shared); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			if err := st.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
