// Package provenance records, per session, what was shown to a model, which scripts ran and what was refused.
//
// A session is an append-only sequence of events. Each event is one line of JSON whose hash covers the line
// and the hash of the previous event, so recomputing the chain detects a changed, removed or reordered event.
// The JSON artifacts of a session (skill-activations.json, policy-trace.json …) are views: pure functions of
// the events, which a verifier recomputes byte for byte.
//
// The chain shows that a record was changed, not by whom: an attacker who can rewrite the whole record can
// write a consistent one. A signature of the head of the chain by an external key closes that gap. This
// package redacts nothing: callers must not put file contents, outputs or secrets into an event.
//
// A [Writer] records sessions and a [Reader] reads them; other packages need not know where a [Store] keeps
// them. Package cfharness defines the rows and views.
//
//	err := store.Append(ctx, &provenance.Event{
//		Session: id, Kind: provenance.KindScriptRequested, Principal: "local",
//		Skill: "pdf", Path: "scripts/extract.py", Detail: "requested",
//	})
//	if err != nil {
//		return err // the script must not start
//	}
package provenance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
)

// An Event is one line in the record of a session. The store sets Seq, Time (if zero), Prev and Hash. An
// event never contains file contents, outputs or secrets. It must not be changed while it is being appended.
type Event struct {
	Seq       uint64    `json:"seq"`  // from 1, without gaps
	Time      time.Time `json:"time"` // UTC, milliseconds
	Kind      Kind      `json:"kind"`
	Session   string    `json:"session"`
	Parent    string    `json:"parent,omitempty"` // the session that this one continues or belongs to
	Principal string    `json:"principal"`
	Client    string    `json:"client,omitempty"` // name and version, as given by the client
	// Turn identifies the writer's turn, in a store with several writing processes (see Writer.Take).
	Turn string `json:"turn,omitempty"`
	// Call is equal in all events of one call, including the events of a question to the user that it led to,
	// of the answer, and of the call that came with the answer. It is unique within the session.
	Call string `json:"call,omitempty"`

	Skill    string          `json:"skill,omitempty"` // skill path
	Path     string          `json:"path,omitempty"`  // file of the skill
	Want     string          `json:"want,omitempty"`  // digest expected, on drift
	Got      string          `json:"got,omitempty"`   // digest found, on drift
	Detail   string          `json:"detail"`
	Row      json.RawMessage `json:"row,omitempty"`      // row in the view of this kind
	Decision json.RawMessage `json:"decision,omitempty"` // row in decisions of policy-trace.json
	// Invocation is a row in cfcInvocationContexts of policy-trace.json.
	Invocation json.RawMessage `json:"invocation,omitempty"`
	Files      []File          `json:"files,omitempty"` // files of the session that belong to the event
	Prev       string          `json:"prev"`            // hash of the previous event; 64 zeros for the first
	Hash       string          `json:"hash"`            // lower-case hex sha256 of the line up to ,"hash"
}

// ID returns "<session>:<seq>", the id of the event in denials.
func (e *Event) ID() string {
	return e.Session + ":" + strconv.FormatUint(e.Seq, 10)
}

// loadError is the prefix of the Detail of a skill.activated event whose skill was not loaded.
const loadError = "error "

// LoadError returns the Detail of a skill.activated event for a skill that was not loaded.
func LoadError(code string) string { return loadError + code }

// ErrorCode returns the error code of an attempt to load, read or run that failed, or "" for all other
// events.
func (e *Event) ErrorCode() string {
	switch e.Kind {
	case KindSkillActivated:
		code, _ := strings.CutPrefix(e.Detail, loadError)
		if code == e.Detail {
			return ""
		}
		return code
	case KindResourceRead, KindScriptExecuted:
		var row struct {
			Error struct {
				Code string `json:"code"`
			} `json:"error"`
		}
		if len(e.Row) > 0 && json.Unmarshal(e.Row, &row) == nil {
			return row.Error.Code
		}
	}
	return ""
}

