package detect

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/sandbox"
)

// A CheckError lists the points in which a backend does not isolate.
type CheckError struct {
	Backend string
	Misses  []string
}

func (e *CheckError) Error() string {
	return e.Backend + ": self-test: " + strings.Join(e.Misses, "; ")
}

const (
	daemonLimit = 200 * time.Millisecond
	checkLimit  = time.Minute
)

// probe prints what it sees, for judge to compare. A line that it does not print is a miss too.
const probe = `echo "tree $(cat /skill/token)"
if cat "$1" >/dev/null 2>&1; then echo "host read"; else echo "host hidden"; fi
if { true >/skill/planted; } 2>/dev/null; then echo "skill written"; else echo "skill kept"; fi
if { true >/usr/planted; } 2>/dev/null || { true >/planted; } 2>/dev/null; then
  echo "system written"
else
  echo "system kept"
fi
while read -r key value _; do
  case $key in CapEff:|CapPrm:|CapBnd:|NoNewPrivs:|Seccomp:|Uid:) echo "$key $value" ;; esac
done </proc/self/status
links=
while read -r name _; do case $name in *:*) links="$links ${name%%:*}" ;; esac; done </proc/net/dev
echo "links$links"
echo "env ${SKILLSD_SELF_TEST:-none}"
echo end
`

