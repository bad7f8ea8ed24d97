package session

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// finish keeps the output, releases or withholds it as decided before the run, and records what
// happened. A run that was cancelled is recorded too, although nobody waits for its answer.
func (s *Session) finish(ctx context.Context, r *run) (*RunResult, error) {
	ctx = context.WithoutCancel(ctx)
	s.awaitCapabilities(ctx)
	r.withheld, r.redacted = redactResult(r.redact, r.result, r.secret)
	out, files, keepErr := s.keep(ctx, r)
	result := &RunResult{
		Outcome: string(r.result.Outcome), ExitCode: r.result.ExitCode, Signal: r.result.Signal, Duration: r.result.Duration,
		Backend: r.result.Backend, Stdout: stream(&r.result.Stdout), Stderr: stream(&r.result.Stderr), Out: out, Writes: r.result.Writes,
		OutSkips: r.result.OutSkips, Skipped: quotedNames(r.result.Skipped),
	}
	if r.result.Outcome == sandbox.Exited {
		r.out.ExitCode = &r.result.ExitCode
	}
	r.out.CFC = r.result.Mediation
	// The record tells of the whole streams, the answer of what is shown of them.
	r.out.Skillsd = r.extension(result)
	if r.grant.Release == policy.ReleaseOpaque {
		result.Stdout.withhold(r.out.OutputID + ":stdout")
		result.Stderr.withhold(r.out.OutputID + ":stderr")
		result.Out, result.OutSkips, result.Skipped = nil, 0, nil
	}
	cutStreams(&result.Stdout, &result.Stderr)
	result.Stdout.describe(&r.out.Stdout, &r.out.StdoutTruncated, &r.out.StdoutOriginalLength)
	result.Stderr.describe(&r.out.Stderr, &r.out.StderrTruncated, &r.out.StderrOriginalLength)
	if keepErr == nil {
		keepErr = s.keepStreams(ctx, r, result)
	}
	e := s.runEvent(r)
	e.Files = files
	if keepErr != nil {
		s.broken.Store(true)
		return nil, s.owe(debt{event: e, run: r}, keepErr)
	}
	if err := s.record(ctx, r.request, e); err != nil {
		r.notShown()
		e.Row = s.executionRow(r)
		return nil, s.owe(debt{event: e}, err)
	}
	result.Output = r.out
	return result, nil
}

// debt is the record of a run that could not be written.
type debt struct {
	event *provenance.Event
	run   *run // when its output could not be kept either
}

// owe keeps a record that could not be written. Until it is, nothing runs.
func (s *Session) owe(d debt, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed = append(s.owed, d)
	return &Error{Code: CodeProvenanceUnavailable, Message: "the script ran, but its record could not be written, so its output is withheld and nothing more runs",
		Remedy: "the operator can free space or fix permissions under --artifact-root; then call again", Err: err}
}

// settle writes the records that are owed, also those of a session that ends.
func (s *Session) settle(ctx context.Context) error {
	s.settling.Lock()
	defer s.settling.Unlock()
	for {
		s.mu.Lock()
		if len(s.owed) == 0 {
			s.mu.Unlock()
			return nil
		}
		d := s.owed[0]
		s.mu.Unlock()
		e := d.event
		if d.run != nil {
			out, files, err := s.keep(context.WithoutCancel(ctx), d.run)
			if err != nil {
				return recordError(err)
			}
			d.run.out.Skillsd.Out = out
			e.Files, e.Row = files, s.executionRow(d.run)
		}
		// What the store filled in for an attempt that failed is not this one's.
		e.Seq, e.Time, e.Prev, e.Hash = 0, time.Time{}, "", ""
		if err := s.write(context.WithoutCancel(ctx), e); err != nil {
			return err
		}
		s.mu.Lock()
		s.owed = s.owed[1:]
		s.mu.Unlock()
	}
}

// keep writes the streams and the files left in /out into the session's records.
func (s *Session) keep(ctx context.Context, r *run) (out []cfharness.OutFile, files []provenance.File, err error) {
	put := func(name string, data []byte) error {
		if len(data) == 0 {
			return nil
		}
		file, err := s.cfg.Records.Put(ctx, s.id, name, data)
		files = append(files, file)
		return err
	}
	if err := put(provenance.OutputName(r.out.OutputID, "stdout"), slices.Concat(r.result.Stdout.Head, r.result.Stdout.Tail)); err != nil {
		return nil, nil, err
	}
	if err := put(provenance.OutputName(r.out.OutputID, "stderr"), slices.Concat(r.result.Stderr.Head, r.result.Stderr.Tail)); err != nil {
		return nil, nil, err
	}
	for i, left := range r.result.Out {
		if slices.Contains(r.withheld, i) {
			out = append(out, cfharness.OutFile{Name: left.Name, Withheld: string(policy.NeedsSanitizingWorker)})
			continue
		}
		name := provenance.OutputName(r.out.OutputID, "out-"+strconv.Itoa(i))
		if err := put(name, left.Data); err != nil {
			return nil, nil, err
		}
		out = append(out, cfharness.OutFile{Name: left.Name, Bytes: int64(len(left.Data)), Digest: digest.FromBytes(left.Data),
			URI: ArtifactBase + name})
	}
	return out, files, nil
}

// quotedNames makes names of any bytes text that can be shown.
func quotedNames(names []string) []string {
	var list []string
	for _, name := range names {
		list = append(list, strconv.Quote(name[:min(len(name), 200)]))
	}
	return list
}

// maxWrites is how many changes to a workspace a record lists.
const maxWrites = 500

