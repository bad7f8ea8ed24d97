package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// A program that asks for records gets results whole, and the text for the model stays short.
func TestWholeResults(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	long := strings.Repeat("0123456789abcde\n", 6_000)
	files["demo/references/long.md"] = long
	files["demo/scripts/long.sh"] = "#!/bin/sh\ni=0\nwhile [ $i -lt 6000 ]; do echo 0123456789abcde; i=$((i+1)); done\nexit 3\n"
	p := serve(t, allowRun(tree(t, files), "long.sh", "ok.sh")...)
	p.initialize()
	all := printed(t)
	for i, meta := range []string{`{"skillsd/records":true}`, `{}`} {
		whole := i == 0
		var load struct {
			Content   *string
			Resources []struct{ Path, Digest string }
		}
		var read struct {
			Content   string
			Truncated bool
		}
		var run struct {
			Stdout          string
			StdoutTruncated bool
			CFCResult       *struct {
				Stdout   struct{ Segments []struct{ Text string } }
				ExitCode struct{ Value int }
			}
			Skillsd struct{ Stdout struct{ URI string } }
		}
		call := func(id int, tool string, args map[string]any, into any) {
			t.Helper()
			result := p.toolWith(tool, args, meta)
			if tool == "load_skill" {
				needSandbox(t, p)
			}
			all.checkResult(t, tool, result)
			if err := json.Unmarshal(result.Meta["skillsd/result"], into); err != nil || len(result.text()) > 38_000 {
				t.Errorf("%s: %v, %d bytes of text", tool, err, len(result.text()))
			}
		}
		call(2, "load_skill", map[string]any{"name": "demo", "force": true}, &load)
		if (load.Content != nil && strings.HasPrefix(*load.Content, "---\nname: demo\n")) != whole || (len(load.Resources) > 3) != whole {
			t.Errorf("whole %v: load = %+v", whole, load)
		}
		call(6, "read_skill_resource", map[string]any{"skill": "demo", "path": "references/long.md", "maxBytes": 100_000}, &read)
		if (read.Content == long) != whole || read.Truncated == whole {
			t.Errorf("whole %v: %d bytes read, truncated %v", whole, len(read.Content), read.Truncated)
		}
		call(7, "run_skill_script", demoScript("long.sh"), &run)
		if (run.Stdout == long) != whole || run.StdoutTruncated == whole || (run.CFCResult != nil) != whole {
			t.Errorf("whole %v: %d bytes of stdout", whole, len(run.Stdout))
		}
		if whole && (run.CFCResult.Stdout.Segments[0].Text != long || run.CFCResult.ExitCode.Value != 3) {
			t.Errorf("cfcResult = %+v", run.CFCResult)
		}
		if text, code := p.artifact(run.Skillsd.Stdout.URI); text != long || code != 0 {
			t.Errorf("%s: %d bytes, code %d", run.Skillsd.Stdout.URI, len(text), code)
		}
	}
}
