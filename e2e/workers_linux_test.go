package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// pool is two servers, which have workers or run scripts themselves, and what such workers are started with.
type pool struct {
	*fronts
	t         *testing.T
	worker    []string
	workspace string // of the workers, in which count.sh counts
}

func startPool(t *testing.T, workers bool) *pool {
	t.Helper()
	sandboxtest.Need(t, "userns", "bash")
	nats, dir := clustertest.Start(t, 1), t.TempDir()
	p := &pool{fronts: &fronts{}, t: t, workspace: filepath.Join(dir, "workspace")}
	key, config := filepath.Join(dir, "key"), filepath.Join(dir, "config.yaml")
	for name, text := range map[string]string{key: strings.Repeat("0123456789abcdef", 4), config: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(p.workspace, 0o777), os.Chmod(p.workspace, 0o777)); err != nil {
		t.Fatal(err)
	}
	skill := demoSkill()
	skill["demo/scripts/out.sh"] = "#!/bin/bash\necho \"$@\"; cat; echo err >&2; mkdir /out/sub; echo file > /out/sub/a.txt; exit 7\n"
	skill["demo/scripts/count.sh"] = "#!/bin/bash\necho $1 >> count; while [ ! -e go ]; do read -t 0.05 < <(:); done; echo counted $1\n"
	roots := []string{"--config", config, "--skills-root", "builtin=" + tree(t, skill)}
	for _, script := range []string{"ok.sh", "out.sh", "count.sh"} {
		allow := append([]string{"allow", "--yes", "--offer-tool", "demo:scripts/" + script, "--state", dir}, roots...)
		skillsd(t, 0, allow...)
	}
	p.flags = []string{"--cluster", nats.URLs()[0]}
	both := slices.Concat(roots, p.flags, []string{"--cluster-key", key, "--pool", "p", "--release", "observed"})
	p.worker = append(slices.Clone(both), "--workspace", p.workspace+":rw", "--log-format", "json")
	if !workers {
		both = append(both[:len(both)-4:len(both)-4], "--release", "observed", "--workspace", p.workspace+":rw")
	}
	for i := range 2 {
		p.add(serveHTTP(t, append(slices.Clone(both), "--prompt-slot-role", "direct-command", "--cluster-replicas", "1",
			"--auth-token-file", tokenFile(t, "alice"), "--page", "127.0.0.1:0", "--node", fmt.Sprint("front", i))...))
	}
	p.flags = append(p.flags, "--cluster-replicas", "1")
	p.caller = p.at(0, "alice-token")
	p.handle = p.load(p.caller)
	return p
}

// start starts a worker.
func (p *pool) start(flags ...string) *process {
	p.t.Helper()
	w := start(p.t, exec.Command(binary, slices.Concat([]string{"worker", "--state", p.t.TempDir()}, p.worker, flags)...))
	w.untilLogged("worker ready")
	return w
}

func (p *pool) until(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(soon); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("never: %s", what)
		}
	}
}

