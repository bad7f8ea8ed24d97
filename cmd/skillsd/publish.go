package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/source/plugin"
	"github.com/skillsd/skillsd/skills/source/web"
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

func (o *publishOptions) run(ctx context.Context, args []string) error {
	a, flag := o.app, o.app.Cfg.ClusterFlag()
	const forms = "skillsd publish DIR takes one of FILE.tar.gz, oci://REGISTRY/REPOSITORY, --site DIR, " +
		"--plugin NAME"
	targets := len(args) - 1
	for _, given := range []string{o.Site, o.Plugin.Name} {
		if given != "" {
			targets++
		}
	}
	switch {
	case len(args) == 0 && targets < 0 && flag == "" && len(a.cluster.Servers) == 0:
		return exit.Usagef(forms+"; what is installed here is published with --cluster "+
			"URL", "publish takes DIR first")
	case len(args) == 0 && targets < 0:
		return a.publishInstalled(ctx, o.JSON)
	case len(args) == 0:
		return exit.Usagef(forms, "publish takes DIR first")
	case flag != "":
		return exit.Usagef("leave one of them out: without DIR what is installed here goes to the cluster",
			"--%s has no effect on the skills of a directory", flag)
	case targets == 0:
		full, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		one := report.ShellLine("skillsd", "publish", args[0], archiveName(filepath.Base(full)))
		return exit.Usagef("to write an archive: "+one+"; for a site, a plugin or a registry see "+
			"`skillsd publish --help`", "publish takes DIR and one place to publish it")
	case targets != 1:
		return exit.Usagef(forms, "publish takes DIR and one place to publish it")
	case !fsys.Exists(args[0]):
		return exit.Usagef("give a directory with a SKILL.md, or with skills below it", "there is no %q",
			report.Printable(args[0]))
	case o.Plugin.Name != "":
		return a.writePlugin(ctx, args[0], &o.Plugin)
	case o.Site != "":
		return a.publish(ctx, args[0], o.Site, o.JSON)
	case strings.HasSuffix(args[1], ".tar.gz") && !strings.Contains(args[1], "://"):
		return a.pack(ctx, args[0], args[1], o.JSON)
	case !strings.Contains(args[1], "://"):
		return exit.Usagef("to write an archive: skillsd publish "+report.ShellLine(args[0],
			archiveName(args[1]))+"; for a registry, give a reference such as oci://host/skill:1.0",
			"publish writes an archive to a file that ends in .tar.gz, and %q does not",
			report.Printable(args[1]))
	}
	return a.push(ctx, args[0], args[1], o.JSON)
}

// archiveName returns the name of an archive that publish writes, for a name with another extension or none.
func archiveName(name string) string {
	for _, end := range []string{".zip", ".skill", ".tgz", ".tar", ".gz"} {
		name = strings.TrimSuffix(name, end)
	}
	return strings.TrimRight(name, "/") + ".tar.gz"
}

// published is the output of `skillsd publish --json`.
type published struct {
	Reference string                `json:"reference"` // with the tag, or the URL of a cluster
	Digest    digest.Digest         `json:"digest"`    // of the tag's target, or of the lock file
	Skills    []*discovery.Artifact `json:"skills"`    // file is the reference of each, by its digest
}

// push publishes skills in a registry.
func (a *app) push(ctx context.Context, dir, to string, asJSON bool) error {
	repository, tag, err := oci.Parse(to)
	if err != nil {
		return exit.Usagef("give a reference such as oci://host/skill:1.0", "%q %v", to, err)
	}
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return unpublished(dir, err)
	}
	made := published{Reference: repository + ":" + tag}
	var packs []*oci.Packed
	for _, sk := range list {
		data, artifact, err := discovery.Pack(ctx, sk)
		if err != nil {
			return unpublished(dir, err)
		}
		a.warnSecret(ctx, sk)
		// A collection names its skills, and an installer could not choose between two.
		for _, other := range made.Skills {
			if other.Name == artifact.Name {
				return unpublished(dir, fmt.Errorf("%s is the name of two skills", artifact.Name))
			}
		}
		made.Skills = append(made.Skills, artifact)
		packs = append(packs, &oci.Packed{Artifact: artifact, Data: data, Description: sk.Description(),
			Version: sk.Frontmatter.Version})
	}
	home, err := oci.Home(repository)
	if err != nil {
		return err
	}
	client := (&web.Client{Home: home, Proxy: a.proxy}).HTTP()
	defer client.CloseIdleConnections()
	fail := func(err error) error {
		return installing.Failure(&install.FetchError{Source: repository, Err: err, Kind: install.KindOCI})
	}
	registry, err := oci.Open(repository, client, a.RegistryLogin())
	if err != nil {
		return fail(err)
	}
	made.Digest, err = registry.Publish(ctx, packs, tag)
	if err != nil {
		return fail(err)
	}
	for _, one := range made.Skills {
		one.File = repository + "@" + one.Digest.String()
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
	made := published{Reference: strings.Join(a.cluster.Servers, " "), Digest: sum}
	for _, e := range lock.Skills {
		made.Skills = append(made.Skills, &discovery.Artifact{Name: e.Name, Digest: e.Tree})
	}
	return a.printPublished(made, "in", asJSON)
}

