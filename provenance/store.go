package provenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"
)

// Store records sessions and reads them back. It is safe for concurrent use.
type Store interface {
	Writer
	Reader
}

// Writer records sessions. It only appends; one session has one writer at a time.
type Writer interface {
	// Take begins this writer's turn at a session: it reads the record up to its end, and later appends
	// follow what was read. The turn ends with Release, Close, a session.ended, or once another writer takes
	// the session, if the store allows that while the turn lasts. Append and Put begin a turn themselves if
	// there has been none; after one that was lost, only Take begins another.
	//
	// Errors: ErrHeld if another writer has the session and the store does not let it be taken; as Append.
	Take(ctx context.Context, session string) error

	// Release ends this writer's turn, so that another writer can have the session. It does nothing if this
	// writer has no turn.
	Release(session string)

	// Append records e before it returns; for durable kinds (see Kind.Durable) it returns after the
	// record is on stable storage. The first event of a session creates it. Cancelling ctx has no
	// effect once the event is handed over. session.ended brings the views up to date.
	//
	// Errors: ErrUnavailable if it could not be recorded (a later Append may succeed; *FullError is one),
	// ErrInvalid for an event that cannot be one, ErrCorrupt if the session's record is broken, ErrNotFound
	// for a session.resumed of a session without events, such as one that was deleted, ErrLost if another
	// writer has taken the session, ErrClosed, or the error of ctx. After an error the event is not part of
	// the record, unless it is ErrUnavailable and the Store says otherwise.
	Append(ctx context.Context, e *Event) error

	// Put writes a file of the session (a snapshot or an output) and returns what to put in Event.Files of
	// the event that must follow it: the file is on stable storage no later than that event. ":" in name
	// becomes "_". A later Put of a name replaces the file; an output that an event already names cannot be
	// replaced.
	//
	// Errors: as Append.
	Put(ctx context.Context, session, name string, data []byte) (File, error)

	// PutShared is Put of a file that sessions have in common. What the sessions have is equal in all but the
	// time at which it was made, which may be earlier.
	//
	// Errors: as Append, and the errors of writing the content.
	PutShared(ctx context.Context, session, name string, s *Shared) (File, error)

	// Keep keeps bytes that the model is shown as the file [ShownName] of their digest, before the
	// event that names them. Equal bytes are kept once. A store can be configured to keep none, and
	// keeps no more of a session than its limit; neither is an error.
	//
	// Errors: as Append.
	Keep(ctx context.Context, session string, data []byte) (digest.Digest, error)

	// Claim reserves an id that no session has for this caller, before its first event.
	//
	// Errors: ErrTaken if a session has it or another process claimed it, ErrInvalid, ErrUnavailable.
	Claim(ctx context.Context, session string) error

	// Reserve keeps room for what a session is to record later, such as the outcome of a script that is
	// about to run, until release is called; calling it again does nothing.
	//
	// Errors: ErrUnavailable if there is no such room, *FullError.
	Reserve(ctx context.Context, session string, bytes int64) (release func(), err error)

	// Close brings the views of all open sessions up to date and releases them. It does not end
	// sessions.
	Close() error
}

// Shared is the content of a file that sessions have in common, such as the registry of a snapshot. A store
// keeps it once: in full it can be larger than all else in the sessions. It must not be copied.
type Shared struct {
	// Write writes the content to w, when a store does not have it. If the content says when it was made,
	// Write calls made there, once, instead of writing the time as [FormatTime] does.
	Write func(w io.Writer, made func(at time.Time) error) error

	sync.Mutex     // held while a store uses the rest
	Kept       any // what a store knows of the content that it has
}

