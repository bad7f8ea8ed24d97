// Package watch keeps a registry of skills up to date with the disk.
//
// Every scanned directory is watched, including directories inside of skills. Changes are collected until
// they pause; then the affected skills are read again ([skills.Registry.Refresh]). The package gives these
// guarantees:
//
//   - a change is found even if events are lost, by a full scan at long intervals;
//   - a tree that never stops changing is refreshed nevertheless, every few seconds;
//   - a root that disappears and returns, and a new version of a [skills.Source], are noticed;
//   - a missing root is noticed when it is created: until then only the directory above it is watched,
//     without its subdirectories;
//   - if the system provides no watches, the skills are polled, which is logged once.
//
// Until the next full scan it misses a change of a file behind a link inside of a skill, and, while polling,
// a change of a file that does not change the skill's own directory. Reads verify bytes in any case.
package watch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillsd/skillsd/skills"
)

// Options are the options of [Run]. The zero value is valid.
type Options struct {
	// Logger logs degraded operation and failed scans; nil: nothing is logged.
	Logger *slog.Logger
	// Debounce is how long a tree must be unchanged before its changes are read; 0: 200 ms. A tree that keeps
	// changing is read after ten times that. Roots are checked, and skills polled, no more often than that.
	Debounce time.Duration
	// OnChange, if not nil, is called after each refresh that made a difference. Calls do not overlap;
	// changes during a call wait for it. ctx is the context of Run. The diff is empty if only the diagnostics
	// of the snapshot differ, for example after a root has disappeared.
	OnChange func(ctx context.Context, diff skills.Diff)

	// poll disables watches.
	poll bool
}

const (
	defaultDebounce = 200 * time.Millisecond
	maxDebounces    = 10 // after which a tree is read even if it keeps changing
	retry           = 50 // debounces after which a failed scan is repeated
	fullScan        = 10 * time.Minute
	maxChanged      = 4096 // changed paths; with more, everything is scanned
)

// Run keeps a scanned registry up to date until ctx is done, then releases everything and returns nil. It
// also finds changes made between the scan and the call. Several Runs for one registry are harmless but
// redundant.
//
// Errors: none; faults are logged, and Run polls or retries.
func Run(ctx context.Context, registry *skills.Registry, opts Options) error {
	w := &watcher{
		registry: registry, opts: opts, log: opts.Logger,
		debounce: cmp.Or(max(opts.Debounce, 0), defaultDebounce),
		changed:  map[string]bool{}, dirs: map[string]bool{}, areas: map[string]bool{},
		above:       map[string][]string{},
		diagnostics: registry.Snapshot().Diagnostics,
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.start(ctx)
	defer w.close()
	w.loop(ctx)
	return nil
}

// manyDirs is the number of directories above which listing them leaves so much garbage that memory is
// returned to the system at once, since the server may then be idle.
const manyDirs = 4000

// watcher is the state of Run. It belongs to its goroutine.
type watcher struct {
	registry *skills.Registry
	opts     Options
	log      *slog.Logger
	debounce time.Duration

	notify      *fsnotify.Watcher   // nil while polling
	dirs        map[string]bool     // watched directories
	paths       strings.Builder     // current chunk of paths; see join
	areas       map[string]bool     // the tops of the trees to watch, and whether they are watched
	above       map[string][]string // directories above missing roots, and the expected names in them
	polled      map[string]stamp    // nil while watching
	roots       []identity
	diagnostics []skills.Diagnostic // of the last snapshot

	changed map[string]bool // paths to refresh
	all     bool            // refresh everything
	since   time.Time       // time of the first of these changes
	due     time.Time       // time of the next refresh
}

// start begins to watch, or to poll.
func (w *watcher) start(ctx context.Context) {
	w.roots = w.identify(ctx)
	if slices.ContainsFunc(w.roots, func(id identity) bool { return id.version != "" }) {
		// The version that was scanned is unknown.
		w.noteAll()
	}
	// A root may have been created since the scan.
	scanned := w.registry.Snapshot().Dirs()
	for i, root := range w.registry.Snapshot().Roots {
		real, err := filepath.EvalSymlinks(root.Dir)
		if w.roots[i].info != nil && (err != nil || !slices.Contains(scanned, real)) {
			w.noteAll()
		}
	}
	if w.opts.poll {
		w.degrade(ctx, errors.New("not wanted"))
		return
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.degrade(ctx, err)
		return
	}
	w.notify = notify
	w.follow(ctx)
	w.await()
	if len(w.dirs) > manyDirs {
		debug.FreeOSMemory()
	}
}

func (w *watcher) close() {
	if w.notify != nil {
		w.notify.Close()
		w.notify = nil
	}
}

// loop waits for events and timers. Receiving from a nil channel blocks forever.
func (w *watcher) loop(ctx context.Context) {
	look := time.NewTicker(maxDebounces * w.debounce)
	defer look.Stop()
	scan := time.NewTicker(fullScan)
	defer scan.Stop()
	poll := time.NewTimer(w.interval())
	defer poll.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		var events chan fsnotify.Event
		var failures chan error
		if w.notify != nil {
			events, failures = w.notify.Events, w.notify.Errors
		}
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open {
				w.degrade(ctx, fsnotify.ErrClosed)
				continue
			}
			w.event(ctx, event)
		case err := <-failures:
			w.failed(ctx, err)
		case <-look.C:
			w.look(ctx)
		case <-scan.C:
			w.noteAll()
		case <-poll.C:
			if w.notify == nil {
				w.poll()
			}
			poll.Reset(w.interval())
		case <-rest.C:
			// A later change may have moved the time after the timer was set.
			if w.pending() && !time.Now().Before(w.due) {
				w.refresh(ctx)
			}
		}
		if w.pending() {
			rest.Reset(time.Until(w.due))
		}
	}
}

func (w *watcher) pending() bool { return w.all || len(w.changed) > 0 }

// note adds a changed path.
func (w *watcher) note(path string) {
	w.postpone()
	w.changed[path] = true
	if len(w.changed) > maxChanged {
		w.all = true
		clear(w.changed)
	}
}

// noteAll marks everything as possibly changed.
func (w *watcher) noteAll() {
	w.postpone()
	w.all = true
}

// postpone moves the next refresh until the tree has been unchanged for a while, within limits.
func (w *watcher) postpone() {
	now := time.Now()
	if !w.pending() {
		w.since = now
	}
	w.due = now.Add(w.debounce)
	// Without this limit a tree that changes all the time would never be read.
	if last := w.since.Add(maxDebounces * w.debounce); last.Before(w.due) {
		w.due = last
	}
}

// refresh reads changed skills again, and watches new directories.
func (w *watcher) refresh(ctx context.Context) {
	changed := slices.Sorted(maps.Keys(w.changed))
	if w.all {
		changed = nil
	}
	w.all = false
	clear(w.changed)
	diff, err := w.registry.Refresh(ctx, changed)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.log.ErrorContext(ctx, "skills cannot be scanned, the last ones stay", slog.Any("err", err))
		w.noteAll()
		// Many failures, such as a lack of descriptors, pass by themselves, and a scan at once would add to
		// them.
		w.due = time.Now().Add(retry * w.debounce)
		return
	}
	w.follow(ctx)
	w.await()
	diagnostics := w.registry.Snapshot().Diagnostics
	differ := !diff.Empty() || !slices.Equal(diagnostics, w.diagnostics)
	w.diagnostics = diagnostics
	if differ && w.opts.OnChange != nil {
		w.opts.OnChange(ctx, diff)
	}
}