// File identifies a file of a session by its content.
type File struct {
	Name   string        `json:"name"` // e.g. "skill-registry.json", "outputs/…"
	Size   int64         `json:"size"` // bytes
	Digest digest.Digest `json:"digest"`
}

// Kind is the kind of an event. Besides the constants, install.<word> is valid.
type Kind string

// The kinds of events of a session. This server writes no skill.discovered, since skill-registry.json lists
// the skills of a scan, but readers accept it.
const (
	KindSessionStarted   Kind = "session.started"
	KindSessionResumed   Kind = "session.resumed"
	KindSessionEnded     Kind = "session.ended"
	KindRegistrySnapshot Kind = "registry.snapshot"
	KindSkillDiscovered  Kind = "skill.discovered"
	KindSkillActivated   Kind = "skill.activated"
	KindResourceRead     Kind = "skill.resource_read"
	KindScriptRequested  Kind = "skill.script_requested"
	KindScriptExecuted   Kind = "skill.script_executed"
	KindPolicyWarned     Kind = "policy.warned"
	KindPolicyDenied     Kind = "policy.denied"
	KindApprovalAsked    Kind = "approval.requested"
	KindApprovalAnswered Kind = "approval.answered"
	KindDriftDetected    Kind = "drift.detected"
	KindOutputsRemoved   Kind = "outputs.removed"
	KindWorkspaceUndone  Kind = "workspace.undone"
)

// Form is the form of the rows of a kind. Package cfharness has the type of each form; package story reads
// the events of one form in one way.
type Form string

// The forms of rows.
const (
	FormAny        Form = "" // no row, or any object
	FormSession    Form = "session"
	FormActivation Form = "activation"
	FormRead       Form = "read"
	FormRequest    Form = "request"
	FormQuestion   Form = "question" // a request, with what the user is asked about
	FormRun        Form = "run"
	FormPolicy     Form = "policy"
	FormRemoval    Form = "removal"
	FormUndo       Form = "undo"
)

// KindFacts are the properties of all events of a kind.
type KindFacts struct {
	Kind Kind
	// Word names the event in a timeline. In the table it is empty for the kind itself.
	Word string
	// Form is the form of the Row. Every event of the kind has a Row if NeedsRow is set.
	Form     Form
	NeedsRow bool
	// View is the name of the view with the Row as one of its rows, or empty. Decision and Invocation are in
	// policy-trace.json for every kind.
	View string
	// Durable events are on stable storage before Append returns: events before and after a side effect or a
	// refusal, and the end of a session. Other events are synced within 100 ms.
	Durable bool
	// Apart events are not caused by a call of the client, so they do not show that a session is in use.
	Apart bool
	// Alerts events are marked in a timeline, because a user may want to act on them.
	Alerts bool
}

// kinds is the table of kinds.
var kinds = [...]KindFacts{
	{Kind: KindSessionStarted, Word: "started", Form: FormSession, NeedsRow: true},
	{Kind: KindSessionResumed, Word: "resumed", Form: FormSession, Apart: true},
	{Kind: KindSessionEnded, Word: "ended", Durable: true, Apart: true},
	{Kind: KindRegistrySnapshot, Apart: true},
	{Kind: KindSkillDiscovered},
	{Kind: KindSkillActivated, Word: "loaded", Form: FormActivation, View: ActivationsFile},
	{Kind: KindResourceRead, Word: "read", Form: FormRead, NeedsRow: true, View: ResourceReadsFile},
	{Kind: KindScriptRequested, Word: "requested", Form: FormRequest, Durable: true},
	{Kind: KindScriptExecuted, Word: "finished", Form: FormRun, NeedsRow: true, View: ScriptExecutionsFile,
		Durable: true},
	{Kind: KindPolicyDenied, Word: "refused", Form: FormPolicy, NeedsRow: true, Durable: true},
	{Kind: KindPolicyWarned, Word: "warned", Form: FormPolicy, NeedsRow: true, Alerts: true},
	{Kind: KindApprovalAsked, Word: "user asked", Form: FormQuestion, Durable: true},
	{Kind: KindApprovalAnswered, Word: "user answered", Form: FormQuestion, Durable: true},
	{Kind: KindDriftDetected, Word: "file changed", Alerts: true},
	{Kind: KindOutputsRemoved, Word: "outputs removed", Form: FormRemoval, Durable: true, Apart: true},
	{Kind: KindWorkspaceUndone, Word: "undone", Form: FormUndo, NeedsRow: true, Durable: true},
}

