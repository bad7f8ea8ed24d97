package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
)

// setupOptions are the flags of setup.
type setupOptions struct {
	app      *app
	client   *setupClient
	Name     string
	URL      string
	TokenEnv string
	Project  string
	Approve  bool
	Write    bool
	Remove   bool
}

// setupClient is a client that setup knows.
type setupClient struct {
	Name, Title string
	Dialect     dialect
	// Place is the file of the client.
	Place func(*setupOptions) (*clientFile, error)
	// Command is the client's own command for the same; empty when it has none.
	Command func(*setupOptions, *serverEntry) []string
	// Project, Approve and TokenEnv say which flags the client has.
	Project, Approve, TokenEnv bool
	// Expands is a client that puts variables in the place of ${NAME}, in commands too.
	Expands bool
}

// dialect edits the files of a client. An empty text is a file that is not there.
type dialect interface {
	// write puts the entry into a file, or changes the one that is there.
	write(text []byte, e *serverEntry) ([]byte, error)
	// remove takes the entry out, if there is one.
	remove(text []byte, e *serverEntry) ([]byte, error)
	// reinsert puts the entry of one file, as it stands there, into another that holds none.
	reinsert(from, into []byte, e *serverEntry) ([]byte, error)
	// empty reports whether a file says nothing.
	empty(text []byte) bool
}

func newSetupCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Connect a client: print or write its configuration",
		Long: "Print what a client must be told to use skillsd, for its file and as its own command. What stands behind\n" +
			"-- are the flags of `skillsd serve`; they are checked, and relative paths in them become absolute unless the\n" +
			"file is a project's:\n\n" +
			"  skillsd setup claude -- --skills-root ~/skills\n" +
			"  skillsd setup claude --write -- --skills-root ~/skills\n" +
			"  skillsd setup codex --http https://skills.example.com/mcp \\\n" +
			"    --token-env SKILLS_TOKEN --write\n\n" +
			"--write edits the client's file after printing the difference. The file as it was is kept beside it, as\n" +
			"FILE.skillsd-backup, and never written over: what differs from it by more than the entry is kept as\n" +
			"FILE.skillsd-backup-2 and so on. --remove takes out the entry of that name and nothing else, and puts the file\n" +
			"back byte for byte where nothing else changed it. An entry of the same name that leads elsewhere is never\n" +
			"touched, and no secret is ever written.",
		Annotations: map[string]string{withoutConfig: "true"},
		Args:        cobra.NoArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, client := range []*setupClient{claudeClient(), codexClient(), inspectorClient()} {
		cmd.AddCommand(newSetupClientCmd(a, client))
	}
	return cmd
}

func newSetupClientCmd(a *app, client *setupClient) *cobra.Command {
	opts := &setupOptions{app: a, client: client}
	cmd := &cobra.Command{
		Use:   client.Name + " [flags] [-- SERVE-FLAGS]",
		Short: "Connect " + client.Title,
		Long:  "Print what " + client.Title + " must be told to use skillsd, or write it into its file. See `skillsd setup --help`.",
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
				return fmt.Errorf("unexpected %q; the flags of serve come after --", args[0])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              runE(opts.run),
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Name, "name", "skills", "`NAME` of the server in the client")
	flags.StringVar(&opts.URL, "http", "", "connect to a server that runs at this `URL`, instead of starting one")
	if client.TokenEnv {
		flags.StringVar(&opts.TokenEnv, "token-env", "", "with --http: send the token that the variable `NAME` of the client's environment holds")
	}
	if client.Project {
		flags.StringVar(&opts.Project, "project", "", "use the .mcp.json of the project in `DIR`, which all who work in it share, instead of the user's file")
	}
	if client.Approve {
		flags.BoolVar(&opts.Approve, "approve-scripts", false, "let the client run allowlisted scripts without asking, which it must to run any without a terminal; never taken back")
	}
	flags.BoolVar(&opts.Write, "write", false, "print the difference and edit the file")
	flags.BoolVar(&opts.Remove, "remove", false, "print the difference and take the entry out of the file")
	cmd.MarkFlagsMutuallyExclusive("write", "remove")
	return cmd
}

func (o *setupOptions) run(ctx context.Context, args []string) error {
	entry, err := o.entry(args)
	if err != nil {
		return err
	}
	file, err := o.client.Place(o)
	if err != nil {
		return err
	}
	if !o.Write && !o.Remove {
		return o.print(file, entry)
	}
	if err := file.read(); err != nil {
		return &exitError{Code: exitFailure, Err: fmt.Errorf("reading the client's file: %w", err),
			Hint: cmp.Or(systemHint(err), "put in by hand what `skillsd setup "+o.client.Name+"` prints")}
	}
	if o.Remove {
		return o.remove(ctx, file, entry)
	}
	return o.write(ctx, file, entry)
}

