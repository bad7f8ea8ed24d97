package filestore

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// Quota limits the sessions of one principal together; a zero field sets no limit.
type Quota struct {
	Bytes    int64 // of all files
	Sessions int
	Outputs  int64 // bytes of kept outputs
}

// ledger is how much space each principal uses. Writes of this store are added as they happen, and a session
// is measured when it is released. Everything is counted again before a principal is refused, because other
// processes write and delete too.
type ledger struct {
	of func(principal string) Quota // nil sets no limits

	counting sync.Mutex // held while everything is counted; acquired before mu

	mu       sync.Mutex
	again    time.Time // the earliest time of the next count; zero before the first
	sessions map[string]use
	totals   map[string]use
}

// use is the space used by a session, or by the sessions of a principal.
type use struct {
	principal      string
	sessions       int
	bytes, outputs int64
}

// put replaces the use of a session. l.mu is held.
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

// add adds bytes written to a session. It ignores writes before the session's first event, when principal is
// empty; they are included when the session is measured at its end.
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

// set replaces the use of a session or of a reservation; the zero use removes it.
func (l *ledger) set(id string, u use) {
	if l.of == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(id, u)
}

// Use is the space that the sessions of one principal use together, and its limits.
type Use struct {
	Principal string
	Sessions  int
	Bytes     int64 // of all files
	Outputs   int64 // bytes of kept outputs
	Most      Quota
}

// Uses returns the use of each principal, sorted by name. The numbers may be a second old, or older if
// counting takes long.
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

// exceeded returns an error if adding more exceeds the quota of the principal.
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

// needs returns the part of a message that names the bytes to be reserved.
func needs(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(", and this needs room for %d more", bytes)
}

// admit returns an error if adding more exceeds the quota of the principal. It refuses only after a fresh
// count.
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
	// The ledger may include deleted sessions.
	if err := st.count(ctx); err != nil {
		return err
	}
	return l.exceeded(principal, more)
}

// count measures all sessions, unless it did so recently. It runs at most a twentieth of the time.
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
		// The principal of a damaged session may be unknown; the session then uses no principal's quota.
		found[s.ID] = st.measure(s.ID, s.Principal)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Counting does not find the reservations, which are not sessions.
	for id, u := range l.sessions {
		if strings.HasPrefix(id, reserved) {
			found[id] = u
		}
	}
	// Starting over also drops sessions that other processes deleted.
	l.sessions, l.totals = make(map[string]use), make(map[string]use)
	for id, u := range found {
		l.put(id, u)
	}
	l.again = time.Now().Add(max(time.Second, 20*time.Since(began)))
	return nil
}

// measure returns the use of a session, or zero if it does not exist.
func (st *Store) measure(id, principal string) use {
	dir, err := openSession(st.root, id)
	if err != nil {
		return use{}
	}
	defer dir.Close()
	u := use{principal: principal, sessions: 1}
	var outputs usedSpace
	// A file that is removed meanwhile is not included.
	u.bytes, _ = usage(dir, func(name string, info fs.FileInfo, free bool) bool {
		// The registry is excluded: its size depends on the operator's catalogue, and later sessions share
		// it.
		n, _ := links(info)
		return free && (n < 2 || name != provenance.RegistryFile)
	})
	_ = outputs.count(dir, provenance.OutputsDir)
	u.outputs = outputs.bytes
	return u
}

// reserved begins the names of reservations, in the ledger and briefly in the directory; no session ID begins
// with it.
const reserved = "~room-"

// Reserve implements provenance.Writer. On Linux, the reservation is an unnamed file of allocated blocks: no
// other process can use them, and they are freed if this process is killed. On other systems, and on file
// systems without allocation, Reserve only checks the free space.
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
	st.ledger.set(name, more)
	return sync.OnceFunc(func() {
		// Nothing was written, so nothing can be lost.
		_ = room.Close()
		st.ledger.set(name, use{})
	}), nil
}

// free returns an error if adding bytes leaves less free space than the floor.
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

// noRoom means that there is less free space than needed.
type noRoom struct{ left, need int64 }

func (e *noRoom) Error() string {
	return fmt.Sprintf("%d bytes are free for records, %d are needed", e.left, e.need)
}

// usage returns the size of the files that include selects. free is whether deleting the directory frees the
// file; a nil include selects free files.
func usage(
	dir *os.Root, include func(name string, info fs.FileInfo, free bool) bool,
) (size int64, err error) {
	err = fs.WalkDir(dir.FS(), ".", func(name string, en fs.DirEntry, err error) error {
		if err != nil || !en.Type().IsRegular() {
			return err
		}
		info, err := en.Info()
		if err != nil {
			return err
		}
		// A file with links in other sessions is not freed. The pool has one link to each shared file.
		n, known := links(info)
		free := !known || n == 1 || n == 2 && info.Mode().Perm() == sharedMode
		if include == nil && free || include != nil && include(name, info, free) {
			size += info.Size()
		}
		return nil
	})
	return size, cause(err)
}
