package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/wire"
)

// codeResourceNotFound is the error code for an unknown URI in revisions before 2026-07-28.
const codeResourceNotFound = -32002

func (f *fixture) methods() wire.Methods {
	done := func(context.Context, *wire.Request) (any, error) { return &mcp.EmptyResult{}, nil }
	methods := wire.Methods{
		"tools/call":               f.callTool,
		"tools/list":               f.listTools,
		"resources/list":           listResources,
		"resources/read":           readResource,
		"resources/templates/list": listTemplates,
		"prompts/list":             listPrompts,
		"prompts/get":              f.getPrompt,
		"completion/complete":      complete,
		"logging/setLevel":         legacy(done),
		"resources/subscribe":      legacy(done),
		"resources/unsubscribe":    legacy(done),
	}
	maps.Copy(methods, f.tasks.Methods())
	return methods
}

// legacy returns method for revisions before 2026-07-28, which lacks it.
func legacy(method wire.Method) wire.Method {
	return func(ctx context.Context, r *wire.Request) (any, error) {
		if r.Modern {
			return nil, &wire.Error{Code: mcp.METHOD_NOT_FOUND, Message: "Method " + r.Method + " not found"}
		}
		return method(ctx, r)
	}
}

func (f *fixture) listTools(context.Context, *wire.Request) (any, error) {
	result := &mcp.ListToolsResult{}
	for _, name := range slices.Sorted(maps.Keys(f.tools)) {
		result.Tools = append(result.Tools, f.tools[name].Tool)
	}
	return result, nil
}

func listResources(context.Context, *wire.Request) (any, error) {
	return &mcp.ListResourcesResult{Resources: []mcp.Resource{
		{URI: "test://static-binary", Name: "binary", Description: "a PNG", MIMEType: typePNG},
		{URI: "test://static-text", Name: "text", Description: "a text", MIMEType: typeText},
		{URI: "test://watched-resource", Name: "watched", Description: "may be subscribed to",
			MIMEType: typeText},
	}}, nil
}

func listTemplates(context.Context, *wire.Request) (any, error) {
	template := mcp.NewResourceTemplate("test://template/{id}/data", "template",
		mcp.WithTemplateMIMEType(typeJSON))
	return &mcp.ListResourceTemplatesResult{ResourceTemplates: []mcp.ResourceTemplate{template}}, nil
}

func readResource(_ context.Context, r *wire.Request) (any, error) {
	var params mcp.ReadResourceParams
	if err := wire.Decode(r.Params, &params); err != nil {
		return nil, err
	}
	contents, ok := contentsOf(params.URI)
	if !ok {
		code := codeResourceNotFound
		if r.Modern {
			code = mcp.INVALID_PARAMS
		}
		return nil, &wire.Error{Code: code, Message: "unknown resource",
			Data: map[string]any{"uri": params.URI}}
	}
	return &mcp.ReadResourceResult{Contents: []mcp.ResourceContents{contents}}, nil
}

func contentsOf(uri string) (contents mcp.ResourceContents, ok bool) {
	switch uri {
	case "test://static-text", "test://watched-resource":
		return mcp.TextResourceContents{URI: uri, MIMEType: typeText, Text: "a text"}, true
	case "test://static-binary":
		return mcp.BlobResourceContents{URI: uri, MIMEType: typePNG, Blob: pixel}, true
	}
	id, of := strings.CutPrefix(uri, "test://template/")
	id, data := strings.CutSuffix(id, "/data")
	if !of || !data {
		return nil, false
	}
	text, err := json.Marshal(map[string]string{"id": id})
	return mcp.TextResourceContents{URI: uri, MIMEType: typeJSON, Text: string(text)}, err == nil
}

// prompt is an answer to prompts/get.
type prompt struct {
	mcp.Prompt
	first mcp.Content // precedes the text, if any
	text  string      // with {ARGUMENT} for an argument
	asks  *dialogue   // precedes the answer, if any
}

func prompts() []prompt {
	required := mcp.RequiredArgument()
	return []prompt{
		{Prompt: mcp.NewPrompt("test_simple_prompt"), text: "a text"},
		{Prompt: mcp.NewPrompt("test_prompt_with_arguments", mcp.WithArgument("arg1", required),
			mcp.WithArgument("arg2", required)), text: "{arg1} and {arg2}"},
		{Prompt: mcp.NewPrompt("test_prompt_with_embedded_resource",
			mcp.WithArgument("resourceUri", required)),
			first: embedded("test://example-resource", typeText, "an embedded text"),
			text:  "read {resourceUri}"},
		{Prompt: mcp.NewPrompt("test_prompt_with_image"), first: mcp.NewImageContent(pixel, typePNG),
			text: "look at it"},
		{Prompt: mcp.NewPrompt("test_input_required_result_prompt"), text: "asked", asks: &dialogue{
			rounds: one("user_context", ask("What context should the prompt use?",
				`{"context":{"type":"string"}}`, "context")),
		}},
	}
}

func listPrompts(context.Context, *wire.Request) (any, error) {
	result := &mcp.ListPromptsResult{}
	for _, p := range prompts() {
		p.Description = "a fixture of the conformance suite"
		result.Prompts = append(result.Prompts, p.Prompt)
	}
	return result, nil
}

func (f *fixture) getPrompt(ctx context.Context, r *wire.Request) (any, error) {
	var params mcp.GetPromptParams
	if err := wire.Decode(r.Params, &params); err != nil {
		return nil, err
	}
	all := prompts()
	i := slices.IndexFunc(all, func(p prompt) bool { return p.Name == params.Name })
	if i < 0 {
		return nil, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "unknown prompt"}
	}
	p, result := all[i], &mcp.GetPromptResult{}
	if p.asks != nil {
		at, failure := f.take(p.asks, wire.ClientOf(ctx).Capabilities, params.MultiRoundTripParams)
		if failure != nil {
			return nil, failure
		}
		if at.InputRequests != nil {
			result.ResultType, result.MultiRoundTripResult = mcp.ResultTypeInputRequired,
				at.MultiRoundTripResult
			return result, nil
		}
	}
	if p.first != nil {
		result.Messages = append(result.Messages, mcp.NewPromptMessage(mcp.RoleUser, p.first))
	}
	text := p.text
	for _, argument := range p.Arguments {
		text = strings.ReplaceAll(text, "{"+argument.Name+"}", params.Arguments[argument.Name])
	}
	result.Messages = append(result.Messages, mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(text)))
	return result, nil
}

func complete(context.Context, *wire.Request) (any, error) {
	return &mcp.CompleteResult{Completion: mcp.Completion{Values: []string{"paris", "park", "party"},
		Total: 3}}, nil
}
