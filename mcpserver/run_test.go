package mcpserver

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
)

// The form of a client with fields begins with a decision, so that a form that comes back as it was sent has
// no choice of anybody; another form has none without a decision.
func TestFormAnswer(t *testing.T) {
	for _, tt := range []struct {
		begun  bool // the form began with a decision
		result string
		want   session.Answer
	}{
		{true, `{"action":"accept"}`, session.Answer{Action: "accept"}},
		{true, `{"action":"accept","content":{}}`, session.Answer{Action: "accept"}},
		{true, `{"action":"accept","content":{"decision":"Run it once"}}`, session.Answer{Action: "accept"}},
		{true, `{"action":"accept","content":{"decision":"Do not run it"}}`, session.Answer{Action: "decline", Chosen: true}},
		{false, `{"action":"accept"}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{}}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":7}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{"Decision":"Run it once"}}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{"decision":"yes"}}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{"decision":"Run it once"}}`, session.Answer{Action: "accept", Chosen: true}},
		{false, `{"action":"accept","content":{"decision":"Run it, and this script for the whole session"}}`, session.Answer{Action: "accept", Chosen: true, Remember: true}},
		{false, `{"action":"accept","content":{"decision":"Do not run it"}}`, session.Answer{Action: "decline", Chosen: true}},
		{false, `{"action":"decline","content":{"decision":"Run it once"}}`, session.Answer{Action: "decline"}},
		{false, `{"action":"cancel"}`, session.Answer{Action: "cancel"}},
	} {
		var result mcp.ElicitationResult
		if err := json.Unmarshal([]byte(tt.result), &result); err != nil {
			t.Fatal(err)
		}
		got := *formAnswer("", &result, tt.begun)
		got.Content = nil
		if got.State != "" || got.Action != tt.want.Action || got.Remember != tt.want.Remember ||
			got.Chosen != tt.want.Chosen || got.Unclear != tt.want.Unclear {
			t.Errorf("begun %v, %s: %+v, want %+v", tt.begun, tt.result, got, tt.want)
		}
	}
}

