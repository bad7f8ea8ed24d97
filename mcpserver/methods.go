package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// methods are the JSON-RPC methods that the library lacks.
func (s *Server) methods() wire.Methods {
	return s.edge(wire.Methods{
		methodListSkills:    s.listSkills,
		methodGetSkill:      s.getSkill,
		methodReadDirectory: s.readDirectory,
	})
}

// overrides are methods of the library that are answered here: its own resources/list would lose equal
// names and hold all files in memory, and its tools cannot be replaced without a notification to every
// client, as at each start.
func (s *Server) overrides() wire.Methods {
	return s.edge(wire.Methods{
		methodListTools:     s.listTools,
		methodListResources: s.listResources,
		methodReadResource:  s.readResource,
		methodListTemplates: s.listTemplates,
		methodListPrompts:   s.listPrompts,
		methodGetPrompt:     s.getPrompt,
		methodComplete:      s.complete,
	})
}

// edge puts around each method what all of them have: its span, the records of the call if the client
// asks for them, and the error table. It changes methods.
func (s *Server) edge(methods wire.Methods) wire.Methods {
	for name, handle := range methods {
		methods[name] = func(ctx context.Context, r *wire.Request) (any, error) {
			// The other methods record nothing.
			if name != methodReadResource && name != methodGetPrompt {
				result, err := handle(ctx, r)
				return result, s.methodError(ctx, r, err)
			}
			var params struct {
				Meta map[string]any `json:"_meta"`
			}
			if len(r.Params) > 0 && json.Unmarshal(r.Params, &params) != nil {
				params.Meta = nil
			}
			ctx, recorded := s.recording(ctx, params.Meta)
			result, err := handle(ctx, r)
			err = s.methodError(ctx, r, err)
			if records := recorded(); records != nil {
				return s.withRecords(ctx, result, err, records)
			}
			return result, err
		}
	}
	return methods
}

// withRecords adds records to the _meta of a result, or to the _meta of an error's data, behind its other
// keys.
func (s *Server) withRecords(
	ctx context.Context, result any, err error, records *cfharness.CallRecords,
) (any, error) {
	switch made := result.(type) {
	case *mcp.ReadResourceResult:
		made.EnsureResultMeta().SetMetaField(metaRecords, records)
		return made, err
	case *mcp.GetPromptResult:
		made.EnsureResultMeta().SetMetaField(metaRecords, records)
		return made, err
	}
	failure, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return result, err
	}
	data, dataErr := provenance.Encode(failure.Data)
	meta, metaErr := provenance.Encode(map[string]any{metaRecords: records})
	switch {
	case metaErr != nil:
		s.cfg.Logger.ErrorContext(ctx, "records of a call not sent", tint.Err(metaErr))
	case dataErr == nil && len(data) >= len(`{"a":0}`) && data[0] == '{':
		data = append(data[:len(data)-1], `,"_meta":`...)
		failure.Data = json.RawMessage(append(append(data, meta...), '}'))
	}
	return result, err
}

// pageSize is how many entries a page of a list holds.
const pageSize = 100

// listRequest is a request for a page of a list.
type listRequest struct {
	URI    string         `json:"uri"`
	Cursor string         `json:"cursor"`
	Meta   map[string]any `json:"_meta"`

	scope scope
	after string // the URI or name that the page starts after
}

// listRequestOf reads the params of a list.
func (s *Server) listRequestOf(ctx context.Context, r *wire.Request) (q listRequest, err error) {
	if err := unmarshalParams(r.Params, &q); err != nil {
		return q, err
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err != nil {
		return q, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "cursor is not one this server gave"}
	}
	q.after = string(after)
	q.scope, err = s.scoped(ctx, q.Meta)
	return q, err
}

func encodeCursor(last string) mcp.Cursor {
	return mcp.Cursor(base64.RawURLEncoding.EncodeToString([]byte(last)))
}

// position returns where an element of a sorted list has a key, or would have it.
func position[T any](all []T, key string, of func(T) string) (at int, found bool) {
	return slices.BinarySearchFunc(all, key, func(element T, key string) int {
		return strings.Compare(of(element), key)
	})
}

// following returns the elements of a sorted list that follow a key.
func following[T any](all []T, key string, of func(T) string) []T {
	at, found := position(all, key, of)
	if found {
		at++
	}
	return all[at:]
}

func unmarshalParams(raw json.RawMessage, dst any) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, dst); err != nil {
		return &wire.Error{Code: mcp.INVALID_PARAMS, Message: "params do not have the form this method takes"}
	}
	return nil
}
