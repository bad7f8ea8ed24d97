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
	"github.com/skillsd/skillsd/sandbox/native"
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

// probe prints its observations for judge. A missing line is a miss too.
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

// check runs the self-test with r, in real sandboxes and with files below [os.TempDir].
//
// Errors: the errors of [sandbox.Runner], *[CheckError], and failures to prepare the files.
func check(ctx context.Context, r sandbox.Runner) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	sweep()
	dir, err := os.MkdirTemp("", checkPrefix+native.OwnMark()+"-")
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

	// Both runs mostly wait, so they run concurrently.
	var seen, ended []string
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		res, err := r.Run(gctx, canary(tree, checkLimit/2, "probe.sh", host))
		if err != nil {
			return err
		}
		seen = judge(res, token)
		return nil
	})
	g.Go(func() error {
		// The daemon is identified by the duration of its sleep, which is in its command line.
		length := "86400." + strconv.FormatInt(time.Now().UnixNano(), 10)
		res, err := runDaemon(gctx, r, tree, length)
		if err != nil {
			return err
		}
		ended = judgeDaemon(res, length)
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if misses := append(seen, ended...); len(misses) > 0 {
		return &CheckError{Backend: r.Name(), Misses: misses}
	}
	return nil
}

// plant creates the tree for the self-test, and a host file that must not be visible.
func plant(dir, token string) (tree *os.File, host string, err error) {
	skill := filepath.Join(dir, "skill")
	host = filepath.Join(dir, "host")
	// All users may read and write these files, so only the sandbox protects them.
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

// Both processes of the daemon sleep until they are killed.
const (
	daemon  = "sleep \"$1\" & echo started; sleep \"$1\"\n"
	started = "started\n"
)

// runDaemon runs the daemon with a time limit that lets it start to sleep. On a busy machine, or with a
// kernel to start first, that takes longer, so it retries with longer limits.
func runDaemon(ctx context.Context, r sandbox.Runner, tree *os.File, length string) (*sandbox.Result, error) {
	for limit := daemonLimit; ; limit *= 5 {
		res, err := r.Run(ctx, canary(tree, limit, "daemon.sh", length))
		if err != nil || res.Outcome != sandbox.TimedOut || string(res.Stdout.Head) == started ||
			limit*5 > checkLimit {
			return res, err
		}
	}
}

// canary returns the command for a script of the self-test.
func canary(tree *os.File, timeout time.Duration, script string, arg string) *sandbox.Cmd {
	return &sandbox.Cmd{
		Argv:   []string{"/bin/sh", sandbox.SkillDir + "/" + script, arg},
		Tree:   tree,
		Env:    []string{"PATH=/usr/bin:/bin"},
		Limits: sandbox.Limits{Timeout: timeout, Memory: 128 << 20, PIDs: 16, Output: 64 << 10},
	}
}

// judge returns the points in which the probe observed too much, or too little.
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
		// The helper, which all backends share, has tested the filter itself, for example with a vsock
		// socket.
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

// judgeDaemon returns the points in which the daemon was not killed.
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

// running reports whether a process on this machine has arg in its command line, or may have it.
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

// stale is the age at which a self-test's directory must be from a killed server.
const stale = 10 * time.Minute

// sweep removes the directories of killed servers, which it recognizes by process ID or by age. It ignores
// directories that it cannot remove, such as another user's.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), checkPrefix+"*"))
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if native.Orphaned(checkPrefix, filepath.Base(dir)) || time.Since(info.ModTime()) > stale {
			_ = os.RemoveAll(dir)
		}
	}
}
