package detect

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	playInterpreter()
	os.Exit(m.Run())
}

func TestSelectNative(t *testing.T) {
	sandboxtest.Need(t, "userns")
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r, reports, err := Select(t.Context(), Auto, nil)
	if err != nil {
		t.Fatalf("Select = %v, reports %v", err, reports)
	}
	if r.Name() != native.Name || len(reports) != 1 || !reports[0].OK || !strings.Contains(reports[0].Fact, "memory") {
		t.Errorf("Select = %s, %v", r.Name(), reports)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the self-test left %v, %v", left, err)
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, want := range []string{"seatbelt", None} {
		r, reports, err := Select(t.Context(), want, nil)
		var u *sandbox.UnavailableError
		if r != nil || !errors.As(err, &u) || u.Backend != want || u.Remedy == "" {
			t.Errorf("Select(%s) = %v, %v; want an UnavailableError with a remedy", want, r, err)
		}
		if len(reports) != 1 || reports[0].OK || reports[0].Hint == "" {
			t.Errorf("Select(%s) reports %v", want, reports)
		}
	}
	if _, _, err := Select(t.Context(), "docker", nil); err == nil || errors.As(err, new(*sandbox.UnavailableError)) {
		t.Errorf("Select(docker) = %v, want a usage error", err)
	}
}

// unsafe is a backend that isolates nothing, like a program of the right name in PATH.
type unsafe struct{}

func (unsafe) Name() string { return "unsafe" }

func (unsafe) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, cmd.Limits.Timeout)
	defer cancel()
	script := filepath.Join(cmd.Tree.Name(), filepath.Base(cmd.Argv[1]))
	c := exec.CommandContext(ctx, "/bin/sh", append([]string{script}, cmd.Argv[2:]...)...)
	c.Env = append(os.Environ(), "SKILLSD_SELF_TEST=leaked")
	// Its daemon would keep a pipe open.
	file, err := os.CreateTemp("", "unsafe")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	c.Stdout = file
	err = c.Run()
	res := &sandbox.Result{Outcome: sandbox.Exited}
	if ctx.Err() != nil {
		res.Outcome = sandbox.TimedOut
	} else if err != nil {
		return nil, err
	}
	res.Stdout.Head, err = os.ReadFile(file.Name())
	return res, err
}

func TestCheckRefusesABackendThatDoesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: /proc")
	}
	err := check(t.Context(), unsafe{})
	var c *CheckError
	if !errors.As(err, &c) {
		t.Fatalf("check = %v, want a CheckError", err)
	}
	for _, want := range []string{"does not see its own tree", "file of the host", "privileges", "variables", "outlived"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("check = %v, want a miss with %q", err, want)
		}
	}
	endSleepers(t)
}

// endSleepers ends what the backend that does nothing left running.
func endSleepers(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		cmdline, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || !strings.HasPrefix(string(cmdline), "sleep\x0086400.") {
			continue
		}
		environ, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && strings.Contains(string(environ), "SKILLSD_SELF_TEST=leaked") {
			if err := exec.Command("/bin/sh", "-c", "kill -9 "+e.Name()).Run(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestJudge breaks one point at a time: each must be noticed alone.
func TestJudge(t *testing.T) {
	good := []string{
		"tree TOKEN", "host hidden", "skill kept", "system kept", "Uid: 1000",
		"CapPrm: 0000000000000000", "CapEff: 0000000000000000", "CapBnd: 0000000000000000",
		"NoNewPrivs: 1", "Seccomp: 2", "links lo", "env none", "end",
	}
	result := func(lines []string) *sandbox.Result {
		return &sandbox.Result{Outcome: sandbox.Exited, Stdout: sandbox.Stream{Head: []byte(strings.Join(lines, "\n") + "\n")}}
	}
	if misses := judge(result(good), "TOKEN"); misses != nil {
		t.Fatalf("judge(good) = %q", misses)
	}
	for i, line := range good {
		missing := slices.Delete(slices.Clone(good), i, i+1)
		if misses := judge(result(missing), "TOKEN"); len(misses) != 1 {
			t.Errorf("without %q: %q, want one miss", line, misses)
		}
	}
	for _, bad := range []string{
		"tree OTHER", "host read", "skill written", "system written", "Uid: 0",
		"CapPrm: 0000000000000001", "CapEff: 000001ffffffffff", "CapBnd: 000001ffffffffff",
		"NoNewPrivs: 0", "Seccomp: 0", "links lo eth0", "links", "env leaked",
	} {
		if misses := judge(result(append(slices.Clone(good), bad)), "TOKEN"); len(misses) != 1 {
			t.Errorf("with %q: %q, want one miss", bad, misses)
		}
	}
	failed := result(good)
	failed.ExitCode = 1
	if misses := judge(failed, "TOKEN"); len(misses) != 1 {
		t.Errorf("exit 1: %q, want one miss", misses)
	}
	if misses := judgeDaemon(&sandbox.Result{Outcome: sandbox.Exited}, "no such process"); len(misses) != 1 {
		t.Errorf("no timeout: %q, want one miss", misses)
	}
}

func TestFindSystem(t *testing.T) {
	sandboxtest.Need(t, "bash", "python3")
	f := Interpreters("relative:/nonexistent")
	var wg sync.WaitGroup
	for _, name := range []string{"bash", "sh", "python3", "python3", "bash"} {
		wg.Go(func() {
			in, err := f.Find(t.Context(), name)
			if err != nil || in == nil {
				t.Errorf("Find(%s) = %v, %v", name, in, err)
				return
			}
			if in.Name != name || !filepath.IsAbs(in.Path) || !strings.HasPrefix(in.Digest, "sha256:") {
				t.Errorf("Find(%s) = %+v", name, in)
			}
		})
	}
	wg.Wait()
	if in, err := f.Find(t.Context(), "perl"); in != nil || err != nil {
		t.Errorf("Find(perl) = %v, %v; want nothing", in, err)
	}
}

func TestFindCanceled(t *testing.T) {
	f := Interpreters("")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Find(ctx, "bash"); !errors.Is(err, context.Canceled) {
		t.Errorf("Find = %v, want canceled", err)
	}
	if _, err := f.Find(t.Context(), "bash"); err != nil {
		t.Errorf("Find after a canceled one = %v", err)
	}
}

// TestFindShim asks a script in front of the interpreter, as version managers install them.
func TestFindShim(t *testing.T) {
	sandboxtest.Need(t, "python3")
	want, err := Interpreters("").Find(t.Context(), "python3")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	shim := "#!/bin/sh\n[ -z \"$LEAK\" ] || exit 1\nexec " + want.Path + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEAK", "1")
	got, err := Interpreters(dir).Find(t.Context(), "python3")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Find through a shim (-want +got):\n%s", diff)
	}
}

func TestFindRefusesWritable(t *testing.T) {
	sandboxtest.Need(t, "bash")
	data, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		dir, file os.FileMode
		refused   bool
	}{
		{"own", 0o755, 0o755, false},
		{"group-writable file", 0o755, 0o775, true},
		{"file writable by everyone", 0o755, 0o757, true},
		{"directory writable by everyone", 0o777, 0o755, true},
	} {
		dir := filepath.Join(t.TempDir(), "bin")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "bash"), data, 0o755),
			os.Chmod(filepath.Join(dir, "bash"), tt.file), os.Chmod(dir, tt.dir)); err != nil {
			t.Fatal(err)
		}
		in, err := Interpreters(dir).Find(t.Context(), "bash")
		if err != nil || in == nil {
			t.Fatalf("%s: Find = %v, %v", tt.name, in, err)
		}
		if got := in.Path != filepath.Join(dir, "bash"); got != tt.refused {
			t.Errorf("%s: Find = %s, refused %t, want %t", tt.name, in.Path, got, tt.refused)
		}
	}
}

