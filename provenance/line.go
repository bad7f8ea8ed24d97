package provenance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
)

// MaxLine is the longest line of a record in bytes, newline included.
const MaxLine = 4 << 20

// FirstPrev is the prev of the first event of a session.
const FirstPrev = "0000000000000000000000000000000000000000000000000000000000000000"

// TimeFormat is the layout of every time this package writes: UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

const (
	hashKey = `,"hash"`
	tailLen = len(hashKey) + len(`:""}`) + sha256.Size*2
)

// lineForm is an Event as it is written: its fields have the order of the keys, and the time is text.
type lineForm struct {
	Seq        uint64          `json:"seq"`
	Time       string          `json:"time"`
	Kind       Kind            `json:"kind"`
	Session    string          `json:"session"`
	Parent     string          `json:"parent,omitempty"`
	Principal  string          `json:"principal"`
	Client     string          `json:"client,omitempty"`
	Skill      string          `json:"skill,omitempty"`
	Path       string          `json:"path,omitempty"`
	Want       string          `json:"want,omitempty"`
	Got        string          `json:"got,omitempty"`
	Detail     string          `json:"detail"`
	Row        json.RawMessage `json:"row,omitempty"`
	Decision   json.RawMessage `json:"decision,omitempty"`
	Invocation json.RawMessage `json:"invocation,omitempty"`
	Files      []File          `json:"files,omitempty"`
	Prev       string          `json:"prev"`
	Hash       string          `json:"hash,omitempty"`
}

// EncodeLine returns the line of e, newline included, and sets e.Hash. Seq, Time, Prev and the
// other fields must be set. Bytes of a text field that are not UTF-8 become U+FFFD, in e as well: e then
// equals the event that a reader of the line gets.
//
// Errors: ErrInvalid.
func EncodeLine(e *Event) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if e.Seq == 0 || !isHash(e.Prev) {
		return nil, fmt.Errorf("event of kind %q: %w: seq or prev", e.Kind, ErrInvalid)
	}
	for _, field := range []*string{&e.Parent, &e.Principal, &e.Client, &e.Skill, &e.Path, &e.Want, &e.Got,
		&e.Detail} {
		*field = strings.ToValidUTF8(*field, "\uFFFD")
	}
	var buf bytes.Buffer
	w := lineForm{
		Seq: e.Seq, Time: FormatTime(e.Time), Kind: e.Kind, Session: e.Session, Parent: e.Parent,
		Principal: e.Principal, Client: e.Client, Skill: e.Skill, Path: e.Path, Want: e.Want,
		Got: e.Got, Detail: e.Detail, Row: e.Row, Decision: e.Decision, Invocation: e.Invocation,
		Files: e.Files, Prev: e.Prev,
	}
	if err := encodeJSON(&buf, w); err != nil {
		return nil, fmt.Errorf("event of kind %q: %w: %v", e.Kind, ErrInvalid, err)
	}
	buf.Truncate(buf.Len() - len("}\n"))
	sum := sha256.Sum256(buf.Bytes())
	hash := hex.EncodeToString(sum[:])
	buf.WriteString(hashKey + `:"` + hash + "\"}\n")
	if buf.Len() > MaxLine {
		return nil, fmt.Errorf("event of kind %q: %w: line of %d bytes, limit %d", e.Kind, ErrInvalid,
			buf.Len(), MaxLine)
	}
	e.Hash = hash
	return buf.Bytes(), nil
}

// DecodeLine parses a line without its newline and checks its hash over the bytes given. It
// refuses every line that [EncodeLine] would not have written; it does not check the place of the
// event in its chain.
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
	var w lineForm
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	t, err := ParseTime(w.Time)
	if err != nil {
		return nil, err
	}
	e := &Event{
		Seq: w.Seq, Time: t, Kind: w.Kind, Session: w.Session, Parent: w.Parent,
		Principal: w.Principal, Client: w.Client, Skill: w.Skill, Path: w.Path, Want: w.Want,
		Got: w.Got, Detail: w.Detail, Row: w.Row, Decision: w.Decision, Invocation: w.Invocation,
		Files: w.Files, Prev: w.Prev,
	}
	// There is one form of a line, so that nothing can hide in white space, key order or unknown keys.
	again, err := EncodeLine(e)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again[:len(again)-1], line) {
		return nil, fmt.Errorf("%w: line is not in the written form", ErrInvalid)
	}
	return e, nil
}

// Validate reports whether e can be recorded. It does not check Seq, Prev and Hash, which a store sets.
//
// Errors: ErrInvalid.
func (e *Event) Validate() error {
	if err := e.validate(); err != nil {
		return fmt.Errorf("event of kind %.40q: %w", e.Kind, err)
	}
	return nil
}

func (e *Event) validate() error {
	switch {
	case !e.Kind.Valid():
		return fmt.Errorf("%w: unknown kind", ErrInvalid)
	case !ValidSessionID(e.Session):
		return fmt.Errorf("%w: session id", ErrInvalid)
	case e.Time.Year() < 1 || e.Time.Year() > 9999:
		return fmt.Errorf("%w: year %d", ErrInvalid, e.Time.Year())
	}
	if err := checkObject(e.Row); err != nil {
		return fmt.Errorf("row: %w", err)
	}
	if err := checkObject(e.Decision); err != nil {
		return fmt.Errorf("decision: %w", err)
	}
	if err := checkObject(e.Invocation); err != nil {
		return fmt.Errorf("invocation: %w", err)
	}
	for _, f := range e.Files {
		if err := CheckFileName(f.Name); err != nil {
			return err
		}
		if f.Size < 0 || f.Digest.Validate() != nil || f.Digest.Algorithm() != digest.SHA256 {
			return fmt.Errorf("%w: size or digest of file %q", ErrInvalid, f.Name)
		}
	}
	return nil
}

func checkObject(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("%w: not a JSON object", ErrInvalid)
	}
	if !utf8.Valid(raw) {
		return fmt.Errorf("%w: not UTF-8", ErrInvalid)
	}
	return nil
}

func isHash(s string) bool {
	return len(s) == sha256.Size*2 && strings.Trim(s, "0123456789abcdef") == ""
}

// FormatTime returns t in UTC, truncated to milliseconds.
func FormatTime(t time.Time) string {
	return t.UTC().Format(TimeFormat)
}

// ParseTime parses what [FormatTime] wrote and nothing else. Errors: ErrInvalid.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(TimeFormat, s)
	if err != nil || FormatTime(t) != s {
		return time.Time{}, fmt.Errorf("%w: time %.40q", ErrInvalid, s)
	}
	return t, nil
}

// Timestamp is a time that is written in UTC with milliseconds.
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

// List is a slice that is written as [] if it is nil.
type List[T any] []T

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	var buf bytes.Buffer
	if err := encodeJSON(&buf, []T(l)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Encode returns v as compact JSON without escaping <, > and &, as records are kept.
func Encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	if err := encodeJSON(&buf, v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// EncodePretty returns v as a file of a session is written: two spaces of indentation, one final
// newline, <, > and & unescaped.
func EncodePretty(v any) ([]byte, error) {
	raw, err := Encode(v)
	if err != nil {
		return nil, err
	}
	return pretty(raw)
}

func pretty(raw []byte) ([]byte, error) {
	var buf bytes.Buffer
	if err := json.Indent(&buf, raw, "", "  "); err != nil {
		return nil, err
	}
	buf.WriteByte('\n')
	return buf.Bytes(), nil
}

func encodeJSON(buf *bytes.Buffer, v any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
