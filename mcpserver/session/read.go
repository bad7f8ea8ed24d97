package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

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
	URI      string // instead of both: the whole file, only while it equals the snapshot
	MaxBytes int64  // most bytes to show
	MaxChars int    // most characters to show; 0 is no bound
	Offset   int64
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
	Want, Got digest.Digest // of the file when the session loaded the skill, and now
	Changed   bool          // Want and Got differ
	Rescanned bool          // the registry was brought up to date because of a change
	Output    cfharness.ReadOutput

	shown digest.Digest // of Data, when that is not the whole file
}

// OutputObject is the reference's output object, also of a read that failed.
func (r *ReadResult) OutputObject() any {
	if r == nil {
		return nil
	}
	return r.Output
}

// ReadResource reads a file by skill and path: look up, check the path, decide, read, record,
// answer. A file that changed since the session loaded the skill is returned, marked, with both
// digests. Reading needs no activation and is none.
//
// Errors: *Denied, *Error; the result is then nil or holds only Output.
func (s *Session) ReadResource(ctx context.Context, r ReadRequest) (*ReadResult, error) {
	req := s.newRequest(r.Call, policy.Read)
	req.summary.Skill, req.summary.Path, req.summary.MaxBytes = new(clip(r.Skill)), new(clip(r.Path)), &r.MaxBytes
	out := s.newRead(r)
	sk, err := s.lookup(r.Call, r.Skill)
	if excluded := s.excludes(req, r.Skill, err); excluded != nil {
		return nil, s.deny(ctx, req, excluded)
	}
	if err != nil {
		return s.readFailed(ctx, req, out, s.lookupError(r.Call, err))
	}
	if a := s.activated(sk.Path); a != nil {
		sk = a.skill
	}
	out.Skill, req.skill = sk, sk
	if out.Path, err = skills.CleanPath(r.Path); err != nil {
		return s.readFailed(ctx, req, out, &Error{Code: CodeResourcePathInvalid, Message: err.Error(),
			Remedy: "use a path from the skill's file list, relative to the skill, with / between names", Err: err})
	}
	req.path = out.Path
	grant, denial := s.decideRead(req)
	if denial != nil {
		return nil, s.deny(ctx, req, denial)
	}
	req.grant = &grant
	if err := s.fetch(ctx, out); err != nil {
		return s.fetchFailed(ctx, req, out, err)
	}
	if out.Changed && s.cfg.RefuseDrift {
		out.Data = nil
		return s.readFailed(ctx, req, out, &Error{Code: CodeResourceChanged, Message: fmt.Sprintf("%q changed since it was indexed", clip(out.Path)),
			Remedy: "call load_skill again for the current version"})
	}
	whole := out.Data
	out.slice(r.MaxBytes, r.MaxChars)
	if err := s.keepPart(ctx, out, whole); err != nil {
		return nil, err
	}
	if err := s.record(ctx, req, s.readEvent(req, out)); err != nil {
		return nil, err
	}
	return out, nil
}

// ReadURI reads a whole file by its skill:// URI. A file that no longer equals the snapshot is not
// returned: the caller is told to list again and the registry is brought up to date.
//
// Errors: *Denied, *Error.
func (s *Session) ReadURI(ctx context.Context, r ReadRequest) (*ReadResult, error) {
	req := s.newRequest(r.Call, policy.Read)
	out := s.newRead(r)
	sk, file, err := s.visible(r.Call).Resolve(r.URI)
	if err != nil || file == "" {
		return s.readFailed(ctx, req, out, &Error{Code: CodeResourceNotFound, Message: fmt.Sprintf("no resource %q", clip(r.URI)),
			Remedy: "list the resources for the URIs there are", Err: err})
	}
	out.Skill, out.Path, req.skill, req.path = sk, file, sk, file
	req.summary.Skill, req.summary.Path = &sk.Path, &file
	grant, denial := s.decideRead(req)
	if denial != nil {
		return nil, s.deny(ctx, req, denial)
	}
	req.grant = &grant
	if err := s.fetch(ctx, out); err != nil {
		return s.fetchFailed(ctx, req, out, err)
	}
	if out.Changed {
		_, err := s.cfg.Registry.RescanSkill(ctx, sk)
		out.Rescanned, out.Data = err == nil, nil
		return s.readFailed(ctx, req, out, &Error{Code: CodeResourceChanged, Message: fmt.Sprintf("%q changed since it was listed", clip(r.URI)),
			Remedy: "list the resources again and read the current one", Err: err})
	}
	out.Output.MaxBytes = nil
	if err := s.keepPart(ctx, out, out.Data); err != nil {
		return nil, err
	}
	if err := s.record(ctx, req, s.readEvent(req, out)); err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Session) newRead(r ReadRequest) *ReadResult {
	out := &ReadResult{Path: clip(r.Path), Offset: r.Offset}
	out.Output = cfharness.ReadOutput{
		Type: cfharness.TypeReadOutput, OutputID: s.outputID(r.Call.Method), Skill: clip(r.Skill), Path: out.Path,
		Status: cfharness.StatusRead, CFCPromptRole: cfharness.PromptRoleContext,
	}
	return out
}

