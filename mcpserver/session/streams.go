package session

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// Stream is the released part of one output stream.
type Stream struct {
	Head, Tail string // text; Tail only when Truncated
	Total      int64  // bytes the script wrote
	Truncated  bool   // the middle was not kept
	Digest     digest.Digest

	// Withheld describes a stream that was not released, else nil; Head and Tail are then empty.
	Withheld *cfharness.ObservationDenied
}

// streamOf returns a run's stream as text. Bytes that are not UTF-8 are replaced, so that JSON can
// represent the text.
func streamOf(s *sandbox.Stream) Stream {
	text := func(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
	return Stream{Head: text(s.Head), Tail: text(s.Tail), Total: s.Total, Truncated: s.Truncated,
		Digest: digest.Digest(s.SHA256)}
}

// Most characters of a run's output that are shown, of both streams together. The session's records have the
// whole streams, up to the run's output limit.
const (
	HeadShare = 24_000
	TailShare = 12_000
)

// cutStreams cuts both streams to what is shown: each gets at least a quarter of the room if it needs it.
func cutStreams(stdout, stderr *Stream) {
	const all = HeadShare + TailShare
	out, err := float64(len(stdout.Head)+len(stdout.Tail)), float64(len(stderr.Head)+len(stderr.Tail))
	var part float64 // of stdout
	switch {
	case err < all/4:
		part = 1 - (err+64)/all
	case out < all/4:
		part = (out + 64) / all
	default:
		part = min(max(out/(out+err), 0.25), 0.75)
	}
	head, tail := int(part*HeadShare), int(part*TailShare)
	stdout.Cut(head, tail)
	stderr.Cut(HeadShare-head, TailShare-tail)
}

// Cut leaves out the middle of a stream that is longer than its share.
func (s *Stream) Cut(head, tail int) {
	if !s.Truncated {
		whole := s.Head + s.Tail
		if utf8.RuneCountInString(whole) <= head+tail {
			s.Head, s.Tail = whole, ""
			return
		}
		s.Head, s.Tail, s.Truncated = whole, whole, true
	}
	s.Head = string(CutText([]byte(s.Head), head))
	start := len(s.Tail)
	for range tail {
		_, size := utf8.DecodeLastRuneInString(s.Tail[:start])
		start -= size // 0 at the beginning
	}
	s.Tail = s.Tail[start:]
}

// CutText returns at most the given number of characters from the start of text, ending at a line where
// one ends in the last fifth, else at a character.
func CutText(text []byte, room int) []byte {
	if utf8.RuneCount(text) <= room {
		return text
	}
	end := 0
	for range max(room, 0) {
		_, size := utf8.DecodeRune(text[end:])
		end += size
	}
	if line := bytes.LastIndexByte(text[:end], '\n') + 1; line > end*4/5 {
		return text[:line]
	}
	return text[:end]
}

const (
	// maxWholeBytes is the most bytes of JSON of both streams of a run together, or of the instructions or
	// the files of a load, that an answer has for a program. An answer has streams twice, and must fit into
	// a message of 8 MiB, which is what many readers accept.
	maxWholeBytes = 3 << 20

	// MaxWhole is the most characters of each stream if they are larger: none has more than 6 bytes.
	MaxWhole = maxWholeBytes / 2 / 6
)

// fitsMessage reports whether a value takes at most maxWholeBytes bytes of JSON.
func fitsMessage(v any) bool {
	data, err := json.Marshal(v)
	return err == nil && len(data) <= maxWholeBytes
}

// fitStreams cuts the streams of a run that a program gets whole if they are too much for a message.
func fitStreams(streams ...*Stream) {
	var texts []string
	for _, s := range streams {
		texts = append(texts, s.Head, s.Tail)
	}
	if fitsMessage(texts) {
		return
	}
	for _, s := range streams {
		s.Cut(MaxWhole*2/3, MaxWhole/3)
	}
}

// segmentsText returns the text of segments.
func segmentsText(segments []cfharness.StreamSegment) string {
	var b strings.Builder
	for _, segment := range segments {
		b.WriteString(segment.Text)
	}
	return b.String()
}

// Describe fills the reference's fields of an output object for a stream: the released text, or the object in
// its place.
func (s *Stream) Describe(o *cfharness.Observation, truncated **bool, length **int64) {
	o.Denied = s.Withheld
	if s.Withheld != nil {
		return
	}
	o.Text = new(s.Head + s.Tail)
	if s.Truncated {
		*truncated, *length = new(true), &s.Total
	}
}

// ObserveExit completes what is observed of an exit code; code is nil if the script was stopped.
func observeExit(is *cfharness.ExitCodeObservation, code *int, outcome sandbox.Outcome) {
	is.Value, is.Reason = nil, policy.Clip(is.Reason)
	if is.Policy == cfharness.PolicyObserved {
		is.Value, is.Reason = code, ""
		if code == nil {
			is.Policy, is.Reason = cfharness.PolicyDenied, "no exit code: "+string(outcome)
		}
	}
}

// Observe adds a stream to what is observed of it: the beginning and, if the middle was left out, the end.
func (s *Stream) Observe(is *cfharness.StreamObservation) {
	if is.Policy != cfharness.PolicyObserved {
		return
	}
	is.Truncated, is.Segments = is.Truncated || s.Truncated, []cfharness.StreamSegment{}
	head, tail := s.Head, s.Tail
	if !s.Truncated {
		head, tail = s.Head+s.Tail, ""
	}
	for _, part := range []struct {
		text string
		at   int64
	}{{head, 0}, {tail, s.Total - int64(len(tail))}} {
		if part.text != "" {
			is.Segments = append(is.Segments, cfharness.StreamSegment{Text: part.text, Label: is.Label,
				Offset: max(part.at, 0), ByteLength: int64(len(part.text))})
		}
	}
}
