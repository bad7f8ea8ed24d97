package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLoadReadRun(t *testing.T) {
	t.Parallel()
	p := serve(t, demo(t, "ok.sh", "fail.sh")...)
	p.initialize()
	loaded := p.tool("load_skill", map[string]any{"name": "demo"})
	for _, want := range []string{"run_skill_script runs scripts (the skill is /skill there)", "----- skill demo ", "# Demo", "- scripts/ok.sh (runnable)\n"} {
		if !strings.Contains(loaded.text(), want) {
			t.Errorf("load_skill lacks %q:\n%s", want, loaded.text())
		}
	}
	for _, noise := range []string{"sha256:", "Activation: ", "Tier: "} {
		if strings.Contains(loaded.text(), noise) {
			t.Errorf("load_skill has %q:\n%s", noise, loaded.text())
		}
	}
	if loaded.StructuredContent != nil {
		t.Error("load_skill has structured content, which hides its text from clients")
	}
	read := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
	if read.text() != "Notes: äöü €\n" || read.IsError {
		t.Errorf("read_skill_resource = %q, %v", read.text(), read.IsError)
	}
	needSandbox(t, p)
	ran := p.script("ok.sh", "a b", "$HOME")
	if ran.IsError || !strings.HasPrefix(ran.text(), "exit 0 in ") || !strings.Contains(ran.text(), "stdout:\nran-ok a b $HOME\n") {
		t.Errorf("run_skill_script = %v %q", ran.IsError, ran.text())
	}
	failed := p.script("fail.sh")
	if failed.IsError || !strings.HasPrefix(failed.text(), "exit 7 in ") || !strings.Contains(failed.text(), "stderr:\nerr\n") {
		t.Errorf("a non-zero exit is a normal result: %v %q", failed.IsError, failed.text())
	}
	denied := p.script("other.sh")
	var object struct{ Type, Reason, Code, Skill, Path, Remedy, EventID string }
	if err := json.Unmarshal(denied.object(), &object); err != nil {
		t.Fatal(err)
	}
	if !denied.IsError || object.Type != "cf-harness.observation-denied" || object.Code != "script_not_allowlisted" || object.Reason != "not-authorized" {
		t.Errorf("a script that is not allowlisted: %+v", object)
	}
	if string(denied.StructuredContent) != string(denied.object()) {
		t.Errorf("structured content %s differs from the text %s", denied.StructuredContent, denied.text())
	}
	if want := "Refused: demo:scripts/other.sh is not allowed.\n"; !strings.HasPrefix(denied.text(), want) || strings.Count(denied.text(), "\n") != 1 {
		t.Errorf("a denial begins with %q, want %q", denied.text(), want)
	}
	// What does not exist is said to be missing, with what is near, under the code of what is refused.
	for _, ask := range []struct{ tool, path, code, want, remedy string }{
		{"run_skill_script", "scripts/othr.sh", "script_not_allowlisted", "Refused: the skill has no such script: demo:scripts/othr.sh.\n", `did you mean "scripts/ok.sh"? else use one of: scripts/`},
		{"read_skill_resource", "reference/note.md", "resource_not_indexed", "The skill demo has no file reference/note.md.\n", `did you mean "references/notes.md"? else use one of: `},
	} {
		got := p.tool(ask.tool, map[string]any{"skill": "demo", "path": ask.path})
		var object struct{ Remedy string }
		json.Unmarshal(got.object(), &object)
		if !got.IsError || got.code() != ask.code || !strings.HasPrefix(got.text(), ask.want) ||
			!strings.HasPrefix(object.Remedy, ask.remedy) {
			t.Errorf("%s %s: %s, want %s: %s %s", ask.tool, ask.path, got.text(), ask.code, ask.want, ask.remedy)
		}
	}
	p.end()
}

// A call that was cancelled right behind its request is not answered, and its script is dead.
func TestCancelKillsScript(t *testing.T) {
	p := serve(t, demo(t, "ok.sh", "sleep.sh")...).loaded()
	needSandbox(t, p)
	for id := 100; id < 110; id++ {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/sleep.sh"}}}`, id))
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	}
	p.send(`{"jsonrpc":"2.0","id":999,"method":"ping"}`)
	if line := p.receive(); !strings.Contains(line, `"id":999`) {
		t.Errorf("a cancelled call was answered: %s", line)
	}
	p.end()
	assertNoScripts(t)
}

// A client that leaves while a script runs takes the script with it.
func TestClientLeavesMidCall(t *testing.T) {
	state := t.TempDir()
	p := serve(t, append([]string{"--state", state}, demo(t, "ok.sh", "sleep.sh")...)...).loaded()
	needSandbox(t, p)
	p.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/sleep.sh"},"_meta":{"progressToken":"p"}}}`)
	for !strings.Contains(p.receive(), `"running"`) {
	}
	p.end()
	assertNoScripts(t)
	out := skillsd(t, 0, "session", "show", "latest", "--state", state)
	if !strings.Contains(out, "canceled") {
		t.Errorf("the run is not recorded as canceled%s", out)
	}
	skillsd(t, 0, "session", "verify", "latest", "--state", state)
}

