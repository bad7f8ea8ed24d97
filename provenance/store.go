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

// Store records sessions and reads them. It is safe for concurrent use.
type Store interface {
	Writer
	Reader
}

// Writer records sessions. It only appends; a session has one writer at a time.
type Writer interface {
	// Take begins this writer's turn at a session: it reads the record to its end, and later appends follow
	// it. The turn ends with Release, Close, a session.ended, or when another writer takes the session, if
	// the store allows that during a turn. Append and Put begin the first turn implicitly; after a lost turn,
	// only Take begins another.
	//
	// Errors: ErrHeld if another writer has the session and the store does not allow taking it; the errors of
	// Append.
	Take(ctx context.Context, session string) error

	// Release ends this writer's turn, so that another writer can have the session. Without a turn it does
	// nothing.
	Release(session string)

	// Append records e before it returns; for durable kinds (see [KindFacts]) the record is then on stable
	// storage. The first event of a session creates it. Canceling ctx has no effect once writing has started.
	// session.ended brings the views up to date.
	//
	// Errors: ErrUnavailable if it could not be recorded (a later Append may succeed; *FullError is a case of
	// it), ErrInvalid for an invalid event, ErrCorrupt if the record of the session is broken, ErrNotFound
	// for a session.resumed without earlier events, as after a deletion, ErrLost if another writer has taken
	// the session, ErrClosed, or the error of ctx. After an error the event is not part of the record,
	// except that a Store may document otherwise for ErrUnavailable.
	Append(ctx context.Context, e *Event) error

	// Put writes a file of the session (a snapshot or an output) and returns its entry for Event.Files of the
	// event that must follow: the file is on stable storage no later than that event. ":" in name becomes
	// "_". A later Put replaces the file, except for an output that an event already names.
	//
	// Errors: the errors of Append.
	Put(ctx context.Context, session, name string, data []byte) (File, error)

	// PutShared is Put for a file that sessions share. The sessions have equal content, except for its time,
	// which may be earlier than the session.
	//
	// Errors: the errors of Append, and of writing the content.
	PutShared(ctx context.Context, session, name string, s *Shared) (File, error)

	// Keep stores bytes that are shown to the model, as the file [ShownName] of their digest, before the
	// event that names them. Equal bytes are stored once. A store may be configured to store none, and stores
	// at most its limit per session; neither is an error.
	//
	// Errors: the errors of Append.
	Keep(ctx context.Context, session string, data []byte) (digest.Digest, error)

	// Claim reserves an unused session id for this caller, before the first event.
	//
	// Errors: ErrTaken if a session has the id or another process claimed it, ErrInvalid, ErrUnavailable.
	Claim(ctx context.Context, session string) error

	// Reserve reserves space for later records of a session, such as the outcome of a script that is about to
	// run, until release is called. Further calls of release do nothing.
	//
	// Errors: ErrUnavailable if there is not enough space, *FullError.
	Reserve(ctx context.Context, session string, bytes int64) (release func(), err error)

	// Close brings the views of all open sessions up to date and releases the sessions. It does not end them.
	Close() error
}

// Shared is the content of a file that sessions share, such as the registry of a snapshot. A store keeps it
// once, since it can be larger than everything else in the sessions. It must not be copied.
type Shared struct {
	// Write writes the content to w, if a store does not have it. If the content contains its creation time,
	// Write calls made once at that position instead of writing the time in the form of [FormatTime].
	Write func(w io.Writer, made func(at time.Time) error) error

	sync.Mutex     // held while a store uses Kept
	Kept       any // a store's reference to its copy
}

