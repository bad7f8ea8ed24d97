package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills"
)

// A root that does not exist at the start is served when it is made, however much of its path is made with
// it, and when it comes back; what else is made beside it is not watched.
func TestRunAwaitsRoots(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) {
			t.Parallel()
			base, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			w := &tree{t: t, dir: base, diffs: make(chan skills.Diff, 1000)}
			w.registry = skills.NewRegistry([]skills.Root{{Dir: w.path("home/.agents/skills"), Awaited: true},
				{Dir: w.path("home/.claude/skills"), Awaited: true}, {Dir: w.path("given")}}, nil)
			if _, err := w.registry.Rescan(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := w.registry.Snapshot().Diagnostics; len(d) != 1 || d[0].Code != skills.CodeUnreadableRoot || d[0].Path != w.path("given") {
				t.Errorf("the diagnostics are %v, want one of the root that was given", d)
			}
			run(t, w, Options{Debounce: 10 * time.Millisecond, poll: poll})
			w.write("home/.agents/skills/a/SKILL.md", document("a", "first"))
			w.describes("a", "first")
			w.check(os.MkdirAll(w.path("home/.claude"), 0o755))
			w.write("home/.claude/skills/b/SKILL.md", document("b", "first"))
			w.describes("b", "first")
			w.write("home/.claude/skills/b/SKILL.md", document("b", "second"))
			w.describes("b", "second")
			w.write("given/c/SKILL.md", document("c", "first"))
			w.describes("c", "first")
			w.rename("given", "away")
			w.write("given/d/SKILL.md", document("d", "first"))
			w.describes("d", "first")
		})
	}
}

// The directory above a root that does not exist may be a home: none below it is watched.
func TestAwaitWatchesNoTree(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{registry: skills.NewRegistry([]skills.Root{{Dir: filepath.Join(base, "a", "skills"), Awaited: true},
		{Dir: filepath.Join(base, "b", "c", "skills"), Awaited: true}}, nil), changed: map[string]bool{},
		dirs: map[string]bool{}, areas: map[string]bool{}, debounce: time.Millisecond}
	w.start(t.Context())
	defer w.close()
	if w.notify == nil {
		t.Skip("missing capability: watches of directories")
	}
	if err := os.MkdirAll(filepath.Join(base, "node_modules", "x", "y"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.event(t.Context(), <-w.notify.Events)
	if list := w.notify.WatchList(); len(list) != 1 || list[0] != base || w.pending() {
		t.Errorf("watched are %q, and something is read again: %v; want %s alone", list, w.pending(), base)
	}
	if err := os.MkdirAll(filepath.Join(base, "b", "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.event(t.Context(), <-w.notify.Events)
	w.await()
	if list := w.notify.WatchList(); len(list) != 2 {
		t.Errorf("watched are %q, want two directories", list)
	}
}
