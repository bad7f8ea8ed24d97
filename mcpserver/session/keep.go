package session

import (
	"context"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance/cfharness"
)

// keepShown keeps bytes that are about to be shown, so that the record's digest can be resolved.
//
// Errors: *Error with code provenance_unavailable.
func (s *Session) keepShown(ctx context.Context, data []byte) (digest.Digest, error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.ended.Load() {
		return "", recordError(errEnded)
	}
	d, err := s.cfg.Records.Keep(context.WithoutCancel(ctx), s.id, data)
	if err != nil {
		s.broken.Store(true)
		return "", recordError(err)
	}
	return d, nil
}

// maxKeptWhole is the size in bytes up to which a file is kept whole when a part of it is shown, so
// that its other parts cost nothing more.
const maxKeptWhole = 1 << 20

// keepPart keeps what is shown of a file: the whole, or of a large file the part, whose own digest is
// then noted.
func (s *Session) keepPart(ctx context.Context, out *ReadResult, whole []byte) error {
	if len(out.Data) == 0 {
		return nil
	}
	if len(whole) <= maxKeptWhole || len(out.Data) == len(whole) {
		_, err := s.keepShown(ctx, whole)
		return err
	}
	d, err := s.keepShown(ctx, out.Data)
	out.shown = d
	return err
}

// keepStreams keeps what is shown of a run's output and notes it in the record of the run.
func (s *Session) keepStreams(ctx context.Context, r *run, result *RunResult) error {
	for _, text := range []struct {
		shown  *Stream
		record *cfharness.StreamSummary
	}{{&result.Stdout, &r.out.Skillsd.Stdout}, {&result.Stderr, &r.out.Skillsd.Stderr}} {
		data := text.shown.Head + text.shown.Tail
		if text.shown.Withheld != "" || data == "" {
			continue
		}
		d, err := s.keepShown(ctx, []byte(data))
		if err != nil {
			r.notShown()
			return err
		}
		text.record.Shown = &cfharness.ShownText{Digest: d, Bytes: int64(len(data))}
		if text.shown.Truncated {
			text.record.Shown.Head = new(int64(len(text.shown.Head)))
		}
	}
	return nil
}

// notShown takes back that output was shown: the answer is withheld whole.
func (r *run) notShown() {
	r.out.Skillsd.Stdout.Shown, r.out.Skillsd.Stderr.Shown = nil, nil
}
