package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// progressEvery is the interval of progress notifications of a running script.
const progressEvery = 15 * time.Second

// run is run_skill_script.
func (s *Server) run(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	var args runArgs
	invalid := decodeArguments(request.Params.RawArguments, &args, "skill")
	invalid = cmp.Or(invalid, s.checkRun(args))
	var answered *session.Answer
	if response, given := request.Params.InputResponses[askApproval]; given {
		if response.DecodeFor(mcp.MethodElicitationCreate) != nil || response.Elicitation == nil {
			return answer{}, &wire.Error{Code: mcp.INVALID_PARAMS,
				Message: "inputResponses." + askApproval + " is not the result of an elicitation"}
		}
		answered = formAnswer(request.Params.RequestState, response.Elicitation, clientOf(ctx).cutsForms)
	}
	// A script must not outlive its client.
	ctx, release := wire.KillAtEOF(ctx)
	defer release()
	ses, call, err := s.open(ctx, request.Params.Name, request.Params.Meta.AdditionalFields, args.Activation)
	if err != nil {
		return answer{}, err
	}
	call.YieldSlot = func() bool { return wire.YieldSlot(ctx) }

	stop, reporting, task := func() {}, ctx, tasks.FromContext(ctx)
	if task != nil {
		// No other server has the session, so the work of the call is done here. A server that forwarded the
		// call would keep a task that never ends.
		task.Here()
		reporting = task.Request()
	}
	if request.Params.Meta.ProgressToken != nil {
		stop = s.reportProgress(reporting, &call)
	}
	if task != nil {
		call.Progress = task.Progress(call.Progress)
	}

	client := wire.ClientOf(ctx)
	run := session.RunRequest{
		Call: call, Skill: args.Skill, Path: args.Path, Args: args.Args, Cwd: args.Cwd,
		Invalid: invalid, CanAsk: canAsk(client), Fields: clients[client.Info.Name].cutsForms,
		Answer: answered, ShowOut: call.Records == nil,
	}
	if args.TimeoutMs != nil && invalid == nil {
		run.Timeout = time.Duration(*args.TimeoutMs) * time.Millisecond
	}
	if args.Stdin != nil {
		run.Stdin = []byte(*args.Stdin)
	}
	result, err := ses.RunScript(ctx, run)
	if err != nil {
		result, err = s.approved(ctx, ses, run, err)
	}
	// MCP allows no progress notification after the result.
	stop()
	if err != nil {
		return s.notRun(ctx, &call, args.Cwd, err)
	}
	return answer{text: renderRun(result, s.mistakes(&call, args, result)), output: result.Output,
		blocks: outBlocks(result), failed: result.Outcome != "exited" && !result.Opaque}, nil
}

