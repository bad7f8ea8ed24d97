package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A tool or a prompt of the suite, and what the real server has in its place.
type standIn struct {
	call string // the params of the real call; %q is a handle
	key  string // the input request that the suite expects to be named like this
}

// The suite's own tool names, each in front of the same tool: a script that asks its user, or one that does not.
var standIns = map[string]standIn{
	"test_elicitation":                          {asks, ""},
	"test_input_required_result_elicitation":    {asks, "user_name"},
	"test_input_required_result_request_state":  {asks, ""},
	"test_input_required_result_tampered_state": {asks, ""},
	"test_tool_with_progress":                   {`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/slow.sh","activation":%q}}`, ""},
	"test_prompt_with_arguments":                {`{"ref":{"type":"ref/prompt","name":"demo"},"argument":{"name":"request","value":"test"}}`, ""},
}

const asks = `{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","activation":%q}}`

// What the scenarios of the suite that need its tools find of questions to users, tampered states, progress and
// completion, of the real server: a proxy gives its own tools and prompts the names of the suite's, and nothing else.
func TestSuiteConformanceStandIns(t *testing.T) {
	modules(t)
	skill := demoSkill()
	skill["demo/scripts/slow.sh"] = "#!/bin/bash\nsleep 3\n"
	flags := []string{"--skills-root", "builtin=" + tree(t, skill), "--skill", "demo", "--allow-tool", "run_skill_script",
		"--allow-skill-script", "demo:scripts/ok.sh", "--allow-skill-script", "demo:scripts/slow.sh"}
	direct := append(slices.Clone(flags), "--prompt-slot-role", "direct-command")
	needSandbox(t, serveHTTP(t, direct...).loaded(""))
	for _, tt := range standInScenarios {
		for _, scenario := range tt.scenarios {
			t.Run(tt.revision+"/"+scenario, func(t *testing.T) {
				again(t, func() (problems []string) {
					// A server of its own: the questions about a script that are open at a time are bounded.
					s := serveHTTP(t, map[bool][]string{true: flags, false: direct}[tt.asking]...)
					handle := "" // what is preloaded is active in every session
					if tt.revision == "2026-07-28" {
						handle = handleIn(t, s.as("").tool("load_skill", map[string]any{"name": "demo"}))
					}
					p := stand(t, s, handle)
					checks, exit, out := conformance(t, p.site, "--scenario", scenario, "--spec-version", tt.revision)
					// The suite takes a refusal for an answer like any other. It accepts sooner than a user can.
					refused := strings.Contains(p.answers.String(), `"isError":true`)
					soon := tt.asking && strings.Contains(p.answers.String(), "the client answered by itself")
					if exit != 0 || len(checks) == 0 || refused && !soon {
						problems = append(problems, fmt.Sprintf("exit status %d:\n%s\nanswers: %s", exit, out, &p.answers))
					}
					return append(problems, judge(tt.revision, checks, nil)...)
				})
			})
		}
	}
}

// standInScenarios are the scenarios that stand-ins are made for, and whether the user is to be asked in them.
var standInScenarios = []struct {
	revision  string
	asking    bool
	scenarios []string
}{
	{"2025-11-25", true, []string{"tools-call-elicitation"}},
	{"2025-11-25", false, []string{"tools-call-with-progress", "completion-complete"}},
	{"2026-07-28", true, []string{
		"input-required-result-basic-elicitation", "input-required-result-request-state", "input-required-result-tampered-state",
		"input-required-result-missing-input-response", "input-required-result-result-type", "input-required-result-validate-input",
	}},
	{"2026-07-28", false, []string{"tools-call-with-progress", "completion-complete"}},
}

func stoodInFor(revision string) (all []string) {
	for _, s := range standInScenarios {
		if s.revision == revision {
			all = append(all, s.scenarios...)
		}
	}
	return all
}

// proxy is a server under the names of the suite's tools.
type proxy struct {
	*site
	answers lockedBuffer // of the server
}

func stand(t *testing.T, s *site, handle string) *proxy {
	t.Helper()
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	key := ""
	server := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, target.Host
			body, _ := io.ReadAll(r.In.Body)
			var message map[string]json.RawMessage
			var params map[string]json.RawMessage
			var names struct {
				Name string
				Ref  struct{ Name string }
			}
			json.Unmarshal(body, &message)
			json.Unmarshal(message["params"], &params)
			json.Unmarshal(message["params"], &names)
			if real, ok := standIns[names.Name+names.Ref.Name]; ok {
				call := real.call
				if strings.Contains(call, "%q") {
					call = strings.Replace(fmt.Sprintf(call, handle), `,"activation":""`, "", 1)
				}
				json.Unmarshal([]byte(call), &params)
				key = real.key
				if key != "" {
					params["inputResponses"] = bytes.Replace(params["inputResponses"], []byte(`"`+key+`"`), []byte(`"approval"`), 1)
				}
				if len(params["inputResponses"]) == 0 {
					delete(params, "inputResponses")
				}
				message["params"], _ = json.Marshal(params)
				body, _ = json.Marshal(message)
				if r.In.Header.Get("Mcp-Name") != "" {
					json.Unmarshal(params["name"], &names.Name)
					r.Out.Header.Set("Mcp-Name", names.Name)
				}
			}
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		ModifyResponse: func(r *http.Response) error {
			if key == "" {
				r.Body = struct {
					io.Reader
					io.Closer
				}{io.TeeReader(r.Body, &p.answers), r.Body}
				return nil
			}
			body, err := io.ReadAll(r.Body)
			p.answers.Write(body)
			body = bytes.Replace(body, []byte(`"approval":{`), []byte(`"`+key+`":{`), 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
			return err
		},
	})
	t.Cleanup(server.Close)
	p.site = &site{process: s.process, url: server.URL + target.Path, client: s.client}
	return p
}
