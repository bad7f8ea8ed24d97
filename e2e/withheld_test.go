package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/nightly"
)

const (
	toldSecret = "Zq7#Kw9!Xv5&Jh3?mN"
	// placeOf is a string of a request in whose place the secret is put, one at a time.
	placeOf = "@"
)

// sayings are the forms in which a call names a secret. Those that are cut where texts are clipped end
// in the middle of it.
func sayings() map[string]string {
	forms := map[string]string{
		"plain": toldSecret, "path": "scripts/" + toldSecret, "climbing": "scripts/" + toldSecret + "/../ok.sh", "uri": "skill://demo/" + url.PathEscape(toldSecret),
		"record": "skillsd://session/" + toldSecret, "base64": base64.StdEncoding.EncodeToString([]byte("key " + toldSecret)),
		"hex": hex.EncodeToString([]byte(toldSecret)), "directory": "/tmp/" + toldSecret, "template": "scr" + toldSecret,
	}
	for _, before := range []int{114, 118, 122} {
		forms[fmt.Sprintf("cut behind %d", before)] = strings.Repeat("p", before) + toldSecret
	}
	return forms
}

// calls are requests with a place for every string that a client or a model can choose.
func calls(activation string) map[string][]string {
	meta := `"_meta":{"skillsd/tool-call-id":"@","skillsd/session":"@","skillsd/activation":"@","skillsd/profile":"@","skillsd/parent-session":"@","skillsd/mode":"@",` +
		`"skillsd/run-id":"@","turn_id":"@","threadId":"@","claudecode/toolUseId":"@","skillsd/records":true,` +
		`"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"@","role":"direct-command","kernelName":"@","surface":"@","subject":"@","eventId":"@","targetPath":"@"},` +
		`"skillsd/browser-lease":{"leaseId":"@","cdpUrl":"@","expiresAt":"@"},"skillsd/input-labels":{"version":1,"entries":[{"path":["@"],"label":{"confidentiality":["@"]}}]}}`
	tool := func(name, arguments string) string {
		return fmt.Sprintf(`{"name":%q,"arguments":%s,%s}`, name, strings.ReplaceAll(arguments, "HANDLE", activation), meta)
	}
	return map[string][]string{
		"tools/call": {
			`{"name":"@","arguments":{"a":"@"}}`,
			tool("load_skill", `{"name":"@","file_path":"@","activation":"@"}`),
			tool("load_skill", `{"name":"demo","file_path":"@","force":"@"}`),
			tool("load_skill", `{"name":"demo"}`),
			tool("read_skill_resource", `{"skill":"demo","path":"@","maxBytes":"@","offset":"@","activation":"HANDLE"}`),
			tool("read_skill_resource", `{"skill":"@","path":"references/notes.md"}`),
			tool("read_skill_resource", `{"skill":"demo","path":"references/notes.md","activation":"@"}`),
			tool("search_skills", `{"query":"@","cursor":"@"}`),
			tool("search_skills", `{"query":"demo","cursor":"@"}`),
			tool("run_skill_script", `{"skill":"@","path":"scripts/ok.sh","activation":"HANDLE"}`),
			tool("run_skill_script", `{"skill":"demo","path":"@","activation":"HANDLE"}`),
			tool("run_skill_script", `{"skill":"demo","path":"scripts/ok.sh","args":["a","@"],"stdin":"@","cwd":"@","activation":"HANDLE"}`),
			tool("run_skill_script", `{"skill":"demo","path":"scripts/ok.sh","args":"@","timeoutMs":"@"}`),
			tool("run_skill_script", `{"skill":"demo","path":"scripts/other.sh","args":["@"],"stdin":"@","cwd":"@","activation":"HANDLE"}`),
			`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/other.sh","args":["@"],"stdin":"@","cwd":"@","activation":"` + activation + `"},"requestState":"@","inputResponses":{"approval":{"action":"@"}}}`,
		},
		"resources/read":           {`{"uri":"@",` + meta + `}`},
		"resources/directory/read": {`{"uri":"@","cursor":"@",` + meta + `}`},
		"resources/list":           {`{"cursor":"@",` + meta + `}`},
		"tools/list":               {`{"cursor":"@",` + meta + `}`},
		"resources/templates/list": {`{"cursor":"@"}`},
		"prompts/list":             {`{"cursor":"@",` + meta + `}`},
		"prompts/get":              {`{"name":"@",` + meta + `}`, `{"name":"demo","arguments":{"request":"@","other":"@"}}`},
		"skills/list":              {`{"cursor":"@",` + meta + `}`},
		"skills/get":               {`{"uri":"@","name":"@",` + meta + `}`},
		"completion/complete": {
			`{"ref":{"type":"@","name":"@","uri":"@"},"argument":{"name":"@","value":"@"}}`,
			`{"ref":{"type":"ref/prompt","name":"demo"},"argument":{"name":"request","value":"@ scr"}}`,
			`{"ref":{"type":"ref/resource","uri":"skill://{+path}"},"argument":{"name":"path","value":"@"}}`,
		},
		"resources/subscribe":   {`{"uri":"@"}`},
		"resources/unsubscribe": {`{"uri":"@"}`},
		"logging/setLevel":      {`{"level":"@"}`},
		"server/discover":       {`{"_meta":{"io.modelcontextprotocol/protocolVersion":"@"}}`},
		"no/such/@":             {`{}`},
		"ping":                  {`{"a":"@"}`},
	}
}

