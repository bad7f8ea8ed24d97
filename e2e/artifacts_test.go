package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readings are the contents of a resources/read answer.
type readings struct {
	Contents []struct {
		MIMEType, Text, Blob string
	} `json:"contents"`
}

// resource returns what resources/read answers, and the code of the error when it is one.
func (a answer) resource(t testing.TB) (content string, code int) {
	t.Helper()
	if a.Error != nil {
		return "", a.Error.Code
	}
	var read readings
	if err := json.Unmarshal(a.Result, &read); err != nil || len(read.Contents) != 1 {
		t.Fatalf("resources/read = %s, %v", a.Result, err)
	}
	blob, err := base64.StdEncoding.DecodeString(read.Contents[0].Blob)
	if err != nil {
		t.Fatal(err)
	}
	return read.Contents[0].Text + string(blob), 0
}

// artifact reads a resource of the process's session.
func (p *process) artifact(uri string) (content string, code int) {
	p.t.Helper()
	return p.ask("resources/read", fmt.Sprintf(`{"uri":%q}`, uri)).resource(p.t)
}

// artifact reads a resource on the revision the caller speaks; handle may be empty.
func (c *caller) artifact(uri, handle string) (content string, code int) {
	c.t.Helper()
	meta := ""
	if handle != "" {
		meta = fmt.Sprintf(`"skillsd/activation":%q`, handle)
	}
	var a answer
	var err error
	if c.session != "" {
		_, a, err = c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":%q,"_meta":{%s}}}`, uri, meta))
	} else {
		if meta != "" {
			meta = "," + meta
		}
		_, a, err = c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":%q,"_meta":{%s%s}}}`, uri, modernMeta, meta),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "resources/read", "Mcp-Name", uri)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return a.resource(c.t)
}

var outURI = regexp.MustCompile(`\nout: report\.bin, \d+ bytes, (skillsd://[^,\n]+)[,\n]`)

// The URIs that a run prints can be read, and so can the record of the session, as it stands on disk.
func TestArtifactsStdio(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	files := demoSkill()
	files["demo/scripts/leave.sh"] = "#!/bin/sh\necho made\nprintf 'a\\000b' >/out/report.bin\n"
	root := tree(t, files)
	p := serve(t, append([]string{"--state", state}, allowRun(root, "ok.sh", "leave.sh")...)...)
	p.initialize()
	if _, code := p.artifact("skillsd://session/skill-activations.json"); code != -32002 {
		t.Errorf("activations before the first one: code %d", code)
	}
	p.tool("load_skill", map[string]any{"name": "demo"})
	needSandbox(t, p)
	ran := p.script("leave.sh")
	found := outURI.FindStringSubmatch(ran.text())
	if found == nil {
		t.Fatalf("run = %s", ran.text())
	}
	if strings.Contains(ran.text(), state) {
		t.Errorf("the text has a path of this machine: %s", ran.text())
	}
	asked := p.toolWith("run_skill_script", demoScript("leave.sh"), `{"skillsd/host-paths":true}`)
	if !strings.Contains(asked.text(), state) {
		t.Errorf("asked for paths: %s", asked.text())
	}
	if content, code := p.artifact(found[1]); content != "a\x00b" || code != 0 {
		t.Errorf("%s = %q, %d", found[1], content, code)
	}
	var id string
	for _, name := range []string{"session.json", "skill-registry.json", "skill-activations.json", "skill-script-executions.json", "policy-trace.json", "events.jsonl"} {
		content, code := p.artifact("skillsd://session/" + name)
		if name == "session.json" {
			var head struct{ ID string }
			if err := json.Unmarshal([]byte(content), &head); err != nil {
				t.Fatal(err)
			}
			id = head.ID
		}
		kept, err := os.ReadFile(filepath.Join(state, "sessions", id, name))
		if err != nil || code != 0 || name != "session.json" && content != string(kept) {
			t.Errorf("%s: code %d, %v, %d bytes of %d", name, code, err, len(content), len(kept))
		}
	}
	for _, uri := range []string{"skillsd://session/lock", "skillsd://session/../" + id + "/session.json", "skillsd://" + id + "/session.json"} {
		if content, code := p.artifact(uri); code != -32002 {
			t.Errorf("%s = %q, %d", uri, content, code)
		}
	}
	p.end()
	skillsd(t, 0, "session", "verify", id, "--state", state)
}

// A harness keeps the registry and the policy of a run before it calls a tool: reading them begins the
// session that its calls then belong to, and leaves no row.
func TestArtifactsFirst(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	for _, preload := range [][]string{nil, {"--skill", "demo"}} {
		flags := append([]string{"--skills-root", root}, preload...)
		begins := func(t *testing.T, read func(name string) (string, int), load func(), local bool) {
			names := []string{"skill-registry.json", "session.json", "events.jsonl"}
			if local {
				names = append(names, "policy-snapshot.json", "capabilities.json")
			}
			for _, name := range names {
				if text, code := read(name); code != 0 || text == "" {
					t.Fatalf("%s: code %d, %s", name, code, text)
				}
			}
			if _, code := read("skill-activations.json"); (code == 0) != (preload != nil) {
				t.Errorf("skill-activations.json: code %d with %v", code, preload)
			}
			before, _ := read("session.json")
			load()
			after, _ := read("session.json")
			var was, is struct {
				ID     string
				Counts struct{ Reads, Denials, Activations int }
			}
			if err := errors.Join(json.Unmarshal([]byte(before), &was), json.Unmarshal([]byte(after), &is)); err != nil {
				t.Fatal(err)
			}
			want := len(preload) / 2
			if was.ID != is.ID || was.Counts.Reads+was.Counts.Denials != 0 || was.Counts.Activations != want || is.Counts.Activations != want+1 {
				t.Errorf("before the load %s, after it %s", before, after)
			}
		}
		t.Run(fmt.Sprint("stdio", preload), func(t *testing.T) {
			p := serve(t, flags...)
			p.initialize()
			id := 10
			read := func(name string) (string, int) { id++; return p.artifact("skillsd://session/" + name) }
			begins(t, read, func() { p.tool("load_skill", map[string]any{"name": "demo"}) }, true)
		})
		t.Run(fmt.Sprint("HTTP", preload), func(t *testing.T) {
			s := serveHTTP(t, append(flags, "--auth-token-file", tokenFile(t, "alice"))...)
			alice := s.open("alice-token")
			read := func(name string) (string, int) { return alice.artifact("skillsd://session/"+name, "") }
			begins(t, read, func() { alice.tool("load_skill", map[string]any{"name": "demo"}) }, false)
		})
	}
}

// Over HTTP, in both eras, a session's artifacts are its principal's alone, and name no place on the
// server.
func TestArtifactsHTTP(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	s := serveHTTP(t, "--skills-root", root, "--auth-token-file", tokenFile(t, "alice", "bob"))
	for era, open := range map[string]func(token string) *caller{
		"2025-11-25": s.open,
		"2026-07-28": func(token string) *caller { return &caller{site: s, token: token} },
	} {
		t.Run(era, func(t *testing.T) {
			alice, bob := open("alice-token"), open("bob-token")
			notFound := -32602
			if alice.session != "" {
				notFound = -32002
			}
			const uri = "skillsd://session/skill-activations.json"
			if _, code := alice.artifact(uri, ""); code != notFound {
				t.Errorf("before the first load: %d", code)
			}
			handle := handleIn(t, alice.tool("load_skill", map[string]any{"name": "demo"}))
			for _, name := range []string{"skill-registry.json", "skill-activations.json", "policy-trace.json", "session.json", "events.jsonl"} {
				content, code := alice.artifact("skillsd://session/"+name, handle)
				if code != 0 || strings.Contains(content, root) || strings.Contains(content, s.state) {
					t.Errorf("%s: %d %s", name, code, content)
				}
				if alice.session == "" {
					continue
				}
				if again, code := alice.artifact("skillsd://session/"+name, ""); code != 0 || again != content {
					t.Errorf("%s by the protocol session: %d %s", name, code, again)
				}
			}
			if alice.session == "" {
				if _, code := alice.artifact(uri, ""); code != notFound {
					t.Errorf("without a handle: %d", code)
				}
			}
			if content, code := alice.artifact(uri+"?activation="+handle, ""); code != 0 || !strings.Contains(content, "cf-harness.skill-activations") {
				t.Errorf("with the handle in the URI: %d %s", code, content)
			}
			if content, code := bob.artifact(uri+"?activation="+handle, ""); code != 1403 {
				t.Errorf("another principal reads with the handle in the URI: %d %s", code, content)
			}
			bob.tool("load_skill", map[string]any{"name": "demo"})
			if content, code := bob.artifact(uri, handle); code != 1403 {
				t.Errorf("another principal reads with the handle: %d %s", code, content)
			}
			thief := &caller{site: s, token: "bob-token", session: alice.session}
			if alice.session != "" {
				if response, err := thief.do(t.Context(), "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":%q}}`, uri)); err != nil || response.StatusCode < 400 {
					t.Errorf("another principal uses the protocol session: %v, %v", response, err)
				} else {
					response.Body.Close()
				}
			}
		})
	}
}

// What was withheld from the model cannot be had as a resource.
func TestArtifactsWithheld(t *testing.T) {
	t.Parallel()
	p := serve(t, append(demo(t, "ok.sh"), "--workspace", t.TempDir(), "--release", "opaque")...).loaded()
	needSandbox(t, p)
	ran := p.script("ok.sh")
	_, rest, ok := strings.Cut(ran.text(), "[withheld; handle ")
	handle, _, _ := strings.Cut(rest, "]")
	if !ok {
		t.Fatalf("run = %s", ran.text())
	}
	output, _, _ := strings.Cut(handle, ":stdout")
	for _, uri := range []string{"skillsd://session/outputs/" + strings.ReplaceAll(output, ":", "_") + ".stdout", "skillsd://session/outputs/" + handle, "skillsd://session/" + handle} {
		if content, code := p.artifact(uri); code != -32002 {
			t.Errorf("%s = %q, %d", uri, content, code)
		}
	}
	if sum := "sha256:"; strings.Contains(string(ran.Meta["skillsd/result"]), `"stdout":{"bytes":7,"digest":"`+sum) {
		t.Errorf("the answer tells the digest of what it withholds: %s", ran.Meta["skillsd/result"])
	}
}

// sandboxMeta is what Codex sends with a call when a server asks for it.
func sandboxMeta(dir string, access string) string {
	u := (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
	return fmt.Sprintf(`{"threadId":"thread-1","x-codex-turn-metadata":{"turn_id":"turn-1"},"codex/sandbox-state-meta":{"permissionProfile":{"type":"managed","file_system":{"type":"restricted","entries":[`+
		`{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"path","path":%q},"access":%q}]},"network":"restricted"},"sandboxCwd":%q}}`, dir, access, u)
}

// Scripts see the directory the client works in when the operator lets it, and only then.
func TestWorkspaceFromClient(t *testing.T) {
	t.Parallel()
	files := demoSkill()
	files["demo/scripts/look.sh"] = "#!/bin/sh\npwd\ncat seen.txt\necho new >new.txt && echo wrote\nexit 0\n"
	for _, tt := range []struct {
		name   string
		flags  []string
		env    bool // the client names it in the environment instead of each call
		access string
		stdout string
		wrote  bool
	}{
		{"not allowed", nil, false, "write", "/out\nwrote\n", false},
		{"not allowed by environment", nil, true, "", "/out\nwrote\n", false},
		{"read-only", []string{"--workspace-from-client"}, false, "write", "/workspace\nseen\n", false},
		{"environment", []string{"--workspace-from-client"}, true, "", "/workspace\nseen\n", false},
		{"mode of the operator", []string{"--workspace-from-client", "--workspace", "other:rw"}, false, "write", "/workspace\nseen\nwrote\n", true},
		{"no more than the client may", []string{"--workspace-from-client", "--workspace", "other:rw"}, false, "read", "/workspace\nseen\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			workspace, other, state := t.TempDir(), t.TempDir(), t.TempDir()
			for _, dir := range []string{workspace, other} {
				if err := os.Chmod(dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(workspace, "seen.txt"), []byte("seen\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"serve", "--state", state, "--log-format", "json", "--release", "observed"}, allowRun(tree(t, files), "ok.sh", "look.sh")...)
			for _, flag := range tt.flags {
				args = append(args, strings.Replace(flag, "other", other, 1))
			}
			cmd := exec.Command(binary, args...)
			meta := sandboxMeta(workspace, tt.access)
			cmd.Env = append(os.Environ(), "CLAUDE_CODE_SESSION_ID=claude-1")
			if tt.env {
				cmd.Env, meta = append(cmd.Env, "CLAUDE_PROJECT_DIR="+workspace), "{}"
			}
			p := start(t, cmd)
			init := p.initialize()
			if asks := strings.Contains(string(init.Result), `"codex/sandbox-state-meta"`); asks != (len(tt.flags) > 0) {
				t.Errorf("the capability is declared: %v: %s", asks, init.Result)
			}
			p.toolWith("load_skill", map[string]any{"name": "demo"}, meta)
			needSandbox(t, p)
			result := p.toolWith("run_skill_script", demoScript("look.sh"), meta)
			if !strings.HasSuffix(result.text(), "stdout:\n"+tt.stdout) {
				t.Errorf("run = %s", result.text())
			}
			_, err := os.Stat(filepath.Join(workspace, "new.txt"))
			if wrote := err == nil; wrote != tt.wrote {
				t.Errorf("the workspace was written: %v", wrote)
			}
			events, _ := p.artifact("skillsd://session/events.jsonl")
			want := []string{`session of the client: \"thread-1\"`, `"taskId":"turn-1"`}
			if tt.env {
				want = []string{`session of the client: \"claude-1\"`}
			}
			if len(tt.flags) > 0 {
				want = append(want, "workspace of the client: ")
			}
			for _, want := range want {
				if !strings.Contains(events, want) {
					t.Errorf("the record lacks %s: %s", want, events)
				}
			}
			p.end()
		})
	}
}

func TestWorkspaceFromClientRefused(t *testing.T) {
	state, root, workspace := t.TempDir(), tree(t, demoSkill()), t.TempDir()
	p := serve(t, append([]string{"--state", state, "--release", "observed", "--workspace-from-client"}, allowRun(root, "ok.sh")...)...).loaded()
	needSandbox(t, p)
	for _, dir := range []string{state, filepath.Dir(state), filepath.Join(state, "sessions"), root, "/", filepath.Join(workspace, "none"), "relative"} {
		result := p.toolWith("run_skill_script", demoScript("ok.sh"), sandboxMeta(dir, "write"))
		if !result.IsError || !strings.Contains(result.text(), `"cwd_denied"`) || dir != "/" && strings.Contains(result.text(), dir) {
			t.Errorf("run in %s = %s", dir, result.text())
		}
	}
	out, err := exec.Command(binary, "serve", "--state", state, "--http", "127.0.0.1:0", "--skills-root", root, "--workspace-from-client").CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
		t.Errorf("over HTTP: %v: %s", err, out)
	}
}
