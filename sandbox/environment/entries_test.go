package environment_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox/environment"
)

// FuzzTarballEntry puts a tarball with an entry of any name, mode and kind, and one byte changed, into a store. The
// store has nothing but plain files and directories that nobody may write, and links that stay in the tree.
func FuzzTarballEntry(f *testing.F) {
	for _, name := range []string{"package/a.js", "../x", "/etc/x", "package/../../x", `package\..\..\x`, "package/a.js/", "package", "PACKAGE/PACKAGE.JSON",
		"package/../.bin/ls", "package/\xff", "package/a\nlink", "./package/b"} {
		f.Add(name, "", "text", byte(tar.TypeReg), int64(0o644), "a", "a.js", 0, byte(0))
	}
	for _, kind := range []byte{tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeDir, tar.TypeXGlobalHeader, tar.TypeGNUSparse, 'Z'} {
		f.Add("package/l", "../../../etc/passwd", "", kind, int64(0o6777), "..", "../../x", 0, byte(0))
	}
	f.Add("package/a.js", "", "#!/bin/sh\r\n", byte(tar.TypeReg), int64(0o7777), "node", "./a.js", 40, byte(1))
	f.Fuzz(func(t *testing.T, name, link, text string, kind byte, mode int64, program, file string, at int, change byte) {
		var packed bytes.Buffer
		zw := gzip.NewWriter(&packed)
		w := tar.NewWriter(zw)
		header := &tar.Header{Name: name, Linkname: link, Typeflag: kind, Mode: mode, Size: int64(len(text))}
		if kind != tar.TypeReg {
			header.Size = 0
		}
		for _, h := range []*tar.Header{{Name: "package/package.json", Mode: 0o644}, header} {
			err := w.WriteHeader(h)
			if err == nil && h.Size > 0 {
				_, err = w.Write([]byte(text))
			}
			if err != nil {
				return // the writer takes no such entry
			}
		}
		if err := cmpErr(w.Close(), zw.Close()); err != nil {
			return
		}
		archive := packed.Bytes()
		at %= len(archive)
		archive[(at+len(archive))%len(archive)] ^= change
		top := t.TempDir()
		s := openStore(t, filepath.Join(top, "store"))
		b := environment.NewBuild(s, "")
		p := environment.NodePackage{Path: "node_modules/x", Name: "x", Bin: map[string]string{program: file}}
		if err := addTarball(b, p, archive); err != nil {
			if _, unsafe := errors.AsType[*environment.UnsafeError](err); !unsafe {
				t.Errorf("Tarball = %v", err)
			}
		} else {
			stage, err := s.Stage(t.Context(), b.Manifest())
			if err != nil {
				t.Fatalf("Stage(%s) = %v", b.Manifest().Bytes(), err)
			}
			defer stage.Close()
			tree, err := stage.Seal(t.Context(), "")
			if err != nil {
				t.Fatalf("Seal = %v", err)
			}
			if err := tree.Verify(t.Context()); err != nil {
				t.Errorf("Verify = %v", err)
			}
		}
		plain(t, top, s.Dir())
	})
}

// plain fails if a store has other than files and directories that nobody may write, and links that stay in their
// tree, or if anything lies next to it.
func plain(t *testing.T, top, store string) {
	t.Helper()
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(store, name)
		if !filepath.IsLocal(rel) && name != top {
			t.Errorf("%q lies outside of the store", name)
		}
		if e.Type() == fs.ModeSymlink {
			to, err := filepath.EvalSymlinks(name)
			tree := strings.Join(strings.Split(filepath.ToSlash(rel), "/")[:2], "/")
			if within, _ := filepath.Rel(store, to); err != nil || !strings.HasPrefix(filepath.ToSlash(within), path.Clean(tree)+"/") {
				t.Errorf("%q leads to %q, %v", rel, to, err)
			}
			return nil
		}
		if mode := info.Mode(); mode&(fs.ModeType|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)&^fs.ModeDir != 0 || mode.Perm()&0o022 != 0 && name != top {
			t.Errorf("%q is %v", rel, mode)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
