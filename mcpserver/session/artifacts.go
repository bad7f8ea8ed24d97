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

	"github.com/skillsd/skillsd/mcpserver/session/slots"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// ArtifactBase is what the URIs of a session's artifacts start with; the name of a file of the
// session follows, such as skill-activations.json.
const ArtifactBase = "skillsd://session/"

const (
	// MaxArtifactPart is the most bytes of an artifact that one read returns.
	MaxArtifactPart = 4 << 20

	// maxArtifact is the size in bytes beyond which an artifact is not read at all.
	maxArtifact = 64 << 20
)

var (
	errNotRecorded = errors.New("the last event was not recorded")
	errLarge       = errors.New("artifact is too large")
)

// Artifact is a file of a session, or a part of it.
type Artifact struct {
	MIMEType string
	Text     bool // Data is UTF-8 without NUL
	Data     []byte
	Size     int64         // of the whole
	Digest   digest.Digest // of the whole, as it is shown
	Next     string        // URI of the part that follows; empty at the end
}

// IsArtifact reports whether uri names a session artifact, whether or not it exists.
func IsArtifact(uri string) bool { return strings.HasPrefix(uri, ArtifactBase) }

// sharedArtifacts are the files of a session that can be shown without paths of this machine,
// localArtifacts are for clients on this machine only. Outputs of runs are artifacts too.
var (
	sharedArtifacts = []string{provenance.EventsFile, provenance.PolicyTraceFile, provenance.SessionFile,
		provenance.ActivationsFile,
		provenance.RegistryFile, provenance.ResourceReadsFile, provenance.ScriptExecutionsFile}
	localArtifacts = []string{provenance.CapabilitiesFile, provenance.PolicySnapshotFile,
		provenance.RunManifestFile}
)

// ReadArtifact reads a file of the session a call belongs to, from the byte that "?offset=N" after the URI
// says. A handle in "?activation=HANDLE" counts as the call's own: models can put it there, and nowhere
// else. A call reaches only its own session: the one its handle, its client's id or its protocol session
// names among the sessions of its principal, and on stdio the session of the process. Output that was
// withheld does not exist; a remote client sees sandbox paths where the file has host paths. Reading a file
// that every session has begins the session, so that a client can keep its registry and its policy before
// the first call. Apart from that only a refusal is recorded: a record must not grow when it is read.
//
// Errors: *Denied, *Error.
func (s *Sessions) ReadArtifact(ctx context.Context, call Call, uri string) (*Artifact, error) {
	name, ok := parseArtifact(uri)
	if !ok {
		// Parsing may have cut a secret in two, so the whole URI is redacted and parsed again.
		name, _ = parseArtifact(s.Secrets().Text(uri))
		return nil, noArtifact(name, nil)
	}
	call.Handle = cmp.Or(name.handle, call.Handle)
	ofEvery := slices.Contains(sharedArtifacts, name.file) ||
		!call.Remote && slices.Contains(localArtifacts, name.file)
	ses, err := s.sessionOf(ctx, call, ofEvery)
	if err != nil {
		return nil, err
	}
	if ses == nil || !ses.shows(name.file, ses.sharedOnly(call)) {
		return nil, noArtifact(name, nil)
	}
	if err := ses.Permit(ctx, PermitRequest{Call: call, Path: name.file}); err != nil {
		return nil, err
	}
	if err := ses.recording(ctx, func(context.Context) error { return nil }); err != nil {
		return nil, err
	}
	if ses.broken.Load() {
		return nil, recordError(errNotRecorded)
	}
	slot, err := s.reading.Acquire(ctx, call.Principal.Name, func(int) {})
	switch {
	case errors.Is(err, slots.ErrCrowded):
		return nil, readsCrowded.because(err)
	case err != nil:
		return nil, Internal(err)
	}
	defer slot.Release()
	data, err := ses.artifact(ctx, name.file, call.Remote)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return nil, noArtifact(name, err)
	case errors.Is(err, errLarge):
		return nil, artifactTooLarge.because(err, "{path}", quote(name.file))
	case errors.Is(err, provenance.ErrUnavailable):
		return nil, recordError(err)
	case err != nil:
		return nil, Internal(err)
	}
	return name.part(data, MaxArtifactPart), nil
}

