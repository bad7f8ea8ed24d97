// Package cfharness holds skillsd, as cf-harness uses it through its adapter, against recordings of
// cf-harness with its own skills.
//
// testdata has the artifacts of six recorded runs. The calls of each are made again: replay.ts starts the
// adapter that `skillsd setup` writes, with the official client and the real binary, over stdio and over
// HTTP. Every field of what they leave must be as it was recorded; what may differ is in the table known.
package cfharness

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// known are the differences that are not mended: the first pattern is of transport/scenario, the second of
// the field. The test fails on any other difference, and on one of these that no longer occurs.
var known = []struct{ runs, field, why string }{}

// changes are the files that changed during the run of a scenario, before its second turn.
var changes = map[string]map[string]string{
	"drift": {
		"skills/text-tools/references/guide.md": "# Guide\n\nChanged since.\n",
		"skills/text-tools/scripts/count.sh":    "#!/usr/bin/env bash\necho evil\n",
	},
}

// patience bounds the wait for a server that should listen.
const patience = time.Minute

// TestRecordedCalls makes the calls of each recorded run again and compares what they leave.
func TestRecordedCalls(t *testing.T) {
	deno, binary, adapter := prepare(t)
	used := make([]bool, len(known))
	for _, transport := range []string{"stdio", "http", "stdio with a secret", "http with a secret"} {
		for _, scenario := range []string{"run", "observe", "denied", "denied-slot", "drift"} {
			name := transport + "/" + scenario
			t.Run(name, func(t *testing.T) {
				r := &replay{t: t, deno: deno, binary: binary, adapter: adapter, scenario: scenario,
					remote: strings.HasPrefix(transport, "http"), secret: strings.HasSuffix(transport, "secret")}
				if r.secret && scenario != "run" {
					nightly.Only(t)
				}
				got, want := r.left(), r.recorded()
				for _, d := range differences("", want, got) {
					if !isKnown(name, d.field, used) {
						t.Errorf("%s: %s was recorded, is %s", d.field, d.want, d.got)
					}
				}
			})
		}
	}
	for i, k := range known {
		if !used[i] && !t.Failed() {
			t.Errorf("known difference %s %s (%s) does not occur any more: remove it", k.runs, k.field, k.why)
		}
	}
}

// isKnown reports whether a difference is in the table, and notes the entry as used.
func isKnown(name, field string, used []bool) bool {
	for i, k := range known {
		if regexp.MustCompile(k.runs).MatchString(name) && regexp.MustCompile(k.field).MatchString(field) {
			used[i] = true
			return true
		}
	}
	return false
}

// TestRecordedChild makes the calls of a recorded child again: its profile is browser, its scripts run on the
// host, and it has the lease of a browser. In cf-harness such a child reads every skill of its parent, and the
// allowlist refuses scripts; in skillsd the profile says which skills and scripts there are. Everything but
// these two refusals must be as it was recorded.
func TestRecordedChild(t *testing.T) {
	deno, binary, adapter := prepare(t)
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			r := &replay{t: t, deno: deno, binary: binary, adapter: adapter, scenario: "subagent", remote: transport == "http"}
			got, want := r.left().(*object), r.recorded().(*object)
			for _, refused := range []struct {
				list string
				at   int
			}{{"outputs", 1}, {"outputs", 3}, {"reads", 1}, {"executions", 1}} {
				list := got.members[refused.list].([]any)
				failure, _ := list[refused.at].(*object).members["error"].(*object)
				if failure == nil || failure.members["code"] != "profile_excludes" {
					t.Errorf("%s %d is not refused: %s", refused.list, refused.at, show(list[refused.at]))
				}
				list[refused.at] = want.members[refused.list].([]any)[refused.at]
			}
			for _, d := range differences("", want, got) {
				t.Errorf("%s: %s was recorded, is %s", d.field, d.want, d.got)
			}
		})
	}
}

// TestChildren checks runs that start with nothing: the parent loads a skill, and of its children only the one
// to which the harness gave that skill may run its script.
func TestChildren(t *testing.T) {
	deno, binary, adapter := prepare(t)
	call := func(name, arguments string) json.RawMessage {
		text, err := json.Marshal(map[string]any{"id": "call-" + name, "function": map[string]string{"name": name, "arguments": arguments}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	load := call("load_skill", `{"name": "text-tools"}`)
	script := call("run_skill_script", `{"skill": "text-tools", "path": "scripts/count.sh"}`)
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			r := &replay{t: t, deno: deno, binary: binary, adapter: adapter, scenario: "run", remote: transport == "http"}
			r.makeWorkspace()
			left := r.again(map[string]any{
				"runId": "parent", "denials": "observation", "mode": "enforce-explicit", "promptSlot": json.RawMessage(r.slot()), "preload": []string{},
				"turns": []turn{
					{Calls: []json.RawMessage{script, load, script}},
					{Child: &child{RunID: "parent.subagent.1", Skills: []string{}}, Calls: []json.RawMessage{script}},
					{Child: &child{RunID: "parent.subagent.2", Skills: []string{"text-tools"}}, Calls: []json.RawMessage{script}},
				},
			})
			var got []any
			for _, each := range left.members["outputs"].([]any) {
				output := each.(*object).members
				answer, ok := output["code"]
				if !ok {
					answer = output["status"]
				}
				got = append(got, answer)
			}
			if want := []any{"skill_not_activated", "loaded", "executed", "skill_not_activated", "executed"}; !slices.Equal(got, want) {
				t.Errorf("answers %q, want %q", got, want)
			}
		})
	}
}

