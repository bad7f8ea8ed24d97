package session

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/picture"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// ReadRequest asks for a file of a skill: by Skill and Path, or by URI.
type ReadRequest struct {
	Call     Call
	Skill    string // path or unique name
	Path     string // relative to the skill
	URI      string // instead of Skill and Path: the whole file, only while it equals the snapshot
	MaxBytes int64  // most bytes to show
	Bounded  bool   // whether the caller chose MaxBytes
	MaxChars int    // most characters to show; 0: unlimited
	Offset   int64
	// Invalid, if not nil, is why the arguments were rejected. The attempt is recorded, and nothing is read.
	Invalid *Error
}

// ReadResult is a file, or a part of it.
type ReadResult struct {
	Skill     *skills.Skill
	Path      string
	URI       string
	Data      []byte // empty for a binary file asked for by path
	Offset    int64
	Size      int64 // of the whole file now
	Text      bool
	MIMEType  string
	Want, Got digest.Digest    // of the file when the session loaded the skill, and now
	Changed   bool             // Want and Got differ
	Picture   *picture.Picture // shown instead of the data of a binary file; nil if it is no picture
	HostPath  string           // of a binary file that a local client requested by path, or ""
	Output    cfharness.ReadOutput

	kind      skills.Kind
	indexSize int64         // size of the file when it was indexed
	sliced    bool          // Data was cut to the shown part of a text
	shown     digest.Digest // of Data or of the picture, unless the whole file is shown
}

// read is one call of ReadResource or ReadURI.
type read struct {
	*request
	in ReadRequest
}

// decided has the results of the stages of a read; each is zero before its stage.
type decided struct {
	grant policy.Grant
	file  *ReadResult
}

func (s *Session) newRead(in ReadRequest) *read {
	r := &read{request: s.newRequest(in.Call, policy.Read), in: in}
	r.output = s.outputID(in.Call)
	return r
}

// ReadResource reads a file by skill and path: look up, check the path, decide, read, record,
// answer. A file that changed since the session loaded the skill is returned, marked, with both
// digests. Reading needs no activation and does not activate the skill.
//
// Errors: *Denied, *Error.
func (s *Session) ReadResource(ctx context.Context, in ReadRequest) (*ReadResult, error) {
	r := s.newRead(in)
	r.summary.Skill, r.summary.Path = new(policy.Clip(in.Skill)), new(policy.Clip(in.Path))
	if in.Bounded {
		r.summary.MaxBytes = &in.MaxBytes
	}
	if in.Invalid != nil {
		return nil, s.notRead(ctx, r, decided{}, in.Invalid)
	}
	sk, err := s.lookup(r.request, in.Skill, false)
	if err != nil {
		return nil, s.notRead(ctx, r, decided{}, err)
	}
	if a := s.activated(sk.Path); a != nil {
		// The file is compared with the version that the model was shown, not with a later scan.
		sk = a.skill
	}
	path, err := s.fileMeant(ctx, r, sk)
	if err != nil {
		return nil, s.notRead(ctx, r, decided{}, err)
	}
	d, err := s.fetch(ctx, r, sk, path)
	if err != nil {
		return nil, s.notRead(ctx, r, d, err)
	}
	if d.file.Changed && s.cfg.RefuseDrift {
		return nil, s.notRead(ctx, r, d, fault.ResourceChanged.Because(nil, "{path}", fault.Quote(path)))
	}
	whole := d.file.Data
	d.file.slice(in.Offset, in.MaxBytes, in.MaxChars)
	if !d.file.Text && in.MaxBytes > 0 {
		d.file.Picture = picture.Decode(ctx, whole, in.Call.Borrow)
	}
	if !d.file.Text && in.Call.HostPaths {
		d.file.HostPath = snapshot.HostPath(sk, path)
	}
	return s.show(ctx, r, d, whole)
}

