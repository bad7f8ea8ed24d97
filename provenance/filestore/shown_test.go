package filestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func keep(t *testing.T, st provenance.Store, id string, data []byte) string {
	t.Helper()
	d, err := st.Keep(t.Context(), id, data)
	if err != nil {
		t.Fatal(err)
	}
	return provenance.ShownName(d)
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	return os.SameFile(x, y)
}

func TestShownIsKeptOnce(t *testing.T) {
	dir := t.TempDir()
	text := bytes.Repeat([]byte("instructions\n"), 10_000)
	var name string
	for _, id := range []string{"s", "t"} {
		st := open(t, dir, nil)
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { keep(t, st, id, text) })
		}
		wg.Wait()
		name = keep(t, st, id, text)
		closeStore(t, st)
	}
	if !sameFile(t, filepath.Join(dir, "s", name), filepath.Join(dir, "t", name)) {
		t.Error("two sessions keep equal bytes twice")
	}
	if r := verify(t, dir, "s"); len(r.Unrecorded) != 0 {
		t.Errorf("Verify = %+v", r)
	}
	// A file of the pool that was changed is not given to others.
	pooled := filepath.Join(dir, "~shown", filepath.Base(name))
	changed := append([]byte("I"), text[1:]...)
	if err := os.Remove(pooled); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pooled, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	st := open(t, dir, nil)
	storetest.Append(t, st, "u", provenance.KindSessionStarted)
	keep(t, st, "u", text)
	if got := storetest.Read(t, st, "u", name); !bytes.Equal(got, text) {
		t.Error("a session was given changed bytes")
	}
	closeStore(t, st)
	verify(t, dir, "u")
	path := filepath.Join(dir, "s", name)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	wantDifference(t, dir, "bytes shown that were changed")
}

// A text that a store knows is linked without being read, until somebody touches it: it is not given on then,
// whatever its size and times say.
func TestShownTouched(t *testing.T) {
	dir := t.TempDir()
	text := []byte("instructions")
	st := open(t, dir, nil)
	var name string
	for _, id := range []string{"a", "b", "c"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		name = keep(t, st, id, text)
	}
	if !sameFile(t, filepath.Join(dir, "a", name), filepath.Join(dir, "c", name)) {
		t.Error("sessions keep equal bytes twice")
	}
	pooled := filepath.Join(dir, "~shown", filepath.Base(name))
	info, err := os.Stat(pooled)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(pooled, 0o600), os.WriteFile(pooled, []byte("INSTRUCTIONS"), 0o600),
		os.Chtimes(pooled, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"d", "e"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		keep(t, st, id, text)
		if got := storetest.Read(t, st, id, name); !bytes.Equal(got, text) {
			t.Errorf("session %s was given changed bytes: %q", id, got)
		}
	}
	if !sameFile(t, filepath.Join(dir, "d", name), filepath.Join(dir, "e", name)) {
		t.Error("the changed file is still in the pool")
	}
	if err := os.RemoveAll(filepath.Join(dir, "~shown")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"f", "g"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		keep(t, st, id, text)
	}
	if !sameFile(t, filepath.Join(dir, "f", name), filepath.Join(dir, "g", name)) {
		t.Error("sessions share nothing after the pool was emptied")
	}
	closeStore(t, st)
	leftovers, err := filepath.Glob(filepath.Join(dir, "*", "shown", ".*"))
	if err != nil || len(leftovers) != 0 {
		t.Errorf("%v are left, %v", leftovers, err)
	}
	verify(t, dir, "d")
}

// Sessions that have texts, and so hold their directories open, are given links to more of them, but nothing
// that was touched, and nothing is lost that they keep after a directory was removed.
func TestShownWhileOpen(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Quiet: time.Hour})
	same := func(text, a, b string) bool {
		for _, id := range []string{a, b} {
			if got := storetest.Read(t, st, id, keep(t, st, id, []byte(text))); string(got) != text {
				t.Errorf("session %s has %q, want %q", id, got, text)
			}
		}
		name := provenance.ShownName(digest.FromString(text))
		return sameFile(t, filepath.Join(dir, a, name), filepath.Join(dir, b, name))
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		keep(t, st, id, []byte("first"))
	}
	if !same("second", "a", "b") {
		t.Error("sessions keep equal bytes twice")
	}
	pooled := filepath.Join(dir, "~shown", digest.FromString("second").Encoded())
	info, err := os.Stat(pooled)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(pooled, 0o600), os.WriteFile(pooled, []byte("SECOND"), 0o600),
		os.Chtimes(pooled, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if !same("second", "c", "d") {
		t.Error("the changed file is still in the pool")
	}
	for name, text := range map[string]string{"~shown": "third", "a/shown": "fourth", "b/shown": "fifth"} {
		if err := os.RemoveAll(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
		if name == "~shown" { // another server has made it again
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if !same(text, "a", "b") || !same(text, "c", "b") {
			t.Errorf("sessions share nothing after %s was removed", name)
		}
	}
	closeStore(t, st)
	verify(t, dir, "c")
}

func TestShownLimits(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Shown: 100})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	var names []string
	for i := range 3 {
		names = append(names, keep(t, st, "s", fmt.Appendf(nil, "%050d", i)))
	}
	for i, name := range names {
		_, err := os.Stat(filepath.Join(dir, "s", name))
		if kept := err == nil; kept != (i < 2) {
			t.Errorf("text %d is kept: %v, limit is two", i, kept)
		}
	}
	closeStore(t, st)
	st = open(t, dir, &filestore.Options{ForgetShown: true})
	storetest.Append(t, st, "t", provenance.KindSessionStarted)
	if d, err := st.Keep(t.Context(), "t", []byte("x")); err != nil || d != digest.FromString("x") {
		t.Errorf("Keep = %s, %v", d, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "t", provenance.ShownDir)); err == nil {
		t.Error("a store that is to forget keeps what was shown")
	}
	closeStore(t, st)
}

// BenchmarkKeep is the cost of keeping 8 KiB of instructions: the first time ever, the first time in a
// session, and again.
func BenchmarkKeep(b *testing.B) {
	text := bytes.Repeat([]byte("instructions of 32 bytes or more"), 256)
	st, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	must := func(id string, data []byte) {
		if _, err := st.Keep(b.Context(), id, data); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n++
			must("s", append(fmt.Appendf(nil, "%s %d ", b.Name(), n), text...))
		}
	})
	b.Run("linked", func(b *testing.B) {
		var ids []string
		for i := range 200 {
			id := fmt.Sprintf("s%d", i)
			if err := st.Append(b.Context(), storetest.Event(id, provenance.KindSessionStarted, 0)); err != nil {
				b.Fatal(err)
			}
			ids = append(ids, id)
		}
		n := 0
		for b.Loop() {
			must(ids[n%len(ids)], append(fmt.Appendf(nil, "%d ", n/len(ids)), text...))
			n++
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			must("s", text)
		}
	})
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}
