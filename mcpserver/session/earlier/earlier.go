// Package earlier finds earlier sessions by a handle or by the client's own id of the session. An earlier
// session was recorded by another process, or this process has ended it.
//
// Guarantees:
//   - a session is read from the chained events of its record, never from files derived from them;
//   - a session is found only for the principal in its record;
//   - a guess costs little: the records are looked through once in ScanEvery, at most maxEach sessions of a
//     principal each time, however many calls have a handle or a name that nothing has.
package earlier

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// Life is how long a session is found after it was last written: the life of a handle.
const Life = 24 * time.Hour

const (
	// MaxEach is how many sessions of one principal are looked through, the newest first.
	MaxEach = 256

	// ScanEvery is the shortest time between two scans of the records.
	ScanEvery = 2 * time.Second

	// maxKnown bounds the number of sessions in the index, and the number of names. Beyond it, any of them
	// is forgotten.
	maxKnown = 100_000
)

// Key finds a session: a hash of a principal, a profile, a parent, and the kind and the text of an ID which a
// client shows. A name that a client chooses can thus be neither long nor the name of a session of another
// principal.
type Key [sha256.Size]byte

// KeyOf returns the key of some texts. No other texts have it.
func KeyOf(principal, profile, parent, kind, id string) Key {
	hash := sha256.New()
	for _, part := range []string{principal, profile, parent, kind, id} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return Key(hash.Sum(nil))
}

// HandleSum is the hash of an activation handle.
type HandleSum [sha256.Size]byte

// Sum returns the hash of a handle.
func Sum(handle string) HandleSum { return sha256.Sum256([]byte(handle)) }

// HandleKey returns the key of the sessions that gave a handle to a principal.
func HandleKey(principal string, sum HandleSum) Key {
	return KeyOf(principal, "", "", "handle", string(sum[:]))
}

// ClientKey returns the key of the session that a client of a principal names, narrowed to a profile and a
// child of the parent that the client names.
func ClientKey(principal, profile, parentName, clientSession string) Key {
	return KeyOf(principal, profile, parentName, "client", clientSession)
}

// SumOf returns the hash of the handle of an activation that is still good.
func SumOf(row cfharness.Activation, now time.Time) (sum HandleSum, ok bool) {
	x := row.Skillsd
	if x == nil || x.ExpiresAt == nil || !now.Before(x.ExpiresAt.Time) || x.HandleDigest.Validate() != nil ||
		x.HandleDigest.Algorithm() != digest.SHA256 {
		return sum, false
	}
	raw, err := hex.DecodeString(x.HandleDigest.Encoded())
	return HandleSum(raw), err == nil
}

// Mode is the strictest mode that clients have raised a session to, also by calls that are not recorded yet.
// It outlives its session, and is safe for concurrent use.
type Mode struct{ atomic.Int64 } // a policy.Mode; 0: none has raised it

// Raise makes the mode at least as strict as another.
func (m *Mode) Raise(mode policy.Mode) {
	for now := m.Load(); policy.Mode(now) != policy.Mode(now).Stricter(mode); now = m.Load() {
		if m.CompareAndSwap(now, int64(mode)) {
			return
		}
	}
}

// Strictest returns the strictest of some modes, by their names.
func Strictest(names []string) (mode policy.Mode) {
	for _, name := range names {
		if parsed, err := policy.ParseMode(name); err == nil {
			mode = mode.Stricter(parsed)
		}
	}
	return mode
}

// Session is a session whose activations can be restored.
type Session struct {
	ID          string
	Profile     string                 // what the session was narrowed to
	Parent      string                 // id of the session it belonged to, if it was a child, or continued
	Child       bool                   // it belonged to Parent
	ParentName  string                 // the parent as the client named it
	Mode        policy.Mode            // the strictest it was in, by its record
	Activations []cfharness.Activation // not in the index

	Keys   map[Key]bool // of its handles and of its client
	Until  time.Time    // when the last of its handles expires
	Raised *Mode        // nil for a session of another process

	at time.Time // of the last activation
}

