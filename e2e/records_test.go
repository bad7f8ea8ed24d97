package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// schemas are those that the binary prints.
type schemas map[string]*jsonschema.Resolved

// printed returns all schemas of the binary.
func printed(t *testing.T) schemas {
	t.Helper()
	all, err := printedOnce()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var printedOnce = sync.OnceValues(func() (schemas, error) {
	names, err := exec.Command(binary, "schema").Output()
	if err != nil {
		return nil, err
	}
	all := schemas{}
	for name := range strings.FieldsSeq(string(names)) {
		text, err := exec.Command(binary, "schema", name).Output()
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(text, &s); err != nil || s.Schema != "https://json-schema.org/draft/2020-12/schema" {
			return nil, fmt.Errorf("schema %s: %q, %v", name, s.Schema, err)
		}
		all[name], err = s.Resolve(nil)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	return all, nil
})

// check holds JSON to the schema of a name.
func (s schemas) check(t *testing.T, name string, data []byte) {
	t.Helper()
	if s[name] == nil {
		t.Fatalf("no schema %s", name)
	}
	var instance any
	if err := json.Unmarshal(data, &instance); err != nil {
		t.Errorf("%s: %v: %q", name, err, data)
		return
	}
	if err := s[name].Validate(instance); err != nil {
		t.Errorf("%s: %v\n%s", name, err, data)
	}
}

// checkSession holds every file of a session's directory to its schema, and returns their names.
func (s schemas) checkSession(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || name == provenance.LockFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		if name != provenance.EventsFile {
			s.check(t, strings.TrimSuffix(name, ".json"), data)
			continue
		}
		for line := range bytes.Lines(data) {
			s.check(t, "event", line)
		}
	}
	return names
}

func TestSchemaCommand(t *testing.T) {
	all := printed(t)
	for _, name := range []string{"skill-registry", "skill-activations", "skill-resource-reads", "skill-script-executions", "policy-trace", "policy-snapshot",
		"capabilities", "run-manifest", "session", "event", "observation-denied", "read-skill-resource-output", "run-skill-script-output", "records"} {
		if all[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
	out, err := exec.Command(binary, "schema", "policy").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "policy-trace") {
		t.Errorf("schema policy = %s, %v", out, err)
	}
}

const manifest = `{"wishId":"wish-7","own":{"kept":true},"cfc":{"enforcementMode":"observe"}}`

// A session with everything in it: every file, every event, every result and every record of a call has
// the form that its schema states.
func TestSchemasHold(t *testing.T) {
	t.Parallel()
	all := printed(t)
	state, files := t.TempDir(), demoSkill()
	files["narrow/SKILL.md"] = "---\nname: narrow\ndescription: For tests.\nallowed-tools: Read\n---\nDo it.\n"
	files["narrow/scripts/a.sh"] = "#!/bin/sh\necho\n"
	files["demo/scripts/leave.sh"] = "#!/bin/sh\necho made >/out/a.txt\nkill -9 $$\n"
	given := written(t, "manifest.json", manifest)
	root := tree(t, files)
	args := []string{"--state", state, "--skills-root", "builtin=" + root, "--allow-tool", "run_skill_script", "--skill", "narrow", "--run-manifest", given,
		"--allow-skill-script", "demo:scripts/ok.sh", "--allow-skill-script", "demo:scripts/fail.sh", "--allow-skill-script", "demo:scripts/leave.sh", "--allow-skill-script", "narrow:scripts/a.sh"}
	p := serve(t, args...)
	p.initialize()
	load, read, run := "load_skill", "read_skill_resource", "run_skill_script"
	for _, call := range []struct {
		tool string
		args map[string]any
		meta string
	}{
		{load, map[string]any{"name": "demo"}, `"skillsd/run-id":"run-of-the-test"`},
		{load, map[string]any{"name": "demo"}, ``},
		{load, map[string]any{"name": "none"}, ``},
		{load, map[string]any{"name": "demo", "wrong": 1}, ``},
		{load, map[string]any{"name": "demo", "file_path": "references/notes.md"}, `"turn_id":"t1"`},
		{read, map[string]any{"skill": "demo", "path": "references/notes.md", "maxBytes": 5}, ``},
		{read, map[string]any{"skill": "demo", "path": "assets/blob.bin"}, ``},
		{read, map[string]any{"skill": "demo", "path": "none"}, ``},
		{read, map[string]any{"skill": "none", "path": "x"}, ``},
		{run, map[string]any{"skill": "demo", "path": "scripts/ok.sh", "args": []string{"a", "ü"}, "cwd": "/tmp"}, `"skillsd/input-labels":{"version":1,"entries":[{"path":["args",0],"label":{"confidentiality":["c"]}}]}`},
		{run, map[string]any{"skill": "demo", "path": "scripts/fail.sh", "stdin": "x"}, directSlot},
		{run, demoScript("leave.sh"), `"skillsd/mode":"observe"`},
		{run, demoScript("none.sh"), ``},
		{run, demoScript("other.sh"), ``},
		{run, map[string]any{"skill": "demo", "path": "../x"}, ``},
		{run, map[string]any{"skill": "narrow", "path": "scripts/a.sh"}, ``},
		{run, demoScript("ok.sh"), `"skillsd/prompt-slot":7`},
		{run, demoScript("ok.sh"), `"skillsd/input-labels":{"version":1,"entries":[{"path":["stdin"],"label":{}}]}`},
		{run, demoScript("ok.sh"), `"skillsd/mode":"enforce-strict"`},
		{load, map[string]any{"name": "demo"}, ``},
	} {
		meta := strings.TrimSuffix(`"skillsd/records":true,`+call.meta, ",")
		result := p.toolWith(call.tool, call.args, "{"+meta+"}")
		all.checkResult(t, call.tool, result)
	}
	p.end()
	dir := filepath.Join(state, "sessions", "run-of-the-test")
	names := all.checkSession(t, dir)
	for _, want := range []string{"skill-registry.json", "skill-activations.json", "skill-resource-reads.json", "skill-script-executions.json", "policy-trace.json",
		"policy-snapshot.json", "capabilities.json", "run-manifest.json", "session.json", "events.jsonl"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s in %q", want, names)
		}
	}
	skillsd(t, 0, "session", "verify", "run-of-the-test", "--state", state)
	kept, err := os.ReadFile(filepath.Join(dir, "run-manifest.json"))
	if err != nil || !strings.Contains(string(kept), `"kept": true`) || !strings.Contains(string(kept), `"source": "loom"`) {
		t.Errorf("run-manifest.json = %s, %v", kept, err)
	}
}

const directSlot = `"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"t","role":"direct-command","kernelName":"k","surface":"s"}`

// checkResult holds what a tool answered to the schemas.
func (s schemas) checkResult(t *testing.T, tool string, result toolResult) {
	t.Helper()
	output := map[string]string{"load_skill": "load-skill-output", "read_skill_resource": "read-skill-resource-output", "run_skill_script": "run-skill-script-output"}[tool]
	if made := result.Meta["skillsd/result"]; made != nil {
		var of struct{ Type string }
		if err := json.Unmarshal(made, &of); err != nil {
			t.Fatal(err)
		}
		switch of.Type {
		case "":
			output = "failed-output"
		case cfharness.TypeReadOutput:
			output = "read-skill-resource-output"
		}
		s.check(t, output, made)
	}
	if result.StructuredContent != nil {
		s.check(t, "observation-denied", result.StructuredContent)
		s.check(t, "observation-denied", result.object())
	}
	if records := result.Meta["skillsd/records"]; records != nil {
		s.check(t, "records", records)
	}
}

// The mode is that of the flag, else of the configuration, else of the manifest, and the session says
// which.
func TestRunManifestMode(t *testing.T) {
	t.Parallel()
	given := written(t, "manifest.json", manifest)
	root := tree(t, demoSkill())
	for _, tt := range []struct {
		args, env    []string
		mode, source string
	}{
		{nil, nil, "enforce-explicit", "default"},
		{[]string{"--run-manifest", given}, nil, "observe", "run-manifest"},
		{[]string{"--run-manifest", given}, []string{"SKILLSD_CFC_ENFORCEMENT_MODE=disabled"}, "disabled", "explicit-config"},
		{[]string{"--run-manifest", given, "--cfc-enforcement-mode", "enforce-strict"}, []string{"SKILLSD_CFC_ENFORCEMENT_MODE=disabled"}, "enforce-strict", "override"},
	} {
		p := serveWith(t, tt.env, append([]string{"--skills-root", root}, tt.args...)...).loaded()
		// It is there as soon as the first call is answered.
		found, err := filepath.Glob(filepath.Join(p.state, "sessions", "*", "policy-snapshot.json"))
		if err != nil || len(found) != 1 {
			t.Fatalf("policy snapshots = %q, %v", found, err)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		var got cfharness.PolicySnapshot
		if err := json.Unmarshal(text, &got); err != nil || got.CFC.Mode != tt.mode || got.CFC.ModeSource != tt.source || got.RunManifest.Present != (tt.args != nil) {
			t.Errorf("%q %q: %s, %v", tt.args, tt.env, text, err)
		}
		p.end()
	}
}

func TestRunManifestRefusedAtStart(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"type": `{"type":"other"}`, "json": `{`, "slot": `{"promptSlot":{"role":"direct-command"}}`, "mode": `{"cfc":{"enforcementMode":"off"}}`, "large": strings.Repeat(" ", 2<<20)} {
		given := filepath.Join(dir, name)
		if err := os.WriteFile(given, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "serve", "--state", t.TempDir(), "--skills-root", tree(t, demoSkill()), "--run-manifest", given).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "--run-manifest") {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	for _, given := range []string{dir, filepath.Join(dir, "none")} {
		if out, err := exec.Command(binary, "serve", "--state", t.TempDir(), "--skills-root", tree(t, demoSkill()), "--run-manifest", given).CombinedOutput(); err == nil {
			t.Errorf("%s: %s", given, out)
		}
	}
}

// Over HTTP, in both eras, records come when asked for, with every kind of answer, and name no place on
// the server.
func TestRecordsHTTP(t *testing.T) {
	t.Parallel()
	all := printed(t)
	root := tree(t, demoSkill())
	s := serveHTTP(t, "--skills-root", "builtin="+root, "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh",
		"--auth-token-file", tokenFile(t, "alice", "bob"), "--auth-evidence", "alice")
	for era, open := range map[string]func(token string) *caller{
		"2025-11-25": s.open,
		"2026-07-28": func(token string) *caller { return &caller{site: s, token: token} },
	} {
		t.Run(era, func(t *testing.T) {
			for _, token := range []string{"alice-token", "bob-token"} {
				c := open(token)
				id := era + "-" + token
				for _, tt := range []struct{ method, name, params, want string }{
					{"tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"demo"}`, `"file":"skill-activations.json"`},
					{"tools/call", "load_skill", `"name":"load_skill","arguments":{"name":"none"}`, `"eventIds":["`},
					{"tools/call", "run_skill_script", `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"}`, `"decision":"denied"`},
					{"resources/read", "skill://demo/references/notes.md", `"uri":"skill://demo/references/notes.md"`, `"file":"skill-resource-reads.json"`},
					{"resources/read", "skill://demo/none", `"uri":"skill://demo/none"`, `"status":"error"`},
					{"prompts/get", "demo", `"name":"demo"`, `"source":"user-explicit"`},
				} {
					for _, asked := range []string{"true", "false", `"true"`, "null"} {
						a := c.with(tt.method, tt.name, tt.params, fmt.Sprintf(`"skillsd/session":%q,"skillsd/run-id":%q,"skillsd/records":%s`, id, id, asked))
						records := a.records(t)
						if (records != nil) != (asked == "true") {
							t.Errorf("%s, asked %s: %s %s", tt.name, asked, a.Result, records)
						}
						if records == nil {
							continue
						}
						all.check(t, "records", records)
						if !bytes.Contains(records, []byte(tt.want)) || bytes.Contains(records, []byte(root)) || bytes.Contains(records, []byte(s.state)) {
							t.Errorf("%s: %s", tt.name, records)
						}
						// Only who is believed may choose what the session is called.
						if named := bytes.Contains(records, []byte(`"runId":"`+id+`"`)); named != (token == "alice-token") {
							t.Errorf("%s: %s", token, records)
						}
					}
				}
			}
		})
	}
}

// with sends a request with keys of its _meta.
func (c *caller) with(method, name, params, meta string) answer {
	c.t.Helper()
	var a answer
	var err error
	if c.session != "" {
		_, a, err = c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s,"_meta":{%s}}}`, method, params, meta))
	} else {
		_, a, err = c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s,"_meta":{%s,%s}}}`, method, params, modernMeta, meta),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// records returns what an answer says of the record, be it a result or an error.
func (a answer) records(t *testing.T) json.RawMessage {
	t.Helper()
	var holds struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	from := a.Result
	if a.Error != nil {
		from = a.Error.Data
	}
	if err := json.Unmarshal(from, &holds); err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	return holds.Meta["skillsd/records"]
}
