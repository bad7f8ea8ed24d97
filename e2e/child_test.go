package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// family is a server on which a parent has, or has not, loaded the skill demo, and its children.
type family struct {
	t   *testing.T
	ask func(method, name, params, meta string) answer
}

// told is what a tool answered to a call with keys of its _meta.
func (f *family) told(meta, tool, arguments string) (r toolResult) {
	f.t.Helper()
	a := f.ask("tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments), meta)
	if err := json.Unmarshal(a.Result, &r); err != nil {
		f.t.Fatalf("%s %s: %s %v", tool, arguments, a.Result, a.Error)
	}
	return r
}

func handleOf(r toolResult) string {
	var loaded struct{ Activation string }
	json.Unmarshal(r.Meta["skillsd/result"], &loaded)
	return loaded.Activation
}

// named is the _meta of a call of a session, with what else it says.
func named(session, rest string) string {
	return strings.TrimSuffix(fmt.Sprintf(`"skillsd/session":%q,%s`, session, rest), ",")
}

// familyArgs serves demo and apart, whose scripts may run, with the profiles kid and starter.
func familyArgs(t *testing.T, args ...string) []string {
	files := demoSkill()
	files["apart/SKILL.md"] = "---\nname: apart\ndescription: For tests.\n---\nDo it.\n"
	files["apart/scripts/ok.sh"] = "#!/bin/sh\necho ran-apart\n"
	return append([]string{"--config", configFile(t, fmt.Sprintf(`
roots: [{dir: %q, tier: builtin}]
scan: {no_default_roots: true}
allow_tools: [run_skill_script]
allow: ["demo:scripts/ok.sh", "apart:scripts/ok.sh"]
policy: {prompt_slot_role: direct-command}
profiles:
  kid: {skills: [demo]}
  starter: {skills: [demo], activate: [demo]}
`, tree(t, files)))}, args...)
}

// families are the same server on stdio, over HTTP and started again after prepare.
func families(t *testing.T, preload bool, prepare func(f *family)) map[string]*family {
	args := familyArgs(t)
	if preload {
		args = append(args, "--skill", "demo")
	}
	stdio := func(t *testing.T, state string) (*family, *process) {
		p := serve(t, append([]string{"--state", state}, args...)...)
		id := 0
		return &family{t, func(method, _, params, meta string) answer {
			id++
			return p.ask(method, fmt.Sprintf(`{%s,"_meta":{%s,%s}}`, params, modernMeta, meta))
		}}, p
	}
	overStdio, _ := stdio(t, t.TempDir())
	site := serveHTTP(t, append(args, "--auth-token-file", tokenFile(t, "alice", "bob"))...)
	overHTTP := &family{t, site.as("alice-token").with}
	state := t.TempDir()
	before, p := stdio(t, state)
	for _, f := range []*family{overStdio, overHTTP, before} {
		prepare(f)
	}
	p.end()
	restarted, _ := stdio(t, state)
	return map[string]*family{"stdio": overStdio, "http": overHTTP, "restarted": restarted}
}

// What a child may and may not do, whatever its parent has, on each transport and after a restart.
func TestParentAndChild(t *testing.T) {
	const child, unloaded, unknown, excluded = `"skillsd/parent-session":"p1"`, "skill_not_activated", "activation_unknown", "profile_excludes"
	const kid, starter = child + `,"skillsd/profile":"kid"`, child + `,"skillsd/profile":"starter"`
	for _, row := range []struct {
		name    string
		preload bool // the server has --skill demo
		active  bool // the parent has loaded demo
		meta    string
		run     string            // what a run of demo is answered without a load
		other   string            // what a load of apart is answered
		sees    bool              // apart is listed
		handles map[string]string // by whose handle it has, what it is answered
	}{
		{"parent not active", false, false, child, unloaded, "", true, map[string]string{"sibling": unknown, "none": unknown}},
		{"parent active", false, true, child, unloaded, "", true, map[string]string{"parent": unknown, "sibling": unknown, "own": ""}},
		{"preloaded", true, false, child, unloaded, "", true, map[string]string{"sibling": unknown}},
		{"preloaded, parent active", true, true, child, unloaded, "", true, map[string]string{"parent": unknown, "own": ""}},
		{"profile", false, true, kid, unloaded, excluded, false, map[string]string{"parent": unknown, "sibling": unknown, "own": ""}},
		{"profile, preloaded", true, true, kid, unloaded, excluded, false, map[string]string{"parent": unknown}},
		{"profile activates", false, false, starter, "", excluded, false, map[string]string{"sibling": unknown, "own": ""}},
		{"names only itself", false, true, "", unloaded, "", true, map[string]string{"parent": unknown, "sibling": unknown, "own": ""}},
		{"names only itself, preloaded", true, false, "", "", "", true, map[string]string{"sibling": unknown}},
		{"unknown parent", false, true, `"skillsd/parent-session":"none-such"`, "invalid_arguments", "invalid_arguments", true, nil},
		{"a parent that is not a name", true, true, `"skillsd/parent-session":5`, "invalid_arguments", "invalid_arguments", true, nil},
		{"no name of a parent", true, true, `"skillsd/parent-session":""`, "invalid_arguments", "invalid_arguments", true, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			handles := map[*family]map[string]string{}
			var last *family
			all := families(t, row.preload, func(f *family) {
				f.told(named("p1", ""), "read_skill_resource", `{"skill":"demo","path":"references/notes.md"}`)
				given := map[string]string{"none": strings.Repeat("A", 26)}
				if row.active || row.preload {
					given["parent"] = handleOf(f.told(named("p1", ""), "load_skill", `{"name":"demo"}`))
				}
				if row.handles != nil {
					given["own"] = handleOf(f.told(named("c-own", row.meta), "load_skill", `{"name":"demo"}`))
					given["sibling"] = handleOf(f.told(named("c-sibling", row.meta), "load_skill", `{"name":"demo"}`))
				}
				handles[f], last = given, f
			})
			handles[all["restarted"]] = handles[last]
			for transport, f := range all {
				cell := func(name, meta, tool, arguments, code, text string) {
					t.Run(transport+"/"+name, func(t *testing.T) {
						got := f.told(meta, tool, arguments)
						if got.code() == "sandbox_unavailable" && code == "" {
							t.Skipf("missing capability: a sandbox backend that can isolate: %s", got.text())
						}
						if got.code() != code || code == "" && (got.IsError || !strings.Contains(got.text(), text)) {
							t.Errorf("%s %s: %s, want the code %q", tool, arguments, got.text(), code)
						}
					})
				}
				any := ""
				if row.handles == nil {
					any = row.run
				}
				const run = `{"skill":"demo","path":"scripts/ok.sh"}`
				cell("run", named("c-run", row.meta), "run_skill_script", run, row.run, "ran-ok")
				cell("read", named("c-read", row.meta), "read_skill_resource", `{"skill":"demo","path":"references/notes.md"}`, any, "")
				cell("load", named("c-load", row.meta), "load_skill", `{"name":"demo"}`, any, "")
				cell("run what it loaded", named("c-load", row.meta), "run_skill_script", run, any, "ran-ok")
				cell("load apart", named("c-other", row.meta), "load_skill", `{"name":"apart"}`, row.other, "")
				for whose, code := range row.handles {
					name := map[bool]string{true: "c-own", false: "c-handle"}[whose == "own"]
					with := fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","activation":%q}`, handles[f][whose])
					cell("run with the handle of "+whose, named(name, row.meta), "run_skill_script", with, code, "ran-ok")
					cell("read with the handle of "+whose, named(name, row.meta), "read_skill_resource",
						fmt.Sprintf(`{"skill":"demo","path":"references/notes.md","activation":%q}`, handles[f][whose]), code, "")
				}
				if row.handles == nil {
					continue
				}
				t.Run(transport+"/list", func(t *testing.T) {
					for _, method := range []string{"skills/list", "resources/list", "tools/list"} {
						text := string(f.ask(method, "", `"x":0`, named("c-list", row.meta)).Result)
						if !strings.Contains(text, "demo") || strings.Contains(text, "apart") != row.sees {
							t.Errorf("%s: %s", method, text)
						}
					}
				})
			}
		})
	}
}

