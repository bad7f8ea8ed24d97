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

	"github.com/skillsd/skillsd/mcpserver/session/artifact"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/secrets"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/mcpserver/session/streams"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// ending is how a run ends whose result is known.
type ending struct {
	room func() // releases the room that was reserved for the outcome; nil without
	// late means that no caller waits: a worker reported the outcome later.
	late bool
	// supersedes is the ID of the event that recorded the outcome as unknown; empty without.
	supersedes string
}

// finish keeps the output, releases or withholds it as decided before the run, records what happened, and
// answers. A run that was canceled is recorded too, although its caller does not wait for the answer.
//
// Errors: *Error.
func (s *Session) finish(
	ctx context.Context, r *run, result *sandbox.Result, end ending,
) (*RunResult, error) {
	ctx = context.WithoutCancel(ctx)
	select { // the description of the machine comes before the first run in the record
	case <-s.awaited[provenance.CapabilitiesFile]:
	case <-time.After(capabilitiesPatience):
	}
	// Redaction comes first: no secret may reach a file, a digest or the answer.
	hidden := r.redact(result)
	files, out, keepErr := s.keepInRoom(ctx, r.output, result, hidden.withheld, end.room)
	answer := answerOf(result, out)
	// The record describes the whole streams, the answer only what is shown of them.
	x := r.extension(result, answer, hidden.recounted, end)
	released, refusals := s.withhold(r, result, answer, x)
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
		s.broken.Store(true)
	} else {
		events, err = recordEach(events, func(e *provenance.Event) error {
			return s.record(ctx, r.request, e)
		})
	}
	if err != nil {
		// The answer is withheld whole: nothing of it was shown.
		x.Stdout.Shown, x.Stderr.Shown = nil, nil
		for i := range x.Out {
			x.Out[i].Shown = nil
		}
		s.owe(&debt{run: r, result: result, withheld: hidden.withheld, kept: keepErr == nil, record: x,
			output: &output, events: events})
		return nil, fault.OutcomeUnrecorded.Because(err)
	}
	s.makeCache(r, result)
	answer.refer(refusals)
	output.Skillsd = cfharness.Pathless(x)
	if !s.release(r, answer) {
		output.Skillsd, output.ExitCode = cfharness.Sealed(output.Skillsd, output.ExitCode)
	}
	answer.Output = output
	answer.seal()
	return answer, nil
}

// redacted is what redaction did to the result of a run.
type redacted struct {
	withheld  []int // files of /out that are not shown, by index
	recounted bool  // the digests of the streams are without secrets
}

// redact removes the secrets from a result, those included that the worker of the run removed.
func (r *run) redact(result *sandbox.Result) redacted {
	withheld, recounted := secrets.Result(r.secrets, result, r.cmd.given)
	if done := r.cmd.done; done != nil {
		withheld, recounted = append(withheld, done.Withheld...), recounted || done.Recounted
	}
	return redacted{withheld, recounted}
}

// keepInRoom is keep in the room that was reserved; release releases it, nil if there is none.
func (s *Session) keepInRoom(
	ctx context.Context, output string, result *sandbox.Result, withheld []int, release func(),
) (files []provenance.File, out []cfharness.OutFile, err error) {
	s.rooms.RLock() // no other run gets the room before the outcome is kept
	defer s.rooms.RUnlock()
	var releasing sync.WaitGroup
	if release != nil {
		releasing.Go(release) // it takes as long as keeping
	}
	files, out, err = s.keep(ctx, output, result, withheld)
	releasing.Wait()
	if err != nil { // perhaps the room was not free yet
		return s.keep(ctx, output, result, withheld)
	}
	return files, out, nil
}

// answerOf returns the answer about a result before anything is withheld. out lists the kept files of /out.
func answerOf(result *sandbox.Result, out []cfharness.OutFile) *RunResult {
	answer := &RunResult{
		Outcome: string(result.Outcome), ExitCode: result.ExitCode, Signal: result.Signal,
		Duration: result.Duration, Backend: result.Backend, Stdout: streams.Of(&result.Stdout),
		Stderr: streams.Of(&result.Stderr), Out: out, OutSkips: result.OutSkips, Writes: result.Writes,
	}
	for _, name := range result.Skipped { // a name can have any bytes
		answer.Skipped = append(answer.Skipped, strconv.Quote(name[:min(len(name), 200)]))
	}
	return answer
}

// cut cuts the streams of an answer to what a model is shown, and returns the streams of the record: for a
// program, as much as fits into a message.
func (a *RunResult) cut(program bool) (stdout, stderr Stream) {
	stdout, stderr = a.Stdout, a.Stderr
	streams.CutBoth(&a.Stdout, &a.Stderr)
	if !program {
		return a.Stdout, a.Stderr
	}
	streams.Fit(&stdout, &stderr)
	return stdout, stderr
}

// keepAnswer keeps what the caller is shown of a run, and adds it to the record.
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

// resultOutput returns the reference's output object of a run that has a result.
func (s *Session) resultOutput(r *run, x *cfharness.RunExtension, result *sandbox.Result,
	released *cfharness.SandboxResult, stdout, stderr *Stream) cfharness.RunOutput {
	output := s.runOutput(r)
	output.Skillsd = x
	if result.Outcome == sandbox.Exited || result.Outcome == sandbox.Signaled {
		output.ExitCode = &result.ExitCode
	}
	stdout.Describe(&output.Stdout, &output.StdoutTruncated, &output.StdoutOriginalLength)
	stderr.Describe(&output.Stderr, &output.StderrTruncated, &output.StderrOriginalLength)
	if r.grant.Target == policy.TargetHost || r.call.Records == nil && result.Mediation == nil {
		return output
	}
	stdout.Observe(&released.Stdout)
	stderr.Observe(&released.Stderr)
	streams.ObserveExit(&released.ExitCode, output.ExitCode, result.Outcome)
	output.CFCResult = released
	return output
}

