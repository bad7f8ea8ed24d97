//go:build unix

package install

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// beginning answers as far as the session.
const beginning = `read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"none"}}'; ` +
	`read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{},` +
	`"serverInfo":{"name":"x","version":"1"}}}'` + "\n"

// A program that never answers is ended, and the installation is free for the next command.
func TestSilentProgram(t *testing.T) {
	for name, begins := range map[string]string{"from the start": "", "after the beginning": beginning} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program, begun := dir+"/silent.sh", dir+"/pid"
			if err := os.WriteFile(program, []byte("echo $$ >"+begun+"\n"+begins+"sleep 1000\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			m := newMachine(t)
			var text []byte
			// On a busy machine the program may not have begun by then.
			for patience := time.Second; len(text) == 0 && patience < time.Hour; patience *= 4 {
				i, err := Open(t.Context(), Config{State: m.state, Trees: m.trees, patience: patience})
				if err != nil {
					t.Fatal(err)
				}
				_, err = i.Add(t.Context(), Request{Source: stdioPrefix + "sh " + program})
				if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), program) {
					t.Fatalf("error = %v", err)
				}
				if err := i.Close(); err != nil {
					t.Error(err)
				}
				text, _ = os.ReadFile(begun)
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

// A program that answers each request in time may take longer for all of them.
func TestSlowProgram(t *testing.T) {
	const text = "---\nname: slow\ndescription: Waits.\n---\nWait.\n"
	// A busy machine may take longer than that for one of them.
	for patience := 3 * time.Second; ; patience *= 4 {
		var pages strings.Builder
		answer := func(id int, format string, args ...any) {
			fmt.Fprintf(&pages, "read line; sleep %g; cat <<'E'\n"+`{"jsonrpc":"2.0","id":%d,"result":`+format+"}\nE\n",
				append([]any{patience.Seconds() / 6, id}, args...)...)
		}
		for id := 3; id < 10; id++ {
			answer(id, `{"skills":[],"nextCursor":"more"}`)
		}
		answer(10, `{"skills":[{"uri":"skill://slow/SKILL.md","resources":[`+
			`{"uri":"skill://slow/SKILL.md","digest":%q,"size":%d}]}]}`, digest.FromString(text), len(text))
		answer(11, `{"contents":[{"uri":"skill://slow/SKILL.md","text":%q}]}`, text)
		program := t.TempDir() + "/slow.sh"
		if err := os.WriteFile(program, []byte(beginning+"read line\n"+pages.String()+"read line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		m := newMachine(t)
		i, err := Open(t.Context(), Config{State: m.state, Trees: m.trees, patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := i.Add(t.Context(), Request{Source: stdioPrefix + "sh " + program})
		if err == nil {
			plan.Close()
		}
		if closed := i.Close(); closed != nil {
			t.Error(closed)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, errSilent) || patience > 10*time.Second {
			t.Fatal(err)
		}
	}
}
