package provenance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
)

// State is the state of a session.
type State string

// The states of a session. A store writes only open and ended. A reader reports crashed if the session did
// not end and no process writes it, damaged if its record cannot be read or is shorter than before, and
// missing if it is gone without having been deleted by Collect.
const (
	StateOpen    State = "open"
	StateEnded   State = "ended"
	StateCrashed State = "crashed"
	StateDamaged State = "damaged"
	StateMissing State = "missing"
)

// Session is the content of session.json, a function of the events up to Head.
type Session struct {
	ID        string     `json:"id"`
	CreatedAt Timestamp  `json:"createdAt"`
	EndedAt   *Timestamp `json:"endedAt,omitempty"`
	Principal string     `json:"principal"`
	Client    string     `json:"client,omitempty"`
	Server    Server     `json:"server"`
	Parent    string     `json:"parent,omitempty"`
	Head      Head       `json:"head"`
	Counts    Counts     `json:"counts"`
	State     State      `json:"state"`
}

// NoEvents returns the session.json of a session before its first event. A store writes it first, so that a
// crash during the first event can be distinguished from a removed session.json. A reader finds it only after
// such a crash, or in the first second of a session.
func NoEvents(id string) Session {
	return Session{ID: id, State: StateOpen}
}

// Server identifies the server that recorded a session.
type Server struct {
	Version  string `json:"version"`
	Protocol string `json:"protocol"` // negotiated revision of MCP
}

// Head identifies the last event of a chain.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// Counts are totals of a session. Reads and runs that failed with an error are excluded.
type Counts struct {
	Activations int `json:"activations"`
	Reads       int `json:"reads"`
	Runs        int `json:"runs"`
	Denials     int `json:"denials"`
}

// SessionInfo is the Row of session.started and session.resumed: facts that appear in session.json and
// policy-trace.json.
type SessionInfo struct {
	Server Server `json:"server"`
	Mode   string `json:"cfcEnforcementMode,omitempty"`
	// ClientSession is the client's own id for its session; it is not verified.
	ClientSession string `json:"clientSession,omitempty"`
	Profile       string `json:"profile,omitempty"` // profile that narrows the session
	// Child is set if the session belongs to its parent; otherwise it continues the parent. ParentSession is
	// the parent as named by the client.
	Child                bool          `json:"child,omitempty"`
	ParentSession        string        `json:"parentSession,omitempty"`
	PolicySnapshotPath   string        `json:"cfcPolicySnapshotPath,omitempty"`
	PolicySnapshotDigest digest.Digest `json:"cfcPolicySnapshotDigest,omitempty"`
	// Guessed is set if the calls of the session are connected only by their principal, who seemed to have a
	// single conversation.
	Guessed bool `json:"guessed,omitempty"`
	// RequestedRunID is the session id that the client requested, if the session has another.
	RequestedRunID string `json:"requestedRunId,omitempty"`
	// KeepsShown is the limit for stored texts that were shown, in bytes; 0 if none are stored, or if
	// unknown.
	KeepsShown int64 `json:"keepsShown,omitempty"`
}

// Tally folds events into a Session and checks their chain. Its size does not grow with the number of events.
// The zero Tally is ready to use; it is not safe for concurrent use.
type Tally struct {
	Session Session
}

// Add folds e, which must follow the last event added. After an error the Tally is unchanged.
//
// Errors: ErrCorrupt if e does not follow, ErrInvalid if its Row or Decision is not valid in a view.
func (t *Tally) Add(e *Event) error {
	if err := t.checkNext(e); err != nil {
		return err
	}
	s := t.Session
	if e.Seq == 1 {
		s = Session{ID: e.Session, CreatedAt: Stamp(e.Time), State: StateOpen,
			Principal: e.Principal, Client: e.Client, Parent: e.Parent}
	}
	if err := s.fold(e); err != nil {
		return err
	}
	// A decision that policy-trace.json cannot count must not get into the record.
	if _, err := e.Decided(); err != nil {
		return err
	}
	s.Head = Head{Seq: e.Seq, Hash: e.Hash}
	t.Session = s
	return nil
}

// checkNext returns an error unless e can follow the last event.
func (t *Tally) checkNext(e *Event) error {
	s := &t.Session
	seq, prev := t.Next()
	switch {
	case e.Seq != seq:
		return fmt.Errorf("%w: sequence number %d follows %d", ErrCorrupt, e.Seq, seq-1)
	case e.Prev != prev:
		return fmt.Errorf("%w: prev of event %d is not the hash before it", ErrCorrupt, e.Seq)
	case e.Seq == 1:
		return nil
	case e.Kind == KindSessionStarted:
		return fmt.Errorf("%w: event %d starts the session again", ErrCorrupt, e.Seq)
	case s.ID != e.Session, s.Principal != e.Principal:
		return fmt.Errorf("%w: event %d is of session %q of %q", ErrCorrupt, e.Seq, e.Session, e.Principal)
	}
	return nil
}

