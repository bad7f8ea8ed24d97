package mcpserver

import (
	"context"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const (
	// metaRecords is the key of the records of a call. A request asks for them with the same key and the
	// value true, because some clients pass a whole result to the model.
	metaRecords = "skillsd/records"
	// metaRunID is the key of the id that the caller requests for its session.
	metaRunID = "skillsd/run-id"
	// metaManifest is the key of the run manifest for a session that the call starts.
	metaManifest = "skillsd/run-manifest"
	// metaOutputID is the key of the id that the caller requests for the output of a call.
	metaOutputID = "skillsd/output-id"
	// metaSource is the key of the reason why a skill was loaded.
	metaSource = "skillsd/activation-source"
	// metaInputLabels is the key of the labels of a run's inputs.
	metaInputLabels = "skillsd/input-labels"
)

type recorderKey struct{}

// recording returns ctx with a recorder if a request asks for its records or for a run id, and a
// function that returns the records; they are nil if the request asks for neither. A request that asks only
// for a run id, and does not get it, gets no more than both ids.
func (s *Server) recording(
	ctx context.Context, meta map[string]any,
) (context.Context, func() *cfharness.CallRecords) {
	asked, _ := meta[metaRecords].(bool)
	if !asked && firstText(meta[metaRunID]) == "" {
		return ctx, func() *cfharness.CallRecords { return nil }
	}
	recorder := &session.Recorder{Brief: !asked}
	return context.WithValue(ctx, recorderKey{}, recorder), func() *cfharness.CallRecords {
		_, remote := principalOf(ctx)
		records, err := recorder.Records(remote)
		if err != nil {
			s.cfg.Logger.ErrorContext(ctx, "records of a call not sent", tint.Err(err))
			return nil
		}
		return records
	}
}
