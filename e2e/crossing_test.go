package e2e

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A block is a configuration under which every request of the table is sent.
type block struct {
	name     string
	http     bool   // over HTTP, with a token for each client
	cluster  bool   // two servers of a cluster, which take the next request in turn
	tasks    bool   // the raw client of 2026-07-28 takes tasks
	tier     string // of the skills; empty: builtin
	asksAll  bool   // the user is asked about each run
	asksNone bool   // the user is asked about none, and what needs an approval runs
	entry    string // more keys of the entry of each script
	policy   string // more keys of policy
	more     string // more of the configuration; DIR is a directory and INDEX an index of packages
}

const (
	withSecret  = "secrets: {TOKEN: {file: DIR/secret}}\n"
	takesSecret = "secrets: [TOKEN], release: observed"
)

// blocks are the blocks of configuration that change what an answer is made of. A block of another transport
// than stdio has a secret besides, because the removal of secrets is the last step of each answer.
func blocks() []block {
	return []block{
		{name: "none"},
		{name: "secrets", entry: takesSecret, more: withSecret},
		{name: "workspace ro", entry: "release: observed", more: "workspace: {dir: 'DIR/work:ro'}\n"},
		{name: "workspace staged", entry: "release: observed", more: "workspace: {dir: 'DIR/work:staged'}\n"},
		{name: "profile", policy: "profile: narrow", more: "profiles: {narrow: {skills: " +
			"[demo, narrow, a/twin, b/twin, org/closed, drifting]}}\n"},
		{name: "opaque", entry: "release: opaque", more: "workspace: {dir: 'DIR/work:ro'}\n"},
		{name: "network", entry: "network: ['127.0.0.1:9'], release: observed"},
		{name: "packages", entry: "environment: office",
			more: "environments: {office: {python: [alpha]}, unmade: {python: [beta]}}\n" +
				"index: {python: 'INDEX/simple'}\n"},
		{name: "observe", policy: "mode: observe", asksNone: true, entry: takesSecret, more: withSecret},
		{name: "disabled", policy: "mode: disabled", asksNone: true, entry: takesSecret, more: withSecret},
		{name: "strict", policy: "mode: enforce-strict", entry: takesSecret, more: withSecret},
		{name: "third-party", tier: "third-party", asksAll: true},
		{name: "search", more: "catalog: {search: always}\n"},
		{name: "HTTP", http: true, entry: takesSecret, more: withSecret},
		{name: "tasks", tasks: true, entry: takesSecret, more: withSecret},
		{name: "cluster", http: true, cluster: true, entry: takesSecret, more: withSecret},
	}
}

// A crossing is one request and its answer.
//
// An answer is "ok"; "opaque", a result whose output is withheld; "failed", a run that did not end by itself;
// "denied CODE" for a denial as the result of a tool; "error CODE" for a plain error as that; "rpc CODE" for
// an error of JSON-RPC; and "task" before the answer that a task ends with.
type crossing struct {
	name   string
	method string
	params string // JSON; HANDLE is the handle of the last load, if there was one
	meta   string // keys of _meta
	edit   string // a file of the skills that is replaced while the request is answered
	with   string // what it is replaced with: by default other bytes, else a link that leads out, or a directory

	want     string            // the answer
	unasked  string            // the answer to a client that cannot ask its user; empty: want
	recorded string            // the answer to a client that asks for records; empty: want
	in       map[string]string // the answer in a block, by its name, unless a client cannot ask
	has      map[string]string // a part of the answer's JSON in a block, by its name; "": in every block
	only     string            // the only revision that has the method
	task     bool              // sent by clients that take tasks alone
}

// toolCall is the crossing of a call of a tool.
func toolCall(name, tool, arguments, want string) crossing {
	return crossing{name: name, method: "tools/call", want: want,
		params: fmt.Sprintf(`"name":%q,"arguments":{%s}`, tool, arguments)}
}

