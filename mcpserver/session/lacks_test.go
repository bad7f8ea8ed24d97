package session

import (
	"context"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
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

// Modules of a skill are found where its entry approves all files: one next to an approved script, such as
// sitecustomize.py, would run else.
func TestModulesOfApprovedTrees(t *testing.T) {
	pin := digest.FromString("#!/bin/sh\necho ok\n")
	for name, test := range map[string]struct {
		entry func(tree digest.Digest) policy.Entry
		found bool
	}{
		"without a digest": {func(digest.Digest) policy.Entry { return policy.Entry{} }, true},
		"tree":             {func(tree digest.Digest) policy.Entry { return policy.Entry{Pin: pin, Tree: tree} }, true},
		"script only":      {func(digest.Digest) policy.Entry { return policy.Entry{Pin: pin, PinScript: true} }, false},
		"digest only":      {func(digest.Digest) policy.Entry { return policy.Entry{Pin: pin} }, false},
		"by stdin":         {func(digest.Digest) policy.Entry { return policy.Entry{Execution: policy.ExecutionStdin} }, false},
	} {
		b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseObserved}})
		b.load("demo")
		b.replaced(test.entry(b.Current().activated("demo").index.TreeDigest))
		if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cmd := b.runner.cmd.Load()
		if found := slices.Contains(cmd.Env, "PYTHONPATH=/mnt/skills/user/demo"); found != test.found {
			t.Errorf("%s: modules are found: %v; want %v", name, found, test.found)
		}
	}
}
