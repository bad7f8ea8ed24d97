package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	// maxArtifactPart is the most bytes of an artifact that one read returns.
	maxArtifactPart = 4 << 20

	// maxArtifact is the most bytes of an artifact that can be read.
	maxArtifact = 64 << 20
)

var (
	errNotRecorded = errors.New("the last event was not recorded")
	errLarge       = errors.New("artifact is too large")
)

// sharedArtifacts are the files of a session that can be shown without paths of this machine;
// localArtifacts are shown only to clients on this machine. Outputs of runs are artifacts too.
var (
	sharedArtifacts = []string{provenance.EventsFile, provenance.PolicyTraceFile, provenance.SessionFile,
		provenance.ActivationsFile,
		provenance.RegistryFile, provenance.ResourceReadsFile, provenance.ScriptExecutionsFile}
	localArtifacts = []string{provenance.CapabilitiesFile, provenance.PolicySnapshotFile,
		provenance.RunManifestFile}
)

// ReadArtifact reads a file of the session to which a call belongs (see Open), from the byte N of "?offset=N"
// after the URI. A handle in "?activation=HANDLE" is the call's handle: models cannot pass it elsewhere. A
// call reads only files of its own session. Withheld output is answered like a file that does not exist; a
// remote client sees sandbox paths instead of host paths. Reading a file that every session has begins the
// session, so that a client can save its registry and its policy before the first call. Otherwise only
// refusals are recorded: a record must not grow when it is read.
//
// Errors: *Denied, *Error.
func (s *Sessions) ReadArtifact(ctx context.Context, call Call, uri string) (*ArtifactPart, error) {
	name, ok := parseArtifact(uri)
	if !ok {
		// Parsing may have cut a secret in two, so the whole URI is redacted and parsed again.
		name, _ = parseArtifact(s.Secrets().Text(uri))
		return nil, noArtifact(name, nil)
	}
	call.Handle = cmp.Or(name.Handle, call.Handle)
	ofEvery := slices.Contains(sharedArtifacts, name.File) ||
		!call.Remote && slices.Contains(localArtifacts, name.File)
	ses, err := s.sessionOf(ctx, call, ofEvery)
	if err != nil {
		return nil, err
	}
	if ses == nil || !ses.shows(name.File, ses.sharedOnly(call)) {
		return nil, noArtifact(name, nil)
	}
	if err := ses.Permit(ctx, PermitRequest{Call: call, Path: name.File}); err != nil {
		return nil, err
	}
	if err := ses.ensureStarted(ctx); err != nil {
		return nil, err
	}
	if ses.broken.Load() {
		return nil, fault.OfRecord(errNotRecorded)
	}
	// A file of up to maxArtifact bytes is held in memory until its part is cut, so reads wait for each
	// other.
	slot, err := s.reading.Acquire(ctx, call.Principal.Name, func(int) {})
	switch {
	case errors.Is(err, admit.ErrCrowded):
		return nil, fault.ReadsCrowded.Because(err)
	case err != nil:
		return nil, fault.Internal(err)
	}
	defer slot.Release()
	data, err := ses.artifact(ctx, name.File, call.Remote)
	if err != nil {
		return nil, unread(name, err)
	}
	return name.part(data, maxArtifactPart), nil
}

// unread returns the error for the client for an error of reading a file of a session.
func unread(name artifactName, err error) *Error {
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return noArtifact(name, err)
	case errors.Is(err, errLarge):
		return fault.ArtifactTooLarge.Because(err, "{path}", fault.Quote(name.File))
	case errors.Is(err, provenance.ErrUnavailable):
		return fault.OfRecord(err)
	}
	return fault.Internal(err)
}

// ArtifactNames returns the names after [artifact.Base] for the session of a call, sorted: the files that a
// session can have, written or not, and the outputs of its runs that were released.
func (s *Sessions) ArtifactNames(ctx context.Context, call Call) []string {
	names, shared := slices.Clone(sharedArtifacts), call.Remote
	if ses, err := s.sessionOf(ctx, call, false); err == nil && ses != nil {
		shared = ses.sharedOnly(call)
		ses.mu.Lock()
		for _, files := range ses.released {
			names = append(names, files...)
		}
		ses.mu.Unlock()
	}
	if !shared {
		names = append(names, localArtifacts...)
	}
	slices.Sort(names)
	return names
}