// recordEach records events in their order, and returns those that were not recorded.
func recordEach(events []*provenance.Event, record func(e *provenance.Event) error,
) ([]*provenance.Event, error) {
	for i, e := range events {
		if err := record(e); err != nil {
			return events[i:], err
		}
	}
	return nil, nil
}

// debt is the outcome of a run that could not be recorded. Nothing runs in the session before it is.
type debt struct {
	run      *run
	result   *sandbox.Result
	withheld []int
	kept     bool // the output is kept
	record   *cfharness.RunExtension
	output   *cfharness.RunOutput
	events   []*provenance.Event // not recorded yet; the last is the outcome
}

// owe notes a debt; flushPending pays it.
func (s *Session) owe(d *debt) {
	s.sequence.Lock()
	defer s.sequence.Unlock()
	s.pending = append(s.pending, d)
}

// pay records the outcome of a run that could not be recorded before. s.sequence is held.
func (s *Session) pay(ctx context.Context, d *debt) error {
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
		// The store fills these in, and has done so for the attempt that failed.
		e.Seq, e.Time, e.Prev, e.Hash = 0, time.Time{}, "", ""
		return s.write(ctx, e)
	})
	return err
}

// refer names the events of refusals in the objects that replace withheld streams.
func (a *RunResult) refer(refusals []*provenance.Event) {
	for _, stream := range []*Stream{&a.Stdout, &a.Stderr} {
		if stream.Withheld != nil {
			stream.Withheld.EventID, refusals = refusals[0].ID(), refusals[1:]
		}
	}
}

// seal takes out of the answer about an opaque run what its output object does not have either.
func (a *RunResult) seal() {
	if !a.Opaque {
		return
	}
	a.Outcome, a.ExitCode, a.Signal, a.Duration = string(a.Output.Skillsd.Outcome), 0, "", 0
	a.Stdout, a.Stderr = Stream{Withheld: a.Stdout.Withheld}, Stream{Withheld: a.Stderr.Withheld}
	a.Writes = nil
}

// flushPending writes the records of runs that could not be written before, and that nothing runs without.
func (s *Session) flushPending(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.sequence.Lock()
	defer s.sequence.Unlock()
	for len(s.pending) > 0 {
		if err := s.pay(ctx, s.pending[0]); err != nil {
			return err
		}
		s.pending = s.pending[1:]
	}
	return nil
}

// keep writes the streams and the files left in /out into the session's records.
func (s *Session) keep(
	ctx context.Context, output string, result *sandbox.Result, withheld []int,
) (files []provenance.File, out []cfharness.OutFile, err error) {
	put := func(name string, data []byte) {
		if err == nil && len(data) > 0 {
			var file provenance.File
			file, err = s.cfg.Records.Put(ctx, s.id, name, data)
			files = append(files, file)
		}
	}
	put(provenance.OutputName(output, "stdout"), slices.Concat(result.Stdout.Head, result.Stdout.Tail))
	put(provenance.OutputName(output, "stderr"), slices.Concat(result.Stderr.Head, result.Stderr.Tail))
	for i, left := range result.Out {
		if slices.Contains(withheld, i) {
			out = append(out, cfharness.OutFile{Name: left.Name,
				Withheld: string(policy.NeedsSanitizingWorker)})
			continue
		}
		name := provenance.OutputName(output, "out-"+strconv.Itoa(i))
		put(name, left.Data)
		out = append(out, cfharness.OutFile{Name: left.Name, Bytes: int64(len(left.Data)),
			Digest: digest.FromBytes(left.Data), URI: artifact.Base + name})
	}
	if err != nil {
		return nil, nil, err
	}
	return files, out, nil
}

// extension returns the part of a run's record that the reference's shapes have no place for.
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
		// The script chose the name of the host, which may hold a secret.
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
		sum.URI = artifact.Base + provenance.OutputName(r.output, name)
	}
	return sum
}

// runOutput returns the reference's output object of a run, as far as it came.
func (s *Session) runOutput(r *run) cfharness.RunOutput {
	o := cfharness.RunOutput{
		Type: cfharness.TypeRunOutput, OutputID: r.output, Skill: policy.Clip(r.in.Skill),
		Path:   policy.Clip(r.in.Path),
		Status: cfharness.StatusExecuted, Args: r.secrets.Texts(r.in.Args),
	}
	f := r.script
	if r.grant.Decision == "" || f.file == nil {
		return o
	}
	o.Skill, o.Path, o.FileFacts = f.skill.Path, f.path, f.facts()
	if f.file.Script != nil {
		o.Runtime = f.file.Script.ReferenceRuntime()
	}
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
		kept.Origin = s.inForce().Facts.OriginOf(ctx, r.script.skill, x.TreeDigest)
		row.Skillsd = &kept
	}
	if o.SandboxResourcePath != "" {
		row.ResourcePath = snapshot.HostPath(r.script.skill, r.script.path)
	}
	if r.cmd != nil && r.cmd.ran != nil {
		row.Argv = r.cmd.ran // with the paths that it had; on the host, those of this machine
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

// invocation returns the context of a command that was given to the sandbox: sizes and digests of what the
// record of the run holds, so it reveals no more than that. It is nil for attempts that did not get so far
// and for runs on the host.
func (s *Session) invocation(r *run, o *cfharness.RunOutput) json.RawMessage {
	if r.cmd == nil || r.cmd.Argv == nil || r.grant.Target == policy.TargetHost {
		return nil
	}
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
