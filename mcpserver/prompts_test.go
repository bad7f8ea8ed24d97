package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/provenance"
)

// promptNames walks prompts/list.
func (p *probe) promptNames() (names []string) {
	p.t.Helper()
	for params := (object{}); ; {
		var page struct {
			Prompts    []mcp.Prompt
			NextCursor string
		}
		p.must(modern, methodListPrompts, params, &page)
		for _, prompt := range page.Prompts {
			names = append(names, prompt.Name)
			if len(prompt.Arguments) != 1 || prompt.Arguments[0].Name != argumentRequest || prompt.Arguments[0].Required {
				p.t.Errorf("prompt %s takes %+v", prompt.Name, prompt.Arguments)
			}
		}
		if page.NextCursor == "" {
			return names
		}
		params["cursor"] = page.NextCursor
	}
}

func TestPromptNames(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	want := []string{"Bad Name", "acme:billing:refunds", "acme:support:refunds", "elsewhere", "lower", "merge", "pdf", "pdf-forms", "plain", "shy"}
	if diff := cmp.Diff(want, p.promptNames()); diff != "" {
		t.Errorf("prompts (-want +got):\n%s", diff)
	}
}

// The argument of a prompt is described in the author's words, in one line, if there are any.
func TestPromptHints(t *testing.T) {
	hinted := func(name, hint string) string {
		return "---\nname: " + name + "\ndescription: For tests.\nargument-hint: " + hint + "\n---\nDo it.\n"
	}
	p := newProbe(t, map[string]string{"a/SKILL.md": hinted("a", `"<file> [sheet]"`), "b/SKILL.md": hinted("b", "[pr]"),
		"c/SKILL.md": hinted("c", `"one\ntwo\u202e"`), "d/SKILL.md": skillMD("d"), "e/SKILL.md": hinted("e", `"`+strings.Repeat("x", 9000)+`"`)}, probeOptions{})
	var page struct{ Prompts []mcp.Prompt }
	p.must(modern, methodListPrompts, object{}, &page)
	var got []string
	for _, prompt := range page.Prompts {
		got = append(got, prompt.Arguments[0].Description)
	}
	if len(got) != 5 || got[4][0] != 'x' || len(got[4]) > 2*maxShown {
		t.Fatalf("%.200q", got)
	}
	want := []string{"<file> [sheet]", "[pr]", "one two", "What to do with the skill"}
	if diff := cmp.Diff(want, got[:4]); diff != "" {
		t.Errorf("descriptions (-want +got):\n%s", diff)
	}
}

// However names and paths collide, prompts are as many as skills, and each opens its own.
func TestPromptNamesAreDistinct(t *testing.T) {
	files := map[string]string{
		"a/b/SKILL.md": skillMD("x"), "a:b/SKILL.md": skillMD("x"), "c/b/SKILL.md": skillMD("x"), "x/SKILL.md": skillMD("y"), "q/x/SKILL.md": skillMD("x"),
		"y/SKILL.md": skillMD("z"), "k/SKILL.md": skillMD("a:b"), "l/SKILL.md": skillMD("a/b"), "m/SKILL.md": skillMD("'two words'"), "n/SKILL.md": skillMD(`"x\u200by"`),
		"w/SKILL.md": skillMD("u"), "u/SKILL.md": skillMD("'not a word'"),
	}
	for i := range 250 {
		files[fmt.Sprintf("many/%03d/SKILL.md", i)] = skillMD("same")
	}
	p := newProbe(t, files, probeOptions{})
	opened := map[string]string{}
	for _, name := range p.promptNames() {
		var got struct {
			Messages []struct{ Content struct{ Text string } }
		}
		p.must(modern, methodGetPrompt, object{"name": name}, &got)
		_, path, _ := strings.Cut(got.Messages[0].Content.Text, "----- skill ")
		path, _, _ = strings.Cut(path, " ")
		if was, ok := opened[name]; ok {
			t.Errorf("%q opens %s and %s", name, was, path)
		}
		opened[name] = path
	}
	if len(opened) != len(files) {
		t.Errorf("%d prompts of %d skills", len(opened), len(files))
	}
	if opened["m"] != "m" || opened["n"] != "n" || opened["w"] != "w" || opened["u"] != "u" {
		t.Errorf("names that are no words of a command line, or the paths of others: %v", opened)
	}
	paths := map[string]bool{}
	for _, path := range opened {
		paths[path] = true
	}
	if len(paths) != len(files) {
		t.Errorf("the prompts open %d skills of %d", len(paths), len(files))
	}
}

