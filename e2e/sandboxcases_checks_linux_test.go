package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func (b *toolBench) outsideScripts() {
	b.needSandbox()
	b.ran(b.run(nil), "ran-ok")
	b.refused(b.run(map[string]any{"path": "assets/../assets/tool.sh"}), "script_path_invalid")
	b.p, b.Server.Allow = nil, []string{"demo:scripts/ok.sh"}
	b.write("demo/scripts/ok.sh", "#!/bin/bash\necho ran-ok\n")
	b.refused(b.run(nil), "script_path_invalid")
	b.Server.Allow = []string{"demo:assets/tool.md"}
	b.startFails(b.flags(), "assets/tool.md")
}

func (b *toolBench) directory() {
	b.write("demo/scripts/d/keep.txt", "x")
	r := b.run(nil)
	b.refused(r)
	if !strings.Contains(r.text(), "resource_not_script") && !strings.Contains(r.text(), "script_not_file") {
		b.Errorf("refused as %s", r.text())
	}
}

// drift has a script changed, or removed, behind the server's back.
func (b *toolBench) drift() {
	b.needSandbox()
	b.ran(b.run(nil), "ran-ok")
	script := filepath.Join(b.skills(), "demo/scripts/ok.sh")
	if b.ID == "T11" {
		if err := os.Remove(script); err != nil {
			b.Fatal(err)
		}
	} else {
		b.write("demo/scripts/ok.sh", "#!/bin/bash\necho ran-new\n")
	}
	b.refused(b.run(nil), "script_snapshot_mismatch")
	b.refused(b.run(nil), "script_snapshot_mismatch")
}

// variants writes scripts and returns the calls' answers by name.
func (b *toolBench) variants(texts map[string]string) map[string]toolResult {
	for name, text := range texts {
		b.write("demo/scripts/"+name, text)
		b.Server.Allow = append(b.Server.Allow, "demo:scripts/"+name)
	}
	answers := map[string]toolResult{}
	for name := range texts {
		answers[name] = b.run(map[string]any{"path": "scripts/" + name})
	}
	return answers
}

func (b *toolBench) unsupportedRuntimes() {
	found := map[string]string{
		"ruby": "ruby", "perl": "perl", "elf": "no shebang", "none": "no shebang", "inside": "interp",
		"dash-c": "-c", "dash-p": "-p", "init-file": "--init-file",
	}
	for name, r := range b.variants(map[string]string{
		"ruby": "#!/usr/bin/ruby\nputs 'ran-ruby'\n", "perl": "#!/usr/bin/env perl\nprint 'ran-perl'\n", "elf": "\x7fELF\x02\x01\x01\x00\x00",
		"none": "echo ran-none\n", "inside": "#!./interp\necho ran-inside\n", "dash-c": "#!/usr/bin/env -S bash -c id\necho ran-c\n",
		"dash-p": "#!/bin/bash -p\necho ran-p\n", "init-file": "#!/bin/bash --init-file x\necho ran-init\n",
	}) {
		b.refused(r, "unsupported_runtime", found[name])
	}
}

func (b *toolBench) shebangs() {
	b.needSandbox()
	answers := b.variants(map[string]string{
		"crlf": "#!/bin/bash\r\necho ran-crlf #\r\n", "bom": "\xef\xbb\xbf#!/bin/bash\necho ran-bom\n", "space": "#! /bin/bash\necho ran-space\n",
		"long": "#!/bin/" + strings.Repeat("x", 300) + "\necho ran-long\n", "second": "\n#!/usr/bin/env python3\nprint('ran-second')\n",
		"nul": "#!/bin/bash\x00 -x\necho ran-nul\n",
	})
	b.ran(answers["space"], "ran-space")
	for _, name := range []string{"crlf", "bom", "long", "second", "nul"} {
		b.refused(answers[name], "unsupported_runtime")
	}
}

