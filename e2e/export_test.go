package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// A run can be exported as a statement about its output, replayed and its whole output shown.
func TestExportRun(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p := serve(t, append([]string{"--state", state}, demo(t, "ok.sh")...)...).loaded()
	needSandbox(t, p)
	p.end()
	out, code := session(t, state, "export", "latest", "--format", "intoto")
	if lines := strings.Count(out, "\n"); code != 0 || lines != 1 {
		t.Fatalf("export exits %d with %d lines:\n%s", code, lines, out)
	}
	var statement struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		PredicateType string
		Predicate     struct {
			Skill  struct{ Path string }
			Script struct{ Path string }
			Argv   []string
			Policy struct{ Decision string }
			Record struct {
				Session, Hash string
				Seq           int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &statement); err != nil {
		t.Fatal(err)
	}
	predicate := statement.Predicate
	// What the script prints without arguments.
	const ranOK = "83ecf1c6b3ddc6a2610ca7971e76d653ddbdb1de22e9c8ad55bff437dad9436c"
	if statement.Type != "https://in-toto.io/Statement/v1" || len(statement.Subject) != 2 || statement.Subject[0].Digest["sha256"] != ranOK {
		t.Errorf("statement %s", out)
	}
	if predicate.Skill.Path != "demo" || predicate.Script.Path != "scripts/ok.sh" || predicate.Policy.Decision != "allowed" ||
		predicate.Record.Seq == 0 || len(predicate.Record.Hash) != 64 || len(predicate.Argv) < 2 {
		t.Errorf("predicate %+v", predicate)
	}
	if shown, _ := session(t, state, "show", "latest", "--json"); !strings.Contains(shown, `"hash":"`+predicate.Record.Hash+`"`) {
		t.Errorf("no event has the hash %s of the statement", predicate.Record.Hash)
	}
	if replay, code := session(t, state, "replay", "latest"); code != 0 || !strings.Contains(replay, "stdout demo:scripts/ok.sh ") || !strings.Contains(replay, "\n| ran-ok\n") {
		t.Errorf("replay exits %d:\n%s", code, replay)
	}
	id := strings.TrimSuffix(statement.Subject[0].Name, ":stdout")
	if kept, code := session(t, state, "show", "latest", "--output", id); code != 0 || kept != "ran-ok\n" {
		t.Errorf("show --output %s exits %d: %q", id, code, kept)
	}
}
