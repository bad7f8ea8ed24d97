// Command skillsd serves Agent Skills over MCP: it advertises them, loads them, serves their files, runs
// allowlisted scripts in a sandbox, and records what it showed, ran and refused.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox/host"
	"github.com/skillsd/skillsd/sandbox/native"
)

func main() {
	// This binary also starts sandboxed scripts; in that case the next line does not return.
	native.MaybeHelper()
	// Programs of a sandbox must not inherit this process's descriptors. A helper passes such descriptors on,
	// so this must follow it.
	host.Disinherit()
	// A client that closes its end is treated like the end of input, and must not kill the process.
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// When its terminal closes, a run ends in an orderly way, unless nohup started it.
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		Process: config.Process{Env: os.LookupEnv, Environ: os.Environ, Err: os.Stderr},
	}
	code := a.main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app is the process as seen by commands.
type app struct {
	in  io.Reader
	out io.Writer // results, and the protocol on stdio; nothing else
	err io.Writer // all other output

	unwritten error          // first error of printf
	started   bool           // a server reads its input
	retries   bool           // the process serves a fault, and tries whether the server can start now
	fault     string         // of the last try
	cluster   config.Cluster // with the records for `skillsd session`
	args      []string       // of the command line
	serving   *serve.Options // of `skillsd serve`
	ran       *cobra.Command // with its flags; nil before it is known
	config.Process
}

// printf writes a part of a result. The command fails if the write fails.
func (a *app) printf(format string, args ...any) {
	if a.unwritten == nil {
		_, a.unwritten = fmt.Fprintf(a.out, format, args...)
	}
}

// notef writes a note about a result.
func (a *app) notef(format string, args ...any) {
	fmt.Fprintln(a.err, a.again(fmt.Sprintf(format, args...)))
}

// main runs one command line and returns the exit code.
func (a *app) main(ctx context.Context, args []string) int {
	args, isPasted := installing.PastedLine(args)
	if isPasted {
		a.notef("skillsd: note: the command is read as: %s",
			report.Printable(report.ShellLine(append([]string{"skillsd"}, args...)...)))
	}
	a.args = args
	root := newRootCmd(a, args...)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	// Facts of the scan are saved also after a failure: they are as good for the next command.
	a.KeepScans()
	a.ran = cmd
	// A result that could not be written is a failure.
	if a.unwritten != nil {
		err = &exit.Error{Code: exit.Failure, Err: a.unwritten}
	}
	if err == nil {
		return exit.OK
	}
	if errors.Is(err, syscall.EPIPE) {
		// The reader of the results has closed the pipe, as in `skillsd list | head`.
		return exit.Failure
	}
	// Errors of cobra itself (unknown commands and flags, wrong arguments) are usage errors.
	failed := &exit.Error{Code: exit.Usage, Err: err, Hint: "see `" + cmd.CommandPath() + " --help`"}
	errors.As(err, &failed)
	if failed.Err == nil {
		return failed.Code
	}
	hint := cmp.Or(failed.Hint, exit.SystemHint(failed.Err),
		flagHint(cmd.CommandPath(), cmd.Flags(), failed.Flag))
	text, suggestion := suggested(root, failed.Err.Error(), args)
	hint = suggestion + hint
	// Each try of a waiting client would repeat the message in its log.
	if a.retries && !a.started {
		a.fault = a.WithoutSecrets(faultText(text, hint))
		return failed.Code
	}
	for line := range strings.SplitSeq(text, "\n") {
		a.say("error", line)
	}
	for _, note := range a.Cfg.Notes(failed.Err.Error()) {
		a.say("note", note)
	}
	if hint != "" {
		a.say("hint", hint)
	}
	a.serveFault(ctx, cmd, args, text, hint)
	return failed.Code
}

// suggested returns the text of an error without the suggestions of cobra, which are on lines of their own,
// and the start of a hint at the command that was meant, or "".
func suggested(root *cobra.Command, text string, args []string) (rest, hint string) {
	rest, suggestions, suggests := strings.Cut(text, "\n\nDid you mean this?\n")
	if word := unknownCommand(rest); word != "" {
		hint = rootMeant(root, word, args)
	}
	if hint == "" && suggests {
		hint = "did you mean " + strings.Join(strings.Fields(suggestions), " or ") + "?; "
	}
	return rest, hint
}

// printableLines returns a text of several lines, each without control characters.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = report.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// say prints a message of the command, which may quote foreign names. A hint is not wrapped: it may be a
// command to copy.
func (a *app) say(kind, text string) {
	if kind != "error" {
		text = a.again(text)
	}
	line := "skillsd: " + kind + ": " + report.Printable(text)
	if kind != "hint" {
		line = report.Wrap(line, a.knownColumns(a.err))
	}
	fmt.Fprintln(a.err, line)
}

