package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills/policy"
)

// environments returns the command that makes environments. It asks for confirmation unless yes is true.
func (a *app) environments(yes *bool) *environments.Command {
	return &environments.Command{Process: &a.Process, Out: a.out, Notef: a.notef,
		Sandbox: a.Cfg.Keys.Sandbox, Confirm: func(ctx context.Context, question string) error {
			_, err := a.confirmed(ctx, *yes, question)
			return err
		}}
}

// envCommands are the commands for environments in the making.
type envCommands struct {
	app    *app
	c      *environments.Command
	group  *cobra.Command
	yes    bool // do not ask
	reader config.ReaderOptions
	roots  *pflag.FlagSet // of reader
}

// newEnvCmd returns the commands for environments.
func newEnvCmd(a *app) *cobra.Command {
	e := &envCommands{app: a, roots: pflag.NewFlagSet("", pflag.ContinueOnError)}
	e.c = a.environments(&e.yes)
	e.group = &cobra.Command{
		Use:   "env",
		Short: "Give scripts the Python and npm packages that they import",
		Long: "Make environments of packages for scripts.\n\n" +
			"  skillsd env add office pypdf \"openpyxl>=3.1\" --allow pdf:scripts/fill.py\n" +
			"  skillsd env add base --root oci:images/debian      a root file system\n" +
			"  skillsd env list\n" +
			"  skillsd env sync --frozen      make what the lock has, on another machine\n\n" +
			"pip or npm resolves the names in the sandbox, into a lock beside the configuration. " +
			"skillsd fetches and unpacks the packages, keeps them by digest and mounts them read-only. " +
			"No code of a package runs while it is made. The entry of a script names its environment. " +
			"See `skillsd help env`.",
		Args: cobra.NoArgs,
		RunE: groupE,
	}
	// The roots of the configuration apply; elsewhere they are flags.
	e.reader.Register(e.roots)
	e.roots.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	e.addAdd()
	e.addList()
	e.addShow()
	e.command("update [NAME...]", "Resolve environments again",
		"Resolve environments anew, all if none is named: newer versions of their packages are shown, and "+
			"you are asked.",
		cobra.ArbitraryArgs, true, e.c.Update)
	e.addSync()
	e.command("verify [NAME...]", "Compare every byte of environments with the lock",
		"Compare every file of environments with what was made, all if none is named. The exit code is "+
			"3 if one is not made or has changed.",
		cobra.ArbitraryArgs, false, e.c.Verify)
	e.command("remove NAME", "Remove an environment that no script uses",
		"Remove an environment from the configuration, the lock and the disk.",
		cobra.ExactArgs(1), true,
		func(ctx context.Context, args []string) error { return e.c.Remove(ctx, args[0]) })
	e.addGC()
	return e.group
}

// command adds a command. One that writes asks, and is the user's alone; the others can print JSON.
func (e *envCommands) command(use, short, long string, args cobra.PositionalArgs, writes bool,
	run func(ctx context.Context, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: args,
		RunE: runE(func(ctx context.Context, args []string) error {
			if writes {
				if err := e.app.byUser("`skillsd env " + strings.Fields(use)[0] + "`"); err != nil {
					return err
				}
			}
			// The configuration is read after the commands are made.
			e.c.Sandbox = e.app.Cfg.Keys.Sandbox
			return run(ctx, args)
		})}
	if writes {
		cmd.Flags().BoolVar(&e.yes, "yes", false, "do not ask; required without a terminal")
	} else {
		cmd.Flags().BoolVar(&e.c.JSON, "json", false, "print JSON")
	}
	e.group.AddCommand(cmd)
	return cmd
}

// envAddOptions are the flags of env add.
type envAddOptions struct {
	requirements, packageJSON, script, root, base string

	allow []string
}

func (e *envCommands) addAdd() {
	o := &envAddOptions{}
	add := e.command("add NAME [PACKAGE...]", "Add packages to an environment, and make it",
		"Add packages to an environment and make it; a new name makes a new one. PACKAGE is a "+
			"requirement of Python, such as pypdf or \"openpyxl>=3.1\", or a package of npm, such as "+
			"npm:docx@^9. Its contents are shown, and you are asked.",
		cobra.MinimumNArgs(1), true,
		func(ctx context.Context, args []string) error { return e.add(ctx, o, args[0], args[1:]) })
	flags := add.Flags()
	flags.AddFlagSet(e.roots)
	flags.StringVar(&o.script, "script", "",
		"add what the block of metadata of this `SCRIPT` names (PEP 723), and give the environment to it")
	flags.StringVarP(&o.requirements, "requirements", "r", "", "add the requirements of this `FILE`")
	flags.StringVar(&o.packageJSON, "package-json", "", "add the dependencies of this `FILE`")
	flags.StringVar(&o.root, "root", "",
		"make it of a root file system instead, in the place of the host's: `DIR`, or oci:DIR or "+
			"oci:DIR:TAG of an OCI image layout")
	flags.StringVar(&o.base, "base", "", "of packages for the root file system of this `ENVIRONMENT`")
	flags.StringArrayVar(&o.allow, "allow", nil,
		"give it to this `SCRIPT`, SKILL:scripts/PATH, which is allowed already (repeatable)")
}

