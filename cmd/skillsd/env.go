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

// newEnvCmd returns the commands for environments.
func newEnvCmd(a *app) *cobra.Command {
	yes := false
	c := a.environments(&yes)
	group := &cobra.Command{
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
	sub := func(use, short, long string, args cobra.PositionalArgs, writes bool,
		run func(ctx context.Context, args []string) error) *cobra.Command {
		cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: args,
			RunE: runE(func(ctx context.Context, args []string) error {
				if writes {
					if err := a.byUser("`skillsd env " + strings.Fields(use)[0] + "`"); err != nil {
						return err
					}
				}
				// The configuration is read after the commands are made.
				c.Sandbox = a.Cfg.Keys.Sandbox
				return run(ctx, args)
			})}
		if !writes {
			cmd.Flags().BoolVar(&c.JSON, "json", false, "print JSON")
		} else {
			cmd.Flags().BoolVar(&yes, "yes", false, "do not ask; required without a terminal")
		}
		group.AddCommand(cmd)
		return cmd
	}
	var requirements, packageJSON, script, root, base string
	var reader config.ReaderOptions
	var allow []string
	add := sub("add NAME [PACKAGE...]", "Add packages to an environment, and make it",
		"Add packages to an environment and make it; a new name makes a new one. PACKAGE is a "+
			"requirement of Python, such as pypdf or \"openpyxl>=3.1\", or a package of npm, such as "+
			"npm:docx@^9. Its contents are shown, and you are asked.",
		cobra.MinimumNArgs(1), true, func(ctx context.Context, args []string) error {
			asked, err := environments.Asked(args[1:], requirements, packageJSON)
			if err != nil {
				return err
			}
			if root != "" {
				asked.Root, err = c.RootOf(root)
			}
			if err != nil {
				return err
			}
			asked.Base = base
			var scripts []policy.Entry
			for _, spec := range allow {
				e, err := parseScript(spec)
				if err != nil {
					return err
				}
				scripts = append(scripts, e)
			}
			if script == "" {
				return c.Add(ctx, args[0], asked, scripts)
			}
			entry, err := parseScript(script)
			if err != nil {
				return err
			}
			snapshot, err := reader.Scan(ctx, &a.Process)
			if err != nil {
				return err
			}
			sk := snapshot.Skill(entry.Skill)
			if sk == nil {
				return exit.Usagef("see `skillsd list`", "there is no skill %.80q", entry.Skill)
			}
			if err := c.AskedBy(ctx, &asked, sk, entry.Path); err != nil {
				return err
			}
			return c.Add(ctx, args[0], asked, append(scripts, entry))
		})
	// The roots of the configuration apply; elsewhere they are flags.
	roots := pflag.NewFlagSet("", pflag.ContinueOnError)
	reader.Register(roots)
	roots.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	add.Flags().AddFlagSet(roots)
	add.Flags().StringVar(&script, "script", "",
		"add what the block of metadata of this `SCRIPT` names (PEP 723), and give the environment to it")
	add.Flags().StringVarP(&requirements, "requirements", "r", "", "add the requirements of this `FILE`")
	add.Flags().StringVar(&packageJSON, "package-json", "", "add the dependencies of this `FILE`")
	add.Flags().StringVar(&root, "root", "",
		"make it of a root file system instead, in the place of the host's: `DIR`, or oci:DIR or "+
			"oci:DIR:TAG of "+
			"an OCI image layout")
	add.Flags().StringVar(&base, "base", "", "of packages for the root file system of this `ENVIRONMENT`")
	add.Flags().StringArrayVar(&allow, "allow", nil,
		"give it to this `SCRIPT`, SKILL:scripts/PATH, which is allowed already (repeatable)")
	list := sub("list", "List environments, and what each allowed script runs with",
		"List the environments of the configuration: whether each is made, its packages, size and "+
			"digest, and the scripts whose entries name it. Then list every allowed script: its "+
			"interpreter, its environment, and what keeps it from running. JSON has the environments.",
		cobra.NoArgs, false, func(ctx context.Context, _ []string) error {
			if err := c.List(ctx); err != nil || c.JSON || len(a.Cfg.Keys.Allow) == 0 {
				return err
			}
			verdicts, err := serve.NewJudge(a.serveOptions(), nil)
			if err != nil {
				return err
			}
			snapshot, err := reader.Scan(ctx, &a.Process)
			if err != nil {
				return err
			}
			a.printf("\n")
			d := &doctor.Doctor{Process: &a.Process, Serve: a.serveOptions()}
			return d.PrintScripts(ctx, a.out, snapshot, verdicts)
		})
	list.Flags().AddFlagSet(roots)
	manifest := false
	show := sub("show NAME", "Show an environment", "Show the packages of an environment.",
		cobra.ExactArgs(1), false,
		func(ctx context.Context, args []string) error { return c.Show(ctx, args[0], manifest) })
	show.Flags().BoolVar(&manifest, "manifest", false,
		"print the list of its files, whose sha256 is the digest of the environment")
	sub("update [NAME...]", "Resolve environments again",
		"Resolve environments anew, all if none is named: newer versions of their packages are shown, and "+
			"you are asked.",
		cobra.ArbitraryArgs, true, func(ctx context.Context,
			args []string) error {
			return c.Update(ctx, args)
		})
	frozen := false
	sync := sub("sync [NAME...]", "Make the environments of the lock",
		"Make the environments of the lock, all if none is named: with the same digests as where it "+
			"was written, or not at all. Fetched files are kept, so that making one again needs no network.",
		cobra.ArbitraryArgs, true, func(ctx context.Context,
			args []string) error {
			return c.Sync(ctx, args, frozen)
		})
	sync.Flags().BoolVar(&frozen, "frozen", false, "refuse a lock that does not match the configuration")
	sub("verify [NAME...]", "Compare every byte of environments with the lock",
		"Compare every file of environments with what was made, all if none is named. The exit code is "+
			"3 if one is "+
			"not made or has changed.",
		cobra.ArbitraryArgs, false, func(ctx context.Context,
			args []string) error {
			return c.Verify(ctx, args)
		})
	sub("remove NAME", "Remove an environment that no script uses",
		"Remove an environment from the configuration, the lock and the disk.",
		cobra.ExactArgs(1), true, func(ctx context.Context,
			args []string) error {
			return c.Remove(ctx, args[0])
		})
	dry := false
	gc := sub("gc", "Delete files of environments that nothing needs",
		"Delete files that no lock names and no server has open. If the lock of a configuration that "+
			"made environments here cannot be read, nothing is deleted. `skillsd env update` and `skillsd "+
			"env remove` do the same at their end.",
		cobra.NoArgs, false, func(ctx context.Context, _ []string) error {
			if !dry {
				if err := a.byUser("`skillsd env gc`"); err != nil {
					return err
				}
			}
			return c.Collect(ctx, dry)
		})
	gc.Flags().BoolVar(&dry, "dry-run", false, "print what would be deleted and delete nothing")
	return group
}