// Arguments that name a file of the client's directory are named if the script did not see it, for the client
// that started the process and for nothing outside of that directory.
func TestUnseen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "proj"), 0o755); err != nil {
		t.Fatal(err)
	}
	work, outside := filepath.Join(dir, "proj"), filepath.Join(dir, "outside.txt")
	for _, path := range []string{filepath.Join(work, "notes.txt"), filepath.Join(work, "a`b\n"), outside} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Skip("the file system has no such names")
		}
	}
	if err := os.Symlink(dir, filepath.Join(work, "up")); err != nil {
		t.Skip("no links here")
	}
	const stdin = "pass its text on stdin"
	for _, tt := range []struct {
		name       string
		args       []string
		call       session.Call
		workspace  string // of the result
		cfg        Config
		cwd        string
		want       string
		target     string
		isWithheld bool
	}{
		{name: "relative", args: []string{"notes.txt"}, want: "`notes.txt` does not exist in the sandbox: "},
		{name: "whole", args: []string{filepath.Join(work, "notes.txt")}, want: stdin},
		{name: "value of a flag", args: []string{"--in=notes.txt"}, want: "`notes.txt`"},
		{name: "text", args: []string{"notes", "-n", ".", "", "5"}},
		{name: "outside", args: []string{"../outside.txt", outside, "up/outside.txt", "/etc/passwd"}},
		{name: "strange", args: []string{"a`b\n"}, want: "does not exist"},
		{name: "cwd", args: []string{"notes.txt"}, cwd: "/skill"},
		{name: "remote", args: []string{"notes.txt"}, call: session.Call{Remote: true}},
		{name: "host", args: []string{"notes.txt"}, target: "host"},
		{name: "withheld", args: []string{"notes.txt"}, isWithheld: true},
		{name: "mounted", args: []string{"notes.txt"}, workspace: "staged", cfg: Config{AskWorkspace: true},
			call: session.Call{Workspace: session.ClientDir{Path: work}}},
		{name: "mounted, whole", args: []string{filepath.Join(work, "notes.txt")}, workspace: "staged",
			cfg: Config{AskWorkspace: true}, call: session.Call{Workspace: session.ClientDir{Path: work}},
			want: "there it is `/workspace/notes.txt`"},
		{name: "another mounted", args: []string{filepath.Join(work, "notes.txt")}, workspace: "ro",
			cfg: Config{Workspace: filepath.Join(dir, "elsewhere")}},
		{name: "a part mounted", args: []string{filepath.Join(work, "notes.txt")}, workspace: "ro",
			cfg: Config{Workspace: dir}, want: "`/workspace/proj/notes.txt`"},
		{name: "a part mounted, relative", args: []string{"notes.txt"}, workspace: "ro",
			cfg: Config{Workspace: dir}, want: "`/workspace/proj/notes.txt`"},
		{name: "up to what is mounted", args: []string{"../outside.txt"}, workspace: "ro",
			cfg: Config{Workspace: dir}, want: "`/workspace/outside.txt`"},
		{name: "up, to be made", args: []string{"../new.txt"}, workspace: "ro",
			cfg: Config{Workspace: dir}, want: "`/workspace/new.txt`"},
		{name: "up and out", args: []string{"../../new.txt", "../none/new.txt"}, workspace: "ro",
			cfg: Config{Workspace: dir}},
		{name: "another mounted, relative", args: []string{"notes.txt"}, workspace: "ro",
			cfg: Config{Workspace: filepath.Join(dir, "elsewhere")}},
	} {
		tt.cfg.WorkDir = work
		result := &session.RunResult{Sealed: tt.isWithheld}
		result.Output.ExecutionTarget = "sandbox"
		if tt.target != "" {
			result.Output.ExecutionTarget = tt.target
		}
		result.Output.Skillsd = &cfharness.RunExtension{Workspace: "none"}
		if tt.workspace != "" {
			result.Output.Skillsd.Workspace = tt.workspace
		}
		got := (&Server{cfg: tt.cfg}).mistakes(&tt.call, runArgs{Args: tt.args, Cwd: tt.cwd}, result)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A client that gives a directory by its path on this machine is given the name that it has for scripts, and
// nothing about directories outside of the workspace.
func TestUnseenCwd(t *testing.T) {
	t.Parallel()
	ask := Config{AskWorkspace: true, WorkDir: "/srv"}
	client := session.Call{Workspace: session.ClientDir{Path: "/srv/proj"}}
	remote := client
	remote.Remote = true
	refused := func() error { return fault.OfSandbox(&sandbox.CwdError{Cwd: "x", Reason: "no such directory"}) }
	for _, tt := range []struct {
		name, cwd string
		cfg       Config
		call      session.Call
		err       error
		want      string
	}{
		{"below", "/srv/proj/a/b", ask, client, refused(), "call again with cwd /workspace/a/b, "},
		{"the workspace", "/srv/proj", ask, client, refused(), "call again with cwd /workspace, "},
		{"of the server", "/w/a", Config{Workspace: "/w"}, session.Call{}, refused(), "call again with cwd /workspace/a, "},
		{"outside", "/srv/other", ask, client, refused(), "use an existing directory below /workspace"},
		{"relative", "proj", ask, client, refused(), "use an existing directory below /workspace"},
		{"remote", "/srv/proj/a", ask, remote, refused(), "use an existing directory below /workspace"},
		{"no workspace", "/srv/proj", ask, client, fault.CwdWithoutWorkspace.Because(nil), "leave cwd out"},
	} {
		plain, ok := errors.AsType[*session.Error]((&Server{cfg: tt.cfg}).withCwd(&tt.call, tt.cwd, tt.err))
		if !ok || !strings.HasPrefix(plain.Remedy, tt.want) {
			t.Errorf("%s: %v, want the remedy %q", tt.name, plain, tt.want)
		}
	}
}
