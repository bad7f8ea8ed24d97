package e2e

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// example is a copy of an example, in a clean home directory with the program in PATH.
func example(t *testing.T, name string) *reader {
	t.Helper()
	r := newReader(t)
	if err := os.CopyFS(filepath.Join(r.home, name), os.DirFS(filepath.Join("../.github/examples", name))); err != nil {
		t.Fatal(err)
	}
	// What is committed as a program is one in the copy.
	for _, f := range []string{"team/skills/change-log/scripts/group.sh"} {
		if err := os.Chmod(filepath.Join(r.home, f), 0o755); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	r.work = filepath.Join(r.home, name)
	return r
}

// follow runs the blocks of the example's page in their order, and returns those that start a server. Words of
// the page are replaced first.
func (r *reader) follow(words ...string) (servers []string) {
	r.t.Helper()
	commands := 0
	for _, f := range fences(r.t, filepath.Join(r.work, "README.md")) {
		f.text = strings.NewReplacer(words...).Replace(f.text)
		switch f.kind {
		case "sh":
			commands++
			r.shell(f.at, f.text)
		case "console":
			commands += r.console(f)
		case "sh serve":
			servers = append(servers, f.text)
		default:
			r.t.Errorf("%s: unknown kind of block %q", f.at, f.kind)
		}
	}
	if commands < 2 {
		r.t.Errorf("%s has %d blocks of commands", r.work, commands)
	}
	return servers
}

// TestExampleTeam starts the server of a team; a member runs a script, and the bot sees one skill only.
func TestExampleTeam(t *testing.T) {
	for _, name := range []string{"sh", "openssl", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing", name)
		}
	}
	r := example(t, "team")
	servers := r.follow()
	if len(servers) != 1 {
		t.Fatalf("%d servers", len(servers))
	}
	cmd := exec.Command("sh", "-c", "exec "+strings.TrimSpace(servers[0])+" --http 127.0.0.1:0 --log-format json")
	cmd.Dir, cmd.Env = r.work, r.env
	s := &site{process: start(t, cmd)}
	endpoint := "http://" + s.addr() + "/mcp"
	connect := func(member string) *mcp.ClientSession {
		token, err := os.ReadFile(filepath.Join(r.work, member+".token"))
		if err != nil {
			t.Fatal(err)
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint,
			HTTPClient: &http.Client{Transport: bearer{token: strings.TrimSpace(string(token))}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
		return session
	}
	alice, bot := connect("alice"), connect("bot")
	if got := toolNames(t, alice); !slices.Contains(got, "run_skill_script") {
		t.Errorf("alice has %q", got)
	}
	if got := toolNames(t, bot); slices.Contains(got, "run_skill_script") || !slices.Contains(got, "load_skill") {
		t.Errorf("the bot has %q", got)
	}
	if text := called(t, bot, "load_skill", map[string]any{"name": "change-log"}); !strings.Contains(text,
		"profile_excludes") {
		t.Errorf("the bot loads change-log: %s", text)
	}
	if text := called(t, bot, "load_skill", map[string]any{"name": "house-style"}); !strings.Contains(text,
		"at most 60 characters") {
		t.Errorf("the bot loads house-style: %s", text)
	}
	called(t, alice, "load_skill", map[string]any{"name": "change-log"})
	if !canIsolate(t) {
		t.Skip("no sandbox isolates here: the script is not run")
	}
	text := called(t, alice, "run_skill_script", map[string]any{"skill": "change-log", "path": "scripts/group.sh",
		"stdin": "parser: accept empty lines\nlexer: be fast\nparser: name the line\n"})
	if !strings.Contains(text, "## lexer\n- be fast\n## parser\n- accept empty lines\n- name the line") {
		t.Errorf("group.sh: %s", text)
	}
}

func toolNames(t *testing.T, session *mcp.ClientSession) (names []string) {
	t.Helper()
	listed, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range listed.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// called returns the text of a tool's answer, also of an error.
func called(t *testing.T, session *mcp.ClientSession, tool string, args map[string]any) string {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, content := range result.Content {
		if part, ok := content.(*mcp.TextContent); ok {
			text.WriteString(part.Text)
		}
	}
	return text.String()
}

// TestExampleCI locks the skills of a repository, installs them from the lock file, and checks it as the workflow
// does: with a skill that changed, it fails.
func TestExampleCI(t *testing.T) {
	for _, name := range []string{"sh", "git", "bash"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing", name)
		}
	}
	r := example(t, "ci")
	r.shell("a repository of skills", `
cd "$HOME"
mkdir acme
cp -r testdata/skills acme/skills
cd acme
git init -q .
git add .
git -c user.name=a -c user.email=a@example.com commit -qm skills`)
	source := "file://" + filepath.Join(r.home, "acme", ".git")
	r.follow("https://github.com/acme/skills", source)
	if text, _, ok := checkAction(t, r.work, "SKILLS_LOCK=skillsd.lock"); !ok {
		t.Errorf("the check of the lock file fails: %s", text)
	}
	lock := filepath.Join(r.work, "skillsd.lock")
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "sha256:") + len("sha256:")
	changed := string(text[:at]) + strings.Repeat("0", 64) + string(text[at+64:])
	if err := os.WriteFile(lock, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, _, ok := checkAction(t, r.work, "SKILLS_LOCK=skillsd.lock"); ok {
		t.Errorf("a lock file that was changed passes: %s", text)
	}
	// The workflow gives the action inputs that it has.
	action := yamlOf(t, ".github/actions/skills/action.yml")
	inputs, _ := action["inputs"].(map[string]any)
	for _, step := range stepsOf(yamlOf(t, ".github/examples/ci/skills.yml")) {
		with, _ := step["with"].(map[string]any)
		uses, _ := step["uses"].(string)
		for name := range with {
			if strings.HasPrefix(uses, "skillsd/") && inputs[name] == nil {
				t.Errorf("the action has no input %s", name)
			}
		}
	}
}

// TestExamplePackages makes the environment of a skill from an index on this machine, and runs its script.
func TestExamplePackages(t *testing.T) {
	if !canIsolate(t) {
		t.Skip("no sandbox isolates here")
	}
	if exec.Command("python3", "-m", "pip", "--version").Run() != nil {
		t.Skip("pip is missing")
	}
	r := example(t, "packages")
	index, err := newPackageIndex("")
	if err != nil {
		t.Fatal(err)
	}
	defer index.server.Close()
	// What the page shows is drawn by the package itself; this one draws two columns alike.
	index.files["tabulate-0.9.0-py3-none-any.whl"] = wheelOf("tabulate", "0.9.0", map[string]string{
		"tabulate.py": `def tabulate(rows, headers=()):
    widths = [max([len(h) + 2] + [len(r[i]) for r in rows]) for i, h in enumerate(headers)]
    lines = [headers, ["-" * w for w in widths]] + rows
    return "\n".join("%-*s  %*s" % (widths[0], l[0], widths[1], l[1]) for l in lines)
`})
	config := filepath.Join(r.work, "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "index: {python: "+index.server.URL+"/simple}\n"...)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.follow()
	lock, err := os.ReadFile(filepath.Join(r.work, "environments.lock.json"))
	if err != nil || !strings.Contains(string(lock), "tabulate") {
		t.Errorf("the lock of environments: %v: %s", err, lock)
	}
}