// counts returns the lines that count.sh has written.
func (p *pool) counts() []string {
	text, err := os.ReadFile(filepath.Join(p.workspace, "count"))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// counting runs count.sh at a server until it has begun, and returns what waits for the answer.
func (p *pool) counting(c *caller, word string) <-chan toolResult {
	p.t.Helper()
	answer := make(chan toolResult, 1)
	go func() {
		result, err := p.try(c, "count.sh", word, "")
		if err == nil {
			answer <- result
		}
		close(answer)
	}()
	p.until(word+" has begun", func() bool { return slices.Contains(p.counts(), word) })
	return answer
}

// finish lets those end that count.sh has begun.
func (p *pool) finish() {
	if err := os.WriteFile(filepath.Join(p.workspace, "go"), nil, 0o666); err != nil {
		p.t.Fatal(err)
	}
}

// try runs a script with an argument.
func (p *pool) try(c *caller, script, argument, more string) (result toolResult, err error) {
	_, got, err := c.send(p.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_skill_script",
		"arguments":{"skill":"demo","path":"scripts/%s","args":[%q],"activation":%q%s},"_meta":{%s}}}`, script, argument, p.handle, more, modernAble),
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "run_skill_script")
	if err == nil {
		err = json.Unmarshal(got.Result, &result)
	}
	return result, err
}

// wants runs a script and wants its answer to have a code and a text.
func (p *pool) wants(c *caller, script, argument, code, text string) toolResult {
	p.t.Helper()
	result, err := p.try(c, script, argument, "")
	if err != nil {
		p.t.Fatal(err)
	}
	if code != "" && result.code() != code || !strings.Contains(result.text(), text) {
		p.t.Errorf("%s %s: want %s %q: %s", script, argument, code, text, result.text())
	}
	return result
}

// outcome is the row of a script_executed event.
type outcome struct {
	Status, Path string
	Args         []string
	Error        *struct{ Code string }
	Skillsd      *struct {
		Worker, WorkerRules, Supersedes string
		Late                            bool
	}
}

// outcomes returns those of the newest session.
func (p *pool) outcomes() (all []outcome) {
	p.t.Helper()
	args := append([]string{"session", "show", "--json"}, p.flags...)
	out, err := exec.Command(binary, args...).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var e struct {
			Kind string
			Row  outcome
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Kind == "skill.script_executed" {
			all = append(all, e.Row)
		}
	}
	return all
}

// code returns the code of an outcome that is an error, and says so if it is a late one.
func (o *outcome) code() string {
	switch {
	case o.Error != nil:
		return o.Error.Code
	case o.Skillsd != nil && o.Skillsd.Late:
		return "late of " + o.Skillsd.Worker
	}
	return "done"
}

// wantOutcomes waits until the newest session has outcomes with these codes.
func (p *pool) wantOutcomes(codes ...string) []outcome {
	p.t.Helper()
	var all []outcome
	var got []string
	for end := time.Now().Add(soon); ; time.Sleep(100 * time.Millisecond) {
		all, got = p.outcomes(), nil
		for _, o := range all {
			got = append(got, o.code())
		}
		if slices.Equal(got, codes) {
			p.events(p.t) // verified
			return all
		}
		if time.Now().After(end) {
			p.t.Fatalf("outcomes %q, want %q", got, codes)
		}
	}
}

// A script at a worker is like one here: what it gets, what it leaves, what is recorded.
func TestWorkerRuns(t *testing.T) {
	t.Parallel()
	p := startPool(t, true)
	p.wants(p.caller, "ok.sh", "early", "sandbox_unavailable", "no worker of the pool answers")
	p.start("--node", "w1")
	here := serveHTTP(t, append(p.worker[:4:4], "--release", "observed", "--prompt-slot-role", "direct-command",
		"--workspace", p.workspace+":rw", "--auth-token-file", tokenFile(t, "alice"))...)
	alone := here.as("alice-token")
	near := &pool{fronts: &fronts{handle: p.load(alone)}, t: t}
	var results []string
	for _, run := range []struct {
		p *pool
		c *caller
	}{{p, p.caller}, {near, alone}} {
		result, err := run.p.try(run.c, "out.sh", "äöü "+strings.Repeat("x", 10), `,"stdin":"`+strings.Repeat("in", 300<<10)+`"`)
		if err != nil {
			t.Fatal(err)
		}
		var output map[string]json.RawMessage
		if err := json.Unmarshal(result.Meta["skillsd/result"], &output); err != nil {
			t.Fatalf("%v: %s", err, result.text())
		}
		var x map[string]json.RawMessage
		if err := json.Unmarshal(output["skillsd"], &x); err != nil {
			t.Fatal(err)
		}
		delete(x, "durationMs") // two runs differ in these
		delete(x, "worker")
		delete(x, "workerRules")
		delete(output, "outputId")
		output["skillsd"], _ = json.Marshal(x)
		text, _ := json.Marshal(output)
		results = append(results, regexp.MustCompile(`ses_[0-9a-f-]+_run_skill_script_\d+`).ReplaceAllString(string(text), "RUN"))
	}
	if results[0] != results[1] || !strings.Contains(results[0], `"exitCode":7`) || !strings.Contains(results[0], "sub/a.txt") {
		t.Errorf("at the worker (-) and here (+):\n%s", cmp.Diff(strings.Split(results[0], ","), strings.Split(results[1], ",")))
	}
	doctor := append([]string{"doctor", "--verbose", "--state", t.TempDir()}, p.all[0].cmd.Args[4:]...)
	doctor[slices.Index(doctor, "--http")+1] = "127.0.0.1:0"
	if out, _ := exec.Command(binary, doctor...).Output(); !strings.Contains(string(out), "1 worker of pool p: w1") {
		t.Errorf("doctor does not name the worker:\n%s", out)
	}
	var health struct {
		Cluster struct {
			Pool    string
			Workers []string
		}
	}
	openPage(p.all[0].site).read("/health.json", &health)
	if health.Cluster.Pool != "p" || !slices.Equal(health.Cluster.Workers, []string{"w1"}) {
		t.Errorf("the page has %+v, want worker w1 of pool p", health)
	}
	if all := p.wantOutcomes("sandbox_unavailable", "done"); all[1].Skillsd.Worker != "w1" {
		t.Errorf("ran at %q", all[1].Skillsd.Worker)
	}
}

// A worker that allows less refuses, and one that has other files runs none of them.
func TestWorkerDecides(t *testing.T) {
	t.Parallel()
	p := startPool(t, true)
	less := p.start("--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh@sha256:"+strings.Repeat("0", 64)+":pin=script")
	p.wants(p.caller, "ok.sh", "x", "", "by the rules of worker")
	p.wants(p.caller, "out.sh", "x", "script_not_allowlisted", "by the rules of worker")
	if err := less.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	less.leave()
	other := demoSkill()
	other["demo/scripts/ok.sh"] += "echo changed\n"
	p.worker[slices.Index(p.worker, "--skills-root")+1] = "builtin=" + tree(t, other)
	p.start()
	p.wants(p.caller, "ok.sh", "x", "sandbox_unavailable", "does not have the skill demo with the files sha256:")
}

// Nobody says what a worker did that was killed, and nothing runs twice.
func TestWorkerKilled(t *testing.T) {
	nightly.Only(t)
	p := startPool(t, true)
	w := p.start()
	answer := p.counting(p.caller, "killed")
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got.code() != "outcome_unknown" {
		t.Errorf("answered %s", got.text())
	}
	p.wantOutcomes("outcome_unknown")
	p.finish()
	p.start()
	p.wants(p.caller, "count.sh", "next", "", "counted next")
	p.wantOutcomes("outcome_unknown", "done")
	if got := p.counts(); !slices.Equal(got, []string{"killed", "next"}) {
		t.Errorf("ran %q", got)
	}
}

// The outcome of a worker that was stopped for a while is recorded when it comes, and replaces the first one. A
// job that comes to a stopped worker is not run, then or later.
func TestWorkerStopped(t *testing.T) {
	nightly.Only(t)
	p := startPool(t, true)
	w := p.start("--node", "w1")
	answer := p.counting(p.caller, "stopped")
	signal := func(s os.Signal) {
		t.Helper()
		if err := w.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	if got := <-answer; got.code() != "outcome_unknown" {
		t.Errorf("answered %s", got.text())
	}
	p.wants(p.caller, "count.sh", "lost", "server_busy", "did not start")
	p.finish()
	signal(syscall.SIGCONT)
	all := p.wantOutcomes("outcome_unknown", "server_busy", "late of w1")
	if all[2].Skillsd.Supersedes == "" || !slices.Equal(all[2].Args, []string{"stopped"}) {
		t.Errorf("the late outcome is %+v", all[2])
	}
	p.wants(p.caller, "count.sh", "next", "", "counted next")
	if got := p.counts(); !slices.Equal(got, []string{"stopped", "next"}) {
		t.Errorf("ran %q", got)
	}
}

// Nobody says what a server did that was killed, and nothing runs twice.
func TestServerKilledInRun(t *testing.T) {
	t.Parallel()
	p := startPool(t, false)
	answer := p.counting(p.caller, "killed")
	p.all[0].cmd.Process.Kill()
	p.all[0].leave()
	if got, answered := <-answer; answered {
		t.Errorf("answered %s", got.text())
	}
	p.finish()
	p.wants(p.at(1, "alice-token"), "count.sh", "next", "", "counted next")
	p.wantOutcomes("outcome_unknown", "done")
	if got := p.counts(); !slices.Equal(got, []string{"killed", "next"}) {
		t.Errorf("ran %q", got)
	}
}

// What a worker does for a server that is killed is recorded by the next one; if both are, that nobody knows it.
func TestWorkerOfKilledServer(t *testing.T) {
	t.Parallel()
	p := startPool(t, true)
	w := p.start("--node", "w1")
	answer := p.counting(p.caller, "orphan")
	p.all[0].cmd.Process.Kill()
	p.all[0].leave()
	if got, answered := <-answer; answered {
		t.Errorf("answered %s", got.text())
	}
	other := p.at(1, "alice-token")
	p.finish()
	p.wants(other, "ok.sh", "x", "", "ran-ok x")
	p.until("the late outcome", func() bool { return len(p.outcomes()) == 2 })
	all := p.outcomes()
	if i := slices.IndexFunc(all, func(o outcome) bool { return o.code() == "late of w1" }); i < 0 || !slices.Equal(all[i].Args, []string{"orphan"}) {
		t.Errorf("outcomes %+v", all)
	}
	if err := os.Remove(filepath.Join(p.workspace, "go")); err != nil {
		t.Fatal(err)
	}
	p.counting(other, "both")
	p.add(serveHTTP(t, p.all[1].cmd.Args[6:]...)) // like the one before, but for its address
	w.cmd.Process.Kill()
	p.all[1].cmd.Process.Kill()
	p.all[1].leave()
	third := p.at(2, "alice-token")
	// Until NATS notices that the connection of the killed worker ended, that worker is only late.
	got := p.wants(third, "ok.sh", "y", "", "no worker")
	if code := got.code(); code != "sandbox_unavailable" && code != "server_busy" {
		t.Errorf("without a worker: %s", got.text())
	}
	p.until("the lost outcome", func() bool {
		return slices.ContainsFunc(p.outcomes(), func(o outcome) bool { return o.code() == "outcome_unknown" })
	})
	if got := p.counts(); !slices.Equal(got, []string{"orphan", "both"}) {
		t.Errorf("ran %q", got)
	}
}

// TestWorkerCost measures by how much a run at a worker takes longer than one at the server. Before each is a pause, as
// between the calls of an agent: the helper of a run that has ended is started then, not in the other's run.
func TestWorkerCost(t *testing.T) {
	if *clusterGrowth == 0 {
		t.Skip("it measures, and is run by hand with -cluster-growth N, the number of runs")
	}
	pools, took := []*pool{startPool(t, false), startPool(t, true)}, [2][]time.Duration{}
	pools[1].start()
	for range *clusterGrowth {
		for i, p := range pools {
			time.Sleep(40 * time.Millisecond)
			begin := time.Now()
			p.wants(p.caller, "ok.sh", "x", "", "ran-ok x")
			took[i] = append(took[i], time.Since(begin))
		}
	}
	here, there := median(took[0]), median(took[1])
	t.Logf("a run at the server %v, at a worker %v: %v more", here, there, there-here)
}

// The key of a cluster is for nobody else; root can give it to a group, as Kubernetes does.
func TestClusterKeyReaders(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to others")
	}
	const user = 65532
	state := t.TempDir()
	key := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600), os.Chown(state, user, user)); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(key); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		owner   int
		mode    os.FileMode
		refused bool
	}{{user, 0o400, false}, {user, 0o440, true}, {0, 0o440, false}, {0, 0o444, true}, {0, 0o460, true}} {
		if err := errors.Join(os.Chown(key, tt.owner, user), os.Chmod(key, tt.mode)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "serve", "--http", "127.0.0.1:0", "--insecure-no-auth", "--no-default-roots", "--state", state,
			"--cluster", "nats://127.0.0.1:1", "--cluster-key", key)
		cmd.Dir, cmd.Env = "/", []string{"HOME=/"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		out, err := cmd.CombinedOutput()
		if refused := strings.Contains(string(out), "--cluster-key"); err == nil || refused != tt.refused {
			t.Errorf("mode %o of %d: refused is %v, want %v: %v\n%s", tt.mode, tt.owner, refused, tt.refused, err, out)
		}
	}
}
