package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// shellTools are what the cases' host commands call: bg starts a helper that is ended after the
// case, serve one that hands a secret to whoever reaches it.
const shellTools = `
bg() { "$@" >/dev/null 2>&1 </dev/null & echo $! >>"$CASE_TMP/pids"; }
serve() { python3 "$CASE_TMP/serve.py" "$@" >/dev/null 2>&1 </dev/null & echo $! >>"$CASE_TMP/pids"; until [ -e "$CASE_TMP/serving" ]; do sleep 0.02; done; rm "$CASE_TMP/serving"; }
`

const serveProgram = `
import os, socket, sys, time
kind, at = sys.argv[1:3]
if kind in ("tcp", "udp"):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    host, port = at.split(":")
    address = (host, int(port))
else:
    s = socket.socket(socket.AF_UNIX)
    address = "\0" + at if kind == "abstract" else at
bound = False
while not bound: # until the one before has ended
    try: s.bind(address); bound = True
    except OSError: time.sleep(0.02)
log = sys.argv[3] if len(sys.argv) > 3 else None
if kind == "udp": open(log, "w").close()
else: s.listen(8)
if kind == "tcp" and log: open(log, "w").write(str(s.getsockname()[1]))
open(os.environ["CASE_TMP"] + "/serving", "w").close()
while kind == "udp":
    data, peer = s.recvfrom(4096)
    open(log, "ab").write(data + b"\n")
    s.sendto(b"UDP-OK", peer)
while True:
    c, _ = s.accept()
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\nHOST-SECRET\n")
    c.close()
`

// A caseBench is the place of one case on the host: a skill with the script, a workspace, a
// directory the script must not reach, and one for the case itself.
type caseBench struct {
	*hostileCase
	t                           *testing.T
	user                        caseUser
	root, skill, ws, other, tmp string
}

