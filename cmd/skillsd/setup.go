package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
)

// setupOptions are the flags of setup.
type setupOptions struct {
	app      *app
	client   *clients.Client
	Name     string
	URL      string
	TokenEnv string
	Project  string
	Approve  bool
	Trust    bool
	Files    bool // --workspace
	noFiles  bool // --workspace=false
	Permit   bool // --approve-tools
	Write    bool
	Remove   bool
	Settled  bool // the user was asked about the tools of the client

	permitted []string // permissions that run added
}

func newSetupCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Connect your clients to skillsd, or one of them",
		Long: "Find the clients of this machine, their skills and whether scripts can run here; then ask\n" +
			"which clients to connect, whether to take over their skills, and who asks before a script\n" +
			"runs. --yes connects all clients without a question. --undo disconnects them and moves the\n" +
			"skills back: each file of a client is again what it was, or loses only the entry if it was\n" +
			"changed since. Until then the state directory keeps what the files were.\n\n" +
			"With the name of a client, print what it needs: the block for its file, and its own command.\n" +
			"The words behind -- are flags of `skillsd serve`. They are checked, and relative paths in\n" +
			"them become absolute, except in the file of a project:\n\n" +
			"  skillsd setup claude -- --skills-root ~/skills\n" +
			"  skillsd setup claude --write -- --skills-root ~/skills\n" +
			"  skillsd setup codex --http https://skills.example.com/mcp \\\n" +
			"    --token-env SKILLS_TOKEN --write\n\n" +
			"--write runs the client's own command and shows what it prints; what no command of the\n" +
			"client does is written into its file. A copy of the file is kept as FILE.skillsd-backup.\n" +
			"--print prints the block for a client that is not listed.\n" +
			"--remove removes the entry of that name. An entry of the same name that does not lead to\n" +
			"skillsd is never changed, and no secret is ever written.",
		Annotations: map[string]string{withoutConfig: "true"},
	}
	generic := &setupOptions{app: a, client: clients.Any()}
	machine := &machineSetup{app: a, cmd: cmd, given: generic}
	var printed, undo bool
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() == 0 {
			return nil
		}
		return cobra.NoArgs(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case printed:
			return runE(generic.run)(cmd, args)
		case undo && (len(args) > 0 || cmd.Flags().Changed("name") || cmd.Flags().Changed("http")):
			return exit.Usagef("to remove one entry of a client: skillsd setup CLIENT --remove --name NAME",
				"--undo takes back everything that setup did, and takes no name and no flags of serve")
		case undo:
			return runE(func(ctx context.Context, _ []string) error { return machine.undo(ctx) })(cmd, args)
		}
		return runE(machine.run)(cmd, args)
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "disconnect the clients, and move their skills back")
	cmd.Flags().BoolVar(&machine.yes, "yes", false, "connect every client that is found, without a question")
	cmd.Flags().BoolVar(&machine.files, "workspace", true,
		"let scripts see the directory in which the client works; what they change there can be undone")
	cmd.Flags().BoolVar(&printed, "print", false, "print the block for a client that is not listed")
	cmd.MarkFlagsMutuallyExclusive("print", "undo")
	generic.register(cmd.Flags())
	for _, client := range clients.All() {
		cmd.AddCommand(newSetupClientCmd(a, client))
	}
	cmd.AddCommand(newSetupAdapterCmd(a))
	return cmd
}

func newSetupClientCmd(a *app, client *clients.Client) *cobra.Command {
	opts := &setupOptions{app: a, client: client}
	cmd := &cobra.Command{
		Use:   client.Name + " [flags] [-- SERVE-FLAGS]",
		Short: "Connect " + client.Title,
		Long: "Print what " + client.Title + " needs to use skillsd, or set it up. " +
			"See `skillsd setup --help`.",
		Args:              argsAfterDash,
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			opts.noFiles = cmd.Flags().Changed("workspace") && !opts.Files
			return a.setupByUser(cmd, args)
		},
	}
	cmd.RunE = runE(func(ctx context.Context, args []string) error {
		err := opts.run(ctx, args)
		if err != nil || !opts.Remove || opts.Project != "" {
			return err
		}
		return (&machineSetup{app: a, cmd: cmd}).forget(ctx, client.Name, opts.Name)
	})
	flags := cmd.Flags()
	opts.register(flags)
	if client.TokenEnv {
		flags.StringVar(&opts.TokenEnv, "token-env", "",
			"with --http: send the token in the variable `NAME` of the client's environment")
	}
	if client.Project {
		flags.StringVar(&opts.Project, "project", "",
			"use the .mcp.json of the project in `DIR`, which everyone who works in it shares, instead of "+
				"the user's file")
	}
	if client.Approve {
		flags.BoolVar(&opts.Approve, "approve-scripts", false,
			"let the client run allowed scripts without asking, which it needs to run any without a "+
				"terminal; stays until --remove")
	}
	if client.Project {
		flags.BoolVar(&opts.Permit, "approve-tools", false,
			"let the client call the server's tools without a question of its own; skillsd still "+
				"asks before a script runs, and shows what with")
	}
	flags.BoolVar(&opts.Files, "workspace", false,
		"let scripts see the directory in which the client works, at /workspace; what they change there is "+
			"checked before it is applied, and what they print may say what is in it")
	if client.Trust {
		flags.BoolVar(&opts.Trust, "trust", true,
			"let the client call the server's tools without asking; without it the client offers "+
				"none of them to a run without a terminal")
	}
	flags.BoolVar(&opts.Write, "write", false, "set up the client")
	flags.BoolVar(&opts.Remove, "remove", false, "remove the entry from the client")
	cmd.MarkFlagsMutuallyExclusive("write", "remove")
	flags.Lookup("write").Hidden, flags.Lookup("remove").Hidden = client.Pasted, client.Pasted
	return cmd
}

