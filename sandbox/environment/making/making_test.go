package making

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox/environment"
)

func TestCheckAsked(t *testing.T) {
	for spec, good := range map[string]bool{
		"pypdf": true, "openpyxl>=3.1": true, "a.b-c_d": true, "x [extra,more] ~= 1.4, !=1.5": true, "x==1.*": true,
		`x>=1; python_version < "3.12"`: true, "x===1.0+local": true,
		"": false, "--index-url=http://x": false, "-r x": false, "-e .": false, "./x": false, "/x": false, "x.whl@": false,
		"x @ https://e.example/x.whl": false, "git+https://e.example/x": false, "https://e.example/x.whl": false,
		"x\n--index-url y": false, "x y": false, "x>=": false, strings.Repeat("x", 400): false, "..": false,
	} {
		if err := CheckAsked([]string{spec}, nil); (err == nil) != good {
			t.Errorf("requirement %q: %v", spec, err)
		}
	}
	for spec, good := range map[string]bool{
		"docx": true, "docx@^9.1.0": true, "@scope/name@1.x": true, "a@>=1 <2": true, "a@latest": true, "a@1 || 2": true,
		"": false, "--prefix": false, "../a": false, "a@file:../x": false, "a@git+ssh://x": false, "a@https://x": false,
		"a@npm:b@1": false, "user/repo": false, "a@user/repo": false, "a@\n": false, "@scope": false,
	} {
		if err := CheckAsked(nil, []string{spec}); (err == nil) != good {
			t.Errorf("npm %q: %v", spec, err)
		}
	}
}

func TestParseIndex(t *testing.T) {
	for index, want := range map[string]string{
		PyPI: "[pypi.org:443 files.pythonhosted.org:443]", NPM: "[registry.npmjs.org:443]",
		"http://127.0.0.1:8080/simple": "[127.0.0.1:8080]", "http://index.example/x": "[index.example:80]",
		"https://me:secret@index.example": "", "ftp://x": "", "index.example": "", "https://x.example/?q": "",
	} {
		targets, err := ParseIndex(index)
		if got := fmt.Sprint(targets); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s: %s, %v, want %s", index, got, err, want)
		}
	}
}

// Both forms that pip has had for a digest.
const pipReport = `warning of an index
{"version": "1", "install": [
 {"download_info": {"url": "https://x.example/alpha-1.0-py3-none-any.whl#frag", "archive_info": {"hashes": {"sha256": "%064d"}}},
  "requested": true, "metadata": {"name": "Alpha", "version": "1.0", "requires_dist": ["Beta_x[y]>=2; a == 'b'"]}},
 {"download_info": {"url": "https://x.example/beta.whl", "archive_info": {"hash": "sha256=%064d"}},
  "requested": false, "metadata": {"name": "beta-x", "version": "2.0"}}]}`

func TestParseReport(t *testing.T) {
	got, err := parseReport(fmt.Appendf(nil, pipReport, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]environment.Package{
		{Name: "Alpha", Version: "1.0", URL: "https://x.example/alpha-1.0-py3-none-any.whl", SHA256: fmt.Sprintf("%064d", 1)},
		{Name: "beta-x", Version: "2.0", URL: "https://x.example/beta.whl", SHA256: fmt.Sprintf("%064d", 2), By: []string{"alpha"}},
	}, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "{", `{"version":"2"}`, `{"version":"1","install":[{"metadata":{"name":"x"}}]}`} {
		if got, err := parseReport([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(fmt.Appendf(nil, pipReport, 1, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		packages, err := parseReport(data)
		if err == nil && !json.Valid(data[strings.IndexByte(string(data), '{'):]) {
			t.Errorf("%d packages of what is not JSON", len(packages))
		}
	})
}

// A lock of npm is written by a program that read what a registry says: it may name anything.
func FuzzParsePackageLock(f *testing.F) {
	sum := "sha512-" + base64.StdEncoding.EncodeToString(make([]byte, 64))
	lock := func(at, name string) []byte {
		return fmt.Appendf(nil, `{"lockfileVersion":3,"packages":{"":{},%q:{"name":%q,"version":"1.0","resolved":"https://x.example/a.tgz","integrity":%q}}}`, at, name, sum)
	}
	for at, good := range map[string]bool{"node_modules/a": true, "node_modules/a/node_modules/@s/b": true, "../../etc": false, "packages/a": false, "x": false} {
		packages, err := parsePackageLock(lock(at, ""))
		if (err == nil) != good || good && len(packages) != 1 {
			f.Errorf("a package at %s: %v, %v", at, packages, err)
		}
		f.Add(lock(at, "n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		packages, err := parsePackageLock(data)
		for _, p := range packages {
			if err != nil || !strings.Contains(p.Path, "node_modules/") || len(p.SHA512) == 0 {
				t.Errorf("%+v, %v", p, err)
			}
		}
	})
}
