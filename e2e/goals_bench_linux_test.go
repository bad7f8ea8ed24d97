package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

var goalSkills = flag.Int("goal-skills", 0, "how many skills BenchmarkGoals also lists, such as 92558; 0 leaves it out")

// BenchmarkGoals prints a table of what users wait for and what a server holds, each row with the least that
// the machine can do for it and with what it should be. Contenders of a row take turns, so that what else the
// machine does falls on all of them alike.
//
// The floor of servers is the command e2e/floor, that of runs is plain bubblewrap, that of durable denials is
// how often this disk syncs a file, and that of an installation is a copy of the files, durable as an
// installation is.
func BenchmarkGoals(b *testing.B) {
	built := filepath.Join(b.TempDir(), "floor")
	build := exec.Command("go", "build", "-o", built, "./floor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	g := &goals{B: b, floor: installed(b, built), program: installed(b, binary), trees: map[int]string{}}
	g.table = tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for b.Loop() {
		g.row("WHAT", "FLOOR", "HERE", "RATIO", "GOAL")
		g.starts()
		g.runs()
		g.loads()
		g.http()
		g.memory()
		g.lists()
		g.extension()
		g.denials()
		g.installs()
	}
	if err := g.table.Flush(); err != nil {
		b.Error(err)
	}
}

type goals struct {
	*testing.B
	floor, program string
	trees          map[int]string // by the number of skills
	table          *tabwriter.Writer
}

// installed returns a copy of a program, which is how users have one. The linker writes a program in no order, and
// the kernel then keeps and maps it in smaller pieces, which a large one pays for with each start.
func installed(b *testing.B, program string) string {
	copied := filepath.Join(b.TempDir(), filepath.Base(program))
	text, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(copied, text, 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	return copied
}

func (g *goals) row(what, floor, here, ratio, goal string) {
	fmt.Fprintf(g.table, "%s\t%s\t%s\t%s\t%s\n", what, floor, here, ratio, goal)
}

// compare is the row of two medians.
func (g *goals) compare(what string, floor, here []time.Duration, goal string) {
	f, h := median(floor), median(here)
	g.row(what, f.String(), h.String(), fmt.Sprintf("%.2f", float64(h)/float64(f)), goal)
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2].Round(time.Microsecond)
}

// tree returns a directory of that many skills of four files.
func (g *goals) tree(n int) string {
	if g.trees[n] != "" {
		return g.trees[n]
	}
	root := g.TempDir()
	for i := range n {
		name := fmt.Sprintf("skill-%05d", i)
		testtree.Write(g, filepath.Join(root, name), map[string]string{
			"SKILL.md": "---\nname: " + name + "\ndescription: One of many skills, with some words on when it is of use.\n---\n" +
				strings.Repeat("Do this first, then that, and look at what came of it.\n", 70),
			"references/guide.md": "A guide of " + name + ".\n", "assets/data.csv": "a,b\n1,2\n", "scripts/run.sh": "#!/bin/sh\n",
		})
	}
	g.trees[n] = root
	// A server reads files again that were written less than two seconds before, and those of users are older.
	for range 3 {
		settle()
	}
	return root
}

// state returns a new state directory.
func (g *goals) state() string {
	dir, err := os.MkdirTemp("", "skillsd-goals-")
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (g *goals) floorServer(n int, flags ...string) *exec.Cmd {
	return exec.Command(g.floor, append([]string{"--tree", g.tree(n)}, flags...)...)
}

func (g *goals) server(n int, state string, flags ...string) *exec.Cmd {
	return exec.Command(g.program, append([]string{"serve", "--state", state, "--log-level", "error", "--skills-root", "builtin=" + g.tree(n)}, flags...)...)
}

// goalClient is a client on stdio that waits for each answer.
type goalClient struct {
	*process
	id int
}

// begin starts a server and has it answer initialize and tools/list, as clients do at once.
func (g *goals) begin(cmd *exec.Cmd) *goalClient {
	g.Helper()
	c := &goalClient{process: start(g.B, cmd)}
	c.ask("initialize", hello(""))
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.ask("tools/list", `{}`)
	return c
}

// ask returns how long the answer took, without what reads it.
func (c *goalClient) ask(method, params string) time.Duration {
	c.t.Helper()
	c.id++
	begin, id := time.Now(), fmt.Appendf(nil, `"id":%d,`, c.id)
	fmt.Fprintf(c.in, `{"jsonrpc":"2.0",%s"method":%q,"params":%s}`+"\n", id, method, params)
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
		if !bytes.Contains(line, id) {
			continue // a notification
		}
		took := time.Since(begin)
		var a answer
		if err := json.Unmarshal(line, &a); err != nil || a.Error != nil || bytes.Contains(line, []byte(`"isError":true`)) {
			c.t.Fatalf("%s = %.200s, %v", method, line, err)
		}
		return took
	}
}

func (c *goalClient) load(i int, force bool) time.Duration {
	c.t.Helper()
	return c.ask("tools/call", fmt.Sprintf(`{"name":"load_skill","arguments":{"name":"skill-%05d","force":%v}}`, i, force))
}

func (c *goalClient) end() {
	c.in.Close()
	_ = c.cmd.Wait()
}

// starts times from exec to the second answer.
func (g *goals) starts() {
	for _, size := range []struct {
		n, turns      int
		first, second string
	}{{10, 21, "1.3", "1.3"}, {1_000, 15, "2.5", "1.8"}, {10_000, 7, "4.5", "3"}} {
		var floor, first, second []time.Duration
		timed := func(cmd *exec.Cmd) time.Duration {
			begin := time.Now()
			c := g.begin(cmd)
			took := time.Since(begin)
			c.end()
			return took
		}
		kept := g.state()
		timed(g.server(size.n, kept))
		for range size.turns {
			floor = append(floor, timed(g.floorServer(size.n)))
			first = append(first, timed(g.server(size.n, g.state())))
			second = append(second, timed(g.server(size.n, kept)))
		}
		what := fmt.Sprintf("start with %d skills", size.n)
		g.compare(what, slices.Clone(floor), first, size.first)
		g.compare(what+", again", floor, second, size.second)
	}
}

// runs calls a script that only prints, as a client that does something between its calls: of a server with one
// skill, and of one that holds ten thousand more.
func (g *goals) runs() {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		g.row("run_skill_script", "-", "-", "-", "no bubblewrap here")
		return
	}
	flags := append(crowdTree(g.B), "--state", g.state(), "--log-level", "error")
	small := g.begin(exec.Command(g.program, append([]string{"serve"}, flags...)...))
	defer small.end()
	large := g.begin(exec.Command(g.program, append([]string{"serve", "--skills-root", g.tree(10_000)}, flags...)...))
	defer large.end()
	run := func(c *goalClient) time.Duration {
		return c.ask("tools/call", `{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"}}`)
	}
	bare := func() time.Duration {
		begin := time.Now()
		if out, err := exec.Command(bwrap, "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/bash", "-c", "echo ran-ok").CombinedOutput(); err != nil {
			g.Fatalf("bwrap: %v\n%s", err, out)
		}
		return time.Since(begin)
	}
	for _, c := range []*goalClient{small, large} {
		c.ask("tools/call", `{"name":"load_skill","arguments":{"name":"demo"}}`)
		for range 3 {
			run(c)
		}
	}
	var floor, one, many []time.Duration
	think := func() { <-time.After(50 * time.Millisecond) }
	for range 60 {
		think()
		floor = append(floor, bare())
		think()
		one = append(one, run(small))
		think()
		many = append(many, run(large))
	}
	g.compare("run_skill_script", slices.Clone(floor), one, "1.15")
	g.compare("run_skill_script, 10,000 skills held", floor, many, "1.15")
}

