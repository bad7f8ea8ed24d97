package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

const (
	// pixel is a PNG of one red pixel; silence is a WAV without samples.
	pixel   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
	silence = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

	typePNG  = "image/png"
	typeText = "text/plain"
	typeJSON = "application/json"
)

// schemaOfHeader declares that an argument is also sent in a header.
const schemaOfHeader = `{"type":"object",
"properties":{"region":{"type":"string","x-mcp-header":"Region"}},"required":["region"]}`

// schemaOf2020 uses keywords of JSON Schema 2020-12 that most servers do not support.
const schemaOf2020 = `{
"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object",
	"properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},
	"contactMethod":{"type":"string","enum":["phone","email"]},
	"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
"then":{"required":["phone"]},"else":{"required":["email"]},
"additionalProperties":false}`

// addTools registers the tools that answer at once.
func (f *fixture) addTools() {
	for name, content := range map[string][]mcp.Content{
		"test_simple_text":       {mcp.NewTextContent("one text")},
		"test_image_content":     {mcp.NewImageContent(pixel, typePNG)},
		"test_audio_content":     {mcp.NewAudioContent(silence, "audio/wav")},
		"test_embedded_resource": {embedded("test://embedded-resource", typeText, "an embedded text")},
		"test_multiple_content_types": {
			mcp.NewTextContent("three kinds"), mcp.NewImageContent(pixel, typePNG),
			embedded("test://mixed-content-resource", typeJSON, `{"test":"data","value":123}`),
		},
	} {
		f.addTool(name, "", always(&mcp.CallToolResult{Content: content}))
	}
	done := mcp.NewToolResultText("done")
	f.addTool("test_error_handling", "", always(mcp.NewToolResultError("it fails, as it should")))
	f.addTool("test_header_argument", schemaOfHeader, always(done))
	f.addTool("json_schema_2020_12_tool", schemaOf2020, always(done))
	f.addTool("test_tool_with_logging", "", f.log)
	f.addTool("test_logging_tool", "", f.log)
	f.addTool("test_tool_with_progress", "", f.progress)
	f.addTool("test_trigger_tool_change", "", f.announce(mcp.MethodNotificationToolsListChanged))
	f.addTool("test_trigger_prompt_change", "", f.announce(mcp.MethodNotificationPromptsListChanged))
}

// tool is a tool and its handler.
type tool struct {
	mcp.Tool
	call func(context.Context, mcp.CallToolRequest) (any, error)
}

// addTool registers a tool; with schema "", it takes no arguments.
func (f *fixture) addTool(name, schema string, handle tasks.Handler) {
	f.add(name, schema, func(ctx context.Context, r mcp.CallToolRequest) (any, error) {
		return handle(ctx, r)
	})
}

func (f *fixture) add(
	name, schema string, call func(context.Context, mcp.CallToolRequest) (any, error),
) {
	if schema == "" {
		schema = `{"type":"object"}`
	}
	f.tools[name] = tool{mcp.NewToolWithRawSchema(name, "a fixture of the conformance suite",
		json.RawMessage(schema)), call}
}

func (f *fixture) callTool(ctx context.Context, r *wire.Request) (any, error) {
	var request mcp.CallToolRequest
	if err := wire.Decode(r.Params, &request.Params); err != nil {
		return nil, err
	}
	called, ok := f.tools[request.Params.Name]
	if !ok {
		return nil, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "unknown tool"}
	}
	if r.Modern {
		header := func(name string) (string, bool) {
			values := r.Header.Values(name)
			return strings.Join(values, ""), len(values) > 0
		}
		if err := mcp.ValidateParamHeadersLookup(header, &called.Tool, r.Params); err != nil {
			return nil, &wire.Error{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
		}
		return called.call(ctx, request)
	}
	return f.bridge(ctx, request, called)
}

func always(result *mcp.CallToolResult) tasks.Handler {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return result, nil }
}

func embedded(uri, mimeType, text string) mcp.EmbeddedResource {
	return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: mimeType, Text: text})
}

// log writes three lines to the client's log.
func (f *fixture) log(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for _, text := range []string{"started", "processing", "completed"} {
		// A client of 2026-07-28 requests a log in each request.
		if wire.ClientOf(ctx).Modern && wire.Meta(ctx, mcp.MetaKeyLogLevel) == nil {
			break
		}
		if err := wire.Notify(ctx, "notifications/message",
			map[string]any{"level": mcp.LoggingLevelInfo, "logger": name, "data": text}); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("logged"), nil
}

// progress reports three steps to a client that requested progress.
func (f *fixture) progress(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
		return mcp.NewToolResultText("no token, no progress"), nil
	}
	for _, step := range []int{0, 50, 100} {
		if err := wire.Notify(ctx, string(mcp.MethodNotificationProgress),
			map[string]any{"progress": step, "total": 100}); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("three steps"), nil
}

// announce notifies every client that a list changed, as skillsd does after a change on disk.
func (f *fixture) announce(method string) tasks.Handler {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.wire.Announce(method)
		return mcp.NewToolResultText("announced"), nil
	}
}
