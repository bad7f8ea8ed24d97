package cfharness

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	labs    = flag.String("labs", "", "checkout of cf-harness's repository, github.com/commontoolsinc/labs")
	labsMap = flag.String("labs-map", "", "import map for the checkout, where the registry jsr.io cannot be reached")
)

// TestRealHarness runs cf-harness's own command line and loop with the adapter. The model is a gateway here
// that says what the recorded model said; what the run leaves must be as it was recorded.
func TestRealHarness(t *testing.T) {
	if *labs == "" {
		t.Skip("no checkout of cf-harness: make cf-harness LABS=DIR")
	}
	deno, binary, adapter := prepare(t)
	packages := "--config=" + filepath.Join(*labs, "deno.jsonc")
	if *labsMap != "" {
		packages = "--import-map=" + *labsMap
	}
	// In denied and drift the command line hands refusals to the model, which the recordings do not.
	for _, name := range []string{"stdio/run", "http/run", "stdio/observe", "http/observe", "stdio/denied-slot", "http/denied-slot"} {
		t.Run(name, func(t *testing.T) {
			transport, scenario, _ := strings.Cut(name, "/")
			r := &replay{t: t, deno: deno, binary: binary, adapter: adapter, scenario: scenario, remote: transport == "http"}
			r.makeWorkspace()
			artifacts := filepath.Join(r.dir, "artifacts")
			words := []string{deno, "run", "--allow-all", "--no-check", "--no-lock", packages, filepath.Join(adapter, "cli.ts"), "--skill", "text-tools"}
			place := r.place()
			if r.remote {
				t.Setenv("HARNESS_TOKEN", token)
				words = append(words, "--url", place["url"].(string), "--token-env", "HARNESS_TOKEN")
			} else {
				words = append(append(words, place["command"].(string)), place["args"].([]string)...)
			}
			run(t, "", append(words, "---", "--workspace", r.workspace, "--artifact-root", artifacts,
				"--cfc-enforcement-mode", r.file("run-state.json").(*object).members["cfcEnforcementMode"].(string),
				"--prompt-slot-role", r.role(),
				// Of a sandbox of its own, which is not used.
				"--cfc-invocation-context-dir", r.dir, "--cfc-result-dir", r.dir,
				"--allow-tool", "read_skill_resource", "--allow-tool", "run_skill_script", "--gateway-auth-mode", "none",
				"--gateway-base-url", r.gateway()+"/v1", "--model", "stub", "--model-provider", "openai-compatible-gateway", "--prompt", "Do the task.")...)

			runs, err := os.ReadDir(artifacts)
			if err != nil || len(runs) != 1 {
				t.Fatalf("runs %v, %v", runs, err)
			}
			id := runs[0].Name()
			got := r.artifacts(func(name string) any {
				text, err := os.ReadFile(filepath.Join(artifacts, id, strings.ReplaceAll(name, r.runID(), id)))
				if err != nil {
					t.Fatal(err)
				}
				return decode(t, []byte(strings.ReplaceAll(string(text), id, r.runID())))
			})
			for _, d := range differences("", r.recorded(), got) {
				if !isKnown(name, d.field, make([]bool, len(known))) {
					t.Errorf("%s: %s was recorded, is %s", d.field, d.want, d.got)
				}
			}
		})
	}
}

// role returns the role of the words behind the recorded run.
func (r *replay) role() string {
	var slot struct{ Role string }
	if err := json.Unmarshal([]byte(r.slot()), &slot); err != nil {
		r.t.Fatal(err)
	}
	return slot.Role
}

// gateway starts a server that answers as the recorded model did, and returns its URL.
func (r *replay) gateway() string {
	turns := r.turns()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		message, reason := map[string]any{"role": "assistant", "content": "done"}, "stop"
		if len(turns) > 0 {
			message["tool_calls"], reason = turns[0].Calls, "tool_calls"
			turns = turns[1:]
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "object": "chat.completion",
			"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}}})
	}))
	r.t.Cleanup(server.Close)
	return server.URL
}
