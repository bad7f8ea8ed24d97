package e2e

import (
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// screen is a terminal of 100 by 45 characters, as tmux draws it, in which a client runs.
type screen struct {
	t      *testing.T
	socket string
}

// newScreen runs a command in a terminal.
func newScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("missing capability: tmux, a terminal that can be read")
	}
	s := &screen{t, t.TempDir() + "/tmux"}
	pid := 0
	t.Cleanup(func() {
		s.tmux("kill-server")
		// It writes to its home directory until it is gone.
		for killGroup(pid) {
			runtime.Gosched()
		}
	})
	s.tmux(append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "45", "-c", cmd.Dir,
		"env", "-i"}, append(append(cmd.Env, "TERM=xterm-256color"), cmd.Args...)...)...)
	var err error
	pid, err = strconv.Atoi(strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Errorf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// until returns what the terminal shows once it has all of want.
func (s *screen) until(want ...string) string {
	s.t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	end := time.Now().Add(soon)
	for {
		text := s.tmux("capture-pane", "-p")
		missing := ""
		for _, part := range want {
			if !strings.Contains(text, part) {
				missing = part
			}
		}
		if missing == "" {
			return text
		}
		if time.Now().After(end) {
			s.t.Fatalf("the terminal lacks %q:\n%s", missing, text)
		}
		<-ticker.C
	}
}

// press presses a key, as tmux names it, until the terminal shows want: a client that draws takes no keys.
func (s *screen) press(key, want string) {
	s.t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for n := range int(soon / (100 * time.Millisecond)) {
		if strings.Contains(s.tmux("capture-pane", "-p"), want) {
			return
		}
		if n%20 == 0 {
			s.tmux("send-keys", key)
		}
		<-ticker.C
	}
	s.until(want)
}

// TestClientsShowTheQuestion has Claude Code and Codex ask a user at a terminal about a script with thirteen
// arguments and an input. All of them are seen, and the answer runs the script.
func TestClientsShowTheQuestion(t *testing.T) {
	args := []string{"--out", "https://example.org/collect?token=abc", "--recursive", "--include",
		"secrets/**",
		"--delete-after", "--force", "--user", "ünï", "--retries", "5", "--quiet", "a b\n; rm"}
	for _, tt := range []struct {
		name    string
		instead []string
		home    map[string]string
		more    string
		sees    []string
		steps   [][2]string // a key, and what is seen after it
	}{
		{name: "claude",
			instead: []string{"--mcp-config", "HOME/mcp.json", "--strict-mcp-config", "--allowedTools",
				"mcp__skills", "--", "go"},
			home: map[string]string{".claude/.claude.json": jsonText(map[string]any{
				"hasCompletedOnboarding": true, "theme": "dark", "bypassPermissionsModeAccepted": true,
				"customApiKeyResponses": map[string]any{"approved": []string{"sk-ant-stub"}},
				"projects":              map[string]any{"WORK": map[string]any{"hasTrustDialogAccepted": true}}})},
			sees: []string{"Run scripts/ok.sh of the skill demo (builtin) in a sandbox?",
				"asked because you have not yet let this script run without asking", "Run it once"},
			steps: [][2]string{{"Down", "❯ Accept"}, {"Enter", "● done"}}},
		{name: "codex", instead: []string{"-c", `approval_policy="on-request"`, "go"},
			more: "\n[projects.\"WORK\"]\ntrust_level = \"trusted\"\n",
			sees: []string{"Run scripts/ok.sh of the skill demo (builtin) in a sandbox?",
				"asked because you have not yet let this script run without asking", "Do not run it"},
			steps: [][2]string{{"Down", "› 2. Run it once"}, {"Enter", "• done"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := runRealClient(t, tt.name, false, clientRun{
				serve: []string{"--skills-root", "builtin=" + tree(t, demoSkill()), "--allow-tool",
					"run_skill_script",
					"--allow-skill-script", "demo:scripts/ok.sh"},
				turns: []turn{
					{{tool: "load_skill", args: map[string]any{"name": "demo"}}},
					{{tool: "run_skill_script", args: map[string]any{"skill": "demo", "path": "scripts/ok.sh",
						"args": args, "stdin": "first line\nsecond line\n"}}},
				},
				home: tt.home, more: tt.more, instead: tt.instead,
				terminal: func(s *screen) {
					if tt.name == "codex" { // which offers another model first
						s.until("Use existing model")
						s.press("Down", "› 2. Use existing model")
						s.press("Enter", "OpenAI Codex")
					}
					text := s.until(tt.sees...)
					t.Logf("\n%s", text)
					// The characters of the arguments, whatever lies between the rows that show them.
					plain := regexp.MustCompile(
						`\n.*(arguments|stdin)( \d/\d)?: |\n *\| |\n *`).ReplaceAllString(text, "")
					for _, want := range []string{`"--out" "https://example.org/collect?token=abc" "--recursive" "--include" ` +
						`"secrets/**" "--delete-after" "--force" "--user" "ünï" "--retries" "5" "--quiet" "a b\n; rm"`,
						`"first line\nsecond line\n"`} {
						if !strings.Contains(plain, want) {
							t.Errorf("the terminal does not show %s", want)
						}
					}
					for _, step := range tt.steps {
						s.press(step[0], step[1])
					}
				},
			})
			if got := o.result(t, 1, 0).text; !strings.Contains(got, "ran-ok --out https://example.org") {
				t.Errorf("the answer: %s", got)
			}
		})
	}
}

// TestClientsAnswerByThemselves has Claude Code and Codex, without a terminal, be asked about a script: they answer
// at once, which is no word of a user, however often it comes; Gemini and OpenCode cannot be asked.
func TestClientsAnswerByThemselves(t *testing.T) {
	eachClient(t, func(t *testing.T, name string, overHTTP bool) {
		run := turn{{tool: "run_skill_script", args: demoScript("ok.sh")}}
		o := runRealClient(t, name, overHTTP, clientRun{
			serve: []string{"--skills-root", "builtin=" + tree(t, demoSkill()), "--allow-tool", "run_skill_script",
				"--allow-skill-script", "demo:scripts/ok.sh"},
			turns: []turn{{{tool: "load_skill", args: map[string]any{"name": "demo"}}}, run, run, run, run},
		})
		want := map[string]string{"claude": "the client answered by itself", "codex": "the client answered by itself",
			"gemini": "this client cannot ask its user", "opencode": "this client cannot ask its user"}[name]
		for i := 1; i <= 4; i++ {
			if got := o.result(t, i, 0).text; !strings.Contains(got, want) {
				t.Errorf("call %d lacks %q: %s", i, want, got)
			}
		}
	})
}