// printPublished prints what was published.
func (a *app) printPublished(made published, how string, asJSON bool) error {
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
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return unpublished(dir, err)
	}
	if len(list) > 1 {
		return exit.Usagef("give the directory of one; --site and oci:// publish all of them",
			"%s has %d skills", dir, len(list))
	}
	data, made, err := discovery.Pack(ctx, list[0])
	if err != nil {
		return unpublished(dir, err)
	}
	a.warnSecret(ctx, list[0])
	made.File = file
	if file == "" {
		made.File = made.Name + ".tar.gz"
	}
	next := filepath.Join(dir, "..", filepath.Base(made.File))
	if err := outside(dir, made.File, report.ShellLine("skillsd", "publish", dir, next)); err != nil {
		return err
	}
	if err := discovery.Write(made.File, data); err != nil {
		return err
	}
	if asJSON {
		return report.WriteJSON(a.out, made)
	}
	a.printf("packed %s into %s\n%s\n", made.Name, report.Printable(made.File), made.Digest)
	return nil
}

// warnSecret warns of the files of a published skill that look secret.
func (a *app) warnSecret(ctx context.Context, sk *skills.Skill) {
	index, err := sk.Index(ctx)
	if err != nil {
		return // the publication has failed
	}
	for _, d := range index.Diagnostics {
		if d.Code == skills.CodeSecretFile {
			a.say("warning", report.JoinPath(sk.Path, d.Path)+" is published, and "+d.Detail+"; "+d.Fix())
		}
	}
}

// publish writes the files of a web site.
func (a *app) publish(ctx context.Context, dir, site string, asJSON bool) error {
	err := outside(dir, filepath.Join(site, filepath.Dir(filepath.FromSlash(discovery.Path))),
		"give another --site, outside of "+dir)
	if err != nil {
		return err
	}
	list, err := discovery.Scan(ctx, dir)
	var made []*discovery.Artifact
	if err != nil {
		return unpublished(dir, err)
	}
	made, err = discovery.Publish(ctx, list, site)
	if err != nil {
		return unpublished(dir, err)
	}
	for _, sk := range list {
		a.warnSecret(ctx, sk)
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

// writePlugin writes the manifests by which clients install a directory of skills as a plugin.
func (a *app) writePlugin(ctx context.Context, dir string, p *plugin.Published) (err error) {
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return unpublished(dir, err)
	}
	for _, sk := range list {
		p.Skills = append(p.Skills, sk.Dir)
	}
	p.Description = report.Plural(len(list), "skill") + ": " + report.OneLine(list[0].Description())
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := plugin.Write(root, p)
	if err != nil {
		return exit.Errorf(exit.Failure, "", "%s: %w", report.Printable(dir), err)
	}
	for _, name := range files {
		a.printf("%s\n", filepath.Join(dir, filepath.FromSlash(name)))
	}
	a.notef("wrote the manifests of a plugin with %s", report.Plural(len(list), "skill"))
	return nil
}

// outside rejects an output path inside the published directory, which the next publication would include.
func outside(dir, file, hint string) error {
	if !config.Inside(file, dir) {
		return nil
	}
	return exit.Usagef(hint, "%s lies in %s, so that the next time it would be published too",
		report.Printable(file), report.Printable(dir))
}

// unpublished adds a hint to the error for a skill that cannot be published.
func unpublished(dir string, err error) error {
	hint := exit.SystemHint(err)
	if hint == "" {
		hint = "see what is wrong: " + report.ShellLine("skillsd", "validate", dir)
	}
	return exit.Errorf(exit.Failure, hint, "%s", report.Printable(fmt.Sprintf("%s: %v", dir, err)))
}
