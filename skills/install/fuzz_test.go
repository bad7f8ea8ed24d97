package install

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// FuzzInstall installs an archive with an entry of any name and mode, and one byte changed. Nothing is
// written outside of the state directory, what is installed are plain files that give nobody a right, and
// what was installed verifies.
func FuzzInstall(f *testing.F) {
	for _, name := range []string{"one/notes.md", "one/scripts/run.sh", "../x", "/etc/x", "one/../../x", `one\..\..\x`, "ONE/SKILL.md", "one/notes.md/",
		"one", "two/SKILL.md", "skillsd.lock", "one/.git/config", "C:/x", "one/\xff", "one/nul"} {
		f.Add(name, "text", uint32(0o100644), 0, byte(0))
	}
	for _, mode := range []uint32{0o104755, 0o102755, 0o101777, 0o100666, 0o120777, 0o010666, 0o020666, 0o140777, 0o040777, 0} {
		f.Add("one/entry", "/etc/passwd", mode, 0, byte(0))
	}
	f.Add("one/notes.md", skillText("two"), uint32(0o100644), -30, byte(0x20))
	f.Add("two/SKILL.md", skillText("one"), uint32(0o100755), 31, byte(1))
	f.Fuzz(func(t *testing.T, name, text string, mode uint32, at int, change byte) {
		var packed bytes.Buffer
		w := zip.NewWriter(&packed)
		for _, e := range []struct {
			name, text string
			mode       uint32
		}{{"one/SKILL.md", skillText("one"), 0o100644}, {name, text, mode}} {
			header := zip.FileHeader{Name: e.name, Method: zip.Deflate, CreatorVersion: 3 << 8, ExternalAttrs: e.mode << 16}
			part, err := w.CreateHeader(&header)
			if err == nil {
				_, err = part.Write([]byte(e.text))
			}
			if err != nil {
				return // the writer takes no such entry
			}
		}
		if err := w.Close(); err != nil {
			return
		}
		archive := packed.Bytes()
		at %= len(archive)
		archive[(at+len(archive))%len(archive)] ^= change
		m := newMachine(t)
		top := filepath.Dir(m.state)
		file := filepath.Join(top, "pack.zip")
		if err := os.WriteFile(file, archive, 0o600); err != nil {
			t.Fatal(err)
		}
		i := m.open()
		err := apply(t.Context(), i, Request{Source: file, All: true, KeepGoing: true})
		if installed := names(i.Lock()); (err == nil) != (len(installed) > 0) {
			t.Errorf("installed %q, %v", installed, err)
		}
		problems, done, verr := i.Verify(t.Context())
		if len(problems) > 0 || done != len(i.Lock().Skills) || verr != nil {
			t.Errorf("Verify = %v of %d skills, %v", problems, done, verr)
		}
		err = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if e.IsDir() && (path == top || filepath.Dir(path) == top && path == m.state || within(m.state, path)) {
				return nil
			}
			if path != file && !within(m.state, path) {
				t.Errorf("%q is outside of the state directory", path)
			}
			if special := info.Mode() &^ fs.ModePerm; special != 0 || info.Mode().Perm()&0o022 != 0 {
				t.Errorf("%q is %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// within reports whether a path is below a directory.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel) && rel != "."
}