// checkRun returns the first error in the numbers and sizes of a run, or nil.
func (s *Server) checkRun(args runArgs) *session.Error {
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

// approved asks the client for its user's approval of a run that was refused with err, while the call waits,
// if that is how its revision asks, and runs the script then. On 2026-07-28 it returns the question as its
// error.
func (s *Server) approved(
	ctx context.Context, ses *session.Session, run session.RunRequest, err error,
) (result *session.RunResult, _ error) {
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

// notRun returns the answer of a call whose script did not run.
func (s *Server) notRun(ctx context.Context, call *session.Call, cwd string, err error) (answer, error) {
	question, asks := errors.AsType[*session.Question](err)
	if !asks {
		return answer{}, s.withCwd(call, cwd, err)
	}
	// The result is the question itself (SEP-2322), and the client calls again with the answer.
	form := &mcp.CallToolResult{}
	form.ResultType, form.RequestState = mcp.ResultTypeInputRequired, question.State
	form.InputRequests = mcp.InputRequests{
		askApproval: mcp.NewElicitationInputRequest(elicitation(ctx, question))}
	return answer{asks: form}, nil
}

// withCwd returns the error of a run, with the name that its working directory has for the script if the
// client gave the path of a directory of its workspace.
func (s *Server) withCwd(call *session.Call, cwd string, err error) error {
	plain, isPlain := errors.AsType[*session.Error](err)
	if !isPlain || !fault.IsCwd(err) || call.Remote || !filepath.IsAbs(cwd) {
		return err
	}
	inside, isBelow := fsys.Below(s.mounted(call), cwd)
	if !isBelow {
		return err
	}
	named := *plain
	named.Remedy = "call again with cwd " + path.Join(session.WorkspaceDir, filepath.ToSlash(inside)) +
		", which is that directory for the script"
	return &named
}

// mistakes returns lines about what a call got wrong: arguments that name a file in the client's directory
// that the script did not see, since most programs continue without it, or report only that it is missing;
// and a timeout that its entry does not allow.
func (s *Server) mistakes(call *session.Call, args runArgs, r *session.RunResult) string {
	var lines strings.Builder
	x := r.Output.Skillsd
	// The answer reveals which files exist, so it is given only to the client that started this process, and
	// only about files in its directory.
	dir := cmp.Or(call.Workspace.Path, s.cfg.WorkDir)
	if !call.Remote && dir != "" && !r.Sealed && r.Output.ExecutionTarget == "sandbox" && x != nil {
		mounted := ""
		if r.SeesWorkspace() {
			mounted = s.mounted(call)
		}
		for _, file := range Unseen(args.Args, args.Cwd, dir, mounted) {
			advice := "the script sees none of the user's files; pass its text on stdin"
			if file.Inside != "" {
				advice = "there it is `" + oneLine(file.Inside) + "`"
			}
			fmt.Fprintf(&lines, "`%s` does not exist in the sandbox: %s\n", oneLine(file.Arg), advice)
		}
	}
	if x != nil && r.Outcome == "timeout" && !r.Opaque && args.TimeoutMs != nil &&
		*args.TimeoutMs > x.Limits.TimeoutMS {
		fmt.Fprintf(&lines, "The entry of this script allows timeoutMs of %d at most.\n", x.Limits.TimeoutMS)
	}
	return lines.String()
}

// maxUnseen is the maximum number of arguments of a run that are checked and named.
const maxUnseen = 5

// mounted returns the directory that is the workspace of a call, if it has one.
func (s *Server) mounted(call *session.Call) string {
	if s.cfg.AskWorkspace && call.Workspace.Path != "" {
		return call.Workspace.Path
	}
	return cmp.Or(s.cfg.Workspace, call.Workspace.Path, s.cfg.WorkDir)
}

// UnseenFile is an argument of a run that names an existing file, which has another name for the script.
type UnseenFile struct {
	Arg    string
	Inside string // its path in the sandbox; empty if the script does not see it
}

// Unseen returns the first arguments that name a file in dir, or in mounted, that a script with the working
// directory cwd did not see under that name. Relative arguments are meant from dir. mounted is the directory
// that is the script's workspace, or "". If a name leads up from dir, the file may be missing there, since
// the script cannot make it under that name.
func Unseen(args []string, cwd, dir, mounted string) (files []UnseenFile) {
	for _, written := range args[:min(len(args), maxUnseen)] {
		arg := FileArg(written)
		// A relative argument is resolved where the script starts, which is the workspace if there is one.
		isSeen := mounted != "" && filepath.IsLocal(arg) && fsys.Exists(filepath.Join(mounted, arg))
		if arg == "" || !filepath.IsAbs(arg) && (isSeen || cwd != "") {
			continue
		}
		if file, isFile := unseen(arg, dir, mounted); isFile {
			files = append(files, file)
		}
	}
	return files
}

// unseen returns the file that one argument names, see [Unseen].
func unseen(arg, dir, mounted string) (file UnseenFile, isFile bool) {
	whole, leadsUp := arg, false
	if !filepath.IsAbs(arg) {
		whole, leadsUp = filepath.Join(dir, arg), !filepath.IsLocal(arg)
	}
	name, isHere := fsys.Below(dir, whole)
	inside, isMounted := fsys.Below(mounted, whole)
	switch {
	case isHere && name == ".":
	case isMounted && (existsIn(mounted, inside) || leadsUp && existsIn(mounted, filepath.Dir(inside))):
		return UnseenFile{arg, path.Join(session.WorkspaceDir, filepath.ToSlash(inside))}, true
	case isHere && mounted == "" && existsIn(dir, name):
		return UnseenFile{Arg: arg}, true
	}
	return UnseenFile{}, false
}

// FileArg returns the part of an argument that may name a file: the value of an option, else all of it.
func FileArg(arg string) string {
	_, value, isOption := strings.Cut(arg, "=")
	if isOption && strings.HasPrefix(arg, "-") {
		return value
	}
	return arg
}

// existsIn reports whether a name exists below a directory, without a link that leads out of it.
func existsIn(dir, name string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	return fsys.ExistsIn(root, name)
}

// refuseRun is run_skill_script of a server that does not offer it. A model may have read of the tool in a
// skill, and the refusal is recorded.
func (s *Server) refuseRun(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	ses, call, err := s.open(ctx, request.Params.Name, request.Params.Meta.AdditionalFields, "")
	if err != nil {
		return answer{}, err
	}
	return answer{}, ses.Permit(ctx, session.PermitRequest{Call: call, Class: policy.SideEffect})
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

// askApproval names the one input request of a call that needs an approval.
const askApproval = "approval"

// fieldDecision is the field of the form with the decision; the others are its values. Clients show the
// values unchanged, Claude Code their first 46 characters; "yes" or "no" would read as an answer to the whole
// question.
const (
	fieldDecision   = "decision"
	decisionOnce    = "Run it once"
	decisionSession = "Run it, and this script for the whole session"
	decisionNo      = "Do not run it"
)

// canAsk reports whether a client declares that it can show a form to its user. Any other client is never
// asked, and its call is refused.
func canAsk(client wire.Client) bool {
	asks := client.Capabilities.Elicitation
	return asks != nil && (asks.Form != nil || asks.URL == nil)
}

// elicitation returns the form of a question. Accepting it is the approval, unless the decision is no.
func elicitation(ctx context.Context, q *session.Question) mcp.ElicitationParams {
	decision := map[string]any{"type": "string", "title": "Decision"}
	// The first value is no, because a client with its cursor there must not run the script at a stray key. A
	// client with fields must go to the end of the form to accept it.
	values := []any{decisionNo, decisionOnce}
	if q.Remember {
		values = append(values, decisionSession)
	}
	schema := map[string]any{"type": "object", "required": []string{fieldDecision}}
	if clientOf(ctx).cutsForms {
		values, decision["default"] = append(values[1:], decisionNo), decisionOnce
		delete(schema, "required")
	}
	decision["enum"] = values
	// Clients sort the properties by name.
	properties := map[string]any{fieldDecision: decision}
	for _, field := range q.Fields {
		properties[field.Name] = map[string]any{"type": "string", "title": field.Title, "default": field.Text}
	}
	schema["properties"] = properties
	return mcp.ElicitationParams{Mode: mcp.ElicitationModeForm, Message: q.Message, RequestedSchema: schema}
}

// formAnswer reads a returned form. A form with a default decision was accepted unchanged if it has that
// decision or none; another form without a decision was not filled in.
func formAnswer(state string, result *mcp.ElicitationResult, begun bool) *session.Answer {
	a := &session.Answer{State: state, Action: string(result.Action)}
	fields, isObject := result.Content.(map[string]any)
	a.Content = fields
	decision, given := fields[fieldDecision]
	for key := range fields {
		// Another reader might take such a key for the field.
		given = given || strings.EqualFold(key, fieldDecision)
	}
	if result.Action != mcp.ElicitationResponseActionAccept {
		return a
	}
	switch {
	case result.Content == nil, isObject && !given:
		a.Unclear = !begun
	case decision == decisionOnce:
		a.Chosen = !begun
	case decision == decisionSession:
		a.Remember, a.Chosen = true, true
	case decision == decisionNo:
		a.Action, a.Chosen = string(mcp.ElicitationResponseActionDecline), true
	default:
		a.Unclear = true
	}
	return a
}

// elicit asks a client of an older revision while its call waits. Any failure is a refusal.
func (s *Server) elicit(ctx context.Context, q *session.Question) *session.Answer {
	ctx, cancel := context.WithDeadline(ctx, q.Until)
	defer cancel()
	var result mcp.ElicitationResult
	if err := wire.Ask(ctx, mcp.MethodElicitationCreate, elicitation(ctx, q), &result); err != nil {
		answer := canceled(q.State)
		answer.Failed = errors.Is(err, wire.ErrFailed) || errors.Is(err, wire.ErrNotAsked)
		return answer
	}
	return formAnswer(q.State, &result, clientOf(ctx).cutsForms)
}

func canceled(state string) *session.Answer {
	return &session.Answer{State: state, Action: string(mcp.ElicitationResponseActionCancel)}
}

// renderRun returns the text of run_skill_script: how the script ended, what the call got wrong, its files in
// /out and its changes, and its output. Some clients show users only the last lines, so the output comes last
// or, after a failure, the errors. The last line of a truncated text repeats how the script ended.
func renderRun(r *session.RunResult, mistakes string) string {
	first := RunLine(r)
	streams := []struct {
		name string
		*session.Stream
	}{{"stderr", &r.Stderr}, {"stdout", &r.Stdout}}
	if !r.ExitWithheld && !r.Opaque && (r.Outcome != "exited" || r.ExitCode != 0) {
		slices.Reverse(streams)
	}
	text := first + "\n" + mistakes + RenderMissing(r) + renderOut(r) + RenderSkips(r) + RenderWrites(r)
	printed := ""
	for _, stream := range streams {
		if stream.Total > 0 || stream.Withheld != nil {
			printed += stream.name + ":\n" + RenderStream(stream.Stream)
		}
	}
	if printed == "" && len(r.Out) == 0 {
		printed = "The script printed nothing.\n"
	}
	text += printed
	if r.Stdout.Truncated || r.Stderr.Truncated {
		text += first + "\n"
	}
	return text
}

const (
	maxOutLines = 1_500 // characters of the lines about files in /out, without the contents
	maxOutLinks = 20    // links to files in an answer
)

// renderOut returns one line for each file in /out, and the texts that are shown.
func renderOut(r *session.RunResult) string {
	var b strings.Builder
	used := 0
	for i, file := range r.Out {
		shown := session.OutShown{}
		if i < len(r.OutShown) {
			shown = r.OutShown[i]
		}
		line := fmt.Sprintf("out: %s, %d bytes, %s", oneLine(file.Name), file.Bytes, file.URI)
		if shown.HostPath != "" {
			line += ", " + oneLine(shown.HostPath)
		}
		switch {
		case file.Withheld != "":
			line = fmt.Sprintf("out: %s withheld: it is not text and holds a secret (%s)",
				oneLine(file.Name), file.Withheld)
		case shown.Picture != nil:
			line += fmt.Sprintf(", a picture of %d x %d pixels", shown.Picture.Width, shown.Picture.Height)
		}
		used += len(line)
		if used > maxOutLines {
			b.WriteString("… more files in the session's outputs\n")
			break
		}
		b.WriteString(line)
		if shown.Text != "" {
			b.WriteString(":\n" + strings.TrimSuffix(shown.Text, "\n"))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// outBlocks returns what follows the text of a run: pictures, and links to the other files that are not
// shown.
func outBlocks(r *session.RunResult) (blocks []mcp.Content) {
	links := 0
	for i, shown := range r.OutShown {
		file := &r.Out[i]
		switch {
		case file.Withheld != "" || shown.Text != "":
		case shown.Picture != nil:
			blocks = append(blocks, imageBlock(shown.Picture))
		case links < maxOutLinks:
			link := mcp.NewResourceLink(file.URI, oneLine(file.Name), "", "application/octet-stream")
			link.Size = &file.Bytes
			blocks, links = append(blocks, link), links+1
		}
	}
	return blocks
}

// missingWords describe what a script lacked, by code, and who can change that. {name} is its name.
var missingWords = map[string]string{
	script.MissingDependency: "the script needs a module that the packages of this server do not have: " +
		"{name}" + byPackages,
	script.MissingLibrary: "the script needs a shared library that the machine of this server does not " +
		"have: {name}" + byPackages,
	script.MissingProgram: "the script needs a program that scripts do not find here: {name}" + byPackages,
	script.MissingProxy: "the script needs an interpreter that reaches the hosts of its entry: {name}" +
		byPackages,
	script.NoNetwork: "the script needs the network, and has none: {name}. Another call does not change " +
		"that: the user can provide packages (skillsd help env) or grant hosts " +
		"(skillsd help allow)",
	script.OwnModule: "the skill has the module at {name}, which is not where scripts import from: that " +
		"is the directory of the script, and that of the skill. Another call does not change that: its " +
		"author can move it",
	script.OwnFile: "the script looked for a file of its skill in the directory in which it started: it " +
		"is at {name}. Call again with that path as an argument if it takes one, else with cwd {cwd}",
	script.ReadOnly: "the script wrote to {name}, which is read-only. Call again with a path below /out " +
		"for what it writes: files there are returned",
	script.LineEndings: "a program that the script starts has CRLF line endings, with which it does not " +
		"run: {name}. Another call does not change that: its author can convert it " +
		"(sed -i 's/\\r$//' FILE)",
}

const byPackages = ". Another call does not change that: the user can provide it (skillsd help env)"

// RenderMissing returns a line about what a failed script lacked, for a model and its user, or "".
func RenderMissing(r *session.RunResult) string {
	x := r.Output.Skillsd
	if x == nil || x.Missing == nil {
		return ""
	}
	text, name := missingWords[x.Missing.Code], oneLine(x.Missing.Name)
	if name == "" {
		text = strings.Replace(text, ": {name}", "", 1)
	}
	fill := strings.NewReplacer("{name}", name, "{cwd}", oneLine(x.Missing.CWD))
	return x.Missing.Code + ": " + fill.Replace(text) + ".\n"
}

// RenderSkips returns a line about files in /out that were not collected, or "".
func RenderSkips(r *session.RunResult) string {
	if r.OutSkips == 0 {
		return ""
	}
	text := fmt.Sprintf("out: %d left behind ", r.OutSkips) +
		"(not a regular file, a name that is not text, unreadable or too much)"
	if len(r.Skipped) > 0 {
		shown := r.Skipped[:min(len(r.Skipped), 5)]
		text += ": " + oneLine(strings.Join(shown, ", "))
		if r.OutSkips > len(shown) {
			text += ", …"
		}
	}
	return text + "\n"
}

// maxShownWrites is the maximum number of workspace changes that an answer lists.
const maxShownWrites = 20

// RenderWrites returns the result of the changes to a staged workspace, or "" without changes. Refused
// changes come first, because users do not expect them.
func RenderWrites(r *session.RunResult) string {
	var refused, applied []string
	for _, w := range r.Writes {
		line := fmt.Sprintf("%s %s", w.Op, oneLine(w.Path))
		if w.Refused != "" {
			refused = append(refused, "refused: "+line+": "+oneLine(w.Refused))
			continue
		}
		applied = append(applied, "applied: "+line)
	}
	if len(refused)+len(applied) == 0 {
		return ""
	}
	changes := "changes"
	if len(applied) == 1 {
		changes = "change"
	}
	head := fmt.Sprintf("workspace: %d %s applied, %d refused\n", len(applied), changes, len(refused))
	if r.Sealed {
		// Names are output too.
		return head
	}
	all := append(refused, applied...)
	text := strings.Join(all[:min(len(all), maxShownWrites)], "\n") + "\n"
	if more := len(all) - maxShownWrites; more > 0 {
		unlisted := 0
		if x := r.Output.Skillsd; x != nil {
			unlisted = x.WritesUnlisted
		}
		text += fmt.Sprintf("… %d more in the session's record", max(more-unlisted, 0))
		if unlisted > 0 {
			text += fmt.Sprintf(", and %d that it counts and does not name", unlisted)
		}
		text += "\n"
	}
	return head + text + renderKept(r)
}

// renderKept returns the line that shows whether the user can undo the changes of a run.
func renderKept(r *session.RunResult) string {
	x, who := r.Output.Skillsd, "the user"
	if r.Remote {
		who = "the operator"
	}
	switch {
	case x == nil || x.Kept == nil:
		return ""
	case x.Kept.Problem != "":
		return who + " cannot undo these changes: " + x.Kept.Problem + "\n"
	}
	return who + " can undo these changes with `skillsd undo`\n"
}

// RunLine returns how a run ended, in one line without a newline.
func RunLine(r *session.RunResult) string {
	ms := r.Duration.Milliseconds()
	const nothing = "nothing else of the run is shown"
	switch {
	case r.Opaque && r.Outcome == "exited" && !r.ExitWithheld:
		return fmt.Sprintf("exit 0; %s (backend %s)", nothing, r.Backend)
	case r.Opaque && r.Outcome == "exited":
		return fmt.Sprintf("ended; %s (backend %s)", nothing, r.Backend)
	case r.Opaque:
		return fmt.Sprintf("%s; %s (backend %s)", r.Outcome, nothing, r.Backend)
	case r.ExitWithheld && (r.Outcome == "exited" || r.Outcome == "signaled"):
		return fmt.Sprintf("ended after %d ms, exit code withheld (backend %s)", ms, r.Backend)
	case r.Outcome == "exited":
		return fmt.Sprintf("exit %d in %d ms (backend %s)", r.ExitCode, ms, r.Backend)
	case r.Outcome == "signaled":
		return fmt.Sprintf("signal %s after %d ms (backend %s)", r.Signal, ms, r.Backend)
	}
	return fmt.Sprintf("%s after %d ms (backend %s)", r.Outcome, ms, r.Backend)
}

// RenderStream returns the released part of one stream.
func RenderStream(s *session.Stream) string {
	switch {
	case s.Withheld != nil:
		return fmt.Sprintf("[withheld; handle %s]\n", s.Withheld.Handle.HandleID)
	case s.Total == 0:
		return "(empty)\n"
	case !s.Truncated:
		return withNewline(s.Head)
	}
	omitted := max(s.Total-int64(len(s.Head))-int64(len(s.Tail)), 0)
	return fmt.Sprintf("%s[… %d bytes omitted, whole stream %s]\n%s",
		withNewline(s.Head), omitted, s.Digest, withNewline(s.Tail))
}

func withNewline(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
