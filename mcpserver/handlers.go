package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/skills/policy"
)

// progressEvery is the interval of progress notifications of a running script.
const progressEvery = 15 * time.Second

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
// from every result without a file.
func (s *Server) tool(
	handle func(context.Context, mcp.CallToolRequest) (answer, error),
) tasks.Handler {
	return func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, recorded := s.recording(ctx, fieldsOf(request.Params.Meta))
		traceTool(ctx, request.Params.Name)
		made, err := handle(ctx, request)
		result := made.asks
		switch {
		case err != nil:
			result, err = s.toolError(ctx, request.Params.Name, err)
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
		if records := recorded(); records != nil {
			result.EnsureResultMeta().SetMetaField(metaRecords, records)
		}
		// The bytes of a file must match its digest.
		showsFile := request.Params.Name == ToolLoad || request.Params.Name == ToolRead
		if secrets := s.cfg.Sessions.Secrets(); (result.IsError || !showsFile) && secrets != nil {
			return withoutSecrets(result, secrets)
		}
		return result, nil
	}
}

// load is load_skill.
func (s *Server) load(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	var args LoadArgs
	invalid := decodeArguments(request.Params.RawArguments, &args, "name")
	if args.FilePath != "" {
		return s.readFile(ctx, request, ReadArgs{
			Skill: args.Name, Path: args.FilePath, MaxBytes: new(int64(MaxReadBytes)),
			Activation: args.Activation,
		}, invalid)
	}
	ses, call, err := s.open(ctx, request.Params.Name, fieldsOf(request.Params.Meta), args.Activation)
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
	var args ReadArgs
	invalid := decodeArguments(request.Params.RawArguments, &args, "skill")
	return s.readFile(ctx, request, args, invalid)
}

