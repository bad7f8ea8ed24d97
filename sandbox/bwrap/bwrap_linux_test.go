package bwrap_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	os.Exit(m.Run())
}

func find(t testing.TB) string {
	t.Helper()
	sandboxtest.Need(t, "userns", "bash")
	path, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("missing capability: bwrap")
	}
	return path
}

func TestBwrap(t *testing.T) {
	sandboxtest.Need(t, "python3")
	path := find(t)
	differs := []sandboxtest.Difference{sandboxtest.WritableDevices, sandboxtest.NoInodeLimit}
	if os.Geteuid() != 0 {
		differs = append(differs, sandboxtest.NoStaging)
	}
	if bwrap.New(path, nil).Processes() == native.MemorySampled {
		differs = append(differs, sandboxtest.UncountedProcesses)
	}
	suite := sandboxtest.RunFiles
	if nightly.Size(0, 1) > 0 {
		suite = sandboxtest.Run // its limits are those of native
	}
	suite(t, func(t *testing.T) sandbox.Runner {
		if os.Geteuid() != 0 {
			return bwrap.New(path, nil)
		}
		r := bwrap.New(path, &native.Options{Ahead: true})
		t.Cleanup(r.Close)
		r.Prepare()
		return prepared{r}
	}, differs...)
}

// prepared runs each command in a process that waited for it, and has one wait at the end.
type prepared struct{ *native.Runner }

func (p prepared) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	defer p.Prepare()
	return p.Runner.Run(ctx, cmd)
}

// The process that waited for a command becomes the bubblewrap that isolates it, and no other waits meanwhile.
func TestOneWaits(t *testing.T) {
	path := find(t)
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, whose bubblewrap is started in namespaces")
	}
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	r := bwrap.New(path, &native.Options{Ahead: true})
	t.Cleanup(r.Close)
	for range 10 { // what is mounted on the host meanwhile makes the one that waits unfit
		r.Prepare()
		before := children(t)
		if len(before) != 1 || !strings.HasPrefix(before[0], "sandbox-init ") {
			t.Fatalf("children %q, want one that waits", before)
		}
		_, pid, _ := strings.Cut(before[0], " ")
		ctx, cancel := context.WithCancel(t.Context())
		seen := &look{at: func() []string { defer cancel(); return children(t) }}
		cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", "echo ran; sleep 600"}, Tree: tree, Env: []string{"PATH=/usr/bin:/bin"}, Live: seen}
		if res, err := r.Run(ctx, cmd); err != nil || res.Outcome != sandbox.Canceled {
			t.Fatalf("Run = %+v, %v", res, err)
		}
		if slices.Equal(seen.found, []string{"bwrap " + pid}) {
			return
		}
		t.Logf("during the run the children are %q, before it %q", seen.found, before)
	}
	t.Error("no process that waited became bubblewrap")
}

// look looks when output comes for the first time.
type look struct {
	at    func() []string
	once  sync.Once
	found []string
}

func (l *look) Write(p []byte) (int, error) {
	l.once.Do(func() { l.found = l.at() })
	return len(p), nil
}

// children are the names and numbers of this process's children.
func children(t *testing.T) (found []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // threads come and go
		}
		for pid := range strings.FieldsSeq(string(data)) {
			line, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(string(line), "\x00")
			found = append(found, name+" "+pid)
		}
	}
	return found
}

// What cannot be isolated does not run, and the error names this backend.
func TestRefusesWithoutTheProgram(t *testing.T) {
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	res, err := bwrap.New("", nil).Run(t.Context(), &sandbox.Cmd{Argv: []string{"/usr/bin/true"}, Tree: tree})
	if u, ok := errors.AsType[*sandbox.UnavailableError](err); !ok || res != nil || u.Backend != bwrap.Name || u.Remedy == "" {
		t.Errorf("Run = %+v, %v, want an UnavailableError of %s with a remedy", res, err, bwrap.Name)
	}
}

// A command of a root server does not learn where the host keeps its tree, its cache and its packages.
func TestPathsAreHidden(t *testing.T) {
	path := find(t)
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, who mounts what shows no path")
	}
	dir := filepath.Join(t.TempDir(), "private-place-of-trees")
	text := "cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats; cat /env/x.sh >/dev/null && echo done\n"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "x.sh"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	tree, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "/skill/x.sh"}, Tree: tree, Env: []string{"PATH=/usr/bin:/bin"}, Name: "demo",
		Packages: []sandbox.Mount{{Dir: tree, At: sandbox.EnvDir}}}
	res, err := bwrap.New(path, nil).Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	seen := string(res.Stdout.Head)
	if !strings.Contains(seen, " /mnt/skills/user/demo ") || !strings.HasSuffix(seen, "done\n") {
		t.Fatalf("the command saw %s", seen)
	}
	for line := range strings.Lines(seen) {
		if strings.Contains(line, "private-") {
			t.Errorf("the command sees %q", line)
		}
	}
}

func TestKilled(t *testing.T) {
	path := find(t)
	// The program's two, the command and what it starts.
	sandboxtest.Killed(t, func(*testing.T) sandbox.Runner { return bwrap.New(path, nil) }, 5)
}

func TestEndedWhileStarting(t *testing.T) {
	sandboxtest.EndedWhileStarting(t, bwrap.New(find(t), nil), 60, time.Millisecond/2)
}
