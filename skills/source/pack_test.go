package source_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/store"
)

// entry is a file of an archive under test.
type entry struct {
	zip.FileHeader
	body string
}

func file(name, body string) entry {
	return entry{zip.FileHeader{Name: name, Method: zip.Deflate,
		Modified: time.Date(2026, 3, 4, 5, 6, 8, 0, time.UTC)}, body}
}

func script(name, body string) entry {
	e := file(name, body)
	e.SetMode(0o755)
	return e
}

// pack makes an archive.
func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		header := e.FileHeader
		part, err := w.CreateHeader(&header)
		if err == nil {
			_, err = io.WriteString(part, e.body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// write puts an archive in the place of another, as a rename does.
func write(t testing.TB, path string, archive []byte) {
	t.Helper()
	if err := os.WriteFile(path+".part", archive, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		t.Fatal(err)
	}
}

// open returns an archive that is closed after the test.
func open(t testing.TB, archive []byte) (*source.Zip, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skills.zip")
	write(t, path, archive)
	z := source.NewZip(path)
	t.Cleanup(func() { z.Close() })
	return z, path
}

func scan(t testing.TB, roots ...skills.Root) *skills.Snapshot {
	t.Helper()
	snapshot, err := skills.Scan(t.Context(), roots, nil)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func index(t testing.TB, sk *skills.Skill) *skills.Index {
	t.Helper()
	x, err := sk.Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func version(t testing.TB, src skills.Source) string {
	t.Helper()
	v, err := src.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func openStore(t testing.TB) *store.Store {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}
