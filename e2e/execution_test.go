package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A script that is handed to its interpreter on standard input gets its arguments and no place.
func TestExecutionStdin(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	files["demo/scripts/in.sh"] = "#!/usr/bin/env bash\nprintf '<%s>' \"$0\" \"$@\"; cat; echo; pwd\n"
	files["demo/scripts/in.ts"] = "console.log('deno', ...Deno.args)\n"
	files["demo/scripts/include.sh"] = "#!/bin/bash\necho ran-include\nsource ./lib.sh\n"
	files["demo/scripts/flag.sh"] = "#!/bin/bash -e\necho ran-flag\n"
	files["demo/scripts/in.py"] = "print('ran-python')\n"
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := "allow:\n  - 'demo:scripts/ok.sh'\n"
	for _, name := range []string{"in.sh", "in.ts", "include.sh", "flag.sh", "in.py"} {
		text += "  - {script: 'demo:scripts/" + name + "', execution: stdin}\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, append(allowRun(tree(t, files)), "--config", config)...).loaded()
	needSandbox(t, p)
	// The record names the runtime, and describes the script as the standard input that it is.
	recorded := string(p.ask("tools/call",
		`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/in.sh"},"_meta":{"skillsd/records":true}}`).Result)
	for _, want := range []string{
		`"argv":["bash","-s","--"],"args":[]`, fmt.Sprintf(`"stdin":{"type":"cf-harness.redacted-text-summary","bytes":%d,`, len(files["demo/scripts/in.sh"])),
		`"env":{"type":"cf-harness.env-summary","count":5,`, `"interpreter":{"path":"/`,
	} {
		if !strings.Contains(recorded, want) {
			t.Errorf("%s is not in %s", want, recorded)
		}
	}
	for _, tt := range []struct {
		script string
		args   map[string]any
		want   string
	}{
		{"in.sh", nil, "stdout:\n</usr/bin/bash><-c><a b>\n/out\n"},
		{"in.sh", map[string]any{"stdin": "x"}, `"invalid_arguments"`},
		{"in.ts", nil, "stdout:\ndeno -c a b\n"},
		{"include.sh", nil, "line 3 includes"},
		{"flag.sh", nil, "-e"},
		{"in.py", nil, `"unsupported_runtime"`},
	} {
		args := map[string]any{"skill": "demo", "path": "scripts/" + tt.script, "args": []string{"-c", "a b"}}
		for k, v := range tt.args {
			args[k] = v
		}
		got := p.tool("run_skill_script", args).text()
		if strings.Contains(got, "interpreter_not_found") {
			t.Logf("missing capability: %s", got)
			continue
		}
		if !strings.Contains(got, tt.want) || strings.Contains(got, "ran-") {
			t.Errorf("%s %v = %s, want %q", tt.script, tt.args, got, tt.want)
		}
	}
}
