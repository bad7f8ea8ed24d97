package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

// progressEvery is how often a running script tells its client that it still runs.
const progressEvery = 15 * time.Second

// handleLoad is tools/call load_skill.
func (s *Server) handleLoad(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args LoadArgs
	if err := decodeArguments(request.Params.RawArguments, &args, false); err != nil {
		return s.toolError(ctx, err)
	}
	if err := required("name", args.Name); err != nil {
		return s.toolError(ctx, err)
	}
	if args.FilePath != "" {
		most := int64(MaxReadBytes)
		return s.readTool(ctx, request, ReadArgs{Skill: args.Name, Path: args.FilePath, MaxBytes: &most, Activation: args.Activation})
	}
	ses, call, err := s.open(ctx, request, args.Activation)
	if err != nil {
		return s.toolError(ctx, err)
	}
	loaded, err := ses.Activate(ctx, session.ActivateRequest{Call: call, Skill: args.Name, Force: args.Force})
	if err != nil {
		return s.toolError(ctx, err)
	}
	if loaded.Rescanned {
		s.Publish()
	}
	return textResult(renderLoaded(loaded, obstacle(ctx, ses, call, loaded.Skill)), loaded.Output), nil
}

// handleRead is tools/call read_skill_resource.
func (s *Server) handleRead(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args ReadArgs
	if err := decodeArguments(request.Params.RawArguments, &args, false); err != nil {
		return s.toolError(ctx, err)
	}
	return s.readTool(ctx, request, args)
}

func (s *Server) readTool(ctx context.Context, request mcp.CallToolRequest, args ReadArgs) (*mcp.CallToolResult, error) {
	most, err := checkRead(args)
	if err != nil {
		return s.toolError(ctx, err)
	}
	ses, call, err := s.open(ctx, request, args.Activation)
	if err != nil {
		return s.toolError(ctx, err)
	}
	read, err := ses.ReadResource(ctx, session.ReadRequest{Call: call, Skill: args.Skill, Path: args.Path, MaxBytes: most, MaxChars: maxRead, Offset: args.Offset})
	if err != nil {
		return s.toolError(ctx, err)
	}
	return textResult(renderRead(read), read.Output), nil
}

func checkRead(args ReadArgs) (most int64, err error) {
	if err := required("skill", args.Skill); err != nil {
		return 0, err
	}
	if args.Path == "" {
		return 0, invalidArguments(`argument "path" is missing or empty`, "send the path of a file, relative to the skill")
	}
	most = DefaultReadBytes
	if args.MaxBytes != nil {
		most = *args.MaxBytes
	}
	if most < 0 || most > MaxReadBytes {
		return 0, invalidArguments(fmt.Sprintf(`argument "maxBytes" must be between 0 and %d`, MaxReadBytes), "send a number in that range, or leave it out")
	}
	if args.Offset < 0 {
		return 0, invalidArguments(`argument "offset" must not be negative`, "send the offset that the end of a cut text names")
	}
	return most, nil
}

// handleRun is tools/call run_skill_script.
func (s *Server) handleRun(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args RunArgs
	if err := decodeArguments(request.Params.RawArguments, &args, true); err != nil {
		return s.toolError(ctx, err)
	}
	run, err := runRequest(args)
	if err != nil {
		return s.toolError(ctx, err)
	}
	// A script must not outlive the client that asked for it.
	ctx, release := wire.KillAtEOF(ctx)
	defer release()
	ses, call, err := s.open(ctx, request, args.Activation)
	if err != nil {
		return s.toolError(ctx, err)
	}
	call.YieldSlot = func() bool { return wire.YieldSlot(ctx) }
	run.Call = call
	run.CanAsk, run.Answer = canAsk(ctx), answerOf(request)
	stop := s.reportProgress(ctx, &run.Call, request)
	result, err := ses.RunScript(ctx, run)
	question, asks := errors.AsType[*session.Question](err)
	if asks && !wire.ClientOf(ctx).Modern {
		run.Answer = s.elicit(ctx, question)
		result, err = ses.RunScript(ctx, run)
	}
	stop()
	if asks && run.Answer == nil {
		return inputRequired(question), nil
	}
	if err != nil {
		return s.toolError(ctx, err)
	}
	answer := textResult(renderRun(result), result.Output)
	answer.IsError = result.Outcome != "exited"
	return answer, nil
}

func runRequest(args RunArgs) (session.RunRequest, error) {
	run := session.RunRequest{Skill: args.Skill, Path: args.Path, Args: args.Args, Cwd: args.Cwd}
	if err := required("skill", args.Skill); err != nil {
		return run, err
	}
	if args.Path == "" {
		return run, invalidArguments(`argument "path" is missing or empty`, "send the path of a script below scripts/")
	}
	if args.TimeoutMs != nil {
		if *args.TimeoutMs < 1 || *args.TimeoutMs > MaxTimeoutMs {
			return run, invalidArguments(fmt.Sprintf(`argument "timeoutMs" must be between 1 and %d`, MaxTimeoutMs), "send a number in that range, or leave it out")
		}
		run.Timeout = time.Duration(*args.TimeoutMs) * time.Millisecond
	}
	if args.Stdin != nil {
		if len(*args.Stdin) > MaxStdinBytes {
			return run, invalidArguments(`argument "stdin" is longer than 1 MiB`, "pass less text, or let the script read a file of the workspace")
		}
		run.Stdin = []byte(*args.Stdin)
	}
	return run, nil
}

// open waits for the first scan and returns the session of a tool call with what is known of it.
func (s *Server) open(ctx context.Context, request mcp.CallToolRequest, handle string) (*session.Session, session.Call, error) {
	if err := s.scanned(ctx); err != nil {
		return nil, session.Call{}, err
	}
	call, err := s.callOf(ctx, request.Params.Name, fieldsOf(request.Params.Meta))
	if err != nil {
		return nil, call, err
	}
	call.Handle = cmp.Or(handle, call.Handle)
	ses, err := s.cfg.Sessions.Open(ctx, call)
	return ses, call, err
}

func fieldsOf(meta *mcp.Meta) map[string]any {
	if meta == nil {
		return nil
	}
	return meta.AdditionalFields
}

// reportProgress sends a progress notification now and every progressEvery until stop, when the
// client asked for progress.
func (s *Server) reportProgress(ctx context.Context, call *session.Call, request mcp.CallToolRequest) (stop func()) {
	if request.Params.Meta == nil || request.Params.Meta.ProgressToken == nil {
		return func() {}
	}
	token := request.Params.Meta.ProgressToken
	messages := make(chan string, 4)
	call.Progress = func(message string) {
		for {
			select {
			case messages <- message:
				return
			default:
			}
			// What is told last is what counts, also to a client that reads slowly.
			select {
			case <-messages:
			default:
			}
		}
	}
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		message := "requested"
		for step := 1; ; step++ {
			params := map[string]any{"progressToken": token, "progress": step, "message": message}
			if err := s.mcp.SendNotificationToClient(ctx, "notifications/progress", params); err != nil {
				s.cfg.Logger.DebugContext(ctx, "progress not sent")
			}
			select {
			case message = <-messages:
			case <-ticker.C:
			case <-done:
				return
			case <-ctx.Done(): // nobody calls stop for a handler that panicked
				return
			}
		}
	}()
	return func() { close(done); <-finished }
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
