package filestore

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// Quota is how much the sessions of one principal may take together; zero is any number.
type Quota struct {
	Bytes    int64 // of all files
	Sessions int
	Outputs  int64 // bytes of kept outputs
}

// ledger counts what each principal keeps. What is written is added as it comes; a session that is released
// is measured. What other processes write and delete is found when everything is counted again, which is
// done before a principal is refused.
type ledger struct {
	of func(principal string) Quota // nil bounds nothing

	counting sync.Mutex // held while everything is counted; before mu

	mu       sync.Mutex
	again    time.Time // from then on everything may be counted again; zero before the first time
	sessions map[string]use
	totals   map[string]use
}

// use is what a session, or the sessions of a principal, take.
type use struct {
	principal      string
	sessions       int
	bytes, outputs int64
}

// put replaces what a session takes. l.mu is held.
func (l *ledger) put(id string, u use) {
	old := l.sessions[id]
	for _, change := range []struct {
		use
		sign int64
	}{{old, -1}, {u, 1}} {
		t := l.totals[change.principal]
		t.sessions += int(change.sign) * change.use.sessions
		t.bytes += change.sign * change.use.bytes
		t.outputs += change.sign * change.use.outputs
		l.totals[change.principal] = t
		if t == (use{}) {
			delete(l.totals, change.principal)
		}
	}
	l.sessions[id] = u
	if u == (use{}) {
		delete(l.sessions, id)
	}
}

// add counts what was written to a session. Before its first event, principal is empty and nothing is
// counted; its measure at the end has it.
func (l *ledger) add(id, principal string, bytes, outputs int64) {
	if l.of == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.sessions[id]
	if u.sessions == 0 && principal == "" || l.again.IsZero() {
		return
	}
	if u.sessions == 0 {
		u.principal, u.sessions = principal, 1
	}
	u.bytes, u.outputs = u.bytes+bytes, u.outputs+outputs
	l.put(id, u)
}

// forget drops sessions that were deleted.
func (l *ledger) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(id, use{})
}

// Use is what the sessions of one principal take together, and may take.
type Use struct {
	Principal string
	Sessions  int
	Bytes     int64 // of all files
	Outputs   int64 // bytes of kept outputs
	Most      Quota
}

// Uses returns what the sessions of each principal take, in the order of names. It may be a second old, or
// older where counting takes long.
//
// Errors: the errors of reading the sessions.
func (st *Store) Uses(ctx context.Context) ([]Use, error) {
	if err := st.count(ctx); err != nil {
		return nil, err
	}
	l := &st.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Use
	for name, t := range l.totals {
		u := Use{Principal: name, Sessions: t.sessions, Bytes: t.bytes, Outputs: t.outputs}
		if l.of != nil {
			u.Most = l.of(name)
		}
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b Use) int { return strings.Compare(a.Principal, b.Principal) })
	return list, nil
}

// exceeded returns how a principal would exceed its quota with so many more; nil if it would not.
func (l *ledger) exceeded(principal string, more use) error {
	most := l.of(principal)
	l.mu.Lock()
	t := l.totals[principal]
	l.mu.Unlock()
	what := ""
	switch {
	case most.Sessions > 0 && t.sessions+more.sessions > most.Sessions:
		what = fmt.Sprintf("%d of %d sessions", t.sessions, most.Sessions)
	case most.Bytes > 0 && t.bytes+more.bytes >= most.Bytes:
		what = fmt.Sprintf("%d of %d bytes of records%s", t.bytes, most.Bytes, needs(more.bytes))
	case most.Outputs > 0 && t.outputs+more.outputs >= most.Outputs:
		what = fmt.Sprintf("%d of %d bytes of outputs%s", t.outputs, most.Outputs, needs(more.outputs))
	default:
		return nil
	}
	return &provenance.FullError{Principal: principal, What: what}
}

// needs says that so many bytes more are to be kept free.
func needs(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(", and this needs room for %d more", bytes)
}

