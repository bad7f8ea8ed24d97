package session

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// ArtifactBase is what the URIs of a session's artifacts start with; the name of a file of the
// session follows, such as skill-activations.json.
const ArtifactBase = "skillsd://session/"

// ArtifactPart is a file of a session, or a part of it.
type ArtifactPart struct {
	MIMEType string
	Text     bool // Data is UTF-8 without NUL
	Data     []byte
	Size     int64         // of the whole
	Digest   digest.Digest // of the whole file in the caller's view
	Next     string        // URI of the part that follows; empty at the end
}

// IsArtifact reports whether uri names a session artifact, whether or not it exists.
func IsArtifact(uri string) bool { return strings.HasPrefix(uri, ArtifactBase) }

// ArtifactName is the URI of an artifact, parsed.
type ArtifactName struct {
	File   string // of the session's directory
	Offset int64  // in bytes, to read from
	Handle string // of the activation, or ""
}

// ParseArtifact reads NAME, NAME?offset=N, NAME?activation=HANDLE or both after [ArtifactBase]. A duplicate
// key is refused: another reader could take the other one.
func ParseArtifact(uri string) (name ArtifactName, ok bool) {
	rest, ok := strings.CutPrefix(uri, ArtifactBase)
	file, query, asks := strings.Cut(rest, "?")
	name.File = file
	if !ok || !asks {
		return name, ok
	}
	given, err := url.ParseQuery(query)
	if err != nil || len(given) != strings.Count(query, "&")+1 {
		return name, false
	}
	for key, values := range given {
		switch {
		case key == "activation" && values[0] != "":
			name.Handle = values[0]
		case key == "offset":
			name.Offset, err = strconv.ParseInt(values[0], 10, 64)
			if err != nil || name.Offset < 0 {
				return name, false
			}
		default:
			return name, false
		}
	}
	return name, true
}

// From returns the URI of the part of an artifact that starts at offset.
func (n ArtifactName) From(offset int64) string {
	uri := fmt.Sprintf("%s%s?offset=%d", ArtifactBase, n.File, offset)
	if n.Handle != "" {
		uri += "&activation=" + url.QueryEscape(n.Handle)
	}
	return uri
}

// Part returns what one read of an artifact returns, at most a number of bytes; text is cut between
// characters.
func (n ArtifactName) Part(data []byte, most int64) *ArtifactPart {
	a := &ArtifactPart{Size: int64(len(data)), Digest: digest.FromBytes(data),
		MIMEType: "application/octet-stream",
		Text:     utf8.Valid(data) && bytes.IndexByte(data, 0) < 0}
	switch {
	case n.File == provenance.EventsFile:
		a.MIMEType = "application/jsonl"
	case !strings.HasPrefix(n.File, provenance.OutputsDir+"/"):
		a.MIMEType = "application/json"
	case a.Text:
		a.MIMEType = "text/plain"
	}
	cut := func(at int64) int64 {
		for a.Text && at > 0 && at < a.Size && !utf8.RuneStart(data[at]) {
			at--
		}
		return at
	}
	start := cut(min(n.Offset, a.Size))
	end := cut(start + min(most, a.Size-start))
	// The answer must not keep the whole output in memory.
	a.Data = bytes.Clone(data[start:end])
	if end < a.Size {
		a.Next = n.From(end)
	}
	return a
}
