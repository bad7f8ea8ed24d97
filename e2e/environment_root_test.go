package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// canMakeRoot reports whether this machine has programs to make a root file system of.
func canMakeRoot(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat("/usr/bin/python3")
	return err == nil && exec.Command("ldd", "/usr/bin/python3", "/usr/bin/bash").Run() == nil
}

// scriptRootfs is the command `rootfs`: "rootfs make DIR [pip|npm]" makes a root file system of programs of this
// machine, and "rootfs image DIR LAYOUT [evil]" an OCI image of it, of several layers.
func scriptRootfs(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case !neg && len(args) >= 2 && args[0] == "make":
		ts.Check(makeRoot(ts.MkAbs(args[1]), args[2:]))
	case !neg && len(args) >= 3 && args[0] == "image":
		ts.Check(makeImage(ts.MkAbs(args[1]), ts.MkAbs(args[2]), len(args) > 3))
	default:
		ts.Fatalf("usage: rootfs make DIR [pip|npm], rootfs image DIR LAYOUT [evil]")
	}
}

// npmDir has npm where Node's own packages put it.
const npmDir = "/usr/lib/node_modules/npm"

// standard prints the files of the standard library of which detection, analysis, compilation and the scripts of tests
// need some, and the directory that marks the library.
const standard = `import ast, base64, compileall, encodings.idna, encodings.latin_1, encodings.ascii, glob, importlib.machinery
import importlib.metadata, importlib.util, json, os, py_compile, site, struct, sysconfig, warnings, zipimport
sysconfig.get_config_vars()
import sys
print("\n".join(sorted({m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)})))`

// makeRoot makes a root file system of bash, a few programs and Python: with what tests need of its standard library, or
// with managers of packages and the whole library.
func makeRoot(dir string, managers []string) error {
	files := []string{"/usr/bin/bash", "/usr/bin/cat", "/usr/bin/python3"}
	var roots []string
	if len(managers) == 0 {
		out, err := exec.Command("/usr/bin/python3", "-S", "-B", "-c", standard).Output()
		if err != nil {
			return err
		}
		files = append(files, strings.Fields(string(out))...)
	} else {
		out, err := exec.Command("/usr/bin/python3", "-S", "-c", "import os; print(os.path.dirname(os.__file__))").Output()
		if err != nil {
			return err
		}
		roots = []string{strings.TrimSpace(string(out))}
	}
	if slices.Contains(managers, "npm") {
		files = append(files, "/usr/bin/node")
		roots = append(roots, npmDir)
	}
	if slices.Contains(managers, "pip") {
		found, err := exec.Command("/usr/bin/python3", "-c", "import os, pip; print(os.path.dirname(pip.__file__))").Output()
		if err != nil {
			return err
		}
		roots = append(roots, strings.TrimSpace(string(found)))
	}
	for _, from := range roots {
		err := filepath.WalkDir(from, func(at string, entry fs.DirEntry, err error) error {
			name := entry.Name()
			switch {
			case err != nil:
				return err
			case entry.IsDir():
				for _, large := range []string{"test", "tests", "idlelib", "lib2to3", "ensurepip", "dist-packages", "site-packages",
					"__pycache__", "tkinter", "turtledemo", "pydoc_data"} {
					if name == large || strings.HasPrefix(name, "config-") {
						return fs.SkipDir
					}
				}
			case entry.Type().IsRegular():
				files = append(files, at)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	var libraries, others []string
	for _, at := range files {
		if ext := filepath.Ext(at); ext == ".so" || ext == "" && strings.HasPrefix(at, "/usr/bin/") {
			libraries = append(libraries, at)
		} else {
			others = append(others, at)
		}
	}
	err := errors.Join(sandboxtest.RootOf(dir, libraries...), sandboxtest.CopyTo(dir, others...), os.MkdirAll(dir+"/etc", 0o755))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(dir+"/etc/marker", []byte("marked\n"), 0o644), os.WriteFile(dir+"/etc/shadow", []byte("secret"), 0o600),
		os.WriteFile(dir+"/etc/passwd", []byte("evil"), 0o644), os.Chmod(dir+"/usr/bin/cat", fs.ModeSetuid|0o755))
}

// makeImage makes an image of a directory, of two layers: the first has another marker and a file more. An evil one
// has a layer that replaces a directory by a link out, and another that writes through it.
func makeImage(dir, layout string, evil bool) error {
	blobs := filepath.Join(layout, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return err
	}
	type object = map[string]any
	put := func(at string) (object, error) {
		data, err := os.ReadFile(at)
		sum := digest.FromBytes(data)
		return object{"digest": sum, "size": len(data)}, errors.Join(err, os.Rename(at, filepath.Join(blobs, sum.Encoded())))
	}
	first := func(w *tar.Writer) error {
		if err := errors.Join(entry(w, "etc/marker", "another"), entry(w, "etc/extra", "more")); err != nil {
			return err
		}
		return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
			name, relErr := filepath.Rel(dir, at)
			if err != nil || relErr != nil || name == "." || name == "etc/marker" {
				return errors.Join(err, relErr)
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			header, err := tar.FileInfoHeader(info, "")
			if err != nil {
				return err
			}
			header.Name = name
			if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
				return err
			}
			data, err := os.ReadFile(at)
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		})
	}
	layers := []func(w *tar.Writer) error{first, func(w *tar.Writer) error {
		return errors.Join(entry(w, "etc/marker", "marked\n"), entry(w, "etc/.wh.extra", ""))
	}}
	if evil {
		layers = append(layers, func(w *tar.Writer) error {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "etc", Linkname: layout})
		}, func(w *tar.Writer) error { return entry(w, "etc/written", "evil") })
	}
	list := []object{}
	for _, write := range layers {
		at := filepath.Join(layout, "layer")
		out, err := os.Create(at)
		if err != nil {
			return err
		}
		zipped, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
		if err != nil {
			return err
		}
		w := tar.NewWriter(zipped)
		if err := errors.Join(write(w), w.Close(), zipped.Close(), out.Close()); err != nil {
			return err
		}
		layer, err := put(at)
		if err != nil {
			return err
		}
		list = append(list, layer)
	}
	text := func(v any) (object, error) {
		at := filepath.Join(layout, "text")
		data, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(at, data, 0o644)
		}
		if err != nil {
			return nil, err
		}
		return put(at)
	}
	config, err := text(object{"os": "linux", "architecture": runtime.GOARCH})
	if err != nil {
		return err
	}
	manifest, err := text(object{"schemaVersion": 2, "config": config, "layers": list})
	if err != nil {
		return err
	}
	manifest["annotations"] = object{"org.opencontainers.image.ref.name": "latest"}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": []object{manifest}})
	return errors.Join(err, os.WriteFile(filepath.Join(layout, "index.json"), index, 0o644),
		os.WriteFile(filepath.Join(layout, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
}

// entry writes a file into an archive.
func entry(w *tar.Writer, name, text string) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	return err
}