// Index finds earlier sessions. It is safe for concurrent use.
type Index struct {
	records provenance.Reader
	logger  *slog.Logger
	now     func() time.Time
	// open returns the ids of the sessions that are open in this process. Their records are not scanned,
	// since they are long and change all the time; Add and AddName add the sessions when they end.
	open func() map[string]bool

	scanning sync.Mutex // held while the records are looked through
	mu       sync.Mutex // taken last, and held only for a look
	scanned  time.Time  // when the records were looked through last; zero: never
	known    map[string]*Session
	names    map[Key]name
}

// name is the session that a client gave a name to.
type name struct {
	id    string
	until time.Time
}

// New returns an index of the sessions in records but for those that open returns the ids of. Nothing is read
// before something is looked up.
func New(records provenance.Reader, logger *slog.Logger, now func() time.Time,
	open func() map[string]bool) *Index {
	return &Index{records: records, logger: logger, now: now, open: open, known: map[string]*Session{},
		names: map[Key]name{}}
}

// Add makes a session known, if it has a handle that is still good.
func (x *Index) Add(p *Session) {
	if !x.now().Before(p.Until) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	// A scan has no Raised, and must not lose the one of a session that ended in this process.
	if was := x.known[p.ID]; was != nil {
		p.Raised = cmp.Or(p.Raised, was.Raised)
	}
	put(x.known, p.ID, p)
}

// put adds to a map that holds at most maxKnown.
func put[K comparable, V any](m map[K]V, key K, value V) {
	if _, known := m[key]; !known && len(m) >= maxKnown {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = value
}

// By returns the latest session that a key finds, as its record is now, or nil. It is as strict as the
// strictest that the key finds.
func (x *Index) By(ctx context.Context, key Key) (latest *Session) {
	// A canceled call must not leave out a session whose mode is stricter.
	ctx = context.WithoutCancel(ctx)
	x.scan(ctx)
	var found []*Session
	x.mu.Lock()
	for _, p := range x.known {
		if p.Keys[key] {
			found = append(found, p)
		}
	}
	x.mu.Unlock()
	for _, known := range found {
		// Its record may have grown since the index was made.
		p := x.recall(ctx, known.ID)
		if p == nil || !p.Keys[key] {
			continue
		}
		if known.Raised != nil {
			p.Mode = p.Mode.Stricter(policy.Mode(known.Raised.Load()))
		}
		latest = latestOf(latest, p)
	}
	return latest
}

// scan adds the sessions to the index that were recorded since the last scan, or within Life.
func (x *Index) scan(ctx context.Context) {
	asked := x.now()
	x.scanning.Lock()
	defer x.scanning.Unlock()
	now := x.now()
	x.mu.Lock()
	last := x.scanned
	// A scan that began while this call waited has seen all that it may find.
	due := last.IsZero() || now.Sub(last) >= ScanEvery && last.Before(asked)
	if due {
		x.scanned = now
		maps.DeleteFunc(x.known, func(_ string, p *Session) bool { return !now.Before(p.Until) })
		maps.DeleteFunc(x.names, func(_ Key, n name) bool { return !now.Before(n.until) })
	}
	x.mu.Unlock()
	if !due {
		return
	}
	since := now.Add(-Life)
	if !last.IsZero() {
		// The times of files are less exact than clocks.
		since = last.Add(-ScanEvery)
	}
	each, looked, newer := map[string]int{}, map[string]int{}, map[Key]bool{}
	open := x.open()
	for found, err := range x.records.Sessions(ctx, since) {
		if open[found.ID] {
			continue
		}
		if err == nil {
			looked[found.Principal]++
			if looked[found.Principal] <= MaxEach {
				x.addName(ctx, found.ID, newer)
			}
			if found.Counts.Activations == 0 {
				continue
			}
		}
		each[found.Principal]++
		if each[found.Principal] > MaxEach {
			continue
		}
		if err != nil {
			// A session that a call is opening has no record yet.
			if !errors.Is(err, provenance.ErrNotFound) {
				x.logger.WarnContext(ctx, "earlier session cannot be read",
					slog.String("session", found.ID), tint.Err(err))
			}
			continue
		}
		if p := x.recall(ctx, found.ID); p != nil {
			p.Activations = nil
			x.Add(p)
		}
	}
}

// addName adds to the index what the client called a session, unless it is narrowed or a child, or a
// session that was written later has the name. newer has the names of the later sessions, and gets this one.
func (x *Index) addName(ctx context.Context, id string, newer map[Key]bool) {
	first := x.first(ctx, id)
	if first == nil {
		return
	}
	info, err := first.SessionInfo()
	if err != nil || info == nil || info.ClientSession == "" || info.Profile != "" || info.Child {
		return
	}
	key := ClientKey(first.Principal, "", "", info.ClientSession)
	if newer[key] {
		return
	}
	newer[key] = true
	x.AddName(key, id)
}

// AddName makes known that a client gave a session its name, by the [ClientKey] of that.
func (x *Index) AddName(key Key, id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.names, key, name{id, x.now().Add(Life)})
}