// fold updates the state and the counts of the session by an event.
//
// Errors: ErrInvalid for a Row that is not valid; the session may then be changed.
func (s *Session) fold(e *Event) error {
	switch e.Kind {
	case KindSessionStarted, KindSessionResumed:
		s.EndedAt, s.State = nil, StateOpen
		info, err := e.SessionInfo()
		if err != nil {
			return err
		}
		if info != nil {
			s.Server = info.Server
		}
	case KindSessionEnded:
		ended := Stamp(e.Time)
		s.EndedAt, s.State = &ended, StateEnded
	case KindSkillActivated:
		if e.ErrorCode() == "" {
			s.Counts.Activations++
		}
	case KindPolicyDenied:
		s.Counts.Denials++
	case KindResourceRead, KindScriptExecuted:
		status, err := e.status()
		if err != nil {
			return fmt.Errorf("%w: row of %s: %v", ErrInvalid, e.Kind, err)
		}
		switch {
		case status == "error":
		case e.Kind == KindResourceRead:
			s.Counts.Reads++
		default:
			s.Counts.Runs++
		}
	}
	return nil
}

// status returns the status in the row of a read or a run.
func (e *Event) status() (string, error) {
	var found [1][]byte
	if MembersOf(e.Row, []string{"status"}, found[:]) {
		if status, ok := PlainText(found[0]); ok || found[0] == nil {
			return status, nil
		}
	}
	var row struct {
		Status string `json:"status"`
	}
	if len(e.Row) == 0 {
		return "", nil
	}
	return row.Status, json.Unmarshal(e.Row, &row)
}

// Extend sets the position of e after the last event, and its time to now if zero. It adds e and returns its
// line. After an error the Tally is unchanged, and e has no position.
//
// Errors: the errors of Add and EncodeLine; ErrNotFound for a session.resumed without earlier events: the
// record was deleted, and a new one would lack the first part of the session.
func (t *Tally) Extend(e *Event, now func() time.Time) (line []byte, err error) {
	if e.Time.IsZero() {
		e.Time = now()
	}
	// A reader decodes milliseconds, and e must equal the event that it decodes.
	e.Time = Stamp(e.Time).Time
	e.Seq, e.Prev = t.Next()
	line, err = EncodeLine(e)
	switch {
	case err != nil:
	case e.Seq == 1 && e.Kind == KindSessionResumed:
		err = fmt.Errorf("session %s: %w", e.Session, ErrNotFound)
	default:
		err = t.Add(e)
	}
	if err != nil {
		e.Unplace()
		return nil, err
	}
	return line, nil
}

// Unplace clears the fields that a store sets.
func (e *Event) Unplace() { e.Seq, e.Prev, e.Hash, e.Turn = 0, "", "", "" }

// Next returns the seq and prev of the next event.
func (t *Tally) Next() (seq uint64, prev string) {
	if t.Session.Head.Seq == 0 {
		return 1, FirstPrev
	}
	return t.Session.Head.Seq + 1, t.Session.Head.Hash
}

// SessionInfo returns the row of an event that starts or resumes a session, or nil for other events and for
// events without a row.
//
// Errors: ErrInvalid.
func (e *Event) SessionInfo() (*SessionInfo, error) {
	if e.Kind != KindSessionStarted && e.Kind != KindSessionResumed || len(e.Row) == 0 {
		return nil, nil
	}
	var info SessionInfo
	if err := json.Unmarshal(e.Row, &info); err != nil {
		return nil, fmt.Errorf("%w: row of %s: %v", ErrInvalid, e.Kind, err)
	}
	return &info, nil
}

// The outcomes of a decision.
const (
	DecisionAllowed = "allowed"
	DecisionWarned  = "warned"
	DecisionDenied  = "denied"
)

// Decided is the part of a decision that folds of events need.
type Decided struct {
	Outcome string `json:"decision"` // one of the Decision constants
	Mode    string `json:"cfcEnforcementMode"`
}

// Decided returns the outcome and mode in the Decision of an event, or the zero value if it has none.
//
// Errors: ErrInvalid.
func (e *Event) Decided() (d Decided, err error) {
	if len(e.Decision) == 0 {
		return d, nil
	}
	var found [2][]byte
	sure := MembersOf(e.Decision, []string{"decision", "cfcEnforcementMode"}, found[:])
	for i, field := range []*string{&d.Outcome, &d.Mode} {
		var text bool
		*field, text = PlainText(found[i])
		sure = sure && (text || found[i] == nil)
	}
	if !sure {
		d = Decided{}
		if err := json.Unmarshal(e.Decision, &d); err != nil {
			return d, fmt.Errorf("%w: decision: %v", ErrInvalid, err)
		}
	}
	switch d.Outcome {
	case DecisionAllowed, DecisionWarned, DecisionDenied:
		return d, nil
	}
	return d, fmt.Errorf("%w: decision %.20q", ErrInvalid, d.Outcome)
}