// script is the crossing of a run of a script of the skill demo.
func script(name, path, more, want string) crossing {
	arguments := fmt.Sprintf(`"skill":"demo","path":"scripts/%s"%s,"activation":"HANDLE"`, path, more)
	c := toolCall(name, "run_skill_script", arguments, want)
	// Where the output may show more than the skill, every run is withheld alike.
	if want == "ok" {
		c.in = map[string]string{"opaque": "opaque"}
	}
	return c
}

func (c crossing) but(in map[string]string) crossing {
	all := maps.Clone(c.in)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, in)
	c.in = all
	return c
}

func (c crossing) having(has map[string]string) crossing { c.has = has; return c }
func (c crossing) withMeta(meta string) crossing         { c.meta = meta; return c }
func (c crossing) withLink(file string) crossing         { c.edit, c.with = file, "link"; return c }
func (c crossing) withDirectory(file string) crossing {
	c.edit, c.with = file, "directory"
	return c
}
func (c crossing) withEdit(file string) crossing    { c.edit = file; return c }
func (c crossing) unlessAsked(want string) crossing { c.unasked = want; return c }
func (c crossing) ifRecorded(want string) crossing  { c.recorded = want; return c }

// notReleased is the answer where the output may show more than the skill.
var notReleased = map[string]string{
	"secrets": "denied output_not_released", "workspace ro": "denied output_not_released",
	"workspace staged": "denied output_not_released", "opaque": "denied output_not_released",
	"network": "denied output_not_released", "HTTP": "denied output_not_released",
	"tasks": "denied output_not_released", "cluster": "denied output_not_released",
	"strict": "denied output_not_released",
}

// noSkill and noResource are the answers where a profile leaves a skill out: the methods answer as if there
// were no such skill.
var (
	noSkill    = map[string]string{"profile": "rpc skill_not_found"}
	noResource = map[string]string{"profile": "rpc resource_not_found"}
)

// pinnedAlone is the answer where an entry has a digest, which what is not there does not have.
var pinnedAlone = map[string]string{"cluster": "denied script_snapshot_mismatch"}

