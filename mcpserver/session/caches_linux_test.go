package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/runsc"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
	"github.com/skillsd/skillsd/skills/policy"
)

// cacheBench is a bench whose scripts run in real sandboxes.
type cacheBench struct {
	*bench
	watched *watchedRunner
}

// watchedRunner runs commands and counts those that are no script's.
type watchedRunner struct {
	sandbox.Runner
	compiles atomic.Int64
	before   func(ctx context.Context, cmd *sandbox.Cmd) // a compiler starts; may be nil
}

func (w *watchedRunner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	if !strings.Contains(strings.Join(cmd.Env, "\n"), "SKILL_NAME=") {
		w.compiles.Add(1)
		if w.before != nil {
			w.before(ctx, cmd)
		}
	}
	return w.Runner.Run(ctx, cmd)
}

func newCacheBench(t *testing.T, runner sandbox.Runner, needs string, scripts []string, files map[string]string) *cacheBench {
	t.Helper()
	sandboxtest.Need(t, "linux", "userns", needs)
	b := &cacheBench{newBench(t, benchOptions{policy: direct}), &watchedRunner{Runner: runner}}
	b.write(files)
	var entries []policy.Entry
	for _, s := range scripts {
		entries = append(entries, policy.Entry{Skill: "demo", Path: "scripts/" + s})
	}
	allowed, err := policy.NewAllowlist(entries)
	if err != nil {
		t.Fatal(err)
	}
	b.setPolicy(policy.New(policy.Config{Role: policy.DirectCommand, Allowlist: allowed, Release: policy.ReleaseObserved,
		Tools: []string{"load_skill", "run_skill_script", "resources/read"}}))
	b.cfg.Runner = func(context.Context) (sandbox.Runner, error) { return b.watched, nil }
	b.cfg.Interpreter = detect.Interpreters(os.Getenv("PATH")).Find
	if _, err := b.cfg.Registry.Rescan(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.load("demo")
	b.Current().background.Wait()
	t.Cleanup(func() { _ = b.End(context.Background()) })
	return b
}

func (b *cacheBench) write(files map[string]string) {
	b.t.Helper()
	testtree.Write(b.t, filepath.Join(b.root, "demo/scripts"), files)
}

// restart pins the tree as it is now.
func (b *cacheBench) restart() {
	b.t.Helper()
	clear(b.rules.Load().trees)
	clear(b.rules.Load().pins)
	if err := b.Start(context.Background(), nil); err != nil {
		b.t.Fatal(err)
	}
}

// script runs a script, waits for what is made beside, and returns what it printed and the digest of the
// cache it got.
func (b *cacheBench) script(name string) (stdout string, cache digest.Digest) {
	b.t.Helper()
	ses, call := b.call("run_skill_script")
	r, err := ses.RunScript(context.Background(), RunRequest{Call: call, Skill: "demo", Path: "scripts/" + name, Timeout: 30 * time.Second})
	if err != nil || r.Outcome != string(sandbox.Exited) || r.ExitCode != 0 || r.Stderr.Head != "" {
		b.t.Fatalf("%s: %+v, %v", name, r, err)
	}
	b.caches.work.Wait()
	return r.Stdout.Head, r.Output.Skillsd.CacheDigest
}

// backends are the runners that need nothing which is not there.
func backends(t *testing.T) map[string]sandbox.Runner {
	found := map[string]sandbox.Runner{native.Name: native.New(nil)}
	if path, err := exec.LookPath("bwrap"); err == nil {
		found[bwrap.Name] = bwrap.New(path, nil)
	} else {
		t.Log("not tried with bwrap: ", err)
	}
	if path, err := exec.LookPath("runsc"); err == nil {
		found[runsc.Name] = runsc.New(path, nil)
	} else {
		t.Log("not tried with runsc: ", err)
	}
	return found
}

// large begins a module that is worth a cache, in python and typescript.
var large = "x = ['" + strings.Repeat("a", 16<<10) + "'] #\n"

// pythonModules are a script and what it imports. It prints where each module came from, and what it
// could do to that.
var pythonModules = map[string]string{
	"main.py": `import os, sys
import plain, package.inner, loud
for m in (plain, package, package.inner, loud):
    cached = m.__spec__.cached
    print(m.__name__, m.answer, os.path.exists(cached))
    if os.path.exists(cached):
        for harm in (lambda: open(cached, "ab"), lambda: os.unlink(cached), lambda: os.chmod(cached, 0o777), lambda: open(os.path.dirname(cached) + "/x", "w")):
            try:
                harm()
                print("HARMED")
            except OSError:
                pass
try:
    import broken
except SyntaxError:
    print("broken")
`,
	"plain.py":            large + "answer = 42\nclass A:\n    def f(self): return {1, 2, 'x'}\n",
	"package/__init__.py": "answer = 1\n",
	"package/inner.py":    "answer = 2\n",
	"loud.py":             "import sys\nanswer = 3\n",
	"broken.py":           "def f(:\n",
	"unused.py":           "print('ran')\n",
}

func TestPythonCache(t *testing.T) {
	for name, runner := range backends(t) {
		t.Run(name, func(t *testing.T) {
			b := newCacheBench(t, runner, "python3", []string{"main.py"}, pythonModules)
			line := func(there string) string {
				return strings.ReplaceAll("plain 42 X\npackage 1 X\npackage.inner 2 X\nloud 3 X\nbroken\n", "X", there)
			}
			if got, cache := b.script("main.py"); got != line("False") || cache != "" {
				t.Fatalf("first run: %q, cache %q", got, cache)
			}
			got, cache := b.script("main.py")
			if got != line("True") || cache == "" {
				t.Fatalf("second run: %q, cache %q", got, cache)
			}
			if _, again := b.script("main.py"); again != cache || b.watched.compiles.Load() != 1 {
				t.Errorf("third run: cache %q, want %q; %d compiles", again, cache, b.watched.compiles.Load())
			}
			tree, err := b.cfg.Trees.Tree(t.Context(), cache)
			if err != nil {
				t.Fatal(err)
			}
			whole := b.Current().activated("demo").index
			for _, f := range tree.Files {
				if !strings.Contains(f.Path, "__pycache__/") && (whole.Resource(f.Path) == nil || whole.Resource(f.Path).Digest != f.Digest) && f.Path != "SKILL.md" {
					t.Errorf("%s is no file of the skill", f.Path)
				}
				if strings.Contains(f.Path, "unused") && strings.HasSuffix(f.Path, ".pyc") {
					t.Errorf("%s is imported by nobody", f.Path)
				}
			}
			if runs := b.artifact("skill-script-executions.json"); !strings.Contains(runs, `"cacheDigest":"`+cache.String()) && !strings.Contains(runs, `"cacheDigest": "`+cache.String()) {
				t.Errorf("no record of the cache:\n%s", runs)
			}
		})
	}
}

// Whatever happens to a cache on disk, and to the skill, no run sees another one's code.
func TestCacheFollowsTheTree(t *testing.T) {
	b := newCacheBench(t, native.New(nil), "python3", []string{"main.py"}, map[string]string{"main.py": "import m\nprint(m.v)\n", "m.py": large + "v = 1\n"})
	b.script("main.py")
	_, first := b.script("main.py")
	damage := func(do func(pyc string) error) {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(b.cfg.Trees.Dir(), first.Encoded(), "scripts/__pycache__/m.*.pyc"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		if err := errors.Join(os.Chmod(filepath.Dir(found[0]), 0o755), os.Chmod(found[0], 0o644), do(found[0])); err != nil {
			t.Fatal(err)
		}
	}
	for what, do := range map[string]func(string) error{
		"changed": func(pyc string) error {
			data, err := os.ReadFile(pyc)
			data[len(data)-1] ^= 1
			return errors.Join(err, os.WriteFile(pyc, data, 0o644))
		},
		"removed":  os.Remove,
		"replaced": func(pyc string) error { return errors.Join(os.Remove(pyc), os.Symlink("/etc/passwd", pyc)) },
		"added":    func(pyc string) error { return os.WriteFile(pyc+".py", nil, 0o644) },
		"gone":     func(string) error { return b.cfg.Trees.Remove(first) },
	} {
		damage(do)
		if got, cache := b.script("main.py"); got != "1\n" || cache != "" {
			t.Errorf("%s: %q with cache %q", what, got, cache)
		}
		if got, cache := b.script("main.py"); got != "1\n" || cache != first {
			t.Errorf("%s: made anew: %q with cache %q, want %q", what, got, cache, first)
		}
	}

	b.write(map[string]string{"m.py": large + "v = 2\n"})
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.load("demo")
	if got, cache := b.script("main.py"); got != "2\n" || cache != "" {
		t.Errorf("another tree: %q with cache %q", got, cache)
	}
	if got, cache := b.script("main.py"); got != "2\n" || cache == "" || cache == first {
		t.Errorf("another tree, second run: %q with cache %q", got, cache)
	}
	// Another interpreter has none of this one's.
	find := b.cfg.Interpreter
	b.cfg.Interpreter = func(ctx context.Context, name string) (*sandbox.Interpreter, error) {
		in, err := find(ctx, name)
		other := *in
		other.Digest = digest.FromString("other").String()
		return &other, err
	}
	if got, cache := b.script("main.py"); got != "2\n" || cache != "" {
		t.Errorf("another interpreter: %q with cache %q", got, cache)
	}
}

// No module of a skill makes more of the compiler than that there is no cache.
func TestCacheOfHostileModules(t *testing.T) {
	deep := strings.Repeat("(", 100_000)
	for name, test := range map[string]struct {
		files  map[string]string
		cached bool
	}{
		"nested":           {map[string]string{"m.py": large + "v = 1\n", "deep.py": deep}, true},
		"long expression":  {map[string]string{"m.py": large + "v = 1\n", "deep.py": "x = " + strings.Repeat("-", 200_000) + "1"}, false},
		"a large constant": {map[string]string{"m.py": large + "v = 1\nif 0: x = (1,) * 10**9\n", "big.py": "x = 'a' * 10**9"}, true},
		"names":            {map[string]string{"m.py": large + "v = 1\n", "a b.py": "", "ä.py": "", "..py": "", "-c.py": "", "sys.py": "1/0", "ast.py": "1/0", "os.py": "1/0", "py_compile.py": "open('/out/tag', 'w')", "sitecustomize.py": "1/0"}, true},
		"coding":           {map[string]string{"m.py": large + "v = 1\n", "c.py": "# coding: zip\n", "d.py": "# coding: evil\nx = 1\n", "n.py": "\x00"}, true},
		"exponential":      {map[string]string{"m.py": large + "v = 1\n", "deep.py": doubling(18)}, false},
		"many":             {many(300), false},
		"large":            {map[string]string{"m.py": "v = 1\nx = '" + strings.Repeat("x", 20<<20) + "'\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.files["main.py"] = "import sys\nsys.path.insert(0, sys.path.pop(0))\nprint(1)\nif 0:\n    import m, deep, big, c, d, n\n"
			if name == "names" {
				test.files["main.py"] = "print(1)\nif 0: import m, sys, ast\n"
			}
			b := newCacheBench(t, native.New(nil), "python3", []string{"main.py"}, test.files)
			if got, _ := b.script("main.py"); got != "1\n" {
				t.Fatalf("%q", got)
			}
			if got, cache := b.script("main.py"); got != "1\n" || (cache != "") != test.cached {
				t.Errorf("%q with cache %q, want one: %v", got, cache, test.cached)
			}
			if n := b.watched.compiles.Load(); n != 1 {
				t.Errorf("%d compiles, want 1", n)
			}
		})
	}
}

// doubling is a module whose code is twice as long for each level: what a finally clause holds is compiled
// for each way that leads there.
func doubling(levels int) string {
	var s strings.Builder
	for i := range levels {
		in := strings.Repeat(" ", i)
		fmt.Fprintf(&s, "%stry:\n%s pass\n%sfinally:\n", in, in, in)
	}
	return s.String() + strings.Repeat(" ", levels) + "x = 1\n"
}

func many(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("m%d.py", i)] = fmt.Sprintf("import m%d\n", (i+1)%n)
	}
	return files
}

