package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A toolCase is a call of run_skill_script with the server it is made to. What must be seen is prose
// there and a function here.
type toolCase struct {
	ID, Title, Must string
	Server          struct {
		Skills    map[string]map[string]string
		Allow     []string
		Activated []string
	}
	Call struct{ Arguments map[string]any }
}

// toolChecks are what must be seen, by case.
var toolChecks = map[string]func(*toolBench){
	"T01": func(b *toolBench) { b.refused(b.run(nil), "skill_not_found") },
	"T02": func(b *toolBench) { b.refused(b.run(nil), "skill_not_activated") },
	"T03": func(b *toolBench) { b.refused(b.run(nil), "script_not_allowlisted", "demo:scripts/other.sh") },
	"T06": (*toolBench).outsideScripts,
	"T07": (*toolBench).directory,
	"T09": (*toolBench).drift,
	"T11": (*toolBench).drift,
	"T12": (*toolBench).unsupportedRuntimes,
	"T13": (*toolBench).shebangs,
	"T15": (*toolBench).timeouts,
	"T18": (*toolBench).unknownFields,
	"T19": (*toolBench).noNamespaces,
	"T20": (*toolBench).backendMissing,
	"T22": (*toolBench).interpreterMissing,
	"T24": (*toolBench).parallel,
	"T25": func(b *toolBench) { b.ended(func(p *process) { p.send(cancelCall("50")) }) },
	"T26": func(b *toolBench) { b.ended(func(p *process) { p.in.Close() }) },
	"T28": (*toolBench).denialShape,
	"T29": (*toolBench).absent,
	"T31": (*toolBench).storeInWorkspace,
	"T32": (*toolBench).inexactEntries,
	"T34": (*toolBench).specialFiles,
	"T35": (*toolBench).ceiling,
	"T37": (*toolBench).resultShape,
	"T39": (*toolBench).unknownFields,
	"T40": (*toolBench).frontmatterGrants,
}

// TestSandboxCasesOfTools makes the calls of the tool-level cases, on each backend that is asked for.
func TestSandboxCasesOfTools(t *testing.T) {
	needCaseTools(t)
	for backend := range strings.SplitSeq(*sandboxes, ",") {
		t.Run(backend, func(t *testing.T) {
			unavailable := unavailableAs(t, backend, caseUsers()[0])
			for _, c := range toolCases(t) {
				t.Run(c.ID, func(t *testing.T) {
					t.Parallel()
					b := &toolBench{toolCase: c, T: t, root: caseRoot(t), backend: backend, unavailable: unavailable}
					b.env = []string{"HOME=" + b.root + "/home"} // which an ordinary user may look for
					b.plant()
					toolChecks[c.ID](b)
				})
			}
		})
	}
}

// toolCases are the cases, each of which has a check.
func toolCases(t *testing.T) []*toolCase {
	t.Helper()
	files, err := filepath.Glob(caseDir + "/t*.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []*toolCase
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c toolCase
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if toolChecks[c.ID] == nil {
			t.Fatalf("%s: no check for %s", file, c.ID)
		}
		cases = append(cases, &c)
	}
	for id := range toolChecks {
		if !slices.ContainsFunc(cases, func(c *toolCase) bool { return c.ID == id }) {
			t.Errorf("no case %s", id)
		}
	}
	return cases
}

// caseRoot is a directory that other users may enter, and that is removed although what a server
// stores in it is read-only.
func caseRoot(t *testing.T) string {
	t.Helper()
	b := (&hostileCase{id: "tools", file: caseDir + "/s126-exit-codes.sh"}).bench(t, caseUser{})
	return b.root
}

// toolBench is the place of one tool case.
type toolBench struct {
	*toolCase
	*testing.T
	root        string
	backend     string
	unavailable string   // why the backend does not work here; "" if it does
	env         []string // beside the tests' own
	id          int
	p           *process // of run
}

func (b *toolBench) skills() string { return filepath.Join(b.root, "tree") }

func (b *toolBench) plant() {
	b.Helper()
	for name, files := range b.Server.Skills {
		b.write(name+"/SKILL.md", cmp.Or(files["SKILL.md"], "---\nname: "+name+"\ndescription: A case for the sandbox.\n---\n"))
		for path, text := range files {
			b.write(name+"/"+path, text)
		}
	}
}

// write writes a file below the skills.
func (b *toolBench) write(path, text string) {
	b.Helper()
	path = filepath.Join(b.skills(), filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		b.Fatal(err)
	}
}

// flags are the case's options of the server, with entries beside its own.
func (b *toolBench) flags(allow ...string) []string {
	args := []string{"serve", "--state", filepath.Join(b.root, "state"), "--log-format", "json", "--sandbox", b.backend, "--release", "observed",
		"--skills-root", "builtin=" + b.skills(), "--allow-tool", "run_skill_script", "--prompt-slot-role", "direct-command"}
	for _, entry := range append(slices.Clone(b.Server.Allow), allow...) {
		args = append(args, "--allow-skill-script", entry)
	}
	return args
}