// Files returns a skill and its files in the directory in.Path. dir is that directory with a slash at the
// end, or empty. There are no files if in.Path is not a directory or the call is refused: ReadResource then
// returns the error. Like other facts of the catalogue, a list is not recorded.
func (s *Session) Files(ctx context.Context, in ReadRequest) (
	sk *skills.Skill, dir string, files []skills.Resource,
) {
	r := s.newRequest(in.Call, policy.Read)
	sk, err := s.lookup(r, in.Skill, false)
	if in.Invalid != nil || err != nil {
		return nil, "", nil
	}
	if a := s.activated(sk.Path); a != nil {
		sk = a.skill
	}
	sk, index, err := s.cfg.Registry.Index(ctx, sk)
	if err != nil {
		return nil, "", nil
	}
	if _, denied := s.decide(r, sk, policy.Request{File: true}); denied != nil {
		return nil, "", nil
	}
	// The path can have several readings: the first one with visible files is meant.
	for _, within := range sk.Within(in.Path) {
		if index.Resource(within) != nil {
			return sk, "", nil
		}
		dir = ""
		if within != "" {
			dir = within + "/"
		}
		for _, file := range index.Resources {
			if strings.HasPrefix(file.Path, dir) && !s.Hides(sk, file.Path) {
				files = append(files, file)
			}
		}
		if len(files) > 0 {
			break
		}
	}
	return sk, dir, files
}

// ReadURI reads a whole file by its skill:// URI. A file that no longer equals the snapshot is not
// returned: ReadURI rescans the skill, and the error asks the client to list the resources again.
//
// Errors: *Denied, *Error.
func (s *Session) ReadURI(ctx context.Context, in ReadRequest) (*ReadResult, error) {
	r := s.newRead(in)
	sk, path, err := s.visible(in.Call).Resolve(in.URI)
	if err != nil || path == "" || s.Hides(sk, path) {
		unknown := fault.ResourceUnknown.Because(err, "{uri}", fault.Quote(in.URI))
		return nil, s.notRead(ctx, r, decided{}, unknown)
	}
	r.summary.Skill, r.summary.Path = &sk.Path, &path
	d, err := s.fetch(ctx, r, sk, path)
	if err != nil {
		return nil, s.notRead(ctx, r, d, err)
	}
	if d.file.Changed {
		_, err := s.cfg.Registry.RescanSkill(ctx, sk)
		return nil, s.notRead(ctx, r, d, fault.ResourceRelisted.Because(err, "{uri}", fault.Quote(in.URI)))
	}
	return s.show(ctx, r, d, d.file.Data)
}

// maxKeptWhole is the size in bytes up to which the whole file is stored if a part of it is shown: further
// parts then need no more space.
const maxKeptWhole = 1 << 20

// show stores the whole file, or the shown part of a large one, and records the read. The record of a part
// has the part's own digest.
func (s *Session) show(ctx context.Context, r *read, d decided, whole []byte) (*ReadResult, error) {
	out := d.file
	if len(out.Data) > 0 {
		shown := whole
		if len(whole) > maxKeptWhole {
			shown = out.Data
		}
		kept, err := s.keepShown(ctx, shown)
		if err != nil {
			return nil, err
		}
		if len(shown) < len(whole) {
			out.shown = kept
		}
	}
	if p := out.Picture; p != nil {
		kept, err := s.keepShown(ctx, p.Data)
		if err != nil {
			return nil, err
		}
		if p.Scaled {
			out.shown = kept
		}
	}
	out.Output = r.readOutput(out)
	if err := s.record(ctx, r.request, s.readEvent(r, d, &out.Output)); err != nil {
		return nil, err
	}
	return out, nil
}