var (
	entryName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// entry is what the flags say.
func (o *setupOptions) entry(args []string) (*serverEntry, error) {
	e := &serverEntry{Name: o.Name, Approve: o.Approve}
	if !entryName.MatchString(o.Name) {
		return nil, usageError("use letters, digits, _ and -", "--name: %q cannot name a server", o.Name)
	}
	if o.URL != "" {
		return e, o.remote(e, args)
	}
	if o.TokenEnv != "" {
		return nil, usageError("a server that the client starts needs no token", "--token-env needs --http")
	}
	var err error
	if e.Command, err = o.command(); err != nil {
		return nil, err
	}
	if e.Args, err = o.serveArgs(args); err != nil {
		return nil, err
	}
	for _, arg := range e.commandLine() {
		if strings.ToValidUTF8(arg, "") != arg || strings.ContainsAny(arg, "\x00\r\n") {
			return nil, usageError("leave out the line break or the byte that is no text", "%q cannot stand in the client's file", arg)
		}
		if o.client.Expands && strings.Contains(arg, "${") {
			return nil, usageError("use a path without ${", "%s would put a variable into %q", o.client.Title, arg)
		}
	}
	return e, nil
}

// command is the program that the client starts: as it is found in PATH when that is this one, since
// an update may move the file that a link there leads to. A project's file names no place.
func (o *setupOptions) command() (string, error) {
	if o.Project != "" {
		return "skillsd", nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	found, err := exec.LookPath("skillsd")
	if err != nil || !filepath.IsAbs(found) {
		return self, nil
	}
	a, errA := os.Stat(self)
	b, errB := os.Stat(found)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return found, nil
	}
	return self, nil
}

// serveArgs are the arguments after the command: serve with the flags that were given, each checked.
func (o *setupOptions) serveArgs(args []string) ([]string, error) {
	given := *o.app // --config and its like may stand on both sides of --
	serve, flags := &serveOptions{app: &given}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serve.register(flags)
	flags.StringVar(&given.config, "config", "", "")
	flags.StringVar(&given.state, "state", "", "")
	flags.StringVar(&given.artifacts, "artifact-root", "", "")
	for _, outer := range [][2]string{{"artifact-root", o.app.artifacts}, {"state", o.app.state}, {"config", o.app.config}} {
		if outer[1] != "" {
			args = append([]string{"--" + outer[0], outer[1]}, args...)
		}
	}
	words := []string{"serve"}
	err := flags.ParseAll(args, func(flag *pflag.Flag, value string) error {
		if flag.Name == "http" || flag.Name == "unix" {
			return errors.New("the client starts a server of its own over stdio; for one that runs give --http before --")
		}
		if err := flags.Set(flag.Name, value); err != nil {
			return err
		}
		value, err := o.absolute(flag.Name, value)
		switch {
		case err != nil:
			return err
		case flag.NoOptDefVal == "":
			words = append(words, "--"+flag.Name, value)
		case value == flag.NoOptDefVal:
			words = append(words, "--"+flag.Name)
		default:
			words = append(words, "--"+flag.Name+"="+value)
		}
		return nil
	})
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", flags.Arg(0))
	}
	if err == nil {
		_, err = serve.allowlist()
	}
	if err != nil {
		return nil, &exitError{Code: exitUsage, Err: fmt.Errorf("flags of serve: %w", err), Hint: "see `skillsd serve --help`; they come after --: skillsd setup " + o.client.Name + " -- --skills-root DIR"}
	}
	return words, nil
}

// absolute makes a path that is the value of a flag absolute: the client starts the server anywhere.
func (o *setupOptions) absolute(flag, value string) (string, error) {
	isPath := flag == "config"
	for _, option := range configOptions() {
		how := option.tag.Get("path")
		isPath = isPath || option.Flag == flag && (how == "true" || how == "or-url" && !strings.Contains(value, "://"))
	}
	before, path := "", value
	if flag == "skills-root" {
		root, err := skills.ParseRoot(value)
		if err != nil {
			return "", err
		}
		isPath, path = true, root.Dir
		before = strings.TrimSuffix(value, path)
	}
	switch {
	case !isPath || path == "":
		return value, nil
	case path == "~" || strings.HasPrefix(path, "~/"):
		return "", fmt.Errorf("--%s: the shell left ~ as it is in %q; put a space before the path, or write it out", flag, value)
	case o.Project != "":
		return value, nil
	}
	whole, err := filepath.Abs(path)
	return before + whole, err
}
