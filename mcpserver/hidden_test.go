package mcpserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/policy"
)

// withMeta adds a key to the _meta of an era; both eras know it.
func withMeta(era, key string, value any) string {
	text, err := json.Marshal(object{key: value})
	if err != nil {
		panic(err)
	}
	if era == "" {
		return `"_meta":` + string(text)
	}
	return strings.TrimSuffix(era, "}") + "," + string(text[1:])
}

// failed returns the message of an error, without the URI or name that was asked for, and its code.
func (p *probe) failed(era, method string, params object, asked string) string {
	p.t.Helper()
	result, failure := p.ask(era, method, params)
	if failure == nil {
		p.t.Errorf("%s %v answered %s", method, params, result)
		return ""
	}
	text, err := json.Marshal(failure)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), asked, "ASKED")
}

// shownResult is the result of a tool.
type shownResult struct {
	IsError           bool
	Content           []struct{ Type, Text, Data, MIMEType, URI string }
	StructuredContent json.RawMessage
	Meta              map[string]json.RawMessage `json:"_meta"`
}

func (r shownResult) text() string {
	var b strings.Builder
	for _, block := range r.Content {
		b.WriteString(block.Text)
	}
	return b.String()
}

// tool calls a tool.
func (p *probe) tool(era, name string, arguments object) (result shownResult) {
	p.t.Helper()
	p.must(era, "tools/call", object{"name": name, "arguments": arguments}, &result)
	return result
}

// A skill that hides itself from models is in no list, and every method answers for it as for a skill that
// does not exist, in both eras and for a caller that narrows itself; so do the files of one that is nested in
// another skill. After the user's prompt of it the session reads it, and no other session does.
func TestHiddenSkill(t *testing.T) {
	const hide = "disable-model-invocation: true\n"
	files := map[string]string{
		"shy/SKILL.md": skillMD("shy", hide), "shy/references/notes.md": "secret words\n",
		"pdf/SKILL.md": skillMD("pdf"), "pdf/notes.md": "notes\n",
		"pdf/inner/SKILL.md": skillMD("inner", hide), "pdf/inner/notes.md": "secret words\n",
	}
	profile := policy.Profile{Name: "narrow", Skills: []string{"shy", "pdf", "pdf/inner"}, Tools: ReadMethods()}
	for name, era := range map[string]string{
		"legacy": legacy, "modern": modern,
		"narrowed legacy": withMeta(legacy, metaProfile, "narrow"), "narrowed modern": withMeta(modern, metaProfile, "narrow"),
	} {
		t.Run(name, func(t *testing.T) {
			allowed, err := policy.ParseAllowlist([]string{"shy:scripts/x.sh", "pdf:scripts/x.sh", "pdf/inner:scripts/x.sh"})
			if err != nil {
				t.Fatal(err)
			}
			p := newProbe(t, files, probeOptions{policy: policy.Config{Profiles: []policy.Profile{profile}, Allowlist: allowed}})
			complete := func(value string) object {
				return object{"ref": object{"type": "ref/resource", "uri": templateURI}, "argument": object{"name": templateVariable, "value": value}}
			}
			// The records of what there was and what may run, which a narrowed call cannot read.
			registry := func(era string, words ...string) {
				if strings.HasPrefix(name, "narrowed") {
					return
				}
				for _, file := range []string{"skill-registry.json", "policy-snapshot.json"} {
					var content struct{ Contents []struct{ Text string } }
					p.must(era, methodReadResource, object{"uri": session.ArtifactBase + file}, &content)
					for _, word := range []string{"pdf", "shy", "inner"} {
						if got := content.Contents[0].Text; strings.Contains(got, word) != slices.Contains(words, word) {
							t.Errorf("that %s names %s is wrong: %s", file, word, got)
						}
					}
				}
			}
			// Lists, before and after the prompts: what a call of the user opened changes no list.
			lists := func(era string, before bool) {
				for method, params := range map[string]object{
					methodListResources: {}, methodListSkills: {}, methodReadDirectory: {"uri": "skill://pdf"},
					methodComplete: complete(""), methodGetSkill: {"uri": "skill://pdf/SKILL.md"},
				} {
					raw, failure := p.ask(era, method, params)
					opened := !before && (method == methodReadDirectory || method == methodComplete)
					if failure != nil || !strings.Contains(string(raw), "pdf/SKILL.md") || strings.Contains(string(raw), "inner") != opened {
						t.Errorf("%s, before %v: %v %s", method, before, failure, raw)
					}
					if strings.Contains(string(raw), "shy") != (opened && method == methodComplete) {
						t.Errorf("%s, before %v: %s", method, before, raw)
					}
				}
			}
			asks := []struct {
				method string
				uri    string // with a word in the place of shy
			}{
				{methodReadResource, "skill://%s/SKILL.md"}, {methodReadResource, "skill://%s/references/notes.md"},
				{methodGetSkill, "skill://%s/SKILL.md"}, {methodReadDirectory, "skill://%s"}, {methodReadDirectory, "skill://%s/references"},
				{methodReadResource, "skill://pdf/%s/notes.md"}, {methodGetSkill, "skill://pdf/%s/SKILL.md"}, {methodReadDirectory, "skill://pdf/%s"},
			}
			hidden := func(template string) string {
				if strings.Contains(template, "pdf") {
					return fmt.Sprintf(template, "inner")
				}
				return fmt.Sprintf(template, "shy")
			}
			refused := func(era string) {
				for _, ask := range asks {
					uri, none := hidden(ask.uri), fmt.Sprintf(ask.uri, "nosuch")
					if strings.Contains(none, "pdf/nosuch/notes.md") {
						none = "skill://nosuch/notes.md" // pdf itself is known, and says which file it lacks
					}
					got := p.failed(era, ask.method, object{"uri": uri}, uri)
					if want := p.failed(era, ask.method, object{"uri": none}, none); got != want {
						t.Errorf("%s %s answers\n%s, an unknown skill\n%s", ask.method, uri, got, want)
					}
				}
				for _, value := range []string{"shy", "shy/", "inner", "pdf/inner/"} {
					var found mcp.CompleteResult
					p.must(era, methodComplete, complete(value), &found)
					if len(found.Completion.Values) > 0 {
						t.Errorf("completion of %q: %v", value, found.Completion.Values)
					}
				}
				for _, args := range []object{{"skill": "shy", "path": "references/notes.md"}, {"skill": "pdf", "path": "inner/notes.md"}, {"skill": "pdf/inner", "path": "notes.md"}} {
					if got := p.tool(era, ToolRead, args); !got.IsError || strings.Contains(got.text(), "secret") {
						t.Errorf("%s %v: %+v", ToolRead, args, got)
					}
				}
				if got := p.tool(era, ToolLoad, object{"name": "pdf"}); strings.Contains(got.text(), "inner") {
					t.Errorf("%s names files that it does not show: %s", ToolLoad, got.text())
				}
			}
			lists(era, true)
			registry(era, "pdf")
			refused(era)
			for _, prompt := range []string{"shy", "inner"} {
				p.must(era, methodGetPrompt, object{"name": prompt}, &object{})
			}
			lists(era, false)
			registry(era, "pdf", "shy", "inner")
			for _, ask := range asks {
				if _, failure := p.ask(era, ask.method, object{"uri": hidden(ask.uri)}); failure != nil {
					t.Errorf("%s %s after the prompt: %v", ask.method, hidden(ask.uri), failure)
				}
			}
			var found mcp.CompleteResult
			p.must(era, methodComplete, complete("shy"), &found)
			if diff := cmp.Diff([]string{"shy/SKILL.md"}, found.Completion.Values); diff != "" {
				t.Errorf("completion after the prompt (-want +got):\n%s", diff)
			}
			refused(withMeta(era, metaSession, "another"))
			if slices.ContainsFunc(p.walk(methodListResources, object{}), func(r mcp.Resource) bool { return r.Name == "shy" }) {
				t.Error("resources/list changed by a prompt")
			}
		})
	}
}

