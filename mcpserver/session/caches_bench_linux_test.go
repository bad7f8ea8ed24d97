package session

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// BenchmarkCache runs a script with and without its cache, in turn, and reports the medians of each.
func BenchmarkCache(b *testing.B) {
	python := func(functions int) string {
		var s strings.Builder
		for i := range functions {
			fmt.Fprintf(&s, "class C%d:\n    def __init__(self, a, b=None):\n        self.a = a\n        self.b = b or []\n\n    def run(self, x):\n        for k in range(x):\n            if k %% 3:\n                self.b.append(k)\n        return {'a': self.a, 'b': [v for v in self.b if v]}\n\n", i)
		}
		return s.String()
	}
	typescript := func(functions int) string {
		var s strings.Builder
		for i := range functions {
			fmt.Fprintf(&s, "export interface I%d { v: number; s: string }\nexport function f%d(x: number): I%d {\n  let t: number = 0;\n  for (let k = 0; k < x; k++) {\n    t += k;\n  }\n  return { v: t, s: `v${t}` };\n}\n", i, i, i)
		}
		return s.String()
	}
	for _, test := range []struct {
		name, script string
		runtime      script.Runtime
		files        map[string]string
	}{
		{"python3, sibling of 110 lines", "scripts/main.py", script.Python3, map[string]string{"scripts/main.py": "import a\n", "scripts/a.py": python(10)}},
		{"python3, siblings of 1100 lines", "scripts/main.py", script.Python3, map[string]string{"scripts/main.py": "import a, b\n", "scripts/a.py": python(50), "scripts/b.py": python(50)}},
		{"deno, imports of 800 lines", "scripts/main.ts", script.Deno, map[string]string{"scripts/main.ts": "import { f1 } from './a.ts';\nimport { f2 } from './b.ts';\nf1(1); f2(2);\n", "scripts/a.ts": typescript(50), "scripts/b.ts": typescript(50)}},
	} {
		b.Run(test.name, func(b *testing.B) { benchmarkCache(b, test.runtime, test.script, test.files) })
	}
}

func benchmarkCache(b *testing.B, runtime script.Runtime, path string, files map[string]string) {
	sandboxtest.Need(b, "linux", "userns", string(runtime))
	trees, err := store.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer trees.Close()
	content := map[string][]byte{}
	for name, text := range files {
		content[name] = []byte(text)
	}
	tree, err := trees.Extend(b.Context(), nil, content)
	if err != nil {
		b.Fatal(err)
	}
	interpreter, err := detect.Interpreters(os.Getenv("PATH")).Find(b.Context(), string(runtime))
	if err != nil {
		b.Fatal(err)
	}
	runner := native.New(nil)
	s := New(Config{Trees: trees, Policy: policy.New(policy.Config{}), Logger: slog.New(slog.DiscardHandler), Runner: func(context.Context) (sandbox.Runner, error) { return runner, nil }})
	info := script.Info{Runtime: runtime}
	made, err := s.compile(b.Context(), info, interpreter, tree, path)
	if err != nil || made == "" {
		b.Fatalf("no cache: %v", err)
	}
	defer func() { _, _ = trees.Remove(made), trees.Remove(tree.Digest) }()
	took, used := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for _, state := range []string{"without", "with"} {
			begin, cpu := time.Now(), childTime(b)
			c := &command{}
			handle, err := tree.Open()
			if err != nil {
				b.Fatal(err)
			}
			c.Cmd = sandbox.Cmd{
				Argv:        script.Argv(info, interpreter.Path, sandbox.SkillDir+"/"+path, nil),
				Interpreter: interpreter, Tree: handle, Env: []string{"PATH=/usr/bin", "HOME=/tmp"},
			}
			if state == "with" {
				cache, err := trees.Tree(b.Context(), made)
				if err != nil {
					b.Fatal(err)
				}
				handle, err := cache.Open()
				if err != nil {
					b.Fatal(err)
				}
				if runtime == script.Deno {
					c.Cache = sandbox.Cache{Dir: handle, At: denoCache}
				} else {
					c.Tree.Close()
					c.Tree = handle
				}
			}
			result, err := runner.Run(b.Context(), &c.Cmd)
			if err != nil || result.ExitCode != 0 {
				b.Fatalf("%s: %+v, %v", state, result, err)
			}
			c.close()
			took[state], used[state] = append(took[state], time.Since(begin)), append(used[state], childTime(b)-cpu)
		}
	}
	for state := range took {
		slices.Sort(took[state])
		slices.Sort(used[state])
		middle := len(took[state]) / 2
		b.ReportMetric(took[state][middle].Seconds()*1000, "ms-"+state)
		b.ReportMetric(used[state][middle].Seconds()*1000, "cpu-ms-"+state)
	}
}

// childTime is what processes that have ended took of the processors: unlike the time that passes it does
// not depend on what else runs.
func childTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
