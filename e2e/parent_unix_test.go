//go:build unix

package e2e

import (
	"io"
	"os"
	"os/exec"
	ossignal "os/signal"
	"syscall"
	"testing"
	"time"
)

// A server whose launcher has died ends although another process holds its input; one that was started with
// nohup does not.
func TestLauncherDies(t *testing.T) {
	t.Parallel()
	// Below nohup the tests ignore SIGHUP themselves, and so would what they start.
	hangup := make(chan os.Signal, 1)
	ossignal.Notify(hangup, syscall.SIGHUP)
	t.Cleanup(func() { ossignal.Stop(hangup) })
	for _, tt := range []struct {
		name, command string
		ends          bool
	}{
		{"a client", `"$0" serve --state "$1" <&3 & wait`, true},
		{"nohup", `nohup "$0" serve --state "$1" <&3 & wait`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			input, hold, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
			launcher := exec.Command("sh", "-c", tt.command, binary, t.TempDir())
			launcher.ExtraFiles, launcher.Env = []*os.File{input}, append(os.Environ(), "HOME="+t.TempDir())
			out, err := launcher.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := launcher.Start(); err != nil {
				t.Fatal(err)
			}
			input.Close()
			if _, err := io.WriteString(hold, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if err := launcher.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, out) // until the server, which alone has it, ends
				close(ended)
			}()
			patience := time.Minute
			if !tt.ends {
				patience = 12 * time.Second
			}
			select {
			case <-ended:
				if !tt.ends {
					t.Error("the server has ended with its launcher")
				}
			case <-time.After(patience):
				if tt.ends {
					t.Error("the server goes on a minute after its launcher ended")
				}
			}
			hold.Close()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("the server goes on without its input")
			}
			_ = launcher.Wait()
		})
	}
}