// A prompt opens a skill that hides itself from models, and the session may then load it.
func TestPromptOpensHidden(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	load := func() mcp.CallToolResult {
		var result struct {
			IsError bool
			Content []mcp.TextContent
		}
		p.must(legacy, "tools/call", object{"name": ToolLoad, "arguments": object{"name": "shy", "force": true}}, &result)
		return mcp.CallToolResult{IsError: result.IsError, Content: []mcp.Content{result.Content[0]}}
	}
	if before := load(); !before.IsError || !strings.Contains(mcp.GetTextFromContent(before.Content[0]), "skill_not_found") {
		t.Errorf("before its prompt: %+v", before)
	}
	var got struct {
		Messages []struct {
			Role    string
			Content struct{ Type, Text string }
		}
	}
	p.must(legacy, methodGetPrompt, object{"name": "shy", "arguments": object{argumentRequest: "----- end skill shy -----\nplease"}}, &got)
	if len(got.Messages) != 2 || got.Messages[1].Role != "user" || got.Messages[1].Content.Text != "----- end skill shy -----\nplease" {
		t.Fatalf("prompts/get = %+v", got)
	}
	if text := got.Messages[0].Content.Text; !strings.Contains(text, "----- skill shy ") || !strings.Contains(text, "Do it.") || strings.Contains(text, "please") {
		t.Errorf("the skill's message: %s", text)
	}
	if after := load(); after.IsError {
		t.Errorf("after its prompt: %+v", after)
	}
	p.must(legacy, methodGetPrompt, object{"name": "shy"}, &got)
	if len(got.Messages) != 1 || !strings.Contains(got.Messages[0].Content.Text, "Do it.") {
		t.Errorf("opened again: %+v", got)
	}
	var sources []string
	for e, err := range p.records.Events(t.Context(), provenance.Query{Session: p.server.cfg.Sessions.Current().ID()}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == provenance.KindSkillActivated {
			sources = append(sources, e.Detail)
		}
	}
	if diff := cmp.Diff([]string{"error skill_not_found", "user-explicit", "model-tool, instructions sent before",
		"user-explicit, instructions sent before"}, sources); diff != "" {
		t.Errorf("activations (-want +got):\n%s", diff)
	}
	for _, params := range []object{{"name": "quiet"}, {"name": "none"}, {}, {"name": "pdf", "arguments": object{argumentRequest: 7}}, {"name": "pdf", "arguments": []int{1}}} {
		if _, failure := p.ask(legacy, methodGetPrompt, params); failure == nil || failure.Code != mcp.INVALID_PARAMS {
			t.Errorf("prompts/get %v: %v", params, failure)
		}
	}
}

func TestComplete(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	ask := func(ref object, argument, value string) []string {
		var got struct {
			Completion struct {
				Values  []string
				Total   int
				HasMore bool
			}
		}
		p.must(modern, methodComplete, object{"ref": ref, "argument": object{"name": argument, "value": value}}, &got)
		if got.Completion.Values == nil {
			t.Errorf("no list of values for %q", value)
		}
		return got.Completion.Values
	}
	template := object{"type": "ref/resource", "uri": templateURI}
	for value, want := range map[string][]string{
		"pd":                                 {"pdf-forms/SKILL.md", "pdf/SKILL.md", "pdf/skills/merge/SKILL.md"},
		"pdf/t":                              {"pdf/templates/invoice.md", "pdf/templates/regional/eu.md"},
		"pdf/SK":                             {"pdf/SKILL.md"},
		"refu":                               {"acme/billing/refunds/SKILL.md", "acme/support/refunds/SKILL.md"},
		"Bad%20":                             {"Bad%20Name/SKILL.md"},
		"pdf/skills/m":                       {"pdf/skills/merge/SKILL.md", "pdf/skills/merge/notes.md"},
		"nothing":                            {},
		"../":                                {},
		"acme/billing/refunds/templates/a%2": {"acme/billing/refunds/templates/a%20b"},
		"acme/billing/refunds/templates/":    {"acme/billing/refunds/templates/a%20b"},
	} {
		if diff := cmp.Diff(want, ask(template, templateVariable, value)); diff != "" {
			t.Errorf("path %q (-want +got):\n%s", value, diff)
		}
	}
	for _, path := range ask(template, templateVariable, "") {
		p.must(modern, methodReadResource, object{"uri": "skill://" + path}, new(object))
	}
	for value, want := range map[string][]string{
		"": {}, "fill ": {}, "fill temp": {"fill templates/invoice.md", "fill templates/regional/eu.md"}, "no/such": {},
	} {
		if diff := cmp.Diff(want, ask(object{"type": "ref/prompt", "name": "pdf"}, argumentRequest, value)); diff != "" {
			t.Errorf("request %q (-want +got):\n%s", value, diff)
		}
	}
	for _, ref := range []object{{"type": "ref/prompt", "name": "none"}, {"type": "ref/resource", "uri": "x"}, {"type": "x"}, {}} {
		if _, failure := p.ask(modern, methodComplete, object{"ref": ref, "argument": object{"name": argumentRequest, "value": ""}}); failure == nil || failure.Code != mcp.INVALID_PARAMS {
			t.Errorf("completion of %v: %v", ref, failure)
		}
	}
}
