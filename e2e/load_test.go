package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var load = flag.Duration("load", 0, "how long TestLoad keeps the server busy; 0 leaves it out")

const loadClients = 64

// loaded counts what the clients did.
type loaded struct {
	mu     sync.Mutex
	counts map[string]int
	failed atomic.Int64
}

func (l *loaded) count(op string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[op]++
}

// holdings are what a process has taken from the system.
type holdings struct {
	rss              int64 // bytes
	threads, handles int
}

func (h holdings) String() string {
	return fmt.Sprintf("RSS %.1f MiB, %d threads, %d file handles", float64(h.rss)/(1<<20), h.threads, h.handles)
}

func holdingsOf(t testing.TB, pid int) holdings {
	t.Helper()
	h := holdings{rss: residentMemory(t, pid)}
	for dir, n := range map[string]*int{"task": &h.threads, "fd": &h.handles} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
		if err != nil {
			t.Fatal(err)
		}
		*n = len(entries)
	}
	return h
}

// TestLoad has 64 clients of both eras and two principals call everything at once, without rest. No
// answer may be a failure, and a minute of it may leave no more behind than the first seconds did: of
// handles, threads, goroutines, and memory that is in use as the collector sees it.
func TestLoad(t *testing.T) {
	if *load == 0 {
		t.Skip("a minute of load is not asked for: make load does")
	}
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: /proc/PID/status")
	}
	t.Setenv("GODEBUG", "gctrace=1")
	s := serveHTTP(t, append(allowRun(tree(t, loadSkills()), "ok.sh"), "--auth-token-file", tokenFile(t, "alice", "bob"), "--rate-limit", "0")...)
	scripts := !strings.Contains(s.loaded("alice-token").script("ok.sh").text(), `"sandbox_unavailable"`)
	if !scripts && os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
		t.Fatal("no sandbox backend works here")
	}
	start := s.settled()
	t.Logf("after the start: %v", start)
	s.fill()
	warm := s.burden(*load/12, scripts)
	before := s.settled()
	t.Logf("with as many sessions as there may be, after %v: %v; %s", *load/12, before, warm)
	already := len(s.collections())
	done := s.burden(*load, scripts)
	inUse := s.collections()[already:]
	after := s.settled()
	early, late := slices.Min(inUse[:len(inUse)/4]), slices.Min(inUse[len(inUse)*3/4:])
	t.Logf("after %v more: %v, %d MiB in use early and %d late; %s", *load, after, early, late, done)
	t.Logf("RSS: x%.2f of that after the start, x%.2f of that before the last %v", ratio(after.rss, start.rss), ratio(after.rss, before.rss), *load)
	if n := warm.failed.Load() + done.failed.Load(); n > 0 {
		t.Errorf("%d calls failed", n)
	}
	if late > early+early/4+4 || after.rss > 256<<20 {
		t.Errorf("%d MiB were in use early in %v of load, %d late; then RSS is %d MiB", early, *load, late, after.rss>>20)
	}
	if after.threads > before.threads+32 || after.handles > before.handles+16 {
		t.Errorf("the server held %v, and after %v more %v", before, *load, after)
	}
	s.countGoroutines()
}

// loadSkills are the skills that are called for.
func loadSkills() map[string]string {
	files := demoSkill()
	for i := range 50 {
		name := fmt.Sprintf("skill-%03d", i)
		files[name+"/SKILL.md"] = "---\nname: " + name + "\ndescription: One of many.\n---\n" + strings.Repeat("Do this, then that.\n", 200)
		files[name+"/references/guide.md"] = strings.Repeat("A line of the guide.\n", 100)
	}
	return files
}

var collection = regexp.MustCompile(`(?m)^gc \d+ @.* \d+->\d+->(\d+) MB`)

// collections are how many MiB each garbage collection so far found in use.
func (s *site) collections() []int {
	s.t.Helper()
	var all []int
	for _, found := range collection.FindAllStringSubmatch(s.stderr.String(), -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, n)
	}
	if len(all) < 4 {
		s.t.Fatalf("%d garbage collections: no load", len(all))
	}
	return all
}

func ratio(a, b int64) float64 { return float64(a) / float64(b) }

func (l *loaded) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := 0
	var parts []string
	for _, op := range slices.Sorted(maps.Keys(l.counts)) {
		all += l.counts[op]
		parts = append(parts, fmt.Sprintf("%s %d", op, l.counts[op]))
	}
	return fmt.Sprintf("%d calls (%s), %d failed", all, strings.Join(parts, ", "), l.failed.Load())
}

// settled is what the server holds when nobody is connected and what it does in the background is done.
func (s *site) settled() holdings {
	s.t.Helper()
	s.client.CloseIdleConnections()
	last := holdingsOf(s.t, s.cmd.Process.Pid)
	for same := 0; same < 20; {
		select {
		case <-s.t.Context().Done():
			return last
		case <-time.After(100 * time.Millisecond):
		}
		h := holdingsOf(s.t, s.cmd.Process.Pid)
		same++
		if h.handles != last.handles {
			same = 0
		}
		last = h
	}
	return last
}

