package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

const sleepCall = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"run_skill_script",` +
	`"arguments":{"skill":"demo","path":"scripts/sleep.sh"},"_meta":{"progressToken":"p"}}}`

func cancelCall(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// noScriptsSoon waits until no script of the tests runs.
func noScriptsSoon(t *testing.T) {
	t.Helper()
	begun := time.Now()
	eventually(t, "no script runs", func() bool { return !scriptRuns(t) })
	if took := time.Since(begun); took > soon {
		t.Fatalf("a script ran for %v more", took)
	}
}

// 200 cancellations right behind their requests: no answer to any, and every script is dead.
func TestStormOfCancels(t *testing.T) {
	nightly.Only(t)
	p := serve(t, demo(t, "ok.sh", "sleep.sh")...).loaded()
	needSandbox(t, p)
	for i := range 200 {
		id := fmt.Sprint(1000 + i)
		if i%2 == 1 {
			id = fmt.Sprintf("%q", id)
		}
		p.send(fmt.Sprintf(sleepCall, id) + "\n" + cancelCall(id))
	}
	p.send(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	pinged := func(line string) bool {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("the server wrote %q", line)
		}
		if a.ID != nil && string(a.ID) != "7" {
			t.Errorf("a cancelled call was answered: %s", line)
		}
		return string(a.ID) == "7"
	}
	for !pinged(p.receive()) {
	}
	p.in.Close()
	out, err := io.ReadAll(p.out)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pinged(line)
	}
	p.end()
	assertNoScripts(t)
}

// The same over HTTP, where a cancellation can follow only what has begun.
func TestStormOfCancelsHTTP(t *testing.T) {
	nightly.Only(t)
	s := serveHTTP(t, demo(t, "ok.sh", "sleep.sh")...)
	needSandbox(t, s.loaded(""))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			c := s.loaded("")
			for i := range 50 {
				c.cancelAtOnce(fmt.Sprint(9007199254740993 + i))
			}
		})
	}
	clients.Wait()
	noScriptsSoon(t)
	s.interrupt()
}

// cancelAtOnce starts a script that sleeps and cancels it with the first sign of it.
func (c *caller) cancelAtOnce(id string) {
	response, err := c.do(c.t.Context(), "POST", fmt.Sprintf(sleepCall, id))
	if err != nil {
		c.t.Error(err)
		return
	}
	defer response.Body.Close()
	if status, _, err := c.send(c.t.Context(), cancelCall(id)); err != nil || status != 202 {
		c.t.Errorf("cancellation = %d %v", status, err)
	}
	rest, err := io.ReadAll(response.Body)
	if err != nil || strings.Contains(string(rest), `"result"`) || strings.Contains(string(rest), `"error"`) {
		c.t.Errorf("a cancelled call was answered: %s %v", rest, err)
	}
}

// A signal kills what runs at once: the two seconds that other calls get are not spent on scripts.
// A machine may be too busy for that a few times, not always.
func TestSignalKillsScripts(t *testing.T) {
	const most = 1900 * time.Millisecond
	for name, started := range map[string]func(*testing.T) *process{"stdio": sleepOverStdio, "http": sleepOverHTTP} {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			for len(took) < 6 {
				p := started(t)
				begin := time.Now()
				p.cmd.Process.Signal(syscall.SIGTERM)
				go io.Copy(io.Discard, p.out)
				if err := p.cmd.Wait(); err != nil {
					t.Fatalf("exit: %v\n%s", err, p.stderr)
				}
				took = append(took, time.Since(begin))
				assertNoScripts(t)
				if slices.Min(took) <= most {
					return
				}
			}
			t.Errorf("the server with running scripts ended after %v, want %v", took, most)
		})
	}
}

func sleepOverStdio(t *testing.T) *process {
	t.Helper()
	p := serve(t, demo(t, "ok.sh", "sleep.sh")...).loaded()
	needSandbox(t, p)
	for id := 10; id < 14; id++ {
		p.send(fmt.Sprintf(sleepCall, fmt.Sprint(id)))
		for !strings.Contains(p.receive(), `"running"`) {
		}
	}
	return p
}

func sleepOverHTTP(t *testing.T) *process {
	t.Helper()
	s := serveHTTP(t, demo(t, "ok.sh", "sleep.sh")...)
	c := s.loaded("")
	needSandbox(t, c)
	for id := 10; id < 14; id++ {
		response, err := c.do(t.Context(), "POST", fmt.Sprintf(sleepCall, fmt.Sprint(id)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), `"running"`) {
		}
	}
	return s.process
}

// 20,000 initialize requests on one connection cost a bounded amount of memory.
func TestInitializeFloodStdio(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: /proc/PID/status")
	}
	p := serve(t, "--skills-root", tree(t, demoSkill()))
	p.initialize()
	flood := func(from, n int) {
		t.Helper()
		written := make(chan error, 1)
		go func() {
			out := bufio.NewWriter(p.in)
			for id := from; id < from+n; id++ {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":%s}`+"\n", id, hello(""))
			}
			written <- out.Flush()
		}()
		for range n {
			if line := p.receive(); !strings.Contains(line, `"id":`) {
				t.Fatalf("answer = %s", line)
			}
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	flood(1000, 4000)
	before := residentMemory(t, p.cmd.Process.Pid)
	flood(5000, 16000)
	if after := residentMemory(t, p.cmd.Process.Pid); after > before+32<<20 {
		t.Errorf("memory grew from %d to %d KiB", before>>10, after>>10)
	}
	p.load()
}

