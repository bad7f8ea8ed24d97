package session

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// A compiler that did not end as it should leaves no cache, whatever it left.
func TestCacheNeedsAWholeRun(t *testing.T) {
	trees, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer trees.Close()
	tree, err := trees.Extend(t.Context(), nil, map[string][]byte{"a.py": []byte("import b\n"), "b.py": nil})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trees.Remove(tree.Digest) }() // what is stored is read-only
	good := sandbox.Result{Outcome: sandbox.Exited, Out: []sandbox.OutFile{{Name: "tag", Data: []byte("cpython-311")},
		{Name: "1.pyc", Data: []byte("\xa7\r\r\n\x03\x00\x00\x00" + strings.Repeat("x", 4096))}}}
	odd := append(slices.Clone(good.Out), sandbox.OutFile{Name: "b.py"})
	for name, test := range map[string]struct {
		change func(r *sandbox.Result)
		fails  bool
	}{
		"whole":      {func(*sandbox.Result) {}, false},
		"exit code":  {func(r *sandbox.Result) { r.ExitCode = 1 }, true},
		"time":       {func(r *sandbox.Result) { r.Outcome = sandbox.TimedOut }, true},
		"memory":     {func(r *sandbox.Result) { r.Outcome = sandbox.MemoryLimit }, true},
		"signal":     {func(r *sandbox.Result) { r.Outcome = sandbox.Signaled }, true},
		"left out":   {func(r *sandbox.Result) { r.OutSkips = 1 }, true},
		"odd file":   {func(r *sandbox.Result) { r.Out = odd }, true},
		"no tag":     {func(r *sandbox.Result) { r.Out = r.Out[1:] }, true},
		"no modules": {func(r *sandbox.Result) { r.Out = r.Out[:1] }, false},
	} {
		fake := &fakeRunner{result: good}
		test.change(&fake.result)
		s := New(Config{Trees: trees, Policy: policy.New(policy.Config{}), Runner: func(context.Context) (sandbox.Runner, error) { return fake, nil }})
		interpreter := &sandbox.Interpreter{Path: "/usr/bin/python3"}
		made, err := s.compile(t.Context(), script.Info{Runtime: script.Python3}, interpreter, tree, "a.py")
		if (err != nil) != test.fails || (made != "") != (name == "whole") {
			t.Errorf("%s: compile = %q, %v", name, made, err)
		}
		_ = trees.Remove(made)
		cmd := fake.cmd.Load()
		if !cmd.Network.Off() || cmd.Workspace.Mode != "" || cmd.Cache.Dir != nil || cmd.Limits.Timeout > cacheTimeout {
			t.Errorf("%s: the compiler got %+v", name, cmd)
		}
	}
}

// The end of the server ends what is being made, and nothing is made any more.
func TestCacheEndsWithTheServer(t *testing.T) {
	b := newCacheBench(t, native.New(nil), "python3", []string{"main.py"}, map[string]string{"main.py": "import m\n", "m.py": large})
	started := make(chan struct{})
	b.watched.before = func(ctx context.Context, _ *sandbox.Cmd) {
		close(started)
		<-ctx.Done()
	}
	ses, call := b.call("run_skill_script")
	if _, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/main.py"}); err != nil {
		t.Fatal(err)
	}
	<-started
	if err := b.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.caches.begin(cacheKey{}); ok {
		t.Error("a cache after the end")
	}
}

// A cache is made only in a slot that nobody needs.
func TestCacheTakesSpareSlots(t *testing.T) {
	q := admit.NewQueue(2, nil)
	held, ok := q.Spare("a", nil)
	if !ok {
		t.Fatal("no spare slot of two")
	}
	if _, ok := q.Spare("b", nil); ok {
		t.Error("the last slot was spare")
	}
	run, err := q.Acquire(t.Context(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	held.Release()
	if _, ok := q.Spare("b", nil); ok {
		t.Error("the last slot was spare")
	}
	run.Release()
	if q.State().Free != 2 || q.State().Principals != 0 {
		t.Errorf("%d free, shares %v", q.State().Free, q.State())
	}
	q.Close()
	if _, ok := q.Spare("a", nil); ok {
		t.Error("a slot after the end")
	}
}