// Kinds returns the constants.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, row := range kinds {
		all[i] = row.Kind
	}
	return all
}

// Facts returns the properties of the events of kind k.
func (k Kind) Facts() KindFacts {
	for i := range kinds {
		if kinds[i].Kind == k {
			facts := kinds[i]
			facts.Word = cmp.Or(facts.Word, string(k))
			return facts
		}
	}
	return KindFacts{Kind: k, Word: string(k), Apart: true}
}

// Valid reports whether k is one of the constants or install.<word>, where the word consists of lower-case
// letters and underscores.
func (k Kind) Valid() bool {
	if slices.ContainsFunc(kinds[:], func(row KindFacts) bool { return row.Kind == k }) {
		return true
	}
	word, ok := strings.CutPrefix(string(k), "install.")
	return ok && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// MaxLine is the maximum length of a line in a record, in bytes, including the newline.
const MaxLine = 4 << 20

// FirstPrev is the prev of the first event in a session.
const FirstPrev = "0000000000000000000000000000000000000000000000000000000000000000"

// timeFormat is the layout of all times in records: UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z"

const (
	hashKey = `,"hash"`
	tailLen = len(hashKey) + len(`:""}`) + sha256.Size*2
)

// lineForm is the JSON form of an Event. Its time replaces the time of the Event, and its seq comes first.
type lineForm struct {
	Seq  uint64 `json:"seq"`
	Time string `json:"time"`
	*Event
}

// EncodeLine returns the line of e, including the newline, and sets e.Hash. Seq, Time, Prev and the other
// fields must be set. Invalid UTF-8 in text fields becomes U+FFFD, also in e, so that e equals the event that
// a reader decodes.
//
// Errors: ErrInvalid.
func EncodeLine(e *Event) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if e.Seq == 0 || !isHash(e.Prev) {
		return nil, fmt.Errorf("event of kind %q: %w: seq or prev", e.Kind, ErrInvalid)
	}
	for _, field := range []*string{&e.Parent, &e.Principal, &e.Client, &e.Turn, &e.Call, &e.Skill, &e.Path,
		&e.Want, &e.Got, &e.Detail} {
		*field = strings.ToValidUTF8(*field, "\uFFFD")
	}
	unhashed := *e
	unhashed.Hash = FirstPrev // placeholder for the hash
	line, err := Encode(lineForm{e.Seq, FormatTime(e.Time), &unhashed})
	if err != nil {
		return nil, fmt.Errorf("event of kind %q: %w: %v", e.Kind, ErrInvalid, err)
	}
	line = line[:len(line)-tailLen]
	sum := sha256.Sum256(line)
	hash := hex.EncodeToString(sum[:])
	line = append(line, hashKey+`:"`+hash+"\"}\n"...)
	if len(line) > MaxLine {
		return nil, fmt.Errorf("event of kind %q: %w: line of %d bytes, limit %d", e.Kind, ErrInvalid,
			len(line), MaxLine)
	}
	e.Hash = hash
	return line, nil
}

