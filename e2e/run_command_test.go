package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRunRecordsWhatTheToolRecords calls the tool and the command with the same script and arguments, once
// to run and once to be refused: the records tell the same but for ids, times and who loaded the skill.
func TestRunRecordsWhatTheToolRecords(t *testing.T) {
	t.Parallel()
	root, state := tree(t, demoSkill()), t.TempDir()
	options := allowRun(root, "ok.sh", "fail.sh")
	for _, script := range []string{"ok.sh", "fail.sh", "other.sh"} {
		t.Run(script, func(t *testing.T) {
			p := serve(t, append([]string{"--state", state}, options...)...).loaded()
			answer := p.tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/" + script, "args": []string{"a", "b c"}})
			if strings.Contains(answer.text(), `"sandbox_unavailable"`) {
				t.Skipf("missing capability: a sandbox backend that can isolate: %s", answer.text())
			}
			p.end()
			tool := recordOfLatest(t, state)

			args := append(append([]string{"run", "--state", state, "--config", "/dev/null", "demo", "scripts/" + script}, options...), "--", "a", "b c")
			out, err := exec.Command(binary, args...).CombinedOutput()
			if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || failed.ExitCode() == 2) {
				t.Fatalf("skillsd run: %v\n%s", err, out)
			}
			command := recordOfLatest(t, state)
			if diff := cmp.Diff(tool, command); diff != "" {
				t.Errorf("the record of the command differs from that of the tool (-tool +command):\n%s", diff)
			}
			skillsd(t, 0, "session", "verify", "latest", "--state", state)
		})
	}
}

// ofOneRun are the values of a record that differ from run to run, and those that say by whom a skill was
// loaded and under which id a call came.
var ofOneRun = regexp.MustCompile(`^(seq|time|client|prev|hash|at|.*At|startedOn|finishedOn|durationMs|handleDigest|toolCallId|source)$`)

var sessionID = regexp.MustCompile(`ses_[0-9a-f-]{36}`)

// recordOfLatest is the record of the newest session as far as it is the same whenever the same is done:
// its events in an order that does not depend on what was written beside.
func recordOfLatest(t *testing.T, state string) []string {
	t.Helper()
	out := stdoutOf(t, "session", "show", "latest", "--json", "--state", state)
	var events []string
	for line := range bytes.Lines(sessionID.ReplaceAll(out, []byte("ses_X"))) {
		var event map[string]any
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if kind := event["kind"]; kind == "registry.snapshot" || kind == "session.started" || kind == "session.ended" {
			// They are written in the background, or hold the time and the program alone.
			events = append(events, kind.(string))
			continue
		}
		if event["kind"] == "skill.activated" {
			delete(event, "detail") // who loaded it
		}
		text, err := json.MarshalIndent(lasting(event), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, string(text))
	}
	slices.Sort(events)
	return events
}

// lasting is a value without what differs from run to run.
func lasting(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range v {
			if ofOneRun.MatchString(key) {
				kept[key] = "differs"
				continue
			}
			kept[key] = lasting(inner)
		}
		return kept
	case []any:
		for i := range v {
			v[i] = lasting(v[i])
		}
	}
	return value
}