func TestDenoCache(t *testing.T) {
	for name, runner := range backends(t) {
		t.Run(name, func(t *testing.T) {
			b := newCacheBench(t, runner, "deno", []string{"main.ts", "alone.ts"}, map[string]string{
				"main.ts": "#!/usr/bin/env -S deno run --allow-read=/tmp --allow-write=/tmp\n" + `import { v } from "./lib/v.ts";
const at = "/tmp/.cache/deno/gen/file/skill/scripts/lib/v.ts.js";
let text = "";
try { text = Deno.readTextFileSync(at); } catch { /* not there */ }
console.log(v as number, text.includes("denoCacheMetadata"));
for (const harm of [() => Deno.writeTextFileSync(at, "x"), () => Deno.removeSync(at), () => Deno.mkdirSync("/tmp/.cache/deno/gen/x")]) {
  try { harm(); if (text.includes("sandbox")) console.log("HARMED"); } catch { /* read-only */ }
}
const late = "late";
console.log((await import("./" + late + ".ts")).v);
localStorage.setItem("a", "b");
`,
				"lib/v.ts": "let " + strings.ReplaceAll(large, "#", "//") + "interface V { v: number }\nexport const v: number = ({ v: 42 } as V).v;\n",
				"late.ts":  "export const v: number = 7;\n", "broken.ts": "const x: = ;\n",
				"alone.ts": "console.log(1 as number);\n",
			})
			if got, cache := b.script("main.ts"); got != "42 false\n7\n" && got != "42 true\n7\n" || cache != "" {
				t.Fatalf("first run: %q, cache %q", got, cache)
			}
			got, cache := b.script("main.ts")
			if got != "42 true\n7\n" || cache == "" {
				t.Fatalf("second run: %q, cache %q", got, cache)
			}
			if _, cache := b.script("alone.ts"); cache != "" {
				t.Error("another script has its cache")
			}
		})
	}
}
