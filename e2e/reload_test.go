package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// untilNotified reads lines until the notification of that name and returns what came before it.
func (p *process) untilNotified(method string) (others []string) {
	p.t.Helper()
	for {
		line := p.receive()
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			p.t.Fatalf("the server wrote %q: %v", line, err)
		}
		if a.Method == method {
			return others
		}
		others = append(others, a.Method)
	}
}

func (p *process) loadDescription() string {
	p.t.Helper()
	var list struct {
		Tools []struct{ Name, Description string }
	}
	if err := json.Unmarshal(p.ask("tools/list", "{}").Result, &list); err != nil {
		p.t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Name == "load_skill" {
			return tool.Description
		}
	}
	return ""
}

const (
	toolsChanged     = "notifications/tools/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
)

// What changes on disk reaches a client that listens: one notification for many files, the new
// catalogue behind it, and a session keeps what it loaded.
func TestReload(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	p := serve(t, "--skills-root", root)
	p.initialize()
	if d := p.loadDescription(); !strings.Contains(d, "demo: A skill for tests.") || strings.Contains(d, "late-") {
		t.Fatalf("description at start: %q", d)
	}
	before := p.tool("load_skill", map[string]any{"name": "demo"})

	// Each change is one rename, or a pause of the machine in the middle of it would be told of.
	staging := tree(t, map[string]string{
		"late/late-one/SKILL.md": "---\nname: late-one\ndescription: Came later.\n---\nBody one.\n", "late/late-one/references/a.md": "a",
		"late/late-two/SKILL.md": "---\nname: late-two\ndescription: Came later too.\n---\nBody two.\n",
		"edited.md":              strings.Replace(demoSkill()["demo/SKILL.md"], "A skill for tests.", "Edited since.", 1),
	})
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(filepath.Join(staging, "late"), filepath.Join(root, "late"))
	p.untilNotified(toolsChanged)
	p.untilNotified(resourcesChanged)
	d := p.loadDescription()
	if !strings.Contains(d, "late-one: Came later.") || !strings.Contains(d, "late-two: Came later too.") {
		t.Errorf("description after the change: %q", d)
	}
	if text := p.tool("load_skill", map[string]any{"name": "late-two"}).text(); !strings.Contains(text, "Body two.") {
		t.Errorf("load of a skill that came later: %q", text)
	}

	move(filepath.Join(staging, "edited.md"), filepath.Join(root, "demo", "SKILL.md"))
	p.untilNotified(resourcesChanged) // of tools a client hears once a minute
	if d := p.loadDescription(); !strings.Contains(d, "demo: Edited since.") {
		t.Errorf("description after the edit: %q", d)
	}
	read := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "SKILL.md"}).text()
	if !strings.HasPrefix(read, "[changed since it was loaded: ") {
		t.Errorf("the session forgot what it had loaded: %q", read)
	}
	after := p.tool("load_skill", map[string]any{"name": "demo"})
	if loadedTree(before) == loadedTree(after) || handleOf(before) != handleOf(after) {
		t.Errorf("loaded again:\n%s", after.text())
	}

	move(filepath.Join(root, "late", "late-one"), filepath.Join(staging, "late-one"))
	p.untilNotified(resourcesChanged)
	if d := p.loadDescription(); strings.Contains(d, "late-one") || !strings.Contains(d, "late-two") {
		t.Errorf("description after a skill was removed: %q", d)
	}
	p.end()
}

// loadedTree returns the digest of the files of a skill that was loaded.
func loadedTree(r toolResult) string {
	var loaded struct{ TreeDigest string }
	json.Unmarshal(r.Meta["skillsd/result"], &loaded)
	return loaded.TreeDigest
}

// untilLogged waits for a word in the server's log.
func (p *process) untilLogged(word string) {
	p.t.Helper()
	if !p.stderr.until(func(text string) bool { return strings.Contains(text, word) }) {
		p.t.Fatalf("the log does not speak of %s:\n%s", word, p.stderr)
	}
}

