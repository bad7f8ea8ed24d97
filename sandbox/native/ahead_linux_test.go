package native

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// A Prepared runs each command in a sandbox that was begun ahead, where the command can have such a one.
type Prepared struct {
	*Runner
	T *testing.T
}

func (p Prepared) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	s := prepare(p.T, p.Runner, cmd.Workspace)
	res, err := p.Runner.Run(ctx, cmd)
	// A run that is over before it looks for a helper leaves it.
	p.ahead.mu.Lock()
	left := p.ahead.spare == s
	if left {
		p.ahead.spare = nil
	}
	p.ahead.mu.Unlock()
	if left {
		s.drop()
	}
	return res, err
}

// Hold has no helper started after a run.
func Hold(r *Runner) *Runner {
	r.ahead.mu.Lock()
	defer r.ahead.mu.Unlock()
	r.ahead.running++
	return r
}

// prepare has a helper wait, and returns it.
func prepare(t testing.TB, r *Runner, ws sandbox.Workspace) *spare {
	t.Helper()
	var files owner
	if OwnUsers(ws) { // like what a run leaves for the next one
		files.uid, files.gid = FileOwner(ws)
	}
	var s *spare
	var err error
	onStarter(func() {
		s, err = r.newSpare(files)
		if err == nil {
			r.keep(s)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func aheadBench(t *testing.T) (*Runner, *sandbox.Cmd) {
	sandboxtest.Need(t, "userns", "bash")
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	r := New(&Options{Ahead: true})
	t.Cleanup(r.Close)
	return r, &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", "echo ran"}, Tree: tree}
}

// ran runs the command and reports whether a helper served it that had waited.
func ran(t *testing.T, r *Runner, cmd *sandbox.Cmd) bool {
	t.Helper()
	before := r.ahead.served.Load()
	res, err := r.Run(t.Context(), cmd)
	if err != nil || res.Outcome != sandbox.Exited || string(res.Stdout.Head) != "ran\n" {
		t.Fatalf("Run = %+v, %v, because %v", res, err, errors.Unwrap(err))
	}
	return r.ahead.served.Load() > before
}

// untouched returns a function that reports whether nothing was mounted on the host since, as tests of other
// packages do: helpers that waited then serve nothing.
func untouched(t *testing.T) func() bool {
	f, err := openBlocking("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	s, changed := &spare{mounts: f}, false
	return func() bool {
		changed = changed || s.stale()
		return !changed
	}
}

// waiting returns the helper that waits once there is one.
func waiting(t *testing.T, r *Runner) *spare {
	t.Helper()
	for deadline := time.Now().Add(sandboxtest.Scaled(time.Minute)); ; <-time.After(time.Millisecond) {
		r.ahead.mu.Lock()
		s := r.ahead.spare
		r.ahead.mu.Unlock()
		if s != nil {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal("no helper waits")
		}
	}
}

// children returns the helpers of this process, dead ones that nobody has waited for among them.
func children() []string {
	return slices.DeleteFunc(descendantsOf(os.Getpid()), func(pid string) bool {
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		return err != nil || strings.TrimSpace(string(name)) == "bash"
	})
}

func descendantsOf(pid int) (l []string) {
	for _, p := range descendants(pid) {
		l = append(l, strconv.Itoa(p))
	}
	return l
}

// Each helper serves one run, and the next one waits after that.
func TestAheadServesOnce(t *testing.T) {
	r, cmd := aheadBench(t)
	fair := untouched(t)
	if ran(t, r, cmd) {
		t.Error("the first run was served by a helper that had waited")
	}
	last := 0
	for range 3 {
		s := waiting(t, r)
		if s.child.proc.Pid == last {
			t.Errorf("process %d waits again", last)
		}
		last = s.child.proc.Pid
		if !ran(t, r, cmd) && fair() {
			t.Error("no helper served the run")
		}
		if err := unix.Kill(last, 0); err != unix.ESRCH {
			t.Errorf("process %d is there after its run: %v", last, err)
		}
	}
}

// A workspace in any mode, input and a proxy come after the helper was taken.
func TestAheadServesAll(t *testing.T) {
	r, cmd := aheadBench(t)
	Hold(r)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	ws, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	cmd.Argv = []string{"/usr/bin/bash", "-c", `read -r word && echo "$word"`}
	cmd.Stdin = []byte("ran\n")
	cmd.Network = sandbox.Network{Proxy: noProxy{}}
	for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceNone, sandbox.WorkspaceRO, sandbox.WorkspaceRW, sandbox.WorkspaceStaged} {
		cmd.Workspace = sandbox.Workspace{Mode: mode}
		if mode != sandbox.WorkspaceNone {
			cmd.Workspace.Dir = ws
		}
		fair := untouched(t)
		prepare(t, r, cmd.Workspace)
		if !ran(t, r, cmd) && fair() && (os.Geteuid() != 0 || cmd.Workspace.Dir == nil || OwnUsers(cmd.Workspace)) {
			t.Errorf("%s: no helper served the run", mode)
		}
	}
}

// A command with a root file system of its own sees the same through a helper that showed the host as without
// one: nothing of the host is left.
func TestAheadRoot(t *testing.T) {
	r, cmd := aheadBench(t)
	dir := t.TempDir()
	if err := errors.Join(sandboxtest.RootOf(dir, "/usr/bin/bash"), os.Mkdir(dir+"/etc", 0o755),
		os.WriteFile(dir+"/etc/of-the-root", nil, 0o644)); err != nil {
		t.Skipf("missing capability: programs for a root file system: %v", err)
	}
	cmd.Root = sandboxtest.OpenRoot(t, dir)
	cmd.Root.Links = map[string]string{"linked": "etc/of-the-root"}
	cmd.Argv = []string{"/usr/bin/bash", "-c", `shopt -s dotglob; echo / /* /*/* /dev/*/* /etc/*/*
		while read -r _ _ _ from at options _; do echo "$from $at $options"; done </proc/self/mountinfo`}
	see := func() []string {
		t.Helper()
		res, err := r.Run(t.Context(), cmd)
		if err != nil || res.Outcome != sandbox.Exited || res.ExitCode != 0 {
			t.Fatalf("Run = %+v, %v, because %v", res, err, errors.Unwrap(err))
		}
		// Process 1 has a name for its own number only, and files of the host are bound from different places.
		lines := strings.Split(strings.TrimSpace(string(res.Stdout.Head)), "\n")
		lines[0] = regexp.MustCompile(`/proc/\S+ ?`).ReplaceAllString(lines[0], "")
		slices.Sort(lines[1:])
		return lines
	}
	Hold(r)
	alone := see()
	if !strings.Contains(alone[0], "/etc/of-the-root") || strings.Contains(alone[0], "/etc/alternatives") {
		t.Fatalf("without a helper: %q", alone)
	}
	fair, before := untouched(t), r.ahead.served.Load()
	prepare(t, r, sandbox.Workspace{})
	if diff := cmp.Diff(alone, see()); diff != "" {
		t.Errorf("with a helper (-without +with):\n%s", diff)
	}
	if r.ahead.served.Load() == before && fair() {
		t.Error("no helper served the run")
	}
}

type noProxy struct{}

func (noProxy) Serve(_ context.Context, l net.Listener) { _ = l.Close() }

// A helper that waits has no variable and no file of the server's, and cannot be looked into.
func TestAheadHoldsNothing(t *testing.T) {
	r, _ := aheadBench(t)
	t.Setenv("AHEAD_SECRET", "secret")
	s := prepare(t, r, sandbox.Workspace{})
	dir := "/proc/" + strconv.Itoa(s.child.proc.Pid)
	variables, err := os.ReadFile(dir + "/environ")
	if want := strings.Join(pidone.Environ(pidone.Ahead), "\x00") + "\x00"; os.Geteuid() == 0 &&
		(err != nil || string(variables) != want) {
		t.Errorf("environ = %q, %v, want %q", variables, err, want)
	}
	if os.Geteuid() != 0 && !errors.Is(err, unix.EACCES) {
		t.Errorf("the helper can be looked into: %v", err)
	}
	fds, err := filepath.Glob(dir + "/fd/*")
	if err != nil || os.Geteuid() == 0 && len(fds) < 5 {
		t.Errorf("descriptors %q, %v", fds, err)
	}
	for _, fd := range fds {
		name, err := os.Readlink(fd)
		// The runtime opens the limits of its control group.
		known := slices.ContainsFunc([]string{"pipe:", "socket:", "/memfd:spec", "/usr/out", "anon_inode:[event",
			"/sys/fs/cgroup/"}, func(start string) bool { return strings.HasPrefix(name, start) })
		if err != nil || !known {
			t.Errorf("descriptor %s is %s, %v", filepath.Base(fd), name, err)
		}
	}
}

// A helper that is gone, or shows what the host had before, serves nothing: the next run makes its own.
func TestAheadUnfit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, s *spare)
	}{
		{"dead", func(t *testing.T, s *spare) {
			if err := s.child.proc.Kill(); err != nil {
				t.Error(err)
			}
		}},
		{"other files", func(_ *testing.T, s *spare) { s.host = s.host[1:] }},
		{"other mounts", func(t *testing.T, s *spare) {
			sandboxtest.Need(t, "root")
			dir := t.TempDir()
			if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
				t.Skipf("missing capability to mount: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, cmd := aheadBench(t)
			Hold(r)
			tt.spoil(t, prepare(t, r, sandbox.Workspace{}))
			if ran(t, r, cmd) {
				t.Error("the helper served the run")
			}
			if left := children(); len(left) != 0 {
				t.Errorf("processes %q are left", left)
			}
		})
	}
}

// A helper that dies while it is made the run's has run nothing: the run gets another.
func TestAheadLost(t *testing.T) {
	r, cmd := aheadBench(t)
	Hold(r)
	s := prepare(t, r, sandbox.Workspace{})
	if err := s.child.proc.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go func() {
		for taken := false; !taken; <-time.After(time.Millisecond) {
			r.ahead.mu.Lock()
			taken = r.ahead.spare == nil
			r.ahead.mu.Unlock()
		}
		_ = unix.Kill(s.child.proc.Pid, unix.SIGKILL)
	}()
	if ran(t, r, cmd) {
		t.Error("a dead helper served the run")
	}
}

// Nothing is left of a helper that nothing came for, nor after Close, which starts no other.
func TestAheadEnds(t *testing.T) {
	r, cmd := aheadBench(t)
	ran(t, r, cmd)
	s := waiting(t, r)
	if len(children()) == 0 {
		t.Error("no process waits")
	}
	s.expiry.Reset(0)
	for deadline := time.Now().Add(sandboxtest.Scaled(time.Minute)); len(children()) > 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("processes %q are left", children())
		}
	}
	ran(t, r, cmd)
	waiting(t, r)
	r.Close()
	if left := children(); len(left) != 0 {
		t.Errorf("after Close processes %q are left", left)
	}
	ran(t, r, cmd)
	onStarter(func() { r.provide(owner{}) })
	if left := children(); len(left) != 0 {
		t.Errorf("after Close and a run processes %q are left", left)
	}
	leases.Lock()
	defer leases.Unlock()
	if len(leases.taken) != 0 {
		t.Errorf("users %v are still leased", leases.taken)
	}
}

