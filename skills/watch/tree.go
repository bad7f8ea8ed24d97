package watch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxDirs is the maximum number of watched directories. One costs about a kibibyte in the Linux kernel, and
// on other systems up to 64 KiB or a descriptor for each of its files.
var maxDirs = map[bool]int{true: 200_000, false: 1_000}[runtime.GOOS == "linux"]

const (
	maxDepth = 40              // of directories below the top of a tree
	maxList  = 100_000         // entries read from a directory
	slack    = 2 * time.Second // maximum delay of file times behind the clock
)

var (
	errTooMany = errors.New("there are too many directories")
	errLimit   = errors.New("the system's limit on watches is reached")
)

// follow watches the trees of the current snapshot, and no others.
func (w *watcher) follow(ctx context.Context) {
	if w.notify == nil {
		return
	}
	snapshot := w.registry.Snapshot()
	wanted := map[string]bool{}
	for _, dir := range snapshot.Dirs() {
		wanted[dir] = true
		if w.areas[dir] {
			continue
		}
		// Changes since the scan began, and before the watch, cause no event.
		err := w.add(ctx, dir, snapshot.Began().Add(-slack), 0)
		gone := errors.Is(err, fs.ErrNotExist) // even if it was created again since
		if err != nil && !gone {
			w.degrade(ctx, err)
			return
		}
		w.areas[dir] = !gone
	}
	for dir := range w.areas {
		if !wanted[dir] {
			delete(w.areas, dir)
			w.drop(dir, wanted)
		}
	}
}

// add watches a directory and its subdirectories. It notes changes in them since a time, which happened
// before the watch.
//
// Errors: fs.ErrNotExist; the limit on watches; the error of ctx.
func (w *watcher) add(ctx context.Context, dir string, since time.Time, depth int) error {
	if err := ctx.Err(); err != nil || depth > maxDepth {
		return err
	}
	if len(w.dirs) >= maxDirs {
		return errTooMany
	}
	if watched, err := w.watchDir(dir); !watched {
		return err
	}
	// The watch is added before the listing: what is created in between causes an event.
	w.dirs[dir] = true
	entries, info := list(dir)
	if info != nil && !info.ModTime().Before(since) {
		w.note(dir)
	}
	for _, e := range entries {
		switch {
		case ignored(e.Name()):
		// Depth 0 is the top of a tree, which is searched whatever its name is.
		case depth > 0 && filepath.Base(dir) == skills.HostingDir && skills.Skips(skills.HostingDir,
			e.Name()):
		case e.IsDir():
			err := w.add(ctx, w.join(dir, e.Name()), since, depth+1)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case e.Type().IsRegular():
			if info, err := e.Info(); err == nil && !info.ModTime().Before(since) {
				w.note(filepath.Join(dir, e.Name()))
			}
		}
	}
	return nil
}

// watchDir watches a directory alone. It is not watched if it cannot be read, or is a link now.
//
// Errors: fs.ErrNotExist; the limit on watches.
func (w *watcher) watchDir(dir string) (watched bool, err error) {
	// The library fails if a known path now leads to another watched directory.
	if w.dirs[dir] {
		_ = w.notify.Remove(dir)
	}
	err = w.notify.Add(dir)
	switch {
	// A directory that cannot be read is not scanned either.
	case errors.Is(err, fs.ErrPermission):
		return false, nil
	// inotify reports with ENOSPC that fs.inotify.max_user_watches is reached.
	case errors.Is(err, syscall.ENOSPC):
		return false, errLimit
	case err != nil:
		return false, err
	}
	// Add follows links, and a directory may have been replaced by one since it was listed.
	info, err := os.Lstat(dir)
	if err == nil && info.IsDir() {
		return true, nil
	}
	_ = w.notify.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, nil
}

// ignored reports whether neither scans nor indexes need an entry. Some directories in HostingDir are
// scanned.
func ignored(name string) bool { return skills.Ignored(name) && name != skills.HostingDir }

// maxPaths is the size of a chunk of paths, in bytes.
const maxPaths = 4 << 10

// join returns the path of a directory, which is retained while it is watched. Many paths share one chunk:
// small allocations among short-lived garbage would each keep a page of memory alive.
func (w *watcher) join(dir, name string) string {
	at := w.paths.Len()
	if need := len(dir) + 1 + len(name); at+need > w.paths.Cap() {
		w.paths, at = strings.Builder{}, 0
		w.paths.Grow(max(need, maxPaths))
	}
	w.paths.WriteString(filepath.Join(dir, name))
	return w.paths.String()[at:]
}

// list returns the entries of a directory and its file info, as far as readable.
func list(dir string) ([]fs.DirEntry, fs.FileInfo) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.IsDir() {
		return nil, nil
	}
	entries, _ := file.ReadDir(maxList)
	return entries, info
}