// Validate returns an error if e cannot be recorded. It does not check Seq, Prev and Hash, which the store
// sets.
//
// Errors: ErrInvalid.
func (e *Event) Validate() error {
	fault := ""
	switch {
	case !e.Kind.Valid():
		fault = "unknown kind"
	case !ValidSessionID(e.Session):
		fault = "session id"
	// timeFormat has four digits for the year.
	case e.Time.Year() < 1 || e.Time.Year() > 9999:
		fault = fmt.Sprintf("year %d", e.Time.Year())
	}
	for _, part := range [...]struct {
		key string
		raw []byte
	}{{"row", e.Row}, {"decision", e.Decision}, {"invocation", e.Invocation}} {
		// The first byte is enough here: encoding the event checks the rest.
		object := bytes.HasPrefix(bytes.TrimLeft(part.raw, " \t\r\n"), []byte("{"))
		if len(part.raw) > 0 && !(object && utf8.Valid(part.raw)) {
			fault = part.key + ": not a JSON object in UTF-8"
		}
	}
	// The names become paths in the directory of the session.
	for _, f := range e.Files {
		if f.Size < 0 || f.Digest.Validate() != nil || f.Digest.Algorithm() != digest.SHA256 {
			fault = fmt.Sprintf("size or digest of file %q", f.Name)
		}
		if CheckFileName(f.Name) != nil {
			fault = fmt.Sprintf("file name %.60q", f.Name)
		}
	}
	if fault != "" {
		return fmt.Errorf("event of kind %.40q: %w: %s", e.Kind, ErrInvalid, fault)
	}
	return nil
}

// DecodeLine parses a line without its newline and verifies its hash. It rejects every line that [EncodeLine]
// would not have written; it does not check the position of the event in its chain. The event aliases the
// line, which must not be changed later.
//
// Errors: ErrInvalid.
func DecodeLine(line []byte) (*Event, error) {
	if len(line) <= tailLen || len(line) >= MaxLine {
		return nil, fmt.Errorf("%w: line of %d bytes", ErrInvalid, len(line))
	}
	body, tail := line[:len(line)-tailLen], line[len(line)-tailLen:]
	sum := sha256.Sum256(body)
	if want := hashKey + `:"` + hex.EncodeToString(sum[:]) + `"}`; string(tail) != want {
		return nil, fmt.Errorf("%w: hash does not match the line", ErrInvalid)
	}
	if e := readLine(line); e != nil {
		return e, nil
	}
	return decode(line)
}

// readLine returns the event of a line with a verified hash, or nil if the line may not be in the written
// form; then [decode] must decide. It is ten times faster than decode.
func readLine(line []byte) *Event {
	e := &Event{}
	seq, r := readSeq(line)
	at, err := ParseTime(r.text(`,"time":`, true))
	r.wrong = r.wrong || err != nil
	e.Seq, e.Time = seq, at
	e.Kind = Kind(r.text(`,"kind":`, true))
	e.Session = r.text(`,"session":`, true)
	e.Parent = r.text(`,"parent":`, false)
	e.Principal = r.text(`,"principal":`, true)
	e.Client = r.text(`,"client":`, false)
	e.Turn, e.Call = r.text(`,"turn":`, false), r.text(`,"call":`, false)
	e.Skill, e.Path = r.text(`,"skill":`, false), r.text(`,"path":`, false)
	e.Want, e.Got = r.text(`,"want":`, false), r.text(`,"got":`, false)
	e.Detail = r.text(`,"detail":`, true)
	e.Row, e.Decision = r.value(`,"row":`), r.value(`,"decision":`)
	e.Invocation = r.value(`,"invocation":`)
	// Few events have files, so encoding/json is fast enough for them.
	if files := r.value(`,"files":`); files != nil {
		err := json.Unmarshal(files, &e.Files)
		again, failed := Encode(e.Files)
		r.wrong = r.wrong || err != nil || failed != nil || len(e.Files) == 0 || !bytes.Equal(again, files)
	}
	e.Prev, e.Hash = r.text(`,"prev":`, true), r.text(`,"hash":`, true)
	if r.wrong || string(r.rest) != "}" || !isHash(e.Prev) || !utf8.Valid(line) || e.Validate() != nil {
		return nil
	}
	return e
}

// lineReader splits a line into its fields.
type lineReader struct {
	rest  []byte
	wrong bool // the line may not have the written form
}