// Check runs the self-test on r with files below [os.TempDir], in real sandboxes.
//
// Errors: the errors of [sandbox.Runner], *[CheckError], and failures to prepare the files.
func Check(ctx context.Context, r sandbox.Runner) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	sweep()
	dir, err := os.MkdirTemp("", checkPrefix+ownMark()+"-")
	if err != nil {
		return fmt.Errorf("prepare the self-test: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	token := rand.Text()
	tree, host, err := plant(dir, token)
	if err != nil {
		return fmt.Errorf("prepare the self-test: %w", err)
	}
	defer func() { _ = tree.Close() }()

	// Both runs take most of their time to wait, so they run at the same time.
	var seen, ended []string
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		res, err := r.Run(gctx, canary(tree, checkLimit/2, "probe.sh", host))
		if err != nil {
			return err
		}
		seen = judge(res, token)
		return err
	})
	g.Go(func() error {
		// The daemon is recognised by the length of its sleep, which is in its command line.
		length := "86400." + strconv.FormatInt(time.Now().UnixNano(), 10)
		res, err := runDaemon(gctx, r, tree, length)
		if err != nil {
			return err
		}
		ended = judgeDaemon(res, length)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if misses := append(seen, ended...); len(misses) > 0 {
		return &CheckError{Backend: r.Name(), Misses: misses}
	}
	return nil
}

// plant makes the tree of the self-test, and a file of the host that it must not see.
func plant(dir, token string) (tree *os.File, host string, err error) {
	skill := filepath.Join(dir, "skill")
	host = filepath.Join(dir, "host")
	// Everyone may read and write what is planted: only the sandbox is in the way.
	err = errors.Join(
		os.Chmod(dir, 0o755),
		os.Mkdir(skill, 0o755),
		os.WriteFile(host, []byte(token), 0o644),
		os.WriteFile(filepath.Join(skill, "token"), []byte(token), 0o644),
		os.WriteFile(filepath.Join(skill, "probe.sh"), []byte(probe), 0o644),
		os.WriteFile(filepath.Join(skill, "daemon.sh"), []byte(daemon), 0o644),
		os.Chmod(skill, 0o777),
		os.Chmod(host, 0o644),
	)
	if err != nil {
		return nil, "", err
	}
	tree, err = os.Open(skill)
	return tree, host, err
}

// daemon must be ended while both its processes sleep.
const (
	daemon  = "sleep \"$1\" & echo started; sleep \"$1\"\n"
	started = "started\n"
)

// runDaemon runs the daemon with a limit that lets it get as far as sleeping: on a busy machine, and with
// a kernel of its own to start first, it needs a longer one.
func runDaemon(ctx context.Context, r sandbox.Runner, tree *os.File, length string) (*sandbox.Result, error) {
	for limit := daemonLimit; ; limit *= 5 {
		res, err := r.Run(ctx, canary(tree, limit, "daemon.sh", length))
		if err != nil || res.Outcome != sandbox.TimedOut || string(res.Stdout.Head) == started ||
			limit*5 > checkLimit {
			return res, err
		}
	}
}

// canary returns the command that runs a script of the self-test.
func canary(tree *os.File, timeout time.Duration, script string, arg string) *sandbox.Cmd {
	return &sandbox.Cmd{
		Argv:   []string{"/bin/sh", sandbox.SkillDir + "/" + script, arg},
		Tree:   tree,
		Env:    []string{"PATH=/usr/bin:/bin"},
		Limits: sandbox.Limits{Timeout: timeout, Memory: 128 << 20, PIDs: 16, Output: 64 << 10},
	}
}

// judge returns the points in which the probe saw too much, or too little.
func judge(res *sandbox.Result, token string) []string {
	if res.Outcome != sandbox.Exited || res.ExitCode != 0 {
		return []string{fmt.Sprintf("the probe ended with %s, exit %d", res.Outcome, res.ExitCode)}
	}
	got := map[string]string{}
	for line := range strings.Lines(string(res.Stdout.Head)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[key] = value
	}
	const noCaps = "0000000000000000"
	var misses []string
	for _, c := range []struct{ key, want, miss string }{
		{"tree", token, "the script does not see its own tree"},
		{"host", "hidden", "a file of the host can be read"},
		{"skill", "kept", "the tree can be written"},
		{"system", "kept", "the system can be written"},
		{"CapEff:", noCaps, "capabilities are left"},
		{"CapPrm:", noCaps, "capabilities are left permitted"},
		{"CapBnd:", noCaps, "the bounding set is not empty"},
		{"NoNewPrivs:", "1", "privileges can be gained"},
		// The helper that all backends share has tried the filter itself, with a socket of AF_VSOCK among
		// others.
		{"Seccomp:", "2", "system calls are not filtered"},
		{"links", "lo", "there is a network"},
		{"env", "none", "variables are passed on"},
	} {
		if got[c.key] != c.want {
			misses = append(misses, c.miss)
		}
	}
	if uid := got["Uid:"]; uid == "" || uid == "0" {
		misses = append(misses, "the script runs as root")
	}
	if _, ok := got["end"]; !ok {
		misses = append(misses, "the probe did not get to its end")
	}
	return misses
}

// judgeDaemon returns the points in which the daemon was not ended.
func judgeDaemon(res *sandbox.Result, length string) []string {
	var misses []string
	if res.Outcome != sandbox.TimedOut {
		misses = append(misses, "the time limit ended nothing: "+string(res.Outcome))
	}
	if res.Outcome == sandbox.TimedOut && string(res.Stdout.Head) != started {
		misses = append(misses, "no command was started in 5 s")
	}
	if running(length) {
		misses = append(misses, "a background process outlived its run")
	}
	return misses
}

// running reports whether a process of this machine has arg in its command line, or may have.
func running(arg string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && bytes.Contains(cmdline, []byte(arg)) {
			return true
		}
	}
	return false
}

// checkPrefix begins the names of the self-test's directories.
const checkPrefix = "skillsd-check-"

// stale is the age at which the server of a self-test's directory must have been killed.
const stale = 10 * time.Minute

// sweep removes the directories of killed servers, which are known to be gone by their number or by age.
// Directories that cannot be removed, such as another user's, are left.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), checkPrefix+"*"))
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if orphaned(filepath.Base(dir)) || time.Since(info.ModTime()) > stale {
			_ = os.RemoveAll(dir)
		}
	}
}

// ownMark identifies this process in the name of a directory. The number of a process means something in
// one namespace only, which precedes the number.
func ownMark() string { return pidSpace() + "-" + strconv.Itoa(os.Getpid()) }

// orphaned reports whether the process that made a directory is known to be gone.
func orphaned(name string) bool {
	rest, ok := strings.CutPrefix(name, checkPrefix+pidSpace()+"-")
	number, _, marked := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	return ok && marked && err == nil && pid > 0 && gone(pid)
}