// TestAdapterTypes has deno check the adapter. The command line is checked against the harness itself, by
// `make cf-harness`; here nothing declares what it imports of it.
func TestAdapterTypes(t *testing.T) {
	deno := needDeno(t)
	adapter, err := filepath.Abs("../../cmd/skillsd/cf-harness")
	if err != nil {
		t.Fatal(err)
	}
	fetch(t, deno, adapter)
	run(t, "", deno, "check", "--quiet", lock(t), filepath.Join(adapter, "adapter.ts"))
}

// TestAdapterLines holds the adapter, which others read and copy, to the width of our own code.
func TestAdapterLines(t *testing.T) {
	files, err := filepath.Glob("../../cmd/skillsd/cf-harness/*.ts")
	if err != nil || len(files) != 4 {
		t.Fatalf("files %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if len(line) > 110 {
				t.Errorf("%s:%d has %d columns", file, i+1, len(line))
			}
		}
	}
}

// replay is one recorded run that is made again.
type replay struct {
	t                               *testing.T
	deno, binary, adapter, scenario string
	remote                          bool
	secret                          bool // an entry of the allowlist names a secret, though not the one that runs
	dir, workspace                  string
}

// turn is a turn of the model, as replay.ts reads it.
type turn struct {
	Child *child            `json:"child,omitempty"`
	Files map[string]string `json:"files"`
	Calls []json.RawMessage `json:"calls"`
}

// makeWorkspace makes the workspace of the recorded run.
func (r *replay) makeWorkspace() {
	r.t.Helper()
	r.dir = r.t.TempDir()
	r.workspace = filepath.Join(r.dir, "workspace")
	writeWorkspace(r.t, r.workspace)
}

// child is a run that another started, with skills that the harness gave it.
type child struct {
	RunID   string   `json:"runId"`
	Profile string   `json:"profile,omitempty"`
	Skills  []string `json:"skills"`
}

// left makes the calls and returns what they left.
func (r *replay) left() any {
	r.t.Helper()
	r.makeWorkspace()
	state := r.file("run-state.json").(*object)
	denials := "output"
	if r.scenario == "denied-slot" {
		// cf-harness refused the call before its tool ran; skillsd refuses it as well.
		denials = "observation"
	}
	request := map[string]any{
		"runId": r.runID(), "denials": denials, "mode": state.members["cfcEnforcementMode"],
		"promptSlot": json.RawMessage(r.slot()), "preload": []string{"text-tools"}, "turns": r.turns(),
	}
	if r.scenario == "subagent" {
		request["preload"], request["lease"] = []string{}, map[string]string{
			"type": "cf-harness.chat.browser-access-lease", "leaseId": "lease-1",
			"cdpUrl": "http://127.0.0.1:9222", "expiresAt": "2099-01-01T00:00:00.000Z",
		}
	}
	left := r.again(request)
	if !comparesEvents(r.scenario) {
		left.remove("events")
	}
	return left
}

// again makes the calls of a request to replay.ts and returns what they left.
func (r *replay) again(request map[string]any) *object {
	r.t.Helper()
	request["adapter"], request["place"] = "file://"+r.adapter, r.place()
	input, err := json.Marshal(request)
	if err != nil {
		r.t.Fatal(err)
	}
	out := run(r.t, string(input), r.deno, "run", "--allow-all", "--no-check", "--cached-only", lock(r.t), "replay.ts")
	return decode(r.t, []byte(out)).(*object)
}

// recorded returns what the recorded run left, in the form of left.
func (r *replay) recorded() any { return r.artifacts(r.file) }

// artifacts returns the part of a run's artifacts that is compared. read returns a file of them.
func (r *replay) artifacts(read func(name string) any) any {
	r.t.Helper()
	state := read("run-state.json").(*object)
	transcript := read("transcript.json").([]any)
	made := &object{members: map[string]any{}}
	add := func(name string, value any) {
		if list, _ := value.([]any); list == nil && !isObject(value) {
			value = []any{}
		}
		made.keys = append(made.keys, name)
		made.members[name] = value
	}
	below := func(key, list string) any {
		if file, ok := state.members[key].(*object); ok {
			return file.members[list]
		}
		return nil
	}
	var outputs, denials, messages []any
	for _, each := range state.members["toolOutputs"].([]any) {
		output := each.(*object).members
		id := strings.ReplaceAll(output["outputId"].(string), ":", "_")
		outputs = append(outputs, read(fmt.Sprintf("tool-outputs/%s-%s.json", id, output["toolId"])))
	}
	for _, each := range transcript {
		message := each.(*object).members
		text, _ := message["content"].(string)
		switch {
		case r.scenario == "subagent": // cf-harness reads the instructions of a child's skills itself
		case strings.HasPrefix(text, "Configured skills context:"):
			messages = append(messages, text)
		case message["role"] == "tool" && r.scenario == "denied-slot":
			// cf-harness refused before its tool ran, so there is no output.
			denials = state.members["policyEvents"].([]any)
			outputs = append(outputs, decode(r.t, []byte(text)))
		}
	}
	add("outputs", outputs)
	add("reads", below("skillResourceReads", "reads"))
	add("executions", below("skillScriptExecutions", "executions"))
	add("denials", denials)
	if comparesEvents(r.scenario) {
		add("events", state.members["policyEvents"])
	}
	add("invocations", state.members["cfcInvocationContexts"])
	add("registry", state.members["skillRegistry"])
	add("activations", state.members["skillActivations"])
	add("contextMessages", messages)
	return made
}

