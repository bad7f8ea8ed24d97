package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each runtime runs a script that uses a file beside it, where its interpreter is installed.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	for name, content := range map[string]string{
		"bash.sh":    "#!/usr/bin/env bash\nset -euo pipefail\nsource \"$(dirname \"$0\")/lib.sh\"\nhello \"$1\"\n",
		"lib.sh":     "hello() { echo \"hello $1\"; }\n",
		"posix.sh":   "#!/bin/sh\n. \"${0%/*}/lib.sh\"\nhello \"$1\"\n",
		"python.py":  "import sys, helper\nhelper.hello(sys.argv[1])\n",
		"helper.py":  "def hello(name):\n    print('hello', name)\n",
		"node.mjs":   "import { hello } from './helper.mjs'\nhello(process.argv[2])\n",
		"helper.mjs": "export const hello = name => console.log('hello', name)\n",
		"deno.ts":    "import { hello } from './helper.ts'\nhello(Deno.args[0])\n",
		"helper.ts":  "export const hello = (name: string): void => console.log('hello', name)\n",
	} {
		files["demo/scripts/"+name] = content
	}
	p := serve(t, allowRun(tree(t, files), "ok.sh", "bash.sh", "posix.sh", "python.py", "node.mjs", "deno.ts")...).loaded()
	needSandbox(t, p)
	for _, script := range []string{"bash.sh", "posix.sh", "python.py", "node.mjs", "deno.ts"} {
		t.Run(script, func(t *testing.T) {
			result := p.tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/" + script, "args": []string{"wörld; $(id)"}})
			if strings.Contains(result.text(), "interpreter_not_found") {
				t.Skipf("missing capability: %s", result.text())
			}
			if !strings.Contains(result.text(), "stdout:\nhello wörld; $(id)\n") {
				t.Errorf("run = %s", result.text())
			}
		})
	}
}

