package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// profileSite serves the skills notes and secret to alice, whom the profile "office" narrows to notes,
// and to bob, whom nothing narrows.
func profileSite(t *testing.T) *site {
	t.Helper()
	skill := func(name string) string {
		return fmt.Sprintf("---\nname: %s\ndescription: Keeps %s safe.\n---\n# %s\n", name, name, name)
	}
	root := tree(t, map[string]string{
		"notes/SKILL.md": skill("notes"), "notes/references/a.md": "a\n", "notes/scripts/run.sh": "#!/bin/sh\necho notes\n", "notes/scripts/more.sh": "#!/bin/sh\necho more\n",
		"secret/SKILL.md": skill("secret"), "secret/references/b.md": "b\n", "secret/scripts/run.sh": "#!/bin/sh\necho secret\n",
	})
	config := written(t, "config.yaml", `
roots: [{dir: `+root+`, tier: org}]
scan: {no_default_roots: true}
allow_tools: [run_skill_script]
allow: ["notes:scripts/run.sh", "notes:scripts/more.sh", "secret:scripts/run.sh"]
policy: {prompt_slot_role: direct-command}
catalog: {search: always}
profiles:
  office: {skills: [notes], scripts: ["notes:scripts/run.sh"]}
  reader: {tools: [load_skill, read_skill_resource]}
  loader: {tools: [load_skill], skills: [notes]}
  starter: {skills: [notes], scripts: ["notes:scripts/run.sh"], activate: [notes]}
principals:
  alice: {profile: office}
  carol: {profile: loader}
`)
	return serveHTTP(t, "--config", config, "--http-activation", "handle", "--auth-token-file", tokenFile(t, "alice", "bob", "carol"))
}