// flagHint returns a hint to the help with the values of a flag: the help of the command, or of serve if the
// command takes the option only from environment and file.
func flagHint(command string, flags *pflag.FlagSet, flag string) string {
	switch {
	case flag == "":
		return ""
	case flags.Lookup(flag) == nil:
		return "see `skillsd serve --help`"
	}
	return "see `" + command + " --help`"
}

// runE adapts a command's run function. Its error is a failure, not a usage error, unless it has its own exit
// code.
func runE(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd.Context(), args)
		if _, chosen := errors.AsType[*exit.Error](err); err == nil || chosen {
			return err
		}
		return &exit.Error{Code: exit.Failure, Err: err}
	}
}

// groupE is the RunE of a command that only has subcommands.
func groupE(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// commands are the names of the commands below the root, and what makes them.
func commands() []namedCommands {
	one := func(name string, make func(*app) *cobra.Command) namedCommands {
		return namedCommands{name, func(a *app) []*cobra.Command { return []*cobra.Command{make(a)} }}
	}
	return []namedCommands{
		one("serve", newServeCmd), one("worker", newWorkerCmd),
		one("list", newListCmd), one("show", newShowCmd), one("search", newSearchCmd),
		one("validate", newValidateCmd), one("prompt", newPromptCmd),
		one("install", newInstallCmd), one("update", newUpdateCmd), one("verify", newVerifyCmd),
		one("sync", newSyncCmd), one("accept", newAcceptCmd),
		one("allow", newAllowCmd), one("disallow", newDisallowCmd), one("approve", newApproveCmd),
		one("run", newRunCmd), one("undo", newUndoCmd), one("env", newEnvCmd),
		one("session", newSessionCmd), one("page", newPageCmd), one("setup", newSetupCmd),
		one("doctor", newDoctorCmd), one("config", newConfigCmd),
		one("schema", newSchemaCmd), one("version", newVersionCmd), one("man", newManCmd),
		{"remove enable disable rollback", newChangeCmds}, {"pack index publish", newPublishCmds},
	}
}

type namedCommands struct {
	names string // separated by spaces
	make  func(*app) []*cobra.Command
}

// newRootCmd returns the root with the commands below it. If the command line starts with the name of one,
// there is only that one, which takes a fraction of the time: a client waits for the start of a server. The
// exceptions are commands that print what others have.
func newRootCmd(a *app, line ...string) *cobra.Command {
	cmd := newBareCmd(a)
	for _, some := range commands() {
		if len(line) > 0 && line[0] != "man" && slices.Contains(strings.Fields(some.names), line[0]) {
			cmd.AddCommand(some.make(a)...)
		}
	}
	if cmd.HasSubCommands() {
		cmd.CompletionOptions.DisableDefaultCmd = true
	} else {
		for _, some := range commands() {
			cmd.AddCommand(some.make(a)...)
		}
		a.setCompletion(cmd)
	}
	documentOutputs(cmd)
	a.explainUsage(cmd)
	return cmd
}

// find returns the command that words name, as the root of all commands does, and the rest of the words.
func (a *app) find(words []string) (*cobra.Command, []string, error) {
	// A new app keeps the flags of the running command as they are.
	return newRootCmd(&app{Process: config.Process{Env: a.Env}}, words...).Find(words)
}

func newBareCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skillsd",
		Short: "Give Agent Skills to MCP clients, guarded and logged",
		Long: "skillsd gives Agent Skills to Claude Code, Codex and other MCP clients. It shows a " +
			"skill when an agent needs it. It runs a script only if you allowed exactly that script, " +
			"and only in a sandbox. It keeps a log of each session, which you can verify.\n\n" +
			"  skillsd setup                          connect your clients\n" +
			"  skillsd install ./my-skills --all      skills of a directory, a zip or git\n" +
			"  skillsd list                           your skills, and what is wrong\n" +
			"  skillsd allow pdf:scripts/extract.py   read a script and let it run\n" +
			"  skillsd doctor                         what is missing, and what to do\n" +
			"  skillsd session show                   what a model was shown and ran\n\n" +
			"Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the command worked and found problems. " +
			"All options, and more about exit codes: `skillsd help config`. `skillsd completion --help` " +
			"shows how a shell completes commands and names; bash needs its package bash-completion.",
		Version:           readBuild().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.loadConfig(cmd) },
	}
	setHelp(cmd)
	cmd.SetOut(a.out)
	cmd.SetErr(a.err)
	a.Register(cmd.PersistentFlags())
	return cmd
}

// withoutConfig annotates commands that need no configuration, so that they work if it is invalid.
const withoutConfig = "without-config"

// configures annotates a command with the flags, separated by spaces, that get their values from environment
// and file before it runs. The command itself does that for its other flags.
const configures = "configures"