// fetch reads the file and notes the facts of it.
func (s *Session) fetch(ctx context.Context, out *ReadResult) error {
	sk := out.Skill
	content, err := sk.Read(ctx, out.Path, skills.MaxFile)
	if err != nil {
		return err
	}
	out.URI = sk.URI(out.Path)
	out.Data, out.Size, out.Got, out.Changed = content.Data, content.Size, content.Digest, !content.Matches
	out.Want, out.MIMEType = sk.Digest, "text/markdown"
	size, kind := sk.Size, skills.Kind("other")
	if resource := sk.Resource(ctx, out.Path); resource != nil {
		out.Want, out.MIMEType, size, kind = resource.Digest, resource.MIMEType, resource.Size, resource.Kind
	}
	out.Text = utf8.Valid(content.Data) && !bytes.ContainsRune(content.Data, 0)
	o := &out.Output
	o.Skill, o.Path, o.Kind, o.SandboxResourcePath = sk.Path, out.Path, string(kind), sandboxPath(sk, out.Path)
	o.RegistryDigest, o.ObservedDigest, o.DigestMatchesRegistry = out.Want, out.Got, &content.Matches
	o.RegistrySizeBytes, o.ObservedSizeBytes = &size, &out.Size
	o.ContentKind = "text"
	if !out.Text {
		o.ContentKind, o.Status = "binary", cfharness.StatusBinary
	}
	if out.Changed {
		o.Diagnostics = append(o.Diagnostics, cfharness.RegistryDiagnostic{Severity: "warning", Code: "skill-resource-snapshot-mismatch",
			Detail: "the file changed since it was indexed", Path: out.Path})
	}
	return nil
}

// slice cuts the data to what is shown, at a line or a character. The record says the same.
func (r *ReadResult) slice(most int64, chars int) {
	if !r.Text {
		r.Data = nil
		return
	}
	start := min(r.Offset, r.Size)
	for start > 0 && start < r.Size && !utf8.RuneStart(r.Data[start]) {
		start++
	}
	end := min(start+most, r.Size)
	for end > start && end < r.Size && !utf8.RuneStart(r.Data[end]) {
		end--
	}
	r.Offset, r.Data = start, r.Data[start:end]
	if chars > 0 {
		r.Data = Cut(r.Data, chars)
		end = start + int64(len(r.Data))
	}
	text := string(r.Data)
	r.Output.Content, r.Output.MaxBytes, r.Output.Truncated = &text, &most, new(start > 0 || end < r.Size)
}

// readEvent is the record of a read; every attempt has one, errors included.
func (s *Session) readEvent(req *request, out *ReadResult) *provenance.Event {
	o := out.Output
	row := cfharness.ResourceRead{
		Type: cfharness.TypeResourceRead, OutputID: o.OutputID, RunID: s.id, SkillName: o.Skill, Path: o.Path, Status: o.Status,
		ReadAt: provenance.Stamp(s.cfg.Now()), CFCPromptRole: o.CFCPromptRole, Kind: o.Kind, SandboxResourcePath: o.SandboxResourcePath,
		RegistryDigest: o.RegistryDigest, ObservedDigest: o.ObservedDigest, DigestMatchesRegistry: o.DigestMatchesRegistry,
		RegistrySizeBytes: o.RegistrySizeBytes, ObservedSizeBytes: o.ObservedSizeBytes, ContentKind: o.ContentKind,
		MaxBytes: o.MaxBytes, Truncated: o.Truncated, Diagnostics: o.Diagnostics, Error: o.Error,
		Skillsd: &cfharness.ReadExtension{Via: req.call.Method, TaskID: req.call.Turn},
	}
	e := &provenance.Event{Kind: provenance.KindResourceRead, Skill: o.Skill, Path: o.Path, Detail: string(o.Status)}
	if o.Error != nil {
		e.Detail = o.Error.Code
	} else {
		row.ResourcePath = hostPath(out.Skill, out.Path)
		row.Skillsd.Offset, row.Skillsd.Bytes, row.Skillsd.Shown = &out.Offset, new(int64(len(out.Data))), out.shown
		e.Want, e.Got = out.Want.String(), out.Got.String()
	}
	if req.grant != nil {
		e.Decision = s.granted(req, *req.grant)
	}
	e.Row = encode(row)
	return e
}

// fetchFailed answers a file that could not be read: a denial where the reference has one.
func (s *Session) fetchFailed(ctx context.Context, req *request, out *ReadResult, err error) (*ReadResult, error) {
	switch {
	case errors.Is(err, skills.ErrOutsideRoot):
		return nil, s.deny(ctx, req, s.denial(req, policy.CodeResourceOutsideRoot, "the file lies outside of its skill", "the operator can put the file inside the skill"))
	case errors.Is(err, skills.ErrPermission):
		return nil, s.deny(ctx, req, s.denial(req, policy.CodePermissionDenied, "the server may not read this file", "the operator can make the file readable for the server"))
	}
	failure := readError(err, out.Path)
	if index, indexErr := out.Skill.Index(ctx); indexErr == nil && failure.Code == CodeResourceNotIndexed {
		if reason := unserved(index.Diagnostics, out.Path); reason != "" {
			failure.Message = fmt.Sprintf("%q is not served: %s", clip(out.Path), reason)
		}
	}
	return s.readFailed(ctx, req, out, failure)
}

// readFailed records a failed read and returns its error.
func (s *Session) readFailed(ctx context.Context, req *request, out *ReadResult, failure *Error) (*ReadResult, error) {
	o := &out.Output
	o.Status, o.Error = cfharness.StatusError, &cfharness.RecordError{Code: string(failure.Code), Message: failure.Message}
	o.Content = nil
	if err := s.record(ctx, req, s.readEvent(req, out)); err != nil {
		return nil, err
	}
	return out, failure
}