// extension is the part of a run's record that the reference's shapes have no place for.
func (r *run) extension(result *RunResult) *cfharness.RunExtension {
	limits := r.result.Limits
	workspace := string(r.cmd.Workspace.Mode)
	if workspace == "" {
		workspace = string(sandbox.WorkspaceNone)
	}
	x := &cfharness.RunExtension{
		Outcome: cfharness.Outcome(result.Outcome), Signal: result.Signal, DurationMS: result.Duration.Milliseconds(), Backend: result.Backend,
		Limits:  limitsOf(limits),
		Network: "none", Workspace: workspace, TreeDigest: r.index.TreeDigest,
		Stdout: cfharness.StreamSummary{Bytes: result.Stdout.Total, Digest: result.Stdout.Digest, Truncated: result.Stdout.Truncated},
		Stderr: cfharness.StreamSummary{Bytes: result.Stderr.Total, Digest: result.Stderr.Digest, Truncated: result.Stderr.Truncated},
		Out:    result.Out, OutSkips: result.OutSkips, Skipped: result.Skipped,
		TaskID: r.in.Call.Turn,
	}
	for _, w := range listed(r.result.Writes) {
		x.Writes = append(x.Writes, cfharness.WorkspaceWrite{Path: w.Path, Op: w.Op, Bytes: w.Size, Digest: digest.Digest(w.Digest), Refused: w.Refused})
	}
	x.WritesUnlisted = len(r.result.Writes) - len(x.Writes)
	x.Stdout.Redacted, x.Stderr.Redacted = r.redacted, r.redacted
	if r.cache != nil {
		x.CacheDigest = r.cache.used
	}
	r.networked(x)
	return x
}

// listed are the changes that a record has room for, in their order. When there are too many, what was
// refused comes before what was applied, as in the answer.
func listed(writes []sandbox.Write) []sandbox.Write {
	if len(writes) <= maxWrites {
		return writes
	}
	refused := 0
	for _, w := range writes {
		if w.Refused != "" {
			refused++
		}
	}
	refused = min(refused, maxWrites)
	applied := maxWrites - refused
	var l []sandbox.Write
	for _, w := range writes {
		room := &applied
		if w.Refused != "" {
			room = &refused
		}
		if *room > 0 {
			*room--
			l = append(l, w)
		}
	}
	return l
}

// executionRow is the row of a run, or of an attempt that did not start.
func (s *Session) executionRow(r *run) json.RawMessage {
	o := r.out
	row := cfharness.ScriptExecution{
		Type: cfharness.TypeScriptExecution, OutputID: o.OutputID, RunID: s.id, SkillName: o.Skill, Path: o.Path, Status: o.Status,
		ExecutedAt: provenance.Stamp(r.at), ExecutionTarget: o.ExecutionTarget, Runtime: o.Runtime, Argv: o.Argv, Args: o.Args, CWD: o.CWD,
		SandboxResourcePath: o.SandboxResourcePath, RegistryDigest: o.RegistryDigest, ObservedDigest: o.ObservedDigest,
		DigestMatchesRegistry: o.DigestMatchesRegistry, RegistrySizeBytes: o.RegistrySizeBytes, ObservedSizeBytes: o.ObservedSizeBytes,
		ExitCode: o.ExitCode, Diagnostics: o.Diagnostics, Error: o.Error, Skillsd: o.Skillsd,
	}
	if o.Error == nil {
		row.ResourcePath = hostPath(r.skill, r.path)
	}
	return encode(row)
}

// runEvent is the record of a run, or of an attempt that did not start.
func (s *Session) runEvent(r *run) *provenance.Event {
	o := r.out
	e := &provenance.Event{Kind: provenance.KindScriptExecuted, Skill: o.Skill, Path: o.Path, Row: s.executionRow(r)}
	if o.Error != nil {
		e.Detail = o.Error.Code
	} else {
		e.Detail = string(o.Skillsd.Outcome)
		e.Want, e.Got = o.RegistryDigest.String(), o.ObservedDigest.String()
	}
	if r.grant.Decision != "" {
		e.Decision = s.granted(r.request, r.grant)
	}
	e.Invocation = s.invocation(r)
	return e
}

// runFailed records an attempt that did not start and returns its error.
func (s *Session) runFailed(ctx context.Context, r *run, failure *Error) (*RunResult, error) {
	o := &r.out
	failure.Message = r.redact.Text(failure.Message)
	o.Status, o.Error = cfharness.StatusError, &cfharness.RecordError{Code: string(failure.Code), Message: failure.Message}
	// The target stands in records of errors only where the reference has it.
	if failure.Code != CodeCwdDenied {
		o.ExecutionTarget = ""
	}
	if err := s.record(ctx, r.request, s.runEvent(r)); err != nil {
		return nil, err
	}
	return &RunResult{Output: r.out}, failure
}

// stream is what a run printed, as text.
func stream(s *sandbox.Stream) Stream {
	return Stream{Head: text(s.Head), Tail: text(s.Tail), Total: s.Total, Truncated: s.Truncated, Digest: digest.Digest(s.SHA256)}
}

// text replaces what is not UTF-8, so that the bytes survive JSON as something readable.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// withhold puts an opaque handle in the place of the stream.
func (s *Stream) withhold(id string) { s.Head, s.Tail, s.Withheld = "", "", id }

// describe fills the reference's fields for a stream: the released text and nothing more.
func (s *Stream) describe(released **string, truncated **bool, length **int64) {
	if s.Withheld != "" {
		return
	}
	*released = new(s.Head + s.Tail)
	if s.Truncated {
		*truncated, *length = new(true), &s.Total
	}
}