// fetch decides whether a file of a skill may be read, and reads it. If the skill changed on disk since it
// was last read, fetch scans it first.
//
// Errors: *policy.Denial, *Error.
func (s *Session) fetch(ctx context.Context, r *read, sk *skills.Skill, path string) (d decided, err error) {
	d.grant, err = s.decide(r.request, sk, policy.Request{File: true})
	if err != nil {
		return d, err
	}
	hidden := s.Hides(sk, path)
	if hidden {
		return d, s.notFetched(ctx, r, sk, path, skills.ErrNotIndexed)
	}
	resource := sk.Resource(ctx, path)
	// Without this wait, two dozen reads of a large file at once exhausted a server with 2 GiB of memory.
	if resource != nil && r.call.Room != nil {
		if err := r.call.Room(ctx, resource.Size); err != nil {
			return d, err
		}
	}
	content, err := sk.Read(ctx, path, skills.MaxFile)
	// The policy decides again about the fresh version, because the edit may have hidden the skill or
	// changed what it allows.
	if fresh := s.rescanned(ctx, r, sk, path, err); fresh != nil {
		return s.fetch(ctx, r, fresh, path)
	}
	if err != nil {
		return d, s.notFetched(ctx, r, sk, path, err)
	}
	// The client no longer guesses paths.
	s.mu.Lock()
	delete(s.misses, sk.Path)
	s.mu.Unlock()
	d.file = &ReadResult{
		Skill: sk, Path: path, URI: sk.URI(path), Data: content.Data, Size: content.Size,
		Want: sk.Digest, Got: content.Digest, Changed: !content.Matches, MIMEType: "text/markdown",
		Text:      utf8.Valid(content.Data) && bytes.IndexByte(content.Data, 0) < 0,
		indexSize: sk.Size, kind: "other",
	}
	if resource != nil {
		d.file.Want, d.file.indexSize = resource.Digest, resource.Size
		d.file.MIMEType, d.file.kind = resource.MIMEType, resource.Kind
	}
	return d, nil
}

// rescanned returns the present version of a skill on disk if err, the error of reading a file, means that
// the skill changed or the file was added since; else nil. The files of an active skill are compared with its
// index, so reading them reports no drift.
func (s *Session) rescanned(
	ctx context.Context, r *read, sk *skills.Skill, path string, err error,
) *skills.Skill {
	if _, drift := errors.AsType[*skills.DriftError](err); drift {
		fresh, _, err := s.cfg.Registry.Index(ctx, sk)
		if err == nil {
			return fresh
		}
	}
	if !errors.Is(err, skills.ErrNotIndexed) {
		return nil
	}
	fresh, index, err := s.current(ctx, sk)
	// A file that belongs to a nested skill which the catalogue does not have yet is not served as a file of
	// this one: the nested skill may be hidden or excluded.
	if err != nil || fresh == sk || index.Resource(path) == nil ||
		!s.visible(r.call).KnowsNested(fresh, index, path) {
		return nil
	}
	return fresh
}

// notFetched returns the error of a file that could not be read. A file of a hidden skill is answered like
// one that does not exist.
//
// Errors: *policy.Denial, *Error.
func (s *Session) notFetched(ctx context.Context, r *read, sk *skills.Skill, path string, err error) error {
	switch {
	case errors.Is(err, skills.ErrOutsideRoot):
		return r.denial(fileOutsideRoot, sk.Path, path)
	case errors.Is(err, skills.ErrPermission):
		return r.denial(fileNotReadable, sk.Path, path)
	}
	failure := readError(err, sk, path)
	if failure.Code != fault.CodeResourceNotIndexed {
		return failure
	}
	index, unread := sk.Index(ctx)
	if unread != nil {
		return failure
	}
	if reason := unserved(index.Diagnostics, path); reason != "" && !s.Hides(sk, path) {
		return fault.ResourceNotServed.Because(err, "{path}", fault.Quote(path), "{reason}", reason)
	}
	failure.Remedy = s.insteadRead(sk, index, path)
	return failure
}

// slice cuts the data to the part from offset with at most most bytes, and chars characters unless that is 0.
// It does not split a character.
func (r *ReadResult) slice(offset, most int64, chars int) {
	r.Offset = offset
	if !r.Text {
		// A model gets the picture of a binary file, or none of its bytes.
		r.Data = nil
		return
	}
	start := min(offset, r.Size)
	for start > 0 && start < r.Size && !utf8.RuneStart(r.Data[start]) {
		start++
	}
	end := min(start+most, r.Size)
	for end > start && end < r.Size && !utf8.RuneStart(r.Data[end]) {
		end--
	}
	r.Offset, r.Data, r.sliced = start, r.Data[start:end], true
	if chars > 0 {
		r.Data = CutText(r.Data, chars)
	}
}

