package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const readmePath = "../README.md"

// topicPaths returns the files of the help topics.
func topicPaths(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../cmd/skillsd/topics/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no topics: %v", err)
	}
	return paths
}

// fence is a block of a page between ``` lines.
type fence struct {
	at         string // file and line
	kind, text string
}

func fences(t *testing.T, page string) []fence {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []fence
	open := false
	for i, line := range strings.SplitAfter(string(raw), "\n") {
		kind, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !open:
			found, open = append(found, fence{at: fmt.Sprintf("%s:%d", filepath.Base(page), i+1), kind: strings.TrimSpace(kind)}), true
		case isFence:
			open = false
		case open:
			found[len(found)-1].text += line
		}
	}
	return found
}

// reader is somebody who follows the README, with an empty home directory, the program and a clone.
type reader struct {
	t        *testing.T
	home     string
	work     string // where commands are typed
	env      []string
	sessions bool
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, home: t.TempDir()}
	program := filepath.Join(r.home, "go", "bin", "skillsd")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"testdata/skills", "skills"} {
		if err := os.CopyFS(filepath.Join(r.home, filepath.FromSlash(dir)), os.DirFS("../testdata/skills")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Dir(program) + ":" + os.Getenv("PATH")
	if *clients != "" {
		path = clientPath(t, "claude") + ":" + clientPath(t, "codex") + ":" + path
	}
	r.work = r.home
	r.env = []string{"HOME=" + r.home, "PATH=" + path, "TMPDIR=" + os.TempDir()}
	return r
}

// shell runs commands as they are written and returns their output.
func (r *reader) shell(at, commands string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-ec", commands)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.work, r.env, patience
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 && strings.HasPrefix(commands, "skillsd doctor") {
		return string(out) // a missing sandbox is a finding, not a failure of the command
	}
	if err != nil {
		r.t.Errorf("%s: %v\n%s\n%s", at, err, commands, said.Bytes())
	}
	return string(out)
}

// serves starts a server as it is written, but on a free port, and stops it when it listens.
func (r *reader) serves(at, command string) {
	r.t.Helper()
	cmd := exec.Command("sh", "-c", "exec env "+regexp.MustCompile(`(--http|--metrics) \S+`).ReplaceAllString(strings.TrimSpace(command), "$1 127.0.0.1:0")+" --log-format json")
	cmd.Dir, cmd.Env = r.home, r.env
	p := start(r.t, cmd)
	if !strings.Contains(command, "--http") {
		p.in.Close()
	} else {
		p.addr()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		r.t.Errorf("%s: %s: %v\n%s", at, command, err, p.stderr)
	}
}

// use makes a session that can be read about: a client loads a skill.
func (r *reader) use() {
	r.t.Helper()
	if r.sessions {
		return
	}
	r.sessions = true
	cmd := exec.Command("skillsd", "serve")
	cmd.Path, cmd.Dir, cmd.Env = filepath.Join(r.home, "go", "bin", "skillsd"), r.home, r.env
	cmd.Err = nil
	p := start(r.t, cmd)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"load_skill","arguments":{"name":"text-stats"}}}`,
	} {
		p.send(line)
		p.receive()
	}
	p.in.Close()
	if err := cmd.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

const inspector = "npx @modelcontextprotocol/inspector"

// setsUp matches commands that need the client itself.
var setsUp = regexp.MustCompile(`^skillsd setup (claude|codex) .*--(write|remove)`)

// here returns a line as it is run, or nothing if it cannot be run: the Inspector is installed by `make
// conformance`, the other clients by `make clients`, and curl asks another terminal's server.
func (r *reader) here(line string) string {
	switch {
	case strings.HasPrefix(line, "curl "), setsUp.MatchString(line) && *clients == "":
		return ""
	case strings.HasPrefix(line, "npx ") && *suites == "":
		return ""
	case strings.HasPrefix(line, inspector):
		program := suite(r.t, "mcp-inspector")
		return "MCP_INSPECTOR_SECRET_STORE=memory PATH=\"$PATH:" + filepath.Dir(program.Path) + "\" node " + program.Args[1] + strings.TrimPrefix(line, inspector)
	}
	// The page is for a user at a terminal.
	return strings.Replace(line, "skillsd allow ", "skillsd allow --yes ", 1)
}

