package session

import (
	"bytes"
	"unicode/utf8"
)

// Most characters of a run's output that are shown, of both streams together. The whole streams, as
// far as they were kept, stay in the session's records.
const (
	headShare = 24_000
	tailShare = 12_000
)

// cutStreams leaves of both streams what is shown of them: each keeps at least a quarter of the
// room when it needs it.
func cutStreams(stdout, stderr *Stream) {
	head, tail := shares(len(stderr.Head)+len(stderr.Tail), len(stdout.Head)+len(stdout.Tail))
	stdout.cut(head, tail)
	stderr.cut(headShare-head, tailShare-tail)
}

// shares is the room of stdout; stderr has the rest.
func shares(stderr, stdout int) (head, tail int) {
	const all = headShare + tailShare
	var part float64
	switch {
	case stderr < all/4:
		part = 1 - float64(stderr+64)/all
	case stdout < all/4:
		part = float64(stdout+64) / all
	default:
		part = min(max(float64(stdout)/float64(stdout+stderr), 0.25), 0.75)
	}
	return int(part * headShare), int(part * tailShare)
}

// cut leaves out the middle of a stream that is longer than its share.
func (s *Stream) cut(head, tail int) {
	if !s.Truncated {
		whole := s.Head + s.Tail
		if utf8.RuneCountInString(whole) <= head+tail {
			s.Head, s.Tail = whole, ""
			return
		}
		s.Head, s.Tail, s.Truncated = whole, whole, true
	}
	s.Head, s.Tail = string(Cut([]byte(s.Head), head)), lastText(s.Tail, tail)
}

// Cut returns at most the given number of characters from the start of text, ending at a line where
// one ends in the last fifth, else at a character.
func Cut(text []byte, room int) []byte {
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

// lastText returns at most room characters from the end of s.
func lastText(s string, room int) string {
	start := len(s)
	for range room {
		if start == 0 {
			break
		}
		_, size := utf8.DecodeLastRuneInString(s[:start])
		start -= size
	}
	return s[start:]
}