// What killed servers left of their self-tests is removed by the next one, what others use is not.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * stale)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	space, _, _ := strings.Cut(native.OwnMark(), "-")
	killed := checkPrefix + space + "-" + strconv.Itoa(dead.Process.Pid) + "-x"
	running := checkPrefix + native.OwnMark() + "-new"
	elsewhere := checkPrefix + "else-" + strconv.Itoa(dead.Process.Pid) + "-new"
	for _, name := range []string{checkPrefix + "old", checkPrefix + "new", "other", killed, running, elsewhere} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "new") || name == killed {
			continue
		}
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", dir)
	sweep()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range left {
		names = append(names, entry.Name())
	}
	want := []string{"other", checkPrefix + "new", running, elsewhere}
	if space == "" { // only the age decides
		want = append(want, killed)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// TestCommand also holds for names that skills choose.
func TestCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: executable bits of files")
	}
	dir := t.TempDir()
	for _, name := range []string{"first", "second", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("#!/bin/sh\nexit 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	program("first/data", 0o644)
	program("second/tool", 0o755)
	program("second/data", 0o755)
	program("other/hidden", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "first", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../second/tool", filepath.Join(dir, "first", "link")); err != nil {
		t.Fatal(err)
	}
	// The working directory is not the operator's choice: what it holds is not on PATH.
	program("here/relative/local", 0o755)
	program("here/local", 0o755)
	t.Chdir(filepath.Join(dir, "here"))
	path := strings.Join([]string{"", ".", "relative", filepath.Join(dir, "first"), filepath.Join(dir, "second")}, string(os.PathListSeparator))
	tests := []struct {
		name string
		want bool
	}{
		{"tool", true},
		{"link", true},
		{"data", true}, // the second directory has an executable one
		{"folder", false},
		{"hidden", false},
		{"local", false},
		{"", false},
		{".", false},
		{"..", false},
		{"../second/tool", false},
		{filepath.Join(dir, "other", "hidden"), false},
		{"to\x00ol", false},
		{strings.Repeat("x", 5000), false},
	}
	for _, tt := range tests {
		if got := Command(path, "", tt.name); (got != "") != tt.want {
			t.Errorf("Command(%.40q) = %q, want one: %v", tt.name, got, tt.want)
		}
	}
}

func TestEnforcementOfProcesses(t *testing.T) {
	for _, tt := range []struct {
		memory, processes native.Memory
		want              string
	}{
		{native.MemoryCgroup2, native.MemoryCgroup2, "cgroup v2"},
		{native.MemoryCgroup1, native.MemoryCgroup1, "cgroup v1"},
		{native.MemoryCgroup1, native.MemorySampled, "resource limit"},
		{native.MemorySampled, native.MemorySampled, "resource limit"},
	} {
		e := enforcement(tt.memory, tt.processes)
		if e.Memory != tt.memory || e.Processes != tt.want {
			t.Errorf("enforcement(%q, %q) = memory %q, processes %q; want %q", tt.memory, tt.processes, e.Memory, e.Processes, tt.want)
		}
	}
}
