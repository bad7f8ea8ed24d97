package watch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// tree is a watched directory of skills.
type tree struct {
	t        *testing.T
	dir      string
	outside  string // an allowed root
	registry *skills.Registry
	diffs    chan skills.Diff
}

func document(name, description string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\nbody\n"
}

// start watches a directory with the skills a and group/b.
func start(t *testing.T, opts Options) *tree {
	t.Helper()
	w := plant(t)
	run(t, w, opts)
	return w
}

// run watches until the end of the test.
func run(t *testing.T, w *tree, opts Options) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	opts.OnChange = w.changed
	var group sync.WaitGroup
	group.Go(func() {
		if err := Run(ctx, w.registry, opts); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

// plant makes the directory, and scans it once.
func plant(t *testing.T) *tree {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &tree{t: t, dir: filepath.Join(base, "root"), outside: filepath.Join(base, "outside"), diffs: make(chan skills.Diff, 1000)}
	w.write("a/SKILL.md", document("a", "first"))
	w.write("a/references/r.md", "first")
	w.write("group/b/SKILL.md", document("b", "first"))
	w.write("../outside/c/SKILL.md", document("c", "first"))
	w.registry = skills.NewRegistry([]skills.Root{{Dir: w.dir}}, &skills.ScanOptions{AllowRoots: []string{w.outside}})
	if _, err := w.registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *tree) changed(_ context.Context, diff skills.Diff) { w.diffs <- diff }

func (w *tree) path(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

func (w *tree) write(name, content string) {
	w.t.Helper()
	w.check(os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	w.check(os.WriteFile(w.path(name), []byte(content), 0o644))
}

func (w *tree) rename(from, to string) { w.t.Helper(); w.check(os.Rename(w.path(from), w.path(to))) }
func (w *tree) remove(name string)     { w.t.Helper(); w.check(os.RemoveAll(w.path(name))) }

func (w *tree) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a change after which what is served is as wanted.
func (w *tree) until(what string, wanted func(s *skills.Snapshot) bool) {
	w.t.Helper()
	timeout := time.After(patience)
	for !wanted(w.registry.Snapshot()) {
		select {
		case <-w.diffs:
		case <-timeout:
			var have []string
			for _, sk := range w.registry.Snapshot().Skills {
				have = append(have, sk.Path+": "+sk.Description())
			}
			w.t.Fatalf("%s is not seen; there are %q", what, have)
		}
	}
}

// describes waits until a skill has a description, or, where that is empty, until it is gone.
func (w *tree) describes(path, description string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s described as %q", path, description), func(s *skills.Snapshot) bool {
		sk := s.Skill(path)
		if sk == nil {
			return description == ""
		}
		return sk.Description() == description
	})
}

func TestRun(t *testing.T) {
	for name, change := range map[string]func(w *tree){
		"written in place": func(w *tree) {
			w.write("a/SKILL.md", document("a", "second"))
			w.describes("a", "second")
		},
		"written aside and renamed": func(w *tree) {
			w.write("a/.tmp123", document("a", "second"))
			w.rename("a/.tmp123", "a/SKILL.md")
			w.describes("a", "second")
		},
		"saved by vim": func(w *tree) {
			w.write("a/.SKILL.md.swp", "swap")
			w.write("a/4913", "")
			w.remove("a/4913")
			w.rename("a/SKILL.md", "a/SKILL.md~")
			w.write("a/SKILL.md", document("a", "second"))
			w.remove("a/SKILL.md~")
			w.remove("a/.SKILL.md.swp")
			w.describes("a", "second")
		},
		"truncated first": func(w *tree) {
			w.write("a/SKILL.md", "")
			w.describes("a", "")
			w.write("a/SKILL.md", document("a", "second"))
			w.describes("a", "second")
		},
		"broken and mended": func(w *tree) {
			w.write("group/b/SKILL.md", "---\nname: {\n---\n")
			w.describes("group/b", "")
			w.write("group/b/SKILL.md", document("b", "second"))
			w.describes("group/b", "second")
		},
		"added": func(w *tree) {
			w.write("d/SKILL.md", document("d", "new"))
			w.describes("d", "new")
			w.write("d/SKILL.md", document("d", "newer"))
			w.describes("d", "newer")
		},
		"added to a directory without skills": func(w *tree) {
			w.write("later/notes/n.txt", "notes")
			w.write("e/SKILL.md", document("e", "new"))
			w.describes("e", "new") // by a scan that has seen the other directories too
			w.write("later/notes/SKILL.md", document("notes", "new"))
			w.describes("later/notes", "new")
		},
		"added deep below": func(w *tree) {
			w.write("x/y/z/SKILL.md", document("z", "new"))
			w.describes("x/y/z", "new")
			w.write("x/y/z/SKILL.md", document("z", "newer"))
			w.describes("x/y/z", "newer")
		},
		"removed": func(w *tree) {
			w.remove("a")
			w.describes("a", "")
			w.write("a/SKILL.md", document("a", "again"))
			w.describes("a", "again")
		},
		"directory renamed": func(w *tree) {
			w.rename("group", "other")
			w.describes("group/b", "")
			w.describes("other/b", "first")
			w.write("other/b/SKILL.md", document("b", "second"))
			w.describes("other/b", "second")
			w.rename("other", "group")
			w.describes("group/b", "second")
			w.write("group/b/SKILL.md", document("b", "third"))
			w.describes("group/b", "third")
		},
		"moved out and in": func(w *tree) {
			w.rename("a", "../moved")
			w.describes("a", "")
			w.rename("../moved", "group/a")
			w.describes("group/a", "first")
			w.write("group/a/SKILL.md", document("a", "second"))
			w.describes("group/a", "second")
		},
		"behind a link": func(w *tree) {
			if err := os.Symlink(filepath.Join(w.outside, "c"), w.path("link")); err != nil {
				w.t.Skip("missing capability: symbolic links")
			}
			w.describes("link", "first")
			w.write("../outside/c/SKILL.md", document("c", "second"))
			w.describes("link", "second")
			w.remove("link")
			w.describes("link", "")
		},
		"root gone and back": func(w *tree) {
			w.rename(".", "../away")
			// Nothing that is served changes, so no call tells.
			w.rename("../away", ".")
			w.write("a/SKILL.md", document("a", "second"))
			w.describes("a", "second")
		},
		"root replaced": func(w *tree) {
			w.write("../next/e/SKILL.md", document("e", "new"))
			w.rename(".", "../away")
			w.rename("../next", ".")
			w.describes("e", "new")
			w.describes("a", "")
			w.write("e/SKILL.md", document("e", "newer"))
			w.describes("e", "newer")
		},
	} {
		for _, poll := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/poll=%v", name, poll), func(t *testing.T) {
				t.Parallel()
				change(start(t, Options{Debounce: 10 * time.Millisecond, poll: poll}))
			})
		}
	}
}

