package e2e

import (
	"strings"
	"testing"
)

// While a script runs, its client hears how long, and the last line of output that it will get: not one that
// is withheld, and none where a secret could be in it.
func TestProgressShowsLastLine(t *testing.T) {
	t.Parallel()
	skill := demoSkill()
	skill["demo/scripts/pages.sh"] = "#!/bin/sh\necho page 5 of 14\nprintf 'page 6'\nexec sleep 60\n"
	secrets := written(t, "config.yaml", "secrets: {A: {env: SOME_SECRET}}\n"+
		"allow_tools: [run_skill_script]\npolicy: {prompt_slot_role: direct-command}\n"+
		"allow: [{script: demo:scripts/ok.sh}, {script: demo:scripts/pages.sh, secrets: [A], release: observed}]\n")
	allowed := allowRun(tree(t, skill), "ok.sh", "pages.sh")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"released": {allowed, "running 1 s; last line: page 5 of 14"},
		"opaque":   {append(allowed[:len(allowed):len(allowed)], "--release", "opaque"), "running 1 s"},
		"secrets":  {[]string{"--skills-root", allowed[1], "--config", secrets}, "running 1 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serveWith(t, []string{"SOME_SECRET=0123456789abcdef"}, tt.args...).loaded()
			needSandbox(t, p)
			p.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_skill_script","arguments":` +
				`{"skill":"demo","path":"scripts/pages.sh"},"_meta":{"progressToken":"p"}}}`)
			line := p.receive()
			for !strings.Contains(line, `"running 1 s`) {
				line = p.receive()
			}
			if !strings.Contains(line, `"`+tt.want+`"`) {
				t.Errorf("%s lacks %q", line, tt.want)
			}
			p.end()
		})
	}
}
