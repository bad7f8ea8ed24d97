package e2e

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// The cases are scripts that attack a sandbox, or that one must not hinder, and tool calls that must
// be refused. testdata/sandbox-cases holds them; a script's header says what must be seen.
const caseDir = "testdata/sandbox-cases"

// sandboxes names the backends whose cases run, beside the controls. The default keeps a usual test
// run short.
var sandboxes = flag.String("sandboxes", "native", "comma-separated backends that the sandbox cases run on")

// otherUser runs the cases as an ordinary user too, when the tests run as root.
var otherUser = flag.Bool("other-user", false, "run the sandbox cases as nobody too, which takes root")

// A hostileCase is one script with what its header says.
type hostileCase struct {
	file, id, level, runtime, title string

	args, expect, forbid, require []string
	setup, host, control          string
	env, fds                      []string
	opts                          map[string]string
	netns                         bool
}

var headerLine = regexp.MustCompile(`^(?:#@|//@)\s*([a-z-]+):\s?(.*)$`)

func hostileCases(t *testing.T) []*hostileCase {
	t.Helper()
	files, err := filepath.Glob(caseDir + "/s[0-9]*")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d sandbox cases, %v", len(files), err)
	}
	var cases []*hostileCase
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := &hostileCase{file: file, level: "must", control: "none", opts: map[string]string{}}
		for line := range strings.Lines(string(data)) {
			if m := headerLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
				c.header(t, m[1], m[2])
			}
		}
		if c.forbid == nil {
			c.forbid = []string{"BREACH"}
		}
		cases = append(cases, c)
	}
	return cases
}

func (c *hostileCase) header(t *testing.T, key, value string) {
	t.Helper()
	switch key {
	case "id":
		c.id = value
	case "title":
		c.title = value
	case "level":
		c.level = value
	case "runtime":
		c.runtime = value
	case "control":
		c.control = value
	case "netns":
		c.netns = value == "1"
	case "args":
		if err := json.Unmarshal([]byte(value), &c.args); err != nil {
			t.Fatalf("%s: args: %v", c.file, err)
		}
	case "opts":
		for o := range strings.FieldsSeq(value) {
			k, v, _ := strings.Cut(o, "=")
			c.opts[k] = v
		}
	case "setup":
		c.setup += value + "\n"
	case "host":
		c.host += value + "\n"
	case "server-env":
		c.env = append(c.env, value)
	case "server-fd":
		c.fds = append(c.fds, value)
	case "expect":
		c.expect = append(c.expect, value)
	case "forbid-stdout":
		c.forbid = append(c.forbid, value)
	case "require-stdout":
		c.require = append(c.require, value)
	case "tries", "must":
	default:
		t.Fatalf("%s: unknown header %q", c.file, key)
	}
}

// opt is a limit of the case, in the words of the configuration.
func (c *hostileCase) opt(key, otherwise string) string { return cmp.Or(c.opts[key], otherwise) }

// caseUser is who a case's host commands and its server run as.
type caseUser struct {
	name string
	cred *syscall.Credential // nil is who runs the tests
}

// caseUsers are the users to try: root and somebody ordinary where that is possible.
func caseUsers() []caseUser {
	if os.Geteuid() != 0 {
		return []caseUser{{name: "user"}}
	}
	users := []caseUser{{name: "root"}}
	if *otherUser {
		users = append(users, caseUser{"user", &syscall.Credential{Uid: 65534, Gid: 65534}})
	}
	return users
}

// needCaseTools skips when a program that cases start on the host is not installed.
func needCaseTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"bash", "python3", "setpriv", "unshare", "ip", "ipcmk", "pgrep", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
				t.Fatalf("the cases call %s, which is not here", tool)
			}
			t.Skipf("missing capability: %s, which the cases call", tool)
		}
	}
}

// TestSandboxCases runs every hostile and every ordinary script through a real server, on each
// backend that is asked for, and looks at the answer and at the host.
func TestSandboxCases(t *testing.T) {
	needCaseTools(t)
	cases := hostileCases(t)
	for backend := range strings.SplitSeq(*sandboxes, ",") {
		for _, user := range caseUsers() {
			t.Run(backend+"/"+user.name, func(t *testing.T) {
				if why := unavailableAs(t, backend, user); why != "" {
					if backend == "native" && os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
						t.Fatalf("the sandbox %s does not work here: %s", backend, why)
					}
					t.Skipf("missing capability: the sandbox %s: %s", backend, why)
				}
				for _, c := range cases {
					t.Run(c.id, func(t *testing.T) {
						t.Parallel()
						if why := c.excuse(backend, user); why != "" {
							t.Skip("missing capability: " + why)
						}
						c.hold(t, backend, user)
					})
				}
			})
		}
	}
}

// TestSandboxCasesControls shows that the attacks find what they look for: without a sandbox each of
// them succeeds.
func TestSandboxCasesControls(t *testing.T) {
	needCaseTools(t)
	cases := hostileCases(t)
	for _, user := range caseUsers() {
		t.Run(user.name, func(t *testing.T) {
			if user.cred != nil {
				nightly.Only(t)
			}
			for _, c := range cases {
				if c.control != "breach" {
					continue
				}
				t.Run(c.id, func(t *testing.T) {
					// What takes all it can get is held back by others that do, where the machine is small.
					if c.opts["mem"] == "" && c.opts["pids"] == "" {
						t.Parallel()
					}
					if user.name != "root" && rootOnly[c.id] {
						t.Skip("missing capability: root, to whom alone the attack is open outside a sandbox")
					}
					// Chance may save the host once: another process is killed, a disk is full for a moment.
					var seen []string
					for len(seen) < 3 {
						b := c.bench(t, user)
						r := b.unconfined()
						if len(b.judge(r)) > 0 {
							return
						}
						seen = append(seen, toJSON(r))
						b.remove()
					}
					t.Errorf("%s does no harm without a sandbox: %s: %s", c.id, c.title, seen)
				})
			}
		})
	}
}