// loadConfig reads the configuration and sets the flags of a command from it.
func (a *app) loadConfig(cmd *cobra.Command) error {
	a.ran = cmd
	// A completion reads the configuration when needed.
	cobras := []string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}
	for c := cmd; c != nil; c = c.Parent() {
		if c.Annotations[withoutConfig] != "" || slices.Contains(cobras, c.Name()) {
			return nil
		}
	}
	return a.configure(cmd)
}

// configure is loadConfig for a command that needs the configuration.
func (a *app) configure(cmd *cobra.Command) error {
	err := a.Load(a.err)
	if err != nil {
		// A file that was read in part must not set any option.
		a.Cfg = config.Configuration{}
	}
	if failed := a.setFlags(cmd); err == nil {
		err = failed
	}
	return err
}

// setFlags sets the flags of a command from the environment and the configuration.
func (a *app) setFlags(cmd *cobra.Command) error {
	own := cmd.Flags()
	if flag := own.Lookup("workspace"); flag != nil && flag.Changed {
		a.Workspace = flag.Value.String()
	}
	if names := cmd.Annotations[configures]; names != "" {
		own = pflag.NewFlagSet("", pflag.ContinueOnError)
		own.AddFlagSet(cmd.InheritedFlags())
		for name := range strings.FieldsSeq(names) {
			own.AddFlag(cmd.Flags().Lookup(name))
		}
	}
	return a.Cfg.Configure(config.Flags{All: cmd.Root().PersistentFlags(), Own: own}, a.Env)
}

// serveOptions returns the options of a server in this process.
func (a *app) serveOptions() *serve.Options {
	return &serve.Options{
		Process: &a.Process, In: a.in, Out: a.out, Err: a.err, Version: readBuild().Version,
		FindSession: func(ctx context.Context, name string) (string, error) {
			records, id, err := a.findSession(ctx, name)
			if err != nil {
				return "", err
			}
			return id, records.Close()
		},
	}
}

// knownColumns is report.Columns for this process: 0 for a file or a pipe.
func (a *app) knownColumns(w io.Writer) int { return report.Columns(a.Env, w) }

// columns is the maximum width of a line on w; 80 if unknown.
func (a *app) columns(w io.Writer) int { return cmp.Or(a.knownColumns(w), 80) }

// hasTerminal reports whether the user can read a question and answer it. A question that is not seen, or
// that a pipe answers, is not answered by the user.
func (a *app) hasTerminal() bool { return report.IsTerminal(a.in) && report.IsTerminal(a.err) }

// await calls read with the input of the process and waits for it until ctx is done. Input read after that is
// lost, so use it only at the end of a command.
func (a *app) await(ctx context.Context, read func(in io.Reader) ([]byte, error)) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := read(a.in)
		answered <- answer{text, err}
	}()
	select {
	case got := <-answered:
		return got.text, got.err
	case <-ctx.Done():
		return nil, &exit.Error{Code: exit.Failure, Err: errCanceled}
	}
}

// confirm asks a question on the terminal. Only an explicit yes, after the question was written, is
// agreement; input from before the question is discarded.
func (a *app) confirm(ctx context.Context, question string) (yes bool, err error) {
	word, err := a.typed(ctx, question+" [y/N] ")
	return err == nil && (word == "y" || word == "yes"), err
}

// typed prompts on the terminal and returns the line that was typed, trimmed and in lower case. It returns ""
// if the input ended in the line, as it does with Ctrl-D: no letter before it is an answer.
func (a *app) typed(ctx context.Context, prompt string) (word string, err error) {
	if terminal, ok := a.in.(*os.File); ok {
		if err := report.DropTyped(terminal.Fd()); err != nil {
			return "", fmt.Errorf("ask on the terminal: %w", err)
		}
	}
	// An answer does not count if the question could not be written.
	if _, err := io.WriteString(a.err, prompt); err != nil {
		return "", fmt.Errorf("ask on the terminal: %w", err)
	}
	line, err := a.await(ctx, func(in io.Reader) ([]byte, error) {
		const most = 1 << 10
		text, err := bufio.NewReader(io.LimitReader(in, most)).ReadBytes('\n')
		if err == io.EOF {
			err = nil
		}
		return text, err
	})
	if err != nil || !strings.HasSuffix(string(line), "\n") {
		fmt.Fprintln(a.err)
		return "", err
	}
	return strings.ToLower(strings.TrimSpace(string(line))), err
}

// answer asks the user at the terminal about a run.
func (a *app) answer(ctx context.Context, q *session.Question) *session.Answer {
	answer := &session.Answer{State: q.State, Action: "decline", Chosen: true}
	switch yes, err := a.confirm(ctx, printableLines(q.Message)+"\nRun it once?"); {
	// An interrupted question is not a refusal by the user, who may not have read it.
	case err != nil:
		answer.Action = "cancel"
	case yes:
		answer.Action = "accept"
	}
	return answer
}