// readSeq returns the number at the start of a line, and a reader of the fields after it.
func readSeq(line []byte) (seq uint64, r lineReader) {
	const key = `{"seq":`
	n := bytes.IndexByte(line, ',')
	if n <= len(key) || string(line[:len(key)]) != key || line[len(key)] == '0' {
		return 0, lineReader{wrong: true}
	}
	seq, err := strconv.ParseUint(string(line[len(key):n]), 10, 64)
	return seq, lineReader{rest: line[n:], wrong: err != nil}
}

// value returns the JSON after a key, or nil if another key comes next.
func (r *lineReader) value(key string) []byte {
	if r.wrong || len(r.rest) < len(key) || string(r.rest[:len(key)]) != key {
		return nil
	}
	after := r.rest[len(key):]
	n := jsonValue(after)
	r.rest, r.wrong = after[n:], n == 0
	return after[:n:n]
}

// text returns the string after a key. An optional one must not be empty.
func (r *lineReader) text(key string, needed bool) string {
	if r.wrong || len(r.rest) <= len(key) || string(r.rest[:len(key)]) != key {
		r.wrong = r.wrong || needed
		return ""
	}
	after := r.rest[len(key):]
	if after[0] != '"' {
		r.wrong = true
		return ""
	}
	for i, c := range after[1:] {
		if c == '"' {
			text := string(after[1 : i+1])
			r.rest, r.wrong = after[i+2:], text == "" && !needed
			return text
		}
		if c < ' ' || c > '~' || c == '\\' {
			break
		}
	}
	// A string can be encoded in several ways; only the one that Encode writes is valid.
	n := jsonValue(after)
	var text string
	err := json.Unmarshal(after[:n], &text)
	again, failed := Encode(text)
	r.rest, r.wrong = after[n:], err != nil || failed != nil || !bytes.Equal(again, after[:n])
	return text
}

// decode parses a line with a verified hash, by encoding/json.
func decode(line []byte) (*Event, error) {
	e := &Event{}
	w := lineForm{Event: e}
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	var err error
	e.Time, err = ParseTime(w.Time)
	if err != nil {
		return nil, err
	}
	e.Seq = w.Seq
	// Each event has only one valid line, so that nothing can hide in white space, key order or unknown keys.
	again, err := EncodeLine(e)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again[:len(again)-1], line) {
		return nil, fmt.Errorf("%w: line is not in the written form", ErrInvalid)
	}
	return e, nil
}

// isHash reports whether s has the form of the hash of a line.
func isHash(s string) bool {
	return len(s) == sha256.Size*2 && strings.Trim(s, "0123456789abcdef") == ""
}

// FormatTime returns t in UTC, truncated to milliseconds.
func FormatTime(t time.Time) string {
	return t.UTC().Format(timeFormat)
}

// ParseTime parses the output of [FormatTime] and nothing else. Errors: ErrInvalid.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(timeFormat, s)
	// time.Parse also accepts a comma in place of the point.
	if err != nil || FormatTime(t) != s {
		return time.Time{}, fmt.Errorf("%w: time %.40q", ErrInvalid, s)
	}
	return t, nil
}

// Timestamp is a time that is encoded in UTC with milliseconds.
type Timestamp struct{ time.Time }

// Stamp returns t as a Timestamp, truncated to milliseconds.
func Stamp(t time.Time) Timestamp {
	return Timestamp{t.UTC().Truncate(time.Millisecond)}
}

// MarshalJSON implements json.Marshaler.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return []byte(`"` + FormatTime(t.Time) + `"`), nil
}

// UnmarshalJSON accepts any RFC 3339 time.
func (t *Timestamp) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &t.Time); err != nil {
		return err
	}
	*t = Stamp(t.Time)
	return nil
}

// ErrTorn reports a last line without its newline: the writing process was killed before it finished the
// line, so it had not acknowledged the event.
var ErrTorn = errors.New("last line is torn")

// Scanner reads the events of one session from its record. It verifies every line and its position in the
// chain. It is not safe for concurrent use.
type Scanner struct {
	// Tally is the fold of all events read.
	Tally Tally
	// Offset is the total length of the lines read, in bytes.
	Offset int64
	// Line is the number of the line of the last call of Next, from 1.
	Line int
	// Torn is the length of a torn last line, in bytes.
	Torn int64

	r *bufio.Reader
}