// The tools that a profile leaves out are in no list, and without the one that reads, no file is shown.
func TestProfileTools(t *testing.T) {
	t.Parallel()
	s := profileSite(t)
	for token, narrow := range map[string]string{"carol-token": "", "bob-token": `,"skillsd/profile":"loader"`} {
		c := s.as(token)
		meta := `"x":0` + narrow
		list := func(method string) string {
			return string(c.with(method, "", `"x":0`, meta).Result)
		}
		tools := list("tools/list")
		for tool, listed := range map[string]bool{"load_skill": true, "read_skill_resource": false, "search_skills": false, "run_skill_script": false} {
			if strings.Contains(tools, `"name":"`+tool+`"`) != listed {
				t.Errorf("%s: tools/list has %s: %v", token, tool, !listed)
			}
		}
		for method, none := range map[string]string{"resources/list": `"resources":[]`, "resources/templates/list": `"resourceTemplates":[]`} {
			if got := list(method); !strings.Contains(got, none) {
				t.Errorf("%s: %s: %s", token, method, got)
			}
		}
		for _, ask := range []struct{ method, name, params string }{
			{"tools/call", "read_skill_resource", `"name":"read_skill_resource","arguments":{"skill":"notes","path":"references/a.md"}`},
			{"tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"notes","file_path":"references/a.md"}`},
			{"tools/call", "search_skills", `"name":"search_skills","arguments":{"query":"notes"}`},
			{"resources/read", "skill://notes/SKILL.md", `"uri":"skill://notes/SKILL.md"`},
			{"resources/directory/read", "skill://notes", `"uri":"skill://notes"`},
		} {
			got := c.with(ask.method, ask.name, ask.params, meta)
			text := string(got.Result)
			if got.Error != nil {
				text = string(got.Error.Data)
			}
			if !strings.Contains(text, "profile_excludes") || strings.Contains(text, "a\n") {
				t.Errorf("%s: %s %s: %s", token, ask.method, ask.name, text)
			}
		}
		got := c.with("tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"notes"}`, meta)
		if !strings.Contains(string(got.Result), "# notes") {
			t.Errorf("%s: load_skill: %s", token, got.Result)
		}
	}
}

// everything asks for all that names skills and returns the answers by what was asked.
func (c *caller) everything(narrow string) map[string]string {
	c.t.Helper()
	answers := map[string]string{}
	for _, ask := range []struct{ method, name, params string }{
		{"server/discover", "", ``},
		{"tools/list", "", ``},
		{"resources/list", "", ``},
		{"prompts/list", "", ``},
		{"skills/list", "", ``},
		{"tools/call", "search_skills", `"name":"search_skills","arguments":{"query":"notes secret"}`},
		{"tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"none"}`},
		{"completion/complete", "", `"ref":{"type":"ref/resource","uri":"skill://{+path}"},"argument":{"name":"path","value":""}`},
	} {
		params := fmt.Sprintf(`{%s,"_meta":{%s%s}}`, strings.TrimSuffix(ask.params+`,"x":0`, `,"x":0`), modernMeta, narrow)
		params = strings.Replace(params, "{,", "{", 1)
		headers := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", ask.method}
		if ask.name != "" {
			headers = append(headers, "Mcp-Name", ask.name)
		}
		_, got, err := c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, ask.method, params), headers...)
		if err != nil {
			c.t.Fatalf("%s: %v", ask.method, err)
		}
		text := string(got.Result)
		if got.Error != nil {
			text = got.Error.Message
		}
		answers[ask.method+" "+ask.name] = text
	}
	return answers
}

// A narrowed principal sees its own part of the catalogue wherever skills are named, and the others see
// all of it, whatever was asked before.
func TestProfileCatalogue(t *testing.T) {
	t.Parallel()
	s := profileSite(t)
	alice, bob := s.as("alice-token"), s.as("bob-token")
	for range 2 {
		for ask, text := range alice.everything("") {
			if strings.Contains(text, "secret") || !strings.Contains(text, "notes") {
				t.Errorf("alice, %s: %s", ask, text)
			}
		}
		for ask, text := range bob.everything("") {
			if !strings.Contains(text, "secret") || !strings.Contains(text, "notes") {
				t.Errorf("bob, %s: %s", ask, text)
			}
		}
		for ask, text := range bob.everything(`,"skillsd/profile":"office"`) {
			if strings.Contains(text, "secret") && ask != "server/discover " {
				t.Errorf("bob, narrowed, %s: %s", ask, text)
			}
		}
	}
	if text := bob.everything(`,"skillsd/profile":"reader"`)["tools/list "]; strings.Contains(text, `"run_skill_script"`) {
		t.Errorf("a profile without the run tool offers it: %s", text)
	}
	if text := bob.everything(`,"skillsd/profile":"none-such"`)["tools/list "]; strings.Contains(text, "notes") || !strings.Contains(text, "is not a profile") {
		t.Errorf("a profile that is not there: %s", text)
	}
}

var eventOf = regexp.MustCompile(`"eventId":"[^"]*"`)

// What a profile excludes is refused, in the same words whether it is there or not.
func TestProfileExcludes(t *testing.T) {
	t.Parallel()
	s := profileSite(t)
	alice := s.as("alice-token")
	refusal := func(tool, name string, args map[string]any) string {
		t.Helper()
		got := alice.tool(tool, args)
		if got.code() != "profile_excludes" {
			t.Errorf("%s %v: %s", tool, args, got.text())
		}
		return eventOf.ReplaceAllString(strings.ReplaceAll(got.text(), name, "NAME"), "")
	}
	there, gone := refusal("load_skill", "secret", map[string]any{"name": "secret"}), refusal("load_skill", "absent", map[string]any{"name": "absent"})
	if there != gone {
		t.Errorf("the refusal tells that the skill is there:\n%s\n%s", there, gone)
	}
	refusal("read_skill_resource", "secret", map[string]any{"skill": "secret", "path": "references/b.md"})
	refusal("load_skill", "secret", map[string]any{"name": "skill://secret"})
	for _, uri := range []string{"skill://secret/SKILL.md", "skill://secret/references/b.md", "skill://absent/SKILL.md"} {
		_, got, err := alice.send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":%q,"_meta":{%s}}}`, uri, modernMeta),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "resources/read", "Mcp-Name", uri)
		if err != nil || got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("resources/read %s: %+v %v", uri, got, err)
		}
	}
	handle := handleIn(t, alice.tool("load_skill", map[string]any{"name": "notes"}))
	if got := alice.tool("run_skill_script", map[string]any{"skill": "notes", "path": "scripts/more.sh", "activation": handle}); got.code() != "profile_excludes" {
		t.Errorf("a script that the profile has not: %s", got.text())
	}
	got := alice.tool("run_skill_script", map[string]any{"skill": "notes", "path": "scripts/run.sh", "activation": handle})
	if got.code() == "sandbox_unavailable" {
		t.Skipf("missing capability: a sandbox backend that can isolate: %s", got.text())
	}
	if !strings.Contains(got.text(), "notes") || got.IsError {
		t.Errorf("a script that the profile has: %s", got.text())
	}
	for _, name := range []string{"skill-registry.json", "events.jsonl", "policy-trace.json"} {
		if content, code := alice.artifact("skillsd://session/"+name, handle); code != 0 || strings.Contains(content, "secret/") {
			t.Errorf("%s of a narrowed session: code %d, %s", name, code, content)
		}
	}
}