// assertNoScripts looks for a script of the tests that outlived its run.
func assertNoScripts(t *testing.T) {
	t.Helper()
	if scriptRuns(t) {
		t.Errorf("%s still runs", sleepScript)
	}
}

// 100 MB of junk on stdin is answered, not served, and costs no memory to speak of.
func TestJunkOnStdin(t *testing.T) {
	p := serve(t, "--skills-root", tree(t, demoSkill()))
	p.initialize()
	junk := strings.Repeat("junk ", 200) + "\n"
	written := make(chan error, 1)
	go func() {
		for range 100 {
			if _, err := io.WriteString(p.in, strings.Repeat(junk, 500)+strings.Repeat("x", 500_000)+"\n"); err != nil {
				written <- err
				return
			}
		}
		_, err := io.WriteString(p.in, `{"jsonrpc":"2.0","id":7,"method":"ping"}`+"\n")
		written <- err
	}()
	for {
		line := p.receive()
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("the server wrote %q", line)
		}
		if string(a.ID) == "7" {
			break
		}
		if a.Error == nil || string(a.ID) != "null" {
			t.Fatalf("junk was answered with %s", line)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if peak := peakMemory(t, p.cmd.Process.Pid); peak > 128<<20 {
		t.Errorf("the server grew to %d MiB", peak>>20)
	}
}

// peakMemory is the most resident memory a process had, in bytes.
func peakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if os.IsNotExist(err) {
		t.Skip("missing capability: /proc/PID/status")
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM in /proc/PID/status")
	return 0
}

// SIGTERM, or a terminal that is closed, ends the server as EOF does.
func TestSignals(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		p := serve(t, "--skills-root", tree(t, demoSkill()))
		p.initialize()
		if err := p.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := p.leave(); err != nil {
			t.Errorf("%v: exit %v", signal, err)
		}
	}
}

// A skill that hides itself from models is read by URI once the operator preloads it, and stays out of lists.
func TestPreloadedHiddenSkill(t *testing.T) {
	root := tree(t, map[string]string{"shy/SKILL.md": "---\nname: shy\ndescription: Shy.\ndisable-model-invocation: true\n---\nWords.\n", "open/SKILL.md": "---\nname: open\ndescription: Open.\n---\n"})
	for _, preload := range []bool{false, true} {
		args := []string{"--skills-root", root}
		if preload {
			args = append(args, "--skill", "shy")
		}
		p := serve(t, args...)
		p.initialize()
		for _, ask := range []struct{ method, uri string }{
			{"resources/read", "skill://shy/SKILL.md"}, {"skills/get", "skill://shy/SKILL.md"}, {"resources/directory/read", "skill://shy"},
		} {
			if a := p.ask(ask.method, fmt.Sprintf(`{"uri":%q}`, ask.uri)); (a.Error == nil) != preload {
				t.Errorf("%s, preloaded %v: %s %+v", ask.method, preload, a.Result, a.Error)
			}
		}
		if read := p.tool("read_skill_resource", map[string]any{"skill": "shy", "path": "SKILL.md"}); read.IsError == preload {
			t.Errorf("read_skill_resource, preloaded %v: %s", preload, read.text())
		}
		for _, method := range []string{"resources/list", "skills/list", "tools/list"} {
			if a := p.ask(method, "{}"); !strings.Contains(string(a.Result), "open") || strings.Contains(string(a.Result), "shy") {
				t.Errorf("%s, preloaded %v: %s", method, preload, a.Result)
			}
		}
	}
}