// Reader reads recorded sessions, including sessions that another process is writing. Only Collect changes
// sessions. Iterations may stop early; an error ends an iteration unless documented otherwise.
type Reader interface {
	// Sessions yields the sessions whose record was written after since, most recent first; the zero time
	// selects all. A session that did not end and is not being written has StateCrashed. A session whose
	// record is missing, empty, broken or shorter than before is yielded with the recoverable facts,
	// StateDamaged and its error, and the iteration continues. A session that another process is just
	// creating is skipped.
	//
	// Errors: the error of listing, with an empty Session, or the error of ctx.
	Sessions(ctx context.Context, since time.Time) iter.Seq2[Session, error]

	// Events yields the events that match q, in order, up to those acknowledged when the iteration starts,
	// and checks their chain. A torn last line ends it without an error.
	//
	// Errors: ErrNotFound for an unknown session, ErrCorrupt for the first event that breaks the chain.
	Events(ctx context.Context, q Query) iter.Seq2[*Event, error]

	// Follow yields the events of Events, and further events as they are recorded, until the session ends, no
	// process writes it, or ctx ends. None of these is an error.
	//
	// Errors: the errors of Events.
	Follow(ctx context.Context, q Query) iter.Seq2[*Event, error]

	// Artifact opens a file of the session. Views (skill-activations.json …) and session.json include all
	// events recorded so far.
	//
	// Errors: ErrNotFound if the file does not exist or has no content yet; ErrInvalid for an invalid name.
	Artifact(ctx context.Context, session, name string) (io.ReadCloser, error)

	// Stored opens a file of the session as last written: a view may lag behind the record, and is not
	// compared with it. It costs no more than reading the file.
	//
	// Errors: the errors of Artifact.
	Stored(ctx context.Context, session, name string) (io.ReadCloser, error)

	// Files yields the names of the files of a session, except its record: views and snapshots first, then
	// outputs, then shown texts, each sorted by name. Stored opens them.
	//
	// Errors: ErrNotFound for an unknown session.
	Files(ctx context.Context, session string) iter.Seq2[string, error]

	// Verify recomputes the chain of a session from its bytes, every view from its events, and the digest of
	// every file named by an event. If keys are given, one of them must have signed the last event. If the
	// record states that shown texts are stored, they must exist.
	//
	// Errors: *VerifyError for the first difference, ErrNotFound for an unknown session, or the error of
	// reading.
	Verify(ctx context.Context, session string, keys ...note.Verifier) (*Report, error)

	// Register reads the register of sessions, which writers with a key maintain. Without such a writer it is
	// empty. Verify compares a session with it.
	//
	// Errors: the errors of ReadRegister.
	Register(ctx context.Context, keys ...note.Verifier) (*Register, error)

	// Missing returns the sessions in the register that no longer exist and were not deleted by Collect.
	//
	// Errors: the errors of Register.
	Missing(ctx context.Context, keys ...note.Verifier) (map[string]*Registered, error)

	// DropNamed removes from a set of sha256 digests those that appear anywhere in the record of a session,
	// so that the remaining ones are unused. It also searches damaged and unfinished records.
	//
	// Errors: the error of reading a record, or of ctx. Remaining digests may then still be in use.
	DropNamed(ctx context.Context, digests map[digest.Digest]bool) error

	// Collect deletes whole sessions, and texts that were shown only in them. It never deletes a session that
	// a process is writing and does not release. Parents and children are independent.
	//
	// Errors: the error of listing, or of ctx. Errors of single sessions are in the result.
	Collect(ctx context.Context, opts CollectOptions) ([]Collected, error)

	// Close releases the resources of the Reader.
	Close() error
}

// Originals keeps what runs change or delete in a user's files, so that the user can return them. A Store
// need not implement it. The originals of a session are deleted with it. They are not artifacts: no method of
// Reader lists or opens them, and no copy of a session has them, but Verify compares each with its digest.
type Originals interface {
	OriginalsReader

	// RoomForOriginals makes room for the originals of one run, by deleting the oldest ones of the session if
	// necessary.
	//
	// Errors: the errors of Append; ErrUnavailable if there is no room.
	RoomForOriginals(ctx context.Context, session string, bytes int64) error

	// KeepOriginal stores the content of a file. It may not be on stable storage before KeepChanges returns.
	//
	// Errors: the errors of Append, and of reading.
	KeepOriginal(ctx context.Context, session string, content io.Reader) (digest.Digest, error)

	// KeepChanges stores the list of what a run changes, which names its originals by their digests. When it
	// returns, the list and these originals are on stable storage. If earlier is not empty, it is an earlier
	// list of the same run, which is deleted; a nil list only deletes that.
	//
	// Errors: the errors of Append.
	KeepChanges(
		ctx context.Context, session string, list []byte, earlier digest.Digest,
	) (digest.Digest, error)
}

// OriginalsReader reads what [Originals] keeps.
type OriginalsReader interface {
	// Original opens an original by its digest.
	//
	// Errors: ErrNotFound if it is not kept, or not kept any more.
	Original(ctx context.Context, session string, d digest.Digest) (io.ReadCloser, error)

	// Changes returns the kept lists of a session, by their digests.
	//
	// Errors: ErrNotFound for an unknown session; the error of reading.
	Changes(ctx context.Context, session string) (map[digest.Digest][]byte, error)
}