// register adds the flags that all clients have.
func (o *setupOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Name, "name", "skills", "`NAME` of the server in the client")
	flags.StringVar(&o.URL, "http", "",
		"connect to a server that runs at this `URL`, instead of starting one")
}

// argsAfterDash rejects arguments before --.
func argsAfterDash(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
		return fmt.Errorf("unexpected %q; the flags of serve come after --", args[0])
	}
	return nil
}

func (o *setupOptions) run(ctx context.Context, args []string) error {
	setup, err := o.setup(args)
	if err != nil {
		return err
	}
	switch {
	case o.Write:
		return o.write(ctx, setup)
	case o.Remove:
		return o.remove(ctx, setup)
	}
	if err := setup.Print(); err != nil {
		return err
	}
	o.advise()
	return nil
}

// setup returns the client with its entry.
//
// Errors: *exit.Error for flags that do not fit the client.
func (o *setupOptions) setup(args []string) (*clients.Setup, error) {
	entry, err := o.entry(args)
	if err != nil {
		return nil, err
	}
	if o.client.Pasted && (o.Write || o.Remove) {
		const hint = "run it without --write or --remove: it prints the entry, and the file to edit"
		return nil, exit.Usagef(hint, "skillsd does not change the file of %s", o.client.Title)
	}
	setup := &clients.Setup{
		Client: o.client, Entry: *entry, Project: o.Project,
		Env: o.app.Env, Out: o.app.out, Err: o.app.err,
		Lock: config.LockEdit,
	}
	if o.Write && o.URL == "" {
		setup.Keep = func(old []string) []string { return o.line().keep(old, entry.Args) }
	}
	return setup, nil
}

// remove removes the entry from the client, and the permissions of its tools.
func (o *setupOptions) remove(ctx context.Context, setup *clients.Setup) error {
	err := setup.Remove(ctx)
	if err != nil || !o.client.Project {
		return err
	}
	return setup.ForbidTools(ctx, setup.Permissions())
}

// write adds the entry to the client, and prints what the user has to know of it.
func (o *setupOptions) write(ctx context.Context, setup *clients.Setup) error {
	if err := setup.Write(ctx); err != nil {
		return err
	}
	err := o.permit(ctx, setup)
	if err != nil && !o.Settled {
		return err
	}
	if err != nil { // the client is connected
		o.app.say("warning", o.client.Title+" asks too before a script runs, since its permissions "+
			"cannot be written: "+err.Error())
	}
	o.advise()
	if o.Files && !o.Settled {
		fmt.Fprintf(o.app.err, "scripts see the directory in which %s works, and it sees what "+
			"they print;\ntheir changes are staged, and checked before they are applied\n",
			o.client.Title)
	}
	if setup.Entry.Trust {
		fmt.Fprintf(o.app.err, "%s calls the tools of %s without asking (\"trust\": true);\nwithout "+
			"that, a run without a terminal has none of them. The allowlist still\n"+
			"decides which scripts run.\n", o.client.Title, o.Name)
	}
	return nil
}

// advise prints what a user of the client would otherwise learn from a refusal.
func (o *setupOptions) advise() {
	title := o.client.Title
	if o.client.Untried {
		fmt.Fprintf(o.app.err, "note: the entry follows the documentation of %s; "+
			"skillsd was not tried with it\n", title)
	}
	if o.client.Note != "" {
		fmt.Fprintln(o.app.err, "note: "+o.client.Note)
	}
	way := "to let a script run without being\nasked: skillsd allow SKILL:SCRIPT --ask never; " +
		"for one call: skillsd approve CODE"
	if o.URL != "" {
		way = "who runs that server can let\nscripts run without asking, or approve single calls"
	}
	switch o.client.Asks {
	case clients.No:
		fmt.Fprintf(o.app.err, "note: skillsd cannot ask you through %s; %s\n", title, way)
	case clients.Yes:
		if o.client.Batch != "" {
			fmt.Fprintf(o.app.err, "note: skillsd cannot ask you through %s; %s\n", o.client.Batch, way)
		}
	case clients.Unknown:
	}
}

