package install

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// linked commits files and links, and returns the installation of the skill a from them.
func linked(t *testing.T, files, links map[string]string) (place string, err error) {
	t.Helper()
	r := newRepo(t)
	r.commit(files)
	for name, to := range links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(r.dir, name)); err != nil {
			t.Skip("missing capability: symbolic links:", err)
		}
	}
	r.run("add", "--all")
	r.run("commit", "--quiet", "-m", "links")
	m := newMachine(t).withGit(r)
	err = apply(t.Context(), m.open(), Request{Source: r.url, Skills: []string{"a"}})
	return filepath.Join(m.state, installedDir, "third-party", "a"), err
}

// A link to a directory that contains the link is not taken: it would contain itself.
func TestLinkToAbove(t *testing.T) {
	place, err := linked(t, map[string]string{"skills/a/SKILL.md": skillText("a"), "skills/b/x.md": "x"},
		map[string]string{"skills/a/up": "../../skills", "skills/a/b": "../b"})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(place, "b", "x.md")); err != nil || string(data) != "x" {
		t.Errorf("the linked directory = %q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(place, "up")); err == nil {
		t.Error("the directory above was installed")
	}
}

// The files that links lead to are bounded in number and in bytes.
func TestLinkLimits(t *testing.T) {
	for _, limit := range []targets{{files: 1, bytes: 100}, {files: 10, bytes: 3}} {
		dir := write(t, t.TempDir(), map[string]string{
			"shared/x.md": "xx", "shared/y.md": "yy", "a/SKILL.md": skillText("a")})
		if err := os.Symlink("../shared", filepath.Join(dir, "a", "shared")); err != nil {
			t.Skip("missing capability: symbolic links:", err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		limit.into = root
		_, err = limit.replace("a/shared")
		if _, ok := errors.AsType[*SourceError](err); !ok {
			t.Errorf("a link to two files within %+v = %v", limit, err)
		}
	}
}
