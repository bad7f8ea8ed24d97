package session

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// ending describes how a run with a result ends.
type ending struct {
	room func() // releases the room that was reserved for the outcome; nil if none was
	// late means that no caller waits: a worker reported the outcome later.
	late bool
	// supersedes is the ID of the event that recorded the outcome as unknown, or "".
	supersedes string
}

// finish stores the output of a run, withholds from the answer the output that the caller may not see,
// records the outcome, and returns the answer. A canceled run is recorded too, although its caller no longer
// waits for the answer.
//
// Errors: *Error.
func (s *Session) finish(
	ctx context.Context, r *run, result *sandbox.Result, end ending,
) (*RunResult, error) {
	ctx = context.WithoutCancel(ctx)
	// The record describes the machine before its first run.
	select {
	case <-s.awaitedFile(provenance.CapabilitiesFile):
	case <-time.After(capabilitiesPatience):
	}
	// Redaction comes first: no secret may reach a file, a digest or the answer.
	hidden := r.redact(result)
	files, out, keepErr := s.keepInRoom(ctx, r.output, result, hidden.withheld, end.room)
	answer := answerOf(result, out)
	// The record describes the whole streams, the answer only what is shown of them.
	x := r.extension(result, answer, hidden.recounted, end)
	x.Kept = s.kept(ctx, r, result)
	released, refusals := s.withhold(r, result, answer, x)
	// The hint about a missing program or module quotes standard error: it must not reveal withheld output.
	if result.ExitCode != 0 && answer.Stderr.Withheld == nil && !answer.ExitWithheld {
		x.Missing = s.missing(r, x, answer.Stderr.Head+answer.Stderr.Tail)
	}
	stdout, stderr := answer.cut(r.call.Records != nil)
	if keepErr == nil && !end.late {
		keepErr = s.keepAnswer(ctx, r, x, result, answer, &stdout, &stderr)
	}
	output := s.resultOutput(r, x, result, released, &stdout, &stderr)
	event := s.runEvent(ctx, r, &output)
	event.Files = files
	events := append(slices.Clip(refusals), event)
	err := keepErr
	if keepErr != nil {
		// The session is then as broken as after an event that could not be written.
		s.broken.Store(true)
	} else {
		events, err = recordEach(events, func(e *provenance.Event) error {
			return s.record(ctx, r.request, e)
		})
	}
	if err != nil {
		// The caller gets an error, so the outcome, which is recorded later, lists nothing as shown.
		x.Stdout.Shown, x.Stderr.Shown = nil, nil
		for i := range x.Out {
			x.Out[i].Shown = nil
		}
		s.addPending(&pendingOutcome{run: r, result: result, withheld: hidden.withheld,
			kept: keepErr == nil, record: x, output: &output, events: events})
		return nil, fault.OutcomeUnrecorded.Because(err)
	}
	s.makeCache(r, result)
	answer.linkRefusals(refusals)
	// The record keeps the paths of this machine; the answer does not show them.
	output.Skillsd = cfharness.Pathless(x)
	if !s.release(r, answer) {
		output.Skillsd, output.ExitCode = cfharness.Sealed(output.Skillsd, output.ExitCode)
	}
	answer.Output, answer.Remote = output, r.call.Remote
	answer.seal()
	return answer, nil
}

// redacted is the effect of redaction on the result of a run.
type redacted struct {
	withheld  []int // indexes of the files of /out that are not shown
	recounted bool  // the streams' sizes and digests are those after redaction
}

// redact removes the secrets from a result. What it returns includes the redactions that the worker of the
// run made.
func (r *run) redact(result *sandbox.Result) redacted {
	withheld, recounted := redactResult(r.secrets, result, r.cmd.given)
	if done := r.cmd.done; done != nil {
		withheld, recounted = append(withheld, done.Withheld...), recounted || done.Recounted
	}
	return redacted{withheld, recounted}
}

