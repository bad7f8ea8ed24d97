package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/picture"
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
	withheld, recounted := redactResult(r.secrets, result, r.cmd.given)
	if done := r.cmd.done; done != nil {
		// The worker of the run has removed its own secrets.
		withheld, recounted = append(withheld, done.Withheld...), recounted || done.Recounted
	}
	files, out, keepErr := s.keepInRoom(ctx, r.output, result, withheld, end.room)
	answer := answerOf(result, out)
	// The record describes the whole streams, the answer only what is shown of them.
	x := r.extension(result, answer, recounted, end)
	if r.cmd.keeper != nil && result.Kept != nil {
		x.Kept = s.kept(ctx, r, result)
	}
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
		s.addPending(&pendingOutcome{run: r, result: result, withheld: withheld,
			kept: keepErr == nil, record: x, output: &output, events: events})
		return nil, fault.OutcomeUnrecorded.Because(err)
	}
	if r.cmd.uncached != nil {
		s.makeCache(r, result)
	}
	s.release(r, answer, &output, refusals)
	return answer, nil
}

// keepInRoom calls keep while it releases the room that was reserved for the outcome; release is nil if none
// was.
func (s *Session) keepInRoom(
	ctx context.Context, output string, result *sandbox.Result, withheld []int, release func(),
) (files []provenance.File, out []cfharness.OutFile, err error) {
	// Room is reserved under the write lock, so no other run gets this room before keep returns.
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

// answerOf returns the answer about a result before output is withheld. out lists the kept files of /out.
func answerOf(result *sandbox.Result, out []cfharness.OutFile) *RunResult {
	stream := func(s *sandbox.Stream) Stream {
		// Bytes that are not UTF-8 are replaced, so that JSON can represent the text.
		text := func(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
		return Stream{Head: text(s.Head), Tail: text(s.Tail), Total: s.Total, Truncated: s.Truncated,
			Digest: digest.Digest(s.SHA256)}
	}
	answer := &RunResult{
		Outcome: string(result.Outcome), ExitCode: result.ExitCode, Signal: result.Signal,
		Duration: result.Duration, Backend: result.Backend,
		Stdout: stream(&result.Stdout), Stderr: stream(&result.Stderr),
		Out: out, OutSkips: result.OutSkips, Writes: result.Writes,
	}
	// File names can have any bytes.
	for _, name := range result.Skipped {
		answer.Skipped = append(answer.Skipped, strconv.Quote(name[:min(len(name), 200)]))
	}
	return answer
}

// Stream is the released part of one output stream.
type Stream struct {
	Head, Tail string // text; Tail only when Truncated
	Total      int64  // bytes the script wrote
	Truncated  bool   // the middle was not kept
	Digest     digest.Digest

	// Withheld describes a stream that was not released, else nil; Head and Tail are then empty.
	Withheld *cfharness.ObservationDenied
}

// extension returns the part of a run's record for which the reference implementation has no fields.
func (r *run) extension(
	o *sandbox.Result, answer *RunResult, recounted bool, end ending,
) *cfharness.RunExtension {
	summary := func(name string, s *Stream) cfharness.StreamSummary {
		sum := cfharness.StreamSummary{Bytes: s.Total, Digest: s.Digest, Truncated: s.Truncated,
			Redacted: recounted}
		if len(s.Head)+len(s.Tail) > 0 {
			sum.URI = ArtifactBase + provenance.OutputName(r.output, name)
		}
		return sum
	}
	stdout, stderr := summary("stdout", &answer.Stdout), summary("stderr", &answer.Stderr)
	if done := r.cmd.done; done != nil {
		x := done.Record
		x.Stdout, x.Stderr = stdout, stderr
		x.Out, x.OutSkips, x.Skipped, x.TaskID = answer.Out, o.OutSkips, answer.Skipped, r.call.Turn
		x.Late, x.Supersedes, x.Kept = end.late, end.supersedes, nil
		return &x
	}
	workspace := cmp.Or(string(r.cmd.Workspace.Mode), string(sandbox.WorkspaceNone))
	x := &cfharness.RunExtension{
		Outcome: cfharness.Outcome(o.Outcome), Signal: o.Signal, DurationMS: o.Duration.Milliseconds(),
		Backend: o.Backend, Limits: snapshot.Limits(o.Limits), Network: "none", Workspace: workspace,
		TreeDigest: r.script.index.TreeDigest, CacheDigest: r.cmd.cached,
		Stdout: stdout, Stderr: stderr, Out: answer.Out,
		OutSkips: o.OutSkips, Skipped: answer.Skipped, TaskID: r.call.Turn,
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
	if len(o.Writes) > 0 {
		x.Writes = snapshot.Writes(o.Writes)
		x.WritesUnlisted = len(o.Writes) - len(x.Writes)
	}
	if r.grant.Target == policy.TargetHost {
		x.Network, x.HostCWD = "host", r.secrets.Text(r.cmd.hostCwd)
		return x
	}
	if r.cmd.proxy != nil {
		x.Network, x.Unlisted = strings.Join(r.grant.Entry.Network, " "), r.cmd.proxy.Unlisted()
		x.Connections = r.connections()
	}
	return x
}

// connections returns the record of the connections of a run with a network.
func (r *run) connections() (rows []cfharness.Connection) {
	for _, c := range r.cmd.proxy.Connections() {
		// The script chose the host name, which may contain a secret.
		row := cfharness.Connection{
			Host: r.secrets.Text(c.Host), Port: int(c.Port), Sent: c.Sent, Received: c.Received,
			Refused: string(c.Refused), Ended: string(c.Ended),
		}
		if c.Address.IsValid() {
			row.Address = c.Address.String()
		}
		rows = append(rows, row)
	}
	return rows
}

// output is one stream of a run: in the answer, in the record, and in what the runtime observed.
type output struct {
	stream   *Stream
	record   *cfharness.StreamSummary
	observed *cfharness.StreamObservation
}

// withhold removes from an answer the output that the caller may not see: if the entry is opaque, all of it,
// and, in every mode, the output that a labeling runtime does not release. The stricter rule applies. An
// object replaces a withheld stream. withhold notes in x, the record, what was withheld, and returns an event
// for each object; they come before the outcome of the run.
func (s *Session) withhold(
	r *run, result *sandbox.Result, answer *RunResult, x *cfharness.RunExtension,
) (*cfharness.SandboxResult, []*provenance.Event) {
	released := cfharness.ReadSandboxResult(result.Mediation)
	opaque := r.grant.Release == policy.ReleaseOpaque
	var events []*provenance.Event
	for _, o := range []output{
		{&answer.Stdout, &x.Stdout, &released.Stdout}, {&answer.Stderr, &x.Stderr, &released.Stderr},
	} {
		if opaque && o.observed.Policy == cfharness.PolicyObserved {
			o.observed.Policy = cfharness.PolicyOpaque
		}
		segments := o.observed.Segments
		o.observed.Segments, o.observed.ByteLength = nil, nil
		o.observed.Truncated = o.observed.Truncated || o.stream.Truncated
		if o.observed.Policy != cfharness.PolicyObserved {
			answer.Sealed = true
			events = append(events, s.withholdStream(r, o, opaque))
			continue
		}
		o.observed.Reason = ""
		if result.Mediation == nil {
			continue
		}
		// The runtime labeled the output before it was redacted, so its segments still contain the secrets.
		lets := r.secrets.Text(segmentsText(segments))
		if lets != o.stream.Head+o.stream.Tail {
			// The runtime releases other bytes than the script wrote: only the released ones are shown.
			o.stream.Head, o.stream.Tail, answer.Sealed = lets, "", true
		}
	}
	answer.ExitWithheld = released.ExitCode.Policy != cfharness.PolicyObserved
	answer.Sealed, x.ExitWithheld = answer.Sealed || answer.ExitWithheld, answer.ExitWithheld
	answer.Opaque, x.Opaque = opaque, opaque
	// An opaque script once revealed a secret in 23 calls by its exit codes. The caller learns only whether
	// it succeeded.
	if opaque && !answer.ExitWithheld && (result.Outcome != sandbox.Exited || result.ExitCode != 0) {
		released.ExitCode.Policy = cfharness.PolicyOpaque
	}
	if answer.Sealed {
		// File names are output too, and the runtime's labels do not cover them.
		answer.Out, answer.OutSkips, answer.Skipped = nil, 0, nil
	}
	return released, events
}

// segmentsText returns the text of segments.
func segmentsText(segments []cfharness.StreamSegment) string {
	var b strings.Builder
	for _, segment := range segments {
		b.WriteString(segment.Text)
	}
	return b.String()
}

// withholdStream replaces a stream of an answer by an object, by which a program can distinguish it from an
// empty one, and returns the event that records it.
func (s *Session) withholdStream(r *run, o output, opaque bool) *provenance.Event {
	why := outputDenied
	if o.observed.Policy == cfharness.PolicyOpaque {
		why, o.observed.Reason, o.observed.ByteLength = outputOpaque, "", &o.stream.Total
	}
	// A script could encode a secret in the length of its output, and whether it was truncated.
	if opaque {
		o.observed.ByteLength, o.observed.Truncated = nil, false
	}
	o.observed.Reason = policy.Clip(o.observed.Reason)
	o.record.Withheld, o.record.Salt = o.observed.Policy, rand.Text()
	handle, now := r.output+":"+o.observed.Channel, provenance.Stamp(s.cfg.Now())
	denial := r.denial(why, r.script.skill.Path, r.script.path, "{stream}", o.observed.Channel,
		"{reason}", cmp.Or(o.observed.Reason, o.observed.Channel+" was not released by CFC policy"))
	object := s.object(denial)
	object.Handle = &cfharness.OpaqueHandle{Type: cfharness.TypeOpaqueHandle, HandleID: handle, Scope: "run",
		CreatedAt: now, PassThrough: o.observed.Policy == cfharness.PolicyOpaque}
	object.ByteLength = o.observed.ByteLength
	// The plain digest of a short text reveals the text to anyone who can guess it. The salt is in the record
	// only.
	object.Digest = digest.FromString(o.record.Salt + o.record.Digest.String())
	o.stream.Head, o.stream.Tail, o.stream.Withheld = "", "", object
	row := cfharness.PolicyEvent{Type: cfharness.TypePolicyEvent, Severity: cfharness.SeverityDenied,
		Mode: r.mode.String(), ToolID: r.call.Method, Detail: object.Detail, At: now,
		ToolCallID: r.call.ToolCallID, ObservationDenied: object}
	return &provenance.Event{Kind: provenance.KindPolicyDenied, Skill: object.Skill, Path: object.Path,
		Detail: object.Code + ": " + object.Detail, Row: encode(row)}
}

// Most characters of a run's output that are shown, of both streams together. The session's records have the
// whole streams, up to the run's output limit.
const (
	HeadShare = 24_000
	TailShare = 12_000
)

// cut truncates the streams of an answer to the size that a model is shown: each gets at least a quarter of
// the room if it needs it. It returns the streams for the output object, which are longer if a program made
// the call: as much as fits into a message.
func (a *RunResult) cut(program bool) (stdout, stderr Stream) {
	const all = HeadShare + TailShare
	stdout, stderr = a.Stdout, a.Stderr
	out, err := float64(len(stdout.Head)+len(stdout.Tail)), float64(len(stderr.Head)+len(stderr.Tail))
	var part float64 // of stdout
	switch {
	case err < all/4:
		part = 1 - (err+64)/all
	case out < all/4:
		part = (out + 64) / all
	default:
		part = min(max(out/(out+err), 0.25), 0.75)
	}
	head, tail := int(part*HeadShare), int(part*TailShare)
	a.Stdout.cut(head, tail)
	a.Stderr.cut(HeadShare-head, TailShare-tail)
	if !program {
		return a.Stdout, a.Stderr
	}
	fitStreams(&stdout, &stderr)
	return stdout, stderr
}

// cut leaves out the middle of a stream that is longer than its share.
func (s *Stream) cut(head, tail int) {
	if !s.Truncated {
		whole := s.Head + s.Tail
		if utf8.RuneCountInString(whole) <= head+tail {
			s.Head, s.Tail = whole, ""
			return
		}
		s.Head, s.Tail, s.Truncated = whole, whole, true
	}
	s.Head = string(CutText([]byte(s.Head), head))
	start := len(s.Tail)
	for range tail {
		_, size := utf8.DecodeLastRuneInString(s.Tail[:start])
		start -= size // 0 at the beginning
	}
	s.Tail = s.Tail[start:]
}

// CutText returns at most the given number of characters from the start of text, ending at a line where
// one ends in the last fifth, else at a character.
func CutText(text []byte, room int) []byte {
	if utf8.RuneCount(text) <= room {
		return text
	}
	end := 0
	for range max(room, 0) {
		_, size := utf8.DecodeRune(text[end:])
		end += size
	}
	if line := bytes.LastIndexByte(text[:end], '\n') + 1; line > end*4/5 {
		return text[:line]
	}
	return text[:end]
}

const (
	// maxWholeBytes is the most bytes of JSON of both streams of a run together, or of the instructions or
	// the files of a load, that an answer has for a program. An answer has streams twice, and must fit into
	// a message of 8 MiB, which is what many readers accept.
	maxWholeBytes = 3 << 20

	// maxWhole is the most characters of each stream if they are larger: none has more than 6 bytes.
	maxWhole = maxWholeBytes / 2 / 6
)

// fitsMessage reports whether a value takes at most maxWholeBytes bytes of JSON.
func fitsMessage(v any) bool {
	data, err := json.Marshal(v)
	return err == nil && len(data) <= maxWholeBytes
}

// fitStreams cuts the streams of a run that a program gets whole if they are too much for a message.
func fitStreams(streams ...*Stream) {
	var texts []string
	for _, s := range streams {
		texts = append(texts, s.Head, s.Tail)
	}
	if fitsMessage(texts) {
		return
	}
	for _, s := range streams {
		s.cut(maxWhole*2/3, maxWhole/3)
	}
}

// keepAnswer stores the parts of the output that the caller is shown, and adds them to the record.
//
// Errors: *Error.
func (s *Session) keepAnswer(
	ctx context.Context, r *run, x *cfharness.RunExtension, result *sandbox.Result, answer *RunResult,
	stdout, stderr *Stream,
) error {
	records := []*cfharness.StreamSummary{&x.Stdout, &x.Stderr}
	for i, stream := range []*Stream{stdout, stderr} {
		data := stream.Head + stream.Tail
		if data == "" {
			continue
		}
		kept, err := s.keepShown(ctx, []byte(data))
		if err != nil {
			return err
		}
		records[i].Shown = &cfharness.ShownText{Digest: kept, Bytes: int64(len(data))}
		if stream.Truncated {
			records[i].Shown.Head = new(int64(len(stream.Head)))
		}
	}
	if !r.in.ShowOut {
		return nil
	}
	return s.showOut(ctx, r, result, answer)
}

// OutShown is the content of a file in /out that an answer shows: its text, its picture, or neither.
type OutShown struct {
	Text     string
	Picture  *picture.Picture
	HostPath string // path of the stored file, for a local client
}

const (
	maxOutText     = 8_000 // most characters that an answer shows, over all files of /out
	maxOutPictures = 4     // most pictures in an answer; more do not fit into a message as base64
)

// showOut adds the shown contents of the files in /out to an answer, and their digests to the record. If some
// output of the run is withheld there are no files. Secrets were removed from text files before, and binary
// files that contain one are withheld. Pictures are not shown in an answer about a run that failed.
func (s *Session) showOut(ctx context.Context, r *run, result *sandbox.Result, answer *RunResult) error {
	texts, pictures := maxOutText, maxOutPictures
	for i := range answer.Out {
		out, data, shown := &answer.Out[i], result.Out[i].Data, OutShown{}
		if out.Withheld != "" {
			answer.OutShown = append(answer.OutShown, shown)
			continue
		}
		if path := s.rules.Load().Facts.Path; path != nil && r.call.HostPaths {
			shown.HostPath = path(s.id, strings.TrimPrefix(out.URI, ArtifactBase))
		}
		var kept []byte
		switch isText := utf8.Valid(data) && bytes.IndexByte(data, 0) < 0; {
		case isText && utf8.RuneCount(data) <= texts:
			shown.Text, kept = string(data), data
			texts -= utf8.RuneCount(data)
		// Clients drop the pictures in an answer about a run that failed.
		case !isText && pictures > 0 && result.Outcome == sandbox.Exited:
			shown.Picture = picture.Decode(ctx, data, r.call.Borrow)
			if shown.Picture != nil {
				kept = shown.Picture.Data
				pictures--
			}
		}
		if len(kept) > 0 {
			d, err := s.keepShown(ctx, kept)
			if err != nil {
				return err
			}
			out.Shown = &cfharness.ShownText{Digest: d, Bytes: int64(len(kept))}
		}
		answer.OutShown = append(answer.OutShown, shown)
	}
	return nil
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

// resultOutput returns the reference implementation's output object of a run with a result.
func (s *Session) resultOutput(r *run, x *cfharness.RunExtension, result *sandbox.Result,
	released *cfharness.SandboxResult, stdout, stderr *Stream) cfharness.RunOutput {
	output := s.runOutput(r)
	output.Skillsd = x
	if result.Outcome == sandbox.Exited || result.Outcome == sandbox.Signaled {
		output.ExitCode = &result.ExitCode
	}
	stdout.describe(&output.Stdout, &output.StdoutTruncated, &output.StdoutOriginalLength)
	stderr.describe(&output.Stderr, &output.StderrTruncated, &output.StderrOriginalLength)
	// On the host, no runtime observes the output. A model needs the observation only if a runtime labeled
	// it.
	if r.grant.Target == policy.TargetHost || r.call.Records == nil && result.Mediation == nil {
		return output
	}
	stdout.observe(&released.Stdout)
	stderr.observe(&released.Stderr)
	observeExit(&released.ExitCode, output.ExitCode, result.Outcome)
	output.CFCResult = released
	return output
}

// describe fills the reference's fields of an output object for a stream: the released text, or the object in
// its place.
func (s *Stream) describe(o *cfharness.Observation, truncated **bool, length **int64) {
	o.Denied = s.Withheld
	if s.Withheld != nil {
		return
	}
	o.Text = new(s.Head + s.Tail)
	if s.Truncated {
		*truncated, *length = new(true), &s.Total
	}
}

// observe adds a stream to what is observed of it: the beginning and, if the middle was left out, the end.
func (s *Stream) observe(is *cfharness.StreamObservation) {
	if is.Policy != cfharness.PolicyObserved {
		return
	}
	is.Truncated, is.Segments = is.Truncated || s.Truncated, []cfharness.StreamSegment{}
	head, tail := s.Head, s.Tail
	if !s.Truncated {
		head, tail = s.Head+s.Tail, ""
	}
	for _, part := range []struct {
		text string
		at   int64
	}{{head, 0}, {tail, s.Total - int64(len(tail))}} {
		if part.text != "" {
			is.Segments = append(is.Segments, cfharness.StreamSegment{Text: part.text, Label: is.Label,
				Offset: max(part.at, 0), ByteLength: int64(len(part.text))})
		}
	}
}

// observeExit completes what is observed of an exit code; code is nil if the script was stopped.
func observeExit(is *cfharness.ExitCodeObservation, code *int, outcome sandbox.Outcome) {
	is.Value, is.Reason = nil, policy.Clip(is.Reason)
	if is.Policy == cfharness.PolicyObserved {
		is.Value, is.Reason = code, ""
		if code == nil {
			is.Policy, is.Reason = cfharness.PolicyDenied, "no exit code: "+string(outcome)
		}
	}
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
	// The caller gets an error, so the outcome, which is recorded later, lists nothing as shown.
	d.record.Stdout.Shown, d.record.Stderr.Shown = nil, nil
	for i := range d.record.Out {
		d.record.Out[i].Shown = nil
	}
	// Only append sets it, and append was not called for events after the one that failed.
	for _, e := range d.events {
		e.Call = d.run.id
	}
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

// release completes the answer of a run whose outcome is recorded; output is the recorded output object. It
// makes the output files readable as artifacts, but none of them if some output was withheld.
func (s *Session) release(
	r *run, answer *RunResult, output *cfharness.RunOutput, refusals []*provenance.Event,
) {
	// The objects that replace withheld streams name the events that record them.
	for _, stream := range []*Stream{&answer.Stdout, &answer.Stderr} {
		if stream.Withheld != nil {
			stream.Withheld.EventID, refusals = refusals[0].ID(), refusals[1:]
		}
	}
	answer.Output, answer.Remote = *output, r.call.Remote
	shown := &answer.Output
	// The record keeps the paths of this machine; the answer does not show them.
	shown.Skillsd = cfharness.Pathless(output.Skillsd)
	if answer.Sealed {
		shown.Skillsd, shown.ExitCode = cfharness.Sealed(shown.Skillsd, shown.ExitCode)
	}
	// The answer of an opaque run has no fact that its output object does not have.
	if answer.Opaque {
		answer.Outcome, answer.ExitCode = string(shown.Skillsd.Outcome), 0
		answer.Signal, answer.Duration = "", 0
		answer.Stdout, answer.Stderr = Stream{Withheld: answer.Stdout.Withheld},
			Stream{Withheld: answer.Stderr.Withheld}
		answer.Writes = nil
	}
	if answer.Sealed {
		return
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
}
