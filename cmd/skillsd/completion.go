package main

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
)

// completionTime is how long a shell waits for a list at most; after that it gets none.
const completionTime = 2 * time.Second

// completer returns the words that can replace the one that is being typed.
type completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// setCompletion sets what the commands below root complete, besides commands and flags: names of skills and
// scripts, ids of sessions, profiles, and the words that an option can have.
func (a *app) setCompletion(root *cobra.Command) {
	skillNames, scripts := a.complete(a.skillNames), a.complete(a.scripts)
	sessions, profiles := a.complete(a.sessionIDs), a.complete(a.profileNames)
	arguments := map[string]completer{
		"show":           first(skillNames),
		"run":            a.completeRun,
		"allow":          first(scripts),
		"disallow":       first(a.complete(a.allowedScripts)),
		"session show":   first(sessions),
		"session verify": first(sessions),
		"session replay": first(sessions),
		"session export": first(sessions),
	}
	flags := map[string]completer{
		"skill":              skillNames,
		"pin-skill":          skillNames,
		"name-only":          skillNames,
		"disable-skill":      skillNames,
		"allow-skill-script": scripts,
		"resume":             sessions,
		"profile":            profiles,
		// Flags with one name that differ by command have the command in front.
		"list --only":             fixed(listStates...),
		"prompt --format":         fixed("xml", "text"),
		"prompt --location":       fixed("path", "uri"),
		"session export --format": fixed("json", "intoto"),
		"install --tier":          fixed(skills.TierNames()...),
	}
	for _, option := range config.Table() {
		switch {
		case option.Flag == "" || flags[option.Flag] != nil:
		case option.Words != nil && option.Names == nil:
			flags[option.Flag] = fixed(option.Words...)
		case !option.Path.IsPath("") && option.Flag != "skills-root":
			flags[option.Flag] = cobra.NoFileCompletions
		}
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		// Without these, "completion" would accept any word and print its help.
		completion.Args = cobra.NoArgs
		completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = arguments[name]
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			complete := flags[name+" --"+flag.Name]
			if complete == nil {
				complete = flags[flag.Name]
			}
			if complete != nil {
				// It fails only for a flag that is registered already.
				_ = cmd.RegisterFlagCompletionFunc(flag.Name, complete)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// first limits a completer to the first argument.
func first(complete completer) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, word)
	}
}

func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// typed is a command line that is being completed.
type typed struct {
	cmd  *cobra.Command
	word string // the last one, which is not complete
}

// complete returns a completer of words that depend on the configuration. An error gives no words: a shell
// has no place for it.
func (a *app) complete(words func(context.Context, typed) ([]string, cobra.ShellCompDirective)) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		if a.loadConfig(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, directive := words(ctx, typed{cmd, word})
		return found, directive | cobra.ShellCompDirectiveNoFileComp
	}
}

// completionSkills returns the skills below the roots that a command line and the configuration name; none on
// an error.
func (a *app) completionSkills(ctx context.Context, cmd *cobra.Command) []*skills.Skill {
	roots := config.RootOptions{}
	if specs, err := cmd.Flags().GetStringArray("skills-root"); err == nil {
		roots.Specs = specs
	}
	roots.NoDefaults, _ = cmd.Flags().GetBool("no-default-roots")
	found, err := roots.Resolve(&a.Process)
	if err != nil {
		return nil
	}
	scan := roots.ScanOptions()
	if state, err := a.StateDir(); err == nil {
		scan.Cache = skills.NewCache(filepath.Join(state, "digests"))
	}
	snapshot, err := skills.Scan(ctx, found, scan)
	if err != nil {
		return nil
	}
	return snapshot.Skills
}

func (a *app) skillNames(ctx context.Context, line typed) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, skill := range a.completionSkills(ctx, line.cmd) {
		// Names and descriptions reach the terminal: one line, and nothing that moves its cursor.
		if strings.HasPrefix(skill.Path, line.word) && report.Printable(skill.Path) == skill.Path {
			about := report.Shorten(skill.Frontmatter.Description, 60)
			names = append(names, cobra.CompletionWithDesc(skill.Path, about))
		}
	}
	return names, 0
}

// scripts completes SKILL:scripts/PATH, first the skill and then its scripts.
func (a *app) scripts(ctx context.Context, line typed) ([]string, cobra.ShellCompDirective) {
	name, _, named := strings.Cut(line.word, ":")
	if !named {
		names, _ := a.skillNames(ctx, line)
		for i, one := range names {
			path, _, _ := strings.Cut(one, "\t")
			names[i] = path + ":"
		}
		return names, cobra.ShellCompDirectiveNoSpace
	}
	scripts := a.scriptsOf(ctx, line.cmd, name)
	for i := range scripts {
		scripts[i] = name + ":" + scripts[i]
	}
	return scripts, 0
}

// completeRun completes a skill and a path of one of its scripts. The arguments of the script may be files.
func (a *app) completeRun(
	cmd *cobra.Command, args []string, word string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.complete(func(ctx context.Context, line typed) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.skillNames(ctx, line)
		}
		return a.scriptsOf(ctx, cmd, args[0]), 0
	})(cmd, args, word)
}

// scriptsOf returns the paths of the scripts of a skill.
func (a *app) scriptsOf(ctx context.Context, cmd *cobra.Command, name string) []string {
	var scripts []string
	for _, skill := range a.completionSkills(ctx, cmd) {
		if skill.Path != name {
			continue
		}
		index, err := skill.Index(ctx)
		if err != nil {
			return nil
		}
		for _, resource := range index.Resources {
			if resource.Kind == skills.KindScript && report.Printable(resource.Path) == resource.Path {
				scripts = append(scripts, resource.Path)
			}
		}
	}
	return scripts
}

func (a *app) sessionIDs(ctx context.Context, _ typed) ([]string, cobra.ShellCompDirective) {
	records, _, err := a.records()
	if err != nil {
		return nil, 0
	}
	defer records.Close()
	sessions, _ := provenance.ListSessions(ctx, records) // those that can be read
	ids := []string{cobra.CompletionWithDesc("latest", "the newest")}
	for _, s := range sessions {
		about := s.CreatedAt.Local().Format(time.DateTime) + ", " + report.Plural(s.Counts.Runs, "run")
		ids = append(ids, cobra.CompletionWithDesc(s.ID, about))
	}
	return ids, cobra.ShellCompDirectiveKeepOrder
}

func (a *app) profileNames(context.Context, typed) (names []string, _ cobra.ShellCompDirective) {
	for _, profile := range a.Cfg.Keys.PolicyProfiles() {
		names = append(names, profile.Name)
	}
	return names, 0
}

// allowedScripts completes the scripts that the configuration allows.
func (a *app) allowedScripts(context.Context, typed) (names []string, _ cobra.ShellCompDirective) {
	for _, key := range a.Cfg.Keys.Allow {
		script, _, _ := strings.Cut(key.Script, "@")
		names = append(names, report.Printable(script))
	}
	return names, 0
}