// keepInRoom calls keep while it releases the room that was reserved for the outcome; release is nil if none
// was.
func (s *Session) keepInRoom(
	ctx context.Context, output string, result *sandbox.Result, withheld []int, release func(),
) (files []provenance.File, out []cfharness.OutFile, err error) {
	// Gates reserve room under the write lock, so no gate gets this room before keep returns.
	s.rooms.RLock()
	defer s.rooms.RUnlock()
	var releasing sync.WaitGroup
	if release != nil {
		// This takes as long as keep, so both are done concurrently.
		releasing.Go(release)
	}
	files, out, err = s.keep(ctx, output, result, withheld)
	releasing.Wait()
	// keep may have needed the room before it was free.
	if err != nil {
		return s.keep(ctx, output, result, withheld)
	}
	return files, out, nil
}

// answerOf returns the answer about a result before output is withheld. out lists the kept files of /out.
func answerOf(result *sandbox.Result, out []cfharness.OutFile) *RunResult {
	answer := &RunResult{
		Outcome: string(result.Outcome), ExitCode: result.ExitCode, Signal: result.Signal,
		Duration: result.Duration, Backend: result.Backend,
		Stdout: streamOf(&result.Stdout), Stderr: streamOf(&result.Stderr),
		Out: out, OutSkips: result.OutSkips, Writes: result.Writes,
	}
	// File names can have any bytes.
	for _, name := range result.Skipped {
		answer.Skipped = append(answer.Skipped, strconv.Quote(name[:min(len(name), 200)]))
	}
	return answer
}

// cut truncates the streams of an answer to the size that a model is shown. It returns the streams for the
// output object, which are longer if a program made the call: as much as fits into a message.
func (a *RunResult) cut(program bool) (stdout, stderr Stream) {
	stdout, stderr = a.Stdout, a.Stderr
	cutStreams(&a.Stdout, &a.Stderr)
	if !program {
		return a.Stdout, a.Stderr
	}
	fitStreams(&stdout, &stderr)
	return stdout, stderr
}

// keepAnswer stores the parts of the output that the caller is shown, and adds them to the record.
func (s *Session) keepAnswer(
	ctx context.Context, r *run, x *cfharness.RunExtension, result *sandbox.Result, answer *RunResult,
	stdout, stderr *Stream,
) error {
	if err := s.keepStreams(ctx, x, stdout, stderr); err != nil {
		return err
	}
	if !r.in.ShowOut {
		return nil
	}
	return s.showOut(ctx, r, result, answer)
}

// resultOutput returns the reference implementation's output object of a run with a result.
func (s *Session) resultOutput(r *run, x *cfharness.RunExtension, result *sandbox.Result,
	released *cfharness.SandboxResult, stdout, stderr *Stream) cfharness.RunOutput {
	output := s.runOutput(r)
	output.Skillsd = x
	if result.Outcome == sandbox.Exited || result.Outcome == sandbox.Signaled {
		output.ExitCode = &result.ExitCode
	}
	stdout.Describe(&output.Stdout, &output.StdoutTruncated, &output.StdoutOriginalLength)
	stderr.Describe(&output.Stderr, &output.StderrTruncated, &output.StderrOriginalLength)
	// On the host, no runtime observes the output. A model needs the observation only if a runtime labeled
	// it.
	if r.grant.Target == policy.TargetHost || r.call.Records == nil && result.Mediation == nil {
		return output
	}
	stdout.Observe(&released.Stdout)
	stderr.Observe(&released.Stderr)
	observeExit(&released.ExitCode, output.ExitCode, result.Outcome)
	output.CFCResult = released
	return output
}

// recordEach records events in their order. If one fails, it returns the events from that one on.
func recordEach(events []*provenance.Event, record func(e *provenance.Event) error,
) ([]*provenance.Event, error) {
	for i, e := range events {
		if err := record(e); err != nil {
			return events[i:], err
		}
	}
	return nil, nil
}

// pendingOutcome is the outcome of a run that could not be recorded yet. The session runs no other script
// before it is recorded.
type pendingOutcome struct {
	run      *run
	result   *sandbox.Result
	withheld []int
	kept     bool // the output is stored
	record   *cfharness.RunExtension
	output   *cfharness.RunOutput
	events   []*provenance.Event // not recorded yet; the last one is the outcome
}

// addPending queues an outcome for flushPending.
func (s *Session) addPending(d *pendingOutcome) {
	s.sequence.Lock()
	defer s.sequence.Unlock()
	s.pending = append(s.pending, d)
}

