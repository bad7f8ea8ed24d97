package mcpserver

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
)

// answer is the answer of a tool.
type answer struct {
	text   string        // for the model
	output any           // the reference's output object, for adapters
	tools  []string      // allowed-tools of the loaded skill; nil if it declares none
	blocks []mcp.Content // after the text: pictures, and links to files
	failed bool          // the result is an error for the model, although the call succeeded
	// asks is sent instead: it asks the client to call again with the answer to a question.
	asks *mcp.CallToolResult
}

// call is tools/call.
func (s *Server) call(ctx context.Context, r *wire.Request) (any, error) {
	var request mcp.CallToolRequest
	if err := wire.Decode(r.Params, &request.Params); err != nil {
		return nil, err
	}
	s.refresh(ctx)
	handle := s.tools[request.Params.Name]
	switch {
	case handle == nil:
		return nil, unknownTool(request.Params.Name)
	case request.Params.Name == ToolRun && !s.cfg.Sessions.Policy().Offers(ToolRun):
		return s.tool(s.refuseRun)(ctx, request)
	case request.Params.Name == ToolRun:
		return s.tasks.Call(ctx, request, handle)
	}
	return handle(ctx, request)
}

func unknownTool(name string) error {
	return &wire.Error{Code: mcp.INVALID_PARAMS, Message: fmt.Sprintf("tool %.256q not found", name)}
}

// tool wraps a handler with the parts common to all tools: the conversion of errors, the records of the call
// if the client asks for them, and the removal of declared secrets. Secrets are removed from every error and
// from every result without a file. The requests of handlers have a _meta.
func (s *Server) tool(
	handle func(context.Context, mcp.CallToolRequest) (answer, error),
) tasks.Handler {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if request.Params.Meta == nil {
			request.Params.Meta = new(mcp.Meta)
		}
		name := request.Params.Name
		ctx, recorder := recording(ctx, request.Params.Meta.AdditionalFields)
		if s.trace != nil {
			traceTool(ctx, name)
		}
		made, err := handle(ctx, request)
		result := made.asks
		switch {
		case err != nil:
			result, err = s.toolError(ctx, name, err)
			if err != nil {
				return nil, err
			}
		case result == nil:
			result = textResult(made.text, made.output)
			result.Content = append(result.Content, made.blocks...)
			if made.tools != nil {
				result.EnsureResultMeta().SetMetaField(metaAllowedTools, made.tools)
			}
			result.IsError = made.failed
			if made.failed {
				traceFailure(ctx, "tool_error")
			}
		}
		s.addNews(ctx, &request, result)
		// Add records before secrets are removed, because they may repeat words of the call.
		if recorder != nil {
			if records := s.records(ctx, recorder); records != nil {
				result.EnsureResultMeta().SetMetaField(metaRecords, records)
			}
		}
		// The bytes of a file must match its digest.
		showsFile := name == ToolLoad || name == ToolRead
		if secrets := s.cfg.Sessions.Secrets(); (result.IsError || !showsFile) && secrets != nil {
			return withoutSecrets(result, secrets)
		}
		return result, nil
	}
}

// load is load_skill.
func (s *Server) load(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	var args loadArgs
	invalid := decodeArguments(request.Params.RawArguments, &args, "name")
	if args.FilePath != "" {
		return s.readFile(ctx, request, readArgs{
			Skill: args.Name, Path: args.FilePath, MaxBytes: new(int64(maxReadBytes)),
			Activation: args.Activation,
		}, invalid)
	}
	ses, call, err := s.open(ctx, request.Params.Name, request.Params.Meta.AdditionalFields, args.Activation)
	if err != nil {
		return answer{}, err
	}
	loaded, err := ses.Activate(ctx, session.ActivateRequest{Call: call, Skill: args.Name, Force: args.Force,
		Invalid: invalid})
	if err != nil {
		return answer{}, err
	}
	s.loaded(loaded)
	made := answer{text: renderLoad(ctx, ses, call, loaded), output: loaded.Output}
	if front := loaded.Skill.Frontmatter; front.AllowedToolsDeclared {
		made.tools = append([]string{}, front.AllowedTools...)
	}
	return made, nil
}

// loaded records the use of a loaded skill.
func (s *Server) loaded(l *session.Loaded) {
	if s.cfg.Used != nil && !l.Omitted {
		s.cfg.Used(l.Skill.Path)
	}
}

// read is read_skill_resource.
func (s *Server) read(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	var args readArgs
	invalid := decodeArguments(request.Params.RawArguments, &args, "skill")
	return s.readFile(ctx, request, args, invalid)
}

// readFile reads a file of a skill; invalid is the first error in the arguments, or nil.
func (s *Server) readFile(
	ctx context.Context, request mcp.CallToolRequest, args readArgs, invalid *session.Error,
) (answer, error) {
	most := int64(defaultReadBytes)
	if args.MaxBytes != nil {
		most = *args.MaxBytes
	}
	switch {
	case invalid != nil:
	case most < 0 || most > maxReadBytes:
		invalid = invalidArguments(
			fmt.Sprintf(`argument "maxBytes" must be between 0 and %d`, maxReadBytes),
			"send a number in that range, or leave it out")
	case args.Offset < 0:
		invalid = invalidArguments(`argument "offset" must not be negative`,
			"send the offset that the end of a cut text names")
	}
	ses, call, err := s.open(ctx, request.Params.Name, request.Params.Meta.AdditionalFields, args.Activation)
	if err != nil {
		return answer{}, err
	}
	in := session.ReadRequest{
		Call: call, Skill: args.Skill, Path: args.Path, MaxBytes: most, MaxChars: maxRead,
		Bounded: args.MaxBytes != nil && invalid == nil && request.Params.Name == ToolRead,
		Offset:  args.Offset,
		Invalid: invalid,
	}
	if call.Records != nil {
		// Programs get everything that they ask for; only text for models is cut.
		in.MaxChars = 0
	} else if sk, dir, files := ses.Files(ctx, in); len(files) > 0 {
		marks := marksOf(files, whyNotRunnable(ctx, ses, call, sk))
		list := foldersOf(files).list(dir, nil, marks) + marks.rest
		return answer{text: renderList(list, args.Offset, most)}, nil
	}
	read, err := ses.ReadResource(ctx, in)
	if err != nil {
		return answer{}, err
	}
	return answer{text: renderRead(read), output: read.Output, blocks: fileBlocks(read)}, nil
}

// withoutSecrets removes the declared secrets from a result.
func withoutSecrets(result *mcp.CallToolResult, secrets *redact.Redactor) (*mcp.CallToolResult, error) {
	for i, content := range result.Content {
		switch block := content.(type) {
		case mcp.TextContent:
			block.Text = secrets.Text(block.Text)
			result.Content[i] = block
		case mcp.ResourceLink:
			block.Name = secrets.Text(block.Name)
			result.Content[i] = block
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

// textResult is a successful answer: text for the model, the reference's output object for adapters.
func textResult(text string, output any) *mcp.CallToolResult {
	result := &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(text)}}
	if output != nil {
		result.Meta = &mcp.Meta{AdditionalFields: map[string]any{metaOutput: output}}
	}
	return result
}
