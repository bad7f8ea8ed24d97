package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
)

// completionTime limits the time that a shell waits for completions.
const completionTime = 2 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// typed is a command line that is being completed.
type typed struct {
	cmd  *cobra.Command
	args []string // complete arguments
	word string   // the last, incomplete word
}

// words returns the completions of the current word.
type words = func(context.Context, typed) ([]string, cobra.ShellCompDirective)

// setCompletion sets the completions of the commands below root, besides commands and flags: names of skills
// and scripts, ids of sessions, profiles, and the words of options.
func (a *app) setCompletion(root *cobra.Command) {
	arguments, flags := a.argumentCompletions(), a.flagCompletions()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		// Otherwise "completion" would accept any word and print its help.
		completion.Args, completion.RunE = cobra.NoArgs, groupE
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

// argumentCompletions returns the completions of the arguments of commands, by the words of the command.
func (a *app) argumentCompletions() map[string]cobra.CompletionFunc {
	arguments := map[string]cobra.CompletionFunc{
		"show":     a.complete(1, a.skillNames),
		"run":      a.complete(0, a.runWords),
		"allow":    a.complete(1, a.scripts),
		"disallow": a.complete(1, a.allowedScripts),
	}
	for _, name := range []string{"update", "remove", "enable", "disable", "rollback", "accept"} {
		arguments[name] = a.complete(0, a.installedNames)
	}
	for _, name := range []string{"show", "verify", "replay", "export"} {
		arguments["session "+name] = a.complete(1, a.sessionIDs)
	}
	return arguments
}

// flagCompletions returns the completions of the values of flags, by the name of the flag; for a flag that
// differs by command, the command precedes the name.
func (a *app) flagCompletions() map[string]cobra.CompletionFunc {
	skillNames, scripts := a.complete(0, a.skillNames), a.complete(0, a.scripts)
	flags := map[string]cobra.CompletionFunc{
		"skill":                   skillNames,
		"pin-skill":               skillNames,
		"name-only":               skillNames,
		"disable-skill":           skillNames,
		"allow-skill-script":      scripts,
		"resume":                  a.complete(0, a.sessionIDs),
		"profile":                 a.complete(0, a.profileNames),
		"list --only":             fixed(listStates...),
		"prompt --format":         fixed("xml", "text"),
		"prompt --location":       fixed("path", "uri"),
		"session export --format": fixed("json", "intoto", "evals"),
		"validate --format":       fixed(formatText, formatSARIF),
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
	return flags
}

func fixed(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, noFiles)
}

// complete returns a completer with words that depend on the configuration, for the first most arguments, or
// for all if most is 0. After an error it offers nothing, because a shell cannot show the error.
func (a *app) complete(most int, of words) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		if most > 0 && len(args) >= most || a.loadConfig(cmd) != nil {
			return nil, noFiles
		}
		return of(ctx, typed{cmd, args, word})
	}
}

// completionSkills returns the skills below the roots of a command line and the configuration; none after an
// error.
func (a *app) completionSkills(ctx context.Context, cmd *cobra.Command) []*skills.Skill {
	var roots config.RootOptions
	// Commands without such a flag, such as setup, use the default roots.
	roots.Specs, _ = cmd.Flags().GetStringArray("skills-root")
	roots.NoDefaults, _ = cmd.Flags().GetBool("no-default-roots")
	found, err := roots.Resolve(&a.Process)
	if err != nil {
		return nil
	}
	snapshot, err := skills.Scan(ctx, found, roots.ScanOptions())
	if err != nil {
		return nil
	}
	return snapshot.Skills
}

func (a *app) skillNames(ctx context.Context, line typed) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, skill := range a.completionSkills(ctx, line.cmd) {
		// Names and descriptions reach the terminal, so they must be one line without control characters.
		if strings.HasPrefix(skill.Path, line.word) && report.Printable(skill.Path) == skill.Path {
			about := report.Shorten(skill.Frontmatter.Description, 60)
			names = append(names, cobra.CompletionWithDesc(skill.Path, about))
		}
	}
	return names, noFiles
}

// scripts completes SKILL:scripts/PATH, first the skill and then its scripts.
func (a *app) scripts(ctx context.Context, line typed) ([]string, cobra.ShellCompDirective) {
	name, _, named := strings.Cut(line.word, ":")
	if named {
		return a.scriptsOf(ctx, line.cmd, name, name+":"), noFiles
	}
	names, _ := a.skillNames(ctx, line)
	for i, one := range names {
		path, _, _ := strings.Cut(one, "\t")
		names[i] = path + ":"
	}
	return names, noFiles | cobra.ShellCompDirectiveNoSpace
}

// runWords completes a skill and the path of one of its scripts. The script's arguments may be files.
func (a *app) runWords(ctx context.Context, line typed) ([]string, cobra.ShellCompDirective) {
	switch len(line.args) {
	case 0:
		return a.skillNames(ctx, line)
	case 1:
		return a.scriptsOf(ctx, line.cmd, line.args[0], ""), noFiles
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// scriptsOf returns the paths of the scripts of a skill, each with prefix.
func (a *app) scriptsOf(ctx context.Context, cmd *cobra.Command, name, prefix string) []string {
	all := a.completionSkills(ctx, cmd)
	at := slices.IndexFunc(all, func(sk *skills.Skill) bool { return sk.Path == name })
	if at < 0 {
		return nil
	}
	index, err := all[at].Index(ctx)
	if err != nil {
		return nil
	}
	var scripts []string
	for _, resource := range index.Resources {
		info := resource.Outside
		isScript := resource.Kind == skills.KindScript || info != nil && info.Runtime != ""
		if isScript && report.Printable(resource.Path) == resource.Path {
			scripts = append(scripts, prefix+resource.Path)
		}
	}
	return scripts
}

func (a *app) sessionIDs(ctx context.Context, _ typed) ([]string, cobra.ShellCompDirective) {
	records, _, err := a.records(ctx)
	if err != nil {
		return nil, noFiles
	}
	defer records.Close()
	sessions, _ := provenance.ListSessions(ctx, records) // as far as they can be read
	ids := []string{cobra.CompletionWithDesc("latest", "the newest")}
	for _, s := range sessions {
		about := s.CreatedAt.Local().Format(time.DateTime) + ", " + report.Plural(s.Counts.Runs, "run")
		ids = append(ids, cobra.CompletionWithDesc(s.ID, about))
	}
	return ids, noFiles | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) profileNames(context.Context, typed) (names []string, _ cobra.ShellCompDirective) {
	for _, profile := range a.Cfg.Keys.PolicyProfiles() {
		names = append(names, profile.Name)
	}
	return names, noFiles
}

// allowedScripts completes the scripts that the configuration allows.
func (a *app) allowedScripts(context.Context, typed) (names []string, _ cobra.ShellCompDirective) {
	for _, key := range a.Cfg.Keys.Allow {
		script, _, _ := strings.Cut(key.Script, "@")
		names = append(names, report.Printable(script))
	}
	return names, noFiles
}

func (a *app) installedNames(context.Context, typed) (names []string, _ cobra.ShellCompDirective) {
	if lock, err := a.readLock(); err == nil {
		for _, e := range lock.Skills {
			names = append(names, e.Name)
		}
	}
	return names, noFiles
}