// writePending records a pending outcome. s.sequence is held.
func (s *Session) writePending(ctx context.Context, d *pendingOutcome) error {
	outcome := d.events[len(d.events)-1]
	if !d.kept {
		files, out, err := s.keep(ctx, d.run.output, d.result, d.withheld)
		if err != nil {
			return fault.OfRecord(err)
		}
		outcome.Files, d.record.Out, d.kept = files, out, true
	}
	outcome.Row = s.executionRow(ctx, d.run, d.output)
	var err error
	d.events, err = recordEach(d.events, func(e *provenance.Event) error {
		// The failed attempt may have set these fields, which the store fills in.
		e.Seq, e.Time, e.Prev, e.Hash = 0, time.Time{}, "", ""
		return s.write(ctx, e)
	})
	return err
}

// linkRefusals sets the event IDs of the objects that replace withheld streams.
func (a *RunResult) linkRefusals(refusals []*provenance.Event) {
	for _, stream := range []*Stream{&a.Stdout, &a.Stderr} {
		if stream.Withheld != nil {
			stream.Withheld.EventID, refusals = refusals[0].ID(), refusals[1:]
		}
	}
}

// seal clears the fields of an opaque run's answer that its output object does not have either.
func (a *RunResult) seal() {
	if !a.Opaque {
		return
	}
	a.Outcome, a.ExitCode, a.Signal, a.Duration = string(a.Output.Skillsd.Outcome), 0, "", 0
	a.Stdout, a.Stderr = Stream{Withheld: a.Stdout.Withheld}, Stream{Withheld: a.Stderr.Withheld}
	a.Writes = nil
}

// flushPending records the outcomes that could not be recorded before. If it fails, no script may run.
func (s *Session) flushPending(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.sequence.Lock()
	defer s.sequence.Unlock()
	for len(s.pending) > 0 {
		if err := s.writePending(ctx, s.pending[0]); err != nil {
			return err
		}
		s.pending = s.pending[1:]
	}
	return nil
}

// keep writes the streams and the files of /out into the session's records. The files whose index is in
// withheld are listed without their contents.
func (s *Session) keep(
	ctx context.Context, output string, result *sandbox.Result, withheld []int,
) (files []provenance.File, out []cfharness.OutFile, err error) {
	put := func(name string, data []byte) error {
		if len(data) == 0 {
			return nil
		}
		file, err := s.cfg.Records.Put(ctx, s.id, name, data)
		files = append(files, file)
		return err
	}
	err = put(provenance.OutputName(output, "stdout"), slices.Concat(result.Stdout.Head, result.Stdout.Tail))
	if err != nil {
		return nil, nil, err
	}
	err = put(provenance.OutputName(output, "stderr"), slices.Concat(result.Stderr.Head, result.Stderr.Tail))
	if err != nil {
		return nil, nil, err
	}
	for i, left := range result.Out {
		if slices.Contains(withheld, i) {
			out = append(out, cfharness.OutFile{Name: left.Name,
				Withheld: string(policy.NeedsSanitizingWorker)})
			continue
		}
		name := provenance.OutputName(output, "out-"+strconv.Itoa(i))
		if err := put(name, left.Data); err != nil {
			return nil, nil, err
		}
		out = append(out, cfharness.OutFile{Name: left.Name, Bytes: int64(len(left.Data)),
			Digest: digest.FromBytes(left.Data), URI: ArtifactBase + name})
	}
	return files, out, nil
}

