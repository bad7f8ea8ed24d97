package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// allowOptions are the flags of allow.
type allowOptions struct {
	app    *app
	Reader config.ReaderOptions
	List   bool
	DryRun bool
	JSON   bool
	Offer  bool
}

func newAllowCmd(a *app) *cobra.Command {
	opts := &allowOptions{app: a}
	cmd := &cobra.Command{
		Use:   "allow SKILL:scripts/PATH",
		Short: "Show a script and allow exactly it, in the configuration",
		Long: "Show a script of a skill with what can be known of it without running it, and write an\n" +
			"entry into the configuration that allows it to run: this path, with these bytes, in a skill\n" +
			"whose other files are what they are now, since a script may load them. If the script or one\n" +
			"of these files changes later, it does not run before it is allowed again. Comments in the\n" +
			"configuration stay. Models run scripts with the tool run_skill_script, which is not offered\n" +
			"until the configuration says so: with --offer-tool that is written too, and without it you\n" +
			"are asked on a terminal.\n\n" +
			"  skillsd allow pdf:scripts/extract.py\n" +
			"  skillsd allow --list\n\n" +
			"The list of network-looking calls is a help for reading: a script can hide what it does.\n" +
			"What it can reach is decided by the sandbox, which has no network unless an entry names\n" +
			"hosts.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.List, "list", false,
		"list the entries of the configuration and whether each still holds")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "show the script, write nothing")
	cmd.Flags().BoolVar(&opts.Offer, "offer-tool", false,
		"also offer the tool that runs scripts, when the configuration does not: allow_tools: "+
			"[run_skill_script]")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *allowOptions) run(ctx context.Context, args []string) error {
	if o.List != (len(args) == 0) {
		return exit.Usagef("give SKILL:scripts/PATH, or --list", "allow takes a script or --list")
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return err
	}
	if o.List {
		return o.list(ctx, snapshot)
	}
	return o.allow(ctx, snapshot, args[0])
}

// allow shows one script and writes its entry.
func (o *allowOptions) allow(ctx context.Context, snapshot *skills.Snapshot, spec string) error {
	entry, err := parseScript(spec)
	if err != nil {
		return err
	}
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		if _, err = snapshot.Lookup(entry.Skill); err == nil {
			err = fmt.Errorf("%q is the name of a skill, not its path; see `skillsd list`", entry.Skill)
		}
		return lookupFailure(err)
	}
	facts, err := report.FactsOf(ctx, sk, entry.Path)
	if err != nil {
		return err
	}
	if entry.Pin != "" && entry.Pin != facts.Digest {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf(
			"the script has the digest %s, not the one given", facts.Digest),
			Hint: "read it again before it is allowed: skillsd allow --dry-run " + serve.ShellName(entry)}
	}
	if facts.Runtime == "" {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%s cannot run: %s", spec,
			report.Printable(facts.Problem)),
			Hint: "allowing it would have no effect; " + serve.HintRuntime}
	}
	facts.Entry = fmt.Sprintf("%s:%s@%s", entry.Skill, entry.Path, facts.Digest)
	if facts.Unreleased, err = o.unreleased(entry); err != nil {
		return err
	}
	if err := o.show(facts); err != nil {
		return err
	}
	if o.DryRun {
		return nil
	}
	offered, err := o.write(ctx, &entry, facts)
	if err != nil || o.JSON {
		return err
	}
	fmt.Fprintf(o.app.out, "allowed %s in the tree %s\n", facts.Entry, facts.Tree)
	fmt.Fprintf(o.app.err, "skillsd: note: written to %s\nskillsd: note: a server that runs takes it at "+
		"its next start\n", facts.Config)
	if facts.Unreleased != "" {
		fmt.Fprintf(o.app.err, "skillsd: warning: no run of it is let through: %s\nskillsd: hint: %s\n",
			facts.Unreleased, serve.HintUnreleased)
	}
	o.app.noteAllow(offered, serve.ScriptName(entry))
	return nil
}

// show shows what is allowed next. What nobody was shown is not allowed, so it comes before.
func (o *allowOptions) show(facts *report.ScriptFacts) (err error) {
	if !o.JSON {
		return facts.Print(o.app.out)
	}
	if !o.DryRun {
		if facts.Config, err = o.app.AllowPlace(); err != nil {
			return err
		}
	}
	return report.WriteJSON(o.app.out, facts)
}