// repeated reports whether a form is of those that errors repeat as they are.
func repeated(saying string) bool { return saying == toldSecret || strings.HasPrefix(saying, "p") }

// each returns the JSON text with the secret in one place after the other, and in the forms that are
// repeated once as a key of each object.
func each(t *testing.T, text, saying string) []string {
	t.Helper()
	quoted, err := json.Marshal(saying)
	if err != nil {
		t.Fatal(err)
	}
	inner := string(quoted[1 : len(quoted)-1])
	fill := func(s string, i, n int, with string) string {
		return strings.ReplaceAll(s[:i], placeOf, "b") + with + strings.ReplaceAll(s[i+n:], placeOf, "b")
	}
	var all []string
	for i := range text {
		switch {
		case !repeated(saying):
		case text[i] == '@':
			all = append(all, fill(text, i, 1, inner))
		case strings.HasPrefix(text[i:], `{"`):
			all = append(all, fill(text, i, 1, `{`+string(quoted)+`:1,`))
		}
	}
	// Much of what comes first is refused for the places left to it: drop optional ones.
	bare := regexp.MustCompile(`,?"[^"]*":\s*"@"`)
	for _, at := range bare.FindAllStringIndex(text, -1) {
		one := bare.ReplaceAllString(text[:at[0]], "") + strings.ReplaceAll(text[at[0]:at[1]], placeOf, inner) + bare.ReplaceAllString(text[at[1]:], "")
		one = regexp.MustCompile(`([{\[]),`).ReplaceAllString(one, "$1")
		if json.Valid([]byte(one)) {
			all = append(all, strings.ReplaceAll(one, placeOf, "b"))
		}
	}
	return all
}

// shows returns what of the secret a text shows: six bytes of it in a row, or all of it in an encoding.
func shows(text string) string {
	for i := 0; i+6 <= len(toldSecret); i++ {
		if part := toldSecret[i : i+6]; strings.Contains(text, part) {
			return part
		}
	}
	for _, part := range []string{hex.EncodeToString([]byte(toldSecret)), url.PathEscape(toldSecret), url.QueryEscape(toldSecret), strings.ToLower(toldSecret),
		strings.ReplaceAll(toldSecret, "&", `\u0026`), base64.StdEncoding.EncodeToString([]byte("key " + toldSecret))[8:20], base64.StdEncoding.EncodeToString([]byte(toldSecret))} {
		if strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// What a call names is neither answered, recorded, counted nor logged with a declared secret in it,
// wherever in the call it stands.
func TestSecretsInCalls(t *testing.T) {
	config := secretConfig(t)
	for name, modern := range map[string]bool{"2025-11-25": false, "2026-07-28": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			p := start(t, exec.Command(binary, "serve", "--config", config, "--state", state, "--log-format", "json", "--log-level", "debug",
				"--search", "always", "--prompt-slot-role", "direct-command", "--metrics", "127.0.0.1:0"))
			said := tellSecrets(t, sayings(), p.exchange, modern)
			_, page := scrape(t, "GET", p.logged(metricsAddr), "/metrics", "")
			p.end()
			if part := shows(page); part != "" {
				t.Errorf("the metrics show %q", part)
			}
			p.checkLog()
			if kept := searchFiles(t, state); said < 500 || kept < 5 {
				t.Errorf("%d requests, %d files", said, kept)
			}
		})
	}
}