// add adds packages to an environment, and gives it to scripts.
func (e *envCommands) add(ctx context.Context, o *envAddOptions, name string, packages []string) error {
	asked, err := environments.Asked(packages, o.requirements, o.packageJSON)
	if err != nil {
		return err
	}
	if o.root != "" {
		asked.Root, err = e.c.RootOf(o.root)
	}
	if err != nil {
		return err
	}
	asked.Base = o.base
	var scripts []policy.Entry
	for _, spec := range o.allow {
		entry, err := parseScript(spec)
		if err != nil {
			return err
		}
		scripts = append(scripts, entry)
	}
	if o.script == "" {
		return e.c.Add(ctx, name, asked, scripts)
	}
	entry, err := parseScript(o.script)
	if err != nil {
		return err
	}
	snapshot, err := e.reader.Scan(ctx, &e.app.Process)
	if err != nil {
		return err
	}
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		return exit.Usagef("see `skillsd list`", "there is no skill %.80q", entry.Skill)
	}
	if err := e.c.AskedBy(ctx, &asked, sk, entry.Path); err != nil {
		return err
	}
	return e.c.Add(ctx, name, asked, append(scripts, entry))
}

func (e *envCommands) addList() {
	list := e.command("list", "List environments, and what each allowed script runs with",
		"List the environments of the configuration: whether each is made, its packages, size and "+
			"digest, and the scripts whose entries name it. Then list every allowed script: its "+
			"interpreter, its environment, and what keeps it from running. JSON has the environments.",
		cobra.NoArgs, false, func(ctx context.Context, _ []string) error { return e.list(ctx) })
	list.Flags().AddFlagSet(e.roots)
}

// list prints the environments, and what each allowed script runs with.
func (e *envCommands) list(ctx context.Context) error {
	a := e.app
	if err := e.c.List(ctx); err != nil || e.c.JSON || len(a.Cfg.Keys.Allow) == 0 {
		return err
	}
	verdicts, err := serve.NewJudge(a.serveOptions(), nil)
	if err != nil {
		return err
	}
	snapshot, err := e.reader.Scan(ctx, &a.Process)
	if err != nil {
		return err
	}
	a.printf("\n")
	d := &doctor.Doctor{Process: &a.Process, Serve: a.serveOptions()}
	return d.PrintScripts(ctx, a.out, snapshot, verdicts)
}

func (e *envCommands) addShow() {
	manifest := false
	show := e.command("show NAME", "Show an environment", "Show the packages of an environment.",
		cobra.ExactArgs(1), false,
		func(ctx context.Context, args []string) error { return e.c.Show(ctx, args[0], manifest) })
	show.Flags().BoolVar(&manifest, "manifest", false,
		"print the list of its files, whose sha256 is the digest of the environment")
}

func (e *envCommands) addSync() {
	frozen := false
	sync := e.command("sync [NAME...]", "Make the environments of the lock",
		"Make the environments of the lock, all if none is named: with the same digests as where it "+
			"was written, or not at all. Fetched files are kept, so that making one again needs no network.",
		cobra.ArbitraryArgs, true,
		func(ctx context.Context, args []string) error { return e.c.Sync(ctx, args, frozen) })
	sync.Flags().BoolVar(&frozen, "frozen", false, "refuse a lock that does not match the configuration")
}

func (e *envCommands) addGC() {
	dry := false
	gc := e.command("gc", "Delete files of environments that nothing needs",
		"Delete files that no lock names and no server has open. If the lock of a configuration that "+
			"made environments here cannot be read, nothing is deleted. `skillsd env update` and `skillsd "+
			"env remove` do the same at their end.",
		cobra.NoArgs, false, func(ctx context.Context, _ []string) error {
			if !dry {
				if err := e.app.byUser("`skillsd env gc`"); err != nil {
					return err
				}
			}
			return e.c.Collect(ctx, dry)
		})
	gc.Flags().BoolVar(&dry, "dry-run", false, "print what would be deleted and delete nothing")
}
