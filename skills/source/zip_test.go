package source_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
)

const skill = "---\nname: demo\ndescription: A skill for tests.\n---\n# Demo\n"

func demo() []entry {
	return []entry{
		file("demo/SKILL.md", skill), file("demo/references/notes.md", strings.Repeat("Notes.\n", 1000)),
		script("demo/scripts/ok.sh", "#!/bin/sh\necho ok\n"),
		file("demo/inner/SKILL.md", "---\nname: inner\ndescription: Within.\n---\nInner.\n"),
	}
}

func TestZipIsFileSystem(t *testing.T) {
	t.Parallel()
	z, _ := open(t, pack(t, demo()...))
	if err := fstest.TestFS(z, "demo/SKILL.md", "demo/references/notes.md", "demo/scripts/ok.sh",
		"demo/inner/SKILL.md"); err != nil {
		t.Error(err)
	}
	empty, _ := open(t, pack(t))
	if err := fstest.TestFS(empty); err != nil {
		t.Error(err)
	}
}

// A scan of an archive gives the skills that a scan of the same files in a directory gives.
func TestZipScansLikeDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, e := range demo() {
		path := filepath.Join(dir, filepath.FromSlash(e.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(e.body), e.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	z, path := open(t, pack(t, demo()...))
	want := scan(t, skills.Root{Dir: dir})
	got := scan(t, skills.Root{Dir: z.Origin(), FS: z})
	if len(want.Skills) != 2 || len(got.Skills) != 2 || len(got.Diagnostics) != 0 {
		t.Fatalf("skills = %d, in a directory %d; %v", len(got.Skills), len(want.Skills), got.Diagnostics)
	}
	st := openStore(t)
	for i, sk := range got.Skills {
		if sk.Path != want.Skills[i].Path || sk.Digest != want.Skills[i].Digest ||
			sk.Dir != want.Skills[i].Dir {
			t.Errorf("skill = %s %s, want %s %s", sk.Path, sk.Digest, want.Skills[i].Path,
				want.Skills[i].Digest)
		}
		mine, theirs := index(t, sk), index(t, want.Skills[i])
		if mine.TreeDigest != theirs.TreeDigest {
			t.Errorf("%s: tree digest %s, in a directory %s", sk.Path, mine.TreeDigest, theirs.TreeDigest)
		}
		if _, err := sk.Stage(t.Context(), st); err != nil {
			t.Errorf("Stage = %v", err)
		}
		if err := sk.Verify(t.Context()); err != nil {
			t.Errorf("Verify = %v", err)
		}
	}
	if ok := index(t, got.Skills[0]).Resource("scripts/ok.sh"); ok == nil || ok.Script == nil ||
		!ok.Script.Executable {
		t.Errorf("the script is not executable: %+v", ok)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside the archive lie %v, %v", entries, err)
	}
}

// A root that is itself a skill is named by the root.
func TestZipOfOneSkill(t *testing.T) {
	t.Parallel()
	z, _ := open(t, pack(t, file("SKILL.md", skill)))
	snapshot := scan(t, skills.Root{Dir: z.Origin(), FS: z, Name: "demo", Prefix: "acme"})
	if len(snapshot.Skills) != 1 || snapshot.Skills[0].Path != "acme/demo" ||
		!snapshot.Skills[0].Form.Publishable {
		t.Errorf("skills = %v", snapshot.Skills)
	}
}

// What replaced an archive is served from the next call on; what was open or pinned goes on with the
// bytes it began with.
func TestZipReplaced(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("old bytes\n", 100_000)
	z, path := open(t, pack(t, file("demo/SKILL.md", skill), file("demo/a.txt", old),
		file("demo/gone.txt", "gone")))
	before := version(t, z)
	sk := scan(t, skills.Root{Dir: z.Origin(), FS: z}).Skills[0]
	index(t, sk)
	reading, err := z.Open("demo/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	head := make([]byte, 10)
	if _, err := io.ReadFull(reading, head); err != nil {
		t.Fatal(err)
	}
	pinned, err := z.Pin()
	if err != nil {
		t.Fatal(err)
	}

	write(t, path, pack(t, file("demo/SKILL.md", skill), file("demo/a.txt", "new bytes\n")))
	if rest, err := io.ReadAll(reading); err != nil || string(head)+string(rest) != old {
		t.Errorf("a file that was open gives %d bytes, %v", len(head)+len(rest), err)
	}
	for name, want := range map[string]string{"demo/a.txt": old, "demo/gone.txt": "gone"} {
		if data, err := fs.ReadFile(pinned, name); err != nil || string(data) != want {
			t.Errorf("pinned %s = %d bytes, %v", name, len(data), err)
		}
	}
	if data, err := fs.ReadFile(z, "demo/a.txt"); err != nil || string(data) != "new bytes\n" {
		t.Errorf("a.txt = %.20q, %v", data, err)
	}
	if after := version(t, z); after == before {
		t.Error("the version did not change")
	}
	content, err := sk.Read(t.Context(), "a.txt", 1<<20)
	if err != nil || content.Matches || string(content.Data) != "new bytes\n" {
		t.Errorf("Read = %+v, %v", content, err)
	}
	if _, err := sk.Read(t.Context(), "gone.txt", 1<<20); !errors.Is(err, skills.ErrNotFound) {
		t.Errorf("Read of a file that is gone = %v", err)
	}
	var drift *skills.DriftError
	if err := sk.Verify(t.Context()); !errors.As(err, &drift) || drift.Path != "a.txt" {
		t.Errorf("Verify = %v", err)
	}
	if _, err := sk.Stage(t.Context(), openStore(t)); !errors.As(err, &drift) {
		t.Errorf("Stage = %v", err)
	}

	// The same content again is the same version, whatever the file.
	write(t, path, pack(t, file("demo/SKILL.md", skill), file("demo/a.txt", old),
		file("demo/gone.txt", "gone")))
	if again := version(t, z); again != before {
		t.Errorf("version %s, before %s", again, before)
	}
	if err := sk.Verify(t.Context()); err != nil {
		t.Errorf("Verify after all is as it was = %v", err)
	}
}

// An archive that is written over in place never gives bytes of both.
func TestZipWrittenOver(t *testing.T) {
	t.Parallel()
	old, fresh := strings.Repeat("old", 400_000), strings.Repeat("new", 400_000)
	stored := func(body string) entry {
		e := file("a.txt", body)
		e.Method = zip.Store
		return e
	}
	z, path := open(t, pack(t, stored(old)))
	pinned, err := z.Pin()
	if err != nil {
		t.Fatal(err)
	}
	reading, err := z.Open("a.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	if _, err := io.CopyN(io.Discard, reading, 3000); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pack(t, stored(fresh)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, reading); err == nil {
		t.Error("a file that began in the old archive ends in the other")
	}
	if data, err := fs.ReadFile(pinned, "a.txt"); err == nil {
		t.Errorf("a pinned archive that was written over gives %.9q", data)
	}
	if data, err := fs.ReadFile(z, "a.txt"); err != nil || string(data) != fresh {
		t.Errorf("a.txt = %.9q, %v", data, err)
	}
}

// An archive that was touched while a file of it was read is not vouched for, though all bytes agree.
func TestZipTouched(t *testing.T) {
	t.Parallel()
	z, path := open(t, pack(t, file("a.txt", strings.Repeat("a", 100_000))))
	reading, err := z.Open("a.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	if _, err := io.CopyN(io.Discard, reading, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, reading); err == nil || !strings.Contains(err.Error(), "written over") {
		t.Errorf("Read = %v", err)
	}
	if _, err := fs.ReadFile(z, "a.txt"); err != nil {
		t.Errorf("a.txt opened again = %v", err)
	}
}

// A replacement of the same size and time is noticed.
func TestZipReplacedAlike(t *testing.T) {
	t.Parallel()
	z, path := open(t, pack(t, file("a.txt", "old")))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, body := range []string{"old", "new"} {
		if body == "new" {
			write(t, path, pack(t, file("a.txt", body)))
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if data, err := fs.ReadFile(z, "a.txt"); err != nil || string(data) != body {
			t.Errorf("a.txt = %q, %v, want %q", data, err, body)
		}
	}
}

// An archive that is gone or broken is an error of each call, and no more when a good one is there.
func TestZipComesAndGoes(t *testing.T) {
	t.Parallel()
	z, path := open(t, pack(t, demo()...))
	sk := scan(t, skills.Root{Dir: z.Origin(), FS: z}).Skills[0]
	index(t, sk)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Open":    func() error { _, err := z.Open("demo/SKILL.md"); return err },
		"Pin":     func() error { _, err := z.Pin(); return err },
		"Version": func() error { _, err := z.Version(t.Context()); return err },
	} {
		if err := call(); !errors.Is(err, fs.ErrNotExist) ||
			strings.Contains(err.Error(), filepath.Dir(path)) {
			t.Errorf("%s of an archive that is gone = %v", name, err)
		}
	}
	if _, err := sk.Read(t.Context(), "references/notes.md", 1<<20); !errors.Is(err, skills.ErrNotFound) {
		t.Errorf("Read = %v", err)
	}
	write(t, path, []byte("no archive"))
	var refused *archive.Error
	if _, err := z.Open("."); !errors.As(err, &refused) {
		t.Errorf("Open of a broken archive = %v", err)
	}
	snapshot := scan(t, skills.Root{Dir: z.Origin(), FS: z})
	if len(snapshot.Skills) != 0 || len(snapshot.Diagnostics) != 1 ||
		snapshot.Diagnostics[0].Code != skills.CodeUnreadableRoot ||
		!strings.Contains(snapshot.Diagnostics[0].Detail, "has no end record") {
		t.Errorf("scan = %v %v", snapshot.Skills, snapshot.Diagnostics)
	}
	if _, err := skills.Scan(t.Context(), []skills.Root{{Dir: path, FS: z}},
		&skills.ScanOptions{StrictRoots: true}); err == nil {
		t.Error("StrictRoots lets a broken archive pass")
	}
	write(t, path, pack(t, demo()...))
	if content, err := sk.Read(t.Context(), "references/notes.md", 1<<20); err != nil || !content.Matches {
		t.Errorf("Read = %v, %v", content, err)
	}
}

func TestZipClose(t *testing.T) {
	t.Parallel()
	z, _ := open(t, pack(t, demo()...))
	reading, err := z.Open("demo/references/notes.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), z.Close()); err != nil {
		t.Errorf("Close = %v", err)
	}
	if _, err := io.ReadAll(reading); err == nil {
		t.Error("a file reads on after Close")
	}
	if _, err := z.Open("."); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Open = %v", err)
	}
	if _, err := z.Version(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Version = %v", err)
	}
}

// Many readers while the archive is replaced again and again: every file is wholly of one version.
func TestZipReadersAndReplacements(t *testing.T) {
	t.Parallel()
	bodies := []string{strings.Repeat("a", 200_000), strings.Repeat("b", 100_000),
		strings.Repeat("c", 300_000)}
	var archives [][]byte
	for _, body := range bodies {
		archives = append(archives, pack(t, file("x", body), file("y", body)))
	}
	z, path := open(t, archives[0])
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				pinned, err := z.Pin()
				if err != nil {
					t.Errorf("Pin = %v", err)
					return
				}
				x, errX := fs.ReadFile(pinned, "x")
				y, errY := fs.ReadFile(pinned, "y")
				if errX != nil || errY != nil || !bytes.Equal(x, y) || string(x) != bodies[x[0]-'a'] {
					t.Errorf("x and y = %d, %d bytes, %v, %v", len(x), len(y), errX, errY)
					return
				}
			}
		})
	}
	for i := range 60 {
		write(t, path, archives[i%len(archives)])
		if _, err := z.Version(ctx); err != nil {
			t.Errorf("Version = %v", err)
		}
	}
	stop()
	readers.Wait()
}