// A run id that a session has is not taken from it, and whoever asked for it learns that.
func TestRunIDTaken(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	args := append([]string{"--state", state}, familyArgs(t)...)
	all := printed(t)
	for try, want := range []string{"r1", "ses_"} {
		p := serve(t, args...)
		f := &family{t, func(method, _, params, meta string) answer {
			return p.ask(method, fmt.Sprintf(`{%s,"_meta":{%s,%s}}`, params, modernMeta, meta))
		}}
		for _, session := range []string{"p1", "p2"} {
			for _, asked := range []bool{true, false} {
				r := f.told(named(session, fmt.Sprintf(`"skillsd/run-id":"r1","skillsd/records":%v`, asked)), "load_skill", `{"name":"demo"}`)
				var records struct {
					RunID, RequestedRunID string
					EventIDs              []string
				}
				json.Unmarshal(r.Meta["skillsd/records"], &records)
				replaced := session == "p2" || want == "ses_"
				if !replaced && !asked {
					if r.Meta["skillsd/records"] != nil {
						t.Errorf("%s: records that nobody asked for: %s", session, r.Meta["skillsd/records"])
					}
					continue
				}
				all.check(t, "records", r.Meta["skillsd/records"])
				if replaced != (records.RequestedRunID == "r1") || replaced == (records.RunID == "r1") || asked != (len(records.EventIDs) > 0) {
					t.Errorf("start %d, %s, asked %v: %s", try, session, asked, r.Meta["skillsd/records"])
				}
			}
		}
		p.end()
		if strings.Contains(p.stderr.String(), "earlier session cannot be read") {
			t.Errorf("the log: %s", p.stderr)
		}
	}
}

