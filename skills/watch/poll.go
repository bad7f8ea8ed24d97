package watch

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// stamp is the state of a file that polls compare.
type stamp struct {
	size     int64
	modified time.Time
	mode     fs.FileMode
}

func stampOf(path string) stamp {
	info, err := os.Lstat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime(), info.Mode()}
}

// interval returns the time between two polls, which grows with the number of paths that one looks at.
func (w *watcher) interval() time.Duration {
	return max(maxDebounces*w.debounce, time.Duration(len(w.polled))*time.Millisecond/4)
}

// poll notes the differences since the previous poll in skill files, their directories, the directories above
// up to the top of the tree, and the directories that were searched in vain: a skill may have been added to
// one since.
func (w *watcher) poll() {
	snapshot := w.registry.Snapshot()
	next := make(map[string]stamp, len(w.polled))
	for _, dir := range snapshot.Dirs() {
		next[dir] = stampOf(dir)
	}
	for _, dir := range w.registry.Searched() {
		next[dir] = stampOf(dir)
	}
	for _, path := range snapshot.SkillFiles() {
		// The loop ends at the tops of the trees.
		for _, done := next[path]; !done; _, done = next[path] {
			next[path] = stampOf(path)
			path = filepath.Dir(path)
		}
	}
	for path, now := range next {
		was, known := w.polled[path]
		// A path that is new to the polls may have changed after the scan read it, but before the first look.
		if known && now != was || !known && !now.modified.Before(snapshot.Began().Add(-slack)) {
			w.note(path)
		}
	}
	for path := range w.polled {
		if _, still := next[path]; !still {
			w.note(path)
		}
	}
	w.polled = next
}

// identity identifies the state of a root.
type identity struct {
	info    fs.FileInfo // nil if the directory does not exist
	version string      // of a source
}

// identify returns the identities of the roots.
func (w *watcher) identify(ctx context.Context) []identity {
	roots := w.registry.Snapshot().Roots
	found := make([]identity, len(roots))
	for i := range roots {
		if source, ok := roots[i].FS.(skills.Source); ok {
			// A source without a version now is scanned once it has one again.
			found[i].version, _ = source.Version(ctx)
		} else if roots[i].FS == nil {
			// os.Stat follows a link, so a root that now leads elsewhere is another directory.
			found[i].info, _ = os.Stat(roots[i].Dir)
		}
	}
	return found
}

// look rescans everything if a root was replaced by another directory, which causes no event, and watches the
// directories above missing roots.
func (w *watcher) look(ctx context.Context) {
	now := w.identify(ctx)
	for i := range now {
		was := w.roots[i]
		if now[i].version != was.version || (now[i].info == nil) != (was.info == nil) ||
			was.info != nil && !os.SameFile(was.info, now[i].info) {
			w.scanAll()
		}
	}
	w.roots = now
	w.await()
	for dir, watched := range w.areas {
		// A directory that was gone when the watch was added causes no event when it comes back.
		if !watched && fsys.Exists(dir) {
			w.noteAll()
		}
	}
}
