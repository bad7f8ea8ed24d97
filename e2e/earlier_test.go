package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateEarlier = flag.Bool("update-earlier", false, "rewrite testdata/records/*.want from what skillsd prints")

// earlier returns a copy of the records of testdata/records/NAME, as private as a server keeps them,
// and the ids of their sessions in the order of their names.
func earlier(t *testing.T, name string) (dir string, ids []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "sessions")
	from := filepath.Join("testdata", "records", name)
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if entry.IsDir() {
			if strings.HasPrefix(rel, "ses_") && filepath.Dir(rel) == "." {
				ids = append(ids, rel)
			}
			return os.MkdirAll(to, 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, ids
}

// readRecords runs skillsd and returns what it printed and its exit code, without the names of dir.
func readRecords(t *testing.T, dir string, args ...string) string {
	t.Helper()
	state := filepath.Join(filepath.Dir(dir), "state")
	cmd := exec.Command(binary, append(args, "--artifact-root", dir, "--state", state)...)
	cmd.Env = append(os.Environ(), "TZ=UTC", "HOME="+filepath.Dir(dir), "COLUMNS=80")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text := fmt.Sprintf("$ skillsd %s\n%s%sexit %d\n", strings.Join(args, " "), out.String(), errs.String(), cmd.ProcessState.ExitCode())
	return strings.NewReplacer(dir, "$SESSIONS", state, "$STATE").Replace(text)
}

// damage is a way in which records were changed after they were written.
var damage = map[string]func(t *testing.T, session string){
	"altered": func(t *testing.T, session string) {
		edit(t, filepath.Join(session, "events.jsonl"), func(text string) string { return strings.Replace(text, "references/a.md", "references/b.md", 1) })
	},
	"torn": func(t *testing.T, session string) {
		edit(t, filepath.Join(session, "events.jsonl"), func(text string) string { return text[:len(text)-40] })
	},
	"view": func(t *testing.T, session string) {
		edit(t, filepath.Join(session, "skill-activations.json"), func(text string) string { return strings.Replace(text, "demo", "Demo", 1) })
	},
	"output": func(t *testing.T, session string) {
		outputs, err := filepath.Glob(filepath.Join(session, "outputs", "*.stdout"))
		if err != nil || len(outputs) == 0 {
			t.Fatalf("no outputs in %s: %v", session, err)
		}
		if err := os.Remove(outputs[0]); err != nil {
			t.Fatal(err)
		}
	},
}

func edit(t *testing.T, path string, change func(string) string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	after := change(string(before))
	if after == string(before) {
		t.Fatalf("nothing to change in %s", path)
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEarlierRecords reads sessions that an earlier release wrote: what every reader says of them, and
// of damaged ones, is as it was. The JSON and the exit codes are what that release printed; it had no register
// of signed sessions, which is a note.
func TestEarlierRecords(t *testing.T) {
	cases := []struct{ records, damage string }{
		{"stdio", ""}, {"denied", ""}, {"approved", ""}, {"resumed", ""}, {"killed", ""}, {"signed", ""}, {"narrowed", ""}, {"http", ""},
		{"stdio", "altered"}, {"stdio", "torn"}, {"stdio", "view"}, {"stdio", "output"},
	}
	for _, tt := range cases {
		name := strings.TrimSuffix(tt.records+"-"+tt.damage, "-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, ids := earlier(t, tt.records)
			if len(ids) == 0 {
				t.Fatal("no sessions")
			}
			if tt.damage != "" {
				damage[tt.damage](t, filepath.Join(dir, ids[0]))
			}
			var got strings.Builder
			got.WriteString(readRecords(t, dir, "session", "list", "--json"))
			for _, id := range ids {
				for _, args := range [][]string{
					{"verify", id}, {"verify", id, "--json"}, {"show", id}, {"show", id, "--json"}, {"replay", id},
					{"replay", id, "--json"}, {"export", id}, {"export", id, "--format", "intoto"},
				} {
					got.WriteString(readRecords(t, dir, append([]string{"session"}, args...)...))
				}
			}
			if tt.records == "signed" {
				key, err := filepath.Abs("testdata/records/key.pub")
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(strings.ReplaceAll(readRecords(t, dir, "session", "verify", ids[0], "--key", key), key, "key.pub"))
			}
			golden := filepath.Join("testdata", "records", name+".want")
			if *updateEarlier {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("differs from %s:\n%s", golden, firstDifference(got.String(), string(want)))
			}
		})
	}
}

// firstDifference returns the first line of got that want does not have in its place, and want's.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// TestEarlierSessionResumes resumes a session of an earlier release whose server was killed, and verifies
// what both wrote.
func TestEarlierSessionResumes(t *testing.T) {
	t.Parallel()
	dir, ids := earlier(t, "killed")
	skills, err := filepath.Abs("testdata/records/skills")
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(skills)); err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(binary, "serve", "--skills-root", "org="+copied, "--state", t.TempDir(), "--artifact-root", dir,
		"--resume", ids[0], "--log-format", "json", "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh",
		"--prompt-slot-role", "direct-command"))
	p.ask("initialize", hello(""))
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	result := p.script("ok.sh", "after")
	if code := result.code(); code != "" && code != "sandbox_unavailable" {
		t.Errorf("a script of the resumed session: %s", result.text())
	}
	p.end()
	out := readRecords(t, dir, "session", "verify", ids[0])
	if !regexp.MustCompile(`(?m)^ok ` + ids[0]).MatchString(out) {
		t.Errorf("after resuming:\n%s", out)
	}
}