// TypeOutputsRemoved is the type of an OutputsRemoved.
const TypeOutputsRemoved = "skillsd.outputs-removed"

// OutputsRemoved is the row of an outputs.removed event: stored streams, oldest first, that were deleted to
// free space for later ones. They are then no longer part of the session.
type OutputsRemoved struct {
	Type  string     `json:"type"`
	Files List[File] `json:"files"`
}

// Removed returns the files that an outputs.removed event deletes, or nil for other kinds.
//
// Errors: ErrInvalid if the row is malformed, or names a file that is not an output.
func (e *Event) Removed() ([]File, error) {
	if e.Kind != KindOutputsRemoved {
		return nil, nil
	}
	var row OutputsRemoved
	if err := json.Unmarshal(e.Row, &row); err != nil {
		return nil, fmt.Errorf("%w: row of %s: %v", ErrInvalid, e.Kind, err)
	}
	for _, f := range row.Files {
		if CheckFileName(f.Name) != nil || !strings.HasPrefix(f.Name, OutputsDir+"/") {
			return nil, fmt.Errorf("%w: %s names %.60q", ErrInvalid, e.Kind, f.Name)
		}
	}
	return row.Files, nil
}

// Names of the files of a session in resources and events.
const (
	EventsFile           = "events.jsonl"
	SessionFile          = "session.json"
	LockFile             = "lock"
	RegistryFile         = "skill-registry.json"
	ActivationsFile      = "skill-activations.json"
	ResourceReadsFile    = "skill-resource-reads.json"
	ScriptExecutionsFile = "skill-script-executions.json"
	PolicyTraceFile      = "policy-trace.json"
	PolicySnapshotFile   = "policy-snapshot.json"
	CapabilitiesFile     = "capabilities.json"
	RunManifestFile      = "run-manifest.json"
	HeadNoteFile         = "head.note"
	OutputsDir           = "outputs"
	ShownDir             = "shown"
	OriginalsDir         = "originals"
)

const (
	maxSessionID = 128
	maxFileName  = 240
	nameBytes    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// NewSessionID returns "ses_" and a version 7 UUID, so that ids sort by creation time.
//
// Errors: the error of the system's random source.
func NewSessionID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make session id: %w", err)
	}
	return "ses_" + id.String(), nil
}

// ValidSessionID reports whether id can name a session and its directory: [A-Za-z0-9._-]+, not "."
// or "..", at most 128 bytes.
func ValidSessionID(id string) bool {
	return id != "" && len(id) <= maxSessionID && id != "." && id != ".." && strings.Trim(id, nameBytes) == ""
}

// OutputName returns the file name of a stored stream ("stdout" or "stderr") of an output id.
func OutputName(outputID, stream string) string {
	return CleanFileName(OutputsDir + "/" + outputID + "." + stream)
}

// ShownName returns the file name for bytes that were shown to the model.
func ShownName(d digest.Digest) string {
	return ShownDir + "/" + d.Encoded()
}

// IsShown reports whether name has the form of [ShownName].
func IsShown(name string) bool {
	hex, ok := strings.CutPrefix(name, ShownDir+"/")
	return ok && digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

// CleanFileName returns name with ":" replaced by "_".
func CleanFileName(name string) string {
	return strings.ReplaceAll(name, ":", "_")
}

// CheckFileName returns an error unless Put can write a file with this name: NAME or outputs/NAME, where NAME
// consists of [A-Za-z0-9._-], does not start with a dot, has at most 240 bytes and is not reserved for the
// store.
//
// Errors: ErrInvalid.
func CheckFileName(name string) error {
	base, output := strings.CutPrefix(name, OutputsDir+"/")
	switch {
	case base == "" || len(base) > maxFileName || base[0] == '.' || strings.Trim(base, nameBytes) != "":
		return fmt.Errorf("%w: file name %.60q", ErrInvalid, name)
	case output:
		return nil
	case IsView(name), name == EventsFile, name == SessionFile, name == LockFile, name == HeadNoteFile,
		name == OutputsDir, name == ShownDir, name == OriginalsDir:
		return fmt.Errorf("%w: file name %q is the store's own", ErrInvalid, name)
	}
	return nil
}

// CheckArtifactName returns an error unless a session can have a file with this name, apart from its lock.
//
// Errors: ErrInvalid.
func CheckArtifactName(name string) error {
	switch name {
	case SessionFile, EventsFile, HeadNoteFile:
		return nil
	}
	if IsView(name) || IsShown(name) {
		return nil
	}
	return CheckFileName(name)
}

// ViewNames returns the names of the views of a session, without session.json.
func ViewNames() []string {
	return []string{ActivationsFile, ResourceReadsFile, ScriptExecutionsFile, PolicyTraceFile}
}

// IsView reports whether name is one of [ViewNames].
func IsView(name string) bool {
	return slices.Contains(ViewNames(), name)
}
