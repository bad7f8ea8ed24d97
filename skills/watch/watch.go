// Package watch keeps a registry of skills up to date with the disk.
//
// Every directory that was scanned is watched, and so are the directories inside of skills. Changes are
// collected until they pause; then what they concern is read again ([skills.Registry.Refresh]). The package
// guarantees that
//
//   - a change is seen even when events are lost, by a scan of everything at long intervals;
//   - a tree that never stops changing is refreshed all the same, every few seconds;
//   - a root that disappears and returns, and another version of a [skills.Source], are noticed;
//   - a root that does not exist is noticed when it is made: until then the directory above it is watched,
//     alone, without those below it;
//   - if the system gives no watches, the skills are polled, which is logged once.
//
// Until the next scan of everything it does not see a change of a file behind a link inside of a skill,
// nor, while it polls, a change of a file that does not change the skill's own directory. Reads verify
// bytes in any case.
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

// Options are the optional parts of [Run]. The zero value is fine.
type Options struct {
	// Logger gets degraded operation and failed scans; nil: nothing is logged.
	Logger *slog.Logger
	// Debounce is how long a tree must be unchanged before its changes are read; 0: 200 ms. A tree that
	// keeps changing is read after ten times that. Roots are checked as often, and polls are not more
	// frequent.
	Debounce time.Duration
	// OnChange, if not nil, is called after each refresh that made a difference, by one goroutine at a
	// time. Changes during the call wait for it. ctx is the context of Run. The diff is empty if only the
	// diagnostics of the snapshot differ, for example after a root has disappeared.
	OnChange func(ctx context.Context, diff skills.Diff)

	// poll forbids watches.
	poll bool
}

const (
	defaultDebounce = 200 * time.Millisecond
	maxDebounces    = 10 // after which a tree is read though it keeps changing
	retry           = 50 // debounces after which a failed scan is repeated
	fullScan        = 10 * time.Minute
	maxChanged      = 4096 // paths that are remembered; with more, everything is scanned
)

// Run keeps registry, which has been scanned, up to date until ctx is done, then releases everything and
// returns nil. It also finds changes that were made between the scan and the call. Several Runs of one
// registry do no harm, but each does the work.
//
// Errors: none; faults are logged, and Run polls or tries again.
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

// manyDirs is how many directories leave so much garbage behind, when they are listed, that an idle server
// gives the memory back at once.
const manyDirs = 4000

// watcher belongs to the goroutine of Run.
type watcher struct {
	registry *skills.Registry
	opts     Options
	log      *slog.Logger
	debounce time.Duration

	notify      *fsnotify.Watcher   // nil while polling
	dirs        map[string]bool     // that are watched
	paths       strings.Builder     // of some of them
	areas       map[string]bool     // the tops of the trees to be watched, and whether they are
	above       map[string][]string // directories above roots that do not exist, and the names waited for
	polled      map[string]stamp    // nil while watching
	roots       []identity
	diagnostics []skills.Diagnostic // of the last snapshot

	changed map[string]bool // paths to be refreshed
	all     bool            // everything is to be refreshed
	since   time.Time       // of the first of these changes
	due     time.Time       // for a refresh
}

// start begins to watch, or to poll.
func (w *watcher) start(ctx context.Context) {
	w.roots = w.identify(ctx)
	if slices.ContainsFunc(w.roots, func(id identity) bool { return id.version != "" }) {
		// The version that was scanned is not known.
		w.noteAll()
	}
	// A root may have been made since the scan.
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

// loop waits for events and timers. A nil channel never delivers anything.
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

// note remembers a path that has changed.
func (w *watcher) note(path string) {
	w.postpone()
	w.changed[path] = true
	if len(w.changed) > maxChanged {
		w.all = true
		clear(w.changed)
	}
}

// noteAll notes that anything may have changed.
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
	if last := w.since.Add(maxDebounces * w.debounce); last.Before(w.due) {
		w.due = last
	}
}

// refresh reads again what has changed, and watches new directories.
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