// crossings are the requests in the order in which each client sends them.
func crossings() []crossing {
	const load, read, run, search = "load_skill", "read_skill_resource", "run_skill_script", "search_skills"
	rpc := func(name, method, params, want string) crossing {
		return crossing{name: name, method: method, params: params, want: want}
	}
	return []crossing{
		{name: "discover", method: "server/discover", want: "ok", only: "2026-07-28"},
		{name: "ping", method: "ping", want: "ok", only: "2025-11-25"},
		rpc("tools", "tools/list", ``, "ok"),
		rpc("tools, bad cursor", "tools/list", `"cursor":"no!"`, "rpc -32602"),
		rpc("resources", "resources/list", ``, "ok"),
		rpc("templates", "resources/templates/list", ``, "ok"),
		rpc("prompts", "prompts/list", ``, "ok"),
		rpc("skills", "skills/list", ``, "ok"),
		rpc("skill", "skills/get", `"uri":"skill://demo/SKILL.md"`, "ok"),
		rpc("no skill", "skills/get", `"uri":"skill://none/SKILL.md"`, "rpc skill_not_found"),

		toolCall("run before load", run, `"skill":"demo","path":"scripts/ok.sh"`, "denied skill_not_activated"),
		toolCall("unknown tool", "write_skill", ``, "rpc -32602"),
		toolCall("load", load, `"name":"demo"`, "ok"),
		toolCall("load again", load, `"name":"demo","activation":"HANDLE"`, "ok"),
		toolCall("load whole", load, `"name":"demo","force":true,"activation":"HANDLE"`, "ok"),
		toolCall("load a file", load, `"name":"demo","file_path":"references/notes.md","activation":"HANDLE"`,
			"ok"),
		toolCall("load narrow", load, `"name":"narrow","activation":"HANDLE"`, "ok").
			having(map[string]string{"": `"skillsd/allowed-tools":["Read"]`}),
		toolCall("load closed", load, `"name":"org/closed","activation":"HANDLE"`, "ok"),
		toolCall("load hidden", load, `"name":"hidden","activation":"HANDLE"`, "ok").
			but(map[string]string{"profile": "denied profile_excludes"}),
		toolCall("load none", load, `"name":"none"`, "error skill_not_found").
			but(map[string]string{"profile": "denied profile_excludes"}),
		toolCall("load twin", load, `"name":"twin"`, "error skill_ambiguous"),
		toolCall("load with a number", load, `"name":7`, "error invalid_arguments"),
		toolCall("load in an unknown session", load, `"name":"demo","activation":"01UNKNOWN"`,
			"denied activation_unknown"),
		toolCall("load of what became invalid", load, `"name":"drifting","activation":"HANDLE"`,
			"error resource_changed").withEdit("drifting/SKILL.md"),

		toolCall("read", read, `"skill":"demo","path":"references/notes.md","activation":"HANDLE"`, "ok"),
		toolCall("read a part", read, `"skill":"demo","path":"references/notes.md","maxBytes":5,`+
			`"activation":"HANDLE"`, "ok"),
		toolCall("read a picture", read, `"skill":"demo","path":"assets/dot.png","activation":"HANDLE"`, "ok").
			having(map[string]string{"": `"type":"image"`}),
		toolCall("read bytes", read, `"skill":"demo","path":"assets/blob.bin","activation":"HANDLE"`, "ok"),
		toolCall("read a directory", read, `"skill":"demo","path":"references","activation":"HANDLE"`, "ok").
			ifRecorded("error resource_not_indexed"),
		toolCall("read climbing", read, `"skill":"demo","path":"../x","activation":"HANDLE"`,
			"error resource_path_invalid"),
		toolCall("read none", read, `"skill":"demo","path":"references/none.md","activation":"HANDLE"`,
			"error resource_not_indexed"),
		toolCall("read of a link out", read, `"skill":"demo","path":"references/outside.md","activation":"HANDLE"`,
			"error resource_not_indexed"),
		toolCall("read of what became a link out", read, `"skill":"demo","path":"references/notes.md",`+
			`"activation":"HANDLE"`, "denied resource_outside_root").withLink("demo/references/notes.md"),
		toolCall("read of what became a directory", read, `"skill":"demo","path":"references/notes.md",`+
			`"activation":"HANDLE"`, "error resource_not_file").withDirectory("demo/references/notes.md"),
		toolCall("read of no skill", read, `"skill":"none","path":"x"`, "error skill_not_found").
			but(map[string]string{"profile": "denied profile_excludes"}),
		toolCall("read too much", read, `"skill":"demo","path":"x","maxBytes":-1`, "error invalid_arguments"),
		toolCall("read of what changed", read, `"skill":"demo","path":"references/notes.md","activation":"HANDLE"`,
			"ok").withEdit("demo/references/notes.md"),

		toolCall("search", search, `"query":"tests"`, "ok").
			having(map[string]string{"search": `demo: A skill for tests.`}),
		toolCall("search for nothing", search, `"query":""`, "error invalid_arguments"),
		toolCall("search, bad cursor", search, `"query":"tests","cursor":"no!"`, "error invalid_arguments"),

		script("run", "ok.sh", `,"args":["yes"]`, "ok").
			having(map[string]string{"packages": `"environment":{`}),
		script("run where it starts anyway", "ok.sh", `,"args":["yes"],"cwd":"."`, "ok").having(map[string]string{
			"none": `"cwd":"/out"`, "workspace ro": `"cwd":"/workspace"`, "HTTP": `"cwd":"/out"`}),
		script("run that fails", "fail.sh", `,"args":["yes"]`, "ok"),
		script("run with input", "cat.sh", `,"args":["yes"],"stdin":"text"`, "ok"),
		script("run that leaves files", "leave.sh", `,"args":["yes"]`, "ok").having(map[string]string{
			"none": `"uri":"skillsd://session/outputs/`, "workspace staged": `"writes":[{`,
			"network": `"connections":[{`, "secrets": `"withheld":"`, "opaque": `"passThrough":true`}),
		script("run that lasts", "last.sh", `,"args":["yes"],"timeoutMs":300`, "failed").
			but(map[string]string{"opaque": "opaque"}),
		script("run asked about, accepted", "ask.sh", `,"args":["yes"]`, "ok").
			unlessAsked("denied approval_required"),
		script("run asked about, refused", "refuse.sh", `,"args":["no"]`, "denied approval_declined").
			unlessAsked("denied approval_required"),
		script("run never asked about", "free.sh", `,"args":["go"]`, "ok").
			withMeta(`"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound",` +
				`"source":"t","role":"quote","kernelName":"k","surface":"s"}`),
		script("run on others' word", "word.sh", `,"args":["yes"]`, "ok").
			withMeta(`"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound",` +
				`"source":"t","role":"context","kernelName":"k","surface":"s"}`).
			unlessAsked("denied direct_command_required"),
		script("run not allowed", "other.sh", ``, "denied script_not_allowlisted"),
		script("run of none", "none.sh", ``, "denied script_not_allowlisted"),
		script("run climbing", "../../x", ``, "error script_path_invalid"),
		script("run of what is gone", "gone.sh", ``, "error script_not_indexed").but(pinnedAlone),
		script("run of a text", "text.txt", ``, "error unsupported_runtime"),
		script("run of a directory", "lib", ``, "error resource_not_script").but(pinnedAlone),
		script("run of a link out", "outside.sh", ``, "error script_not_indexed").but(pinnedAlone),
		script("run of what became a link out", "ok.sh", `,"args":["yes"]`, "denied script_snapshot_mismatch").
			withLink("demo/scripts/ok.sh"),
		script("run of other bytes", "pinned.sh", ``, "denied script_snapshot_mismatch"),
		script("run of an edited script", "ok.sh", `,"args":["yes"]`, "denied script_snapshot_mismatch").
			withEdit("demo/scripts/ok.sh"),
		script("run on the host", "host.sh", ``, "denied permission_denied"),
		script("run not released", "kept.sh", `,"args":["yes"]`, "ok").but(notReleased),
		script("run of an unknown runtime", "a.lua", ``, "error unsupported_runtime"),
		script("run without its variable", "variable.sh", `,"args":["yes"]`, "error env_denied"),
		script("run elsewhere", "ok.sh", `,"args":["yes"],"cwd":"/etc"`, "error cwd_denied"),
		script("run with a bad slot", "ok.sh", ``, "error prompt_slot_invalid").withMeta(`"skillsd/prompt-slot":7`),
		script("run without its packages", "unmade.py", ``, "denied script_not_allowlisted").
			but(map[string]string{"packages": "error environment_not_made"}),
		toolCall("run of a narrow skill", run, `"skill":"narrow","path":"scripts/a.sh","activation":"HANDLE"`,
			"denied allowed_tools_conflict"),
		toolCall("run of a closed tier", run, `"skill":"org/closed","path":"scripts/a.sh","activation":"HANDLE"`,
			"denied tier_denied"),
		toolCall("run of a hidden skill", run, `"skill":"hidden","path":"scripts/a.sh","args":["yes"],`+
			`"activation":"HANDLE"`, "ok").but(map[string]string{"opaque": "opaque",
			"profile": "denied profile_excludes"}),
		{name: "run that is a task", method: "tools/call", task: true, want: "task ok", only: "2026-07-28",
			params: `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/slow.sh"}`},
		{name: "task that fails", method: "tools/call", task: true, want: "task failed", only: "2026-07-28",
			params: `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/last.sh",` +
				`"timeoutMs":3000}`},

		rpc("read a resource", "resources/read", `"uri":"skill://demo/SKILL.md"`, "ok"),
		rpc("read the record", "resources/read", `"uri":"skillsd://session/events.jsonl?activation=HANDLE"`, "ok"),
		rpc("read no resource", "resources/read", `"uri":"skill://demo/none.md"`, "rpc resource_not_indexed"),
		rpc("read no record", "resources/read", `"uri":"skillsd://session/none?activation=HANDLE"`,
			"rpc resource_not_found"),
		rpc("read a directory as a file", "resources/read", `"uri":"skill://demo/references"`,
			"rpc resource_not_indexed"),
		rpc("read a resource that became a link out", "resources/read", `"uri":"skill://demo/references/notes.md"`,
			"rpc resource_outside_root").withLink("demo/references/notes.md"),
		rpc("read a resource that changed", "resources/read", `"uri":"skill://demo/references/notes.md"`,
			"rpc resource_changed").withEdit("demo/references/notes.md"),
		rpc("list a directory", "resources/directory/read", `"uri":"skill://demo"`, "ok"),
		rpc("list no directory", "resources/directory/read", `"uri":"skill://demo/none"`, "rpc resource_not_found"),
		rpc("prompt", "prompts/get", `"name":"demo","arguments":{"request":"go"}`, "ok"),
		rpc("no prompt", "prompts/get", `"name":"none"`, "rpc skill_not_found"),
		rpc("hidden skill", "skills/get", `"uri":"skill://hidden/SKILL.md"`, "ok").but(noSkill),
		rpc("read a resource of a hidden skill", "resources/read", `"uri":"skill://hidden/SKILL.md"`, "ok").
			but(noResource),
		rpc("list a hidden skill", "resources/directory/read", `"uri":"skill://hidden"`, "ok").but(noResource),
		rpc("prompt of a hidden skill", "prompts/get", `"name":"hidden"`, "ok").but(noSkill),
		rpc("complete", "completion/complete", `"ref":{"type":"ref/resource","uri":"skill://{+path}"},`+
			`"argument":{"name":"path","value":"de"}`, "ok"),
		rpc("complete nothing", "completion/complete", `"ref":{"type":"ref/prompt","name":"none"},`+
			`"argument":{"name":"x","value":""}`, "rpc -32602"),
		noTask("tasks/get"), noTask("tasks/update"), noTask("tasks/cancel"),
		{name: "an unknown method", method: "no/such", want: "rpc -32601"},
	}
}