// sharedOnly reports whether a call gets the shared artifacts only. A narrowed local call does too: the
// policy snapshot shows what the operator allowed to others.
func (s *Session) sharedOnly(call Call) bool { return call.Remote || s.narrows(call) }

// sessionOf returns the session to which a call belongs, which it opens if open is true; else nil. It returns
// nil for a call that only its principal connects with others.
func (s *Sessions) sessionOf(ctx context.Context, call Call, open bool) (*Session, error) {
	if s.namesProcess(&call) {
		call.Named = ""
	}
	kind, id := call.ownKey()
	switch {
	case !call.keyed(), call.Handle != "", open && kind != "":
		return s.Open(ctx, call)
	case kind == "":
		return nil, nil
	case s.cfg.Peers != nil:
		return s.locate(ctx, call)
	}
	return s.table.enterKey(ctx, call.key(kind, id)), nil
}

// shows reports whether the caller may see a file with that name; the file need not exist.
func (s *Session) shows(name string, remote bool) bool {
	if slices.Contains(sharedArtifacts, name) || !remote && slices.Contains(localArtifacts, name) {
		return true
	}
	base, _ := strings.CutPrefix(name, provenance.OutputsDir+"/")
	output := base[:max(strings.LastIndexByte(base, '.'), 0)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.released[output], name)
}

// artifact returns a file of the session in the caller's view.
func (s *Session) artifact(ctx context.Context, name string, remote bool) ([]byte, error) {
	if written := s.awaitedFile(name); written != nil {
		select {
		case <-written:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	file, err := s.cfg.Records.Artifact(ctx, s.id, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var shown bytes.Buffer
	rest := &io.LimitedReader{R: file, N: maxArtifact + 1}
	err = s.viewer(remote).Project(name, rest, &shown)
	// A file that is cut at the limit also fails to decode, and that error would hide the cause.
	if rest.N == 0 {
		err = errLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return shown.Bytes(), nil
}

// viewer returns the caller's view of the session's files.
func (s *Session) viewer(remote bool) *cfharness.Viewer {
	now, hides := s.cfg.Registry.Snapshot(), (func(string) bool)(nil)
	// A model can read the registry and the policy snapshot, so both would reveal the names of hidden skills.
	if slices.ContainsFunc(now.Skills, (*skills.Skill).Hidden) {
		hides = func(path string) bool {
			sk := now.Skill(path)
			return sk != nil && s.Hides(sk, "")
		}
	}
	return &cfharness.Viewer{
		Remote: remote,
		Hides:  hides,
		Released: func(outputID string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			_, ok := s.released[provenance.CleanFileName(outputID)]
			return ok
		},
		Shows: func(file string) bool { return s.shows(file, true) },
	}
}

func noArtifact(name artifactName, err error) *Error {
	return fault.ArtifactUnknown.Because(err, "{uri}", strconv.Quote(ArtifactBase+policy.Clip(name.File)))
}

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

// artifactName is the URI of an artifact, parsed.
type artifactName struct {
	File   string // of the session's directory
	Offset int64  // in bytes, to read from
	Handle string // of the activation, or ""
}

// parseArtifact reads NAME, NAME?offset=N, NAME?activation=HANDLE or both after [ArtifactBase]. A duplicate
// key is refused: another reader could take the other one.
func parseArtifact(uri string) (name artifactName, ok bool) {
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

// from returns the URI of the part of an artifact that starts at offset.
func (n artifactName) from(offset int64) string {
	uri := fmt.Sprintf("%s%s?offset=%d", ArtifactBase, n.File, offset)
	if n.Handle != "" {
		uri += "&activation=" + url.QueryEscape(n.Handle)
	}
	return uri
}

// part returns what one read of an artifact returns, at most a number of bytes; text is cut between
// characters.
func (n artifactName) part(data []byte, most int64) *ArtifactPart {
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
		a.Next = n.from(end)
	}
	return a
}