// extension returns the part of a run's record for which the reference implementation has no fields.
func (r *run) extension(
	o *sandbox.Result, answer *RunResult, recounted bool, end ending,
) *cfharness.RunExtension {
	if done := r.cmd.done; done != nil {
		x := done.Record
		x.Stdout = r.describe("stdout", &answer.Stdout, recounted)
		x.Stderr = r.describe("stderr", &answer.Stderr, recounted)
		x.Out, x.OutSkips, x.Skipped, x.TaskID = answer.Out, o.OutSkips, answer.Skipped, r.call.Turn
		x.Late, x.Supersedes = end.late, end.supersedes
		return &x
	}
	workspace := cmp.Or(string(r.cmd.Workspace.Mode), string(sandbox.WorkspaceNone))
	x := &cfharness.RunExtension{
		Outcome: cfharness.Outcome(o.Outcome), Signal: o.Signal, DurationMS: o.Duration.Milliseconds(),
		Backend: o.Backend, Limits: snapshot.Limits(o.Limits), Network: "none", Workspace: workspace,
		TreeDigest: r.script.index.TreeDigest, CacheDigest: r.cmd.cached,
		Stdout: r.describe("stdout", &answer.Stdout, recounted),
		Stderr: r.describe("stderr", &answer.Stderr, recounted),
		Out:    answer.Out, OutSkips: o.OutSkips, Skipped: answer.Skipped, TaskID: r.call.Turn,
	}
	if in := r.cmd.Interpreter; in != nil {
		x.Interpreter = &cfharness.Interpreter{Path: in.Path, Version: in.Version,
			Digest: digest.Digest(in.Digest)}
	}
	if r.cmd.packages != nil {
		x.Environment = &r.cmd.packages.Record
	}
	// An entry that pins the script alone runs the tree on disk, not the tree that the session loaded.
	if r.tree != nil && r.tree.Digest != x.TreeDigest {
		x.TreeDigest, x.LoadedTree = r.tree.Digest, x.TreeDigest
	}
	x.Writes = snapshot.Writes(o.Writes)
	x.WritesUnlisted = len(o.Writes) - len(x.Writes)
	if r.grant.Target == policy.TargetHost {
		x.Network, x.HostCWD = "host", r.secrets.Text(r.cmd.hostCwd)
		return x
	}
	if r.cmd.proxy == nil {
		return x
	}
	x.Network, x.Unlisted = strings.Join(r.grant.Entry.Network, " "), r.cmd.proxy.Unlisted()
	for _, c := range r.cmd.proxy.Connections() {
		// The script chose the host name, which may contain a secret.
		row := cfharness.Connection{
			Host: r.secrets.Text(c.Host), Port: int(c.Port), Sent: c.Sent, Received: c.Received,
			Refused: string(c.Refused), Ended: string(c.Ended),
		}
		if c.Address.IsValid() {
			row.Address = c.Address.String()
		}
		x.Connections = append(x.Connections, row)
	}
	return x
}

func (r *run) describe(name string, s *Stream, recounted bool) cfharness.StreamSummary {
	sum := cfharness.StreamSummary{Bytes: s.Total, Digest: s.Digest, Truncated: s.Truncated,
		Redacted: recounted}
	if len(s.Head)+len(s.Tail) > 0 {
		sum.URI = ArtifactBase + provenance.OutputName(r.output, name)
	}
	return sum
}

// runOutput returns the reference implementation's output object of a run, with the fields that are known at
// the stage that the run has reached.
func (s *Session) runOutput(r *run) cfharness.RunOutput {
	o := cfharness.RunOutput{
		Type: cfharness.TypeRunOutput, OutputID: r.output, Skill: policy.Clip(r.in.Skill),
		Path:   policy.Clip(r.in.Path),
		Status: cfharness.StatusExecuted, Args: r.secrets.Texts(r.in.Args),
	}
	f := r.script
	// Until the policy allowed the run, the object has only what the caller sent.
	if r.grant.Decision == "" || f.file == nil {
		return o
	}
	o.Skill, o.Path, o.FileFacts = f.skill.Path, f.path, f.facts()
	if info := f.file.Program(); info != nil {
		o.Runtime = info.ReferenceRuntime()
	}
	// openTree has compared the file with the disk.
	if r.tree != nil {
		o.ObservedDigest, o.ObservedSizeBytes = f.file.Digest, &f.file.Size
		o.DigestMatchesRegistry = new(true)
	}
	if c := r.cmd; c != nil {
		o.ExecutionTarget, o.Argv, o.CWD = string(r.grant.Target), c.argv, c.cwd
		if o.Args == nil {
			o.Args = []string{}
		}
	}
	return o
}

