package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills"
)

// A skill that is disabled or unavailable is in no list and behind no URI or prompt.
func TestWithheldSkills(t *testing.T) {
	p := newProbe(t, map[string]string{
		"off/SKILL.md":    skillMD("off"),
		"off/notes.md":    "notes\n",
		"needs/SKILL.md":  skillMD("needs", "metadata:\n  requires: no-such-command\n"),
		"group/off2/x.md": "no skill\n", "group/off2/SKILL.md": skillMD("off2"),
		"on/SKILL.md": skillMD("on"),
	}, probeOptions{scan: &skills.ScanOptions{Disabled: []string{"off", "group/off2"}, HasCommand: func(string) bool { return false }}})
	for method, params := range map[string]object{
		methodListSkills: {}, methodListResources: {}, methodListPrompts: {},
		methodComplete: {"ref": object{"type": "ref/resource", "uri": templateURI}, "argument": object{"name": templateVariable, "value": ""}},
	} {
		raw, failure := p.ask(modern, method, params)
		if failure != nil {
			t.Fatalf("%s: %v", method, failure)
		}
		var result object
		if err := json.Unmarshal(raw, &result); err != nil {
			t.Fatal(err)
		}
		delete(result, "_meta")
		text, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"off", "needs", "group"} {
			if strings.Contains(string(text), name) {
				t.Errorf("%s names %s: %s", method, name, text)
			}
		}
	}
	for _, ask := range []struct {
		method string
		params object
	}{
		{methodGetSkill, object{"uri": "skill://off/SKILL.md"}},
		{methodGetSkill, object{"uri": "skill://needs/SKILL.md"}},
		{methodReadDirectory, object{"uri": "skill://off"}},
		{methodReadDirectory, object{"uri": "skill://group"}},
		{methodReadDirectory, object{"uri": "skill://group/off2"}},
		{methodReadResource, object{"uri": "skill://off/notes.md"}},
		{methodGetPrompt, object{"name": "off"}},
	} {
		if _, failure := p.ask(modern, ask.method, ask.params); failure == nil || failure.Code != mcp.INVALID_PARAMS {
			t.Errorf("%s %v: %v", ask.method, ask.params, failure)
		}
	}
}
