package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

var (
	_ server.SessionWithElicitation = (*httpCallSession)(nil)
	_ server.SessionWithRoots       = (*httpCallSession)(nil)
	_ server.SessionWithSampling    = (*httpCallSession)(nil)
)

var errNoSampling = errors.New("the client does not support sampling")

// httpCallSession is the session as a call over HTTP sees it: requests of the server go out on
// the call's own stream.
type httpCallSession struct {
	*callSession
	asks *asks // nil on 2026-07-28, which has none
}

// RequestElicitation asks the client on the stream of the call.
func (s *httpCallSession) RequestElicitation(ctx context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	if s.asks == nil {
		return nil, server.ErrElicitationNotSupported
	}
	return s.asks.elicit(ctx, s.GetClientCapabilities(), r)
}

// ListRoots asks the client on the stream of the call.
func (s *httpCallSession) ListRoots(ctx context.Context, _ mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	if s.asks == nil {
		return nil, server.ErrRootsNotSupported
	}
	return s.asks.roots(ctx, s.GetClientCapabilities())
}

// RequestSampling asks the client on the stream of the call.
func (s *httpCallSession) RequestSampling(ctx context.Context, r mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	if s.asks == nil || s.GetClientCapabilities().Sampling == nil {
		return nil, errNoSampling
	}
	var result mcp.CreateMessageResult
	if err := s.asks.ask(ctx, mcp.MethodSamplingCreateMessage, r.CreateMessageParams, &result); err != nil {
		return nil, err
	}
	if fields, ok := result.Content.(map[string]any); ok {
		content, err := mcp.ParseContent(fields)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", mcp.MethodSamplingCreateMessage, err)
		}
		result.Content = content
	}
	return &result, nil
}
