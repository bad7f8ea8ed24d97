package session

import (
	"context"
	"slices"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

// A script finds the interpreters that scripts are run with, the modules of its skill and, without a network,
// no registry of packages. An interpreter that is gone is left out.
func TestEnvironOfScripts(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	there := t.TempDir()
	b.cfg.ApartInterpreter = func(_ context.Context, name string) (*sandbox.Interpreter, error) {
		dir := map[string]string{"python3": there, "node": there + "/gone"}[name]
		return &sandbox.Interpreter{Name: name, Path: dir + "/bin/" + name, Mounts: []string{dir}}, nil
	}
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	cmd := b.runner.cmd.Load()
	for _, want := range []string{"PATH=" + there + "/bin:" + systemPath, "PYTHONPATH=/mnt/skills/user/demo",
		"NPM_CONFIG_OFFLINE=true"} {
		if !slices.Contains(cmd.Env, want) {
			t.Errorf("%q does not have %s", cmd.Env, want)
		}
	}
	if in := cmd.Interpreter; in.Path != "/usr/bin/sh" || !slices.Equal(in.Mounts, []string{there}) {
		t.Errorf("interpreter %+v", in)
	}
}
