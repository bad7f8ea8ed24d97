package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
)

// Servers with the same skills share one registry, each session has it whole wherever it is copied to, and an
// export carries it. It goes with the last session that has it.
func TestRegistryIsShared(t *testing.T) {
	t.Parallel()
	state, root := t.TempDir(), tree(t, demoSkill())
	serve := func() *process {
		p := serve(t, "--state", state, "--no-default-roots", "--skills-root", root)
		p.initialize()
		return p
	}
	read := func(p *process) {
		p.tool("load_skill", map[string]any{"name": "demo"})
		p.ask("resources/read", `{"uri":"skillsd://session/`+provenance.RegistryFile+`"}`)
	}
	a := serve()
	read(a)
	b, c := serve(), serve()
	read(b)
	read(c)
	for _, p := range []*process{a, b, c} {
		p.end()
	}
	dirs, err := filepath.Glob(filepath.Join(state, "sessions", "ses_*"))
	if err != nil || len(dirs) != 3 {
		t.Fatalf("the sessions are %v, %v", dirs, err)
	}
	var first os.FileInfo
	var text []byte
	for _, dir := range dirs {
		file := filepath.Join(dir, provenance.RegistryFile)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
			text, err = os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
		}
		if !os.SameFile(first, info) {
			t.Errorf("%s is a file of its own", file)
		}
		out, code := session(t, state, "export", filepath.Base(dir))
		var export struct {
			Files map[string]json.RawMessage
		}
		var want bytes.Buffer
		if err := json.Compact(&want, text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out), &export); err != nil || code != 0 || string(export.Files[provenance.RegistryFile]) != want.String() {
			t.Errorf("export exits %d, %v, with the registry %s", code, err, export.Files[provenance.RegistryFile])
		}
	}
	if out, code := session(t, state, "verify", "--all"); code != 0 {
		t.Errorf("verify exits %d: %s", code, out)
	}
	copied := filepath.Join(t.TempDir(), "sessions", filepath.Base(dirs[1]))
	if err := os.CopyFS(copied, os.DirFS(dirs[1])); err != nil {
		t.Fatal(err)
	}
	if out, code := session(t, filepath.Dir(filepath.Dir(copied)), "verify", filepath.Base(dirs[1])); code != 0 {
		t.Errorf("verify of a session that was copied exits %d: %s", code, out)
	}
	pooled := filepath.Join(state, "sessions", "~shown", "common-*")
	if _, code := session(t, state, "gc", "--older-than", "1h"); code != 0 {
		t.Errorf("gc exits %d", code)
	}
	if left, _ := filepath.Glob(pooled); len(left) != 1 {
		t.Errorf("the pool has %v although sessions have the registry", left)
	}
	if err := os.Remove(filepath.Join(dirs[0], provenance.RegistryFile)); err != nil {
		t.Fatal(err)
	}
	if out, code := session(t, state, "verify", filepath.Base(dirs[0])); code != 3 || !strings.Contains(out, provenance.RegistryFile+":1: missing") {
		t.Errorf("verify without the registry exits %d: %s", code, out)
	}
	if _, code := session(t, state, "gc", "--older-than", "0s", "--total", "1"); code != 0 {
		t.Errorf("gc exits %d", code)
	}
	if left, _ := filepath.Glob(pooled); len(left) != 0 {
		t.Errorf("the pool has %v although no session is left", left)
	}
}
