package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// runOptions are the flags of run.
type runOptions struct {
	app   *app
	Serve *serve.Options
	Flags *pflag.FlagSet // run's own, to see what was given
	all   *pflag.FlagSet // serve's, of which run has some

	Cwd         string
	Timeout     time.Duration
	Stdin, JSON bool

	mounted string // the directory of --workspace
	// shows reports whether a directory can be a workspace.
	shows    func(dir string) bool
	registry *skills.Registry
}

// runFlags are the flags of serve that run has: all that affect what may run, and how. The others are about
// clients; for those the configuration applies.
const runFlags = "skills-root allow-root scan-limit strict-roots no-default-roots allow-shadow " +
	"disable-skill validation allow-tool allow-skill-script cfc-enforcement-mode prompt-slot-role release " +
	"allowed-tools tier-scripts profile skill-script-execution-target workspace workspace-from-client " +
	"workspace-owner limit sandbox sign-key keep-shown run-manifest"

func newRunCmd(a *app) *cobra.Command {
	opts := &runOptions{app: a, all: pflag.NewFlagSet("serve", pflag.ContinueOnError)}
	cmd := &cobra.Command{
		Use:   "run SKILL scripts/PATH [-- ARG...]",
		Short: "Run a script of a skill yourself, as for a client",
		Long: "Run one script of a skill as a client's call of the tool run_skill_script would run it: " +
			"with the same configuration, rules, sandbox and session log.\n\n" +
			"  skillsd run pdf scripts/extract.py --workspace . -- --pages 1-3 report.pdf\n\n" +
			"The words after -- go to the script unchanged, without a shell. The script's stdout is " +
			"printed on stdout and its stderr on stderr when it has ended: byte for byte in a pipe, " +
			"without control characters on a terminal. A long stream is cut in the middle, as for a " +
			"client; the session log has the rest. The last line on stderr is how the run ended and " +
			"how to look at its log.\n\n" +
			"If a script needs your approval, skillsd asks on a terminal, and elsewhere the run is " +
			"refused, unless you allowed the script with --ask never. In a shell that an agent opened " +
			"for its model only the rules of the configuration apply, and no question is asked.\n\n" +
			"Exit codes: 0 the script ended with 0; 3 it ended with another code, by a signal or at a " +
			"limit; 1 it was refused, canceled or could not be run; 2 usage.",
		Args: runArgs,
		RunE: runE(opts.run),
	}
	opts.Flags, opts.Serve = cmd.Flags(), a.serveOptions()
	opts.Serve.Register(opts.all)
	for _, name := range strings.Fields(runFlags) {
		cmd.Flags().AddFlag(opts.all.Lookup(name))
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Cwd, "cwd", "", "working `DIR` of the script below /workspace, /skill, "+
		"/out or /tmp")
	flags.DurationVar(&opts.Timeout, "timeout", 0,
		"`DURATION` until the script and all it started are killed, such as 90s; else that of its entry or "+
			"of --limit")
	flags.BoolVar(&opts.Stdin, "stdin", false, "pass standard input to the script, at most 1 MiB")
	flags.BoolVar(&opts.JSON, "json", false,
		"print the result or the refusal as JSON instead of what the script printed")
	return cmd
}