// A workspace is what the operator granted and no more.
func TestWorkspace(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	files["demo/scripts/write.sh"] = "#!/bin/sh\npwd\ncat seen.txt\necho new >new.txt && echo wrote\nmkdir -p .git/hooks && echo evil >.git/hooks/post-commit\necho made >/out/report.txt\nexit 0\n"
	for _, test := range []struct {
		mode    string
		release string
		stdout  string // the whole of it
		wrote   bool
	}{
		{"", "observed", "/workspace\nseen\n", false},
		{":ro", "observed", "/workspace\nseen\n", false},
		{":staged", "observed", "/workspace\nseen\nwrote\n", true},
		{":rw", "observed", "/workspace\nseen\nwrote\n", true},
		{":ro", "opaque", "[withheld; handle ", false},
	} {
		t.Run(strings.TrimPrefix(test.mode, ":")+" "+test.release, func(t *testing.T) {
			workspace := t.TempDir()
			if err := os.WriteFile(filepath.Join(workspace, "seen.txt"), []byte("seen\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			// The sandbox's user is another one when the server is root's.
			if err := os.Chmod(workspace, 0o777); err != nil {
				t.Fatal(err)
			}
			root := tree(t, files)
			p := serve(t, append(allowRun(root, "ok.sh", "write.sh"), "--workspace", workspace+test.mode, "--release", test.release)...).loaded()
			needSandbox(t, p)
			result := p.script("write.sh")
			if !strings.Contains(result.text(), "stdout:\n"+test.stdout) {
				t.Errorf("run = %s", result.text())
			}
			if test.release == "observed" && !strings.Contains(result.text(), "\nout: report.txt, 5 bytes, skillsd://session/") {
				t.Errorf("the file in /out is not returned: %s", result.text())
			}
			told := strings.Contains(result.text(), "\nworkspace: ") && strings.Contains(result.text(), "\nrefused: ") && strings.Contains(result.text(), "\napplied: write new.txt\n") &&
				strings.Contains(string(result.Meta["skillsd/result"]), `{"path":"new.txt","op":"write"`)
			if staged := test.mode == ":staged"; told != staged {
				t.Errorf("what became of the changes: told %v, %s %s", told, result.text(), result.Meta["skillsd/result"])
			}
			if undo := strings.Contains(result.text(), "\nthe user can undo these changes with `skillsd undo`\n"); undo != told {
				t.Errorf("the way to undo: told %v, %s", undo, result.text())
			}
			_, err := os.Stat(filepath.Join(workspace, "new.txt"))
			if wrote := err == nil; wrote != test.wrote {
				t.Errorf("the workspace was written: %v, want %v", wrote, test.wrote)
			}
			if _, err := os.Stat(filepath.Join(workspace, ".git/hooks/post-commit")); err == nil && test.mode == ":staged" {
				t.Error("a protected name was written")
			}
			p.end()
		})
	}
}

// The list of sessions has the skills of one whose server was killed before it wrote its views, as Codex does.
func TestSessionListWithoutViews(t *testing.T) {
	state := t.TempDir()
	p := serve(t, "--state", state, "--no-default-roots", "--skills-root", tree(t, demoSkill())).loaded()
	p.end()
	views, err := filepath.Glob(filepath.Join(state, "sessions", "*", "skill-activations.json"))
	if err != nil || len(views) != 1 {
		t.Fatalf("views %v, %v", views, err)
	}
	if err := os.Remove(views[0]); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "session", "list", "--state", state).CombinedOutput(); err != nil || !strings.Contains(string(out), " demo ") {
		t.Errorf("session list = %s, %v", out, err)
	}
}

// What an operator withheld from the model can be read from the record.
func TestWithheldOutput(t *testing.T) {
	t.Parallel()
	p := serve(t, append(demo(t, "ok.sh"), "--release", "opaque")...).loaded()
	needSandbox(t, p)
	result := p.script("ok.sh", "secret")
	_, text, _ := strings.Cut(result.text(), "stdout:")
	_, rest, ok := strings.Cut(text, "[withheld; handle ")
	if !ok || strings.Contains(result.text(), "ran-ok") || strings.Contains(string(result.Meta["skillsd/result"]), "ran-ok") {
		t.Fatalf("run = %s %s", result.text(), result.Meta["skillsd/result"])
	}
	handle, _, _ := strings.Cut(rest, "]")
	var output struct {
		Stdout struct {
			Reason, EventID string
			Handle          struct{ HandleID string }
			ByteLength      *int
		}
		ExitCode *int
	}
	if err := json.Unmarshal(result.Meta["skillsd/result"], &output); err != nil || output.Stdout.Reason != "needs-opaque-pass-through" || output.Stdout.Handle.HandleID != handle ||
		output.Stdout.ByteLength != nil || output.Stdout.EventID == "" || *output.ExitCode != 0 {
		t.Errorf("in place of stdout: %s, %v", result.Meta["skillsd/result"], err)
	}
	p.end()
	show := exec.Command(binary, "session", "show", "latest", "--output", handle, "--state", p.state)
	out, err := show.CombinedOutput()
	if err != nil || string(out) != "ran-ok secret\n" {
		t.Errorf("session show --output %s = %q, %v", handle, out, err)
	}
	show = exec.Command(show.Path, show.Args[1:]...)
	show.Env = append(os.Environ(), "CLAUDECODE=1")
	out, err = show.CombinedOutput()
	if err == nil || strings.Contains(string(out), "ran-ok") ||
		!strings.Contains(string(out), "stdout was withheld from the model") {
		t.Errorf("in an agent's shell session show --output %s = %q, %v", handle, out, err)
	}
}

// Without a backend the server starts, lists, loads and reads, and refuses to run.
func TestNoSandbox(t *testing.T) {
	p := serve(t, append(demo(t, "ok.sh"), "--sandbox", "seatbelt")...).loaded()
	result := p.script("ok.sh")
	if !result.IsError || !strings.Contains(result.text(), `"sandbox_unavailable"`) || strings.Contains(result.text(), "ran-ok") {
		t.Errorf("run without a sandbox = %s", result.text())
	}
}

// When the record cannot grow any more, nothing is shown and nothing runs.
func TestFullDisk(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("missing capability: bash, for its ulimit")
	}
	args := append([]string{"serve", "--state", t.TempDir(), "--log-format", "json"}, demo(t, "ok.sh")...)
	// No file may grow beyond 24 KiB, which stands for a disk that is full.
	p := start(t, exec.Command("bash", append([]string{"-c", `ulimit -f 24; exec "$0" "$@"`, binary}, args...)...))
	p.initialize()
	// What a second load records is shorter, so it may fit where a forced one no longer does.
	fill(p, 1000, map[string]any{"name": "demo", "force": true})
	fill(p, 2000, map[string]any{"name": "demo"})
	for _, call := range map[int]struct {
		tool string
		args map[string]any
	}{
		300: {"run_skill_script", demoScript("ok.sh")},
		301: {"run_skill_script", demoScript("other.sh")},
		302: {"read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}},
		303: {"load_skill", map[string]any{"name": "demo"}},
		304: {"load_skill", map[string]any{"name": "none"}},
	} {
		result := p.tool(call.tool, call.args)
		if !result.IsError || !strings.Contains(result.text(), `"provenance_unavailable"`) {
			t.Errorf("%s on a full disk = %s", call.tool, result.text())
		}
	}
}

// fill loads a skill until no record of it fits any more.
func fill(p *process, id int, args map[string]any) {
	p.t.Helper()
	for range 200 {
		result := p.tool("load_skill", args)
		full := strings.Contains(result.text(), `"provenance_unavailable"`)
		if full != result.IsError {
			p.t.Fatalf("load_skill = %s", result.text())
		}
		if full {
			return
		}
		id++
	}
	p.t.Fatal("200 activations fit")
}

// A script that fails for want of a module or a program says so, unless what it prints is withheld.
func TestMissing(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	files["demo/scripts/module.py"] = "import no_such_module\n"
	files["demo/scripts/module.mjs"] = "import 'no-such-package'\n"
	files["demo/scripts/program.sh"] = "#!/bin/bash\nno-such-program\n"
	args := allowRun(tree(t, files), "ok.sh", "module.py", "module.mjs", "program.sh")
	for _, withheld := range []bool{false, true} {
		if withheld {
			args = append(args, "--workspace", t.TempDir()+":ro", "--release", "opaque")
		}
		p := serve(t, args...).loaded()
		needSandbox(t, p)
		for _, tt := range []struct{ script, code, name string }{
			{"module.py", "missing_dependency", "no_such_module"},
			{"module.mjs", "missing_dependency", "no-such-package"},
			{"program.sh", "missing_program", "no-such-program"},
		} {
			result := p.tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/" + tt.script})
			text := result.text()
			if strings.Contains(text, "interpreter_not_found") {
				t.Logf("%s: missing capability: its interpreter", tt.script)
				continue
			}
			said := strings.Contains(text, "\n"+tt.code+": the script needs ") && strings.Contains(text, ": "+tt.name+". Another call")
			if said == withheld || withheld && strings.Contains(text, tt.name) {
				t.Errorf("%s, withheld %t: %s", tt.script, withheld, text)
			}
		}
	}
}
