package environment_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox/environment"
)

func TestWheel(t *testing.T) {
	kept := contents{}
	b := environment.NewBuild(kept, "3.11")
	const info = "my_tool-1.0.dist-info/"
	wheel := wheelOf(t, "my-tool", "1.0", map[string]string{
		"tool/__init__.py": "x = 1\n", "tool/_fast.cpython-311-x86_64-linux-gnu.so": "\x7fELF",
		"tool/__pycache__/__init__.cpython-311.pyc": "forged", "tool/old.pyc": "forged",
		"tool.pth": "/workspace\n", "hook.pth": "import tool\n", "sitecustomize.py": "",
		info + "entry_points.txt": "[console_scripts]\ntooly = tool.cli:main.run [extra]\nls = tool:main\n" +
			"odd = tool\n../up = tool:x\n[other]\nnot = a:b\n",
		info + "INSTALLER": "pip\n", info + "LICENSE": "free\n",
		"my_tool-1.0.data/scripts/go":           "#!python -u\nprint()\n",
		"my_tool-1.0.data/scripts/bin":          "\x7fELF",
		"my_tool-1.0.data/scripts/python3":      "#!/bin/sh\n",
		"my_tool-1.0.data/scripts/node18":       "#!/bin/sh\n",
		"my_tool-1.0.data/purelib/tool/pure.py": "", "my_tool-1.0.data/platlib/tool/plat.py": "",
		"my_tool-1.0.data/headers/tool.h": "", "my_tool-1.0.data/data/share/doc/x": "doc",
		"my_tool-1.0.data/data/etc/x": "", "my_tool-1.0.data/data/include/x.h": "",
	})
	if err := addWheel(b, "My.Tool", "1.0", wheel); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		site + "tool/__init__.py": "x = 1\n", site + "tool/_fast.cpython-311-x86_64-linux-gnu.so": "\x7fELF",
		site + "tool.pth": "/workspace\n", site + "hook.pth": "import tool\n", site + "sitecustomize.py": "",
		site + info + "METADATA":         "Metadata-Version: 2.1\nName: my-tool\nVersion: 1.0\n\nText\n",
		site + info + "WHEEL":            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		site + info + "entry_points.txt": kept.files(b.Manifest())[site+info+"entry_points.txt"],
		site + info + "LICENSE":          "free\n",
		site + "tool/pure.py":            "", site + "tool/plat.py": "",
		"bin/tooly*": "#!/env/bin/python3\nimport sys\nfrom tool.cli import main\nif __name__ == \"__main__\":\n" +
			"    sys.exit(main.run())\n",
		"bin/go*": "#!/env/bin/python3 -u\nprint()\n", "bin/bin*": "\x7fELF",
		"share/doc/x": "doc", "etc/x": "",
	}
	if diff := cmp.Diff(want, kept.files(b.Manifest())); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	var notes []string
	for _, n := range b.Notes() {
		what, _, _ := strings.Cut(n.What, ":")
		notes = append(notes, n.Path+" "+what)
	}
	if diff := cmp.Diff([]string{
		site + "hook.pth runs code whenever Python starts",
		site + "sitecustomize.py runs whenever Python starts",
		site + "tool/_fast.cpython-311-x86_64-linux-gnu.so is a native module",
		"my_tool-1.0.data/data/include/x.h is left out",
		"my_tool-1.0.data/headers/tool.h is left out",
		"my_tool-1.0.data/scripts/node18 is left out",
		"my_tool-1.0.data/scripts/python3 is left out",
		info + "entry_points.txt: ../up is left out",
		info + "entry_points.txt: ls is left out",
		info + "entry_points.txt: odd is left out",
	}, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestWheelRefused(t *testing.T) {
	const info = "x-1.0.dist-info/"
	for _, tt := range []struct {
		name  string
		files map[string]string
		modes map[string]fs.FileMode
		want  string
	}{
		{"leads out", map[string]string{"../../x.py": ""}, nil, "must stay"},
		{"absolute", map[string]string{"/etc/x": ""}, nil, "must be relative"},
		{"backslash", map[string]string{`a\..\b.py`: ""}, nil, "is refused"},
		{"NUL", map[string]string{"a\x00.py": ""}, nil, "is refused"},
		{"link", map[string]string{"x/l": "/etc/passwd"}, map[string]fs.FileMode{"x/l": fs.ModeSymlink | 0o777},
			"neither a regular file nor a directory"},
		{"device", map[string]string{"x/d": ""}, map[string]fs.FileMode{"x/d": fs.ModeDevice | 0o666},
			"neither a regular file nor a directory"},
		{"two of one name", map[string]string{"x/a.py": "", "x/A.py": ""}, nil, "differs from another only in case"},
		{"file and directory", map[string]string{"x": "", "x/a.py": ""}, nil, "both a file and a directory"},
		{"twice", map[string]string{"a.py": "", "x-1.0.data/purelib/a.py": ""}, nil, "is a duplicate"},
		{"interpreter", map[string]string{"x-1.0.data/data/bin/python3": "#!/bin/sh\n"}, nil, "has its own files"},
		{"configuration", map[string]string{"x-1.0.data/data/pyvenv.cfg": "home = /x\n"}, nil, "has its own files"},
		{"library", map[string]string{"x-1.0.data/data/lib/python3.11/json.py": ""}, nil, "has its own files"},
		{"data of another", map[string]string{"y-1.0.data/purelib/a.py": ""}, nil, "data of another distribution"},
		{"unknown data", map[string]string{"x-1.0.data/kernel/a": ""}, nil, "unknown kind of data"},
		{"file in data", map[string]string{"x-1.0.data/a": ""}, nil, "data of another distribution"},
		{"no record", map[string]string{info + "RECORD": ""}, nil, "not in RECORD"},
		{"no hash", map[string]string{"a.py": "", info + "RECORD": "a.py,,0\n"}, nil, "not in RECORD"},
		{"md5", map[string]string{"a.py": "", info + "RECORD": "a.py,md5=1B2M2Y8AsgTpgAmY7PhCfg,0\n"}, nil,
			"not in RECORD"},
		{"other hash", map[string]string{"a.py": "x", info + "RECORD": "a.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"},
			nil, "does not have the hash"},
		{"listed twice", map[string]string{info + "RECORD": "a,sha256=x,\na,sha256=y,\n"}, nil, "twice"},
		{"no metadata", map[string]string{info + "METADATA": "Name: y\nVersion: 1.0\n"}, nil, "is of y 1.0"},
		{"other version", map[string]string{info + "METADATA": "Name: x\nVersion: 1.1\n"}, nil, "is of x 1.1"},
		{"second metadata", map[string]string{"y-1.0.dist-info/METADATA": ""}, nil, "second directory"},
		{"version of format", map[string]string{info + "WHEEL": "Wheel-Version: 2.0\n"}, nil, "want 1.x"},
		{"bomb", map[string]string{"x/zero": strings.Repeat("\x00", 8<<20)}, nil, "grows more than 200-fold"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := environment.NewBuild(contents{}, "3.11")
			err := addWheel(b, "x", "1.0", zipOf(t, wheelFiles("x", "1.0", tt.files), tt.modes))
			var unsafe *environment.UnsafeError
			if !errors.As(err, &unsafe) || !strings.Contains(err.Error(), tt.want) || unsafe.Package != "x" {
				t.Errorf("Wheel = %v, want %q", err, tt.want)
			}
		})
	}
	for name, wheel := range map[string][]byte{"empty": {}, "text": []byte("not a zip"), "none": zipOf(t, nil, nil)} {
		var unsafe *environment.UnsafeError
		if err := addWheel(environment.NewBuild(contents{}, "3.11"), "x", "1.0", wheel); !errors.As(err, &unsafe) {
			t.Errorf("%s: Wheel = %v", name, err)
		}
	}
}

