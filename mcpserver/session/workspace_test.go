package session

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// A question names the project that the script would see and what becomes of changes to it. Where a project of
// the server is, a remote client does not learn.
func TestQuestionNamesTheProject(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	remote := Call{Principal: alice, Remote: true, ProtocolSession: "p", Opens: true}
	of := Call{Principal: local, Workspace: ClientDir{Path: "/home/me/a\nb"}}
	for _, tt := range []struct {
		name  string
		call  Call
		mode  sandbox.WorkspaceMode
		gone  bool
		reach string
	}{
		{"none", Call{Principal: local}, "", false, "only the files of its skill; no project, no network"},
		{"of the server", Call{Principal: local}, sandbox.WorkspaceRW, false, "project " + dir.Name() + " (changes are kept)"},
		{"of the server, remote", remote, sandbox.WorkspaceStaged, false, "project the server's directory (changes are checked, then kept)"},
		{"of the client", of, sandbox.WorkspaceRO, false, `project /home/me/a\nb (read-only)`},
		{"of the client, gone", of, sandbox.WorkspaceRO, true, ""},
	} {
		b := newBench(t, benchOptions{policy: policy.Config{Release: policy.ReleaseObserved}})
		b.cfg.Workspace = sandbox.Workspace{Mode: tt.mode, Dir: dir}
		if tt.call.Workspace.Path != "" {
			b.rules.Load().ClientWorkspace = func(ClientDir) (sandbox.Workspace, error) {
				if tt.gone {
					return sandbox.Workspace{}, errors.New("it is gone")
				}
				opened, err := os.Open(dir.Name())
				return sandbox.Workspace{Mode: tt.mode, Dir: opened}, err
			}
		}
		ses, err := b.Open(t.Context(), tt.call)
		if err != nil {
			t.Fatal(err)
		}
		tt.call.Method = "load_skill"
		if _, err := ses.Activate(t.Context(), ActivateRequest{Call: tt.call, Skill: "demo"}); err != nil {
			t.Fatal(err)
		}
		tt.call.Method = "run_skill_script"
		_, err = ses.RunScript(t.Context(), RunRequest{Call: tt.call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute, CanAsk: true})
		q, asked := errors.AsType[*Question](err)
		if tt.gone {
			if code(err) != "cwd_denied" {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if !asked || !strings.Contains(strings.ReplaceAll(q.Message, "\n| ", ""), tt.reach) {
			t.Errorf("%s: asked %v, %v, %+v", tt.name, asked, err, q)
		}
	}
}

// A directory that a client names counts only when the operator listens, on this machine, and under
// the rules for output of any workspace.
func TestClientWorkspace(t *testing.T) {
	named := ClientDir{Path: "/named", ReadOnly: true}
	for _, tt := range []struct {
		name    string
		call    Call
		ignored bool // by the operator
		release policy.Release
		fails   error
		code    string
		mounted bool
	}{
		{"mounted", Call{Principal: local, Workspace: named}, false, policy.ReleaseObserved, nil, "", true},
		{"not listened to", Call{Principal: local, Workspace: named}, true, policy.ReleaseObserved, nil, "", false},
		{"not named", Call{Principal: local}, false, policy.ReleaseObserved, nil, "", false},
		{"remote", Call{Principal: alice, Workspace: named, Remote: true, ProtocolSession: "p", Opens: true}, false, policy.ReleaseObserved, nil, "", false},
		{"output not released", Call{Principal: local, Workspace: named}, false, policy.ReleaseNone, nil, "output_not_released", false},
		{"not to be opened", Call{Principal: local, Workspace: named}, false, policy.ReleaseObserved, errors.New("it is gone"), "cwd_denied", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: tt.release}})
			dir, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			asked := 0
			if !tt.ignored {
				b.rules.Load().ClientWorkspace = func(got ClientDir) (sandbox.Workspace, error) {
					asked++
					if got != named {
						t.Errorf("asked for %+v", got)
					}
					return sandbox.Workspace{Mode: sandbox.WorkspaceRO, Dir: dir}, tt.fails
				}
			}
			ses, err := b.Open(t.Context(), tt.call)
			if err != nil {
				t.Fatal(err)
			}
			tt.call.Method = "load_skill"
			if _, err := ses.Activate(t.Context(), ActivateRequest{Call: tt.call, Skill: "demo"}); err != nil {
				t.Fatal(err)
			}
			tt.call.Method = "run_skill_script"
			result, err := ses.RunScript(t.Context(), RunRequest{Call: tt.call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
			if code(err) != tt.code {
				t.Fatalf("run: %v", err)
			}
			if tt.fails != nil && !strings.Contains(err.Error(), tt.fails.Error()) {
				t.Errorf("the reason is not told: %v", err)
			}
			if runs := b.runner.runs.Load(); (runs > 0) != (err == nil) {
				t.Errorf("%d runs, %v", runs, err)
			}
			if (asked > 0) != (tt.mounted || tt.fails != nil) {
				t.Errorf("asked %d times", asked)
			}
			if err != nil {
				return
			}
			want, cwd := "none", sandbox.OutDir
			if tt.mounted {
				want, cwd = "ro", sandbox.WorkspaceDir
				if dir.Close() == nil {
					t.Error("the directory was left open")
				}
			}
			if result.Output.Skillsd.Workspace != want || result.Output.CWD != cwd {
				t.Errorf("workspace %s, cwd %s", result.Output.Skillsd.Workspace, result.Output.CWD)
			}
		})
	}
}

// Without a workspace, a script starts in /out, and its directory cannot be the workspace that is missing.
func TestCwdInSandbox(t *testing.T) {
	missing := fault.CwdWithoutWorkspace.Because(nil).Message
	for _, tt := range []struct {
		mode      sandbox.WorkspaceMode
		cwd, want string
		refused   bool
	}{
		{cwd: "", want: sandbox.OutDir},
		{cwd: ".", want: sandbox.OutDir},
		{cwd: "/tmp", want: "/tmp"},
		{cwd: "/workspaces", want: "/workspaces"},
		{cwd: "/workspace", refused: true},
		{cwd: "/tmp/../workspace/a", refused: true},
		{mode: sandbox.WorkspaceRO, cwd: "", want: ""},
		{mode: sandbox.WorkspaceRO, cwd: "/workspace/a", want: "/workspace/a"},
	} {
		b := newBench(t, benchOptions{workspace: tt.mode,
			policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseObserved}})
		b.load("demo")
		ses, call := b.call("run_skill_script")
		_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Cwd: tt.cwd})
		if tt.refused {
			if failure, ok := errors.AsType[*Error](err); !ok || failure.Message != missing || b.runner.runs.Load() != 0 {
				t.Errorf("%q: %v", tt.cwd, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.cwd, err)
		} else if cwd := b.runner.cmd.Load().Cwd; cwd != tt.want {
			t.Errorf("%q: in %q, want %q", tt.cwd, cwd, tt.want)
		}
	}
}
