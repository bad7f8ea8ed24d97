package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const (
	// metaRecords is the key of what a call left in the record. A request asks for it with the same
	// key and the value true: some clients hand a whole result to the model.
	metaRecords = "skillsd/records"
	// metaRunID is the key of what the caller wants a session it opens to be called.
	metaRunID = "skillsd/run-id"
	// metaInputLabels is the key of the labels of a run's inputs.
	metaInputLabels = "skillsd/input-labels"
)

type recorderKey struct{}

// recorderOf returns what is told the records of a request, nil when nobody asks for them.
func recorderOf(ctx context.Context) *session.Recorder {
	r, _ := ctx.Value(recorderKey{}).(*session.Recorder)
	return r
}

// asksRecords returns a recorder when a request asks for its records.
func asksRecords(ctx context.Context, meta map[string]any) (context.Context, *session.Recorder) {
	if asked, _ := meta[metaRecords].(bool); !asked {
		return ctx, nil
	}
	r := &session.Recorder{}
	return context.WithValue(ctx, recorderKey{}, r), r
}

// recorded returns what was collected, or nil.
func (s *Server) recorded(ctx context.Context, r *session.Recorder) *cfharness.CallRecords {
	_, remote := principalOf(ctx)
	records, err := r.Records(remote)
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "records of a call not sent", tint.Err(err))
		return nil
	}
	return records
}

// withRecords adds the records of a tool call to its result when the request asks for them, be it an
// error or not.
func (s *Server) withRecords(handle server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, recorder := asksRecords(ctx, fieldsOf(request.Params.Meta))
		result, err := handle(ctx, request)
		if recorder == nil || result == nil {
			return result, err
		}
		if records := s.recorded(ctx, recorder); records != nil {
			result.EnsureResultMeta().SetMetaField(metaRecords, records)
		}
		return result, err
	}
}

// methodWithRecords does the same for a method. Its errors have the records in the _meta of their data.
func (s *Server) methodWithRecords(handle wire.Method) wire.Method {
	return func(ctx context.Context, r *wire.Request) (any, error) {
		var params struct {
			Meta map[string]any `json:"_meta"`
		}
		if len(r.Params) > 0 && json.Unmarshal(r.Params, &params) != nil {
			return handle(ctx, r)
		}
		ctx, recorder := asksRecords(ctx, params.Meta)
		result, err := handle(ctx, r)
		if recorder == nil {
			return result, err
		}
		records := s.recorded(ctx, recorder)
		if records == nil {
			return result, err
		}
		switch made := result.(type) {
		case mcp.ReadResourceResult:
			made.EnsureResultMeta().SetMetaField(metaRecords, records)
			return made, err
		case mcp.GetPromptResult:
			made.EnsureResultMeta().SetMetaField(metaRecords, records)
			return made, err
		}
		if failure, ok := errors.AsType[*wire.Error](err); ok {
			s.addRecords(ctx, failure, records)
		}
		return result, err
	}
}

// addRecords puts the records behind the other keys of an error's data.
func (s *Server) addRecords(ctx context.Context, failure *wire.Error, records *cfharness.CallRecords) {
	data, err := provenance.Encode(failure.Data)
	if err != nil || len(data) < len(`{"a":0}`) || data[0] != '{' {
		return
	}
	meta, err := provenance.Encode(map[string]any{metaRecords: records})
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "records of a call not sent", slog.String("method", metaRecords), tint.Err(err))
		return
	}
	data = append(data[:len(data)-1], `,"_meta":`...)
	failure.Data = json.RawMessage(append(append(data, meta...), '}'))
}

// believe notes what only a principal who is believed can say: how a session is to be called, and the
// labels of inputs.
func believe(call *session.Call, meta map[string]any) error {
	call.RunID, _ = meta[metaRunID].(string)
	labels, ok := meta[metaInputLabels]
	if !ok {
		return nil
	}
	raw, err := json.Marshal(labels)
	if err != nil {
		return err
	}
	if call.InputLabels, err = cfharness.ParseInputLabels(raw); err != nil {
		return invalidArguments(err.Error(), "send {version: 1, entries: [{path, label}]} in _meta, or none")
	}
	return nil
}
