package main

import (
	"context"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const (
	// pixel is a PNG of one red pixel, silence a WAV without samples.
	pixel   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
	silence = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

	typePNG  = "image/png"
	typeText = "text/plain"
	typeJSON = "application/json"
)

// schemaOfHeader declares that an argument travels in a header, too.
const schemaOfHeader = `{"type":"object",
"properties":{"region":{"type":"string","x-mcp-header":"Region"}},"required":["region"]}`

// schemaOf2020 uses what JSON Schema 2020-12 has beyond the keywords known to most servers.
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

// addTool registers a tool; schema "" takes no arguments.
func (f *fixture) addTool(name, schema string, handler server.ToolHandlerFunc) {
	if schema == "" {
		schema = `{"type":"object"}`
	}
	f.mcp.AddTool(mcp.NewToolWithRawSchema(name, "a fixture of the conformance suite",
		json.RawMessage(schema)), handler)
}

func always(result *mcp.CallToolResult) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return result, nil }
}

func embedded(uri, mimeType, text string) mcp.EmbeddedResource {
	return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: mimeType, Text: text})
}

// log writes three lines to the client's log.
func (f *fixture) log(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for _, text := range []string{"started", "processing", "completed"} {
		if err := f.mcp.SendLogMessageToClient(ctx,
			mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, name, text)); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("logged"), nil
}

// progress reports three steps to a client that asked for them.
func (f *fixture) progress(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
		return mcp.NewToolResultText("no token, no progress"), nil
	}
	for _, step := range []int{0, 50, 100} {
		params := map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": step, "total": 100}
		if err := f.mcp.SendNotificationToClient(ctx, string(mcp.MethodNotificationProgress),
			params); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("three steps"), nil
}

// announce notifies every client that a list has changed, as skillsd does after a change on disk.
func (f *fixture) announce(method string) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.mcp.SendNotificationToAllClients(method, nil)
		return mcp.NewToolResultText("announced"), nil
	}
}