// A link in an archive is the file of the archive that it leads to, also over a directory. A link to nothing, or
// to a directory, is left out.
func TestZipLinks(t *testing.T) {
	t.Parallel()
	link := func(name, target string) entry {
		e := file(name, target)
		e.SetMode(fs.ModeSymlink | 0o777)
		return e
	}
	z, _ := open(t, pack(t, file("demo/SKILL.md", skill), file("shared/a.md", "A."), link("demo/a.md", "../other/a.md"),
		link("other", "shared"), link("demo/none.md", "../shared/none.md"), link("demo/loop", "loop"),
		link("demo/all", "../shared")))
	pinned, err := z.Pin()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(pinned, "other/a.md"); err != nil || string(text) != "A." {
		t.Errorf("other/a.md = %q, %v", text, err)
	}
	sk := scan(t, skills.Root{Dir: z.Origin(), FS: z}).Skills[0]
	if x := index(t, sk); len(x.Files) != 2 || len(x.Diagnostics) != 3 {
		t.Errorf("files = %v, diagnostics = %v", x.Files, x.Diagnostics)
	}
	got, err := sk.Read(t.Context(), "a.md", 100)
	if err != nil || string(got.Data) != "A." {
		t.Errorf("a.md = %+v, %v", got, err)
	}
}