// Halves of a namespace may have equal files; other files of one path are another package's.
func TestPackagesOfOnePath(t *testing.T) {
	one := wheelOf(t, "one", "1", map[string]string{"space/__init__.py": "same", "space/one.py": "1"})
	two := wheelOf(t, "two", "1", map[string]string{"space/__init__.py": "same", "space/two.py": "2"})
	bad := wheelOf(t, "bad", "1", map[string]string{"space/__init__.py": "other"})
	below := wheelOf(t, "below", "1", map[string]string{"space/one.py/x": "other"})
	b := environment.NewBuild(contents{}, "3.11")
	if err := errors.Join(addWheel(b, "one", "1", one), addWheel(b, "two", "1", two)); err != nil {
		t.Error(err)
	}
	for name, wheel := range map[string][]byte{"bad": bad, "below": below} {
		var unsafe *environment.UnsafeError
		if err := addWheel(b, name, "1", wheel); !errors.As(err, &unsafe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTarball(t *testing.T) {
	kept := contents{}
	b := environment.NewBuild(kept, "")
	err := addTarball(b, environment.NodePackage{Path: "node_modules/@s/a", Name: "@s/a", Bin: map[string]string{
		"a": "./bin/a.js", "node": "bin/a.js", "../up": "bin/a.js", "gone": "gone.js",
	}}, tarOf(t,
		tar.Header{Name: "package/package.json", Gname: `{"name":"@s/a","scripts":{"postinstall":"rm -rf ~"}}`},
		tar.Header{Name: "package/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./package/bin/a.js", Gname: "#!/usr/bin/env node\r\nx\r\n"},
		tar.Header{Name: "package/run.sh", Gname: "#!/bin/sh\n", Mode: 0o755},
		tar.Header{Name: "package/x.node", Gname: "\x7fELF"},
		tar.Header{Name: "stray", Gname: "x"},
	))
	if err != nil {
		t.Fatal(err)
	}
	nested := environment.NodePackage{Path: "node_modules/@s/a/node_modules/b", Name: "b", Bin: map[string]string{"b": "b.js"}}
	if err := addTarball(b, nested, tarOf(t, tar.Header{Name: "b-1.0/b.js", Gname: "b"})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"node_modules/@s/a/package.json": `{"name":"@s/a","scripts":{"postinstall":"rm -rf ~"}}`,
		"node_modules/@s/a/bin/a.js*":    "#!/usr/bin/env node\nx\r\n",
		"node_modules/@s/a/run.sh*":      "#!/bin/sh\n", "node_modules/@s/a/x.node": "\x7fELF",
		"node_modules/.bin/a":                    "-> ../@s/a/bin/a.js",
		"node_modules/@s/a/node_modules/b/b.js*": "b",
		"node_modules/@s/a/node_modules/.bin/b":  "-> ../b/b.js",
	}, kept.files(b.Manifest())); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if notes := b.Notes(); len(notes) != 6 {
		t.Errorf("notes = %v", notes)
	}
}

func TestTarballRefused(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Gname: "x"} }
	damaged := tarOf(t, tar.Header{Name: "package/a", Gname: strings.Repeat("abc", 1000)})
	damaged[len(damaged)-5] ^= 1
	for _, tt := range []struct {
		name   string
		packed []byte
		want   string
	}{
		{"leads out", tarOf(t, file("package/../../x")), "must stay"},
		{"absolute", tarOf(t, file("/package/x")), "must be relative"},
		{"backslash", tarOf(t, file(`package\x`)), "is refused"},
		{"link", tarOf(t, tar.Header{Name: "package/l", Linkname: "/etc", Typeflag: tar.TypeSymlink}), "neither"},
		{"hard link", tarOf(t, tar.Header{Name: "package/l", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}), "neither"},
		{"device", tarOf(t, tar.Header{Name: "package/d", Typeflag: tar.TypeBlock}), "neither"},
		{"pipe", tarOf(t, tar.Header{Name: "package/p", Typeflag: tar.TypeFifo}), "neither"},
		{"twice", tarOf(t, file("package/a"), file("other/a")), "is a duplicate"},
		{"file and directory", tarOf(t, file("package/a"), file("package/a/b")), "both a file and a directory"},
		{"not gzip", []byte("text"), "not compressed by gzip"},
		{"bomb", tarOf(t, tar.Header{Name: "package/zero", Gname: strings.Repeat("\x00", 65<<20)}), "grows too much"},
		{"cut", tarOf(t, tar.Header{Name: "package/a", Gname: strings.Repeat("abc", 1000)})[:40], "cannot be read"},
		{"checksum", damaged, "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := addTarball(environment.NewBuild(contents{}, ""), environment.NodePackage{Path: "node_modules/x", Name: "x"}, tt.packed)
			var unsafe *environment.UnsafeError
			if !errors.As(err, &unsafe) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Tarball = %v, want %q", err, tt.want)
			}
		})
	}
}