// ListSessions returns the sessions of r, newest first, including damaged ones.
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
	Kinds   []Kind // empty: all
	From    uint64 // first sequence number
}

// Matches reports whether q selects e. It does not compare the session.
func (q Query) Matches(e *Event) bool {
	return e.Seq >= q.From && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind))
}

// CollectOptions selects the sessions that Collect deletes.
type CollectOptions struct {
	Before time.Time // only sessions last written before this time
	Keep   int       // except this many whose clients called most recently
	// Total limits the total size of the remaining sessions, in bytes: more sessions are deleted, least
	// recently called first, except for the last Keep. 0: no limit.
	Total  int64
	DryRun bool // delete nothing
	// Release, if not nil, is called for each session before it is deleted. It ends the session if this
	// process has it open, and reports whether it may be deleted.
	Release func(ctx context.Context, session string) bool
	// Signer signs deletions in the register of sessions; nil: the signer of the Writer. Without a signer, a
	// session in the register is not deleted: ErrRegistered.
	Signer note.Signer
}

// Collected is a session that was deleted, or would be in a dry run.
type Collected struct {
	ID      string
	Written time.Time // when its record was last written
	Bytes   int64     // freed by the deletion
	Err     error     // why it was not deleted; ErrHeld if a process has it open
}

// Report is the result of Verify for a session whose record and files agree.
type Report struct {
	Session Session // as derived from its events
	Events  int
	Files   int // files checked, including the record and session.json
	// Stale are the views that match an earlier state of the record, because they were not written again yet,
	// or not before a crash.
	Stale []string
	// Unrecorded are files that no event names, such as the file of a Put whose event was not written.
	Unrecorded []string
	// NotKept is the number of texts shown to models that events name but the session does not store: because
	// it stores none, reached its limit, or does not record which.
	NotKept int
	// Removed is the number of outputs that were deleted to free space for later ones, as recorded.
	Removed int
	// Unfinished are the output ids of requested scripts without an outcome, because they are running, or
	// were running when the server was killed.
	Unfinished []string
	// SignedBy is the name of the key that signed the last event; empty if none of the given keys did.
	SignedBy string
	// Unregistered is set if the session was signed before the register began, or if there is no register,
	// so that a truncated session cannot be detected.
	Unregistered bool
	// Torn is the length in bytes of a torn last line, which is not part of the record.
	Torn int64
}

// VerifyError is the first difference between the record of a session and its files.
type VerifyError struct {
	File string
	Line int // from 1; 1 if the difference has no line
	What string
}

// Error returns "<file>:<line>: <what>".
func (e *VerifyError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// FullError reports that the sessions of a principal have reached a limit. It is an ErrUnavailable.
type FullError struct {
	Principal string
	What      string // the limit that was reached, such as "100 of 100 sessions"
}

// Error returns the principal and the limit.
func (e *FullError) Error() string {
	return fmt.Sprintf("the records of %s are full: %s", e.Principal, e.What)
}

// Unwrap returns ErrUnavailable.
func (e *FullError) Unwrap() error { return ErrUnavailable }

// Errors of a Store and of the parsers in this package.
var (
	// ErrUnavailable: the record could not be written, because of a full or failing disk, or because another
	// process has the session.
	ErrUnavailable = errors.New("provenance unavailable")
	// ErrSilent is an ErrUnavailable: the cluster does not answer, so the state of its records is unknown.
	ErrSilent = fmt.Errorf("%w: the cluster does not answer", ErrUnavailable)
	// ErrInvalid: an event, a line, a session id or a file name is invalid.
	ErrInvalid = errors.New("invalid")
	// ErrCorrupt: a recorded chain is broken.
	ErrCorrupt = errors.New("record is corrupt")
	// ErrNotFound: the session or file does not exist.
	ErrNotFound = errors.New("not found")
	// ErrTaken: another session has the id.
	ErrTaken = errors.New("session id is taken")
	// ErrHeld: a process has the session open.
	ErrHeld = errors.New("a process has the session open")
	// ErrLost: the turn at a session is over, because another writer has taken the session.
	ErrLost = errors.New("another writer has taken the session")
	// ErrRegistered: the session is in the register, and there is no key to sign its deletion.
	ErrRegistered = errors.New("the signed register of sessions names it, and no key was given to sign " +
		"there that it is deleted")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)
