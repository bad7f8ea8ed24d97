package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// Servers and workers get skills from the cluster: no two of them have a directory in common.
func TestCatalogue(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	t.Parallel()
	nats, dir := clustertest.Start(t, 1), t.TempDir()
	key, other, config := filepath.Join(dir, "key"), filepath.Join(dir, "other"), filepath.Join(dir, "config.yaml")
	for name, text := range map[string]string{key: strings.Repeat("0123456789abcdef", 4), other: strings.Repeat("x", 64), config: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"--cluster", nats.URLs()[0], "--cluster-key", key}
	// run runs a command with a state directory of its own, or a new one.
	run := func(exit int, state, want string, args ...string) (stdout string) {
		t.Helper()
		cmd := exec.Command(binary, slices.Concat(args, []string{"--config", config, "--state", filepath.Join(dir, state)})...)
		var out, wrong strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &wrong
		_ = cmd.Run() // the code says it
		if code := cmd.ProcessState.ExitCode(); code != exit || !strings.Contains(out.String()+wrong.String(), want) {
			t.Fatalf("%q exited %d, want %d and %q:\n%s%s", args, code, exit, want, &out, &wrong)
		}
		return out.String()
	}
	publish := append([]string{"publish", "--cluster-replicas", "1"}, at...)
	sync := append([]string{"sync", "--from-cluster", "--cluster-replicas", "1"}, at...)

	// Only what is locked, and as it was locked, is published.
	source := tree(t, demoSkill())
	run(1, "front0", "no skills were published there", sync...)
	run(2, "maker", "there is nothing to publish", publish...)
	run(0, "maker", "", "install", filepath.Join(source, "demo"), "--tier", "user")
	script := filepath.Join(dir, "maker", "installed", "user", "demo", "scripts", "ok.sh")
	was, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{string(was) + "echo more\n": "so that nothing is published: demo", string(was): ""} {
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			run(3, "maker", want, publish...)
			run(1, "front0", "no skills were published there", sync...)
		}
	}
	if err := os.WriteFile(script, was, 0o755); err != nil {
		t.Fatal(err)
	}
	// No lock file starts a program elsewhere.
	served := tree(t, map[string]string{"served/SKILL.md": "---\nname: served\ndescription: Served.\n---\n"})
	run(0, "maker", "", "install", "mcp+stdio:"+binary+" serve --no-default-roots --skills-root "+served+
		" --config "+config+" --state "+t.TempDir())
	run(0, "maker", "served is left out: it comes from a program", publish...)
	run(0, "maker", "published 1 skill in nats://", publish...)
	published := run(0, "maker", `"name": "demo"`, append(publish, "--json")...)
	if again := run(0, "maker", "", append(publish, "--json")...); again != published {
		t.Errorf("published twice:\n%s%s", published, again)
	}
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}

	run(2, "front0", "is not to be trusted as user because a file says so", sync...)
	run(1, "front0", "are not authenticated with this --cluster-key", slices.Concat(sync[:len(sync)-1], []string{other})...)
	run(2, "front0", "leave one of them out", append(sync, "LOCKFILE")...)
	for _, state := range []string{"front0", "front1"} {
		run(0, state, "demo: installed", append(sync, "--trust-tiers", "--frozen")...)
		run(0, state, "nothing to do", append(sync, "--trust-tiers", "--frozen")...)
		run(0, state, "ok: ", "verify")
	}
	run(0, "front0", "", "allow", "--yes", "--offer-tool", "demo:scripts/ok.sh", "--skills-root", t.TempDir())

	p := &pool{fronts: &fronts{flags: append(at[:2:2], "--cluster-replicas", "1")}, t: t}
	common := slices.Concat([]string{"--config", config, "--skills-root", t.TempDir(), "--pool", "p"}, at)
	for i := range 2 {
		p.add(serveHTTP(t, slices.Concat(common, []string{"--state", filepath.Join(dir, fmt.Sprint("front", i)), "--cluster-replicas", "1",
			"--auth-token-file", tokenFile(t, "alice"), "--prompt-slot-role", "direct-command", "--node", fmt.Sprint("front", i)})...))
	}
	p.caller = p.at(0, "alice-token")
	p.handle = p.load(p.caller)
	p.worker = append(common, "--log-format", "json")
	first := p.start("--node", "w1")
	if said := first.stderr.String(); !strings.Contains(said, "installed from the cluster") {
		t.Errorf("the worker said\n%s", said)
	}
	p.wants(p.caller, "ok.sh", "one", "", "ran-ok one")
	p.wants(p.at(1, "alice-token"), "ok.sh", "two", "", "ran-ok two")
	var rules []string
	for _, o := range p.wantOutcomes("done", "done") {
		rules = append(rules, o.Skillsd.WorkerRules)
	}
	if rules[0] != rules[1] || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(rules[0]) {
		t.Errorf("rules of the worker: %q", rules)
	}

	// A worker decides by its own entries: it installs and runs nothing that they do not name.
	end := func(w *process) {
		t.Helper()
		if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		w.leave()
	}
	end(first)
	older := filepath.Join(t.TempDir(), "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(tree: "?sha256:)[0-9a-f]{64}`).ReplaceAll(text, []byte("${1}"+strings.Repeat("0", 64)))
	if err := os.WriteFile(older, text, 0o600); err != nil {
		t.Fatal(err)
	}
	second := p.start("--config", older)
	p.wants(p.caller, "ok.sh", "x", "sandbox_unavailable", "does not have the skill demo with the files sha256:")
	end(second)
	changed := demoSkill()
	changed["demo/scripts/ok.sh"] += "echo changed\n"
	own := p.start("--skills-root", "builtin="+tree(t, changed))
	if strings.Contains(own.stderr.String(), "installed from the cluster") {
		t.Error("a worker installed a skill whose path it serves from elsewhere")
	}
	p.wants(p.caller, "ok.sh", "x", "sandbox_unavailable", "does not have the skill demo with the files sha256:")
	end(own)

	// Files that somebody has changed are installed nowhere, and publishing mends them.
	script = "skillsd.skill." + digest.FromBytes(was).Encoded() + ".0"
	conn := nats.Connect(t)
	if err := conn.Publish(script, append(was, "echo evil\n"...)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	late := exec.Command(binary, append(sync, "--trust-tiers", "--config", config, "--state", filepath.Join(dir, "late"))...)
	var said strings.Builder
	late.Stderr = &said
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	third := p.start()
	if said := third.stderr.String(); !strings.Contains(said, "are missing or wrong") {
		t.Errorf("the worker said\n%s", said)
	}
	p.wants(p.caller, "ok.sh", "x", "sandbox_unavailable", "does not have the skill demo with the files sha256:")
	end(third)
	_ = late.Wait() // the code says it
	_, err = os.Stat(filepath.Join(dir, "late", "installed", "user", "demo"))
	if code := late.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "publish them again") || !os.IsNotExist(err) {
		t.Errorf("sync exited %d, and the skill: %v\n%s", code, err, &said)
	}
	var made, mended struct{ Digest string }
	err = json.Unmarshal([]byte(published), &made)
	if again := json.Unmarshal([]byte(run(0, "maker", "", append(publish, "--json")...)), &mended); err != nil || again != nil || made != mended {
		t.Errorf("published %v, then %v, %v, %v", made, mended, err, again)
	}
	fourth := p.start("--node", "w4")
	p.wants(p.caller, "ok.sh", "mended", "", "ran-ok mended")
	end(fourth)

	// What allowlists still name can be had after the next publication.
	run(0, "maker", "", "remove", "demo")
	run(0, "maker", "", "install", filepath.Join(tree(t, changed), "demo"), "--tier", "user")
	run(0, "maker", "", publish...)
	run(3, "front1", "demo: is of another version", append(sync, "--check", "--trust-tiers")...)
	p.start("--node", "w5")
	p.wants(p.caller, "ok.sh", "earlier", "", "ran-ok earlier")
}

// A worker installs nothing but what its entries pin, and what it leaves out keeps nothing else away.
func TestCatalogueLeavesOut(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	t.Parallel()
	nats, dir := clustertest.Start(t, 1), t.TempDir()
	key, config := filepath.Join(dir, "key"), filepath.Join(dir, "config.yaml")
	for name, text := range map[string]string{key: strings.Repeat("0123456789abcdef", 4), config: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		args = append(args, "--config", config, "--state", filepath.Join(dir, "maker"))
		skillsd(t, 0, args...)
	}
	files := map[string]string{}
	for _, name := range []string{"nest", "nest/a", "nest/b", "plain", "sealed", "wanting"} {
		files[name+"/SKILL.md"] = "---\nname: " + filepath.Base(name) + "\ndescription: For tests.\n---\n# It\n"
		files[name+"/scripts/ok.sh"] = "#!/bin/bash\n. ${0%/*}/lib.sh\n"
		files[name+"/scripts/lib.sh"] = "echo ran\n"
	}
	source := tree(t, files)
	packed := filepath.Join(source, "sealed.tar.gz")
	run("pack", filepath.Join(source, "sealed"), "--out", packed)
	if err := sign(filepath.Join(dir, "ann.pub"), packed); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.FileServer(http.Dir(source)))
	t.Cleanup(web.Close)
	run("install", web.URL+"/sealed.tar.gz", "--signed-by", filepath.Join(dir, "ann.pub"))
	for _, name := range []string{"nest", "plain", "wanting"} {
		run("install", filepath.Join(source, name))
	}
	for _, name := range []string{"nest/a", "nest/b", "plain", "sealed", "wanting"} {
		run("allow", "--yes", "--offer-tool", name+":scripts/ok.sh")
	}
	run("publish", "--cluster-replicas", "1", "--cluster", nats.URLs()[0], "--cluster-key", key)

	pinned, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	trust := "trust:\n  required: [" + filepath.Join(source, "wanting") + "]\n  signers:\n    ann:\n      signed_by: " +
		filepath.Join(dir, "ann.pub") + "\n"
	loose := regexp.MustCompile(`(nest/b:\S+\n    )tree: .*`).ReplaceAll(pinned, []byte("${1}pin: script"))
	left := []string{"sealed", "it is signed", "wanting", "trust.required"}
	for _, test := range []struct {
		name, config string
		has, says    []string
	}{
		{"pinned", string(pinned) + trust, []string{"nest", "plain"}, left},
		{"loose", string(loose) + trust, []string{"plain"}, append(left, "the allowlist entry nest/b:scripts/ok.sh@", "has another tree, or none")},
	} {
		t.Run(test.name, func(t *testing.T) {
			state, config := t.TempDir(), filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(config, []byte(test.config), 0o600); err != nil {
				t.Fatal(err)
			}
			w := start(t, exec.Command(binary, "worker", "--pool", "p", "--cluster", nats.URLs()[0], "--cluster-key", key,
				"--skills-root", t.TempDir(), "--config", config, "--state", state, "--log-format", "json"))
			w.untilLogged("worker ready")
			var has []string
			places, err := filepath.Glob(filepath.Join(state, "installed", "*", "*"))
			for _, place := range places {
				has = append(has, filepath.Base(place))
			}
			if err != nil || !slices.Equal(has, test.has) {
				t.Errorf("the worker installed %q, want %q: %v", has, test.has, err)
			}
			for _, text := range test.says {
				if !strings.Contains(w.stderr.String(), text) {
					t.Errorf("the worker does not say %q", text)
				}
			}
		})
	}
}