// write writes the entry into the configuration, and reports whether the tool that runs scripts is offered
// then.
func (o *allowOptions) write(ctx context.Context, entry *policy.Entry,
	facts *report.ScriptFacts) (offered bool, err error) {
	offer, err := o.offer(ctx)
	if err != nil {
		return false, err
	}
	offered = offer || o.app.offersTool()
	facts.Config, err = o.app.EditAllow(ctx, func(edit *config.AllowEdit) error {
		if offer {
			if err := edit.Offer(); err != nil {
				return err
			}
		}
		return edit.Set(entry.Skill, entry.Path, facts.Entry, facts.Tree.String())
	})
	return offered, err
}

// offer reports whether the tool that runs scripts is to be offered as well, which it is not yet.
func (o *allowOptions) offer(ctx context.Context) (bool, error) {
	switch {
	case o.app.offersTool():
		return false, nil
	case o.Offer:
		return true, nil
	case o.JSON || !report.IsTerminal(o.app.err) || !report.IsTerminal(o.app.in):
		return false, nil
	}
	if _, err := fmt.Fprintf(o.app.err, "The tool that runs scripts, %s, is not offered, so that "+
		"none runs.\n", mcpserver.ToolRun); err != nil {
		return false, fmt.Errorf("ask on the terminal: %w", err)
	}
	return o.app.confirm(ctx, "Offer it as well, with allow_tools in the configuration?")
}

// offersTool reports whether a server of this configuration offers the tool that runs scripts.
func (a *app) offersTool() bool {
	if value, ok := a.Env(config.EnvOf("allow-tool")); ok && value != "" {
		return true
	}
	return slices.Contains(a.Cfg.Keys.AllowTools, mcpserver.ToolRun)
}

// unreleased says why no run of a script would be let through once it is allowed; it is empty if runs
// would be let through. If the script already has an entry, the settings of that entry count.
func (o *allowOptions) unreleased(entry policy.Entry) (string, error) {
	verdicts, err := serve.NewJudge(o.app.serveOptions(), nil)
	if err != nil {
		return "", err
	}
	keys := o.app.Cfg.Keys.Allow
	for i := range keys {
		if known, err := keys[i].Entry(); err == nil && known.Skill == entry.Skill &&
			known.Path == entry.Path {
			entry = known
			break
		}
	}
	if verdicts.Unreleased(entry) {
		return serve.Unreleased(entry), nil
	}
	return "", nil
}

// parseScript reads SKILL:scripts/PATH.
func parseScript(spec string) (policy.Entry, error) {
	entry, err := policy.ParseEntry(spec)
	for part := range strings.SplitSeq(spec, ":") {
		if err == nil && strings.Trim(part, " ") != part {
			err = &policy.EntryError{Spec: spec, Reason: "no skill and no script begins or ends with a blank"}
		}
	}
	if err != nil {
		return entry, exit.Usagef("use SKILL:scripts/PATH, with the paths that `skillsd show SKILL` prints",
			"%w", err)
	}
	return entry, nil
}

// noteAllow says what else keeps the entry of a script from having an effect.
func (a *app) noteAllow(offered bool, script string) {
	name := config.EnvOf("allow-skill-script")
	if value, ok := a.Env(name); ok && value != "" {
		fmt.Fprintf(a.err, "skillsd: warning: %s is set and takes the place of the configuration's list\n",
			name)
	}
	if !offered {
		fmt.Fprintf(a.err, "skillsd: warning: no script runs: the tool %s is not offered\n"+
			"skillsd: hint: skillsd allow --offer-tool %s\n", mcpserver.ToolRun, report.ShellLine(script))
	}
}

func (o *allowOptions) list(ctx context.Context, snapshot *skills.Snapshot) error {
	rows := []serve.AllowRow{}
	verdicts, err := serve.NewJudge(o.app.serveOptions(), nil)
	if err != nil {
		return err
	}
	keys := o.app.Cfg.Keys.Allow
	for i := range keys {
		entry, err := keys[i].Entry()
		if err != nil {
			return err
		}
		row := serve.AllowState(ctx, snapshot, entry)
		if row.State == serve.StateAllowed && verdicts.Unreleased(entry) {
			row.State, row.Detail, row.Hint = serve.StateUnreleased, serve.Unreleased(entry), serve.HintUnreleased
		}
		if row.Hint != "" {
			row.Detail += "; " + row.Hint
		}
		rows = append(rows, row)
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(o.app.out, "no script is allowed")
		return err
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(o.app.out, "%s %s\n", report.Pad(row.State, 11),
			report.Printable(row.Script)); err != nil {
			return err
		}
		if row.Detail != "" {
			fmt.Fprintf(o.app.out, "%s %s\n", report.Pad("", 11), report.Printable(row.Detail))
		}
	}
	return nil
}