// A helper that cannot be started leaves nothing behind, and no run fails for it.
func TestAheadFails(t *testing.T) {
	sandboxtest.Need(t, "root")
	r, cmd := aheadBench(t)
	all := DefaultUIDs()
	r.opts.UIDs = UIDs{First: all.Last, Last: all.Last}
	uid, release, err := r.opts.UIDs.Lease()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.newSpare(owner{}); err == nil {
		t.Errorf("a helper waits with user %d, leased is %d", s.uid, uid)
	}
	release()
	for range 5 {
		ran(t, r, cmd)
	}
	// A run that cannot take the helper gets its user.
	for range 5 {
		r.ahead.mu.Lock()
		r.ahead.running++ // no further helper is started
		r.ahead.mu.Unlock()
		r.clear(false) // nor does one that was being started keep the user
		prepare(t, r, sandbox.Workspace{})
		if res, err := r.run(t.Context(), cmd, func() error { return nil }, false); err != nil || string(res.Stdout.Head) != "ran\n" {
			t.Fatalf("Run = %+v, %v", res, err)
		}
	}
}

// The control group of a run is made while its helper works. If it cannot be made nothing runs, and nothing is left.
func TestAheadWithoutGroup(t *testing.T) {
	r, cmd := aheadBench(t)
	r.base()
	r.host.base = cgroupBase{memory: MemoryCgroup1, mem: filepath.Join(t.TempDir(), "gone")}
	Hold(r)
	prepare(t, r, sandbox.Workspace{})
	res, err := r.Run(t.Context(), cmd)
	unusable, ok := errors.AsType[*sandbox.UnavailableError](err)
	if !ok || unusable.Reason != "no control group could be made" {
		t.Errorf("Run = %+v, %v", res, err)
	}
	if left := children(); len(left) != 0 {
		t.Errorf("processes %q are left", left)
	}
}

