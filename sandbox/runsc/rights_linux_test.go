package runsc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/runsc"
)

// Of a root server's gVisor nothing is root to the host, or where a workspace is written, nothing but
// the program itself and its file server: not the kernel, which the command could come to be.
func TestRightsOnTheHost(t *testing.T) {
	path := find(t)
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, whose rights are to be given up")
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, tt := range []struct {
		workspace sandbox.Workspace
		roots     int
	}{
		{sandbox.Workspace{}, 0},
		{sandbox.Workspace{Mode: sandbox.WorkspaceRO, Dir: dir}, 0},
		{sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: dir}, 2},
		{sandbox.Workspace{Mode: sandbox.WorkspaceRW, Dir: dir}, 2},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ended := make(chan error, 1)
		go func() {
			_, err := runsc.New(path, nil).Run(ctx, &sandbox.Cmd{
				Argv: []string{"/usr/bin/bash", "-c", "sleep 60 & sleep 60"}, Tree: dir, Workspace: tt.workspace,
			})
			ended <- err
		}()
		roots, others := rights(ctx, t, 7)
		if roots != tt.roots {
			t.Errorf("workspace %q: %d processes are root, want %d", tt.workspace.Mode, roots, tt.roots)
		}
		// What capabilities they hold in a namespace of their own user's is no more than that user.
		if tt.roots > 0 && strings.Trim(others, "0 ") != "" {
			t.Errorf("workspace %q: others hold the capabilities %s", tt.workspace.Mode, others)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("workspace %q: Run = %v", tt.workspace.Mode, err)
		}
	}
}

// rights waits until this process has so many descendants, and returns how many of them are root to the
// host and what capabilities the others hold.
func rights(ctx context.Context, t *testing.T, processes int) (roots int, others string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var found []string
	for len(found) < processes {
		select {
		case <-ctx.Done():
			t.Fatalf("%d processes were started, want %d", len(found), processes)
		case <-tick.C:
			found = statuses(os.Getpid())
		}
	}
	for _, status := range found {
		if strings.HasPrefix(value(status, "Uid"), "0\t") {
			roots++
		} else {
			others += value(status, "CapEff") + " "
		}
	}
	return roots, others
}

func value(status, key string) string {
	_, rest, _ := strings.Cut(status, "\n"+key+":\t")
	v, _, _ := strings.Cut(rest, "\n")
	return v
}

// statuses returns the statuses of a process's descendants, as the kernel shows them.
func statuses(pid int) []string {
	var found []string
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(children)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				continue
			}
			if status, err := os.ReadFile("/proc/" + f + "/status"); err == nil {
				found = append(found, string(status))
			}
			found = append(found, statuses(child)...)
		}
	}
	return found
}