// Ids come back byte for byte, on each transport and revision, with results and with errors.
func TestRequestIDs(t *testing.T) {
	root := tree(t, demoSkill())
	p, s := serve(t, "--skills-root", root), serveHTTP(t, "--skills-root", root)
	p.initialize()
	legacy, modern := s.open(""), s.as("")
	for _, id := range []string{
		`0`, `-0`, `-1`, `7`, `9007199254740993`, `-9007199254740993`, `123456789012345678901234567890`, `1.50`, `1E2`, `1e-7`,
		`""`, `"1"`, `" "`, `"null"`, `"\u0061<&>\ud800 \u0000"`, `"äöü \"€\" 🙂"`, `"` + strings.Repeat("x", 10_000) + `"`,
	} {
		for _, method := range []string{"ping", "tools/list", "skills/list", "resources/list", "no/such"} {
			for name, ask := range map[string]func() (answer, error){
				"stdio": func() (a answer, err error) {
					p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{}}`, id, method))
					return a, json.Unmarshal([]byte(p.receive()), &a)
				},
				"http": func() (answer, error) {
					_, a, err := legacy.send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method))
					return a, err
				},
				"http, modern": func() (answer, error) {
					_, a, err := modern.send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{%s}}}`, id, method, modernMeta),
						"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method)
					return a, err
				},
			} {
				a, err := ask()
				// 2026-07-28 has no ping.
				failed := method == "no/such" || method == "ping" && name == "http, modern" && a.Error != nil
				if err != nil || string(a.ID) != id || (a.Error != nil) != failed {
					t.Errorf("%s: %s %.40s is answered with id %.60s, error %+v, %v", name, method, id, a.ID, a.Error, err)
				}
			}
		}
	}
	for _, id := range []string{`null`, `true`, `[1]`, `{}`, `1e999`} {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id))
		if line := p.receive(); !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600`) {
			t.Errorf("stdio: id %s: %s", id, line)
		}
		status, a, err := legacy.send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id))
		if err != nil || status != 400 || string(a.ID) != "null" || a.Error == nil || a.Error.Code != -32600 {
			t.Errorf("http: id %s: %d %s %+v %v", id, status, a.ID, a.Error, err)
		}
	}
}

// A second request of an id that is under way is refused, and does not touch the first.
func TestDuplicateIDs(t *testing.T) {
	p := sleepOverStdio(t)
	for _, id := range []string{"10", "12"} {
		p.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		if line := p.receive(); !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32600`) {
			t.Errorf("a second request of id %s: %s", id, line)
		}
	}
	eventually(t, "the first requests of the ids run", func() bool { return scriptRuns(t) })
	p.end()
	assertNoScripts(t)

	s := serveHTTP(t, demo(t, "ok.sh", "sleep.sh")...)
	c := s.loaded("")
	response, err := c.do(t.Context(), "POST", fmt.Sprintf(sleepCall, "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, a, err := c.request(t.Context(), "ping", "", ""); err != nil || a.Error == nil || a.Error.Code != -32600 {
		t.Errorf("a second request of the id in the session: %+v %v", a.Error, err)
	}
	if _, a, err := s.open("").request(t.Context(), "ping", "", ""); err != nil || a.Error != nil {
		t.Errorf("a request of the id in another session: %+v %v", a.Error, err)
	}
	s.interrupt()
	noScriptsSoon(t)
}