// noTask is the crossing of a method of tasks for a task that never was. The rows with a task have the rest.
func noTask(method string) crossing {
	return crossing{name: method + " of no task", method: method, params: `"taskId":"none","inputResponses":{}`,
		want: "rpc -32602", only: "2026-07-28", task: true}
}

// answerIn is the answer that a crossing has in a block.
func (c crossing) answerIn(b block, asks, recorded bool) string {
	if b.asksNone && c.unasked != "" {
		return "ok"
	}
	if !asks && c.unasked != "" {
		return c.unasked
	}
	if b.asksAll && !asks && strings.Contains(c.params, `"yes"`) {
		return "denied approval_required"
	}
	if own, ok := c.in[b.name]; ok {
		return own
	}
	if recorded && c.recorded != "" {
		return c.recorded
	}
	return c.want
}

// isRecorded reports whether a call that is answered so is in the record.
func (c crossing) isRecorded(answer string) bool {
	switch c.method {
	case "tools/call", "resources/read", "prompts/get":
		return (answer == "ok" || strings.HasPrefix(answer, "denied")) && toolOf(c) != "search_skills" &&
			!strings.Contains(c.params, "skillsd://")
	}
	return false
}

// crossingSkills are the skills of the table.
func crossingSkills() map[string]string {
	skill := func(name, more string) string {
		return fmt.Sprintf("---\nname: %s\ndescription: A skill for %s.\n%s---\n# Do it\n", name, name, more)
	}
	files := demoSkill()
	maps.Copy(files, map[string]string{
		"demo/assets/dot.png":      dotPNG,
		"demo/scripts/cat.sh":      "#!/bin/sh\ncat\n",
		"demo/scripts/leave.sh":    leaving,
		"demo/scripts/last.sh":     "#!/bin/sh\necho begun\nsleep 60\n",
		"demo/scripts/slow.sh":     "#!/bin/sh\nsleep 3\necho done\n",
		"demo/scripts/ask.sh":      "#!/bin/sh\necho asked\n",
		"demo/scripts/refuse.sh":   "#!/bin/sh\necho refused\n",
		"demo/scripts/free.sh":     "#!/bin/sh\necho free\n",
		"demo/scripts/word.sh":     "#!/bin/sh\necho word\n",
		"demo/scripts/text.txt":    "no script\n",
		"demo/scripts/pinned.sh":   "#!/bin/sh\necho pinned\n",
		"demo/scripts/host.sh":     "#!/bin/sh\necho host\n",
		"demo/scripts/lib/part.sh": "#!/bin/sh\n",
		"demo/scripts/kept.sh":     "#!/bin/sh\necho kept\n",
		"demo/scripts/a.lua":       "#!/usr/bin/lua\nprint(1)\n",
		"demo/scripts/variable.sh": "#!/bin/sh\necho variable\n",
		"demo/scripts/unmade.py":   "#!/usr/bin/env python3\nprint(1)\n",
		"narrow/SKILL.md":          skill("narrow", "allowed-tools: Read\n"),
		"narrow/scripts/a.sh":      "#!/bin/sh\necho narrow\n",
		"hidden/SKILL.md":          skill("hidden", ""),
		"hidden/scripts/a.sh":      "#!/bin/sh\necho hidden\n",
		"a/twin/SKILL.md":          skill("twin", ""),
		"b/twin/SKILL.md":          skill("twin", ""),
		"drifting/SKILL.md":        skill("drifting", ""),
	})
	return files
}

