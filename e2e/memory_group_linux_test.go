package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// memoryGroup makes a control group with a limit on memory, and returns its directory.
func memoryGroup(t *testing.T, limit int64) string {
	t.Helper()
	for base, file := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		if _, err := os.Stat(filepath.Join(base, "cgroup.procs")); err != nil {
			continue // no hierarchy of control groups, where a directory would be just that
		}
		dir := filepath.Join(base, fmt.Sprintf("skillsd-e2e-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the control group is empty", func() bool {
				within, _ := filepath.Glob(filepath.Join(dir, "skillsd-run-*")) // of the server, which was killed
				for _, run := range within {
					os.Remove(run)
				}
				return os.Remove(dir) == nil
			})
		})
		if os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o600) == nil {
			return dir
		}
	}
	t.Skip("missing capability: a control group with a limit on memory")
	return ""
}

// A server in a group of 512 MiB lives when one holder of a token leaves answers of large files unread, has
// pictures decoded and sends long bodies slowly, all at once, and answers another one in time.
func TestMemoryGroup(t *testing.T) {
	group := memoryGroup(t, 512<<20)
	files := demoSkill()
	large := make([]byte, 6<<20)
	rand.Read(large)
	files["demo/assets/large.bin"] = string(large)
	files["demo/assets/large.txt"] = strings.Repeat("z", 8<<20)
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewNRGBA(image.Rect(0, 0, 4400, 4400))); err != nil {
		t.Fatal(err)
	}
	files["demo/assets/p.png"] = picture.String()
	s := serveIn(t, []string{"sh", "-c", `echo $$ >"$0"/cgroup.procs; exec "$@"`, group},
		"--skills-root", tree(t, files), "--auth-token-file", tokenFile(t, "alice", "bob"))
	alice, bob := s.open("alice-token"), s.open("bob-token")
	for _, c := range []*caller{alice, bob} {
		if loaded := c.tool("load_skill", map[string]any{"name": "demo"}); loaded.IsError {
			t.Fatal(loaded.text())
		}
	}
	request := func(method, name string, params map[string]any) string {
		params["_meta"] = json.RawMessage("{" + modernMeta + "}")
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice-token\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n%s", method, name, len(body), body)
	}
	read := func(file string) string {
		uri := "skill://demo/assets/" + file
		return request("resources/read", uri, map[string]any{"uri": uri})
	}
	long := request("tools/call", "load_skill", map[string]any{"name": "load_skill", "arguments": map[string]any{"name": strings.Repeat("b", 3_900_000)}})
	var sending sync.WaitGroup
	for i := range 200 {
		text := []string{read("large.bin"), read("large.txt"), read("large.bin"),
			request("tools/call", "read_skill_resource", map[string]any{"name": "read_skill_resource", "arguments": map[string]any{"skill": "demo", "path": "assets/p.png"}}),
			long[:len(long)-100]}[i%5]
		conn, err := net.Dial("tcp", s.host())
		if err != nil {
			continue // it takes no more connections now
		}
		t.Cleanup(func() { conn.Close() })
		sending.Go(func() {
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = io.WriteString(conn, text)
			_, _ = io.CopyN(io.Discard, conn, 100) // and reads no more
		})
	}
	sent := make(chan struct{})
	go func() {
		sending.Wait()
		close(sent)
	}()
	for busy := true; busy; {
		asked := time.Now()
		if status, _, err := bob.send(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); err != nil || status != 200 {
			t.Fatalf("bob is answered %d, %v", status, err)
		}
		if took := time.Since(asked); took > 5*time.Second {
			t.Errorf("bob waited for %v", took)
		}
		select {
		case <-sent:
			busy = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	if got := bob.tool("load_skill", map[string]any{"name": "demo", "force": true}); got.IsError {
		t.Errorf("afterwards: %s", got.text())
	}
	used, _ := os.ReadFile(filepath.Join(group, "memory.max_usage_in_bytes")) // version 1
	t.Logf("the server took %d MiB at most, its group %s bytes", peakMemory(t, s.cmd.Process.Pid)>>20, bytes.TrimSpace(used))
}
