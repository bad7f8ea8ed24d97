package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
)

func newServeCmd(a *app) *cobra.Command {
	opts := a.serveOptions()
	opts.Begins = func() { a.started = true }
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve skills over stdio or HTTP",
		Long: "Serve your skills to one MCP client over stdin and stdout, or with --http or --unix to " +
			"many over HTTP. A client starts this itself, with the entry that `skillsd setup` " +
			"writes.\n\n" +
			"  skillsd serve --http 127.0.0.1:8080 --auth-token-file tokens\n\n" +
			"Installed skills are served, and before them the skills in the directories of " +
			"--skills-root. Without --skills-root these are ./skills, ./.agents/skills, " +
			"./.claude/skills and ./.github/skills (untrusted), ~/.agents/skills and ~/.claude/skills.\n\n" +
			"No script runs unless `skillsd allow` allowed it.\n\n" +
			"Every flag is also a variable and a key of the configuration file: see `skillsd help " +
			"config`.",
		Args: cobra.NoArgs,
	}
	cmd.RunE = runE(func(ctx context.Context, _ []string) error {
		given := cmd.Flags().Changed("records") || a.isSet("records") || a.configByUser() != nil
		if a.agentShell() != "" && given { // `session gc` is refused there too
			opts.Records.GC.Age, opts.Records.GC.Total = 0, 0
			a.notef("skillsd: warning: no session logs are deleted: in an agent's shell --records and "+
				"--config do not decide that (%s is set)", a.agentShell())
		}
		return opts.Run(ctx)
	})
	opts.Register(cmd.Flags())
	a.serving = opts
	opts.Again = a.serveAgain
	opts.ServePage = a.servePage(cmd.Flags(), opts.Table)
	opts.Roots.RegisterCache(cmd.Flags())
	return cmd
}

// serveAgain returns the options of this server's command line with the current configuration. The command
// line always takes precedence.
func (a *app) serveAgain() (*serve.Options, error) {
	// A new app reads the configuration without effect on the running server, which may keep its own.
	again := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard,
		Process: config.Process{Env: a.Env}}
	root := newRootCmd(again, "serve")
	cmd, rest, err := root.Find(a.args)
	if err != nil {
		return again.serving, err
	}
	err = cmd.ParseFlags(rest)
	if err != nil {
		return again.serving, err
	}
	err = again.loadConfig(cmd)
	return again.serving, err
}

// workerFlags are the flags of serve that a worker has.
const workerFlags = "skills-root allow-root scan-limit strict-roots no-default-roots allow-shadow " +
	"disable-skill validation allow-tool allow-skill-script cfc-enforcement-mode release allowed-tools " +
	"tier-scripts workspace workspace-owner limit sandbox watch no-watch log-level log-format cluster " +
	"cluster-key cluster-creds cluster-ca cluster-cert cluster-cert-key cluster-prefix pool node"

func newWorkerCmd(a *app) *cobra.Command {
	opts, all := a.serveOptions(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run scripts for the servers of a cluster",
		Long: "Run scripts for servers that were started with the same --cluster, --cluster-key and " +
			"--pool, which then need no sandbox, until it is asked to end. A worker decides by its own " +
			"configuration and has the same skills; its secrets stay here. See `skillsd help cluster`.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error {
			if err := opts.Configure(all); err != nil {
				return err
			}
			return opts.Work(ctx)
		}),
	}
	opts.Register(all)
	for _, name := range strings.Fields(workerFlags) {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
	return cmd
}

// serveFault answers the client of a server that cannot start, if a client is on stdin: with the error that
// was printed. args are the arguments of the process.
func (a *app) serveFault(ctx context.Context, cmd *cobra.Command, args []string, text, hint string) {
	given := func(flag string) bool {
		option := cmd.Flags().Lookup(flag)
		return option == nil || option.Value.String() != ""
	}
	switch {
	case cmd.Name() != "serve", cmd.Parent() != cmd.Root(), given("http"), given("unix"):
		return // stdin is not a client
	// Once begun, a server answers for itself, and a person has seen the error.
	case a.started, report.IsTerminal(a.in):
		return
	}
	fault := &mcpserver.Fault{In: a.in, Out: a.out, Version: readBuild().Version,
		Text: a.WithoutSecrets(faultText(text, hint)), Changed: a.ConfigChanged()}
	fault.Start = func(ctx context.Context, in io.Reader, out io.Writer) string {
		again := &app{in: in, out: out, err: a.err, retries: true,
			Process: config.Process{Env: a.Env, Environ: a.Environ}}
		// The whole command line is run again, so that a repaired configuration serves the waiting client
		// without a restart.
		again.main(ctx, args)
		return again.fault
	}
	fault.Serve(ctx)
}

// faultText returns an error and its remedy, in the form for a client.
func faultText(text, hint string) string {
	text = printableLines(text)
	if hint != "" {
		text += "\n" + report.Printable(hint)
	}
	return text + "\nrun `skillsd doctor`."
}