// leaving is a script that does all that a result may show: it prints the secret and leaves it in a binary
// file, writes where it starts, and connects to an address.
const leaving = `#!/bin/bash
echo "token $TOKEN"
echo made >/out/a.txt
printf '\000%s' "$TOKEN" >/out/b.bin
mktemp changed.XXXXXX >/dev/null
proxy=${HTTPS_PROXY#http://}
if [ "$proxy" ]; then
	exec 3<>"/dev/tcp/${proxy%:*}/${proxy##*:}"
	printf 'CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n' >&3
	head -n 1 <&3
fi
exit 0
`

// dotPNG is a picture of one pixel.
const dotPNG = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01" +
	"\x00\x00\x00\x01\b\x04\x00\x00\x00\xb5\x1c\f\x02" +
	"\x00\x00\x00\vIDATx\xdacd`\x00\x00\x00\x06\x00\x02\x30\x81\xd0\x2f\x00\x00\x00\x00IEND\xaeB`\x82"

// answered is an answer as a client has it: the JSON of a result or of an error.
type answered struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int             `json:"code"`
		Data json.RawMessage `json:"data"`
	} `json:"error"`
	Thrown string `json:"thrown"` // the error of a client that cannot read the answer
	task   bool   // the result is that of a task
	waits  bool   // the result is a task that waits for an approval elsewhere
}

