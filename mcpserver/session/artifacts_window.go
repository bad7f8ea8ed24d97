package session

import (
	"bytes"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// window takes an artifact in pieces and keeps of it what one read returns, so that what is read costs
// the memory of a part, however long the whole is.
type window struct {
	start int64 // the byte asked for
	most  int64 // bytes of the part
	size  int64 // so far
	sum   hash.Hash
	from  int64  // where kept begins
	kept  []byte // of the part, with what may belong to the characters at its ends

	binary bool
	rest   []byte // the beginning of a character that the last piece cut
}

func newWindow(start, most int64) *window {
	return &window{start: start, most: most, from: max(start-utf8.UTFMax, 0), sum: digest.SHA256.Hash()}
}

// Write implements io.Writer; it does not fail.
func (w *window) Write(p []byte) (int, error) {
	w.sum.Write(p)
	w.scan(p)
	// The byte behind the part tells whether the part ends at a character.
	low, high := max(w.from-w.size, 0), w.start+w.most+1-w.size
	if low < int64(len(p)) && high > low {
		w.kept = append(w.kept, p[low:min(high, int64(len(p)))]...)
	}
	w.size += int64(len(p))
	return len(p), nil
}

// scan notes whether all of it is UTF-8 without NUL.
func (w *window) scan(p []byte) {
	if w.binary {
		return
	}
	w.binary = bytes.IndexByte(p, 0) >= 0
	for len(w.rest) > 0 && len(p) > 0 {
		w.rest, p = append(w.rest, p[0]), p[1:]
		if utf8.FullRune(w.rest) {
			w.binary = w.binary || !utf8.Valid(w.rest)
			w.rest = w.rest[:0]
		}
	}
	end := len(p)
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if utf8.RuneStart(p[len(p)-back]) {
			if !utf8.FullRune(p[len(p)-back:]) {
				end = len(p) - back
			}
			break
		}
	}
	w.rest = append(w.rest, p[end:]...)
	w.binary = w.binary || !utf8.Valid(p[:end])
}

// part returns what one read returns, once all was written; text is cut between characters.
func (w *window) part(name artifactName) *Artifact {
	a := &Artifact{Size: w.size, Digest: digest.NewDigest(digest.SHA256, w.sum), MIMEType: "application/octet-stream"}
	a.Text = !w.binary && len(w.rest) == 0
	switch {
	case name.file == provenance.EventsFile:
		a.MIMEType = "application/jsonl"
	case !strings.HasPrefix(name.file, provenance.OutputsDir+"/"):
		a.MIMEType = "application/json"
	case a.Text:
		a.MIMEType = "text/plain"
	}
	if w.start >= w.size {
		return a
	}
	// Of text, from the last byte before the part that begins a character.
	cut := func(at int64) int64 {
		for a.Text && at > w.from && at < w.size && !utf8.RuneStart(w.kept[at-w.from]) {
			at--
		}
		return at
	}
	start := cut(w.start)
	end := cut(min(start+w.most, w.size))
	a.Data = w.kept[start-w.from : end-w.from]
	if end < w.size {
		a.Next = name.from(end)
	}
	return a
}
