//go:build unix

package install

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program that never answers is ended, and the installation is free for the next command.
func TestSilentProgram(t *testing.T) {
	for name, begins := range map[string]string{
		"from the start": "",
		"after the beginning": `read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"none"}}'; ` +
			`read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{},` +
			`"serverInfo":{"name":"x","version":"1"}}}'` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program, begun := dir+"/silent.sh", dir+"/pid"
			if err := os.WriteFile(program, []byte("echo $$ >"+begun+"\n"+begins+"sleep 1000\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			m := newMachine(t)
			i, err := Open(t.Context(), Config{State: m.state, Trees: m.trees, patience: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			_, err = i.Add(t.Context(), Request{Source: stdioPrefix + "sh " + program})
			if !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), program) {
				t.Errorf("error = %v", err)
			}
			if err := i.Close(); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(begun)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
				t.Errorf("the program was not ended: %v", err)
			}
		})
	}
}