// loads times the first load of a session, which begins its record and so waits for the disk four times, the
// first load of each skill in a session, and loads that follow.
func (g *goals) loads() {
	var bare, first []time.Duration
	state := g.state()
	for range 15 {
		f, c := g.begin(g.floorServer(10)), g.begin(g.server(10, state))
		settle()
		bare, first = append(bare, f.load(1, false)), append(first, c.load(1, false))
		f.end()
		c.end()
	}
	g.compare("first load of a session", bare, first, "-")
	g.firstOfSkills()
	f, c := g.begin(g.floorServer(10)), g.begin(g.server(10, g.state()))
	defer f.end()
	defer c.end()
	var floor, here, forced []time.Duration
	for i := range 3_000 {
		floor, here = append(floor, f.load(i%10, false)), append(here, c.load(i%10, false))
		forced = append(forced, c.load(i%10, true))
	}
	g.compare("load again", slices.Clone(floor), here, "2.2")
	g.compare("load again, whole text", floor, forced, "2.2")
}

// firstOfSkills times loads of skills that nobody was shown before.
func (g *goals) firstOfSkills() {
	f, c := g.begin(g.floorServer(1_000)), g.begin(g.server(1_000, g.state()))
	defer f.end()
	defer c.end()
	f.load(0, false)
	c.load(0, false)
	settle()
	var bare, first []time.Duration
	for i := range 700 {
		bare, first = append(bare, f.load(i+1, false)), append(first, c.load(i+1, false))
	}
	g.compare("first load of a skill in a session", bare, first, "480-700us")
}

// settle waits for what a server does behind its first answers, as the thought of a model does.
func settle() { <-time.After(time.Second) }

