package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/picture"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

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
	for _, of := range []struct {
		stream *Stream
		record *cfharness.StreamSummary
		is     *cfharness.StreamObservation
	}{
		{&answer.Stdout, &x.Stdout, &released.Stdout},
		{&answer.Stderr, &x.Stderr, &released.Stderr},
	} {
		if opaque && of.is.Policy == cfharness.PolicyObserved {
			of.is.Policy = cfharness.PolicyOpaque
		}
		segments := of.is.Segments
		of.is.Segments, of.is.ByteLength, of.is.Truncated = nil, nil, of.is.Truncated || of.stream.Truncated
		if of.is.Policy == cfharness.PolicyObserved {
			of.is.Reason = ""
			// The runtime labeled the output before it was redacted, so its segments still contain the
			// secrets.
			lets := r.secrets.Text(segmentsText(segments))
			if result.Mediation != nil && lets != of.stream.Head+of.stream.Tail {
				// The runtime releases other bytes than the script wrote: only the released ones are shown.
				of.stream.Head, of.stream.Tail, answer.Sealed = lets, "", true
			}
			continue
		}
		why := outputDenied
		if of.is.Policy == cfharness.PolicyOpaque {
			why, of.is.Reason, of.is.ByteLength = outputOpaque, "", &of.stream.Total
		}
		// A script could encode a secret in the length of its output, and whether it was truncated.
		if opaque {
			of.is.ByteLength, of.is.Truncated = nil, false
		}
		of.is.Reason = policy.Clip(of.is.Reason)
		answer.Sealed = true
		of.record.Withheld, of.record.Salt = of.is.Policy, rand.Text()
		// By the object, a program can distinguish a withheld stream from an empty one.
		object, event := s.withheld(r, of.is, of.record, why)
		of.stream.Head, of.stream.Tail, of.stream.Withheld = "", "", object
		events = append(events, event)
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

// withheld returns the object that replaces a stream, and the event that records it.
func (s *Session) withheld(
	r *run, is *cfharness.StreamObservation, record *cfharness.StreamSummary, why refusal,
) (*cfharness.ObservationDenied, *provenance.Event) {
	handle, now := r.output+":"+is.Channel, provenance.Stamp(s.cfg.Now())
	denial := r.denial(why, r.script.skill.Path, r.script.path, "{stream}", is.Channel, "{handle}", handle,
		"{session}", s.id, "{reason}", cmp.Or(is.Reason, is.Channel+" was not released by CFC policy"))
	object := s.object(denial)
	object.Handle = &cfharness.OpaqueHandle{Type: cfharness.TypeOpaqueHandle, HandleID: handle, Scope: "run",
		CreatedAt: now, PassThrough: is.Policy == cfharness.PolicyOpaque}
	object.ByteLength = is.ByteLength
	// The plain digest of a short text reveals the text to anyone who can guess it. The salt is in the record
	// only.
	object.Digest = digest.FromString(record.Salt + record.Digest.String())
	row := cfharness.PolicyEvent{Type: cfharness.TypePolicyEvent, Severity: cfharness.SeverityDenied,
		Mode: r.mode.String(), ToolID: r.call.Method, Detail: object.Detail, At: now,
		ToolCallID: r.call.ToolCallID, ObservationDenied: object}
	return object, &provenance.Event{Kind: provenance.KindPolicyDenied, Skill: object.Skill,
		Path: object.Path, Detail: object.Code + ": " + object.Detail, Row: encode(row)}
}

// keepStreams stores the parts of a run's streams that the caller gets, and adds them to their record.
func (s *Session) keepStreams(
	ctx context.Context, x *cfharness.RunExtension, stdout, stderr *Stream,
) (err error) {
	records := []*cfharness.StreamSummary{&x.Stdout, &x.Stderr}
	for i, stream := range []*Stream{stdout, stderr} {
		data := stream.Head + stream.Tail
		if err != nil || data == "" {
			continue
		}
		shown := &cfharness.ShownText{Bytes: int64(len(data))}
		shown.Digest, err = s.keepShown(ctx, []byte(data))
		if stream.Truncated {
			shown.Head = new(int64(len(stream.Head)))
		}
		records[i].Shown = shown
	}
	return err
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