// Reader reads recorded sessions, including those that another process is writing. No method but Collect
// changes a session. An iteration may be left early; an error it yields ends it unless its documentation
// says otherwise.
type Reader interface {
	// Sessions yields the sessions whose record was last written after since, the one written last
	// first; the zero time selects all. A session is as its events say, with StateCrashed if it did not
	// end and no process writes it. One whose record is missing, empty, broken or shorter than it was
	// is yielded with as much as can be found out about it, StateDamaged and an error of its own, and the
	// iteration continues. A session that another process has only begun is left out.
	//
	// Errors: the error of listing, with an empty Session, or the error of ctx.
	Sessions(ctx context.Context, since time.Time) iter.Seq2[Session, error]

	// Events yields the recorded events that q selects, in order, up to those acknowledged when the
	// iteration starts, and checks their chain. A torn last line ends it without an error.
	//
	// Errors: ErrNotFound for an unknown session, ErrCorrupt for the first event that does not fit.
	Events(ctx context.Context, q Query) iter.Seq2[*Event, error]

	// Follow yields what Events does, and further events as they are recorded, until the session ends, no
	// process writes it, or ctx ends, none of which is an error.
	//
	// Errors: as Events.
	Follow(ctx context.Context, q Query) iter.Seq2[*Event, error]

	// Artifact opens a file of the session. A view (skill-activations.json …) and session.json are as the
	// events recorded so far make them.
	//
	// Errors: ErrNotFound if there is no such file, or no content for it yet; ErrInvalid for an impossible
	// name.
	Artifact(ctx context.Context, session, name string) (io.ReadCloser, error)

	// Stored opens a file of the session as it was last written: a view may be older than the record, and
	// its bytes are not compared with it. It costs no more than reading the file.
	//
	// Errors: as Artifact.
	Stored(ctx context.Context, session, name string) (io.ReadCloser, error)

	// Files yields the names of the files of a session, except its record: views and snapshots first, then
	// outputs, then shown texts, each in the order of names. Stored opens them.
	//
	// Errors: ErrNotFound for an unknown session.
	Files(ctx context.Context, session string) iter.Seq2[string, error]

	// Verify recomputes the chain of a session from its bytes, every view from its events and the digest
	// of every file that an event names. With keys, one of them must have signed the last event. If the
	// record says that the texts shown to models are kept, they must be there.
	//
	// Errors: *VerifyError for the first difference, ErrNotFound for an unknown session, or the error of
	// reading.
	Verify(ctx context.Context, session string, keys ...note.Verifier) (*Report, error)

	// Register reads the register of sessions, which a writer with a key keeps. It has no lines if no
	// writer does. Verify compares a session with it.
	//
	// Errors: as ReadRegister.
	Register(ctx context.Context, keys ...note.Verifier) (*Register, error)

	// Missing returns the sessions that the register names, that were not deleted by Collect, and that are
	// not there.
	//
	// Errors: as Register.
	Missing(ctx context.Context, keys ...note.Verifier) (map[string]*Registered, error)

	// DropNamed removes from a set of sha256 digests those that appear anywhere in the record of a
	// session, so that no session names the ones that are left. Damaged and unfinished records are
	// searched as well.
	//
	// Errors: the error of reading a record, or of ctx. Some of the digests left may then be named.
	DropNamed(ctx context.Context, digests map[digest.Digest]bool) error

	// Collect deletes whole sessions, and texts that only they were shown. It never deletes a session that a
	// process writes and does not release. Parents and children do not depend on each other.
	//
	// Errors: the error of listing, or of ctx. The result has the errors of single sessions.
	Collect(ctx context.Context, opts CollectOptions) ([]Collected, error)

	// Close releases what the Reader holds.
	Close() error
}

// ListSessions returns the sessions of r, the newest first, damaged ones included.
//
// Errors: the error of listing, or of ctx.
func ListSessions(ctx context.Context, r Reader) ([]Session, error) {
	var list []Session
	for s, err := range r.Sessions(ctx, time.Time{}) {
		if err != nil && s.ID == "" {
			return nil, err
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Session) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt.Time), strings.Compare(b.ID, a.ID))
	})
	return list, nil
}

// Query selects events of one session.
type Query struct {
	Session string
	Kinds   []Kind // empty is all
	From    uint64 // first sequence number
}

// Matches reports whether q selects e; the session is not compared.
func (q Query) Matches(e *Event) bool {
	return e.Seq >= q.From && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind))
}