// readFile reads a file of a skill; invalid is the first error in the arguments, or nil.
func (s *Server) readFile(
	ctx context.Context, request mcp.CallToolRequest, args ReadArgs, invalid *session.Error,
) (answer, error) {
	most := int64(DefaultReadBytes)
	if args.MaxBytes != nil {
		most = *args.MaxBytes
	}
	switch {
	case invalid != nil:
	case most < 0 || most > MaxReadBytes:
		invalid = invalidArguments(
			fmt.Sprintf(`argument "maxBytes" must be between 0 and %d`, MaxReadBytes),
			"send a number in that range, or leave it out")
	case args.Offset < 0:
		invalid = invalidArguments(`argument "offset" must not be negative`,
			"send the offset that the end of a cut text names")
	}
	ses, call, err := s.open(ctx, request.Params.Name, fieldsOf(request.Params.Meta), args.Activation)
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

// run is run_skill_script.
func (s *Server) run(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	var args RunArgs
	invalid := decodeArguments(request.Params.RawArguments, &args, "skill")
	invalid = cmp.Or(invalid, s.checkRun(args))
	answered, err := answerOf(ctx, request)
	if err != nil {
		return answer{}, err
	}
	// A script must not outlive its client.
	ctx, release := wire.KillAtEOF(ctx)
	defer release()
	ses, call, err := s.open(ctx, request.Params.Name, fieldsOf(request.Params.Meta), args.Activation)
	if err != nil {
		return answer{}, err
	}
	// No other server has the session, so the work of the call is done here. A server that forwarded the call
	// would keep a task that never ends.
	tasks.FromContext(ctx).Here()
	call.YieldSlot = func() bool { return wire.YieldSlot(ctx) }
	stop := func() {}
	if meta := request.Params.Meta; meta != nil && meta.ProgressToken != nil {
		stop = s.reportProgress(tasks.FromContext(ctx).Request(ctx), &call)
	}
	call.Progress = tasks.FromContext(ctx).Progress(call.Progress)
	result, err := s.runAsked(ctx, ses, runRequest(ctx, call, args, invalid, answered))
	// MCP allows no progress notification after the result.
	stop()
	if question, asks := errors.AsType[*session.Question](err); asks {
		// The result is the question itself (SEP-2322), and the client calls again with the answer.
		form := &mcp.CallToolResult{}
		form.ResultType, form.RequestState = mcp.ResultTypeInputRequired, question.State
		form.InputRequests = mcp.InputRequests{
			askApproval: mcp.NewElicitationInputRequest(elicitation(ctx, question))}
		return answer{asks: form}, nil
	}
	if err != nil {
		return answer{}, s.withCwd(&call, args.Cwd, err)
	}
	return answer{text: s.ranText(&call, args, result), output: result.Output, blocks: outBlocks(result),
		failed: result.Outcome != "exited" && !result.Opaque}, nil
}

// runRequest returns the run that the arguments of a call request; invalid is why they were rejected, or nil.
func runRequest(
	ctx context.Context, call session.Call, args RunArgs, invalid *session.Error, answered *session.Answer,
) session.RunRequest {
	run := session.RunRequest{
		Call: call, Skill: args.Skill, Path: args.Path, Args: args.Args, Cwd: args.Cwd,
		Invalid: invalid, CanAsk: canAsk(ctx), Fields: asksWithFields(ctx), Answer: answered,
		ShowOut: call.Records == nil,
	}
	if args.TimeoutMs != nil && invalid == nil {
		run.Timeout = time.Duration(*args.TimeoutMs) * time.Millisecond
	}
	if args.Stdin != nil {
		run.Stdin = []byte(*args.Stdin)
	}
	return run
}

// runAsked runs a script, and asks the client for its user's approval while the call waits, if that is how
// its revision asks. On 2026-07-28 it returns the question as its error.
func (s *Server) runAsked(
	ctx context.Context, ses *session.Session, run session.RunRequest,
) (*session.RunResult, error) {
	result, err := ses.RunScript(ctx, run)
	if s.awaited(ctx, run, err) {
		result, err = ses.RunScript(ctx, run)
	}
	question, asks := errors.AsType[*session.Question](err)
	if !asks || wire.ClientOf(ctx).Modern {
		return result, err
	}
	run.Answer = s.elicit(ctx, question)
	return ses.RunScript(ctx, run)
}

// ranText returns the text of a run for the model, with what the call got wrong after the first line.
func (s *Server) ranText(call *session.Call, args RunArgs, result *session.RunResult) string {
	text := renderRun(result)
	line := s.unseen(call, args, result)
	if x := result.Output.Skillsd; x != nil && result.Outcome == "timeout" && !result.Opaque &&
		args.TimeoutMs != nil && *args.TimeoutMs > x.Limits.TimeoutMS {
		line += fmt.Sprintf("The entry of this script allows timeoutMs of %d at most.\n", x.Limits.TimeoutMS)
	}
	if line == "" {
		return text
	}
	first, rest, _ := strings.Cut(text, "\n")
	return first + "\n" + line + rest
}

// awaited waits until the user has approved a refused run outside of the client, or can no longer do so, and
// reports whether to try the run again. It is for clients with tasks, whose calls can wait. A harness that
// asks for records gets the refusal at once, as from its own tools.
func (s *Server) awaited(ctx context.Context, run session.RunRequest, err error) bool {
	denied, ok := errors.AsType[*session.Denied](err)
	if !ok || run.CanAsk || run.Call.Records != nil || tasks.FromContext(ctx) == nil {
		return false
	}
	code, where := denied.Object.ApprovalCode, ""
	if code == "" {
		return false
	}
	if run.Call.Remote {
		where = ", where the server runs, or on its page"
	}
	run.Call.Progress("waits until the user approves it: skillsd approve " + code + where)
	s.cfg.Sessions.AwaitApproval(ctx, code)
	return ctx.Err() == nil
}

// refuseRun is run_skill_script of a server that does not offer it. A model may have read of the tool in a
// skill, and the refusal is recorded.
func (s *Server) refuseRun(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	ses, call, err := s.open(ctx, request.Params.Name, fieldsOf(request.Params.Meta), "")
	if err != nil {
		return answer{}, err
	}
	return answer{}, ses.Permit(ctx, session.PermitRequest{Call: call, Class: policy.SideEffect})
}

// checkRun returns the first error in the numbers and sizes of a run, or nil.
func (s *Server) checkRun(args RunArgs) *session.Error {
	_, limit := s.cfg.Sessions.Timeouts()
	most := limit.Milliseconds()
	switch {
	case args.TimeoutMs != nil && (*args.TimeoutMs < 1 || *args.TimeoutMs > most):
		return invalidArguments(fmt.Sprintf(`argument "timeoutMs" must be between 1 and %d`, most),
			"send a number in that range, or leave it out")
	case args.Stdin != nil && len(*args.Stdin) > MaxStdinBytes:
		return invalidArguments(`argument "stdin" is longer than 1 MiB`,
			"pass less text, or let the script read a file of the workspace")
	}
	return nil
}

// open waits for the first scan and returns the session of a call with the call's properties. A handle in the
// arguments takes precedence over one in _meta.
func (s *Server) open(
	ctx context.Context, method string, meta map[string]any, handle string,
) (*session.Session, session.Call, error) {
	// Another message of the principal may be decoded now, while this call waits.
	wire.Decoded(ctx)
	// A skill that is missing before the scan is done may still be found.
	if err := s.scanned(ctx); err != nil {
		return nil, session.Call{}, err
	}
	call, err := s.callOf(ctx, method, meta)
	if err != nil {
		return nil, call, err
	}
	call.Handle = cmp.Or(handle, call.Handle)
	ses, err := s.sessionOf(ctx, call)
	return ses, call, err
}

func fieldsOf(meta *mcp.Meta) map[string]any {
	if meta == nil {
		return nil
	}
	return meta.AdditionalFields
}

// reportProgress sends a progress notification at once, at every message of the call and every progressEvery,
// until stop is called.
func (s *Server) reportProgress(ctx context.Context, call *session.Call) (stop func()) {
	messages := make(chan string, 4)
	call.Progress = func(message string) {
		select {
		case messages <- message:
			return
		default:
		}
		// A slow client gets only the newest message. This is the only sender.
		select {
		case <-messages:
		default:
		}
		messages <- message
	}
	// The call may end without stop if its handler panics.
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		message := "requested"
		for step := 1; ; step++ {
			params := map[string]any{"progress": step, "message": message}
			if err := wire.Notify(ctx, string(mcp.MethodNotificationProgress), params); err != nil {
				s.cfg.Logger.DebugContext(ctx, "progress not sent")
			}
			select {
			case message = <-messages:
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		reporting.Wait()
	}
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
	return &mcp.CallToolResult{
		Result:  mcp.Result{Meta: resultMeta(output)},
		Content: []mcp.Content{mcp.NewTextContent(text)},
	}
}

func resultMeta(output any) *mcp.Meta {
	if output == nil {
		return nil
	}
	return &mcp.Meta{AdditionalFields: map[string]any{"skillsd/result": output}}
}