// runArgs checks that the words before -- are a skill and a script.
func runArgs(cmd *cobra.Command, args []string) error {
	const form = "skillsd run SKILL scripts/PATH -- ARG..."
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if len(args) == 0 {
		return exit.Usagef(form, "run takes a skill and a script")
	}
	lists := "`" + report.ShellLine("skillsd", "show", config.Clip(args[0])) + "` lists the scripts"
	skill, path, _ := strings.Cut(args[0], ":")
	hint := ""
	if full, ok := policy.InPlugin(args[0]); ok { // PLUGIN:SKILL:PATH
		skill, path, _ = strings.Cut(full, ":")
	} else if !strings.ContainsAny(path, "/.") {
		hint = ", or, for a skill of the plugin " + config.Clip(skill) + ": " + lists // PLUGIN:SKILL
	}
	switch {
	case len(args) > 2:
		return exit.Usagef("arguments of the script come after --: "+form,
			"run takes a skill and a script, but there is also %q", config.Clip(args[2]))
	case len(args) == 1 && path != "":
		return exit.Usagef(report.ShellLine("skillsd", "run", skill, path)+hint,
			"run takes the skill and the script as two words")
	case len(args) == 1:
		return exit.Usagef(form+"; "+lists, "run takes a skill and a script")
	case strings.Trim(args[1], " ") != args[1]:
		// A tool call ignores blanks around a path; on a command line they were quoted by the user.
		return exit.Usagef(lists, "%q begins or ends with a blank, as no script does", config.Clip(args[1]))
	}
	return nil
}

// run does what a client does: it opens a session, loads the skill and calls the tool.
func (o *runOptions) run(ctx context.Context, args []string) (err error) {
	request := session.RunRequest{
		Skill: args[0], Path: args[1], Args: args[2:], Cwd: o.Cwd, Timeout: o.Timeout,
	}
	const most = policy.MaxTimeout
	if given := o.Flags.Changed("timeout"); given && (o.Timeout < time.Millisecond || o.Timeout > most) {
		return exit.Usagef("see `skillsd run --help`", "--timeout: %s is not between 1ms and %s",
			o.Timeout, config.Duration(most))
	}
	if err := o.rulesByUser(); err != nil {
		return err
	}
	if err := o.Serve.Configure(o.all); err != nil {
		return err
	}
	if o.isForUser(ctx, request.Skill, request.Path) {
		o.Serve.Release = string(policy.ReleaseObserved)
	}
	if limit := o.Serve.Limits.Timeout; limit > 0 && o.Timeout > limit {
		return exit.Usagef("raise the limit with --limit timeout, or ask for less",
			"--timeout: %s is more than the limit of a run, %s", o.Timeout, config.Duration(limit))
	}
	// The configuration may describe an HTTP server, but no client is served here.
	o.Serve.HTTP.Addr, o.Serve.HTTP.Unix = "", ""
	// Refusals are printed anyway; the log has causes that answers leave out.
	logger := serve.TextLogger(o.app.err, slog.LevelError, true)
	p := o.Serve.PlanRun()
	defer func() { err = errors.Join(err, p.Close(ctx, logger)) }()
	if err := p.Err(); err != nil {
		return err
	}
	o.mounted, o.shows = p.WorkspacePath, p.Shows
	if o.Stdin {
		request.Stdin, err = o.input(ctx)
		if err != nil {
			return err
		}
	}
	sessions, err := p.Begin(ctx, logger, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	o.registry = p.Registry
	if p.Policy.Offers(mcpserver.ToolRun) {
		p.Detection.Start(ctx, logger, false)
		defer p.Detection.End()
	}
	return o.call(ctx, sessions, request)
}

// input returns the standard input for the script.
//
// Errors: *exit.Error if it is too long; the error of reading.
func (o *runOptions) input(ctx context.Context) ([]byte, error) {
	data, err := o.app.await(ctx, func(in io.Reader) ([]byte, error) {
		return io.ReadAll(io.LimitReader(in, mcpserver.MaxStdinBytes+1))
	})
	if err != nil {
		return nil, err
	}
	if len(data) > mcpserver.MaxStdinBytes {
		return nil, exit.Usagef("pass less, or let the script read a file of the project directory",
			"--stdin: the input is longer than %s", config.Size(mcpserver.MaxStdinBytes))
	}
	return data, nil
}

// isForUser reports whether the output of a run goes to the user and not to a model: at a terminal, perhaps
// through a pipe or into a file; or in a program of the user, such as a Makefile, if the user has let the
// script run unattended. In a shell that an agent opened it goes to a model.
func (o *runOptions) isForUser(ctx context.Context, skill, path string) bool {
	if o.app.Cfg.OriginOf("release").Kind != config.FromDefault || o.app.agentShell() != "" {
		return false
	}
	if o.app.hasTerminal() {
		return true
	}
	allowed, err := o.Serve.Allowlist()
	if err != nil {
		return false // the plan reports it
	}
	isNever := func(e policy.Entry) bool { return e.Ask == policy.AskNever && e.Path == path }
	if len(allowed.Find(skill, path)) > 0 || !slices.ContainsFunc(allowed.Entries(), isNever) {
		return slices.ContainsFunc(allowed.Find(skill, path), isNever)
	}
	// The skill may be given by its name.
	reader := &config.ReaderOptions{Roots: o.Serve.Roots, Skills: o.Serve.Choice}
	snapshot, err := reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return false
	}
	sk, err := snapshot.Lookup(skill)
	return err == nil && slices.ContainsFunc(allowed.Find(sk.Path, path), isNever)
}

