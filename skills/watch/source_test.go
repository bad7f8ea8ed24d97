package watch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillsd/skillsd/skills"
)

// versions is a source whose content is replaced as a whole.
type versions struct {
	mu      sync.Mutex
	version string
	tree    fstest.MapFS
}

func (v *versions) set(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.version, v.tree = version, fstest.MapFS{"s/SKILL.md": {Data: []byte(document("s", version))}}
}

func (v *versions) current() fstest.MapFS {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tree
}

func (v *versions) Open(name string) (fs.File, error) { return v.current().Open(name) }
func (v *versions) Origin() string                    { return "versions" }
func (v *versions) Pin() (fs.FS, error)               { return v.current(), nil }

func (v *versions) Version(context.Context) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version, nil
}

// Another version of a source is scanned.
func TestRunSeesVersions(t *testing.T) {
	t.Parallel()
	source := &versions{}
	source.set("first")
	root := skills.Root{Dir: source.Origin(), Tier: skills.TierUser, FS: source}
	w := &tree{t: t, registry: skills.NewRegistry([]skills.Root{root}, nil), diffs: make(chan skills.Diff, 10)}
	if _, err := w.registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { w.check(Run(ctx, w.registry, Options{Debounce: time.Millisecond, OnChange: w.changed})) })
	defer group.Wait()
	defer cancel()
	w.describes("s", "first")
	source.set("second")
	w.describes("s", "second")
}

// newWatcher returns a watcher that watches the tree but for a loop.
func newWatcher(t *testing.T, log *lines) (*watcher, *tree) {
	t.Helper()
	w := plant(t)
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		t.Skipf("missing capability: watches: %v", err)
	}
	t.Cleanup(func() { notify.Close() })
	watcher := &watcher{registry: w.registry, debounce: time.Millisecond, log: slog.New(slog.NewTextHandler(log, nil)), notify: notify,
		changed: map[string]bool{}, dirs: map[string]bool{}, areas: map[string]bool{}}
	return watcher, w
}

// When events are lost everything is scanned and watched again; the log is silent about what is
// nobody's fault.
func TestOverflow(t *testing.T) {
	t.Parallel()
	var log lines
	w, tree := newWatcher(t, &log)
	w.follow(t.Context())
	watched := len(w.dirs)
	if watched == 0 || w.notify == nil {
		t.Skipf("missing capability: watches: %s", log.String())
	}
	clear(w.changed)
	tree.write("unseen/SKILL.md", document("unseen", "new"))
	w.failed(t.Context(), fsnotify.ErrEventOverflow)
	if !w.all || log.String() != "" {
		t.Errorf("everything is to be scanned: %v; the log is %q", w.all, log.String())
	}
	w.refresh(t.Context())
	if w.registry.Snapshot().Skill("unseen") == nil || len(w.dirs) != watched+1 {
		t.Errorf("%d directories are watched, there were %d", len(w.dirs), watched)
	}
	w.failed(t.Context(), errors.New("broken"))
	if !w.all || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log is %q", log.String())
	}
}

// A root that comes back while it is looked for is watched, or will be: it does not pass for one that cannot be.
func TestRootComesBack(t *testing.T) {
	t.Parallel()
	var log lines
	w, tree := newWatcher(t, &log)
	var moving sync.WaitGroup
	done := make(chan struct{})
	moving.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				tree.rename(".", "../away")
				tree.rename("../away", ".")
			}
		}
	})
	moving.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-w.notify.Events:
			case <-w.notify.Errors:
			}
		}
	})
	for range 2_000 {
		w.follow(t.Context())
		if w.notify == nil {
			break
		}
		if w.areas[tree.dir] && !w.dirs[tree.dir] {
			t.Error("it is not watched, and passes for watched")
			break
		}
		w.drop(tree.dir, nil)
	}
	close(done)
	moving.Wait()
	if w.notify == nil {
		t.Fatalf("it is not watched any more: %s", log.String())
	}
}

// When the system gives no more watches those there are are given back, and polling goes on.
func TestNoMoreWatches(t *testing.T) {
	t.Parallel()
	var log lines
	w, tree := newWatcher(t, &log)
	w.notify.Close()
	w.follow(t.Context())
	if w.notify != nil || len(w.dirs) != 0 || !strings.Contains(log.String(), "skills are polled") {
		t.Errorf("%d directories are watched; the log is %q", len(w.dirs), log.String())
	}
	clear(w.changed)
	tree.write("a/SKILL.md", document("a", "another length"))
	w.poll()
	if !w.changed[tree.path("a/SKILL.md")] {
		t.Errorf("the poll saw %v", w.changed)
	}
	w.follow(t.Context())
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log is %q", log.String())
	}
}

// Too many changes to remember are everything.
func TestTooManyChanges(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, &lines{})
	for i := range maxChanged + 1 {
		w.note(string(rune('a' + i)))
	}
	if !w.all || len(w.changed) != 0 {
		t.Errorf("%d paths, everything: %v", len(w.changed), w.all)
	}
}

// Changes wait for a pause, but no longer than ten pauses.
func TestPostpone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{debounce: 100 * time.Millisecond, changed: map[string]bool{}}
		begin := time.Now()
		for i := range 100 {
			w.note("a")
			want := min(time.Duration(i)*50*time.Millisecond+w.debounce, 10*w.debounce)
			if got := w.due.Sub(begin); got != want {
				t.Fatalf("after %d changes the refresh is due in %v, want %v", i+1, got, want)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// A tree that could not be watched, since it was gone, is scanned and watched when it is back.
func TestLookFindsReturn(t *testing.T) {
	t.Parallel()
	var log lines
	w, tree := newWatcher(t, &log)
	w.roots = w.identify(t.Context())
	tree.rename(".", "../away")
	w.follow(t.Context())
	if w.notify == nil {
		t.Skipf("missing capability: watches: %s", log.String())
	}
	w.roots = w.identify(t.Context())
	w.look(t.Context())
	if w.pending() || len(w.dirs) != 0 {
		t.Errorf("%d directories are watched while the root is gone", len(w.dirs))
	}
	tree.rename("../away", ".")
	w.roots = w.identify(t.Context())
	w.look(t.Context())
	if !w.all {
		t.Error("the return is not noticed")
	}
	w.refresh(t.Context())
	if len(w.dirs) == 0 {
		t.Error("the root is not watched after its return")
	}
}

// A directory that is exchanged with a link to another one, before its events are read, ends no process:
// watches of two paths that lead to one directory would confuse the library.
func TestExchangedWithLink(t *testing.T) {
	w, files := newWatcher(t, &lines{})
	w.follow(t.Context())
	// Nobody takes this event, so the library reads no others.
	files.write("a/blocked", "")
	files.rename("a", "moved")
	files.check(os.Symlink(files.path("group"), files.path("a")))
	for range 2 {
		if err := w.add(t.Context(), files.path("a"), time.Now(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(w.notify.WatchList(), files.path("a")) {
		t.Error("the link is watched")
	}
	w.drop(files.path("a"), nil)
	w.drop(files.path("group"), nil)
}
