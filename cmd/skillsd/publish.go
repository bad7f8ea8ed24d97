package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/authoring"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/plugin"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// newPublishCmds returns the command that publishes skills for installation elsewhere, and the names that two
// of its forms had.
func newPublishCmds(a *app) []*cobra.Command {
	out, site, packJSON, indexJSON := "", "", false, false
	made := plugin.Published{}
	pack := &cobra.Command{
		Use:         "pack DIR",
		Hidden:      true,
		Short:       "Pack a skill into an archive, as `skillsd publish DIR FILE.tar.gz` does",
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(ctx context.Context, args []string) error {
			return a.pack(ctx, args[0], out, packJSON)
		}),
	}
	pack.Flags().StringVarP(&out, "out", "o", "", "`FILE` to write, outside of DIR (default: NAME.tar.gz)")
	pack.Flags().BoolVar(&packJSON, "json", false, "print JSON")
	index := &cobra.Command{
		Use:         "index DIR",
		Hidden:      true,
		Short:       "Publish skills on a web site or as a plugin, as `skillsd publish` does",
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(ctx context.Context, args []string) error {
			if made.Name != "" {
				return a.writePlugin(ctx, args[0], &made)
			}
			return a.publish(ctx, args[0], site, indexJSON)
		}),
	}
	index.Flags().StringVar(&site, "site", ".", "`DIR` of the files of the web site")
	index.Flags().BoolVar(&indexJSON, "json", false, "print JSON")
	index.Flags().StringVar(&made.Name, "plugin", "", "write the manifests of a plugin with this `NAME`")
	index.Flags().StringVar(&made.Version, "plugin-version", "", "`VERSION` of the plugin")
	return []*cobra.Command{pack, index, newPublishCmd(a)}
}

// publishOptions are the flags of publish.
type publishOptions struct {
	app    *app
	Site   string
	Plugin plugin.Published
	JSON   bool
}

func newPublishCmd(a *app) *cobra.Command {
	opts := &publishOptions{app: a}
	cmd := &cobra.Command{
		Use:   "publish [DIR [FILE.tar.gz | oci://REGISTRY/REPOSITORY[:TAG]]]",
		Short: "Publish skills as an archive, site or plugin, or in a registry",
		Long: "Publish skills, so that others can install them. A skill that cannot be installed is " +
			"refused, and the same files always have the same digest.\n\n" +
			"  skillsd publish ./notes notes-1.2.tar.gz\n" +
			"  skillsd publish ./skills --site ./public\n" +
			"  skillsd publish . --plugin notes --plugin-version 1.2.0\n" +
			"  skillsd publish ./notes oci://ghcr.io/example/notes:1.2\n" +
			"  skillsd publish --cluster tls://nats-1:4222 --cluster-key cluster.key\n\n" +
			"An archive has SKILL.md at its top and exactly the files that would be served; `skillsd " +
			"install URL --sha256` takes its digest. --site writes all skills below DIR and their index " +
			"(Agent Skills Discovery 0.2.0) below .well-known/agent-skills, or nothing. --plugin " +
			"writes plugin.json and .claude-plugin/marketplace.json into DIR, by which clients install " +
			"it. A registry gets one skill, or all below DIR and a collection with the tag, by the " +
			"login of `docker login`.\n\n" +
			"Without DIR the skills that are installed and served here become those of --cluster, if " +
			"each byte matches skillsd.lock. Servers take them with `skillsd sync --from-cluster`; see " +
			"`skillsd help cluster`.",
		Args: cobra.MaximumNArgs(2),
		RunE: runE(opts.run),
	}
	cmd.Flags().StringVar(&opts.Site, "site", "", "`DIR` of the files of a web site")
	cmd.Flags().StringVar(&opts.Plugin.Name, "plugin", "", "`NAME` of a plugin whose manifests to write")
	cmd.Flags().StringVar(&opts.Plugin.Version, "plugin-version", "", "`VERSION` of the plugin")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	a.cluster.Register(cmd.Flags(), "publish in the NATS cluster of this `URL` (repeatable)", true)
	return cmd
}

// publishForms are the forms of the command, for a hint.
const publishForms = "skillsd publish DIR takes one of FILE.tar.gz, oci://REGISTRY/REPOSITORY, --site DIR, " +
	"--plugin NAME"

func (o *publishOptions) run(ctx context.Context, args []string) error {
	places := max(len(args)-1, 0)
	for _, given := range []string{o.Site, o.Plugin.Name} {
		if given != "" {
			places++
		}
	}
	if len(args) == 0 {
		return o.installed(ctx, places)
	}
	if err := o.check(args, places); err != nil {
		return err
	}
	a := o.app
	switch {
	case o.Plugin.Name != "":
		return a.writePlugin(ctx, args[0], &o.Plugin)
	case o.Site != "":
		return a.publish(ctx, args[0], o.Site, o.JSON)
	case strings.Contains(args[1], "://"):
		return a.push(ctx, args[0], args[1], o.JSON)
	case strings.HasSuffix(args[1], ".tar.gz"):
		return a.pack(ctx, args[0], args[1], o.JSON)
	}
	return exit.Usagef("to write an archive: skillsd publish "+report.ShellLine(args[0],
		authoring.ArchiveName(args[1]))+"; for a registry, give a reference such as oci://host/skill:1.0",
		"publish writes an archive to a file that ends in .tar.gz, and %q does not",
		report.Printable(args[1]))
}

