package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/testtree"
)

// operator is someone at a shell with a home of their own.
type operator struct {
	t    *testing.T
	home string
}

func newOperator(t *testing.T) *operator { return &operator{t, t.TempDir()} }

func (o *operator) state() string { return filepath.Join(o.home, ".local", "state", "skillsd") }

func (o *operator) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir = o.home
	cmd.Env = []string{"HOME=" + o.home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// run runs a command, which must exit with a code, and returns what it printed.
func (o *operator) run(code int, args ...string) string {
	o.t.Helper()
	out, err := o.command(args...).CombinedOutput()
	if got := exitStatus(err); got != code {
		o.t.Fatalf("skillsd %v: exit code %d, want %d\n%s", args, got, code, out)
	}
	return string(out)
}

func exitStatus(err error) int {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// serveGit makes a repository of files and serves it over HTTP on this machine. before is called
// with each request.
func serveGit(t *testing.T, files map[string]string, before func(*http.Request)) (url string, commit func(files map[string]string)) {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git on PATH")
	}
	dir := filepath.Join(t.TempDir(), "pack.git")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run("init", "--quiet", "--initial-branch=main", ".")
	commit = func(files map[string]string) {
		t.Helper()
		testtree.Write(t, dir, files)
		run("add", "--all", ".")
		run("commit", "--quiet", "-m", "x")
	}
	commit(files)
	backend := &cgi.Handler{Path: filepath.Join(run("--exec-path"), "git-http-backend"), InheritEnv: []string{"PATH"}, Stderr: io.Discard, Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	if _, err := os.Stat(backend.Path); err != nil {
		t.Skip("needs git http-backend")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil {
			before(r)
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/pack.git", commit
}

// TestInstallAllowServe is the way of an operator: install from git, allow a script, serve, run it;
// after an update it does not run before it is allowed again.
func TestInstallAllowServe(t *testing.T) {
	t.Parallel()
	url, commit := serveGit(t, demoSkill(), nil)
	o := newOperator(t)
	if out := o.run(0, "install", url); !strings.Contains(out, "installed demo\n") || !strings.Contains(out, url+" demo at ") {
		t.Errorf("install printed\n%s", out)
	}
	if out := o.run(0, "allow", "--yes", "demo:scripts/ok.sh"); !strings.Contains(out, "  | echo ran-ok") {
		t.Errorf("allow printed\n%s", out)
	}
	var listed string // what load_skill said
	run := func() toolResult {
		t.Helper()
		p := start(t, o.command("serve", "--allow-tool", "run_skill_script", "--prompt-slot-role", "direct-command", "--log-format", "json"))
		p.initialize()
		r := p.tool("load_skill", map[string]any{"name": "demo"})
		if r.IsError || !strings.Contains(r.text(), "----- skill demo ") {
			t.Fatalf("load_skill = %+v", r)
		}
		listed = r.text()
		result := p.script("ok.sh")
		p.end()
		return result
	}
	// A third-party skill's script needs the user's consent as well, which this client cannot ask for:
	// that it gets so far shows that the entry holds.
	const consent = `"approval_required"`
	if r := run(); !strings.Contains(r.text(), consent) {
		t.Errorf("an allowed script: %s", r.text())
	}
	changed := demoSkill()
	changed["demo/scripts/ok.sh"] = "#!/bin/bash\necho changed\n"
	commit(changed)
	if out := o.run(0, "update"); !strings.Contains(out, "    +echo changed") {
		t.Errorf("update printed\n%s", out)
	}
	if r := run(); !r.IsError || !strings.Contains(r.text(), "script_snapshot_mismatch") || strings.Contains(r.text(), "skillsd allow") {
		t.Errorf("a script that changed: %s", r.text())
	}
	if !strings.Contains(listed, "scripts/ok.sh (does not run: it is not what was allowed)") {
		t.Errorf("load_skill of a skill whose script changed says\n%s", listed)
	}
	if out := o.run(0, "allow", "--list"); !strings.Contains(out, "changed") {
		t.Errorf("allow --list printed\n%s", out)
	}
	o.run(0, "rollback", "demo")
	if r := run(); !strings.Contains(r.text(), consent) {
		t.Errorf("the allowed script is back: %s", r.text())
	}
	o.run(0, "verify")

	beside := demoSkill()
	beside["demo/scripts/lib.sh"] = "echo beside\n"
	commit(beside)
	held := regexp.MustCompile(`--accept (sha256:[0-9a-f]+)`).FindStringSubmatch(o.run(3, "update"))
	if held == nil {
		t.Fatal("update does not say how to accept a new script")
	}
	o.run(0, "update", "demo", "--accept", held[1])
	if r := run(); !r.IsError || !strings.Contains(r.text(), "script_snapshot_mismatch") || !strings.Contains(r.text(), "other files") {
		t.Errorf("a script beside which a file is new: %s", r.text())
	}
	if !strings.Contains(listed, "scripts/ok.sh (does not run: it is not what was allowed)") {
		t.Errorf("load_skill of a skill with a new file says\n%s", listed)
	}
}

// TestUpdateWhileServing has a server that runs say that an update left a pin behind, once.
func TestUpdateWhileServing(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	source := tree(t, demoSkill())
	o.run(0, "install", source)
	o.run(0, "allow", "--yes", "demo:scripts/ok.sh")
	p := start(t, o.command("serve", "--allow-tool", "run_skill_script", "--log-format", "json"))
	p.initialize()
	if err := os.WriteFile(filepath.Join(source, "demo", "scripts", "ok.sh"), []byte("#!/bin/bash\necho changed\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The server watches as soon as it has read the skills.
	if r := p.tool("load_skill", map[string]any{"name": "demo"}); r.IsError {
		t.Fatalf("load_skill = %+v", r)
	}
	if out := o.run(0, "update"); !strings.Contains(out, "note: demo:scripts/ok.sh is not what was allowed") {
		t.Errorf("update printed\n%s", out)
	}
	const said = `"remedy":"skillsd allow demo:scripts/ok.sh"`
	id := 10
	for end := time.Now().Add(patience); !strings.Contains(p.stderr.String(), said); id++ {
		if time.Now().After(end) {
			t.Fatalf("the server does not say it:\n%s", p.stderr)
		}
		p.loadDescription()
	}
	p.end()
	if n := strings.Count(p.stderr.String(), said); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// TestInstallKilled kills an install while it fetches: nothing of it counts, and the next one works.
func TestInstallKilled(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 10), make(chan struct{})
	url, _ := serveGit(t, demoSkill(), func(*http.Request) {
		asked <- struct{}{}
		<-release
	})
	o := newOperator(t)
	cmd := o.command("install", url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	close(release)
	if _, err := os.Stat(filepath.Join(o.state(), "installed")); err == nil {
		t.Error("a killed install has put something in place")
	}
	o.run(0, "install", url)
	o.run(0, "verify")
	left, err := os.ReadDir(filepath.Join(o.state(), "install"))
	if err != nil || len(left) != 1 {
		t.Errorf("%d entries are left of the work: %v", len(left), err)
	}
}

// TestInstallAtOnce starts installs side by side: all are in the lock file.
func TestInstallAtOnce(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	sources := []string{"one", "two", "three", "four"}
	var running []*exec.Cmd
	outputs := make([]bytes.Buffer, len(sources))
	for n, name := range sources {
		cmd := o.command("install", tree(t, map[string]string{name + "/SKILL.md": "---\nname: " + name + "\ndescription: D.\n---\n"}))
		cmd.Stderr = &outputs[n]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for n, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, &outputs[n])
		}
	}
	if out := o.run(0, "verify"); !strings.Contains(out, "ok: 4 skills") {
		t.Errorf("verify printed %s", out)
	}
}

// TestInstallWhileServing has a server that runs see what is installed, updated and removed.
func TestInstallWhileServing(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	skill := func(name, description string) map[string]string {
		return map[string]string{name + "/SKILL.md": "---\nname: " + name + "\ndescription: " + description + "\n---\n"}
	}
	second := tree(t, skill("second", "Came later."))
	o.run(0, "install", tree(t, skill("first", "Was there.")))
	p := start(t, o.command("serve", "--log-format", "json"))
	p.initialize()
	id := 10
	until := func(want func(description string) bool) {
		t.Helper()
		for end := time.Now().Add(patience); time.Now().Before(end); {
			id++
			if want(p.loadDescription()) {
				return
			}
		}
		t.Fatal("the server does not serve what is installed")
	}
	has := func(text string) func(string) bool { return func(d string) bool { return strings.Contains(d, text) } }
	until(has("first: Was there."))
	o.run(0, "install", second)
	until(has("second: Came later."))
	if err := os.WriteFile(filepath.Join(second, "second", "SKILL.md"), []byte("---\nname: second\ndescription: Was updated.\n---\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o.run(0, "update", "second")
	until(has("second: Was updated."))
	o.run(0, "remove", "second")
	until(func(d string) bool { return !strings.Contains(d, "second") })
	p.end()
}

// TestTreesCollected follows a stored tree: it stays while a server runs, and while the record of a
// session that loaded it is kept.
func TestTreesCollected(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	source := tree(t, demoSkill())
	o.run(0, "install", source)
	trees := func() int {
		t.Helper()
		entries, err := os.ReadDir(filepath.Join(o.state(), "trees"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	p := start(t, o.command("serve", "--log-format", "json"))
	p.initialize()
	if r := p.tool("load_skill", map[string]any{"name": "demo"}); r.IsError {
		t.Fatalf("load_skill = %+v", r)
	}
	o.run(0, "remove", "demo")
	if n := trees(); n != 1 {
		t.Fatalf("%d trees while a server runs", n)
	}
	p.end()
	other := tree(t, map[string]string{"other/SKILL.md": "---\nname: other\ndescription: D.\n---\n"})
	o.run(0, "install", other)
	if n := trees(); n != 2 {
		t.Errorf("%d trees while a session names one", n)
	}
	o.run(0, "session", "gc", "--older-than", "0s")
	if n := trees(); n != 1 {
		t.Errorf("%d trees after the session is gone", n)
	}
	o.run(0, "remove", "other")
	if n := trees(); n != 0 {
		t.Errorf("%d trees when nothing is installed", n)
	}
	o.run(0, "verify")
}