// serve starts a server and activates what the case activates.
func (b *toolBench) serve(cmd *exec.Cmd) *process {
	b.Helper()
	cmd.Env = append(append(os.Environ(), b.env...), cmd.Env...)
	p := start(b.T, cmd)
	p.initialize()
	for _, name := range b.Server.Activated {
		if loaded := p.tool("load_skill", map[string]any{"name": name}); loaded.IsError {
			b.Fatalf("load_skill %s = %s", name, loaded.text())
		}
	}
	return p
}

// run makes the case's call, with arguments in the place of its own, to one server of the case.
func (b *toolBench) run(arguments map[string]any) toolResult {
	b.Helper()
	if b.p == nil {
		b.p = b.serve(exec.Command(binary, b.flags()...))
	}
	return b.runOn(b.p, arguments)
}

// runOn calls the tool; an error of the protocol counts as a refusal with its text.
func (b *toolBench) runOn(p *process, arguments map[string]any) toolResult {
	b.Helper()
	full := maps.Clone(b.Call.Arguments)
	if full == nil {
		full = demoScript("ok.sh")
	}
	maps.Copy(full, arguments)
	b.id++
	a := p.ask("tools/call", fmt.Sprintf(`{"name":"run_skill_script","arguments":%s}`, toJSON(full)))
	var r toolResult
	if a.Error != nil {
		r.IsError = true
		r.Content = append(r.Content, contentBlock{Type: "text", Text: fmt.Sprintf("%d invalid: %s", a.Error.Code, a.Error.Message)})
		return r
	}
	if err := json.Unmarshal(a.Result, &r); err != nil {
		b.Fatal(err)
	}
	return r
}

// refused demands an error with all of the words, from a script that did not run.
func (b *toolBench) refused(r toolResult, words ...string) {
	b.Helper()
	if !r.IsError || strings.Contains(r.text(), "ran-") {
		b.Errorf("%s: was not refused: %s", b.Title, r.text())
	}
	for _, w := range words {
		if !strings.Contains(r.text(), w) {
			b.Errorf("%s: refused without %q: %s", b.Title, w, r.text())
		}
	}
	for _, dir := range []string{b.root, "goroutine ", "0x"} {
		if strings.Contains(r.text(), dir) {
			b.Errorf("%s: the refusal tells of %s: %s", b.Title, dir, r.text())
		}
	}
}

// ran demands that the script was executed.
func (b *toolBench) ran(r toolResult, want string) {
	b.Helper()
	if r.IsError || !strings.Contains(r.text(), want) {
		b.Errorf("%s: did not run with %q: %s", b.Title, want, r.text())
	}
}

// startFails demands that the server does not start with the flags, and says why.
func (b *toolBench) startFails(args []string, want string) {
	b.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), b.env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), want) {
		b.Errorf("%s: start = %v, %s; want exit 2 with %q", b.Title, err, out, want)
	}
}

// sleeper is a script with a daemonised grandchild; both are known by a number of their own.
func (b *toolBench) sleeper() (script, mark string) {
	mark = fmt.Sprintf("86400.%d", time.Now().UnixNano())
	return "#!/bin/bash\n(setsid nohup sleep " + mark + " >/dev/null 2>&1 </dev/null &)\necho ran-ok\nsleep " + mark + "\n", mark
}

// processesWith are the processes of this machine with mark in their command line.
func processesWith(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.Contains(string(data), mark) {
			found = append(found, f)
		}
	}
	return found
}

// ended starts a long run, lets something happen to it, and wants all its processes gone.
func (b *toolBench) ended(happen func(*process)) {
	script, mark := b.sleeper()
	b.write("demo/scripts/ok.sh", script)
	b.needSandbox()
	if b.backend == "runsc" {
		b.Skip("missing capability: a host that sees the processes of gVisor's guest")
	}
	p := b.serve(exec.Command(binary, append(b.flags(), "--limit", "timeout=10m")...))
	p.send(`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"}}}`)
	eventually(b.T, "both processes of the run are there", func() bool { return len(processesWith(b.T, mark)) >= 2 })
	happen(p)
	eventually(b.T, "every process of the run is gone", func() bool { return len(processesWith(b.T, mark)) == 0 })
}

// needSandbox skips where nothing can be isolated.
func (b *toolBench) needSandbox() {
	b.Helper()
	if b.unavailable != "" {
		if b.backend == "native" && os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
			b.Fatalf("the sandbox %s does not work here: %s", b.backend, b.unavailable)
		}
		b.Skipf("missing capability: the sandbox %s: %s", b.backend, b.unavailable)
	}
}

// asOrdinary makes a command one of an ordinary user, who then owns the case's place.
func (b *toolBench) asOrdinary(cmd *exec.Cmd) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	err := filepath.WalkDir(b.root, func(p string, _ os.DirEntry, err error) error { return cmp.Or(err, os.Lchown(p, nobody, nobody)) })
	if err != nil {
		b.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