// disallowOptions are the options of disallow, which has no flags.
type disallowOptions struct{ app *app }

func newDisallowCmd(a *app) *cobra.Command {
	opts := &disallowOptions{app: a}
	return &cobra.Command{
		Use:   "disallow SKILL:scripts/PATH",
		Short: "Remove a script from the allowlist of the configuration",
		Args:  cobra.ExactArgs(1),
		RunE:  runE(func(ctx context.Context, args []string) error { return opts.run(ctx, args[0]) }),
	}
}

func (o *disallowOptions) run(ctx context.Context, spec string) error {
	entry, err := parseScript(spec)
	if err != nil {
		return err
	}
	name := serve.ScriptName(entry)
	file, err := o.app.EditAllow(ctx, func(edit *config.AllowEdit) error {
		return edit.Remove(entry.Skill,
			entry.Path)
	})
	if errors.Is(err, config.ErrNotAllowed) {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%s: %w", name, err),
			Hint: "`skillsd allow --list` shows what it allows"}
	} else if err != nil {
		return err
	}
	fmt.Fprintf(o.app.out, "disallowed %s\n", name)
	fmt.Fprintf(o.app.err, "skillsd: note: written to %s; a server that runs takes it at its next start\n",
		file)
	return nil
}

// notePins says which entries of the configuration no longer fit skills that a plan changes.
func (a *app) notePins(plan *install.Plan) {
	const holds = ""
	var order []string
	notes := map[string]string{} // by the name of a script, of which there may be several entries
	for i := range a.Cfg.Keys.Allow {
		entry, err := a.Cfg.Keys.Allow[i].Entry()
		owner, dir, nested := strings.Cut(entry.Skill, "/")
		at := slices.IndexFunc(plan.Changes, func(c install.Change) bool { return c.Name == owner })
		if err != nil || at < 0 || plan.Changes[at].Before == nil ||
			plan.Changes[at].Before == plan.Changes[at].After {
			continue
		}
		was, is := filesOf(plan.Changes[at].Before, dir), filesOf(plan.Changes[at].After, dir)
		if nested && !hasSkill(was) && !hasSkill(is) {
			continue // it is served from elsewhere
		}
		name, note := serve.ScriptName(entry), holds
		file := slices.IndexFunc(is, func(f store.File) bool { return f.Path == entry.Path })
		if file < 0 {
			note = "the configuration still allows " + name +
				", which is gone; take that back: skillsd disallow "
		} else if change := entry.Changed(is[file].Digest,
			store.TreeDigest(is)); change == policy.TreeChanged {
			note = name + " does not run: other files of its skill are not what was allowed; " +
				"read them and allow it again: skillsd allow "
		} else if change != policy.Unchanged {
			note = name + " is not what was allowed and does not run; read it and allow it again: " +
				"skillsd allow "
		}
		if _, known := notes[name]; !known {
			order = append(order, name)
		} else if notes[name] == holds {
			continue
		}
		notes[name] = note
	}
	for _, name := range order {
		if notes[name] != holds {
			a.notef("skillsd: note: %s%s", notes[name], report.ShellLine(name))
		}
	}
}

// filesOf returns the files of an installed skill, or of the one that lies in its directory dir.
func filesOf(e *install.Entry, dir string) []store.File {
	if e == nil {
		return nil
	}
	var files []store.File
	for _, f := range e.Files {
		if below, ok := strings.CutPrefix(f.Path, dir+"/"); dir == "" || ok {
			files = append(files, store.File{Path: below, Digest: f.Digest})
		}
	}
	return files
}

// hasSkill reports whether files are those of a skill.
func hasSkill(files []store.File) bool {
	return slices.ContainsFunc(files, func(f store.File) bool {
		return strings.EqualFold(f.Path,
			"SKILL.md")
	})
}