// CollectOptions say which sessions Collect deletes.
type CollectOptions struct {
	Before time.Time // only those last written before
	Keep   int       // but not this many of those whose clients called last
	// Total is how many bytes the sessions that are left may take together: more of those whose clients
	// called longest ago are deleted until they do, except for the last Keep. 0 is any number.
	Total  int64
	DryRun bool // delete nothing
	// Release, unless it is nil, is called for each session before it is deleted. It ends one that this
	// process has open, and reports whether the session may be deleted.
	Release func(ctx context.Context, session string) bool
	// Signer signs in the register of sessions that a session was deleted; nil is the one of the Writer.
	// Without one, a session that the register names is not deleted: ErrRegistered.
	Signer note.Signer
}

// Collected is a session that was deleted, or in a dry run would be.
type Collected struct {
	ID      string
	Written time.Time // when its record was last written
	Bytes   int64     // that deleting it frees
	Err     error     // why it was not deleted; ErrHeld for one that a process writes or does not release
}

// Report is what Verify found in a session whose record and files agree.
type Report struct {
	Session Session // as its events say
	Events  int
	Files   int // files checked, the record and session.json among them
	// Stale are the views that equal the views of an earlier point of the record, because they were not
	// written again before a crash, or not yet.
	Stale []string
	// Unrecorded are files that no event names, such as the file of a Put whose event was not written.
	Unrecorded []string
	// NotKept is how many texts that models were shown are not kept, of those that events name: the
	// session did not keep such, had no more space, or its record does not say.
	NotKept int
	// Removed is how many outputs were deleted to make space for later ones, as events say.
	Removed int
	// Unfinished are the output ids of scripts that were requested and have no outcome, because they
	// are running, or were running when the server was killed.
	Unfinished []string
	// SignedBy is the name of the key given that signed the last event; empty if none did.
	SignedBy string
	// Unregistered says that the session was signed before the register of sessions began, or that there is
	// none, so that it cannot be seen whether the session was longer.
	Unregistered bool
	// Torn is the length in bytes of a torn last line, which is not part of the record.
	Torn int64
}

// VerifyError is the first difference between the record of a session and its files.
type VerifyError struct {
	File string
	Line int // from 1; 1 also if the difference has no line
	What string
}

// Error returns "<file>:<line>: <what>".
func (e *VerifyError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// FullError means that the sessions of a principal take as much as they may. It is an ErrUnavailable.
type FullError struct {
	Principal string
	What      string // they take, such as "100 of 100 sessions"
}

// Error returns whose records are full, and of what.
func (e *FullError) Error() string {
	return fmt.Sprintf("the records of %s are full: %s", e.Principal, e.What)
}

// Unwrap returns ErrUnavailable.
func (e *FullError) Unwrap() error { return ErrUnavailable }

// Kinds of errors of a Store and of the parsers of this package.
var (
	// ErrUnavailable means that the record could not be written: a full or failing disk, or another
	// process that holds the session.
	ErrUnavailable = errors.New("provenance unavailable")
	// ErrSilent is the ErrUnavailable of a cluster that does not answer, which says nothing of its records.
	ErrSilent = fmt.Errorf("%w: the cluster does not answer", ErrUnavailable)
	// ErrInvalid means that an event, a line, a session id or a file name is not one.
	ErrInvalid = errors.New("invalid")
	// ErrCorrupt means that a recorded chain is broken.
	ErrCorrupt = errors.New("record is corrupt")
	// ErrNotFound means that there is no such session or file.
	ErrNotFound = errors.New("not found")
	// ErrTaken means that a session has the id.
	ErrTaken = errors.New("session id is taken")
	// ErrHeld means that a process has a session open.
	ErrHeld = errors.New("a process has the session open")
	// ErrLost means that the turn at a session is over, because another writer has taken the session.
	ErrLost = errors.New("another writer has taken the session")
	// ErrRegistered means that the register of sessions names a session, and that there is no key to sign in
	// it that the session was deleted.
	ErrRegistered = errors.New("the signed register of sessions names it, and no key was given to sign " +
		"there that " +
		"it is deleted")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store is closed")
)