// installed publishes what is installed here in a cluster.
func (o *publishOptions) installed(ctx context.Context, places int) error {
	a := o.app
	switch {
	case places == 0 && a.Cfg.ClusterFlag() == "" && len(a.cluster.Servers) == 0:
		return exit.Usagef(publishForms+"; what is installed here is published with --cluster "+
			"URL", "publish takes DIR first")
	case places > 0:
		return exit.Usagef(publishForms, "publish takes DIR first")
	}
	return a.publishInstalled(ctx, o.JSON)
}

// check refuses arguments that are not a directory and one place to publish it.
func (o *publishOptions) check(args []string, places int) error {
	flag := o.app.Cfg.ClusterFlag()
	switch {
	case flag != "":
		return exit.Usagef("leave one of them out: without DIR what is installed here goes to the cluster",
			"--%s has no effect on the skills of a directory", flag)
	case places == 0:
		full, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		one := report.ShellLine("skillsd", "publish", args[0], authoring.ArchiveName(filepath.Base(full)))
		return exit.Usagef("to write an archive: "+one+"; for a site, a plugin or a registry see "+
			"`skillsd publish --help`", "publish takes DIR and one place to publish it")
	case places != 1:
		return exit.Usagef(publishForms, "publish takes DIR and one place to publish it")
	case !fsys.Exists(args[0]):
		return exit.Usagef("give a directory with a SKILL.md, or with skills below it", "there is no %q",
			report.Printable(args[0]))
	}
	return nil
}

// publisher publishes with the logins and the proxy of the user.
func (a *app) publisher() *authoring.Publisher {
	return &authoring.Publisher{Proxy: proxy, Login: a.RegistryLogin(),
		Warn: func(text string) { a.say("warning", text) }}
}

// push publishes skills in a registry.
func (a *app) push(ctx context.Context, dir, to string, asJSON bool) error {
	made, err := a.publisher().Push(ctx, dir, to)
	if err != nil {
		return err
	}
	return a.printPublished(made, "as", asJSON)
}

// publishInstalled publishes the installed skills in a cluster.
func (a *app) publishInstalled(ctx context.Context, asJSON bool) (err error) {
	installed, err := a.installation(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installed.Close()) }()
	lock, sum, err := installing.Publish(ctx, installed.Installer, installed.trees, &a.cluster, a.logger())
	installed.line.Clear()
	if err != nil {
		return err
	}
	for _, e := range installed.Lock().Skills {
		if e.Served() && e.FromProgram() {
			a.notef("%s is left out: it comes from a program, which no lock file starts elsewhere", e.Name)
		}
	}
	made := &authoring.Published{Reference: strings.Join(a.cluster.Servers, " "), Digest: sum}
	for _, e := range lock.Skills {
		made.Skills = append(made.Skills, &discovery.Artifact{Name: e.Name, Digest: e.Tree})
	}
	return a.printPublished(made, "in", asJSON)
}

// printPublished prints what was published.
func (a *app) printPublished(made *authoring.Published, how string, asJSON bool) error {
	if asJSON {
		return report.WriteJSON(a.out, made)
	}
	for _, one := range made.Skills {
		a.printf("%s  %s\n", one.Name, one.Digest)
	}
	count := report.Plural(len(made.Skills), "skill")
	a.notef("published %s %s %s: %s", count, how, made.Reference, made.Digest)
	return nil
}

// pack writes the archive of one skill.
func (a *app) pack(ctx context.Context, dir, file string, asJSON bool) error {
	made, err := a.publisher().Pack(ctx, dir, file)
	if err != nil {
		return err
	}
	if asJSON {
		return report.WriteJSON(a.out, made)
	}
	a.printf("packed %s into %s\n%s\n", made.Name, report.Printable(made.File), made.Digest)
	return nil
}

// publish writes the files of a web site.
func (a *app) publish(ctx context.Context, dir, site string, asJSON bool) error {
	made, err := a.publisher().Site(ctx, dir, site)
	if err != nil {
		return err
	}
	if asJSON {
		return report.WriteJSON(a.out, made)
	}
	for _, one := range made {
		a.printf("%s  %s  %s\n", one.Name, one.Type, one.Digest)
	}
	a.notef("published %s", report.Plural(len(made), "skill"))
	return nil
}

// writePlugin writes the manifests of a plugin.
func (a *app) writePlugin(ctx context.Context, dir string, made *plugin.Published) error {
	files, err := authoring.Plugin(ctx, dir, made)
	if err != nil {
		return err
	}
	for _, name := range files {
		a.printf("%s\n", name)
	}
	a.notef("wrote the manifests of a plugin with %s", report.Plural(len(made.Skills), "skill"))
	return nil
}
