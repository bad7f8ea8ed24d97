package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
)

// withhold is how the JSON of an error is told to a client; see [session.Secrets].
func (s *Server) withhold(raw json.RawMessage) json.RawMessage {
	return s.cfg.Sessions.Secrets().JSON(raw)
}

// tool is what every tool has around its handler: the records of the call, when the client asks for
// them, and no declared secret in what the call is told of itself. That is every error, and all that
// shows no file: the bytes of a file are what their digests say.
func (s *Server) tool(handle server.ToolHandlerFunc) server.ToolHandlerFunc {
	handle = s.withRecords(handle)
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, err := handle(ctx, request)
		if result == nil || !result.IsError && showsFiles(request.Params.Name) {
			return result, err
		}
		if secrets := s.cfg.Sessions.Secrets(); secrets != nil {
			return withoutSecrets(result, secrets)
		}
		return result, err
	}
}

func showsFiles(tool string) bool { return tool == ToolLoad || tool == ToolRead }

func withoutSecrets(result *mcp.CallToolResult, secrets *redact.Redactor) (*mcp.CallToolResult, error) {
	for i, content := range result.Content {
		if text, ok := content.(mcp.TextContent); ok {
			text.Text = secrets.Text(text.Text)
			result.Content[i] = text
		}
	}
	if result.StructuredContent != nil {
		raw, err := provenance.Encode(result.StructuredContent)
		if err != nil {
			return nil, err
		}
		result.StructuredContent = secrets.JSON(raw)
	}
	if result.Meta == nil {
		return result, nil
	}
	for key, value := range result.Meta.AdditionalFields {
		raw, err := provenance.Encode(value)
		if err != nil {
			return nil, err
		}
		result.Meta.AdditionalFields[key] = secrets.JSON(raw)
	}
	return result, nil
}
