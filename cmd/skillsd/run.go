package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// runOptions are the flags of run.
type runOptions struct {
	app   *app
	Serve *serve.Options
	Flags *pflag.FlagSet // its own, to ask what was given
	all   *pflag.FlagSet // those of serve, of which run has some

	Cwd     string
	Timeout time.Duration
	Stdin   bool
	JSON    bool
}

// runFlags returns the names of the flags of serve that run has: all that decide what may run, and how. The
// others are about clients and how they are served; for those the configuration applies.
func runFlags() []string {
	return []string{
		"skills-root", "allow-root", "scan-limit", "strict-roots", "no-default-roots", "allow-shadow",
		"disable-skill", "validation", "allow-tool", "allow-skill-script", "cfc-enforcement-mode",
		"prompt-slot-role", "release", "allowed-tools", "tier-scripts", "profile",
		"skill-script-execution-target", "workspace", "workspace-from-client", "limit", "sandbox",
		"sign-key", "keep-shown", "run-manifest",
	}
}

func newRunCmd(a *app) *cobra.Command {
	opts := &runOptions{app: a, all: pflag.NewFlagSet("serve", pflag.ContinueOnError)}
	cmd := &cobra.Command{
		Use:   "run SKILL scripts/PATH [-- ARG...]",
		Short: "Run a script of a skill as the tool run_skill_script would",
		Long: "Run one script of a skill as a client's call of the tool run_skill_script would run it: " +
			"with the same configuration, rules, sandbox and record.\n\n" +
			"  skillsd run pdf scripts/extract.py -- --pages 1-3 report.pdf\n\n" +
			"The words after -- go to the script as they are, without a shell. When the script has ended, " +
			"its stdout is printed on stdout and its stderr on stderr: byte for byte in a pipe, on a " +
			"terminal without what would control it. Of a long stream the beginning and the end are " +
			"printed, as the tool returns them; the record has the rest. The last line on stderr says how " +
			"the run ended and how to look at its record.\n\n" +
			"If a script needs an approval, skillsd asks on a terminal, and elsewhere the run is refused. " +
			"Nothing in a command line shows who wants a run: --prompt-slot-role direct-command, or the " +
			"same in the configuration, says that you do.\n\n" +
			"Exit codes: 0 the script ended with 0; 3 it ended with another code, by a signal or at a " +
			"limit; 1 it was refused, canceled or could not be run; 2 usage.",
		Args: runArgs,
		RunE: runE(opts.run),
	}
	opts.Flags, opts.Serve = cmd.Flags(), a.serveOptions()
	opts.Serve.Register(opts.all)
	for _, name := range runFlags() {
		cmd.Flags().AddFlag(opts.all.Lookup(name))
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Cwd, "cwd", "", "working `DIR` of the script below /workspace, /skill or /tmp")
	flags.DurationVar(&opts.Timeout, "timeout", 0,
		"`DURATION` until the script and all it started are killed, such as 90s; else that of its entry or "+
			"of --limit")
	flags.BoolVar(&opts.Stdin, "stdin", false, "pass standard input to the script, at most 1 MiB")
	flags.BoolVar(&opts.JSON, "json", false,
		"print the result or the denial as JSON instead of what the script printed")
	return cmd
}

// runArgs checks that the words before -- are a skill and a script.
func runArgs(cmd *cobra.Command, args []string) error {
	own := len(args)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		own = dash
	}
	const form = "skillsd run SKILL scripts/PATH -- ARG..."
	lists := func() string {
		return "`" + report.ShellLine("skillsd", "show", config.Clip(args[0])) + "` lists the scripts"
	}
	switch {
	case own == 2 && strings.Trim(args[1], " ") != args[1]:
		// A call of the tool ignores blanks around a path; here they would be part of what the user quoted.
		return usageError(lists(), "%q begins or ends with a blank, as no script does", config.Clip(args[1]))
	case own == 2:
		return nil
	case own > 2:
		return usageError("arguments of the script come after --: "+form,
			"run takes a skill and a script, but there is also %q", config.Clip(args[2]))
	case own == 1:
		if skill, path, ok := strings.Cut(args[0], ":"); ok && path != "" {
			return usageError(report.ShellLine("skillsd", "run", skill, path),
				"run takes the skill and the script as two words")
		}
		return usageError(form+"; "+lists(), "run takes a skill and a script")
	}
	return usageError(form, "run takes a skill and a script")
}