// checkReply holds an answer to the published schemas and returns it in the words of the table.
func (s schemas) checkReply(t *testing.T, c crossing, r answered) string {
	t.Helper()
	if r.Thrown != "" {
		return "thrown " + r.Thrown
	}
	if r.waits {
		return "waits"
	}
	if r.Error != nil {
		var data struct {
			Code, Reason string
			Meta         map[string]json.RawMessage `json:"_meta"`
		}
		if len(r.Error.Data) > 0 && json.Unmarshal(r.Error.Data, &data) != nil {
			return "rpc with data that are no object: " + string(r.Error.Data)
		}
		if records := data.Meta["skillsd/records"]; records != nil {
			s.check(t, "records", records)
		}
		if data.Reason != "" {
			s.check(t, "observation-denied", withoutMeta(t, r.Error.Data))
		}
		if data.Code == "" {
			data.Code = strconv.Itoa(r.Error.Code)
		}
		return "rpc " + data.Code
	}
	var result toolResult
	if err := json.Unmarshal(r.Result, &result); err != nil {
		return fmt.Sprintf("no result: %v: %s", err, r.Result)
	}
	if c.method != "tools/call" {
		if records := result.Meta["skillsd/records"]; records != nil {
			s.check(t, "records", records)
		}
		return "ok"
	}
	if r.task {
		r.task = false
		return "task " + s.checkReply(t, c, r)
	}
	s.checkResult(t, toolOf(c), result)
	code := result.code()
	if wrong := result.amiss(toolOf(c)); wrong != "" {
		return wrong
	}
	switch {
	case result.IsError && result.StructuredContent != nil:
		return "denied " + code
	case result.IsError && code != "":
		return "error " + code
	case result.IsError:
		return "failed"
	case strings.Contains(string(result.Meta["skillsd/result"]), `"code":"output_opaque"`):
		return "opaque"
	}
	return "ok"
}