func (c *hostileCase) bench(t *testing.T, user caseUser) *caseBench {
	t.Helper()
	root, err := os.MkdirTemp("", "sandbox-case-"+c.id+"-")
	if err != nil {
		t.Fatal(err)
	}
	b := &caseBench{hostileCase: c, t: t, user: user, root: root, skill: root + "/skills/case", ws: root + "/ws", other: root + "/host", tmp: root + "/tmp"}
	t.Cleanup(b.remove)
	for _, d := range []string{root, root + "/skills", b.skill, b.skill + "/scripts", b.ws, b.other, b.tmp} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if c.opts["ws"] == "rw" {
		if err := os.Chmod(b.ws, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.WriteFile(b.skill+"/SKILL.md", []byte("---\nname: case\ndescription: A case for the sandbox.\n---\n"), 0o644),
		os.WriteFile(b.skill+"/scripts/"+filepath.Base(c.file), script, 0o755),
		os.WriteFile(b.tmp+"/serve.py", []byte(serveProgram), 0o644),
	)
	if err == nil && user.cred != nil {
		err = filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(p, int(user.cred.Uid), int(user.cred.Gid)))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// remove ends the case's helpers and deletes its place.
func (b *caseBench) remove() {
	pids, _ := os.ReadFile(b.tmp + "/pids")
	for f := range strings.FieldsSeq(string(pids)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = filepath.WalkDir(b.root, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(b.root); err != nil {
		b.t.Error(err)
	}
}

var placeholder = regexp.MustCompile(`\$(SKILL|WS|HOSTDIR|CASE_TMP)\b`)

func (b *caseBench) places() map[string]string {
	return map[string]string{"SKILL": b.skill, "WS": b.ws, "HOSTDIR": b.other, "CASE_TMP": b.tmp}
}

func (b *caseBench) expand(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(m string) string { return b.places()[m[1:]] })
}

// shell is a command of the case on the host, as the case's user.
func (b *caseBench) shell(script string, args ...string) *exec.Cmd {
	cmd := exec.Command("bash", append([]string{"-c", script, "case"}, args...)...)
	cmd.Dir = b.ws
	cmd.Env = append(os.Environ(), "HOME="+b.tmp)
	for k, v := range b.places() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if b.user.cred != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.cred}
	}
	return cmd
}

// behind is the shell script that prepares the case and then becomes its arguments. Where the case
// wants a network of its own, everything is in one.
func (b *caseBench) behind() *exec.Cmd {
	prepare := shellTools + "{ " + b.setup + "\n:; } >/dev/null 2>&1 </dev/null\n"
	for _, fd := range b.fds {
		n, path, _ := strings.Cut(b.expand(fd), "=")
		prepare += fmt.Sprintf("exec %s<%q\n", n, path)
	}
	for _, kv := range b.env {
		k, v, _ := strings.Cut(b.expand(kv), "=")
		prepare += "export " + k + "='" + v + "'\n"
	}
	if !b.netns {
		return b.shell(prepare + `exec "$@"`)
	}
	up := "ip link set lo up; ip addr add 169.254.169.254/32 dev lo\n"
	if os.Geteuid() == 0 && b.user.cred == nil {
		return b.shell(`p=$1; shift; exec unshare -n bash -c "$p" case "$@"`, up+prepare+`exec "$@"`)
	}
	// An ordinary user has a network of their own in a user namespace, whose rights the server must
	// not keep.
	return b.shell(`p=$1; shift; exec unshare -U --map-user="$(id -u)" --map-group="$(id -g)" --keep-caps -n bash -c "$p" case "$@"`,
		up+prepare+`exec setpriv --inh-caps=-all --ambient-caps=-all "$@"`)
}

// arguments are what the script is called with; those of the form @file:PATH stand for the text of a
// file that the setup wrote.
func (b *caseBench) arguments() []string {
	args := []string{}
	for _, a := range b.args {
		a = b.expand(a)
		if path, ok := strings.CutPrefix(a, "@file:"); ok {
			data, err := os.ReadFile(path)
			if err != nil {
				b.t.Fatal(err)
			}
			a = strings.TrimSpace(string(data))
		}
		args = append(args, a)
	}
	return args
}

// unconfined runs the script as the case's user with nothing in its way.
func (b *caseBench) unconfined() caseResult {
	interpreter := map[string][]string{
		"bash": {"bash"}, "sh": {"sh"}, "python": {"python3", "-B"}, "node": {"node"}, "deno": {"deno", "run"},
	}[b.runtime]
	script := b.skill + "/scripts/" + filepath.Base(b.file)
	cmd := b.behind()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*b.seconds())
	defer cancel()
	// The arguments may name what the setup is still to write.
	var args []string
	for _, a := range b.args {
		if path, ok := strings.CutPrefix(b.expand(a), "@file:"); ok {
			args = append(args, `"$(cat '`+path+`')"`)
		} else {
			args = append(args, "'"+b.expand(a)+"'")
		}
	}
	words := strings.Join(append(interpreter, script), " ") + " " + strings.Join(args, " ")
	cmd.Args = append(cmd.Args, "bash", "-c", `cd "$WS"; exec `+words)
	cmd = withContext(ctx, cmd)
	cmd.Env = append(cmd.Env, "SKILL_DIR="+b.skill, "SKILL_SCRIPT="+script, "SKILL_NAME=case")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	begin := time.Now()
	err := cmd.Run()
	r := caseResult{Outcome: "exited", Exit: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String(),
		StdoutBytes: int64(out.Len()), WallMS: time.Since(begin).Milliseconds()}
	if ctx.Err() != nil {
		r.Outcome = "timeout"
	} else if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		b.t.Fatal(err)
	}
	return r
}

func withContext(ctx context.Context, cmd *exec.Cmd) *exec.Cmd {
	c := exec.CommandContext(ctx, cmd.Path)
	c.Args, c.Env, c.Dir, c.SysProcAttr = cmd.Args, cmd.Env, cmd.Dir, cmd.SysProcAttr
	c.WaitDelay = 5 * time.Second
	return c
}