// run does what a client does: it opens a session, loads the skill and calls the tool.
func (o *runOptions) run(ctx context.Context, args []string) (err error) {
	request := session.RunRequest{
		Skill:   args[0],
		Path:    args[1],
		Args:    args[2:],
		Cwd:     o.Cwd,
		Timeout: o.Timeout,
	}
	const most = mcpserver.MaxTimeoutMs * time.Millisecond
	if given := o.Flags.Changed("timeout"); given && (o.Timeout < time.Millisecond || o.Timeout > most) {
		return usageError("see `skillsd run --help`", "--timeout: %s is not between 1ms and %s",
			o.Timeout, config.Duration(most))
	}
	if err := o.Serve.Configure(o.all); err != nil {
		return err
	}
	// The configuration may describe an HTTP server; here no client is served.
	o.Serve.HTTP.Addr, o.Serve.HTTP.Unix = "", ""
	// A refusal is printed anyway; the log has causes that no answer names.
	logger := serve.TextLogger(o.app.err, slog.LevelError, true)
	p := o.Serve.PlanRun()
	defer func() { err = errors.Join(err, p.Close(ctx, logger)) }()
	if err := p.Err(); err != nil {
		return err
	}
	if o.Stdin {
		if request.Stdin, err = o.input(ctx); err != nil {
			return err
		}
	}
	if err := p.Open(); err != nil {
		return err
	}
	sessions, err := p.Sessions(ctx, p.Records, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	if _, err := p.Registry.Rescan(ctx); err != nil {
		return err
	}
	if err := sessions.Start(ctx, nil); err != nil {
		return err
	}
	if p.Policy.Offers(mcpserver.ToolRun) {
		p.Detection.Start(ctx, logger)
		defer p.Detection.End()
	}
	return o.call(ctx, sessions, request, o.Serve.Version)
}

// input reads the script's standard input.
func (o *runOptions) input(ctx context.Context) ([]byte, error) {
	text, err := o.app.await(ctx, func(in io.Reader) ([]byte, error) {
		return io.ReadAll(io.LimitReader(in, mcpserver.MaxStdinBytes+1))
	})
	if err == nil && len(text) > mcpserver.MaxStdinBytes {
		err = usageError("pass less, or let the script read a file of the workspace",
			"--stdin: the input is longer than %s", config.FormatSize(mcpserver.MaxStdinBytes))
	}
	return text, err
}

// call loads the skill and runs the script in one session.
func (o *runOptions) call(
	ctx context.Context, sessions *session.Sessions, request session.RunRequest, version string,
) error {
	load := session.Call{
		Method:     mcpserver.ToolLoad,
		ToolCallID: "load",
		Principal:  mcpserver.LocalPrincipal(),
		Client:     "skillsd-run " + version,
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
		return o.refused("", err)
	}
	activate := session.ActivateRequest{Call: load, Skill: request.Skill, Source: cfharness.SourceUser}
	if _, err := ses.Activate(ctx, activate); err != nil {
		return o.refused(ses.ID(), o.canceled(ctx, err))
	}
	request.Call = load
	request.Call.Method, request.Call.ToolCallID = mcpserver.ToolRun, "run"
	request.CanAsk = !o.Stdin && report.IsTerminal(o.app.err) && canType(o.app.in)
	status := newStatusLine(o.app.err)
	request.Call.Progress = func(message string) { status.set(request.Path + ": " + message) }
	result, err := ses.RunScript(ctx, request)
	if question, asks := errors.AsType[*session.Question](err); asks {
		status.clear()
		request.Answer = o.app.answer(ctx, question)
		result, err = ses.RunScript(ctx, request)
	}
	status.clear()
	if err != nil {
		return o.refused(ses.ID(), o.canceled(ctx, err))
	}
	return o.ended(context.WithoutCancel(ctx), ses.ID(), result)
}

// errCanceled means that a signal ended the command.
var errCanceled = errors.New("canceled")

// canceled returns errCanceled if err is only a consequence of ctx being done, else err.
func (o *runOptions) canceled(ctx context.Context, err error) error {
	if _, denied := errors.AsType[*session.Denied](err); ctx.Err() != nil && !denied {
		return errCanceled
	}
	return err
}