// NewScanner returns a Scanner that reads r. The caller must not read from r afterwards.
func NewScanner(r io.Reader) *Scanner {
	return &Scanner{r: bufio.NewReaderSize(r, 64<<10)}
}

// Next returns the next event.
//
// Errors: io.EOF at the end, ErrTorn at a torn last line, ErrCorrupt for a line that does not follow the
// previous one, or the error of the reader. An error is final.
func (s *Scanner) Next() (*Event, error) {
	s.Line++
	line, err := s.readLine()
	if err != nil {
		return nil, err
	}
	e, err := DecodeLine(line[:len(line)-1])
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	if err := s.Tally.Add(e); err != nil {
		if errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	s.Offset += int64(len(line))
	return e, nil
}

// readLine reads a line, including its newline. A line that is too long is not kept in memory. If the file
// ends in it, it is torn, because after a crash a file may be longer than the bytes written to it.
func (s *Scanner) readLine() (line []byte, err error) {
	for length := 0; ; {
		part, err := s.r.ReadSlice('\n')
		length += len(part)
		if len(line) <= MaxLine {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && length > MaxLine:
			s.Torn = int64(length)
			return nil, ErrTorn
		case err == io.EOF && length > 0:
			// The last byte is not a newline. If only that byte is wrong, it was changed, since a torn line
			// lacks its end.
			if _, err := DecodeLine(line[:len(line)-1]); err == nil {
				return nil, fmt.Errorf("%w: line does not end in a newline", ErrCorrupt)
			}
			s.Torn = int64(len(line))
			return nil, ErrTorn
		case err != nil:
			return nil, err
		case length > MaxLine:
			return nil, fmt.Errorf("%w: line over %d bytes", ErrCorrupt, MaxLine)
		default:
			return line, nil
		}
	}
}

// All yields the events up to the end or to a torn last line. An error, as returned by Next, ends the
// iteration.
func (s *Scanner) All() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for {
			e, err := s.Next()
			if err == io.EOF || err == ErrTorn || !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Follow yields the events of a growing record that match q, until ctx ends, or an error that ends the
// iteration. It calls seen with each event before it reads the next one.
func (s *Scanner) Follow(
	ctx context.Context, q Query, seen func(*Event), yield func(*Event, error) bool,
) {
	for e, err := range s.All() {
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			yield(nil, fmt.Errorf("session %s: %s:%d: %w", q.Session, EventsFile, s.Line, err))
			return
		}
		seen(e)
		if q.Matches(e) && !yield(e, nil) {
			return
		}
	}
}

// LastCall returns the time of the last event of a call in the final lines of a record, or zero if there is
// none. It does not verify the lines; the first one may be incomplete.
func LastCall(lines []byte) time.Time {
	for len(lines) > 0 {
		at := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
		_, r := readSeq(lines[at:])
		when, err := ParseTime(r.text(`,"time":`, true))
		if kind := Kind(r.text(`,"kind":`, true)); !r.wrong && err == nil && !kind.Facts().Apart {
			return when
		}
		lines = lines[:at]
	}
	return time.Time{}
}

// DropDigests removes from a set of sha256 digests those that appear anywhere in the bytes of a record.
//
// Errors: the errors of r and of ctx.
func DropDigests(ctx context.Context, r io.Reader, digests map[digest.Digest]bool) error {
	const digits = 2 * sha256.Size
	in := bufio.NewReaderSize(r, 64<<10)
	var run []byte // hexadecimal digits, at most one more than in a digest
	for {
		c, err := in.ReadByte()
		if err == nil && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			if len(run) <= digits {
				run = append(run, c)
			}
			continue
		}
		if len(run) == digits {
			delete(digests, digest.NewDigestFromEncoded(digest.SHA256, string(run)))
		}
		run = run[:0]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case c == '\n' && ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