// What a profile activates is active in the sessions that it narrows, whoever chose it: a call, the operator
// for all, or the operator for a principal. A child starts with what its own profile activates.
func TestProfileActivates(t *testing.T) {
	root := tree(t, map[string]string{
		"notes/SKILL.md": "---\nname: notes\ndescription: For tests.\n---\nNotes.\n", "notes/scripts/run.sh": "#!/bin/sh\necho ran-notes\n",
		"secret/SKILL.md": "---\nname: secret\ndescription: For tests.\n---\nSecret.\n", "secret/scripts/run.sh": "#!/bin/sh\necho ran-secret\n",
	})
	config := configFile(t, fmt.Sprintf(`
roots: [{dir: %q, tier: builtin}]
scan: {no_default_roots: true}
allow_tools: [run_skill_script]
allow: ["notes:scripts/run.sh", "secret:scripts/run.sh"]
policy: {prompt_slot_role: direct-command}
profiles:
  starter: {skills: [notes], activate: [notes]}
  keeper: {skills: [secret]}
principals:
  alice: {profile: starter}
`, root))
	shown := skillsd(t, 0, "config", "show", "--config", config)
	if !strings.Contains(shown, "activate: [notes]") {
		t.Errorf("config show%s", shown)
	}
	const not = "skill_not_activated"
	for _, row := range []struct{ name, args, token, meta, want, source string }{
		{"none", "", "bob", `"skillsd/session":"a"`, not, ""},
		{"a call's", "", "bob", `"skillsd/session":"a","skillsd/profile":"starter"`, "ran-notes", "subagent-inherit"},
		{"a child's", "", "bob", `"skillsd/session":"a","skillsd/parent-session":"p","skillsd/profile":"starter"`, "ran-notes", "subagent-inherit"},
		{"the operator's", "--profile=starter", "bob", `"skillsd/session":"a"`, "ran-notes", "cli-preload"},
		{"a principal's", "", "alice", `"skillsd/session":"a"`, "ran-notes", "cli-preload"},
		{"a principal's, child", "", "alice", `"skillsd/session":"a","skillsd/parent-session":"p"`, not, ""},
		{"the operator's, child", "--profile=starter", "bob", `"skillsd/session":"a","skillsd/parent-session":"p"`, not, ""},
		{"both, which leave nothing", "--profile=keeper", "alice", `"skillsd/session":"a"`, "profile_excludes", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := serveHTTP(t, append(strings.Fields(row.args), "--config", config, "--auth-token-file", tokenFile(t, "alice", "bob"))...)
			f := &family{t, s.as(row.token + "-token").with}
			f.told(`"skillsd/session":"p"`, "read_skill_resource", `{"skill":"notes","path":"SKILL.md"}`)
			got := f.told(row.meta, "run_skill_script", `{"skill":"notes","path":"scripts/run.sh"}`)
			if got.code() == "sandbox_unavailable" {
				t.Skipf("missing capability: a sandbox backend that can isolate: %s", got.text())
			}
			if !strings.Contains(got.text(), row.want) {
				t.Errorf("a run is answered %s, want %s", got.text(), row.want)
			}
			active := string(f.ask("resources/read", "skillsd://session/skill-activations.json",
				`"uri":"skillsd://session/skill-activations.json"`, row.meta).Result)
			if !strings.Contains(active, row.source) || strings.Contains(active, "secret") || row.source == "" && strings.Contains(active, `\"name\"`) {
				t.Errorf("active: %s", active)
			}
		})
	}
}

// The policy snapshot of a narrowed session names what it sees, that of another session everything.
func TestSnapshotOfNarrowed(t *testing.T) {
	s := profileSite(t)
	for _, who := range []struct {
		token, meta string
		sees        bool
	}{{"alice", `"skillsd/session":"a"`, false}, {"bob", `"skillsd/session":"b"`, true}, {"bob", `"skillsd/session":"c","skillsd/profile":"starter"`, false}} {
		f := &family{t, s.as(who.token + "-token").with}
		loaded := f.told(who.meta+`,"skillsd/records":true`, "load_skill", `{"name":"notes"}`)
		var records struct{ RunID string }
		if err := json.Unmarshal(loaded.Meta["skillsd/records"], &records); err != nil {
			t.Fatalf("%s: %v", loaded.text(), err)
		}
		snapshot, err := os.ReadFile(filepath.Join(s.state, "sessions", records.RunID, "policy-snapshot.json"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(snapshot), "notes") || strings.Contains(string(snapshot), `"secret"`) != who.sees {
			t.Errorf("%s with %s: %s", who.token, who.meta, snapshot)
		}
	}
}