// permit lets Claude Code call the tools without asking, if the user agrees.
func (o *setupOptions) permit(ctx context.Context, setup *clients.Setup) error {
	if !o.client.Project {
		return nil
	}
	// The file of a project is shared, so that a user must not decide for the others.
	if !o.Permit && !o.Settled && o.Project == "" && o.app.hasTerminal() &&
		o.app.agentShell() == "" && !setup.PermitsTools(ctx) {
		yes, err := o.app.confirm(ctx, o.client.Title+
			" asks before it loads a skill, before it reads a file "+
			"of one and\nbefore it calls a script. skillsd asks once more before the script runs, "+
			"and shows\n"+
			"its arguments and input.\nLet "+o.client.Title+" call the tools of "+o.Name+
			" without asking, so that only skillsd asks?")
		if err != nil {
			return err
		}
		o.Permit = yes
	}
	if !o.Permit {
		return nil
	}
	var err error
	o.permitted, err = setup.PermitTools(ctx)
	if err != nil {
		return err
	}
	o.app.warnDenied(ctx, o.client, o.Name)
	return nil
}

// warnDenied warns of settings of a client that are stronger than what setup permits. name is that of the
// entry.
func (a *app) warnDenied(ctx context.Context, client *clients.Client, name string) {
	for _, found := range client.DeniedTools(ctx, a.Env, name) {
		a.say("warning", found+"; remove that to use skills")
	}
}

// entry returns the entry that the flags describe.
func (o *setupOptions) entry(args []string) (*clients.Entry, error) {
	e := &clients.Entry{Name: o.Name, Approve: o.Approve, Trust: o.Trust}
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(o.Name) {
		return nil, exit.Usagef("use letters, digits, _ and -", "--name: %q cannot name a server", o.Name)
	}
	if o.URL != "" && o.Files {
		return nil, exit.Usagef("give --workspace where that server is started",
			"--workspace has no effect on a server at a URL")
	}
	if o.URL != "" && o.client.StdioOnly {
		return nil, exit.Usagef("leave --http out, and "+o.client.Title+" starts a server of its own",
			"%s takes no server at a URL from its file", o.client.Title)
	}
	if o.URL != "" {
		return e, o.remote(e, args)
	}
	if o.TokenEnv != "" {
		return nil, exit.Usagef("a server that the client starts needs no token", "--token-env needs --http")
	}
	command, err := o.command()
	if err != nil {
		return nil, err
	}
	words, err := o.serveArgs(args)
	if err != nil {
		return nil, err
	}
	e.Command, e.Args = command[0], append(command[1:], words...)
	for _, arg := range e.CommandLine() {
		if strings.ToValidUTF8(arg, "") != arg || strings.ContainsAny(arg, "\x00\r\n") {
			// Files of clients are JSON or TOML, in which another byte would change the path without a word.
			return nil, exit.Usagef("leave out the line break or the byte that is not text",
				"%q cannot be in the client's file", arg)
		}
		for _, begin := range o.client.Expands {
			// The client would start the server with the value of a variable in the place of these
			// characters.
			if strings.Contains(arg, begin) {
				return nil, exit.Usagef("use a path without "+begin,
					"%s would put a variable into %q", o.client.Title, arg)
			}
		}
	}
	return e, nil
}