// readOutput returns the reference implementation's output object of a read. f is nil if no file was read.
func (r *read) readOutput(f *ReadResult) cfharness.ReadOutput {
	o := cfharness.ReadOutput{
		Type: cfharness.TypeReadOutput, OutputID: r.output, CFCPromptRole: cfharness.PromptRoleContext,
		Skill: policy.Clip(r.in.Skill), Path: policy.Clip(r.in.Path), Status: cfharness.StatusRead,
	}
	if f == nil {
		return o
	}
	o.Skill, o.Path, o.Kind = f.Skill.Path, f.Path, string(f.kind)
	o.SandboxResourcePath = snapshot.SandboxPath(f.Skill, f.Path)
	o.RegistryDigest, o.ObservedDigest, o.DigestMatchesRegistry = f.Want, f.Got, new(!f.Changed)
	o.RegistrySizeBytes, o.ObservedSizeBytes, o.ContentKind = &f.indexSize, &f.Size, "text"
	if !f.Text {
		o.ContentKind, o.Status, o.Truncated = "binary", cfharness.StatusBinary, new(false)
	}
	if f.Changed {
		o.Diagnostics = append(o.Diagnostics, cfharness.RegistryDiagnostic{
			Severity: "warning", Code: "skill-resource-snapshot-mismatch",
			Detail: "Skill resource differs from the run-start registry snapshot; " +
				"returning call-time file content.", Path: f.Path,
		})
	}
	if f.sliced {
		end := f.Offset + int64(len(f.Data))
		o.Content, o.MaxBytes = new(string(f.Data)), &r.in.MaxBytes
		o.Truncated = new(f.Offset > 0 || end < f.Size)
	}
	return o
}

// readEvent returns the event of a read, or of an attempt that failed.
func (s *Session) readEvent(r *read, d decided, o *cfharness.ReadOutput) *provenance.Event {
	row := cfharness.ResourceRead{
		Type: cfharness.TypeResourceRead, OutputID: o.OutputID, RunID: s.id, SkillName: o.Skill, Path: o.Path,
		Status: o.Status, ReadAt: provenance.Stamp(s.cfg.Now()), CFCPromptRole: o.CFCPromptRole, Kind: o.Kind,
		FileFacts: o.FileFacts, ContentKind: o.ContentKind, MaxBytes: o.MaxBytes, Truncated: o.Truncated,
		Diagnostics: o.Diagnostics, Error: o.Error,
		Skillsd: &cfharness.ReadExtension{Via: r.call.Method, TaskID: r.call.Turn},
	}
	e := &provenance.Event{Kind: provenance.KindResourceRead, Skill: o.Skill, Path: o.Path,
		Detail: string(o.Status)}
	if o.Error != nil {
		e.Detail = o.Error.Code
	} else {
		f := d.file
		row.ResourcePath = snapshot.HostPath(f.Skill, f.Path)
		row.Skillsd.Offset, row.Skillsd.Bytes, row.Skillsd.Shown = &f.Offset, new(int64(len(f.Data))), f.shown
		if f.Picture != nil {
			*row.Skillsd.Bytes = int64(len(f.Picture.Data))
		}
		e.Want, e.Got = f.Want.String(), f.Got.String()
	}
	if d.grant.Decision != "" {
		e.Decision = s.granted(r.request, d.grant)
	}
	e.Row = encode(row)
	return e
}

// notRead records why a file was not read, and returns the error for the caller.
func (s *Session) notRead(ctx context.Context, r *read, d decided, err error) error {
	if denial, ok := errors.AsType[*policy.Denial](err); ok {
		return s.deny(ctx, r.request, denial)
	}
	failure, ok := errors.AsType[*Error](err)
	if !ok {
		failure = fault.Internal(err)
	}
	o := r.readOutput(d.file)
	o.Status = cfharness.StatusError
	o.Error = &cfharness.RecordError{Code: string(failure.Code), Message: failure.Message}
	o.Content = nil
	if err := s.record(ctx, r.request, s.readEvent(r, d, &o)); err != nil {
		return err
	}
	failure.Output = o
	return failure
}