// amiss returns what an answer of a tool lacks, or where its two forms differ, which no schema sees.
func (r toolResult) amiss(tool string) string {
	var object struct{ Code, Remedy string }
	var made struct{ Error struct{ Code string } }
	if r.IsError && json.Unmarshal(r.object(), &object) == nil && object.Remedy == "" {
		return "error without a remedy"
	}
	output := r.Meta["skillsd/result"]
	switch {
	case r.StructuredContent != nil:
		var inText, structured any
		if json.Unmarshal(r.object(), &inText) != nil || json.Unmarshal(r.StructuredContent, &structured) != nil ||
			!reflect.DeepEqual(inText, structured) {
			return "denied with two objects"
		}
	case output == nil && (tool == "load_skill" || tool == "run_skill_script"):
		return "answered without an object"
	case object.Code != "":
		if json.Unmarshal(output, &made) != nil || made.Error.Code != object.Code {
			return "error with two codes"
		}
	}
	return ""
}

// withoutMeta returns an object without its _meta.
func withoutMeta(t *testing.T, object json.RawMessage) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "_meta")
	rest, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return rest
}

func toolOf(c crossing) string {
	_, rest, _ := strings.Cut(c.params, `"name":"`)
	tool, _, _ := strings.Cut(rest, `"`)
	return tool
}

// Every code, method and part of the configuration is in the table, or here with the reason why it is not.
func TestCrossingWhole(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"tool_not_allowed":                "needs a server that offers no scripts: TestToolNotOffered",
		"output_opaque":                   "is in a result, which the table calls opaque",
		"script_outside_root":             "has no rule: a link out is not indexed, or a file has changed",
		"lease_invalid":                   "needs scripts on the host: e2e/host_test.go",
		"sandbox_unavailable":             "needs a machine without a sandbox: e2e/run_test.go",
		"interpreter_not_found":           "needs one that is missing: e2e/sandboxcases_checks_linux_test.go",
		"environment_changed":             "needs files that change below the state: e2e/testdata/script/env.txtar",
		"environment_interpreter_changed": "needs another Python than the one of the start",
		"environment_unsupported":         "needs a lock of another platform",
		"outcome_unknown":                 "needs a worker that dies: e2e/workers_linux_test.go",
		"provenance_unavailable":          "needs a disk that fails: e2e/disk_linux_test.go",
		"records_full":                    "needs records that fill a quota: e2e/disk_linux_test.go",
		"server_busy":                     "needs as many calls as there are places: e2e/http_limits_test.go",
		"session_moved":                   "needs a server that dies in a call: e2e/cluster_test.go",
		"internal":                        "is a fault of the server",
	}
	answers := map[string]bool{}
	methods := map[string]bool{}
	for _, c := range crossings() {
		methods[c.method] = true
		texts := append(slices.Collect(maps.Values(c.in)), c.want, c.unasked, c.recorded)
		for _, text := range texts {
			if _, code, ok := strings.Cut(text, " "); ok {
				answers[code] = true
			}
		}
	}
	for _, code := range slices.Concat(constants(t, "../skills/policy", "Code"),
		constants(t, "../mcpserver/session/fault", "Code"), environmentCodes(t)) {
		if _, ok := elsewhere[code]; !answers[code] && !ok {
			t.Errorf("no answer of the table is %s", code)
		}
	}
	all := append(constants(t, "../mcpserver", "method"), constants(t, "../mcpserver/tasks", "Method")...)
	for _, method := range all {
		if !methods[method] {
			t.Errorf("no request of the table is %s", method)
		}
	}
	out := stdoutOf(t, "config", "schema")
	var file struct{ Properties map[string]json.RawMessage }
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	for key, raw := range file.Properties {
		keys := []string{key}
		if key == "allow" || key == "policy" { // which decide what an answer is
			var of struct {
				Properties map[string]json.RawMessage
				Items      struct {
					OneOf, AnyOf []struct{ Properties map[string]json.RawMessage }
				}
			}
			if err := json.Unmarshal(raw, &of); err != nil {
				t.Fatal(err)
			}
			keys = slices.Collect(maps.Keys(of.Properties))
			for _, form := range append(of.Items.OneOf, of.Items.AnyOf...) {
				keys = slices.AppendSeq(keys, maps.Keys(form.Properties))
			}
			for i := range keys {
				keys[i] = key + "." + keys[i]
			}
		}
		if len(keys) == 0 {
			t.Errorf("%s of the configuration has no keys", key)
		}
		for _, key := range keys {
			if _, ok := crossedKeys[key]; !ok {
				t.Errorf("no block of the table has %s of the configuration, and no reason is given", key)
			}
		}
	}
}