// remote completes the entry of a server at a URL.
func (o *setupOptions) remote(e *clients.Entry, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("give them where that server is started",
			"flags of serve have no effect on a server at a URL")
	}
	at, err := url.Parse(o.URL)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return exit.Usagef("for example http://127.0.0.1:8080/mcp",
			"--http: %q is not an http or https URL", config.Clip(o.URL))
	case at.User != nil || at.RawQuery != "" || at.Fragment != "":
		return exit.Usagef("give a token with --token-env",
			"--http: a URL with a user, a query or a fragment may hold a secret, which would be written "+
				"into a file")
	case strings.Contains(o.URL, "${"):
		return exit.Usagef("write it out", "--http: the URL holds a variable")
	}
	if at.Path == "" {
		// It is the default of --http-path.
		at.Path = "/mcp"
	}
	isName := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`).MatchString
	if o.TokenEnv != "" && !isName(o.TokenEnv) {
		return exit.Usagef("give the name of a variable, never the token",
			"--token-env cannot name a variable")
	}
	e.URL, e.TokenEnv = at.String(), o.TokenEnv
	return nil
}

// command returns the program that the client starts, and its arguments before the words for skillsd. A link
// in PATH to this program is better than its target, which an update may move. The file of a project must not
// contain paths of this machine.
func (o *setupOptions) command() ([]string, error) {
	if o.Project != "" {
		return []string{"skillsd"}, nil
	}
	self, err := os.Executable()
	if found, missing := exec.LookPath("skillsd"); missing == nil && err == nil {
		a, errA := os.Stat(self)
		b, errB := os.Stat(found)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return []string{found}, nil
		}
	}
	if inCacheOfNPX(self) {
		// npm removes programs from this cache. The version keeps npx from another one, and from asking the
		// registry at each start.
		version, _, _ := strings.Cut(strings.TrimPrefix(readBuild().Version, "v"), "+")
		return []string{clients.NPX, "-y", "skillsd@" + version}, err
	}
	return []string{self}, err
}

// inCacheOfNPX reports whether npx started the program at a path. On Windows, clients cannot start npx
// without a shell.
func inCacheOfNPX(path string) bool {
	return runtime.GOOS != "windows" && strings.Contains(path, "/_npx/")
}

// line returns the command line of the server that the client starts.
func (o *setupOptions) line() *serveLine {
	return &serveLine{client: o.client, inProject: o.Project != "", workspace: o.Files,
		noWorkspace: o.noFiles, err: o.app.err,
		newOptions: func() (*serve.Options, *pflag.FlagSet) {
			given := *o.app // --config and similar flags may be on both sides of --
			options, flags := given.serveOptions(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
			options.Register(flags)
			given.Register(flags)
			return options, flags
		}}
}

// serveArgs returns the arguments after the command: serve with the flags that were given, each checked.
func (o *setupOptions) serveArgs(args []string) ([]string, error) {
	outside := [][2]string{{"artifact-root", o.app.Artifacts}, {"state", o.app.State}, {"config", o.app.File}}
	for _, outer := range outside {
		if outer[1] != "" {
			args = append([]string{"--" + outer[0], outer[1]}, args...)
		}
	}
	return o.line().words(args)
}

// newSetupAdapterCmd returns the setup of cf-harness, which is not an MCP client: it gets an adapter.
func newSetupAdapterCmd(a *app) *cobra.Command {
	client := &clients.Client{Name: "cf-harness", Title: "cf-harness"}
	opts := &setupOptions{app: a, client: client, Name: "skills"}
	var dir string
	cmd := &cobra.Command{
		Use:   client.Name + " [flags] [-- SERVE-FLAGS]",
		Short: "Connect cf-harness, by an adapter in TypeScript",
		Long: "Print the command line that runs cf-harness with skillsd's skills. --write DIR writes the\n" +
			"adapter that the command line starts; a directory inside a checkout of cf-harness's\n" +
			"repository needs no further configuration of deno. A file of DIR that differs is kept as\n" +
			"FILE.skillsd-backup.\n\n" +
			"  skillsd setup cf-harness --write ~/labs/skillsd -- --skills-root ~/labs/skills\n\n" +
			"`skillsd help harness` says more.",
		Args:              argsAfterDash,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: runE(func(_ context.Context, args []string) error {
			return opts.adapter(dir, args)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.URL, "http", "",
		"connect to a server that runs at this `URL`, instead of starting one")
	flags.StringVar(&opts.TokenEnv, "token-env", "",
		"with --http: send the token in the variable `NAME` of the harness's environment")
	flags.StringVar(&dir, "write", "", "write the adapter into the directory `DIR`")
	return cmd
}

// adapter writes the adapter, if there is a directory for it, and prints how it is started.
func (o *setupOptions) adapter(dir string, args []string) error {
	entry, err := o.entry(args)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = "DIR"
		fmt.Fprintln(o.app.err, "write the adapter with --write DIR, then run:")
	} else {
		if strings.HasPrefix(dir, "~") {
			return exit.Usagef("put a space before the path, or write it out",
				"--write: the shell did not expand ~ in %q", dir)
		}
		dir, err = filepath.Abs(dir)
		if err != nil {
			return err
		}
		if err := writeAdapter(dir, o.app.err); err != nil {
			return err
		}
		fmt.Fprintln(o.app.err, "run, with the flags of cf-harness after ---:")
	}
	words := []string{"deno", "run", "-A", filepath.Join(dir, "cli.ts")}
	switch {
	case entry.URL == "":
		words = append(words, entry.CommandLine()...)
	case entry.TokenEnv == "":
		words = append(words, "--url", entry.URL)
	default:
		words = append(words, "--url", entry.URL, "--token-env", entry.TokenEnv)
	}
	_, err = fmt.Fprintln(o.app.out, report.ShellLine(append(words, "---")...))
	return err
}
