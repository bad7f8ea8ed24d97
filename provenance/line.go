package provenance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance/compact"
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

// DecodeLine parses a line without its newline and verifies its hash. It rejects every line that [EncodeLine]
// would not have written; it does not check the position of the event in its chain.
//
// Errors: ErrInvalid.
func DecodeLine(line []byte) (*Event, error) { return decodeLine(bytes.Clone(line)) }

// decodeLine is DecodeLine for a line that is not changed later: the event aliases it.
func decodeLine(line []byte) (*Event, error) {
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

// lineReader splits a line into its fields.
type lineReader struct {
	rest  []byte
	wrong bool // the line may not have the written form
}

// readLine returns the event of a line with a verified hash, or nil if the line may not be in the written
// form; then [decode] must decide. It is ten times faster than decode.
func readLine(line []byte) *Event {
	r := lineReader{rest: line}
	e := &Event{}
	var err error
	r.skip(`{"seq":`)
	digits := r.upTo(',')
	e.Seq, err = strconv.ParseUint(string(digits), 10, 64)
	r.wrong = r.wrong || err != nil || e.Seq == 0 || digits[0] == '0' || digits[0] == '+'
	at := r.text(`,"time":`, true)
	e.Time, err = ParseTime(at)
	r.wrong = r.wrong || err != nil
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
	r.skip(`}`)
	if r.wrong || len(r.rest) > 0 || !isHash(e.Prev) || !utf8.Valid(line) || e.Validate() != nil {
		return nil
	}
	return e
}

// LastCall returns the time of the last event of a call in the final lines of a record, or zero if there is
// none. It does not verify the lines; the first one may be incomplete.
func LastCall(lines []byte) time.Time {
	for len(lines) > 0 {
		at := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
		r := lineReader{rest: lines[at:]}
		r.skip(`{"seq":`)
		r.upTo(',')
		when, err := ParseTime(r.text(`,"time":`, true))
		if kind := Kind(r.text(`,"kind":`, true)); !r.wrong && err == nil && kind.OfCall() {
			return when
		}
		lines = lines[:at]
	}
	return time.Time{}
}

// skip advances past the bytes want, which must come next.
func (r *lineReader) skip(want string) {
	if !r.has(want) {
		r.wrong = true
		return
	}
	r.rest = r.rest[len(want):]
}

func (r *lineReader) has(want string) bool {
	return len(r.rest) >= len(want) && string(r.rest[:len(want)]) == want
}

// upTo returns the bytes before the next end byte, at least one.
func (r *lineReader) upTo(end byte) []byte {
	n := bytes.IndexByte(r.rest, end)
	if n < 1 {
		r.wrong = true
		return []byte("0")
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	return text
}

// value returns the JSON after a key, or nil if another key comes next.
func (r *lineReader) value(key string) []byte {
	if r.wrong || !r.has(key) {
		return nil
	}
	r.rest = r.rest[len(key):]
	n := compact.Value(r.rest)
	value := r.rest[:n:n]
	r.rest, r.wrong = r.rest[n:], n == 0
	return value
}

// text returns the string after a key. An optional one must not be empty.
func (r *lineReader) text(key string, needed bool) string {
	if !needed && !r.has(key) {
		return ""
	}
	r.skip(key)
	if r.wrong || len(r.rest) == 0 || r.rest[0] != '"' {
		r.wrong = true
		return ""
	}
	for i, c := range r.rest[1:] {
		if c == '"' {
			text := string(r.rest[1 : i+1])
			r.rest, r.wrong = r.rest[i+2:], text == "" && !needed
			return text
		}
		if c < ' ' || c > '~' || c == '\\' {
			break
		}
	}
	// A string can be encoded in several ways; only the one that Encode writes is valid.
	n := compact.Value(r.rest)
	var text string
	err := json.Unmarshal(r.rest[:n], &text)
	again, failed := Encode(text)
	r.wrong = err != nil || failed != nil || !bytes.Equal(again, r.rest[:n])
	r.rest = r.rest[n:]
	return text
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
	case !isObject(e.Row):
		fault = "row: not a JSON object in UTF-8"
	case !isObject(e.Decision):
		fault = "decision: not a JSON object in UTF-8"
	case !isObject(e.Invocation):
		fault = "invocation: not a JSON object in UTF-8"
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

// isObject reports whether raw is empty or begins like a JSON object; encoding it checks the rest.
func isObject(raw json.RawMessage) bool {
	return len(raw) == 0 || utf8.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}

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

// List is a slice that is encoded as [] if it is nil.
type List[T any] []T

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return Encode([]T(l))
}

// Encode returns v as compact JSON without escaping <, > and &, as in records.
func Encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// EncodePretty returns v as JSON for a file of a session: indented by two spaces, with one final newline, and
// without escaping <, > and &.
func EncodePretty(v any) ([]byte, error) {
	raw, err := Encode(v)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := json.Indent(&buf, raw, "", "  "); err != nil {
		return nil, err
	}
	buf.WriteByte('\n')
	return buf.Bytes(), nil
}
