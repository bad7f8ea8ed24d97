package provenance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
)

// MaxLine is the maximum length of a line in a record, in bytes, including the newline.
const MaxLine = 4 << 20

// FirstPrev is the prev of the first event in a session.
const FirstPrev = "0000000000000000000000000000000000000000000000000000000000000000"

// TimeFormat is the layout of all times in records: UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

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
	// TimeFormat has four digits for the year.
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
	return t.UTC().Format(TimeFormat)
}

// ParseTime parses the output of [FormatTime] and nothing else. Errors: ErrInvalid.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(TimeFormat, s)
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
	var line []byte
	for length, ended := 0, false; !ended; {
		part, err := s.r.ReadSlice('\n')
		length += len(part)
		// A line that is too long is not kept. If the file ends in it, it is torn, because after a crash a
		// file may be longer than the bytes written to it.
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
			ended = true
		}
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