// executionRow returns the row of a run, or of an attempt that did not start.
func (s *Session) executionRow(ctx context.Context, r *run, o *cfharness.RunOutput) json.RawMessage {
	row := cfharness.ScriptExecution{
		Type: cfharness.TypeScriptExecution, OutputID: o.OutputID, RunID: s.id,
		SkillName: o.Skill, Path: o.Path, Status: o.Status, ExecutedAt: provenance.Stamp(r.at),
		ExecutionTarget: o.ExecutionTarget, Runtime: o.Runtime, Argv: o.Argv, Args: o.Args, CWD: o.CWD,
		FileFacts: o.FileFacts, ExitCode: o.ExitCode, Diagnostics: o.Diagnostics, Error: o.Error,
		Skillsd: o.Skillsd,
	}
	if x := o.Skillsd; x != nil {
		kept := *x
		kept.Origin = s.rules.Load().Facts.OriginOf(ctx, r.script.skill, x.TreeDigest)
		row.Skillsd = &kept
	}
	if o.SandboxResourcePath != "" {
		row.ResourcePath = snapshot.HostPath(r.script.skill, r.script.path)
	}
	if r.cmd != nil && r.cmd.ran != nil {
		// The record has the real paths, which on the host are paths of this machine.
		row.Argv = r.cmd.ran
	}
	return encode(row)
}

// runEvent returns the record of a run, or of an attempt that did not start.
func (s *Session) runEvent(ctx context.Context, r *run, o *cfharness.RunOutput) *provenance.Event {
	e := &provenance.Event{Kind: provenance.KindScriptExecuted, Skill: o.Skill, Path: o.Path,
		Row: s.executionRow(ctx, r, o)}
	if o.Error != nil {
		e.Detail = o.Error.Code
	} else {
		e.Detail = string(o.Skillsd.Outcome)
		e.Want, e.Got = o.RegistryDigest.String(), o.ObservedDigest.String()
	}
	if r.grant.Decision != "" {
		e.Decision = s.granted(r.request, r.grant.Grant)
	}
	e.Invocation = s.invocation(r, o)
	return e
}

// invocation returns the invocation context of a command that was passed to the sandbox. It has sizes and
// digests of what the record of the run contains, so it reveals no more than the record. It is nil for runs
// on the host and for attempts that failed before the sandbox.
func (s *Session) invocation(r *run, o *cfharness.RunOutput) json.RawMessage {
	if r.cmd == nil || r.cmd.Argv == nil || r.grant.Target == policy.TargetHost {
		return nil
	}
	// Only these two errors come from the sandbox. Every other one means that it never got the command.
	if failed := o.Error; failed != nil && failed.Code != string(fault.CodeCwdDenied) &&
		failed.Code != string(fault.CodeSandboxUnavailable) {
		return nil
	}
	c := cfharness.InvocationContext{
		Type: cfharness.TypeInvocationContext, Version: 1, Sequence: int(s.invocations.Add(1)), RunID: s.id,
		CreatedAt: provenance.Stamp(r.at), ToolID: r.call.Method, ToolOutputID: r.output,
		Operation: cfharness.OperationCommand, Mode: r.mode.String(), CWD: o.CWD, PromptSlot: r.slot,
		Inputs: cfharness.InvocationInputs{
			Argv: cfharness.SummarizeSequence(o.Argv), Args: cfharness.SummarizeSequence(o.Args),
			Env: cfharness.SummarizeEnv(r.cmd.added),
		},
		InputLabels: r.call.InputLabels.Influenced(cfharness.Influence(r.slot, s.manifest), r.in.Cwd != ""),
	}
	if done := r.cmd.done; done != nil {
		c.Inputs.Env = done.Env
	}
	if m := s.manifest; m != nil {
		c.RunManifest = cfharness.InvocationManifest{Present: true, Path: provenance.RunManifestFile,
			Source: cfharness.RunManifestSource, WishID: m.WishID, DispatchClass: m.DispatchClass,
			Mode:              m.Mode,
			PromptSlotPresent: new(m.PromptSlot != nil)}
	}
	if r.cmd.Stdin != nil {
		c.Inputs.Stdin = cfharness.SummarizeText(r.secrets.Bytes(r.cmd.Stdin))
	}
	return encode(c)
}