// crossedKeys are the parts of the configuration: the block that has each, or why the form of an answer does
// not depend on it.
var crossedKeys = map[string]string{
	"roots":                   "every block",
	"scan":                    "every block",
	"allow_tools":             "every block",
	"watch":                   "every block",
	"allow.script":            "every block",
	"allow.tree":              "cluster",
	"allow.network":           "network",
	"allow.env":               "every block",
	"allow.secrets":           "secrets",
	"allow.ask":               "every block",
	"allow.approve":           "every block",
	"allow.target":            "every block",
	"allow.release":           "opaque",
	"allow.environment":       "packages",
	"allow.workspace":         "what a run sees",
	"allow.timeout":           "when a run ends",
	"allow.memory":            "when a run ends",
	"allow.path":              "what a run sees",
	"allow.pin":               "which bytes are those that were allowed",
	"allow.execution":         "how an interpreter gets the script",
	"policy.mode":             "observe",
	"policy.prompt_slot_role": "every block",
	"policy.release":          "the default of entries",
	"policy.tier_scripts":     "every block",
	"policy.profile":          "profile",
	"policy.allowed_tools":    "advisory lets run what is allowed_tools_conflict",
	"policy.drift":            "refuse makes resource_changed of a read that is ok",
	"policy.execution_target": "host: e2e/host_test.go",
	"principals":              "HTTP",
	"secrets":                 "secrets",
	"workspace":               "workspace ro",
	"profiles":                "profile",
	"environments":            "packages",
	"index":                   "packages",
	"catalog":                 "search",
	"http":                    "HTTP",
	"cluster":                 "cluster",
	"skills":                  "which skills there are",
	"trust":                   "which installed skills there are",
	"interpreters":            "with what a script runs",
	"sandbox":                 "with what a script is isolated",
	"limits":                  "when a run ends",
	"state":                   "where files are kept",
	"artifacts":               "where files are kept",
	"sessions":                "which records are kept",
	"log":                     "the log",
	"metrics":                 "an address of its own",
	"page":                    "an address of its own",
}

// constants returns the values of the constants of a package, strings, whose names begin with a prefix.
func constants(t *testing.T, dir, prefix string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, name := range spec.Names {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && strings.HasPrefix(name.Name, prefix) &&
					literal.Kind == token.STRING {
					value, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, value)
				}
			}
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constant %s…", dir, prefix)
	}
	return values
}

// environmentCodes are the codes of runs that do not get their environment.
func environmentCodes(t *testing.T) (codes []string) {
	t.Helper()
	for _, name := range []string{"NotMade", "Changed", "InterpreterChanged", "Unsupported"} {
		codes = append(codes, constants(t, "../mcpserver/session/packages", name)...)
	}
	return codes
}