// The files of a skill are read as resources by URI, in both eras; a changed file is not.
func TestResources(t *testing.T) {
	root := tree(t, demoSkill())
	p := serve(t, "--skills-root", root)
	p.initialize()
	modern := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"}}`
	for _, meta := range map[int]string{10: `"_meta":{}`, 20: modern} {
		list := p.ask("resources/list", "{"+meta+"}")
		var listed struct {
			Resources []struct{ URI, Name string }
		}
		if err := json.Unmarshal(list.Result, &listed); err != nil {
			t.Fatalf("%v: %+v", err, list)
		}
		var uris []string
		for _, resource := range listed.Resources {
			uris = append(uris, resource.URI)
		}
		const want = "skill://demo/SKILL.md"
		if got := strings.Join(uris, " "); got != want {
			t.Errorf("resources/list = %s\nwant %s", got, want)
		}
		read := p.ask("resources/read", `{"uri":"skill://demo/references/notes.md",`+meta+"}")
		if !strings.Contains(string(read.Result), "Notes: äöü €") {
			t.Errorf("resources/read = %s %+v", read.Result, read.Error)
		}
		missing := p.ask("resources/read", `{"uri":"skill://demo/../../etc/passwd",`+meta+"}")
		if missing.Error == nil || strings.Contains(missing.Error.Message, root) {
			t.Errorf("resources/read of a path outside = %s %+v", missing.Result, missing.Error)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "demo/references/notes.md"), []byte("changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read := p.ask("resources/read", `{"uri":"skill://demo/references/notes.md"}`)
	if read.Error == nil || !strings.Contains(string(read.Error.Data), "resource_changed") {
		t.Errorf("resources/read of a changed file = %s %+v", read.Result, read.Error)
	}
	again := p.ask("resources/read", `{"uri":"skill://demo/references/notes.md"}`)
	if !strings.Contains(string(again.Result), "changed") {
		t.Errorf("resources/read after the rescan = %s %+v", again.Result, again.Error)
	}
}

// What changed after it was loaded does not run.
// A model that calls run_skill_script of a server that offers no scripts gets a denial, which is recorded.
func TestToolNotOffered(t *testing.T) {
	p := serve(t, "--skills-root", "builtin="+tree(t, demoSkill()))
	p.initialize()
	got := p.script("ok.sh")
	var object struct{ Type, Code, Remedy, RuleID string }
	json.Unmarshal(got.StructuredContent, &object)
	const first = "Refused: this server does not offer run_skill_script.\n"
	if !got.IsError || object.Code != "tool_not_allowed" || object.Type != "cf-harness.observation-denied" ||
		object.Remedy == "" || !strings.HasPrefix(got.text(), first) {
		t.Errorf("run_skill_script = %v %s %s", got.IsError, got.text(), got.StructuredContent)
	}
	unknown := p.ask("tools/call", `{"name":"write_skill","arguments":{}}`)
	if unknown.Error == nil || unknown.Error.Code != -32602 {
		t.Errorf("an unknown tool: %+v", unknown)
	}
	if events, _ := p.artifact("skillsd://session/events.jsonl"); !strings.Contains(events, "tool_not_allowed") {
		t.Errorf("not recorded: %s", events)
	}
}

func TestDriftIsRefused(t *testing.T) {
	root := tree(t, demoSkill())
	p := serve(t, allowRun(root, "ok.sh")...).loaded()
	if err := os.WriteFile(filepath.Join(root, "demo/references/notes.md"), []byte("evil\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
	if !strings.HasPrefix(read.text(), "[changed since it was loaded: sha256:") || !strings.HasSuffix(read.text(), "evil\n") {
		t.Errorf("read_skill_resource of a changed file = %q", read.text())
	}
	for range 2 {
		denied := p.script("ok.sh")
		if !denied.IsError || !strings.Contains(denied.text(), "script_snapshot_mismatch") {
			t.Errorf("run of a changed skill = %q", denied.text())
		}
		// Loading again shows the new text, and does not approve it.
		p.tool("load_skill", map[string]any{"name": "demo"})
	}
}

// In enforce-strict a read needs evidence too: a tool answers with the denial, a method with an
// error that carries it. The evidence may come with the call.
func TestStrictReads(t *testing.T) {
	p := serve(t, "--skills-root", tree(t, demoSkill()), "--cfc-enforcement-mode", "enforce-strict")
	p.initialize()
	if denied := p.tool("load_skill", map[string]any{"name": "demo"}); !denied.IsError || !strings.Contains(denied.text(), `"ruleId":"cfc_enforce_strict_requires_direct_command"`) {
		t.Errorf("load_skill = %s", denied.text())
	}
	read := p.ask("resources/read", `{"uri":"skill://demo/SKILL.md"}`)
	if read.Error == nil || read.Error.Code != 1403 || !strings.Contains(string(read.Error.Data), `"type":"cf-harness.observation-denied"`) {
		t.Errorf("resources/read = %s %+v", read.Result, read.Error)
	}
	slot := `"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"t","role":"direct-command","kernelName":"k","surface":"s"}`
	if loaded := p.toolWith("load_skill", map[string]any{"name": "demo"}, "{"+slot+"}"); loaded.IsError {
		t.Errorf("load_skill with evidence = %s", loaded.text())
	}
	read = p.ask("resources/read", `{"uri":"skill://demo/SKILL.md","_meta":{`+slot+`}}`)
	if !strings.Contains(string(read.Result), "# Demo") {
		t.Errorf("resources/read with evidence = %s %+v", read.Result, read.Error)
	}
	if lowered := p.toolWith("load_skill", map[string]any{"name": "demo"}, `{"skillsd/mode":"disabled"}`); !lowered.IsError {
		t.Error("a client lowered the mode")
	}
}