// drop removes the watches of a directory and its subdirectories, except in wanted trees.
func (w *watcher) drop(top string, wanted map[string]bool) {
	for dir := range w.dirs {
		if !within(top, dir) || kept(dir, wanted) {
			continue
		}
		delete(w.dirs, dir)
		if w.areas[dir] {
			w.areas[dir] = false
		}
		// The watch of a removed directory is gone already.
		_ = w.notify.Remove(dir)
	}
}

// kept reports whether a directory is part of a wanted tree.
func kept(dir string, wanted map[string]bool) bool {
	for above := filepath.Dir(dir); !wanted[dir] && dir != above; above = filepath.Dir(dir) {
		dir = above
	}
	return wanted[dir]
}

func within(dir, path string) bool {
	const separator = string(filepath.Separator)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, separator)+separator)
}

// await watches the nearest existing directory above each missing root, and no others.
func (w *watcher) await() {
	if w.notify == nil {
		return
	}
	above := map[string][]string{}
	for _, root := range w.registry.Snapshot().Roots {
		if _, err := os.Stat(root.Dir); root.FS != nil || err == nil {
			continue
		}
		dir, name := nearest(root.Dir)
		if dir == "" || slices.Contains(above[dir], name) {
			continue
		}
		above[dir] = append(above[dir], name)
		if w.above[dir] != nil || w.dirs[dir] {
			continue
		}
		// The roots are checked periodically in any case.
		if w.notify.Add(dir) != nil {
			delete(above, dir)
		} else if fsys.Exists(filepath.Join(dir, name)) { // created before the watch began
			w.noteAll()
		}
	}
	for dir := range w.above {
		if above[dir] == nil && !w.dirs[dir] {
			_ = w.notify.Remove(dir)
		}
	}
	w.above = above
}

// nearest returns the nearest existing directory above a path, with links resolved, and the next name in it
// toward the path.
func nearest(path string) (dir, name string) {
	for above := filepath.Dir(path); above != path; path, above = above, filepath.Dir(above) {
		real, err := filepath.EvalSymlinks(above)
		if err != nil {
			continue
		}
		return real, filepath.Base(path)
	}
	return "", ""
}

// expected handles an event in a directory that is watched only for missing roots, and reports whether it was
// one.
func (w *watcher) expected(ctx context.Context, event fsnotify.Event) bool {
	if w.above[event.Name] != nil && !w.dirs[filepath.Dir(event.Name)] { // the directory itself was removed
		if !w.dirs[event.Name] && event.Has(fsnotify.Remove|fsnotify.Rename) {
			delete(w.above, event.Name)
			w.await()
		}
		return !w.dirs[event.Name]
	}
	dir := filepath.Dir(event.Name)
	names := w.above[dir]
	if names == nil || w.dirs[dir] {
		return false
	}
	if event.Has(fsnotify.Create) && slices.Contains(names, filepath.Base(event.Name)) {
		w.look(ctx)
	}
	return true
}

// event notes the path of an event, and watches a created directory.
func (w *watcher) event(ctx context.Context, event fsnotify.Event) {
	if w.expected(ctx, event) {
		return
	}
	if event.Name == "" || ignored(filepath.Base(event.Name)) {
		return
	}
	w.note(event.Name)
	if event.Has(fsnotify.Remove|fsnotify.Rename) && w.dirs[event.Name] {
		// The watches below go with the directory, and would report its old name.
		w.drop(event.Name, nil)
	}
	if !event.Has(fsnotify.Create) {
		return
	}
	if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
		return
	}
	// The path of the event is noted, which covers everything below. A time in the future keeps the entries
	// from being noted one by one.
	err := w.add(ctx, event.Name, time.Now().Add(slack), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.degrade(ctx, err)
	}
}

// failed handles an error of the watcher.
func (w *watcher) failed(ctx context.Context, err error) {
	if err == nil {
		return
	}
	// An overflow is usual when a large tree is copied, and the full scan finds all of it.
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		w.log.WarnContext(ctx, "events are missing, everything is scanned", slog.Any("err", err))
	}
	w.scanAll()
}

// scanAll rescans everything and renews every watch, since directories may have changed without an event.
func (w *watcher) scanAll() {
	for dir := range w.areas {
		w.areas[dir] = false
	}
	w.noteAll()
}

// degrade releases the watches and starts polling.
func (w *watcher) degrade(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.close()
	clear(w.dirs)
	clear(w.areas)
	clear(w.above)
	w.polled = map[string]stamp{}
	w.poll()
	w.log.WarnContext(ctx, "directories cannot be watched, skills are polled",
		slog.Any("err", err), slog.Int64("duration_ms", w.interval().Milliseconds()))
}