// served runs the script through a server with the case's limits.
func (b *caseBench) served(backend string) caseResult {
	path := "scripts/" + filepath.Base(b.file)
	mode := map[bool]string{true: ":staged", false: ":ro"}[b.opts["ws"] == "rw"]
	cmd := b.behind()
	cmd.Args = append(cmd.Args, binary, "serve", "--state", b.root+"/state", "--log-format", "json", "--sandbox", backend,
		"--skills-root", "builtin="+b.root+"/skills", "--allow-tool", "run_skill_script", "--allow-skill-script", "case:"+path,
		"--prompt-slot-role", "direct-command", "--release", "observed", "--workspace", b.ws+mode)
	for _, limit := range b.limits() {
		cmd.Args = append(cmd.Args, "--limit", limit)
	}
	p := start(b.t, cmd)
	p.initialize()
	loaded := p.tool("load_skill", map[string]any{"name": "case"})
	if loaded.IsError {
		b.t.Fatalf("load_skill = %s", loaded.text())
	}
	result := p.tool("run_skill_script", map[string]any{"skill": "case", "path": path, "args": b.arguments()})
	if strings.Contains(result.text(), "interpreter_not_found") {
		b.t.Skipf("missing capability: %s", result.text())
	}
	// Whatever the script did, the server answers and leaves in order.
	if a := p.ask("ping", "{}"); a.Error != nil {
		b.t.Errorf("ping after the run: %+v", a.Error)
	}
	if err := p.leave(); err != nil {
		b.t.Errorf("the server's exit after the run: %v", err)
	}
	return b.result(result)
}

// limits are the operator's limits for the case.
func (b *caseBench) limits() []string {
	return []string{
		"timeout=" + b.seconds().String(), "memory=" + b.bytes("mem", "512M"), "pids=" + b.opt("pids", "64"),
		"file=" + b.bytes("fsize", "64M"), "output=" + b.bytes("out", "65536"),
	}
}

// bytes is a size of the case as a number.
func (c *hostileCase) bytes(key, otherwise string) string {
	text := c.opt(key, otherwise)
	shift := map[byte]int{'K': 10, 'M': 20, 'G': 30}[text[len(text)-1]]
	n, err := strconv.ParseInt(strings.TrimRight(text, "KMG"), 10, 64)
	if err != nil {
		panic("e2e: " + c.file + ": " + key)
	}
	return strconv.FormatInt(n<<shift, 10)
}

// result reads the answer of a run.
func (b *caseBench) result(answer toolResult) caseResult {
	var out struct {
		Stdout, Stderr string
		ExitCode       *int
		Error          *struct{ Code, Message string }
		Skillsd        struct {
			Outcome, Signal string
			DurationMS      int64 `json:"durationMs"`
			Stdout          struct {
				Bytes     int64
				Truncated bool
			}
		}
	}
	if err := json.Unmarshal(answer.Meta["skillsd/result"], &out); err != nil {
		b.t.Fatalf("skillsd/result of %s: %v", answer.text(), err)
	}
	r := caseResult{
		Outcome: out.Skillsd.Outcome, Exit: -1, Signal: out.Skillsd.Signal, Stdout: out.Stdout, Stderr: out.Stderr,
		StdoutBytes: out.Skillsd.Stdout.Bytes, StdoutTruncated: out.Skillsd.Stdout.Truncated,
		WallMS: out.Skillsd.DurationMS / int64(sandboxtest.Scaled(1)), OOM: out.Skillsd.Outcome == "memory_limit",
	}
	if out.ExitCode != nil {
		r.Exit = *out.ExitCode
	}
	if out.Error != nil {
		r.Outcome, r.Stderr = out.Error.Code, out.Error.Message
	}
	return r
}

// unavailableAs says why no script can be isolated by the backend, or "".
func unavailableAs(t *testing.T, backend string, user caseUser) string {
	t.Helper()
	c := &hostileCase{id: "probe", file: caseDir + "/s126-exit-codes.sh", runtime: "bash", opts: map[string]string{}}
	r := c.bench(t, user).served(backend)
	if r.Outcome == "exited" {
		return ""
	}
	return r.Outcome + ": " + r.Stderr
}