// call loads the skill and runs the script in one session.
func (o *runOptions) call(ctx context.Context, sessions *session.Sessions, request session.RunRequest) error {
	load := session.Call{
		Method: mcpserver.ToolLoad, ToolCallID: "load",
		Principal: mcpserver.LocalPrincipal(), Client: "skillsd-run " + o.Serve.Version,
	}
	if o.Serve.FromClient {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		load.Workspace.Path = dir
	}
	ses, err := sessions.Open(ctx, load)
	if err != nil {
		return o.refused(&request, "", err)
	}
	fail := func(err error) error {
		if _, denied := errors.AsType[*session.Denied](err); ctx.Err() != nil && !denied {
			err = errCanceled // err is only a consequence of it
		}
		return o.refused(&request, ses.ID(), err)
	}
	activate := session.ActivateRequest{Call: load, Skill: request.Skill, Source: cfharness.SourceUser}
	if _, err := ses.Activate(ctx, activate); err != nil {
		return fail(err)
	}
	request.Call = load
	request.Call.Method, request.Call.ToolCallID = mcpserver.ToolRun, "run"
	// With --stdin the input belongs to the script, so an answer cannot be read from it. In a terminal opened
	// by an agent the model would answer.
	request.CanAsk = !o.Stdin && o.app.agentShell() == "" && o.app.hasTerminal()
	status := report.NewStatusLine(o.app.err)
	request.Call.Progress = func(message string) { status.Set(request.Path + ": " + message) }
	result, err := ses.RunScript(ctx, request)
	if question, asks := errors.AsType[*session.Question](err); asks {
		status.Clear()
		request.Answer = o.app.answer(ctx, question)
		result, err = ses.RunScript(ctx, request)
	}
	status.Clear()
	if err != nil {
		return fail(err)
	}
	// The script has run, so that its output is printed even if a signal came meanwhile.
	return o.ended(context.WithoutCancel(ctx), ses.ID(), &request, result)
}

// errCanceled means that a signal ended the command.
var errCanceled = errors.New("canceled")

// runReport is the output of run --json: the tool's answer, and the session of the record.
type runReport struct {
	Session string                       `json:"session,omitempty"` // id
	Result  *cfharness.RunOutput         `json:"result,omitempty"`  // the tool's _meta["skillsd/result"]
	Denial  *cfharness.ObservationDenied `json:"denial,omitempty"`  // the tool's structured content
	Error   *runError                    `json:"error,omitempty"`   // the tool's text, else
	Whole   []string                     `json:"whole,omitempty"`   // commands for the full streams
}