// The order of packages, and of the programs they share, changes nothing.
func TestDigestOfAnyOrder(t *testing.T) {
	add := []func(*environment.Build) error{
		func(b *environment.Build) error {
			return addWheel(b, "one", "1", wheelOf(t, "one", "1", map[string]string{"n/a.py": "1", "b": "2"}))
		},
		func(b *environment.Build) error {
			return addWheel(b, "two", "1", wheelOf(t, "two", "1", map[string]string{"n/b.py": "1", "c": "2"}))
		},
	}
	for _, name := range []string{"x", "y"} {
		p := environment.NodePackage{Path: "node_modules/" + name, Name: name, Bin: map[string]string{"same": "a.js"}}
		packed := tarOf(t, tar.Header{Name: "package/a.js", Gname: name})
		add = append(add, func(b *environment.Build) error { return addTarball(b, p, packed) })
	}
	var want []byte
	for range 20 {
		rand.Shuffle(len(add), func(i, j int) { add[i], add[j] = add[j], add[i] })
		b := environment.NewBuild(contents{}, "3.11")
		for _, a := range add {
			if err := a(b); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.Manifest().Bytes(); want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			t.Fatalf("manifest = %s, want %s", got, want)
		}
	}
	if !strings.Contains(string(want), "link ../x/a.js  node_modules/.bin/same\n") {
		t.Errorf("manifest = %s", want)
	}
}