// A child's record names its parent, and the parent's page its children; a session that continues another one
// is no child.
func TestShowParentAndChildren(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	args := append([]string{"--state", state}, familyArgs(t)...)
	all := printed(t)
	for range 2 {
		p := serve(t, args...)
		f := &family{t, func(method, _, params, meta string) answer {
			return p.ask(method, fmt.Sprintf(`{%s,"_meta":{%s,%s}}`, params, modernMeta, meta))
		}}
		f.told(named("p1", `"skillsd/run-id":"run-p1"`), "load_skill", `{"name":"demo"}`)
		f.told(named("c1", `"skillsd/parent-session":"p1","skillsd/run-id":"run-c1","skillsd/profile":"starter"`), "load_skill", `{"name":"demo"}`)
		p.end()
	}
	show := func(args ...string) string {
		t.Helper()
		out := stdoutOf(t, append([]string{"session", "show", "--state", state}, args...)...)
		return string(out)
	}
	if text := show("run-c1"); !strings.Contains(text, "\nchild of run-p1\n") || !strings.Contains(text, "loaded by the profile") {
		t.Errorf("the child: %s", text)
	}
	if text := show("run-p1"); strings.Count(text, "has the child ") != 1 || !strings.Contains(text, "\nhas the child run-c1\n") {
		t.Errorf("the parent: %s", text)
	}
	lines := strings.SplitAfter(show("run-p1", "--json"), "\n")
	for _, line := range lines[:len(lines)-1] {
		all.check(t, "session-show-json", []byte(line))
	}
	if !strings.Contains(lines[0], `"children":["run-c1"]`) || strings.Contains(strings.Join(lines[1:], ""), "children") {
		t.Errorf("as JSON: %s", lines)
	}
	var child, again struct {
		Parent string
		Row    struct{ Child bool }
	}
	list := stdoutOf(t, "session", "list", "--json", "--state", state)
	var sessions []struct{ ID, Parent string }
	if err := json.Unmarshal(list, &sessions); err != nil {
		t.Fatal(err)
	}
	json.Unmarshal([]byte(strings.SplitAfter(show("run-c1", "--json"), "\n")[0]), &child)
	for _, s := range sessions {
		if first := show(s.ID, "--json"); s.Parent == "run-p1" && s.ID != "run-c1" {
			json.Unmarshal([]byte(strings.SplitAfter(first, "\n")[0]), &again)
			if text := show(s.ID); !strings.Contains(text, "\ncontinues run-p1\n") {
				t.Errorf("the session that continues: %s", text)
			}
		}
	}
	if child.Parent != "run-p1" || !child.Row.Child || again.Parent != "run-p1" || again.Row.Child {
		t.Errorf("the child began with %+v, the session that continues with %+v", child, again)
	}
}

// A call whose session is not a name belongs to none: in that of the process it would have what others loaded.
func TestSessionIsAName(t *testing.T) {
	p := serve(t, append(demo(t, "ok.sh"), "--skill", "demo")...)
	for _, name := range []string{`5`, `""`, `null`, `["a"]`, `{}`} {
		a := p.ask("tools/call", fmt.Sprintf(
			`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"},"_meta":{%s,"skillsd/session":%s}}`, modernMeta, name))
		if text := string(a.Result); !strings.Contains(text, "invalid_arguments") || strings.Contains(text, "ran-ok") {
			t.Errorf("session %s: %s %+v", name, text, a.Error)
		}
	}
}
