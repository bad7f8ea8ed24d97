package source_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/skillsd/skillsd/skills"
)

func mapFS() fstest.MapFS {
	return fstest.MapFS{
		"demo/SKILL.md":      {Data: []byte(skill)},
		"demo/a.txt":         {Data: []byte("a")},
		"demo/scripts/ok.sh": {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
	}
}

// oddFS lists entries as no file system should, and refuses to open any FIFO.
type oddFS struct {
	t *testing.T
	fs.FS
	extra map[string][]fs.DirEntry // by directory
}

func (o oddFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	return append(entries, o.extra[name]...), err
}

func (o oddFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) || strings.Contains(name, `\`) {
		o.t.Errorf("%q was opened", name)
	}
	return o.FS.Open(name)
}

// oddEntry is a directory entry of any name and type.
type oddEntry struct {
	name string
	mode fs.FileMode
}

func (e oddEntry) Name() string               { return e.name }
func (e oddEntry) IsDir() bool                { return e.mode.IsDir() }
func (e oddEntry) Type() fs.FileMode          { return e.mode }
func (e oddEntry) Info() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

// What an fs.FS lists beside good files costs what is odd, and nothing else.
func TestOddFileSystems(t *testing.T) {
	t.Parallel()
	want := index(t, scan(t, skills.Root{Dir: "good", FS: mapFS()}).Skills[0]).TreeDigest
	for name, test := range map[string]struct {
		dir     string
		entry   oddEntry
		skipped string      // left out of the index with a diagnostic about it; empty: with none
		code    skills.Code // of the diagnostic of the scan; empty: none
	}{
		"parent":              {".", oddEntry{"..", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"itself":              {".", oddEntry{".", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"way up":              {".", oddEntry{"../demo", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"absolute":            {".", oddEntry{"/demo", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"several":             {".", oddEntry{"demo/scripts", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"empty":               {".", oddEntry{"", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"backslash":           {".", oddEntry{`demo\x`, fs.ModeDir}, "", skills.CodeInvalidPath},
		"newline":             {".", oddEntry{"a\nb", fs.ModeDir}, "", skills.CodeInvalidPath},
		"not there":           {".", oddEntry{"ghost", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"a file, said a dir":  {"demo", oddEntry{"a.txt", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"within: parent":      {"demo", oddEntry{"..", fs.ModeDir}, "", skills.CodeUnreadableDir},
		"within: several":     {"demo", oddEntry{"scripts/ok.sh", 0}, "", skills.CodeUnreadableDir},
		"within: backslash":   {"demo", oddEntry{`..\x`, 0}, ".", ""},
		"within: not there":   {"demo", oddEntry{"ghost", 0}, "ghost", ""},
		"within: pipe":        {"demo", oddEntry{"pipe", fs.ModeNamedPipe}, "pipe", ""},
		"within: socket":      {"demo", oddEntry{"socket", fs.ModeSocket}, "socket", ""},
		"within: device":      {"demo", oddEntry{"device", fs.ModeDevice | fs.ModeCharDevice}, "device", ""},
		"within: irregular":   {"demo", oddEntry{"odd", fs.ModeIrregular}, "odd", ""},
		"within: broken link": {"demo", oddEntry{"link", fs.ModeSymlink}, "link", ""},
		"SKILL.md is a pipe": {"other", oddEntry{"SKILL.md", fs.ModeNamedPipe}, "",
			skills.CodeUnreadableSkill},
		"SKILL.md is a dir": {"other", oddEntry{"SKILL.md", fs.ModeDir}, "", skills.CodeUnreadableSkill},
		"SKILL.md is odd": {"other", oddEntry{"SKILL.md", fs.ModeIrregular}, "",
			skills.CodeUnreadableSkill},
		"SKILL.md is a link": {"other", oddEntry{"SKILL.md", fs.ModeSymlink}, "",
			skills.CodeUnreadableSkill},
		"SKILL.md is nothing": {"other", oddEntry{"SKILL.md", 0}, "", skills.CodeUnreadableSkill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mapFS()
			m["other/x"] = &fstest.MapFile{}
			fsys := oddFS{t, m, map[string][]fs.DirEntry{test.dir: {test.entry}}}
			snapshot := scan(t, skills.Root{Dir: "odd", FS: fsys})
			if len(snapshot.Skills) != 1 || snapshot.Skills[0].Path != "demo" {
				t.Fatalf("skills = %v, %v", snapshot.Skills, snapshot.Diagnostics)
			}
			if d := snapshot.Diagnostics; len(d) > 1 || (len(d) == 1) != (test.code != "") ||
				len(d) == 1 && d[0].Code != test.code {
				t.Errorf("diagnostics = %v, want %q", d, test.code)
			}
			x := index(t, snapshot.Skills[0])
			if x.TreeDigest != want {
				t.Errorf("resources = %v", x.Resources)
			}
			found := false
			for _, d := range x.Diagnostics {
				found = found || d.Path == test.skipped
			}
			if test.skipped != "" && !found {
				t.Errorf("nothing is said of %q: %v", test.skipped, x.Diagnostics)
			}
		})
	}
}

// A link that an fs.FS lists is the file it names. One to a directory is not followed: neither
// within the tree, where it may be a loop, nor out of it, where it would be looked for on this
// machine: the working directory has what the links name.
func TestLinksOfFileSystem(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for path, body := range map[string]string{
		filepath.Join(dir, "demo", "SKILL.md"): skill, filepath.Join(dir, "demo", "a.txt"): "a",
		filepath.Join(outside, "SKILL.md"): skill, filepath.Join(dir, "demo", "sub", "c.txt"): "c",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"demo/b.txt": "a.txt", "demo/loop": ".", "away": outside,
		"again": "demo", "demo/twin": "sub"} {
		if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Skipf("missing capability: symbolic links: %v", err)
		}
	}
	top, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	t.Chdir(dir)
	snapshot, err := skills.Scan(t.Context(), []skills.Root{{Dir: "x", FS: top.FS()}},
		&skills.ScanOptions{AllowRoots: []string{outside, dir}})
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot.Skills) != 1 || snapshot.Skills[0].Path != "demo" || len(snapshot.Diagnostics) > 0 {
		t.Fatalf("skills = %v, %v", snapshot.Skills, snapshot.Diagnostics)
	}
	x := index(t, snapshot.Skills[0])
	if len(x.Resources) != 3 || x.Resource("a.txt") == nil || x.Resource("b.txt") == nil ||
		x.Resource("sub/c.txt") == nil {
		t.Errorf("resources = %v", x.Resources)
	}
	var left []string
	for _, d := range x.Diagnostics {
		left = append(left, d.Path)
	}
	if !slices.Equal(left, []string{"loop", "twin"}) {
		t.Errorf("left out: %v", x.Diagnostics)
	}
}

// lying is a file system whose files are longer than they say.
type lying struct{ fs.FS }

func (l lying) Open(name string) (fs.File, error) {
	f, err := l.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".bin") {
		return f, err
	}
	return endless{f}, nil
}

type endless struct{ fs.File }

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A file that never ends is left out at the limit.
func TestEndlessFile(t *testing.T) {
	t.Parallel()
	m := mapFS()
	m["demo/zero.bin"] = &fstest.MapFile{Data: []byte("x")}
	sk := scan(t, skills.Root{Dir: "x", FS: lying{m}}).Skills[0]
	x := index(t, sk)
	if x.Resource("zero.bin") != nil || len(x.Diagnostics) != 1 ||
		x.Diagnostics[0].Code != skills.CodeResourceSize {
		t.Errorf("index = %v, %v", x.Resources, x.Diagnostics)
	}
	f, err := lying{m}.Open("demo/zero.bin")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := io.CopyN(io.Discard, f, 1<<20); n != 1<<20 || err != nil {
		t.Fatalf("the file ends after %d bytes, %v", n, err)
	}
}