// inside fails if an environment has an entry that its store would not take.
func inside(t *testing.T, m environment.Manifest) {
	t.Helper()
	last := ""
	for _, e := range m {
		if !fs.ValidPath(e.Path) || strings.ContainsAny(e.Path, "\\\n\x00") || e.Path <= last {
			t.Errorf("path %q after %q", e.Path, last)
		}
		if e.Kind == environment.Link && (strings.Contains(e.Target, " ") || !strings.HasPrefix(e.Target, "../")) {
			t.Errorf("link %q", e.Target)
		}
		if strings.HasSuffix(e.Path, ".pyc") || e.Path == "pyvenv.cfg" || strings.HasPrefix(e.Path, "bin/python") {
			t.Errorf("path %q", e.Path)
		}
		last = e.Path
	}
}

func FuzzWheel(f *testing.F) {
	f.Add(wheelOf(f, "x", "1.0", map[string]string{"x/__init__.py": "", "x-1.0.data/scripts/go": "#!python\n",
		"x-1.0.dist-info/entry_points.txt": "[console_scripts]\na = b:c\n"}))
	f.Add(zipOf(f, wheelFiles("x", "1.0", map[string]string{"../x": ""}), nil))
	f.Add([]byte("PK"))
	f.Fuzz(func(t *testing.T, wheel []byte) {
		b := environment.NewBuild(contents{}, "3.11")
		err := addWheel(b, "x", "1.0", wheel)
		var unsafe *environment.UnsafeError
		if err != nil && !errors.As(err, &unsafe) {
			t.Errorf("Wheel = %v", err)
		}
		inside(t, b.Manifest())
	})
}

// FuzzWheelText has any text in the places that a wheel is described in.
func FuzzWheelText(f *testing.F) {
	f.Add("x/a.py", "#!python\n", "[console_scripts]\na = b:c\n")
	f.Add("x-1.0.data/data/share/x", "import os\n", "[gui_scripts]\n= =\n[console_scripts]\n..=a:b\nx\n")
	f.Fuzz(func(t *testing.T, name, text, points string) {
		if strings.HasSuffix(name, "/") {
			return // the writer takes no content for a directory
		}
		files := wheelFiles("x", "1.0", map[string]string{name: text, "x-1.0.dist-info/entry_points.txt": points})
		b := environment.NewBuild(contents{}, "3.11")
		err := addWheel(b, "x", "1.0", zipOf(t, files, nil))
		var unsafe *environment.UnsafeError
		if err != nil && !errors.As(err, &unsafe) {
			t.Errorf("Wheel = %v", err)
		}
		inside(t, b.Manifest())
	})
}

func FuzzTarball(f *testing.F) {
	f.Add(tarOf(f, tar.Header{Name: "package/package.json", Gname: `{"scripts":{"install":"x"}}`},
		tar.Header{Name: "package/a.js", Gname: "#!/usr/bin/env node\r\n"}), "a", "a.js")
	f.Add(tarOf(f, tar.Header{Name: "package/l", Linkname: "/", Typeflag: tar.TypeSymlink}), "../x", "/etc/passwd")
	f.Fuzz(func(t *testing.T, packed []byte, program, file string) {
		b := environment.NewBuild(contents{}, "")
		p := environment.NodePackage{Path: "node_modules/x", Name: "x", Bin: map[string]string{program: file}}
		err := addTarball(b, p, packed)
		var unsafe *environment.UnsafeError
		if err != nil && !errors.As(err, &unsafe) {
			t.Errorf("Tarball = %v", err)
		}
		inside(t, b.Manifest())
	})
}