func newPageCmd(a *app) *cobra.Command {
	listen, updates, noOpen := "", false, false
	cmd := &cobra.Command{
		Use:   "page",
		Short: "See sessions, refusals and what may run, in a browser",
		Long: "Show in a browser on this machine what agents did, what was refused and why, what users " +
			"were asked, what may run, and whether the session logs verify; until Ctrl-C. A call that " +
			"waits for your approval can be approved there; nothing else is changed. No server needs " +
			"to run. The browser is opened if there is one here; the link that is printed opens the " +
			"page once, in one browser. Every screen is also JSON, as its link shows.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error {
			// It shows what was withheld from models.
			if err := a.byUser("`skillsd page`"); err != nil {
				return err
			}
			records, dir, err := a.records(ctx)
			if err != nil {
				return err
			}
			defer records.Close()
			codes, closed, err := a.codes(ctx)
			if err != nil {
				return err
			}
			defer closed()
			state, _ := a.StateDir() // without one, stored trees cannot be found
			end := func() {}
			defer func() { end() }()
			listener, err := page.Listen(ctx, listen)
			if err != nil {
				return err
			}
			return page.Serve(ctx, page.Options{Records: records, Directory: dir, State: state,
				AskLife: session.AskLife, Printed: a.printed, Updates: updates, Codes: codes,
				User: userName(),
				Show: func(link string) {
					if a.unwritten == nil && !noOpen {
						end = a.openBrowser(ctx, state, link)
					}
					a.printf("%s\n", link)
					a.notef("skillsd: the link opens the page once, in one browser; Ctrl-C ends it")
				}}, listener)
		}),
	}
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the link")
	cmd.Flags().BoolVar(&updates, "updates", false,
		"ask the sources of installed skills every hour what an update would bring, and show it")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`ADDR` of this machine; port 0 takes a free one")
	return cmd
}

// servePage serves the operator's page of a server that was given flags.
func (a *app) servePage(flags *pflag.FlagSet, table func() []config.Option) func(
	context.Context, net.Listener, serve.PageSource) error {
	return func(ctx context.Context, listener net.Listener, source serve.PageSource) error {
		// The commands describe this machine with the flags of the server, except for the flags of its
		// listeners, whose addresses are in use, and of its cluster, which takes one that listens.
		var given []string
		for _, option := range table() {
			flag := flags.Lookup(option.Flag)
			if flag == nil || !flag.Changed || option.Section == config.SectionHTTP ||
				option.Section == config.SectionCluster || strings.HasPrefix(option.Flag, "metrics") ||
				strings.HasPrefix(option.Flag, "page") {
				continue
			}
			for _, value := range config.FlagValues(flag) {
				given = append(given, "--"+option.Flag+"="+value)
			}
		}
		codes := source.Codes
		if a.agentShell() != "" { // its model could log in, and approve its own calls
			codes = nil
		}
		return page.Serve(ctx, page.Options{Records: source.Records, Directory: source.Directory,
			State: source.State, AskLife: session.AskLife, Codes: codes, User: userName(),
			Printed: func(ctx context.Context, words ...string) ([]byte, error) {
				if words[0] == "doctor" {
					// The running server has these addresses, which doctor would find taken.
					words = append(words, "--http=", "--unix=", "--metrics=")
				}
				return a.printed(ctx, append(words, a.knownTo(words, given)...)...)
			},
			Show: func(link string) { a.notef("skillsd: the page: %s", link) },
			Live: source.Live, Members: source.Members, OIDC: source.Login, Log: source.Log}, listener)
	}
}

// knownTo returns those flags that a command has.
func (a *app) knownTo(words, flags []string) []string {
	cmd, _, err := a.find(words)
	return slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		return err != nil || cmd.Flags().Lookup(name) == nil
	})
}

// printed returns the --json output of a command of this program. It reads the configuration again, like a
// command that a user types.
func (a *app) printed(ctx context.Context, words ...string) ([]byte, error) {
	var out, wrong bytes.Buffer
	sub := &app{in: strings.NewReader(""), out: &out, err: &wrong,
		Process: config.Process{Env: a.Env, Err: io.Discard}}
	given := [][2]string{{"--config", a.File}, {"--state", a.State}, {"--artifact-root", a.Artifacts}}
	for _, flag := range given {
		if flag[1] != "" {
			words = append(words, flag[0], flag[1])
		}
	}
	sub.main(ctx, words)
	// Problems that the command found are part of its output.
	if !json.Valid(out.Bytes()) {
		text := cmp.Or(strings.TrimSpace(wrong.String()), "`skillsd "+words[0]+"` printed nothing")
		return nil, exit.Errorf(exit.Failure, "", "%s", text)
	}
	return out.Bytes(), nil
}