// first returns the first event of a recorded session, or nil.
func (x *Index) first(ctx context.Context, id string) *provenance.Event {
	if !provenance.ValidSessionID(id) {
		return nil
	}
	for e, err := range x.records.Events(ctx, provenance.Query{Session: id}) {
		if err == nil && e.Kind == provenance.KindSessionStarted && e.Session == id {
			return e
		}
		break
	}
	return nil
}

// IsOf reports whether a session of that id was recorded for a principal.
func (x *Index) IsOf(ctx context.Context, id, principal string) bool {
	first := x.first(ctx, id)
	return first != nil && first.Principal == principal
}

// Named returns the id of the session that a client of a principal named, or "". Of several, it returns the
// one that was written last, also without activations. Narrowed and child sessions are not found.
func (x *Index) Named(ctx context.Context, clientSession, principal string) string {
	// The scan is for other calls too, so it must not end with this one.
	ctx = context.WithoutCancel(ctx)
	x.scan(ctx)
	x.mu.Lock()
	id := x.names[ClientKey(principal, "", "", clientSession)].id
	x.mu.Unlock()
	// The session may have been collected since the scan.
	if !x.IsOf(ctx, id, principal) {
		return ""
	}
	return id
}

// recall reads from the record of a session what can be restored of it, or returns nil.
func (x *Index) recall(ctx context.Context, id string) *Session {
	found, err := cfharness.Recall(ctx, x.records, id)
	if err != nil {
		if !errors.Is(err, provenance.ErrNotFound) {
			x.logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", id),
				tint.Err(err))
		}
		return nil
	}
	p := &Session{ID: id, Profile: found.Profile, Mode: Strictest(found.Modes),
		Parent: found.Parent, Child: found.Child, ParentName: found.ParentSession, Keys: map[Key]bool{}}
	for _, row := range found.Activations {
		sum, ok := SumOf(row, x.now())
		if !ok {
			continue
		}
		p.Keys[HandleKey(found.Principal, sum)] = true
		p.Activations = append(p.Activations, row)
		p.at = later(p.at, row.ActivatedAt.Time)
		p.Until = later(p.Until, row.Skillsd.ExpiresAt.Time)
	}
	if found.ClientSession != "" {
		p.Keys[ClientKey(found.Principal, found.Profile, p.ParentName, found.ClientSession)] = true
	}
	return p
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// latestOf returns the later of two sessions, as strict as the stricter; before may be nil.
func latestOf(before, p *Session) *Session {
	if before == nil {
		return p
	}
	if before.at.After(p.at) {
		before, p = p, before
	}
	p.Mode = p.Mode.Stricter(before.Mode)
	return p
}