// runError is the reason why a run was not possible.
type runError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// ended prints the output of a script and returns its outcome as an exit code.
func (o *runOptions) ended(
	ctx context.Context, id string, request *session.RunRequest, r *session.RunResult,
) error {
	result := &runReport{Session: id, Result: &r.Output}
	for name, s := range streamsOf(r) {
		if s.Truncated || s.Withheld != nil {
			output := strings.TrimPrefix(r.Output.OutputID, id+":") + ":" + name
			result.Whole = append(result.Whole, o.app.again("skillsd session show "+id+" --output "+output))
		}
	}
	if o.JSON {
		if err := report.WriteJSON(o.app.out, result); err != nil {
			return err
		}
	} else if err := o.printStreams(ctx, id, r); err != nil {
		return err
	}
	dir, err := o.app.ArtifactDir()
	if err != nil {
		return err
	}
	for i, file := range r.Out {
		name := provenance.OutputName(r.Output.OutputID, "out-"+strconv.Itoa(i))
		o.app.say("note", fmt.Sprintf("/out/%s, %s, is kept as %s", file.Name,
			report.Plural(int(file.Bytes), "byte"), filepath.Join(dir, id, filepath.FromSlash(name))))
	}
	for line := range strings.Lines(o.missing(r) + mcpserver.RenderSkips(r) + mcpserver.RenderWrites(r)) {
		o.app.say("note", strings.TrimSuffix(line, "\n"))
	}
	for _, command := range result.Whole {
		o.app.say("hint", "to see what is not shown: "+command)
	}
	o.hintUnseen(request, r)
	o.hintStdin(r)
	o.summary(id, mcpserver.RunLine(r))
	switch {
	case r.Outcome == string(sandbox.Canceled):
		return &exit.Error{Code: exit.Failure}
	case r.Outcome != string(sandbox.Exited) || r.ExitCode != 0:
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}

// missing returns a line about what a failed script lacked, or "", with the way of this command out of it.
func (o *runOptions) missing(r *session.RunResult) string {
	x := r.Output.Skillsd
	if x == nil || x.Missing == nil {
		return ""
	}
	text := strings.NewReplacer(". Another call does not change that: the user can", "; you can",
		". Another call does not change that: its", "; its").Replace(mcpserver.RenderMissing(r))
	what, _, isForModel := strings.Cut(text, ". Call again ")
	name := x.Missing.Name
	switch {
	case !isForModel:
		return text
	case x.Missing.Code == script.OwnFile:
		return what + "; give that path as an argument if it takes one, else --cwd " +
			report.ShellLine(x.Missing.CWD) + "\n"
	case strings.HasPrefix(name, session.WorkspaceDir+"/"):
		dir, mode := config.SplitWorkspace(o.Serve.Workspace)
		if mode != sandbox.WorkspaceRO {
			return what + ": its entry has workspace: ro\n"
		}
		return what + "; to let it write there: --workspace " + report.ShellLine(dir+":staged") + "\n"
	}
	return what + "; files that it writes below /out are kept\n"
}

// hintUnseen prints hints about arguments that name files of the user in a way the script does not see.
func (o *runOptions) hintUnseen(request *session.RunRequest, r *session.RunResult) {
	dir, err := os.Getwd()
	if err != nil || r.Output.ExecutionTarget != string(policy.TargetSandbox) {
		return
	}
	view := scriptView{dir: config.Resolved(dir), cwd: request.Cwd, shows: o.shows}
	if r.SeesWorkspace() {
		view.mounted = cmp.Or(o.mounted, view.dir)
	}
	for _, hint := range view.hints(request.Args) {
		o.app.say("hint", hint)
	}
}

// hintStdin prints a hint if a script failed that may have expected the standard input, which it did not get.
func (o *runOptions) hintStdin(r *session.RunResult) {
	failed := r.Outcome == string(sandbox.Exited) && r.ExitCode != 0
	file, ok := o.app.in.(*os.File)
	if o.Stdin || !failed || !ok {
		return
	}
	info, err := file.Stat()
	if err != nil {
		return
	}
	pipe := info.Mode()&os.ModeNamedPipe != 0
	if pipe || info.Mode().IsRegular() && info.Size() > 0 {
		o.app.say("hint", "the script got no standard input; to pass it: --stdin")
	}
}

// refused prints how to look at the log of a run that was refused, and its report if that is wanted as JSON.
// It returns the error with the reason, in words before its code.
func (o *runOptions) refused(request *session.RunRequest, id string, err error) error {
	result := &runReport{Session: id}
	word, failed := o.notRun(request, err, result)
	if failed == nil {
		return err
	}
	if id != "" {
		o.summary(id, word)
	}
	if o.JSON {
		return errors.Join(failed, report.WriteJSON(o.app.out, result))
	}
	return failed
}

// notRun adds the reason why a script was not run to its report, and returns the word for the outcome and the
// error for the user. The error is nil if err is one of this process and not about the run.
func (o *runOptions) notRun(
	request *session.RunRequest, err error, result *runReport,
) (word string, failed *exit.Error) {
	isModel := o.app.agentShell() != ""
	if denied, ok := errors.AsType[*session.Denied](err); ok {
		object := &denied.Object
		result.Denial = object
		text, hint := object.Detail, object.Remedy
		if !isModel {
			text, hint = o.detailOf(denied), o.remedyOf(denied)
		}
		return "refused", &exit.Error{Code: exit.Failure, Hint: hint,
			Err: fmt.Errorf("refused: %s (%s, %s)", text, object.Code, object.Reason)}
	}
	if plain, ok := errors.AsType[*session.Error](err); ok {
		result.Error = &runError{string(plain.Code), plain.Message, plain.Remedy}
		if output, ok := plain.Output.(cfharness.RunOutput); ok {
			result.Result = &output
		}
		text, hint := plain.Public()+causeOf(plain), plain.Remedy
		if !isModel {
			text, hint = o.explained(request, plain, text)
		}
		return "not run", &exit.Error{Code: exit.Failure, Hint: hint,
			Err: fmt.Errorf("%s (%s)", text, plain.Code)}
	}
	if errors.Is(err, errCanceled) {
		result.Error = &runError{"canceled", "the command was ended before the script ran", ""}
		return "canceled", &exit.Error{Code: exit.Failure, Err: err}
	}
	return "", nil
}

// explained returns the reason and the remedy of an error for the user, who may be told more than a client:
// that a skill is disabled, why a secret is missing, and the name of a directory for the script.
func (o *runOptions) explained(
	request *session.RunRequest, plain *session.Error, text string,
) (reason, hint string) {
	switch {
	case plain.Code == fault.CodeSkillNotFound:
		if off, ok := errors.AsType[*exit.Error](o.missingSkill(request.Skill)); ok {
			return off.Err.Error(), off.Hint
		}
	case plain.Code == fault.CodeEnvDenied && plain.Err != nil:
		cause := strings.Replace(plain.Err.Error(), "the server's environment", "the environment", 1)
		return "the script lacks what its entry gives it: " + cause,
			"provide it and run the script again; `skillsd help allow` describes variables and secrets"
	case plain.Code == fault.CodeCwdDenied && o.mounted != "" && filepath.IsAbs(request.Cwd):
		if inside, isBelow := fsys.Below(o.mounted, config.Resolved(request.Cwd)); isBelow {
			return text, "the script has it by another name: --cwd " +
				report.ShellLine(path.Join(session.WorkspaceDir, filepath.ToSlash(inside)))
		}
	}
	return text, plain.Remedy
}

// missingSkill returns the error for a skill that is disabled, waits for a review or is not there, else nil.
func (o *runOptions) missingSkill(name string) error {
	snapshot := o.registry.Snapshot()
	if sk, err := findSkill(snapshot, name); err == nil && slices.Contains(snapshot.Withheld, sk) {
		return exit.Errorf(exit.Failure, "`"+report.ShellLine("skillsd", "show", sk.Path)+"` has more",
			"%s is not served: %s", sk.Path, strings.Join(snapshot.Status(sk).Reasons, ", "))
	}
	_, err := snapshot.Lookup(name)
	return o.app.offOr(name, report.LookupError(exit.Failure, "", err))
}

// detailOf returns the reason of a denial for the user of this command, who wants the run.
func (o *runOptions) detailOf(denied *session.Denied) string {
	where := "there is no terminal to ask you on"
	if o.Stdin {
		where = "--stdin leaves no input for your answer"
	}
	switch policy.Code(denied.Object.Code) {
	case policy.CodeDirectCommandRequired:
		return "you are asked before this script runs, and " + where
	case policy.CodeOutputNotReleased:
		if o.app.Cfg.OriginOf("release").Kind == config.FromDefault {
			return "its output can have more in it than the files of the skill, so you are asked before " +
				"it is shown, and " + where
		}
	}
	return denied.Object.Detail
}

// remedyOf returns the remedy of a denial for the operator, who did not call a tool.
func (o *runOptions) remedyOf(denied *session.Denied) string {
	d, asks := &denied.Object, "on a terminal this command asks"
	if o.Stdin {
		asks += ", without --stdin"
	}
	asks += "; to let it run without being asked: " +
		report.ShellLine("skillsd", "allow", "--ask", "never", d.Skill+":"+d.Path)
	switch policy.Code(d.Code) {
	case policy.CodeApprovalDeclined:
		return "" // the operator has just answered
	case policy.CodeApprovalRequired, policy.CodeDirectCommandRequired:
		return asks
	case policy.CodeOutputNotReleased:
		// Without a rule about the output, it is released if it goes to the user.
		if o.app.Cfg.OriginOf("release").Kind == config.FromDefault {
			return asks
		}
	}
	return denied.Operator
}

// causeOf returns the cause of an error, which is for the operator and not for clients.
func causeOf(plain *session.Error) string {
	switch plain.Code {
	case fault.CodeInternal, fault.CodeProvenanceUnavailable, fault.CodeServerBusy,
		fault.CodeSandboxUnavailable:
		if _, known := errors.AsType[*sandbox.UnavailableError](plain.Err); plain.Err != nil && !known {
			return ": " + plain.Err.Error()
		}
	}
	return ""
}

// summary prints the last line. It is not wrapped, because it ends with a command to copy.
func (o *runOptions) summary(id, what string) {
	o.app.notef("skillsd: %s; skillsd session show %s", report.Printable(what), id)
}

// streamsOf yields the streams of a run by name.
func streamsOf(r *session.RunResult) iter.Seq2[string, *session.Stream] {
	return func(yield func(string, *session.Stream) bool) {
		_ = yield("stdout", &r.Stdout) && yield("stderr", &r.Stderr)
	}
}

// printStreams prints each output stream of the script on the same stream of this process.
func (o *runOptions) printStreams(ctx context.Context, id string, r *session.RunResult) error {
	records, _, err := o.app.records(ctx)
	if err != nil {
		return err
	}
	defer records.Close()
	for name, s := range streamsOf(r) {
		if s.Total == 0 || s.Withheld != nil {
			continue
		}
		w, last := o.app.out, s.Head
		if name == "stderr" {
			w = o.app.err
		}
		text := io.NopCloser(strings.NewReader(mcpserver.RenderStream(s)))
		// The cut text has the notice of the cut at its end, which is not part of what the script printed.
		if s.Truncated {
			last = "\n"
		} else {
			// Kept bytes need not be text.
			text, err = records.Stored(ctx, id, provenance.OutputName(r.Output.OutputID, name))
			if errors.Is(err, provenance.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
		}
		err := report.CopyOutput(w, text, report.IsTerminal(w))
		if !strings.HasSuffix(last, "\n") && (name == "stderr" || report.IsTerminal(w)) {
			// The next line on it is from this command.
			_, ended := io.WriteString(w, "\n")
			err = errors.Join(err, ended)
		}
		if err := errors.Join(err, text.Close()); err != nil {
			return err
		}
	}
	return nil
}
