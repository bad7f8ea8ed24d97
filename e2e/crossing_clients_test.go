package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// crossed is a block that was set up: its skills and what serves them.
type crossed struct {
	block
	root  string            // of the skills
	flags []string          // of serve, but for the transport
	site  *site             // nil: each client starts a server of its own
	trees map[string]string // the digest of each skill, in a cluster
}

// crossingClients are the names of the clients, which over HTTP are those of their principals.
var crossingClients = []string{"raw", "recorded", "go-sdk", "sdk", "client"}

// cross sets a block up.
func cross(t *testing.T, b block) *crossed {
	t.Helper()
	dir := t.TempDir()
	c := &crossed{block: b, root: tree(t, crossingSkills())}
	closed := tree(t, map[string]string{
		"closed/SKILL.md":     "---\nname: closed\ndescription: Of a closed tier.\n---\n",
		"closed/scripts/a.sh": "#!/bin/sh\n"})
	outside := filepath.Join(dir, "outside")
	err := errors.Join(
		os.WriteFile(outside, []byte("#!/bin/sh\necho outside\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "secret"), []byte(crossedSecret), 0o600),
		os.Mkdir(filepath.Join(dir, "work"), 0o777),
		os.Chmod(filepath.Join(dir, "work"), 0o777),
		os.Symlink(outside, filepath.Join(c.root, "demo/references/outside.md")),
		os.Symlink(outside, filepath.Join(c.root, "demo/scripts/outside.sh")))
	if err != nil {
		t.Fatal(err)
	}
	if b.cluster {
		c.trees = treesOf(t, c.root, closed)
	}
	more := strings.ReplaceAll(b.more, "DIR", dir)
	if strings.Contains(more, "INDEX") {
		index, err := newPackageIndex("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(index.server.Close)
		more = strings.ReplaceAll(more, "INDEX", index.server.URL)
	}
	config := configFile(t, c.config(closed, more))
	c.flags = []string{"--config", config, "--log-format", "json"}
	if b.name == "packages" {
		state := t.TempDir()
		c.flags = append(c.flags, "--state", state)
		out, err := exec.Command(binary, "env", "add", "office", "alpha", "--yes", "--config", config, "--state",
			state).CombinedOutput()
		if err != nil {
			t.Fatalf("env add: %v\n%s", err, out)
		}
	}
	switch {
	case b.cluster:
		c.site = startServers(t, clustertest.Start(t, 1), 2,
			append(c.flags, "--auth-token-file", tokenFile(t, crossingClients...))...).caller.site
	case b.http:
		c.site = serveIn(t, nil, append(c.flags, "--auth-token-file", tokenFile(t, crossingClients...))...)
	}
	return c
}

// treesOf returns the digests of the skills that have scripts, as an entry of the allowlist names them.
func treesOf(t *testing.T, root, closed string) map[string]string {
	t.Helper()
	trees := map[string]string{}
	scripts := map[string]string{"demo": "ok.sh", "hidden": "a.sh", "narrow": "a.sh", "closed": "a.sh"}
	for skill, script := range scripts {
		config := filepath.Join(t.TempDir(), "config.yaml")
		from := root
		if skill == "closed" {
			from = closed
		}
		// allow refuses an entry that allowed-tools would make useless.
		advisory := "policy:\n  allowed_tools: advisory\n"
		pinned(t, config, advisory, []string{"--skills-root", from}, skill+":scripts/"+script)
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		tree := regexp.MustCompile(`tree: (\S+)`).FindStringSubmatch(string(text))
		if tree == nil {
			t.Fatalf("allow wrote %s", text)
		}
		trees[skill] = tree[1]
	}
	trees["org/closed"] = trees["closed"]
	return trees
}

// config is the configuration of the block.
func (c *crossed) config(closed, more string) string {
	var allow strings.Builder
	entry := func(script, keys string) {
		if c.cluster { // which takes entries with both digests alone
			name, path, _ := strings.Cut(script, ":")
			if !strings.Contains(script, "@") {
				from := filepath.Join(c.root, name)
				if name == "org/closed" {
					from = filepath.Join(closed, "closed")
				}
				content, err := os.ReadFile(filepath.Join(from, path))
				if err != nil {
					content = nil // of a script that is not there
				}
				script += fmt.Sprintf("@sha256:%x", sha256.Sum256(content))
			}
			keys = strings.Trim(keys+", tree: '"+c.trees[name]+"'", ", ")
		}
		fmt.Fprintf(&allow, "  - {%s}\n", strings.Trim(fmt.Sprintf("script: '%s', %s", script, keys), ", "))
	}
	with := func(keys string) string { return strings.Trim(keys+", "+c.entry, ", ") }
	for _, name := range []string{"ok.sh", "fail.sh", "cat.sh", "leave.sh", "last.sh", "slow.sh", "word.sh",
		"gone.sh", "text.txt", "lib", "outside.sh", "a.lua"} {
		entry("demo:scripts/"+name, with(""))
	}
	entry("demo:scripts/ask.sh", with("ask: always"))
	entry(fmt.Sprintf("demo:scripts/free.sh@sha256:%x", sha256.Sum256([]byte(crossingSkills()["demo/scripts/free.sh"]))),
		with("ask: never"))
	entry("demo:scripts/refuse.sh", with("approve: always"))
	released := regexp.MustCompile(`(, )?release: \w+`)
	entry("demo:scripts/kept.sh", released.ReplaceAllString(c.entry, ""))
	entry("demo:scripts/host.sh", "target: host")
	variable := "env: [CROSSING_NOT_SET]"
	if !strings.Contains(c.entry, "release") {
		variable += ", release: observed"
	}
	entry("demo:scripts/variable.sh", with(variable))
	if c.name == "packages" {
		entry("demo:scripts/unmade.py", "environment: unmade")
	}
	entry("demo:scripts/pinned.sh@sha256:"+strings.Repeat("0", 64), with(""))
	entry("hidden:scripts/a.sh", with(""))
	entry("narrow:scripts/a.sh", with(""))
	entry("org/closed:scripts/a.sh", with(""))
	tier := c.tier
	if tier == "" {
		tier = "builtin"
	}
	policy := "prompt_slot_role: direct-command, tier_scripts: {org: deny}"
	if c.policy != "" {
		policy += ", " + c.policy
	}
	principals := ""
	for _, name := range crossingClients {
		principals += name + ": {evidence: true}, "
	}
	if c.http {
		more += "principals: {" + strings.TrimSuffix(principals, ", ") + "}\n"
	}
	return fmt.Sprintf("roots: [{dir: %q, tier: %s}, {dir: %q, tier: org, prefix: org}]\n"+
		"scan: {no_default_roots: true}\nwatch: false\nallow_tools: [run_skill_script]\nallow:\n%s"+
		"policy: {%s}\n%s", c.root, tier, closed, &allow, policy, more)
}

// serveArgs is the command of a server of the block on stdio.
func (c *crossed) serveArgs(t *testing.T) []string {
	t.Helper()
	args := append([]string{"serve"}, c.flags...)
	if c.name != "packages" {
		args = append(args, "--state", t.TempDir())
	}
	return args
}

// request is what a client sends for a crossing after it got a handle.
func (c crossing) request(handle string) (params, meta string) {
	params = c.params
	if handle == "" {
		params = strings.NewReplacer(`,"activation":"HANDLE"`, "", `?activation=HANDLE`, "").Replace(params)
	}
	return strings.ReplaceAll(params, "HANDLE", handle), c.meta
}

// editing changes the file of a crossing until the function that it returns is called.
func (c *crossed) editing(t *testing.T, one crossing) (restore func()) {
	t.Helper()
	if one.edit == "" {
		return func() {}
	}
	path := filepath.Join(c.root, filepath.FromSlash(one.edit))
	aside := filepath.Join(t.TempDir(), "aside")
	err := os.Rename(path, aside)
	if err == nil {
		switch one.with {
		case "link":
			err = os.Symlink(aside, path)
		case "directory":
			err = os.Mkdir(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(otherBytes), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(path), os.Rename(aside, path)); err != nil {
			t.Fatal(err)
		}
	}
}

// otherBytes are no frontmatter, no script and no text that a skill had.
const otherBytes = "---\nname: [\n---\n"

// crossings are those that a client of a revision sends in the block.
func (c *crossed) crossings(era string, sends func(one crossing) bool) (all []crossing) {
	for _, one := range crossings() {
		if (one.only == "" || one.only == era) && sends(one) {
			all = append(all, one)
		}
	}
	return all
}

// run sends the crossings as one client, and compares each answer with the table.
func (c *crossed) run(t *testing.T, era, client string, sends func(one crossing) bool,
	send func(one crossing, params, meta string) answered) {
	t.Helper()
	all, handle := printed(t), ""
	for _, one := range c.crossings(era, sends) {
		params, meta := one.request(handle)
		restore := c.editing(t, one)
		got := send(one, params, meta)
		restore()
		if one.method == "tools/call" && got.Error == nil {
			var result toolResult
			if err := json.Unmarshal(got.Result, &result); err == nil {
				if found := activationLine.FindStringSubmatch(result.text()); found != nil {
					handle = found[1]
				}
			}
		}
		c.compare(t, all, era, client, one, got)
	}
}

// raw is a client without a library, which cannot ask its user. A recorded one asks for the records of each
// call.
func (c *crossed) raw(t *testing.T, era string, recorded bool) {
	next, name := 0, "raw"
	if recorded {
		name = "recorded"
	}
	var send func(method, name, params string) answer
	switch {
	case c.site == nil:
		p := start(t, exec.Command(binary, c.serveArgs(t)...))
		if era == "2025-11-25" {
			p.initialize()
		}
		send = func(method, _, params string) answer {
			next++
			return p.ask(method, params)
		}
	default:
		caller := &caller{site: c.site, token: name + "-token"}
		headers := func(method, name string) []string {
			return []string{"Mcp-Protocol-Version", era, "Mcp-Method", method, "Mcp-Name", name}
		}
		if era == "2025-11-25" {
			caller = c.site.open(name + "-token")
			headers = func(string, string) []string { return []string{"Mcp-Protocol-Version", era} }
		}
		send = func(method, name, params string) answer {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
			_, a, err := caller.send(t.Context(), body, headers(method, name)...)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
	}
	sends := func(one crossing) bool { return !one.task || c.tasks }
	c.run(t, era, name, sends, func(one crossing, params, meta string) answered {
		metas := []string{}
		if era == "2026-07-28" {
			metas = append(metas, modernMeta)
			if c.tasks {
				metas[0] = strings.Replace(modernMeta, `clientCapabilities":{`,
					`clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1)
			}
		}
		if recorded {
			metas = append(metas, `"skillsd/records":true`)
		}
		if meta != "" {
			metas = append(metas, meta)
		}
		parts := []string{fmt.Sprintf(`"_meta":{%s}`, strings.Join(metas, ","))}
		if params != "" {
			parts = append(parts, params)
		}
		got := send(one.method, headerName(one.method, params), "{"+strings.Join(parts, ",")+"}")
		out := answered{Result: got.Result}
		var made taskView
		isTask := json.Unmarshal(got.Result, &made) == nil && made.ResultType == "task"
		switch {
		case isTask && strings.HasPrefix(made.StatusMessage, "waits until the user approves it: skillsd approve "):
			send("tasks/cancel", made.TaskID, fmt.Sprintf(`{"taskId":%q,"_meta":{%s}}`, made.TaskID, tasking))
			out.waits = true
		case isTask && one.task:
			out.Result, out.task = c.ended(t, send, made.TaskID), true
		}
		if got.Error != nil {
			raw, err := json.Marshal(got.Error)
			if err == nil {
				err = json.Unmarshal(raw, &out.Error)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return out
	})
}

// ended returns the result of a task once it has one.
func (c *crossed) ended(t *testing.T, send tasker, id string) json.RawMessage {
	t.Helper()
	var view struct {
		Status string
		Result json.RawMessage
	}
	eventually(t, "the task has ended", func() bool {
		got := send("tasks/get", id, fmt.Sprintf(`{"taskId":%q,"_meta":{%s}}`, id, tasking))
		if err := json.Unmarshal(got.Result, &view); err != nil {
			t.Fatalf("tasks/get: %s %+v: %v", got.Result, got.Error, err)
		}
		return view.Status != "working"
	})
	if view.Status != "completed" {
		t.Errorf("a task ended as %s", view.Status)
	}
	return view.Result
}

// headerName is what the header Mcp-Name has of a request.
func headerName(method, params string) string {
	var named struct{ Name, URI, TaskID string }
	if err := json.Unmarshal([]byte("{"+params+"}"), &named); err != nil {
		return ""
	}
	switch {
	case method == "resources/read":
		return named.URI
	case strings.HasPrefix(method, "tasks/"):
		return named.TaskID
	}
	return named.Name
}

// decision is how a user answers the question about a run.
func decision(question string) string {
	if strings.Contains(question, `"yes"`) {
		return "Run it once"
	}
	return "Do not run it"
}

// goSDK is the official Go client.
func (c *crossed) goSDK(t *testing.T, era string) {
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			content := map[string]any{"decision": decision(r.Params.Message)}
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		},
	})
	var transport mcp.Transport
	if c.site == nil {
		transport = &mcp.CommandTransport{Command: exec.Command(binary, c.serveArgs(t)...)}
	} else {
		transport = &mcp.StreamableClientTransport{Endpoint: c.site.url,
			HTTPClient: &http.Client{Transport: bearer{"go-sdk-token"}}}
	}
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	methods := map[string]func(params []byte) (any, error){
		"tools/list":               typed(t, session.ListTools),
		"tools/call":               typed(t, session.CallTool),
		"resources/list":           typed(t, session.ListResources),
		"resources/templates/list": typed(t, session.ListResourceTemplates),
		"resources/read":           typed(t, session.ReadResource),
		"prompts/list":             typed(t, session.ListPrompts),
		"prompts/get":              typed(t, session.GetPrompt),
		"completion/complete":      typed(t, session.Complete),
	}
	sends := func(one crossing) bool { return methods[one.method] != nil && !one.task }
	c.run(t, era, "go-sdk", sends, func(one crossing, params, meta string) answered {
		if meta != "" {
			params += `,"_meta":{` + meta + `}`
		}
		made, err := methods[one.method]([]byte("{" + params + "}"))
		if failure, ok := errors.AsType[*jsonrpc.Error](err); ok {
			raw, err := json.Marshal(map[string]any{"error": failure})
			var out answered
			if err == nil {
				err = json.Unmarshal(raw, &out)
			}
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if err != nil {
			return answered{Thrown: err.Error()}
		}
		raw, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		return answered{Result: raw}
	})
}

// typed makes a method of the official client one that takes its params as JSON.
func typed[P, R any](t *testing.T, method func(context.Context, *P) (R, error)) func([]byte) (any, error) {
	return func(raw []byte) (any, error) {
		params := new(P)
		if err := json.Unmarshal(raw, params); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		return method(t.Context(), params)
	}
}

// typescript is an official TypeScript client in a process of its own: sdk or client of
// @modelcontextprotocol.
func (c *crossed) typescript(t *testing.T, modules, name, era string) {
	type step struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Edit   string          `json:"edit,omitempty"`
		With   string          `json:"with,omitempty"`
	}
	sends := func(one crossing) bool {
		switch one.method { // for which the clients have no function of their own
		case "server/discover", "ping", "skills/list", "skills/get", "resources/directory/read", "no/such":
			return false
		}
		return !one.task
	}
	steps := []step{}
	sent := c.crossings(era, sends)
	for _, one := range sent {
		params := one.params
		if one.meta != "" {
			params += `,"_meta":{` + one.meta + `}`
		}
		edit := one.edit
		if edit != "" {
			edit = filepath.Join(c.root, filepath.FromSlash(edit))
		}
		steps = append(steps, step{one.method, json.RawMessage("{" + params + "}"), edit, one.with})
	}
	request := map[string]any{"modules": modules, "library": name, "era": era, "steps": steps,
		"aside": filepath.Join(t.TempDir(), "aside")}
	if c.site != nil {
		request["url"], request["token"] = c.site.url, name+"-token"
	} else {
		request["command"], request["args"] = binary, c.serveArgs(t)
	}
	raw, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	cmd := node(t, "testdata/npmclient/crossing.mjs")
	cmd.Stdin = bytes.NewReader(raw)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the client failed: %v\n%s", err, stderr.String())
	}
	var replies []answered
	if err := json.Unmarshal(out, &replies); err != nil || len(replies) != len(steps) {
		t.Fatalf("the client printed %d answers to %d requests: %v\n%s", len(replies), len(steps), err, out)
	}
	all := printed(t)
	for i, one := range sent {
		failure := replies[i].Error
		if name == "client" && era == eras[0] && failure != nil && failure.Code == -32602 &&
			one.method == "resources/read" {
			// It keeps the URI alone of an error -32002, which the older revisions have.
			one.want, one.in = "rpc -32602", nil
		}
		c.compare(t, all, era, name, one, replies[i])
	}
}

// crossedSecret is the value of the secret, which no answer shows.
const crossedSecret = "hunter2-Secret-of-the-test"

// compare holds an answer to the schemas and to the table.
func (c *crossed) compare(t *testing.T, all schemas, era, client string, one crossing, got answered) {
	t.Helper()
	answer := all.checkReply(t, one, got)
	if strings.Contains(answer, "sandbox_unavailable") {
		skipSandbox(t, string(got.Result))
	}
	raw := client == "raw" || client == "recorded"
	recorded := client == "recorded"
	want := one.answerIn(c.block, !raw, recorded)
	if c.tasks && client == "raw" && era == eras[1] && one.unasked != "" {
		want = "waits" // as a task, for an approval elsewhere
	}
	text, err := json.Marshal(got)
	if answer != want {
		t.Errorf("%s: answered %s, want %s: %s %v", one.name, answer, want, text, err)
		return
	}
	for _, name := range []string{"", c.name} {
		if part := one.has[name]; !strings.Contains(string(text), part) {
			t.Errorf("%s: the answer has no %s: %s", one.name, part, text)
		}
	}
	if strings.Contains(string(text), crossedSecret) {
		t.Errorf("%s: the answer shows the secret: %s", one.name, text)
	}
	has := strings.Contains(string(text), `"skillsd/records":`)
	if has && !recorded || !has && recorded && one.isRecorded(answer) {
		t.Errorf("%s: records: %v, want %v: %s", one.name, has, recorded, text)
	}
	if got.Error == nil || strings.HasPrefix(answer, "rpc -") {
		return
	}
	code := -32602
	switch {
	case strings.Contains(string(got.Error.Data), `"reason":`):
		code = 1403
	case one.method == "resources/read" && era == eras[0]:
		code = -32002
	}
	if got.Error.Code != code {
		t.Errorf("%s: the number of the error is %d, want %d: %s", one.name, got.Error.Code, code, text)
	}
}

var eras = []string{"2025-11-25", "2026-07-28"}

// often are the blocks in which all clients send the requests for every change: together their answers have all
// the forms. In the others only the raw client of the later era does, which holds each answer to its schema; at night all
// do.
var often = []string{"workspace staged", "HTTP"}

func nightlyUnlessOften(t *testing.T, b block) {
	t.Helper()
	if !slices.Contains(often, b.name) {
		nightly.Only(t)
	}
}

// Each answer has the form that its schema states and the code that the table has, in every block of
// configuration and both eras; the official Go client reads it.
func TestCrossing(t *testing.T) {
	for _, b := range blocks() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			c := cross(t, b)
			for _, era := range eras {
				t.Run(era, func(t *testing.T) {
					if era == eras[0] {
						nightlyUnlessOften(t, b)
					}
					t.Run("raw", func(t *testing.T) { c.raw(t, era, false) })
					t.Run("recorded", func(t *testing.T) { nightlyUnlessOften(t, b); c.raw(t, era, true) })
					t.Run("go-sdk", func(t *testing.T) { nightlyUnlessOften(t, b); c.goSDK(t, era) })
				})
			}
		})
	}
}

// The official TypeScript clients read every answer of TestCrossing, but for those of two modes.
func TestSuiteCrossing(t *testing.T) {
	dir := modules(t)
	for _, b := range blocks() {
		if b.name == "disabled" || b.name == "strict" {
			continue // modes, whose answers have the forms of other blocks; TestCrossing has them
		}
		t.Run(b.name, func(t *testing.T) {
			nightlyUnlessOften(t, b)
			t.Parallel()
			c := cross(t, b)
			for _, era := range eras {
				t.Run("client/"+era, func(t *testing.T) { c.typescript(t, dir, "client", era) })
			}
			// @modelcontextprotocol/sdk has the older revisions alone.
			t.Run("sdk/"+eras[0], func(t *testing.T) { c.typescript(t, dir, "sdk", eras[0]) })
		})
	}
}