// unknownFields has arguments that the tool does not have: they change nothing of a run.
func (b *toolBench) unknownFields() {
	b.needSandbox()
	r := b.run(nil)
	b.ran(r, "ran-ok")
	if strings.Contains(r.text(), "backend host") {
		b.Errorf("%s: %s", b.Title, r.text())
	}
}

func (b *toolBench) timeouts() {
	b.needSandbox()
	b.write("demo/scripts/ok.sh", "#!/bin/bash\nsleep 60\n")
	for _, bad := range []any{0, -1, 1.5, "NaN", true} {
		b.refused(b.run(map[string]any{"timeoutMs": bad}), "invalid")
	}
	b.refused(b.run(map[string]any{"timeoutMs": 1e12}))
	// A millisecond is a limit like any other: the answer says what became of the run.
	if r := b.run(map[string]any{"timeoutMs": 1}); !strings.Contains(r.text(), "timeout") && !strings.Contains(r.text(), "invalid") {
		b.Errorf("timeoutMs 1 = %s", r.text())
	}
}

func (b *toolBench) noNamespaces() {
	script := `exec unshare -U --map-user="$(id -u)" --map-group="$(id -g)" --keep-caps sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --inh-caps=-all --ambient-caps=-all "$@"' sh "$@"`
	b.write("demo/scripts/ok.sh", "#!/bin/bash\ntouch "+b.root+"/marker\necho ran-ok\n")
	b.write("demo/notes.md", "still read\n")
	cmd := exec.Command("bash", append([]string{"-c", script, "bash", binary}, b.flags()...)...)
	b.asOrdinary(cmd)
	p := b.serve(cmd)
	b.refused(b.runOn(p, nil), "sandbox_unavailable", "remedy")
	b.refused(b.runOn(p, nil), "sandbox_unavailable")
	if read := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "notes.md"}); read.IsError || !strings.Contains(read.text(), "still read") {
		b.Errorf("reading without a sandbox = %s", read.text())
	}
	if _, err := os.Stat(b.root + "/marker"); err == nil {
		b.Error("the script ran")
	}
	if n := strings.Count(p.stderr.String(), `"msg":"no sandbox`); n != 1 {
		b.Errorf("%d warnings that there is no sandbox: %s", n, p.stderr)
	}
}