// A root that disappears leaves its last good skills, with a word to the operator, and what comes
// back is served.
func TestRootDisappears(t *testing.T) {
	t.Parallel()
	base := tree(t, map[string]string{"one/demo/SKILL.md": demoSkill()["demo/SKILL.md"], "two/other/SKILL.md": "---\nname: other\ndescription: Another.\n---\nOther body.\n"})
	one, away := filepath.Join(base, "one"), filepath.Join(base, "away")
	p := serve(t, "--skills-root", one, "--skills-root", filepath.Join(base, "two"))
	p.initialize()
	p.loadDescription()
	if err := os.Rename(one, away); err != nil {
		t.Fatal(err)
	}
	p.untilLogged("unreadable-root")
	// The other root's change comes in one generation with the loss.
	if err := os.WriteFile(filepath.Join(base, "two", "other", "SKILL.md"), []byte("---\nname: other\ndescription: Changed.\n---\nOther body.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.untilNotified(toolsChanged)
	p.untilNotified(resourcesChanged)
	if d := p.loadDescription(); !strings.Contains(d, "other: Changed.") || !strings.Contains(d, "demo: A skill for tests.") {
		t.Errorf("description after a root disappeared: %q", d)
	}
	if err := os.Rename(away, one); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "two", "other", "SKILL.md"), []byte("---\nname: other\ndescription: Changed again.\n---\nOther body.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.untilNotified(resourcesChanged)
	if text := p.tool("load_skill", map[string]any{"name": "demo"}).text(); !strings.Contains(text, "Do it.") {
		t.Errorf("load after the root came back: %q", text)
	}
	p.end()
}

// An approval does not follow a reload: a script that changed while the server watched is refused,
// although the session loads the new version.
func TestReloadDoesNotCarryApproval(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	p := serve(t, "--skills-root", root, "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh", "--prompt-slot-role", "direct-command").loaded()
	needSandbox(t, p)
	run := demoScript("ok.sh")
	if result := p.tool("run_skill_script", run); result.IsError || !strings.Contains(result.text(), "ran-ok") {
		t.Fatalf("run before the change: %q", result.text())
	}
	if err := os.WriteFile(filepath.Join(root, "demo", "scripts", "ok.sh"), []byte("#!/bin/bash\necho ran-changed\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.untilNotified(resourcesChanged)
	p.tool("load_skill", map[string]any{"name": "demo"})
	if result := p.tool("run_skill_script", run); !result.IsError || !strings.Contains(result.text(), "script_snapshot_mismatch") {
		t.Errorf("run after the change: %q", result.text())
	}
}

// Without a watch the server keeps to what it scanned.
func TestNoWatch(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	p := serve(t, "--no-watch", "--skills-root", root)
	p.initialize()
	before := p.loadDescription()
	if err := os.MkdirAll(filepath.Join(root, "late"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "late", "SKILL.md"), []byte("---\nname: late\ndescription: d\n---\nB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if after := p.loadDescription(); after != before {
		t.Errorf("the catalogue changed: %q", after)
	}
	var modern struct {
		TTLMs *int64 `json:"ttlMs"`
	}
	params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`
	if err := json.Unmarshal(p.ask("tools/list", params).Result, &modern); err != nil || modern.TTLMs == nil || *modern.TTLMs != 60_000 {
		t.Errorf("a list that is not watched may be kept for %v ms, want 60000 (%v)", modern.TTLMs, err)
	}
}

// search_skills is listed when the catalogue is cut, or when the operator wants it, and only then. It answers
// also where it is not listed: a client may have a list of before.
func TestSearchTool(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	p := serve(t, "--skills-root", root)
	p.initialize()
	p.loadDescription()
	if unknown := p.ask("tools/call", `{"name":"no_such_tool","arguments":{}}`); unknown.Error == nil || unknown.Error.Code != -32602 {
		t.Errorf("a tool that does not exist: %+v", unknown.Error)
	}
	if tools := p.ask("tools/list", "{}"); strings.Contains(string(tools.Result), "search_skills") {
		t.Errorf("tools/list = %s", tools.Result)
	}
	if found := p.tool("search_skills", map[string]any{"query": "tests"}); found.IsError || !strings.Contains(found.text(), "demo") {
		t.Errorf("search_skills of an earlier list = %s", found.text())
	}
	p = serve(t, "--search", "always", "--skills-root", root)
	p.initialize()
	found := p.tool("search_skills", map[string]any{"query": "test"}).text()
	if !strings.HasPrefix(found, "1 of 1 skills that match, best first:\ndemo: A skill for tests.\n") {
		t.Errorf("search = %q", found)
	}
}

// A client that lists the tools once hears with its next result what changed since, once, in one line; one that
// lists them again does not. A skill that was removed is refused as such by every tool.
func TestNews(t *testing.T) {
	t.Parallel()
	skill := func(name, description string) string {
		return "---\nname: " + name + "\ndescription: " + description + "\n---\nText.\n"
	}
	root := tree(t, map[string]string{"set/old/SKILL.md": skill("old", "Is old."), "set/gone/SKILL.md": skill("gone", "Is gone."), "set/gone/scripts/a.sh": "#!/bin/sh\n"})
	staging := tree(t, map[string]string{"set/old/SKILL.md": skill("old", "Is other."), "set/new/SKILL.md": skill("new", `"Is new\nIgnore [this]"`)})
	p := serve(t, "--skills-root", root, "--allow-tool", "run_skill_script", "--allow-skill-script", "set/gone:scripts/a.sh", "--prompt-slot-role", "direct-command")
	p.initialize()
	p.loadDescription()
	if text := p.tool("load_skill", map[string]any{"name": "gone"}).text(); strings.Contains(text, "Skills changed") {
		t.Errorf("without a change: %q", text)
	}
	for _, move := range [][2]string{{filepath.Join(root, "set"), filepath.Join(staging, "away")}, {filepath.Join(staging, "set"), filepath.Join(root, "set")}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	for id := 4; ; id++ {
		p.untilNotified(resourcesChanged)
		if p.ask("resources/read", `{"uri":"skill://set/new/SKILL.md"}`).Error == nil {
			break
		}
	}
	const news = `[Skills changed since your list of them: added "set/new" ("Is new Ignore [this]"); changed "set/old"; removed "set/gone"]`
	for i, call := range []struct {
		tool string
		args map[string]any
	}{
		{"load_skill", map[string]any{"name": "gone"}},
		{"read_skill_resource", map[string]any{"skill": "gone", "path": "SKILL.md"}},
		{"run_skill_script", map[string]any{"skill": "gone", "path": "scripts/a.sh"}},
	} {
		result := p.tool(call.tool, call.args)
		if !result.IsError || !strings.Contains(result.text(), "was removed") || !json.Valid(result.object()) {
			t.Errorf("%s of a skill that was removed: %q", call.tool, result.text())
		}
		if first := result.Content[0].Text == news+"\n"; first != (i == 0) {
			t.Errorf("%s begins with %q; want the news: %v", call.tool, result.Content[0].Text, i == 0)
		}
	}
	if err := os.Rename(filepath.Join(root, "set", "new"), filepath.Join(staging, "new")); err != nil {
		t.Fatal(err)
	}
	p.untilNotified(resourcesChanged)
	p.loadDescription()
	if text := p.tool("load_skill", map[string]any{"name": "old"}).text(); strings.Contains(text, "Skills changed") {
		t.Errorf("after the tools were listed again: %q", text)
	}
	if err := os.Rename(filepath.Join(staging, "new"), filepath.Join(root, "set", "new")); err != nil {
		t.Fatal(err)
	}
	p.untilNotified(resourcesChanged)
	result := p.tool("load_skill", map[string]any{"name": "old"})
	if last := result.Content[len(result.Content)-1].Text; result.IsError || last != `[Skills changed since your list of them: added "set/new" ("Is new Ignore [this]")]` {
		t.Errorf("a load ends with %q", last)
	}
	p.end()
}

// A skill that came to require what is not here is refused with that cause, also where it was loaded before.
func TestLoadOfWhatBecameUnavailable(t *testing.T) {
	t.Parallel()
	root := tree(t, demoSkill())
	p := serve(t, "--skills-root", root).loaded()
	text := strings.Replace(demoSkill()["demo/SKILL.md"], "---\n", "---\nrequires: {bins: [no-such-program]}\n", 1)
	if err := os.WriteFile(filepath.Join(root, "demo", "SKILL.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if result := p.tool("load_skill", map[string]any{"name": "demo"}); !result.IsError || !strings.Contains(result.text(), "requires the command") {
		t.Errorf("load = %s", result.text())
	}
	p.end()
}

// A client that connects before there is any skill has all tools, and is served what the user installs, or puts
// into a directory that is made for it.
func TestFirstSkill(t *testing.T) {
	t.Parallel()
	home, work, state := t.TempDir(), t.TempDir(), t.TempDir()
	skillsd := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, append(args, "--state", state)...)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home)
		return cmd
	}
	p := start(t, skillsd("serve", "--log-format", "json", "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh"))
	p.initialize()
	d := p.loadDescription()
	for _, part := range []string{"No skill is there yet.", ".claude/skills", "skillsd install"} {
		if !strings.Contains(d, part) || strings.Contains(d, home) || strings.Contains(d, work) {
			t.Errorf("without a skill load_skill is described as %q", d)
		}
	}
	text := p.tool("load_skill", map[string]any{"name": "late"}).text()
	if !strings.Contains(text, "no skill is there yet; ask the user to install some") {
		t.Errorf("load without a skill: %q", text)
	}
	source := tree(t, demoSkill())
	if out, err := skillsd("install", source, "--tier", "user").CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	p.untilNotified(toolsChanged)
	result := p.tool("load_skill", map[string]any{"name": "demo"})
	if text := result.text(); result.IsError || !strings.Contains(text, `added "demo"`) {
		t.Errorf("load of the first skill that was installed: %q", text)
	}
	for _, dir := range []string{filepath.Join(home, ".agents", "skills", "late"), filepath.Join(work, ".claude", "skills", "near")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("---\ndescription: Came later.\n---\nText.\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for id := 5; p.ask("resources/read", `{"uri":"skill://late/SKILL.md"}`).Error != nil || p.ask("resources/read", `{"uri":"skill://near/SKILL.md"}`).Error != nil; id++ {
		p.untilNotified(resourcesChanged)
	}
	text = p.tool("load_skill", map[string]any{"name": "never"}).text()
	if strings.Contains(text, "install") || !strings.Contains(text, "late") || !strings.Contains(text, "near") {
		t.Errorf("load of an unknown skill: %q", text)
	}
	p.end()
}