// An edit that hides a skill counts for the first call that reads the skill after it, before any scan, and clients
// that listen hear of their lists: the next scan finds no difference.
func TestHiddenByAnEdit(t *testing.T) {
	completed := func(ref object, name, value string) object {
		return object{"ref": ref, "argument": object{"name": name, "value": value}}
	}
	for _, ask := range []struct {
		method string
		params object
	}{
		{methodComplete, completed(object{"type": "ref/resource", "uri": templateURI}, templateVariable, "notes/")},
		{methodComplete, completed(object{"type": "ref/prompt", "name": "notes"}, argumentRequest, "words")},
		{methodListResources, object{}}, {methodListSkills, object{}},
		{methodGetSkill, object{"uri": "skill://notes/SKILL.md"}}, {methodReadDirectory, object{"uri": "skill://notes"}},
		{methodReadResource, object{"uri": "skill://notes/words.md"}},
		{"tools/call", object{"name": ToolRead, "arguments": object{"skill": "notes", "path": "."}}},
		{"tools/call", object{"name": ToolRead, "arguments": object{"skill": "notes", "path": "words.md"}}},
		{"tools/call", object{"name": ToolLoad, "arguments": object{"name": "notes"}}},
	} {
		p := newProbe(t, map[string]string{"notes/SKILL.md": skillMD("notes"), "notes/words.md": "secret"}, probeOptions{})
		in, feed := io.Pipe()
		out, write := io.Pipe()
		go func() {
			wire.ServeStdio(t.Context(), p.server.wire, &wire.StdioOptions{In: in, Out: write})
			write.Close()
		}()
		heard := bufio.NewReader(out)
		fmt.Fprintln(feed, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
		if _, err := heard.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(feed, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		p.write(map[string]string{"notes/SKILL.md": skillMD("notes", "disable-model-invocation: true\n") + "secret\n"})
		raw, failure := p.ask(legacy, ask.method, ask.params)
		shown, err := json.Marshal([]any{raw, failure})
		if err != nil {
			t.Fatal(err)
		}
		asked := strings.Contains(fmt.Sprint(ask.params), "words.md")
		if text := string(shown); strings.Contains(text, "secret") || strings.Contains(text, "words.md") && !asked {
			t.Errorf("%s %v answered %s", ask.method, ask.params, shown)
		}
		if line, err := heard.ReadString('\n'); err != nil || !strings.Contains(line, "list_changed") {
			t.Errorf("%s %v: the client hears %q, %v instead of that the skill changed", ask.method, ask.params, line, err)
		}
		feed.Close()
		io.Copy(io.Discard, heard)
	}
}
