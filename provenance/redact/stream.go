package redact

import (
	"slices"

	"github.com/opencontainers/go-digest"
)

// longestEscape is the number of bytes of an escape that may be missing where a text was cut.
const longestEscape = 11

// minCut is the minimum number of characters of a cut secret that are unlikely to occur by chance.
const minCut = 4

// Stream is the stored part of an output stream: its beginning and, if it was too long, its end.
type Stream struct {
	Head, Tail []byte // Tail is empty unless Truncated
	Total      int64  // bytes of the whole stream
	Truncated  bool
	SHA256     string // "sha256:<hex>" of the whole stream
}

// Streams removes the secrets from two streams. Where a stream was cut, text that may be the beginning or the
// end of a secret is removed too. ended is set if the script was stopped, which cuts its output. A
// secret that begins in one stream and ends in the other is found too. given is set if the script had
// secrets: shorter pieces are then removed, and size and digest of every stream are computed again. Otherwise
// this is done only for streams with a finding. anew reports whether it was done.
func (r *Redactor) Streams(stdout, stderr *Stream, ended, given bool) (anew bool) {
	if r == nil {
		return false
	}
	parts := [...]*[]byte{&stdout.Head, &stdout.Tail, &stderr.Head, &stderr.Tail}
	var spans [len(parts)][]span
	for i, part := range parts {
		spans[i] = r.find(*part)
	}
	least := minCut
	if given {
		least = 1
	}
	first, last := [2]int{0, 2}, [2]int{0, 2}
	for i, s := range []*Stream{stdout, stderr} {
		if s.Truncated {
			last[i]++
			spans[first[i]] = append(spans[first[i]], r.cutAt(s.Head, least, true)...)
			spans[last[i]] = append(spans[last[i]], r.cutAt(s.Tail, least, false)...)
		}
		if ended {
			spans[last[i]] = append(spans[last[i]], r.cutAt(*parts[last[i]], least, true)...)
		}
	}
	// Readers see the streams in either order.
	for i := range 2 {
		before, behind := last[i], first[1-i]
		a, b := r.across(*parts[before], *parts[behind])
		spans[before], spans[behind] = append(spans[before], a...), append(spans[behind], b...)
	}
	for i, s := range []*Stream{stdout, stderr} {
		if !given && len(spans[first[i]])+len(spans[first[i]+1]) == 0 {
			continue
		}
		anew = true
		gone := s.Total - int64(len(s.Head)+len(s.Tail))
		s.Head, s.Tail = replace(s.Head, spans[first[i]]), replace(s.Tail, spans[first[i]+1])
		s.Total = gone + int64(len(s.Head)+len(s.Tail))
		s.SHA256 = string(digest.FromBytes(slices.Concat(s.Head, s.Tail)))
	}
	return anew
}

// cutAt returns the end of b that may be the beginning of a secret, or its start that may be the end of one,
// with at least least characters.
func (r *Redactor) cutAt(b []byte, least int, atEnd bool) []span {
	part, base := b[:min(len(b), r.window)], 0
	if atEnd {
		base = max(len(b)-r.window, 0)
		part = b[base:]
	}
	find := func(m *matcher, text []byte, hit func(from, to int, p *pattern)) {
		m.cut(text, least, atEnd, hit)
	}
	cut := span{from: len(b)}
	for missing := range min(longestEscape, len(part)) + 1 {
		if atEnd {
			for _, s := range r.spans(part[:len(part)-missing], find) {
				cut.from, cut.to = min(cut.from, base+s.from), len(b)
			}
			continue
		}
		for _, s := range r.spans(part[missing:], find) {
			cut.from, cut.to = 0, max(cut.to, missing+s.to)
		}
	}
	if cut.to == 0 {
		return nil
	}
	return []span{cut}
}

// across returns the secrets that begin in a and end in b.
func (r *Redactor) across(a, b []byte) (inA, inB []span) {
	if len(a) == 0 || len(b) == 0 {
		return nil, nil
	}
	base := max(len(a)-r.window, 0)
	border := len(a) - base
	for _, s := range r.spans(slices.Concat(a[base:], b[:min(len(b), r.window)]), (*matcher).find) {
		if s.from < border && s.to > border {
			inA = append(inA, span{from: base + s.from, to: len(a), name: s.name})
			inB = append(inB, span{to: s.to - border, name: s.name})
		}
	}
	return inA, inB
}