// admit refuses what would exceed the quota of a principal.
//
// Errors: *provenance.FullError, or the error of counting.
func (st *Store) admit(ctx context.Context, principal string, more use) error {
	l := &st.ledger
	if l.of == nil || principal == "" || l.of(principal) == (Quota{}) {
		return nil
	}
	l.mu.Lock()
	counted := !l.again.IsZero()
	l.mu.Unlock()
	if counted && l.exceeded(principal, more) == nil {
		return nil
	}
	if err := st.count(ctx); err != nil {
		return err
	}
	return l.exceeded(principal, more)
}

// count measures all sessions, unless that was done just now. Counting takes at most a twentieth of the time.
func (st *Store) count(ctx context.Context) error {
	l := &st.ledger
	l.counting.Lock()
	defer l.counting.Unlock()
	began := time.Now()
	l.mu.Lock()
	fresh := began.Before(l.again)
	l.mu.Unlock()
	if fresh {
		return nil
	}
	found := make(map[string]use)
	for s, err := range st.Sessions(ctx, time.Time{}) {
		if s.ID == "" && err != nil {
			return unavailable("count records", err)
		}
		// Of a damaged session it may not be known whose it is; then it is nobody's.
		found[s.ID] = st.measure(s.ID, s.Principal)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, u := range l.sessions {
		if strings.HasPrefix(id, reserved) {
			found[id] = u
		}
	}
	l.sessions, l.totals = make(map[string]use), make(map[string]use)
	for id, u := range found {
		l.put(id, u)
	}
	l.again = time.Now().Add(max(time.Second, 20*time.Since(began)))
	return nil
}

// measure returns what a session takes; zero if it is not there.
func (st *Store) measure(id, principal string) use {
	dir, err := openSession(st.root, id)
	if err != nil {
		return use{}
	}
	defer dir.Close()
	u := use{principal: principal, sessions: 1}
	var outputs usedSpace
	// A file that is removed while it is measured counts nothing.
	u.bytes, _ = usage(dir, func(name string, info fs.FileInfo, free bool) bool {
		// The operator's catalogue makes the registry large, and later sessions have the same.
		n, _ := links(info)
		return free && (n < 2 || name != provenance.RegistryFile)
	})
	_ = outputs.count(dir, provenance.OutputsDir)
	u.outputs = outputs.bytes
	return u
}

// reserved begins the names of reservations, in the ledger and for a moment in the directory; no session has
// it.
const reserved = "~room-"

// Reserve implements provenance.Writer. On Linux the reservation is a file without a name that has its
// blocks, so that nobody else's bytes take them, and that is gone when the process is killed. Elsewhere, and
// where the file system cannot do that, the free space is only looked at.
func (st *Store) Reserve(ctx context.Context, id string, bytes int64) (release func(), err error) {
	principal := ""
	if s := st.held(id); s != nil {
		principal = s.point().tally.Session.Principal
	}
	more := use{principal: principal, bytes: bytes, outputs: bytes}
	if err := st.admit(ctx, principal, more); err != nil {
		return nil, err
	}
	if err := st.free(bytes); err != nil {
		return nil, err
	}
	name := reserved + rand.Text()
	room, err := allocate(st.root, name, bytes)
	if err != nil {
		return nil, unavailable("reserve room", err)
	}
	if st.ledger.of != nil {
		st.ledger.mu.Lock()
		st.ledger.put(name, more)
		st.ledger.mu.Unlock()
	}
	return sync.OnceFunc(func() {
		_ = room.Close() // nothing was written
		if st.ledger.of != nil {
			st.ledger.forget(name)
		}
	}), nil
}

// free refuses what would leave less free space than the floor.
func (st *Store) free(bytes int64) error {
	if st.opts.Floor == 0 && bytes == 0 {
		return nil
	}
	left, known := freeSpace(st.dir)
	if known && left-bytes < st.opts.Floor {
		return unavailable("keep room", &noRoom{left, st.opts.Floor + bytes})
	}
	return nil
}

// noRoom says that there is less free space than is needed.
type noRoom struct{ left, need int64 }

func (e *noRoom) Error() string {
	return fmt.Sprintf("%d bytes are free for records, %d are needed", e.left, e.need)
}

// concludes reports whether an event of a kind follows one that was admitted, for which there was room.
func concludes(kind provenance.Kind) bool {
	return kind == provenance.KindScriptExecuted || kind == provenance.KindSessionEnded ||
		kind == provenance.KindOutputsRemoved
}