// fill opens as many sessions as the server keeps: a client without one of its own makes one with each
// load_skill.
func (s *site) fill() {
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c := &caller{site: s, token: []string{"alice-token", "bob-token"}[i%2]}
			for range 80 {
				c.tool("load_skill", map[string]any{"name": "demo"})
			}
		})
	}
	clients.Wait()
}

// burden has all clients call for a time.
func (s *site) burden(d time.Duration, scripts bool) *loaded {
	l := &loaded{counts: map[string]int{}}
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	var clients sync.WaitGroup
	for i := range loadClients {
		clients.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				s.visit(ctx, l, i, scripts)
			}
		})
	}
	clients.Wait()
	return l
}

// visit is a client from its arrival to its leaving, at most a few hundred calls later.
func (s *site) visit(ctx context.Context, l *loaded, i int, scripts bool) {
	c := &caller{site: s, token: []string{"alice-token", "bob-token"}[i%2]}
	if i%4 < 2 {
		c = s.open(c.token)
		defer func() {
			response, err := c.do(s.t.Context(), "DELETE", "")
			if err != nil || response.StatusCode != 204 {
				l.failed.Add(1)
				s.t.Errorf("DELETE = %v %v", response, err)
				return
			}
			response.Body.Close()
		}()
	}
	handle := ""
	for n := i; n < i+400 && ctx.Err() == nil; n++ {
		op, err := c.nth(n, scripts, &handle)
		if op == "" {
			continue
		}
		l.count(op)
		if err != nil {
			l.failed.Add(1)
			s.t.Errorf("client %d: %s: %v", i, op, err)
		}
	}
}

// nth makes the n-th call of a client and returns its name, "" when there was nothing to do.
func (c *caller) nth(n int, scripts bool, handle *string) (op string, err error) {
	skill := fmt.Sprintf("skill-%03d", n%50)
	switch n % 16 {
	case 0:
		got, err := c.tryTool(c.t.Context(), "load_skill", map[string]any{"name": "demo", "force": true})
		if err == nil && !strings.Contains(got.text(), "# Demo") {
			err = errors.New(got.text())
		}
		if err == nil {
			*handle = handleIn(c.t, got)
		}
		return "load_skill", err
	case 1, 5, 9, 13:
		return "tools/list", c.expect("tools/list", "", "", "run_skill_script")
	case 2, 6, 10, 14:
		uri := "skill://" + skill + "/references/guide.md"
		return "resources/read", c.expect("resources/read", uri, fmt.Sprintf(`"uri":%q`, uri), "A line of the guide.")
	case 3, 11:
		return "skills/list", c.expect("skills/list", "", "", "skill://demo/SKILL.md")
	case 7:
		if !scripts || *handle == "" {
			return "", nil
		}
		return "run_skill_script", c.expectTool("run_skill_script",
			map[string]any{"skill": "demo", "path": "scripts/ok.sh", "args": []string{"x"}, "activation": *handle}, "ran-ok x")
	}
	return "read_skill_resource", c.expectTool("read_skill_resource", map[string]any{"skill": skill, "path": "references/guide.md"}, "A line of the guide.")
}

func (c *caller) expect(method, name, params, want string) error {
	status, a, err := c.request(c.t.Context(), method, name, params)
	if err == nil && (status != 200 || a.Error != nil || !strings.Contains(string(a.Result), want)) {
		err = fmt.Errorf("%d, %+v, %.200s", status, a.Error, a.Result)
	}
	return err
}

func (c *caller) expectTool(tool string, args map[string]any, want string) error {
	result, err := c.tryTool(c.t.Context(), tool, args)
	if err == nil && (result.IsError || !strings.Contains(result.text(), want)) {
		err = fmt.Errorf("%.300s", result.text())
	}
	return err
}

// countGoroutines ends the server with the signal at which Go lists them. Beside a few of its own a
// server has a bounded number for each of the sessions that are open.
func (s *site) countGoroutines() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGQUIT)
	go io.Copy(io.Discard, s.out)
	s.cmd.Wait()
	kinds := map[string]int{}
	all := 0
	for block := range strings.SplitSeq(s.stderr.String(), "\n\n") {
		if !strings.HasPrefix(block, "goroutine ") {
			continue
		}
		all++
		_, made, _ := strings.Cut(block, "created by ")
		made, _, _ = strings.Cut(made, " in goroutine")
		kinds[made]++
	}
	for made, n := range kinds {
		if n > 4 {
			s.t.Logf("goroutines: %d %s", n, made)
		}
	}
	s.t.Logf("goroutines: %d", all)
	if all == 0 || all > 1100 {
		s.t.Errorf("%d goroutines after the clients have left", all)
	}
}