// TestReadmeCommands runs every command that the README and then the help topics show, in their order, in
// a clean home directory, and compares the output that they show with what is printed.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sh", "openssl", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing", name)
		}
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t)
	commands := 0
	var all []fence
	for _, page := range append([]string{readmePath}, topicPaths(t)...) {
		all = append(all, fences(t, page)...)
	}
	for _, f := range all {
		switch f.kind {
		case "sh":
			text, servers := "", []string(nil)
			for line := range strings.Lines(strings.ReplaceAll(f.text, "\\\n", "")) {
				commands++
				target, isMake := strings.CutPrefix(line, "make ")
				switch words := strings.Fields(target); {
				case isMake && (len(words) == 0 || !bytes.Contains(makefile, []byte("\n"+words[0]+":"))):
					t.Errorf("%s: %q: no such target", f.at, line)
				case isMake:
				case strings.HasPrefix(line, "npx "), !strings.Contains(line, "skillsd serve"):
					text += r.here(line)
				default:
					servers = append(servers, line)
				}
			}
			if strings.Contains(text, "skillsd session") {
				r.use()
			}
			r.shell(f.at, text)
			for _, line := range servers {
				line, _, _ = strings.Cut(line, " #")
				r.serves(f.at, line)
			}
		case "console":
			commands += r.console(f)
		case "yaml":
			file := filepath.Join(r.home, "example.yaml")
			if err := os.WriteFile(file, []byte(f.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r.shell(f.at, "skillsd --config example.yaml config show")
		case "json":
			if !json.Valid([]byte(f.text)) {
				t.Errorf("%s: not JSON", f.at)
			}
		case "text":
		default:
			t.Errorf("%s: unknown kind of block %q", f.at, f.kind)
		}
	}
	if commands < 30 {
		t.Errorf("only %d commands were found", commands)
	}
}

// console runs the lines after "$ " and compares the output with the lines below, if there are any.
func (r *reader) console(f fence) (commands int) {
	r.t.Helper()
	for part := range strings.SplitSeq("\n"+strings.ReplaceAll(f.text, "\\\n", ""), "\n$ ") {
		command, want, _ := strings.Cut(part, "\n")
		if strings.TrimSpace(command) == "" {
			continue
		}
		commands++
		if strings.Contains(command, "skillsd session") {
			r.use()
		}
		got := strings.ReplaceAll(r.shell(f.at, r.here(command)), r.home, "/home/me")
		want = strings.TrimSpace(want)
		if want != "" && strings.TrimSpace(got) != want {
			r.t.Errorf("%s: %s prints\n%s\nnot\n%s", f.at, command, got, want)
		}
	}
	return commands
}

// TestReadmePages checks that the README is short, that it links every help topic, and that the topics fit a
// terminal.
func TestReadmePages(t *testing.T) {
	raw, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(raw, []byte("\n")); n > 120 {
		t.Errorf("the README has %d lines, want at most 120", n)
	}
	if n := len(topicPaths(t)); n > 12 {
		t.Errorf("there are %d topics, want at most 12", n)
	}
	digest := regexp.MustCompile(`[0-9a-f]{64}`)
	mentioned := regexp.MustCompile("skillsd help ([a-z-]+)")
	pages := topicPaths(t)
	if len(pages) > 12 {
		t.Errorf("there are %d topics, want at most 12", len(pages))
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if columnsOf(line) > 80 && !digest.MatchString(line) {
				t.Errorf("%s:%d: the line has more than 80 columns", page, i+1)
			}
		}
		for _, m := range mentioned.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(m[1])+".md")); err != nil {
				t.Errorf("%s: there is no topic %q", page, m[1])
			}
		}
		if out, err := exec.Command(binary, "help", name).Output(); err != nil || string(out) != string(text) {
			t.Errorf("skillsd help %s: %v, prints\n%s", name, err, out)
		}
	}
}

// TestReadmeLinks checks that every file that the README and its companions link exists, and every heading.
func TestReadmeLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	names := []string{"README.md", ".github/SECURITY.md", ".github/CONTRIBUTING.md"}
	for _, page := range topicPaths(t) {
		names = append(names, strings.TrimPrefix(filepath.ToSlash(page), "../"))
	}
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(raw), -1) {
			target := m[1]
			switch heading, inside := strings.CutPrefix(target, "#"); {
			case strings.HasPrefix(target, "https://"):
			case inside:
				if !strings.Contains(headings(string(raw)), "\n"+heading+"\n") {
					t.Errorf("%s: no heading for %s", name, target)
				}
			default:
				file, heading, inPage := strings.Cut(target, "#")
				page, err := os.ReadFile(filepath.Join("..", filepath.Dir(name), file))
				if errors.Is(err, fs.ErrNotExist) || inPage && !strings.Contains(headings(string(page)), "\n"+heading+"\n") {
					t.Errorf("%s: there is no %s", name, target)
				}
			}
		}
	}
}

// headings returns the headings of a text as links name them, one per line.
func headings(text string) string {
	anchors := "\n"
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors += strings.ReplaceAll(title, " ", "-") + "\n"
		}
	}
	return anchors
}

// TestScreens checks that the README's pictures show a terminal and no path of the machine that made them, and
// that each has a description.
func TestScreens(t *testing.T) {
	raw, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../.github/screens/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	for _, file := range files {
		picture, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		most := 16 << 10
		if filepath.Ext(file) == ".png" {
			most = 96 << 10
		}
		if len(picture) > most || filepath.Ext(file) == ".svg" && (bytes.ContainsAny(picture, "\x1b\r") ||
			regexp.MustCompile(`/(root|tmp|work|home/[^m])`).Match(picture)) {
			t.Errorf("%s is too large, or has control characters or a path of a machine", file)
		}
		name := ".github/screens/" + filepath.Base(file)
		if alt := regexp.MustCompile(`!\[([^\]]+)\]\(` + regexp.QuoteMeta(name) + `\)`).FindSubmatch(raw); alt == nil || len(alt[1]) < 40 {
			t.Errorf("the README does not show %s with a description", name)
		}
	}
}