// ArtifactNames returns what may follow [ArtifactBase] for the session of a call, sorted: the files a
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

// sharedOnly reports whether a call gets the shared artifacts only: a narrowed call must not learn what the
// operator allowed to others either.
func (s *Session) sharedOnly(call Call) bool { return call.Remote || s.narrows(call) }

// sessionOf returns the session a call belongs to, or nil if it is not open yet and is not to be opened.
// Calls that only their principal connects have no session.
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
	}
	return s.opened(ctx, func() *Session { return s.keyed[call.key(kind, id)] }), nil
}

// artifactName is the URI of an artifact, parsed.
type artifactName struct {
	file   string // of the session's directory
	offset int64  // in bytes, to read from
	handle string // of the activation; empty when there is none
}

// parseArtifact reads NAME, NAME?offset=N, NAME?activation=HANDLE or both after [ArtifactBase]. A duplicate
// key is refused: another reader could take the other one.
func parseArtifact(uri string) (name artifactName, ok bool) {
	rest, ok := strings.CutPrefix(uri, ArtifactBase)
	file, query, asks := strings.Cut(rest, "?")
	name.file = file
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
			name.handle = values[0]
		case key == "offset":
			if name.offset, err = strconv.ParseInt(values[0], 10, 64); err != nil || name.offset < 0 {
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
	uri := fmt.Sprintf("%s%s?offset=%d", ArtifactBase, n.file, offset)
	if n.handle != "" {
		uri += "&activation=" + url.QueryEscape(n.handle)
	}
	return uri
}

// shows reports whether the session shows a file of that name if there is one.
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

// release notes the files of a run whose output the caller may see, and reports whether it may: if something
// was withheld, none of them.
func (s *Session) release(r *run, answer *RunResult) bool {
	if answer.Sealed {
		return false
	}
	var files []string
	for stream, kept := range map[string]Stream{"stdout": answer.Stdout, "stderr": answer.Stderr} {
		if kept.Total > 0 {
			files = append(files, provenance.OutputName(r.output, stream))
		}
	}
	for _, out := range answer.Out {
		if out.Withheld == "" {
			files = append(files, strings.TrimPrefix(out.URI, ArtifactBase))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released[provenance.CleanFileName(r.output)] = files
	return true
}

// artifact returns a file of the session as the caller is to see it.
func (s *Session) artifact(ctx context.Context, name string, remote bool) ([]byte, error) {
	s.sequence.Lock()
	written := s.awaited[name]
	s.sequence.Unlock()
	if written != nil {
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
	if rest.N == 0 {
		err = errLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return shown.Bytes(), nil
}

// viewer returns what a caller may see of the session's files.
func (s *Session) viewer(remote bool) *cfharness.Viewer {
	now, hides := s.cfg.Registry.Snapshot(), (func(string) bool)(nil)
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
	return artifactUnknown.because(err, "{uri}", strconv.Quote(ArtifactBase+policy.Clip(name.file)))
}

// part returns what one read of an artifact returns, at most a number of bytes; text is cut between
// characters.
func (n artifactName) part(data []byte, most int64) *Artifact {
	a := &Artifact{Size: int64(len(data)), Digest: digest.FromBytes(data),
		MIMEType: "application/octet-stream",
		Text:     utf8.Valid(data) && bytes.IndexByte(data, 0) < 0}
	switch {
	case n.file == provenance.EventsFile:
		a.MIMEType = "application/jsonl"
	case !strings.HasPrefix(n.file, provenance.OutputsDir+"/"):
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
	start := cut(min(n.offset, a.Size))
	end := cut(start + min(most, a.Size-start))
	a.Data = bytes.Clone(data[start:end]) // the answer must not hold the whole
	if end < a.Size {
		a.Next = n.from(end)
	}
	return a
}