// entering is a Builder whose program enters a helper's namespaces, and is never started here.
type entering struct{}

func (entering) Check(*sandbox.Cmd) error      { return nil }
func (entering) Setting() pidone.Setting       { return pidone.Built }
func (entering) Enters() bool                  { return true }
func (entering) Build(*Plan) (*Command, error) { return nil, errors.New("not built") }

// The process that waits for a Builder's program ends too if the control group cannot be made, which comes first then.
func TestAheadForBuilderWithoutGroup(t *testing.T) {
	sandboxtest.Need(t, "root")
	r, cmd := aheadBench(t)
	r.builder = entering{}
	r.base()
	r.host.base = cgroupBase{memory: MemoryCgroup1, mem: filepath.Join(t.TempDir(), "gone")}
	Hold(r)
	prepare(t, r, sandbox.Workspace{})
	res, err := r.Run(t.Context(), cmd)
	unusable, ok := errors.AsType[*sandbox.UnavailableError](err)
	if !ok || unusable.Reason != "no control group could be made" {
		t.Errorf("Run = %+v, %v", res, err)
	}
	if left := children(); len(left) != 0 {
		t.Errorf("processes %q are left", left)
	}
}

// A command waits for begin, and does not start if that fails; the wait is no part of its time. A helper that
// waited, and the sandbox, are made for it all the same, and gone afterwards.
func TestRunAfter(t *testing.T) {
	r, cmd := aheadBench(t)
	cmd.Limits.Timeout = sandboxtest.Scaled(time.Second)
	for _, ahead := range []bool{false, true} {
		for _, refusal := range []error{nil, errors.New("not recorded")} {
			Hold(r)
			if ahead {
				prepare(t, r, sandbox.Workspace{})
			}
			var printed atomic.Bool
			cmd.Live = writerFunc(func(p []byte) (int, error) { printed.Store(true); return len(p), nil })
			res, err := r.RunAfter(t.Context(), cmd, func() error {
				wait := 200 * time.Millisecond
				if refusal == nil {
					wait += cmd.Limits.Timeout // longer than the command has
				}
				<-time.After(wait)
				if printed.Load() {
					t.Error("the command ran before begin returned")
				}
				return refusal
			})
			switch {
			case err != refusal, refusal != nil && (res != nil || printed.Load()):
				t.Errorf("ahead %v: RunAfter = %+v, %v, want %v", ahead, res, err, refusal)
			case refusal == nil && (string(res.Stdout.Head) != "ran\n" || res.Duration > cmd.Limits.Timeout):
				t.Errorf("ahead %v: RunAfter = %+v", ahead, res)
			}
			if left := children(); len(left) != 0 {
				t.Errorf("processes %q are left", left)
			}
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Runs at the same time, and a Close among them, disturb one another in nothing.
func TestAheadAtOnce(t *testing.T) {
	r, cmd := aheadBench(t)
	var runs sync.WaitGroup
	for i := range 4 {
		runs.Go(func() {
			for range 5 {
				res, err := r.Run(t.Context(), cmd)
				if err != nil || string(res.Stdout.Head) != "ran\n" {
					t.Errorf("Run = %+v, %v", res, err)
				}
				if i == 0 {
					onStarter(func() { r.provide(owner{}) })
				}
			}
			if i == 0 {
				r.Close()
			}
		})
	}
	runs.Wait()
	if left := children(); len(left) != 0 {
		t.Errorf("processes %q are left", left)
	}
}

// BenchmarkHeld runs a command in a process that holds nothing, and that holds memory, in a sandbox of its
// own and in one that was begun ahead, in turn. It reports medians in milliseconds.
func BenchmarkHeld(b *testing.B) {
	sandboxtest.Need(b, "userns", "bash")
	tree, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", "true"}, Tree: tree}
	own, begun := New(nil), Hold(New(&Options{Ahead: true}))
	for _, mib := range []int{0, 128, 512} {
		b.Run(strconv.Itoa(mib)+"MiB", func(b *testing.B) {
			if mib > 0 {
				held, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = unix.Munmap(held) }()
				_ = unix.Madvise(held, unix.MADV_NOHUGEPAGE) // then each page has its place in the tables
				for i := 0; i < len(held); i += 4096 {
					held[i] = 1
				}
			}
			var took [2][]time.Duration
			for b.Loop() {
				for i, r := range []*Runner{own, begun} {
					if i == 1 {
						prepare(b, r, sandbox.Workspace{})
					}
					begin := time.Now()
					if res, err := r.Run(b.Context(), cmd); err != nil || res.Outcome != sandbox.Exited {
						b.Fatal(res, err)
					}
					took[i] = append(took[i], time.Since(begin))
				}
			}
			for i, name := range []string{"own-ms", "ahead-ms"} {
				slices.Sort(took[i])
				b.ReportMetric(took[i][len(took[i])/2].Seconds()*1000, name)
			}
		})
	}
}
