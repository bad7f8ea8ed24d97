package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// session runs `skillsd session ARGS` and returns what it printed and its exit code.
func session(t testing.TB, state string, args ...string) (stdout string, code int) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"session", "--state", state}, args...)...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	if errors.Len() > 0 {
		t.Logf("session %v: %s", args, strings.TrimSpace(errors.String()))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// sessionIDs are the sessions recorded in a state directory, the oldest first.
func sessionIDs(t testing.TB, state string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(state, "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, en := range entries {
		if strings.HasPrefix(en.Name(), "ses_") {
			ids = append(ids, en.Name())
		}
	}
	return ids
}

// recordedCalls are the ids of the calls that events of a session tell of.
func recordedCalls(t *testing.T, state, id string) map[string]bool {
	t.Helper()
	out, code := session(t, state, "show", id, "--json")
	if code != 0 {
		t.Fatalf("session show %s exits %d", id, code)
	}
	calls := make(map[string]bool)
	for line := range strings.Lines(out) {
		var e struct {
			Decision struct{ ToolCallID string }
			Row      struct{ ToolCallID string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		calls[e.Decision.ToolCallID], calls[e.Row.ToolCallID] = true, true
	}
	return calls
}

// killedRound is a server that is killed while calls of every kind are under way.
type killedRound struct {
	p      *process
	random *rand.Rand
	runs   bool
}

// play sends calls without waiting, kills the server once so many were answered, and returns the ids
// of all that were answered.
func (r *killedRound) play(answers int) []string {
	p := r.p
	p.initialize()
	go func() {
		// The server goes away under the writer. Its input does not end, or it might leave before it is killed.
		for id := 10; id < 10+2*answers+64; id++ {
			if _, err := io.WriteString(p.in, r.request(id)); err != nil {
				return
			}
		}
	}()
	var ids []string
	out := bufio.NewScanner(p.out)
	out.Buffer(nil, 1<<20)
	for out.Scan() {
		var a answer
		if json.Unmarshal(out.Bytes(), &a) != nil || a.Method != "" || len(a.ID) == 0 {
			continue
		}
		if a.Error != nil {
			p.t.Errorf("call %s: %+v", a.ID, a.Error)
		}
		ids = append(ids, string(a.ID))
		if len(ids) == answers {
			if err := p.cmd.Process.Kill(); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	_ = p.cmd.Wait()
	return ids
}

func (r *killedRound) request(id int) string {
	call := func(tool, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", id, tool, args)
	}
	switch n := r.random.IntN(20); {
	case n < 5:
		return call("load_skill", `{"name":"demo","force":true}`)
	case n < 7 && r.runs:
		return call("run_skill_script", fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","args":["%d"]}`, id))
	case n < 11:
		return call("run_skill_script", `{"skill":"demo","path":"scripts/other.sh"}`)
	}
	return call("read_skill_resource", fmt.Sprintf(`{"skill":"demo","path":"references/notes.md","offset":%d}`, r.random.IntN(9)))
}

// Killed at any point, a server leaves records that verify and hold every call it answered, and what
// was shown can be shown again.
func TestKilledDuringCalls(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	root, state := tree(t, demoSkill()), t.TempDir()
	args := append([]string{"--state", state, "--log-level", "error"}, allowRun(root, "ok.sh")...)
	probe := serve(t, args...)
	probe.initialize()
	probe.tool("load_skill", map[string]any{"name": "demo"})
	ran := probe.script("ok.sh")
	runs := !strings.Contains(ran.text(), `"sandbox_unavailable"`)
	probe.end()
	known := sessionIDs(t, state)
	for answered := 0; answered < nightly.Size(300, 1000); {
		round := killedRound{p: serve(t, args...), random: random, runs: runs}
		ids := round.play(1 + random.IntN(140))
		answered += len(ids)
		all := sessionIDs(t, state)
		added := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(known, id) })
		known = all
		if len(added) != 1 {
			t.Fatalf("one server left sessions %v", added)
		}
		id := added[0]
		if out, code := session(t, state, "verify", id); code != 0 {
			t.Errorf("after %d answers verify exits %d: %s", len(ids), code, out)
		}
		recorded := recordedCalls(t, state, id)
		for _, call := range ids {
			if !recorded[call] {
				t.Errorf("call %s of session %s was answered and stands in no event", call, id)
			}
		}
		if out, code := session(t, state, "replay", id); code != 0 {
			t.Errorf("after %d answers replay exits %d: %s", len(ids), code, out)
		}
	}
	list, _ := session(t, state, "list")
	if got := strings.Count(list, "crashed"); got != len(known)-1 {
		t.Errorf("of %d servers that were killed %d are listed as crashed:\n%s", len(known)-1, got, list)
	}
	if !runs {
		t.Log("missing capability: a sandbox backend that can isolate; no script ran")
	}
}

// Two servers use one state directory and the same skills at the same time.
func TestTwoServersShareState(t *testing.T) {
	t.Parallel()
	root, state := tree(t, demoSkill()), t.TempDir()
	args := []string{"--state", state, "--log-level", "error", "--skills-root", root}
	a, b := serve(t, args...), serve(t, args...)
	for _, p := range []*process{a, b} {
		p.initialize()
	}
	for range 20 {
		for _, p := range []*process{a, b} {
			if got := p.tool("load_skill", map[string]any{"name": "demo", "force": true}); got.IsError {
				t.Errorf("load_skill: %s", got.text())
			}
		}
	}
	for _, p := range []*process{a, b} {
		p.end()
	}
	ids := sessionIDs(t, state)
	if len(ids) != 2 {
		t.Errorf("two servers left sessions %v", ids)
	}
	for _, id := range ids {
		if out, code := session(t, state, "verify", id); code != 0 {
			t.Errorf("verify exits %d: %s", code, out)
		}
	}
}

// A session that a server has open cannot be gone on with by another, nor deleted.
func TestSessionBelongsToOneServer(t *testing.T) {
	t.Parallel()
	root, state := tree(t, demoSkill()), t.TempDir()
	args := []string{"--state", state, "--log-level", "error", "--skills-root", root}
	p := serve(t, args...).loaded()
	id := sessionIDs(t, state)[0]
	second, _ := serving(t, append(args, "--resume", id)...)
	if out, err := second.CombinedOutput(); err == nil || second.ProcessState.ExitCode() != 1 {
		t.Errorf("a second server for session %s exits %d: %s", id, second.ProcessState.ExitCode(), out)
	}
	if out, code := session(t, state, "gc", "--older-than", "0d"); code != 0 || !strings.Contains(out, "kept "+id+": a process has the session open") {
		t.Errorf("gc beside a server exits %d: %s", code, out)
	}
	if got := p.tool("load_skill", map[string]any{"name": "demo", "force": true}); got.IsError {
		t.Errorf("load_skill after both: %s", got.text())
	}
	p.end()
	if out, code := session(t, state, "verify", id); code != 0 {
		t.Errorf("verify exits %d: %s", code, out)
	}
}

// A server whose record is removed says so to every call, and runs nothing.
func TestRecordRemovedUnderServer(t *testing.T) {
	t.Parallel()
	root, state := tree(t, demoSkill()), t.TempDir()
	p := serve(t, append([]string{"--state", state, "--log-level", "error"}, allowRun(root, "ok.sh")...)...)
	p.initialize()
	p.load()
	// A file may come while the others go.
	dir, tries := filepath.Join(state, "sessions", sessionIDs(t, state)[0]), 0
	for err := os.RemoveAll(dir); err != nil; err = os.RemoveAll(dir) {
		tries++
		if tries == 1000 {
			t.Fatal(err)
		}
	}
	for _, call := range []struct {
		tool string
		args map[string]any
	}{
		{"read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}},
		{"load_skill", map[string]any{"name": "demo", "force": true}},
		{"run_skill_script", demoScript("ok.sh")},
		{"run_skill_script", demoScript("other.sh")},
	} {
		got := p.tool(call.tool, call.args)
		if !got.IsError || !strings.Contains(got.text(), `"provenance_unavailable"`) || strings.Contains(got.text(), state) {
			t.Errorf("%s without a record: %v %s", call.tool, got.IsError, got.text())
		}
	}
}

// A last line that a crash cut short is dropped when the session goes on, and the record says so.
func TestTornLineIsDropped(t *testing.T) {
	t.Parallel()
	root, state := tree(t, demoSkill()), t.TempDir()
	args := []string{"--state", state, "--log-level", "error", "--skills-root", root}
	p := serve(t, args...).loaded()
	p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	id := sessionIDs(t, state)[0]
	record := filepath.Join(state, "sessions", id, "events.jsonl")
	file, err := os.OpenFile(record, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"seq":99,"time":"2026-`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if out, code := session(t, state, "verify", id); code != 0 {
		t.Errorf("verify of a record with a torn line exits %d: %s", code, out)
	}
	p = serve(t, append(args, "--resume", id)...)
	p.initialize()
	if got := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}); got.IsError {
		t.Errorf("read in the session that goes on: %s", got.text())
	}
	p.end()
	if out, code := session(t, state, "verify", id); code != 0 {
		t.Errorf("verify exits %d: %s", code, out)
	}
	if out, _ := session(t, state, "show", id); !strings.Contains(out, "dropped a torn last line of 23 bytes") || !strings.Contains(out, "session.ended") {
		t.Errorf("the session that went on is\n%s", out)
	}
}