// rootOnly are the attacks that do no harm in the hands of an ordinary user, whatever runs them.
var rootOnly = map[string]bool{"S008": true, "S081": true, "S082": true, "S084": true}

// excuse says why what the case demands cannot be had, or "".
func (c *hostileCase) excuse(backend string, user caseUser) string {
	if c.id == "S023" && backend != "native" && user.name != "root" {
		return "a staged workspace, which " + backend + " refuses an ordinary user"
	}
	if c.id == "S085" && user.name != "root" {
		return "root, who alone can run scripts as somebody else: an ordinary user's scripts read what the server's user may read in the workspace"
	}
	if c.id == "S160" && user.name != "root" {
		return "root, who alone can run scripts as somebody else"
	}
	if c.id == "S160" && !ownUsers() {
		return "a file system that can be mounted with changed owners: with a workspace on this one every run is nobody"
	}
	return ""
}

// ownUsers reports whether runs with a workspace where the tests have theirs can have users of their own.
var ownUsers = sync.OnceValue(func() bool {
	dir, err := os.Open(os.TempDir())
	if err != nil {
		return false
	}
	defer dir.Close()
	return native.OwnUsers(sandbox.Workspace{Mode: sandbox.WorkspaceRO, Dir: dir})
})

// hold runs the case on a backend. What fails for want of time alone is tried again, twice: the machine
// may have been busy.
func (c *hostileCase) hold(t *testing.T, backend string, user caseUser) {
	t.Helper()
	var failures []string
	hasty := func(f string) bool { return !strings.Contains(f, "wallMs") && !strings.Contains(f, "(timeout)") }
	for range 3 {
		b := c.bench(t, user)
		failures = b.judge(b.served(backend))
		if len(failures) == 0 || slices.ContainsFunc(failures, hasty) {
			break
		}
		b.remove()
	}
	for _, f := range failures {
		t.Errorf("%s [%s] %s: %s", c.id, c.level, c.title, f)
	}
}

// caseResult is what a run of a case came to, in the words of the cases' expectations.
type caseResult struct {
	Outcome         string `json:"outcome"`
	Exit            int    `json:"exit"`
	Signal          string `json:"signal,omitempty"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutBytes     int64  `json:"stdoutBytes"`
	StdoutTruncated bool   `json:"stdoutTruncated"`
	WallMS          int64  `json:"wallMs"`
	OOM             bool   `json:"oom"`
}

// judge returns in which points a result, or the host after it, is not what the case demands.
func (b *caseBench) judge(r caseResult) []string {
	var failures []string
	text := r.Stdout + "\n" + r.Stderr
	for _, forbidden := range b.forbid {
		if m := regexp.MustCompile("(?m)" + b.expand(forbidden)).FindString(text); m != "" {
			failures = append(failures, fmt.Sprintf("saw %q in %.400q", m, text))
		}
	}
	for _, required := range b.require {
		if !regexp.MustCompile(required).MatchString(text) {
			failures = append(failures, fmt.Sprintf("no %q in %.400q (%s)", required, text, r.Outcome))
		}
	}
	for _, e := range b.unmet(r) {
		failures = append(failures, fmt.Sprintf("not so: %s with %.600s", e, toJSON(r)))
	}
	if b.host != "" {
		if out, err := b.shell(b.host).CombinedOutput(); err != nil {
			failures = append(failures, fmt.Sprintf("on the host: %v %s", err, out))
		}
	}
	return failures
}

// unmet evaluates the case's expectations, which are expressions of Python.
func (b *caseBench) unmet(r caseResult) []string {
	if len(b.expect) == 0 {
		return nil
	}
	judge, err := python()
	if err != nil {
		return []string{fmt.Sprintf("no Python evaluates the expectations: %v", err)}
	}
	failed, err := judge(toJSON(map[string]any{"r": r, "args": b.args, "expect": b.expect}))
	if err != nil {
		return []string{fmt.Sprintf("the expectations cannot be evaluated: %v", err)}
	}
	return failed
}

// python starts one interpreter for the expectations of all cases, which ends with the tests. It returns a
// function that returns which expectations are not met.
var python = sync.OnceValues(func() (judge func(line string) ([]string, error), err error) {
	const program = `import json,re,sys
for line in sys.stdin:
    d=json.loads(line)
    try: answer=[e for e in d["expect"] if not eval(e,{"r":d["r"],"args":d["args"],"re":re,"json":json})]
    except Exception as e: answer=["%r of %s" % (e, d["expect"])]
    print(json.dumps(answer),flush=True)`
	cmd := exec.Command("python3", "-c", program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	out := json.NewDecoder(pipe)
	var mu sync.Mutex
	return func(line string) (failed []string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintln(in, line); err != nil {
			return nil, err
		}
		err = out.Decode(&failed)
		return failed, err
	}, cmd.Start()
})

// seconds is a case's time limit.
func (c *hostileCase) seconds() time.Duration {
	n, err := strconv.ParseFloat(c.opt("timeout", "8"), 64)
	if err != nil {
		panic("e2e: " + c.file + ": timeout")
	}
	return sandboxtest.Scaled(time.Duration(n * float64(time.Second)))
}