// A scan may take longer than the times of files are late: a file that was written after its directory was read
// is found all the same.
func TestRunSeesWhatScansMiss(t *testing.T) {
	t.Parallel()
	w := plant(t)
	var once sync.Once
	// The clock is read when the directories have been read, and is as late as after a long scan.
	now := func() time.Time {
		if _, err := os.Stat(w.path("e")); err == nil {
			once.Do(func() { _ = os.WriteFile(w.path("e/SKILL.md"), []byte(document("e", "late")), 0o644) })
		}
		return time.Now().Add(2 * slack)
	}
	w.registry = skills.NewRegistry([]skills.Root{{Dir: w.dir}}, &skills.ScanOptions{Now: now})
	_, err := w.registry.Rescan(t.Context())
	w.check(err)
	run(t, w, Options{Debounce: 10 * time.Millisecond})
	w.check(os.Mkdir(w.path("e"), 0o755))
	w.describes("e", "late")
}

// A change of a file other than SKILL.md is told once the digests have been.
func TestRunSeesFiles(t *testing.T) {
	t.Parallel()
	w := start(t, Options{Debounce: 10 * time.Millisecond})
	before, err := w.registry.Snapshot().Skill("a").Index(t.Context())
	w.check(err)
	w.write("a/references/r.md", "second")
	w.until("a change of a file", func(s *skills.Snapshot) bool {
		index, err := s.Skill("a").Index(t.Context())
		w.check(err)
		return index.TreeDigest != before.TreeDigest && len(index.Resources) == 1
	})
	w.write("a/scripts/run.sh", "#!/bin/sh\n")
	w.until("a script in a directory that was made for it", func(s *skills.Snapshot) bool {
		index, err := s.Skill("a").Index(t.Context())
		w.check(err)
		return index.Resource("scripts/run.sh") != nil
	})
}