// Over HTTP the same holds, and for what the headers say.
func TestSecretsInCallsHTTP(t *testing.T) {
	t.Parallel()
	site := serveHTTP(t, "--config", secretConfig(t), "--log-level", "debug", "--search", "always", "--prompt-slot-role", "direct-command")
	c := site.open("")
	post := func(body string, headers ...string) string {
		response, err := c.do(t.Context(), "POST", body, headers...)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(response.Header) + string(data)
	}
	forms := sayings()
	sent := []string{"plain", "record", "cut behind 118"}[:nightly.Size(1, 3)]
	maps.DeleteFunc(forms, func(name, _ string) bool { return !slices.Contains(sent, name) })
	tellSecrets(t, forms, func(id int, method, params string) []string {
		return []string{post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))}
	}, false)
	for _, header := range []string{"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Last-Event-Id", "Accept", "Content-Type", "Traceparent", "User-Agent"} {
		for _, meta := range []string{`{}`, withMeta(`{}`)} {
			answer := post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+meta+`}`, header, toldSecret)
			if part := shows(answer); part != "" {
				t.Errorf("%s: the answer shows %q: %s", header, part, answer)
			}
		}
	}
	if err := site.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	site.cmd.Wait()
	site.checkLog()
	if searchFiles(t, site.state) < 5 {
		t.Error("hardly a file")
	}
}

// secretConfig is a configuration with a secret in a file.
func secretConfig(t *testing.T) string {
	t.Helper()
	file := written(t, "token", toldSecret)
	return configFile(t, fmt.Sprintf(`
roots: [{dir: %q, tier: builtin}]
allow_tools: [run_skill_script]
allow:
  - {script: "demo:scripts/ok.sh", release: observed, secrets: [TOKEN]}
  - {script: "demo:scripts/other.sh", approve: always, release: observed}
secrets: {TOKEN: {file: %q}}
`, tree(t, demoSkill()), file))
}

// checkLog looks for the secret in what the server has logged.
func (p *process) checkLog() {
	p.t.Helper()
	for line := range strings.Lines(p.stderr.String()) {
		if part := shows(line); part != "" {
			p.t.Fatalf("the log shows %q: %s", part, line)
		}
	}
}

// exchange sends a request and returns what comes up to its answer.
func (p *process) exchange(id int, method, params string) (lines []string) {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
	for {
		lines = append(lines, p.receive())
		if strings.Contains(lines[len(lines)-1], fmt.Sprintf(`"id":%d,`, id)) {
			return lines
		}
	}
}

// tellSecrets sends every request in every form and looks at the answers.
func tellSecrets(t *testing.T, forms map[string]string, exchange func(id int, method, params string) []string, modern bool) (said int) {
	t.Helper()
	ask := func(method, params string) string {
		said++
		if modern && !strings.Contains(params, "protocolVersion") {
			params = withMeta(params)
		}
		lines := exchange(said, method, params)
		for _, line := range lines {
			if part := shows(line); part != "" {
				t.Fatalf("%s %s: the answer shows %q: %s", method, params, part, line)
			}
		}
		return lines[len(lines)-1]
	}
	if !modern {
		ask("initialize", fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":%q,"version":%q}}`, "of "+toldSecret, toldSecret))
	}
	loaded := ask("tools/call", `{"name":"load_skill","arguments":{"name":"demo"}}`)
	handle := regexp.MustCompile(`"activation":"([A-Z0-9]+)"`).FindStringSubmatch(loaded)
	if handle == nil {
		t.Fatalf("no handle: %s", loaded)
	}
	all := calls(handle[1])
	for _, method := range slices.Sorted(maps.Keys(all)) {
		for form, saying := range forms {
			for _, template := range all[method] {
				bodies := each(t, template, saying)
				if strings.HasPrefix(form, "cut") && strings.Contains(method, placeOf) {
					continue
				}
				for _, params := range append(bodies, strings.ReplaceAll(template, placeOf, "b")) {
					ask(strings.ReplaceAll(method, placeOf, saying), params)
				}
			}
		}
	}
	return said
}

// withMeta adds what a request of 2026-07-28 says of its client to its _meta.
func withMeta(params string) string {
	meta := strings.Replace(modernMeta, `"name":"e2e"`, `"name":"`+toldSecret+`"`, 1)
	meta = strings.Replace(meta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
	if strings.Contains(params, `"_meta":{`) {
		return strings.Replace(params, `"_meta":{`, `"_meta":{`+meta+`,`, 1)
	}
	if params == "{}" {
		return `{"_meta":{` + meta + `}}`
	}
	return strings.TrimSuffix(params, "}") + `,"_meta":{` + meta + `}}`
}

// searchFiles looks for the secret in everything below dir, names included.
func searchFiles(t *testing.T, dir string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if part := shows(path); part != "" {
			t.Errorf("a name shows %q: %s", part, path)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			if part := shows(line); part != "" {
				t.Errorf("%s shows %q: %.1500s", path, part, line)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return files
}