// http has 64 clients load skills, and compares what the servers computed for them.
func (g *goals) http() {
	const clients, loads = 64, 40
	f, c := g.floorServer(50, "--http"), g.server(50, g.state(), "--http", "127.0.0.1:0", "--insecure-no-auth", "--rate-limit", "0",
		"--log-level", "info", "--log-format", "json")
	contenders := []struct {
		*process
		line *regexp.Regexp // has the address
		cpu  []time.Duration
	}{{process: start(g.B, f), line: regexp.MustCompile(`listening on (\S+)`)}, {process: start(g.B, c), line: listening}}
	for range 4 {
		for i := range contenders {
			c := &contenders[i]
			var all sync.WaitGroup
			s := &site{process: c.process, url: "http://" + c.logged(c.line) + "/mcp", client: http.DefaultClient}
			var opened [clients]httpCrowd
			each := func(do func(client int)) {
				for i := range clients {
					all.Go(func() { do(i) })
				}
				all.Wait()
			}
			each(func(i int) { opened[i] = g.open(s) })
			load := func(client, skill int) {
				text := opened[client].call(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"load_skill","arguments":{"name":"skill-%05d","force":true}}}`, skill))
				if !strings.Contains(text, "Do this first") {
					g.Errorf("load = %.200s", text)
				}
			}
			each(func(i int) { load(i, 0) })
			before := g.cpu(c.cmd.Process.Pid)
			each(func(i int) {
				for n := range loads {
					load(i, n%50)
				}
			})
			c.cpu = append(c.cpu, (g.cpu(c.cmd.Process.Pid)-before)/(clients*loads))
		}
	}
	g.compare("CPU of a load over HTTP, 64 clients, whole text", contenders[0].cpu, contenders[1].cpu, "4")
}

// open introduces a client; the floor gives it no session.
func (g *goals) open(s *site) httpCrowd {
	c := s.as("")
	status, header := c.status("POST", introduction(""))
	if status != http.StatusOK {
		g.Errorf("initialize: %d", status)
	}
	c.session = header.Get("Mcp-Session-Id")
	return httpCrowd{c}
}

// cpu returns what a process has computed so far.
func (g *goals) cpu(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		g.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			g.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// memory tells what a server holds after a load of ten thousand skills that were served before, and what its
// session adds to the disk: a registry of all skills that did not change is one file, whoever has it.
func (g *goals) memory() {
	state := g.state()
	sessions := filepath.Join(state, "sessions")
	var sizes []int64
	for turn := range 2 {
		c := g.begin(g.server(10_000, state))
		c.load(7, false)
		c.load(8, false)
		for tries := 0; ; tries++ {
			whole, err := filepath.Glob(filepath.Join(sessions, "*", provenance.RegistryFile))
			if err != nil || tries == 300 {
				g.Fatalf("the registry of a session is not written: %v", err)
			}
			if len(whole) > turn {
				break
			}
			settle()
		}
		for range 5 {
			settle()
		}
		if turn == 1 {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
			if err != nil {
				g.Fatal(err)
			}
			_, rss, _ := strings.Cut(string(text), "VmRSS:")
			kib, err := strconv.Atoi(strings.Fields(rss)[0])
			if err != nil {
				g.Fatal(err)
			}
			g.row("memory after a load, 10,000 skills", "-", fmt.Sprintf("%d MiB", kib>>10), "", "100 MiB")
		}
		c.end()
		var size int64
		counted := map[uint64]bool{}
		err := filepath.WalkDir(sessions, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if inode := info.Sys().(*syscall.Stat_t).Ino; !counted[inode] {
				counted[inode] = true
				size += info.Size()
			}
			return nil
		})
		if err != nil {
			g.Fatal(err)
		}
		sizes = append(sizes, size)
	}
	g.row("a session of it on disk", "-", fmt.Sprintf("%d KB", (sizes[1]-sizes[0])/1000), "", "100 KB")
}

// lists times skillsd list with nothing remembered, and again.
func (g *goals) lists() {
	sizes := []struct {
		n           int
		first, next string
	}{{10_000, "1.3s", "500ms"}, {*goalSkills, "10s at 92,558", "4s at 92,558"}}
	for _, size := range sizes {
		if size.n == 0 {
			continue
		}
		var first, next []time.Duration
		for range 3 {
			state := g.state()
			for _, took := range []*[]time.Duration{&first, &next} {
				cmd := exec.Command(g.program, "list", "--state", state, "--skills-root", g.tree(size.n),
					"--scan-limit", fmt.Sprintf("directories=%d", max(20_000, 2*size.n)))
				begin := time.Now()
				if out, err := cmd.Output(); err != nil || bytes.Count(out, []byte("\n")) < size.n {
					g.Fatalf("list: %v, %d bytes", err, len(out))
				}
				*took = append(*took, time.Since(begin))
			}
		}
		what := fmt.Sprintf("list of %d", size.n)
		g.row(what, "-", median(first).String(), "", size.first)
		g.row(what+", again", "-", median(next).String(), "", size.next)
	}
}

// extension compares the first page of skills/list, and an entry.
func (g *goals) extension() {
	f, c := g.begin(g.floorServer(1_000, "--extension")), g.begin(g.server(1_000, g.state()))
	defer f.end()
	defer c.end()
	for _, m := range []struct{ method, params, goal string }{
		{"skills/list", `{}`, "2"}, {"skills/get", `{"uri":"skill://skill-00500/SKILL.md"}`, "1.5"},
	} {
		var floor, here []time.Duration
		c.ask(m.method, m.params)
		for range 1_000 {
			floor, here = append(floor, f.ask(m.method, m.params)), append(here, c.ask(m.method, m.params))
		}
		g.compare(m.method, floor, here, m.goal)
	}
}

// denials records refusals, which wait for stable storage.
func (g *goals) denials() {
	const n = 2_000
	file, err := os.Create(filepath.Join(g.TempDir(), "synced"))
	if err != nil {
		g.Fatal(err)
	}
	defer file.Close()
	begin := time.Now()
	for range n {
		if _, err := file.WriteString("a line\n"); err != nil {
			g.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			g.Fatal(err)
		}
	}
	syncs := fmt.Sprintf("%.0f/s", n/time.Since(begin).Seconds())
	for _, writers := range []int{1, 64} {
		store, err := filestore.Open(g.TempDir(), nil)
		if err != nil {
			g.Fatal(err)
		}
		ctx := context.Background()
		if err := store.Append(ctx, storetest.Event("s", provenance.KindSessionStarted, 0)); err != nil {
			g.Fatal(err)
		}
		denial := storetest.Event("s", provenance.KindPolicyDenied, 1)
		var left atomic.Int64
		left.Store(n * int64(min(writers, 8)))
		begin, all := time.Now(), sync.WaitGroup{}
		for range writers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					e := *denial
					if err := store.Append(ctx, &e); err != nil {
						g.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		rate := float64(n*min(writers, 8)) / time.Since(begin).Seconds()
		if err := store.Close(); err != nil {
			g.Error(err)
		}
		goal := map[int]string{1: "700/s", 64: "10800/s"}[writers]
		g.row(fmt.Sprintf("durable denials, writers: %d", writers), syncs, fmt.Sprintf("%.0f/s", rate), "", goal)
	}
}

// installs installs a collection of 1,000 skills from a registry on loopback. Its floor writes the files into
// new directories, side by side as the installer does, and syncs each file and directory. The installer also
// has to fetch, unpack, verify and scan them, and to write them twice: into the store, which mends what is
// served, and where they are served.
func (g *goals) installs() {
	const n = 1_000
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/team/pack:1"
	run := func(args ...string) time.Duration {
		begin := time.Now()
		if out, err := exec.Command(g.program, args...).CombinedOutput(); err != nil {
			g.Fatalf("skillsd %q: %v\n%s", args, err, out)
		}
		return time.Since(begin)
	}
	run("publish", g.tree(n), at)
	var copied, here []time.Duration
	for range 3 {
		copied = append(copied, g.copies(g.tree(n), g.state()))
		here = append(here, run("install", at, "--all", "--state", g.state()))
	}
	g.compare(fmt.Sprintf("install of %d from a registry, to a copy", n), copied, here, "2")
}

// copies returns how long a durable copy of a tree of skills takes.
func (g *goals) copies(from, to string) time.Duration {
	begin := time.Now()
	durable := func(file *os.File, err error) error {
		if err == nil {
			err = errors.Join(file.Sync(), file.Close())
		}
		return err
	}
	all, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	group := new(errgroup.Group)
	group.SetLimit(32)
	for _, skill := range all {
		group.Go(func() error {
			var dirs []string
			err := filepath.WalkDir(filepath.Join(from, skill.Name()), func(name string, entry fs.DirEntry, err error) error {
				target := filepath.Join(to, strings.TrimPrefix(name, from))
				if err != nil || entry.IsDir() {
					dirs = append(dirs, target)
					return errors.Join(err, os.Mkdir(target, 0o755))
				}
				data, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				file, err := os.Create(target)
				if err == nil {
					_, err = file.Write(data)
				}
				return durable(file, err)
			})
			for _, dir := range dirs {
				file, failed := os.Open(dir)
				err = errors.Join(err, durable(file, failed))
			}
			return err
		})
	}
	err = errors.Join(err, group.Wait())
	if err == nil {
		file, failed := os.Open(to)
		err = durable(file, failed)
	}
	if err != nil {
		g.Fatal(err)
	}
	return time.Since(begin)
}