// Many changes at once, as a checkout makes them, are told in one call.
func TestRunCoalesces(t *testing.T) {
	t.Parallel()
	const n, debounce = 300, 2 * time.Second
	var w *tree
	// What a machine takes longer for than the pause is not at once.
	for tries, took := 0, debounce; took >= debounce; tries++ {
		if tries == 10 {
			t.Fatalf("%d files were never written within %v", n, debounce)
		}
		w = start(t, Options{Debounce: debounce})
		begin := time.Now()
		for i := range n {
			w.write(fmt.Sprintf("many/%d/SKILL.md", i), document(fmt.Sprint(i), "new"))
		}
		w.write("a/SKILL.md", document("a", "second"))
		w.remove("group")
		took = time.Since(begin)
	}
	select {
	case diff := <-w.diffs:
		if len(diff.Added) != n || len(diff.Changed) != 1 || len(diff.Removed) != 1 {
			t.Errorf("the first call has %d added, %q changed, %q removed", len(diff.Added), diff.Changed, diff.Removed)
		}
	case <-time.After(patience):
		t.Fatal("no call")
	}
}

// A tree that is written to without a pause is refreshed meanwhile.
func TestRunRestless(t *testing.T) {
	t.Parallel()
	w := start(t, Options{Debounce: 100 * time.Millisecond})
	for i, end := 0, time.Now().Add(patience); ; i++ {
		w.write("a/SKILL.md", document("a", fmt.Sprint(i)))
		select {
		case <-w.diffs:
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatal("no call while the tree is written to")
		}
	}
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestRunSaysOnceThatItPolls(t *testing.T) {
	t.Parallel()
	var log lines
	w := start(t, Options{Debounce: 10 * time.Millisecond, poll: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, description := range []string{"secret1", "secret2"} {
		w.write("a/SKILL.md", document("a", description))
		w.describes("a", description)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "polled") || strings.Contains(text, "secret") {
		t.Errorf("the log is %q", text)
	}
}

// Run leaves no goroutine and no watch behind. The test is not parallel: no other one watches yet.
func TestRunEnds(t *testing.T) {
	w := start(t, Options{Debounce: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, w.registry, Options{Debounce: time.Millisecond, OnChange: w.changed}) }()
	w.write("a/SKILL.md", document("a", "second"))
	w.describes("a", "second")
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run does not end")
	}
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(patience); ; runtime.Gosched() { // one that ends may still be there
		now := string(stacks[:runtime.Stack(stacks, true)])
		n := strings.Count(now, "fsnotify.(*inotify).readEvents(")
		if n <= 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines read events, want that of the other Run:\n%s", n, now)
		}
	}
}

// The first scan may be long before, or as good as.
func TestRunFindsEarlierChanges(t *testing.T) {
	t.Parallel()
	for _, poll := range []bool{false, true} {
		w := start(t, Options{poll: poll, Debounce: time.Hour})
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			w.write("a/SKILL.md", document("a", fmt.Sprint("change ", i)))
			finished := make(chan error, 1)
			go func() {
				finished <- Run(ctx, w.registry, Options{Debounce: time.Millisecond, poll: poll, OnChange: w.changed})
			}()
			w.describes("a", fmt.Sprint("change ", i))
			cancel()
			w.check(<-finished)
		}
	}
}
