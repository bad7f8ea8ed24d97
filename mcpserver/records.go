package mcpserver

import (
	"context"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const (
	// metaRecords is the key of what a call left in the record. A request asks for it with the same
	// key and the value true: some clients hand a whole result to the model.
	metaRecords = "skillsd/records"
	// metaRunID is the key of the id that the caller wants for a session that it opens.
	metaRunID = "skillsd/run-id"
	// metaInputLabels is the key of the labels of a run's inputs.
	metaInputLabels = "skillsd/input-labels"
)

type recorderKey struct{}

// recorder collects the records of one request.
type recorder = session.Recorder

// asksRecords returns a recorder, and ctx with it, if a request asks for its records.
func asksRecords(ctx context.Context, meta map[string]any) (context.Context, *recorder) {
	if asked, _ := meta[metaRecords].(bool); !asked {
		return ctx, nil
	}
	r := &recorder{}
	return context.WithValue(ctx, recorderKey{}, r), r
}

// recordsOf returns what was collected, nil if nobody asked.
func (s *Server) recordsOf(ctx context.Context, r *recorder) *cfharness.CallRecords {
	if r == nil {
		return nil
	}
	_, remote := principalOf(ctx)
	records, err := r.Records(remote)
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "records of a call not sent", tint.Err(err))
		return nil
	}
	return records
}
