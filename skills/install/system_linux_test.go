package install

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestLimitFiles has a command write more than a file may have.
func TestLimitFiles(t *testing.T) {
	r := &repository{git: Git{most: 1 << 20}, dir: t.TempDir()}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c",
		"read go; exec head -c 4000000 /dev/zero > large")
	cmd.Dir = r.dir
	killTree(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = r.run(t.Context(), cmd, func(io.Reader) error {
		_, err := io.WriteString(in, "go\n")
		return err
	})
	if err == nil {
		t.Error("the command wrote all of it")
	}
	if info, err := os.Stat(filepath.Join(r.dir, "large")); err != nil || info.Size() > 1<<20 {
		t.Errorf("file = %v, %v", info, err)
	}
}

// TestEndsWithProcess kills a process that has started a command: the command ends too, which closes
// the pipe.
func TestEndsWithProcess(t *testing.T) {
	const role = "SKILLSD_TEST_HOLD"
	if os.Getenv(role) != "" {
		r := &repository{dir: t.TempDir()}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo ready; exec sleep 1000")
		killTree(cmd)
		_ = r.run(t.Context(), cmd, func(out io.Reader) error {
			_, err := io.Copy(os.Stdout, out)
			return err
		})
		return
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndsWithProcess$")
	holder.Env = append(os.Environ(), role+"=1")
	holder.Stdout = write
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if _, err := io.ReadFull(read, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	if err := read.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(read); err != nil {
		t.Errorf("the command lives on: %v", err)
	}
}
