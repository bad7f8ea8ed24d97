package environment_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
)

func sampleLock() *environment.Lock {
	return &environment.Lock{Environments: map[string]*environment.Locked{
		"office": {
			Platform: "linux-amd64-glibc", Digest: digest.FromString("x"), Files: 3, Bytes: 10,
			Python: &environment.LockedPython{For: "3.11", Asked: []string{"pypdf", "lxml>=5", "lxml>=5"}, Packages: []environment.Package{
				{Name: "pypdf", Version: "6.1.0", URL: "https://files.example.com/pypdf-6.1.0-py3-none-any.whl",
					SHA256: strings.Repeat("ab", 32), Size: 7},
				{Name: "lxml", Version: "5.0", URL: "http://127.0.0.1:8000/lxml.whl", SHA256: strings.Repeat("cd", 32), By: []string{"z", "a"}},
			}},
			Node: &environment.LockedNode{Asked: []string{"docx@^9"}, Packages: []environment.Package{
				{Name: "@s/docx", Version: "9.0.0-rc.1", Path: "node_modules/a/node_modules/@s/docx",
					URL: "https://registry.example.com/docx.tgz", SHA512: strings.Repeat("ef", 64), Bin: map[string]string{"docx": "bin/x.js"}},
			}},
		},
	}}
}

func TestLock(t *testing.T) {
	data := sampleLock().Bytes()
	l, err := environment.ParseLock(data)
	if err != nil {
		t.Fatal(err)
	}
	if again := l.Bytes(); !bytes.Equal(again, data) {
		t.Errorf("written again: %s, want %s", again, data)
	}
	other := sampleLock()
	p := other.Environments["office"].Python
	p.Packages[0], p.Packages[1] = p.Packages[1], p.Packages[0]
	if !bytes.Equal(other.Bytes(), data) {
		t.Error("another order gives other bytes")
	}
	if p := l.Environments["office"].Python; len(p.Asked) != 2 || p.Packages[0].Name != "lxml" {
		t.Errorf("python = %+v", p)
	}
}

func TestLockRefused(t *testing.T) {
	good := string(sampleLock().Bytes())
	for _, tt := range []struct{ name, old, new, want string }{
		{"version", `"version": 1`, `"version": 2`, "its version is 2"},
		{"unknown field", `"version": 1`, `"version": 1, "x": 1`, "unknown field"},
		{"twice", `"files": 3,`, `"files": 2, "files": 3,`, "not in the form"},
		{"spaces", `"files": 3`, `"files":  3`, "not in the form"},
		{"more after it", "\n}\n", "\n}\n{}", "not in the form"},
		{"name", `"office"`, `"../office"`, "small letters"},
		{"digest", `"sha256:`, `"sha256:00`, "digest"},
		{"python", `"3.11"`, `"3.11/../.."`, "minor version"},
		{"package", `"lxml"`, `"--index-url=x"`, "not the name"},
		{"same package", `"lxml"`, `"PyPDF"`, "duplicate"},
		{"no hash", strings.Repeat("cd", 32), "cd", "no sha256"},
		{"big letters", strings.Repeat("cd", 32), strings.Repeat("CD", 32), "no sha256"},
		{"user", "https://files", "https://me:secret@files", "user"},
		{"scheme", "https://files", "ftp://files", "no URL"},
		{"file", "http://127.0.0.1:8000", "file:///wheels", "no URL"},
		{"place", "node_modules/a/node_modules/@s/docx", "node_modules/../x", "not of one kind"},
		{"program", "bin/x.js", "../../x.js", "outside"},
		{"size", `"size": 7`, `"size": 7000000000`, "the most is"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		var bad *environment.LockError
		if _, err := environment.ParseLock([]byte(text)); text == good || !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: ParseLock = %v, want %q", tt.name, err, tt.want)
		}
	}
}

func FuzzLock(f *testing.F) {
	f.Add(sampleLock().Bytes())
	f.Add([]byte(`{"version": 1, "environments": {"a": null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := environment.ParseLock(data)
		var bad *environment.LockError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("ParseLock = %v", err)
		}
		if err == nil && !bytes.Equal(l.Bytes(), data) {
			t.Errorf("read %s, wrote %s", data, l.Bytes())
		}
	})
}