// Walks of the lists while skills come and go: each ends without an error and has every skill that
// stays once.
func TestStormOfReloads(t *testing.T) {
	nightly.Only(t)
	files := map[string]string{}
	for i := range 150 {
		name := fmt.Sprintf("keep-%03d", i)
		files[name+"/SKILL.md"] = "---\nname: " + name + "\ndescription: Stays.\n---\nBody.\n"
		files[name+"/references/a.md"] = "a"
	}
	root := tree(t, files)
	s := serveHTTP(t, "--skills-root", root)
	away := tree(t, map[string]string{"keep-070x/SKILL.md": "---\nname: keep-070x\ndescription: Comes and goes.\n---\nBody.\n"})
	ctx, stop := context.WithCancel(t.Context())
	var moves atomic.Int64
	var mover sync.WaitGroup
	mover.Go(func() {
		from, to := filepath.Join(away, "keep-070x"), filepath.Join(root, "keep-070x")
		for ctx.Err() == nil {
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
				return
			}
			from, to = to, from
			if !s.awaitSkill("skill://keep-070x/SKILL.md", moves.Add(1)%2 == 1) {
				t.Error("a change on disk is not served")
				return
			}
		}
	})
	var walkers sync.WaitGroup
	for name, c := range map[string]*caller{"2025-11-25": s.open(""), "2026-07-28": {site: s}} {
		walkers.Go(func() {
			for moves.Load() < 8 && !t.Failed() {
				for _, method := range []string{"skills/list", "resources/list"} {
					seen, err := c.walk(method)
					if err != nil {
						t.Errorf("%s: %s: %v", name, method, err)
						return
					}
					for file := range files {
						if n := seen["skill://"+file]; strings.HasSuffix(file, "/SKILL.md") && n != 1 {
							t.Errorf("%s: %s has %s %d times", name, method, file, n)
						}
					}
				}
			}
		})
	}
	walkers.Wait()
	stop()
	mover.Wait()
	s.interrupt()
}

// awaitSkill waits until a skill is served, or is not.
func (s *site) awaitSkill(uri string, there bool) bool {
	c := s.as("")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		_, a, err := c.request(s.t.Context(), "skills/get", "", fmt.Sprintf(`"uri":%q`, uri))
		if err == nil && (a.Error == nil) == there {
			return true
		}
	}
	return false
}

// walk follows the cursors of a list and counts its URIs.
func (c *caller) walk(method string) (map[string]int, error) {
	seen, cursor := map[string]int{}, ""
	for range 100 {
		params := ""
		if cursor != "" {
			params = fmt.Sprintf(`"cursor":%q`, cursor)
		}
		_, a, err := c.request(c.t.Context(), method, "", params)
		if err != nil {
			return nil, err
		}
		if a.Error != nil {
			return nil, errors.New(a.Error.Message)
		}
		var page struct {
			Skills, Resources []struct{ URI string }
			NextCursor        string
		}
		if err := json.Unmarshal(a.Result, &page); err != nil {
			return nil, err
		}
		for _, entry := range slices.Concat(page.Skills, page.Resources) {
			seen[entry.URI]++
		}
		cursor = page.NextCursor
		if cursor == "" {
			return seen, nil
		}
	}
	return nil, errors.New("the list does not end")
}