// comparesEvents reports whether the policy events in skillsd's own record are those of cf-harness. In the
// other scenarios skillsd's policy refuses, with an event, what in cf-harness is an error of the tool.
func comparesEvents(scenario string) bool {
	return !slices.Contains([]string{"denied", "drift", "subagent"}, scenario)
}

func (r *replay) runID() string { return "run-" + r.scenario }

// text returns a recorded file in which the paths of this run have the place of those of the recording.
func (r *replay) text(name string) []byte {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", r.scenario, name))
	if err != nil {
		r.t.Fatal(err)
	}
	if r.remote {
		// Over HTTP no host path leaves the server: files have their places in the sandbox.
		text = bytes.ReplaceAll(text, []byte("WORKSPACE/skills"), []byte("/workspace/skills"))
	}
	return bytes.ReplaceAll(text, []byte("WORKSPACE"), []byte(r.workspace))
}

func (r *replay) file(name string) any { return decode(r.t, r.text(name)) }

func (r *replay) slot() string {
	var state struct{ PromptSlotBinding json.RawMessage }
	if err := json.Unmarshal(r.text("run-state.json"), &state); err != nil {
		r.t.Fatal(err)
	}
	return string(state.PromptSlotBinding)
}

// turns returns the calls of the recorded model.
func (r *replay) turns() (turns []turn) {
	var transcript []struct{ ToolCalls []json.RawMessage }
	if err := json.Unmarshal(r.text("transcript.json"), &transcript); err != nil {
		r.t.Fatal(err)
	}
	for _, message := range transcript {
		if len(message.ToolCalls) == 0 {
			continue
		}
		files := map[string]string{}
		if len(turns) == 1 {
			for name, text := range changes[r.scenario] {
				files[filepath.Join(r.workspace, name)] = text
			}
		}
		next := turn{Files: files, Calls: message.ToolCalls}
		if r.scenario == "subagent" {
			next.Child = &child{RunID: r.runID() + ".subagent.1", Profile: "browser", Skills: []string{"agent-browser"}}
		}
		turns = append(turns, next)
	}
	return turns
}

const token = "sesame"

// place starts a server over HTTP, or returns how the adapter starts one.
func (r *replay) place() map[string]any {
	r.t.Helper()
	state := r.t.TempDir()
	entry := map[string]any{"script": "text-tools:scripts/count.sh", "execution": "stdin", "release": "observed"}
	policy := map[string]any{"mode": r.file("run-state.json").(*object).members["cfcEnforcementMode"]}
	if r.scenario == "subagent" {
		entry["script"], entry["target"] = "agent-browser:scripts/capture-workflow.sh", "host"
		policy["execution_target"] = "host"
	}
	all := map[string]any{
		"allow_tools": []string{"run_skill_script"}, "allow": []any{entry}, "policy": policy,
	}
	if r.secret {
		value := filepath.Join(r.dir, "secret")
		write(r.t, value, []byte("hunter2-Secret-of-the-test"), 0o600)
		all["secrets"] = map[string]any{"TOKEN": map[string]string{"file": value}}
		all["allow"] = []any{entry, map[string]any{"script": "text-tools:scripts/none.sh",
			"release": "observed", "secrets": []string{"TOKEN"}}}
	}
	config, err := json.Marshal(all) // JSON is YAML
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(r.dir, "config.json")
	write(r.t, file, config, 0o600)
	args := []string{"serve", "--config", file, "--state", state, "--no-default-roots", "--log-format", "json",
		"--skills-root", filepath.Join(r.workspace, "skills"), "--workspace", r.workspace + ":ro"}
	if !r.remote {
		return map[string]any{"command": r.binary, "args": append(args, "--log-level", "error")}
	}
	tokens := filepath.Join(r.dir, "tokens")
	write(r.t, tokens, fmt.Appendf(nil, "harness: %x\n", sha256.Sum256([]byte(token))), 0o600)
	args = append(args, "--http", "127.0.0.1:0", "--auth-token-file", tokens, "--auth-evidence", "harness")
	return map[string]any{"url": "http://" + listen(r.t, r.binary, args) + "/mcp", "token": token}
}
