package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// request is a request for a method of this package, with the parameters of all methods.
type request struct {
	*wire.Request `json:"-"`

	URI       string          `json:"uri"`
	Cursor    string          `json:"cursor"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // clients send it in any form, even with a resource's URI
	Ref       struct {
		Type string `json:"type"`
		Name string `json:"name"`
		URI  string `json:"uri"`
	} `json:"ref"`
	Argument struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"argument"`
	Meta map[string]any `json:"_meta"`

	scope scope
	after string // URI or name after which the page starts
}

// method answers a request.
type method func(ctx context.Context, r *request) (any, error)

// methods are the methods of the server.
func (s *Server) methods() wire.Methods {
	methods := s.edge(map[string]method{
		methodListSkills:    s.listSkills,
		methodGetSkill:      s.getSkill,
		methodReadDirectory: s.readDirectory,
		methodListTools:     s.listTools,
		methodListResources: s.listResources,
		methodReadResource:  s.readResource,
		methodListTemplates: s.listTemplates,
		methodListPrompts:   s.listPrompts,
		methodGetPrompt:     s.getPrompt,
		methodComplete:      s.complete,
	})
	methods[string(mcp.MethodToolsCall)] = s.call
	for name, handle := range s.tasks.Methods() {
		methods[name] = func(ctx context.Context, r *wire.Request) (any, error) {
			s.refresh(ctx)
			if !s.cfg.Sessions.Policy().Offers(ToolRun) && s.tasks.Empty() {
				return nil, wire.NotFound(name)
			}
			return handle(ctx, r)
		}
	}
	return methods
}

// taskPatience is how long a run takes before it becomes a task: a model need not poll for the result of a
// short one.
const taskPatience = 2 * time.Second

// newTasks returns the task store of the server. A task belongs to a principal, and to the session that its
// call names.
func (s *Server) newTasks() *tasks.Store {
	return tasks.New(tasks.Options{
		Patience: taskPatience,
		Owner: func(ctx context.Context, meta map[string]any) (owner, session string) {
			principal, _ := principalOf(ctx)
			return principal.Name, firstText(meta[metaSession])
		},
		Holders:  s.cfg.Holders,
		Withhold: func(raw json.RawMessage) json.RawMessage { return s.cfg.Sessions.Secrets().JSON(raw) },
		Logger:   s.cfg.Logger,
	})
}

// edge wraps each method with the common parts: decoding of its parameters, the records of the call if the
// client asks for them, and the conversion of errors.
func (s *Server) edge(methods map[string]method) wire.Methods {
	all := make(wire.Methods, len(methods))
	for name, handle := range methods {
		all[name] = func(ctx context.Context, in *wire.Request) (any, error) {
			r := &request{Request: in}
			if err := s.decode(ctx, r); err != nil {
				return nil, s.methodError(ctx, r, err)
			}
			// The other methods record nothing.
			if name != methodReadResource && name != methodGetPrompt {
				result, err := handle(ctx, r)
				return result, s.methodError(ctx, r, err)
			}
			ctx, recorder := recording(ctx, r.Meta)
			result, err := handle(ctx, r)
			err = s.methodError(ctx, r, err)
			if recorder == nil {
				return result, err
			}
			if records := s.records(ctx, recorder); records != nil {
				return s.withRecords(ctx, result, err, records)
			}
			return result, err
		}
	}
	return all
}

// decode decodes the parameters of a request, and waits for the first scan; lists wait no longer than clients
// do.
func (s *Server) decode(ctx context.Context, r *request) error {
	if err := wire.Decode(r.Params, r); err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	if err != nil {
		return errCursor
	}
	r.after = string(after)
	s.refresh(ctx)
	r.scope = s.scopeOf(ctx)
	r.scope.profile, err = s.profileOf(r.Meta)
	if err != nil {
		return err
	}
	switch r.Method {
	case methodListTemplates:
		// The list has only one page, so no server can have issued a cursor.
		if r.Cursor != "" {
			return errCursor
		}
		return nil
	case methodListTools, methodListResources, methodListPrompts:
		s.awaitScan(ctx)
		return nil
	}
	return s.scanned(ctx)
}

var errCursor = &wire.Error{Code: mcp.INVALID_PARAMS, Message: "cursor is not one this server gave"}

// withRecords adds records to the _meta of a result, or to the _meta in an error's data, after the other
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