func (b *toolBench) backendMissing() {
	fake := filepath.Join(b.root, "bin")
	if err := os.Mkdir(fake, 0o755); err != nil {
		b.Fatal(err)
	}
	for _, tt := range []struct{ backend, program string }{
		{"bwrap", ""}, {"runsc", "#!/bin/sh\nexit 1\n"}, {"runsc", "#!/bin/sh\nexec sleep 600\n"}, {"bwrap", "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in /bin/*|/usr/bin/*) exec \"$@\";; esac; shift; done\n"},
	} {
		path := filepath.Join(fake, tt.backend)
		_ = os.Remove(path)
		if tt.program != "" {
			if err := os.WriteFile(path, []byte(tt.program), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		cmd := exec.Command(binary, append(b.flags(), "--sandbox", tt.backend)...)
		cmd.Env = []string{"PATH=" + fake}
		if _, err := os.Stat("/usr/bin/" + tt.backend); err == nil {
			continue // found beside PATH
		}
		p := b.serve(cmd)
		b.refused(b.runOn(p, nil), "sandbox_unavailable")
	}
}

func (b *toolBench) interpreterMissing() {
	b.needSandbox()
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/bin"} {
		if _, err := os.Stat(dir + "/deno"); err == nil {
			b.Skipf("missing capability: a machine without %s/deno, which is found whatever PATH says", dir)
		}
	}
	b.write("demo/scripts/p.ts", "console.log('ran-ts')\n")
	b.Server.Allow = append(b.Server.Allow, "demo:scripts/p.ts")
	b.env = append(b.env, "PATH=/nonexistent")
	b.refused(b.run(map[string]any{"path": "scripts/p.ts"}), "interpreter_not_found", "deno")
}

func (b *toolBench) parallel() {
	b.needSandbox()
	b.write("demo/scripts/ok.sh", "#!/bin/bash\n[ -e /tmp/mine ] && echo shared\necho $1 >/tmp/mine\nsleep 2\ncat /tmp/mine\n")
	p := b.serve(exec.Command(binary, b.flags()...))
	const calls = 20
	// One write: a pause between them would be the client's.
	var lines strings.Builder
	for id := range calls {
		lines.WriteString(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","args":["number-%d"]}}}`+"\n", 1000+id, id))
	}
	p.send(lines.String() + `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	answered := map[int]bool{}
	for range calls + 2 {
		var a struct {
			ID     int
			Result toolResult
		}
		line := p.receive()
		if err := json.Unmarshal([]byte(line), &a); err != nil || answered[a.ID] {
			b.Fatalf("answer %s, %v; answered before: %v", line, err, answered[a.ID])
		}
		if a.ID >= 1000 && (len(answered) < 2) {
			b.Errorf("run %d was answered before ping and tools/list", a.ID-1000)
		}
		answered[a.ID] = true
		if want := fmt.Sprintf("number-%d\n", a.ID-1000); a.ID >= 1000 && (!strings.Contains(a.Result.text(), want) || strings.Contains(a.Result.text(), "shared")) {
			b.Errorf("run %d = %s", a.ID-1000, a.Result.text())
		}
	}
}

func (b *toolBench) denialShape() {
	b.write("demo/scripts/other.sh", "#!/bin/bash\necho ran-other\n")
	r := b.run(nil)
	b.refused(r, "script_not_allowlisted")
	var text, structured map[string]any
	if err := json.Unmarshal(r.object(), &text); err != nil {
		b.Fatalf("the first block does not end with JSON: %v: %s", err, r.text())
	}
	if err := json.Unmarshal(r.StructuredContent, &structured); err != nil || toJSON(text) != toJSON(structured) {
		b.Errorf("text %s and structuredContent %s differ, %v", toJSON(text), r.StructuredContent, err)
	}
	if text["type"] != "cf-harness.observation-denied" {
		b.Errorf("no denial: %s", toJSON(text))
	}
}

func (b *toolBench) absent() {
	p := b.serve(exec.Command(binary, "serve", "--state", b.root+"/state", "--log-format", "json", "--skills-root", "builtin="+b.skills()))
	if tools := p.ask("tools/list", "{}"); strings.Contains(string(tools.Result), "run_skill_script") {
		b.Errorf("tools/list = %s", tools.Result)
	}
	b.refused(b.runOn(p, nil), "tool_not_allowed")
}

func (b *toolBench) storeInWorkspace() {
	ws := filepath.Join(b.root, "ws")
	for _, mode := range []string{":rw", ":staged", ""} {
		b.startFails(append(b.flags(), "--workspace", ws+mode, "--state", ws+"/.store"), "workspace")
	}
}

func (b *toolBench) inexactEntries() {
	b.Server.Allow = nil
	for _, entry := range []string{"demo:*", "demo:scripts/", "demo:scripts/../scripts/ok.sh", "*:scripts/ok.sh", "demo", ":scripts/ok.sh",
		"demo:scripts/ok.sh:x", "demo:scripts/*.sh", "de?o:scripts/ok.sh", "demo:/scripts/ok.sh", "", "demo:scripts/ok.sh@sha256:12"} {
		b.startFails(b.flags(entry), "allow-skill-script")
	}
}

func (b *toolBench) specialFiles() {
	b.needSandbox()
	scripts := filepath.Join(b.skills(), "demo/scripts")
	if err := syscall.Mkfifo(scripts+"/fifo.sh", 0o644); err != nil {
		b.Fatal(err)
	}
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrUnix{Name: scripts + "/s.sh"}); err != nil {
		b.Fatal(err)
	}
	b.write("demo/assets/big", "")
	if err := os.Truncate(filepath.Join(b.skills(), "demo/assets/big"), 1<<40); err != nil {
		b.Fatal(err)
	}
	b.write("demo/scripts/a\nb.sh", "echo ran-newline\n")
	b.write("demo/scripts/\xff.sh", "echo ran-invalid\n")
	b.write("demo/scripts/unreadable.sh", "echo ran-unreadable\n")
	if err := os.Chmod(scripts+"/unreadable.sh", 0); err != nil {
		b.Fatal(err)
	}
	b.ran(b.run(nil), "ran-ok")
	for _, name := range []string{"fifo.sh", "s.sh"} {
		b.refused(b.run(map[string]any{"path": "scripts/" + name}))
	}
	var stderr strings.Builder
	list := exec.Command(binary, "list", "--json", "--skills-root", b.skills())
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		b.Fatalf("list: %v\n%s", err, &stderr)
	}
	for _, want := range []string{"fifo.sh", "s.sh", "assets/big"} {
		if !strings.Contains(string(out), want) {
			b.Errorf("%s is not reported", want)
		}
	}
}

func (b *toolBench) ceiling() {
	b.needSandbox()
	b.write("demo/scripts/ok.sh", "#!/bin/bash\necho ran-ok\nsleep 600\n")
	cmd := exec.Command(binary, append(b.flags(), "--limit", "timeout=1s")...)
	p := b.serve(cmd)
	begin := time.Now()
	r := b.runOn(p, map[string]any{"timeoutMs": 500_000})
	if !r.IsError || time.Since(begin) > patience {
		b.Errorf("a call above the ceiling = %s after %v", r.text(), time.Since(begin))
	}
	for _, field := range []string{"memory", "pids", "output", "limits"} {
		if r := b.runOn(p, map[string]any{field: 1 << 40}); !strings.HasPrefix(r.text(), "timeout ") {
			b.Errorf("with %s the limit of the server is not in force: %s", field, r.text())
		}
	}
}

func (b *toolBench) resultShape() {
	b.needSandbox()
	b.write("demo/scripts/ok.sh", "#!/bin/bash\necho to-out; echo to-err >&2; exit 3\n")
	r := b.run(nil)
	if r.IsError || len(r.StructuredContent) != 0 {
		b.Errorf("exit 3 = %s, structuredContent %s", r.text(), r.StructuredContent)
	}
	for _, want := range []string{"exit 3", "backend ", " ms", "to-out", "to-err"} {
		if !strings.Contains(r.text(), want) {
			b.Errorf("no %q in %s", want, r.text())
		}
	}
	meta := string(r.Meta["skillsd/result"])
	for _, want := range []string{`"exitCode":3`, `"durationMs":`, `"backend":"`, `"truncated":false`, `"bytes":7`, `"outcome":"exited"`} {
		if !strings.Contains(meta, want) {
			b.Errorf("no %s in %s", want, meta)
		}
	}
}

func (b *toolBench) frontmatterGrants() {
	b.needSandbox()
	b.write("demo/SKILL.md", "---\nname: demo\ndescription: Asks for more.\nnetwork: true\nsandbox: none\npermissions: all\nmetadata:\n  network: \"true\"\n---\n")
	b.write("demo/scripts/ok.sh", "#!/bin/bash\necho ran-ok\ncat "+b.root+"/secret\nawk -F: 'NR>2{print \"link\" $1}' /proc/net/dev\ngrep NoNewPrivs /proc/self/status\n")
	if err := os.WriteFile(b.root+"/secret", []byte("TOPSECRET"), 0o644); err != nil {
		b.Fatal(err)
	}
	r := b.run(nil)
	b.ran(r, "ran-ok")
	if strings.Contains(r.text(), "TOPSECRET") || strings.Count(r.text(), "link") != 1 || !strings.Contains(r.text(), "NoNewPrivs:\t1") {
		b.Errorf("the frontmatter widened the sandbox: %s", r.text())
	}
}
