package main

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/provenance"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// completionTime is how long a shell may wait for a list; it gets none after that.
const completionTime = 2 * time.Second

// completer finds what may stand in the place of a word.
type completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// setCompletion gives the commands below root what a shell asks for: names of skills and scripts, ids
// of sessions, profiles, and the words that options have.
func (a *app) setCompletion(root *cobra.Command) {
	arguments := map[string]completer{
		"show": first(a.completeSkills), "allow": first(a.completeScripts),
		"session show": first(a.completeSessions), "session verify": first(a.completeSessions),
		"session replay": first(a.completeSessions), "session export": first(a.completeSessions),
		"disallow": first(a.completeAllowed), "run": a.completeRun,
	}
	// Flags of one command that take a word.
	words := map[string]completer{
		"list --state":    fixed([]string{string(skills.StateEnabled), string(skills.StateHidden), string(skills.StateDisabled), string(skills.StateUnavailable), stateBroken}),
		"prompt --format": fixed([]string{"xml", "text"}), "prompt --location": fixed([]string{"path", "uri"}),
		"session export --format": fixed([]string{"json", "intoto"}),
		"install --tier":          fixed(skills.TierNames()),
	}
	flags := map[string]completer{
		"skill": a.completeSkills, "pin-skill": a.completeSkills, "name-only": a.completeSkills, "disable-skill": a.completeSkills,
		"allow-skill-script": a.completeScripts, "resume": a.completeSessions, "profile": a.completeProfiles,
	}
	for _, option := range config.Options() {
		if words := option.Tag.Get("enum"); option.Flag != "" && option.Tag.Get("keys") == "" && words != "" {
			flags[option.Flag] = fixed(strings.Split(words, "|"))
		}
	}
	for _, option := range config.Options() {
		if path := option.Tag.Get("path"); path == "" && flags[option.Flag] == nil && option.Flag != "skills-root" {
			flags[option.Flag] = cobra.NoFileCompletions
		}
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		// Alone it would take any word for a question about itself.
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
			complete := words[name+" --"+flag.Name]
			if complete == nil {
				complete = flags[flag.Name]
			}
			if complete != nil {
				// It fails only for a flag that has one already.
				_ = cmd.RegisterFlagCompletionFunc(flag.Name, complete)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// first completes the first argument only.
func first(complete completer) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, word)
	}
}

func fixed(words []string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completionSnapshot scans the roots that the flags of a command line and the configuration name.
func (a *app) completionSnapshot(ctx context.Context, cmd *cobra.Command) (*skills.Snapshot, error) {
	if err := a.loadConfig(cmd); err != nil {
		return nil, err
	}
	roots := config.RootOptions{}
	if specs, err := cmd.Flags().GetStringArray("skills-root"); err == nil {
		roots.Specs = specs
	}
	roots.NoDefaults, _ = cmd.Flags().GetBool("no-default-roots")
	found, err := roots.Resolve(&a.Process)
	if err != nil {
		return nil, err
	}
	scan := roots.ScanOptions()
	if state, err := a.stateDir(); err == nil {
		scan.Cache = skills.NewCache(filepath.Join(state, "digests"))
	}
	return skills.Scan(ctx, found, scan)
}

func (a *app) completeSkills(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	snapshot, err := a.completionSnapshot(ctx, cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, skill := range snapshot.Skills {
		if strings.HasPrefix(skill.Path, word) && report.Printable(skill.Path) == skill.Path {
			// What a skill says of itself reaches the terminal: one line, nothing that moves its cursor.
			names = append(names, cobra.CompletionWithDesc(skill.Path, report.Shorten(skill.Frontmatter.Description, 60)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeScripts completes SKILL:scripts/PATH; the scripts are looked for once the skill is named.
func (a *app) completeScripts(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	name, _, named := strings.Cut(word, ":")
	if !named {
		names, directive := a.completeSkills(cmd, args, word)
		for i, one := range names {
			path, _, _ := strings.Cut(one, "\t")
			names[i] = path + ":"
		}
		return names, directive | cobra.ShellCompDirectiveNoSpace
	}
	scripts := a.scriptsOf(cmd, name)
	for i := range scripts {
		scripts[i] = name + ":" + scripts[i]
	}
	return scripts, cobra.ShellCompDirectiveNoFileComp
}

// completeRun completes a skill, then the path of one of its scripts. What follows is the script's.
func (a *app) completeRun(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return a.completeSkills(cmd, args, word)
	case len(args) == 1:
		return a.scriptsOf(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// scriptsOf are the paths of the scripts of a skill, none when they cannot be found in time.
func (a *app) scriptsOf(cmd *cobra.Command, name string) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	snapshot, err := a.completionSnapshot(ctx, cmd)
	if err != nil {
		return nil
	}
	var scripts []string
	for _, skill := range snapshot.Skills {
		if skill.Path != name {
			continue
		}
		index, err := skill.Index(ctx)
		if err != nil {
			break
		}
		for _, resource := range index.Resources {
			if resource.Kind == skills.KindScript && report.Printable(resource.Path) == resource.Path {
				scripts = append(scripts, resource.Path)
			}
		}
	}
	return scripts
}

func (a *app) completeSessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if a.loadConfig(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	records, _, err := a.records()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer records.Close()
	sessions, _ := provenance.ListSessions(cmd.Context(), records)
	ids := []string{cobra.CompletionWithDesc("latest", "the newest")}
	for _, s := range sessions {
		ids = append(ids, cobra.CompletionWithDesc(s.ID, s.CreatedAt.Local().Format(time.DateTime)+", "+report.Plural(s.Counts.Runs, "run")))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) completeProfiles(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if a.loadConfig(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, profile := range a.Cfg.Keys.PolicyProfiles() {
		names = append(names, profile.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeAllowed completes scripts that the configuration allows.
func (a *app) completeAllowed(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if a.loadConfig(cmd) == nil {
		for _, key := range a.Cfg.Keys.Allow {
			script, _, _ := strings.Cut(key.Script, "@")
			names = append(names, report.Printable(script))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
