package discovery

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/e2e/testtree"
)

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	return testtree.Executable(t, dir, files)
}

func skillText(name string) string {
	return "---\nname: " + name + "\ndescription: Does it.\n---\nDo it.\n"
}

// The same files give the same bytes, whenever and wherever they lie.
func TestPackIsReproducible(t *testing.T) {
	files := map[string]string{"SKILL.md": skillText("demo"), "scripts/run.sh": "#!/bin/sh\n", "a/b.md": "b"}
	var packed [2][]byte
	for i := range packed {
		dir := write(t, filepath.Join(t.TempDir(), "demo"), files)
		old := time.Unix(int64(1e9*(i+1)), 0)
		if err := os.Chtimes(filepath.Join(dir, "a", "b.md"), old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "a", "b.md"), []os.FileMode{0o600, 0o664}[i]); err != nil {
			t.Fatal(err)
		}
		list, err := Scan(t.Context(), dir)
		if err != nil || len(list) != 1 {
			t.Fatalf("Scan = %v, %v", list, err)
		}
		data, made, err := Pack(t.Context(), list[0])
		if err != nil || made.Digest != digest.FromBytes(data) || made.Name != "demo" {
			t.Fatalf("Pack = %+v, %v", made, err)
		}
		packed[i] = data
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("the same files give other bytes")
	}
}

func TestPublish(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"one/SKILL.md": skillText("one"),
		"two/SKILL.md": skillText("two"), "two/x.md": "x", "two/nested/SKILL.md": skillText("nested")})
	list, err := Scan(t.Context(), dir)
	if err != nil || len(list) != 2 {
		t.Fatalf("Scan = %v, %v", list, err)
	}
	site := t.TempDir()
	made, err := Publish(t.Context(), list, site)
	if err != nil || len(made) != 2 || made[0].Type != TypeSkill || made[1].Type != TypeArchive {
		t.Fatalf("Publish = %+v, %v", made, err)
	}
	text, err := os.ReadFile(filepath.Join(site, ".well-known", "agent-skills", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	x, err := Parse(text, base)
	if err != nil || len(x.Skills) != 2 {
		t.Fatalf("index = %+v, %v", x, err)
	}
	for _, e := range x.Skills {
		data, err := os.ReadFile(filepath.Join(site, filepath.FromSlash(e.At.Path)))
		if err != nil || digest.FromBytes(data) != e.Digest || e.Problem != "" {
			t.Errorf("entry = %+v, %v", e, err)
		}
	}
}

// What could not be installed as it is here is not published, and nothing with it.
func TestPublishRefuses(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"is not a name":           {"a/SKILL.md": skillText("An Odd Name")},
		"must be called SKILL.md": {"a/skill.md": skillText("a")},
		"name of two skills":      {"a/SKILL.md": skillText("a"), "b/SKILL.md": skillText("a")},
		"no SKILL.md":             {"a/x.md": "x"},
		"missing-description":     {"a/SKILL.md": "---\nname: a\n---\n", "b/SKILL.md": skillText("b")},
	} {
		site := t.TempDir()
		list, err := Scan(t.Context(), write(t, t.TempDir(), files))
		if err == nil {
			_, err = Publish(t.Context(), list, site)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
		if left, _ := os.ReadDir(site); len(left) > 0 {
			t.Errorf("%s: wrote %v", want, left)
		}
	}
}
