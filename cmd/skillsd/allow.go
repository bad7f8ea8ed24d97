package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// allowOptions are the flags of allow.
type allowOptions struct {
	app                     *app
	Reader                  config.ReaderOptions
	Ask                     string
	List, DryRun, JSON, Yes bool
}

func newAllowCmd(a *app) *cobra.Command {
	opts := &allowOptions{app: a}
	cmd := &cobra.Command{
		Use:   "allow SKILL:PATH",
		Short: "Read a script of a skill, and let it run",
		Long: "Show a script, ask you, and write an entry into the configuration that lets it run.\n\n" +
			"  skillsd allow pdf:scripts/extract.py\n" +
			"  skillsd allow --list\n\n" +
			"The entry is for these bytes of the script, and for all other files of the skill as they " +
			"are now, since a script may load them. After any change the script does not run until you " +
			"allow it again. With :pin=script after the script, only its own bytes must stay the same. " +
			"A file outside scripts/ can be allowed if an interpreter runs it, such as " +
			"pdf:bin/fill.py; the instructions and other texts of a skill cannot.\n\n" +
			"The answer, or --ask, is also how often you are asked before a run: about each run, " +
			"until you allow the script for the rest of a session, or never. Without a terminal, --yes " +
			"is your answer. In a shell that an agent opened for its model nothing is allowed. " +
			"Comments in the configuration stay. The first allowed script also offers run_skill_script " +
			"to models, the tool that runs scripts.\n\n" +
			"The list of calls that look like network access helps you read: a script can hide what it " +
			"does. The sandbox decides what it can reach, and has no network unless the entry names " +
			"hosts. See `skillsd help allow`.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.List, "list", false,
		"list the entries of the configuration and whether each is still valid")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "show the script, write nothing")
	cmd.Flags().BoolVar(&opts.Yes, "yes", false,
		"write the entry without asking; required without a terminal")
	// Earlier versions offered the tool only with this flag.
	cmd.Flags().Bool("offer-tool", true, "offer the tool that runs scripts, which is always done")
	cmd.Flags().Lookup("offer-tool").Hidden = true
	cmd.Flags().StringVar(&opts.Ask, "ask", "",
		"`WHEN` you are asked before a run: always, session or never; with never exactly these bytes "+
			"run for every client that calls them")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *allowOptions) run(ctx context.Context, args []string) error {
	if o.List != (len(args) == 0) {
		return exit.Usagef("give SKILL:scripts/PATH, or --list", "allow takes a script or --list")
	}
	if o.Ask != "" && !slices.Contains(askWords, o.Ask) {
		return exit.Usagef("use "+strings.Join(askWords, ", "), "--ask: %q is unknown",
			config.Clip(o.Ask))
	}
	if o.List {
		snapshot, err := o.Reader.ScanAny(ctx, &o.app.Process)
		if err != nil {
			return err
		}
		return o.list(ctx, snapshot)
	}
	entry, err := parseScript(args[0])
	if err != nil {
		return err
	}
	// Reading is free for agents, only writing is the user's.
	if !o.DryRun {
		if err := o.app.byUser("`skillsd allow`"); err != nil {
			return err
		}
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return err
	}
	return o.allow(ctx, snapshot, entry)
}

// askWords are the answers about how often the user is asked.
var askWords = []string{string(policy.AskAlways), string(policy.AskSession), string(policy.AskNever)}

// installed returns the installed skills. Without a state directory nothing is installed.
func (a *app) installed() (install.Installed, error) {
	state, err := a.StateDir()
	if err != nil {
		return install.Installed{}, nil
	}
	lock, err := a.readLock()
	if err != nil {
		return install.Installed{}, installing.Failure(err)
	}
	return lock.In(state), nil
}

// decide asks whether the script may run, and in the same question how often to ask before it runs. It
// returns whether the user was asked, and the word for how often, which is empty if nothing of that changes.
//
// Errors: *exit.Error for a no, and without a terminal or --yes.
func (o *allowOptions) decide(ctx context.Context, name string, now policy.Ask) (bool, string, error) {
	// How often to ask is not part of the question if a flag has answered it.
	if o.Yes || o.Ask != "" || !o.app.hasTerminal() {
		asked, err := o.app.confirmed(ctx, o.Yes, "Allow "+name+" to run?")
		return asked, "", err
	}
	before := map[policy.Ask]string{policy.AskSession: "you are asked once in a session, as now",
		policy.AskNever: "you are not asked, as now"}[now]
	prompt, choices := allowQuestion(name, before)
	for {
		word, err := o.app.typed(ctx, prompt+choices)
		if err != nil {
			return true, "", err
		}
		switch word {
		case "y", "yes":
			if before == "" {
				// Without the word, a configuration that counts calls as commands of the user would not ask.
				return true, string(policy.AskAlways), nil
			}
			return true, "", nil
		case "", "n", "no":
			return true, "", exit.Errorf(exit.Failure, "", "nothing is written")
		}
		if slices.Contains(askWords, word) {
			return true, word, nil
		}
		prompt = ""
	}
}

// allowQuestion returns the question whether a script may run, and the answers to it. before is how often the
// user is asked now, in words; "" stands for the default.
func allowQuestion(name, before string) (prompt, choices string) {
	yes, always := "you are asked before each run", ""
	choices = "[y, session, never, or n] "
	if before != "" {
		yes, always = before, "  always   you are asked before each run\n"
		choices = "[y, always, session, never, or n] "
	}
	return "Allow " + name + " to run?\n" +
		"  y        " + yes + "\n" +
		always +
		"  session  you are asked until you allow it for the rest of a session\n" +
		"  never    you are not asked: exactly these bytes run for every client that calls them\n", choices
}

// allow shows one script and writes its entry.
func (o *allowOptions) allow(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) error {
	sk, err := o.skillOf(ctx, snapshot, entry)
	if err != nil {
		return err
	}
	facts, err := factsOf(ctx, sk, entry)
	if err != nil {
		return err
	}
	// The digest is of the bytes that are shown below, not of what may lie there when the entry is written.
	entry.Pin = facts.Digest
	facts.Entry = entry.Spec()
	verdicts, err := serve.NewJudge(o.app.serveOptions(), nil)
	if err != nil {
		return err
	}
	uncovered := notCovered(verdicts, sk, entry, script.Runtime(facts.Runtime))
	// A dry run also shows files that only other scripts import.
	if uncovered != nil && !o.DryRun {
		return uncovered
	}
	known := o.known(entry)
	if verdicts.Unreleased(known) {
		facts.Unreleased = serve.Unreleased(known)
	}
	found, err := o.look(ctx, sk, known, facts)
	if err != nil {
		return err
	}
	// A script must be shown before it is allowed, so the facts are printed first.
	if err := o.show(facts); err != nil {
		return err
	}
	if o.DryRun {
		if uncovered != nil {
			o.app.notef("skillsd: note: %v", uncovered)
		}
		return nil
	}
	asked, err := o.ask(ctx, &entry, known)
	if err != nil {
		return err
	}
	facts.Config, err = o.write(ctx, entry, facts.Tree.String())
	if err != nil || o.JSON {
		return err
	}
	o.printAllowed(entry, known, facts)
	if asked {
		o.app.warnSandbox(ctx)
	}
	return o.complete(ctx, found, asked)
}

// skillOf returns the skill of an entry that can allow a script of it.
//
// Errors: *exit.Error with the reason why the entry cannot.
func (o *allowOptions) skillOf(
	ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry,
) (*skills.Skill, error) {
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		return nil, o.notServed(snapshot, entry)
	}
	if nested := snapshot.Nested(sk, entry.Path); nested != nil && script.Outside(entry.Path) {
		// The nested skill's own entry is what runs see, since its files belong to it.
		own := entry
		own.Skill, own.Path = nested.Path, strings.TrimPrefix(sk.Path+"/"+entry.Path, nested.Path+"/")
		return nil, exit.Errorf(exit.Failure, "skillsd allow "+serve.ShellName(own), "%s cannot run: %s",
			serve.ScriptName(entry), report.Printable(serve.OfNested(nested)))
	}
	installed, err := o.app.installed()
	if err != nil {
		return nil, err
	}
	// Allowing the script would allow whatever was written into the skill after its installation.
	if installed.Tampered(ctx, sk) {
		return nil, exit.Errorf(exit.Failure, serve.TamperedHint, "no script of %s can be allowed: %s",
			report.Printable(sk.Path), serve.TamperedText)
	}
	return sk, nil
}

// notServed returns the error for an entry with a path at which no skill is served.
func (o *allowOptions) notServed(snapshot *skills.Snapshot, entry policy.Entry) error {
	path := entry.Skill
	for _, withheld := range snapshot.Withheld {
		if withheld.Path == path {
			status := snapshot.Status(withheld)
			return exit.Errorf(exit.Failure, "none of its scripts runs until this is fixed",
				"%s is %s: %s", path, status.State, strings.Join(status.Reasons, ", "))
		}
	}
	// An entry needs a path: another skill could get the same name later.
	named, err := snapshot.Lookup(path)
	if err == nil {
		entry.Skill = named.Path
		return exit.Errorf(exit.Failure, "skillsd allow "+serve.ShellName(entry),
			"%q is the name of a skill, not its path", config.Clip(path))
	}
	return o.app.offOr(path, cmp.Or(report.BrokenError(exit.Failure, snapshot, path),
		report.LookupError(exit.Failure, "", err)))
}

// factsOf returns the facts of a script, if it can run and has the digest that the entry names.
func factsOf(
	ctx context.Context, sk *skills.Skill, entry policy.Entry,
) (*report.ScriptFacts, error) {
	facts, err := report.FactsOf(ctx, sk, entry.Path)
	if err != nil {
		return nil, err
	}
	if entry.Pin != "" && entry.Pin != facts.Digest {
		return nil, exit.Errorf(exit.Failure,
			"read it again before it is allowed: skillsd allow --dry-run "+serve.ShellName(entry),
			"the script has the digest %s, not the one given", facts.Digest)
	}
	if facts.Runtime == "" {
		return nil, exit.Errorf(exit.Failure,
			"allowing it would have no effect; "+serve.HintRuntime(facts.Problem),
			"%s cannot run: %s", serve.ScriptName(entry), report.Printable(facts.Problem))
	}
	return facts, nil
}

// notCovered returns the error for a script that the allowed-tools of its skill do not cover, else nil.
func notCovered(verdicts *serve.Judge, sk *skills.Skill, entry policy.Entry, runtime script.Runtime) error {
	if verdicts.Covers(sk, entry.Path, runtime) {
		return nil
	}
	tools := cmp.Or(strings.Join(sk.Frontmatter.AllowedTools, " "), "empty")
	return exit.Errorf(exit.Failure, "allowing it would have no effect; if you trust the skill "+
		"more than its author asks for, set policy: {allowed_tools: advisory}, or let the author add "+
		"run_skill_script",
		"every run of %s is refused: allowed-tools of its skill, %s, does not cover it",
		serve.ScriptName(entry), report.Printable(tools))
}

// known returns the entry that the configuration has for the script, whose other settings stay, else entry.
func (o *allowOptions) known(entry policy.Entry) policy.Entry {
	for _, key := range o.app.Cfg.Keys.Allow {
		if e, err := key.Entry(); err == nil && serve.ScriptName(e) == serve.ScriptName(entry) {
			e.PinScript = e.PinScript || entry.PinScript
			return e
		}
	}
	return entry
}

// look adds to the facts what the script imports, whether it has an interpreter, and which granted hosts that
// cannot reach.
func (o *allowOptions) look(
	ctx context.Context, sk *skills.Skill, known policy.Entry, facts *report.ScriptFacts,
) (*environments.Imports, error) {
	looker := &environments.Looker{Process: &o.app.Process, Sandbox: o.app.Cfg.Keys.Sandbox}
	found, err := looker.Look(ctx, sk, known)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		o.app.notef("skillsd: note: the imports of the script could not be checked: %s",
			report.Printable(err.Error()))
		// The operator must not take a failed analysis for a script without imports.
		facts.Unread = []string{known.Path}
	}
	facts.Imports = found.Rows()
	if found != nil {
		facts.Unread = append(facts.Unread, found.Unread...)
		if err := facts.AddFiles(ctx, sk, found.Files); err != nil {
			return nil, err
		}
	}
	runtime := script.Runtime(facts.Runtime)
	in, err := looker.Interpreter(ctx, known, runtime)
	facts.Lacking, _ = environments.Lacking(runtime, in, err)
	if in != nil && len(known.Network) > 0 {
		facts.Unreached = script.NoProxy(runtime, in.Version)
	}
	return found, nil
}

// show prints the facts.
func (o *allowOptions) show(facts *report.ScriptFacts) error {
	if !o.JSON {
		return facts.Print(o.app.out)
	}
	if !o.DryRun {
		var err error
		facts.Config, err = o.app.AllowPath()
		if err != nil {
			return err
		}
	}
	return report.WriteJSON(o.app.out, facts)
}

// ask asks whether the script may run, sets how often to ask before it runs, and reports whether the user was
// asked.
func (o *allowOptions) ask(ctx context.Context, entry *policy.Entry, known policy.Entry) (bool, error) {
	often := known.Ask
	if often == policy.AskNever && known.Pin != entry.Pin {
		often = "" // never was the answer about other bytes
	}
	asked, word, err := o.decide(ctx, report.Printable(serve.ScriptName(*entry)), often)
	if err != nil {
		return asked, err
	}
	if asked && often != known.Ask && o.Ask == "" {
		word = cmp.Or(word, string(policy.AskAlways))
	}
	entry.Ask = policy.Ask(cmp.Or(o.Ask, word))
	return asked, nil
}

// write writes an entry, and the offer of the tool that runs scripts, and returns the configuration's path.
func (o *allowOptions) write(ctx context.Context, entry policy.Entry, tree string) (string, error) {
	offered := o.app.isSet("allow-tool") || slices.Contains(o.app.Cfg.Keys.AllowTools, mcpserver.ToolRun)
	return o.app.EditAllow(ctx, func(edit *config.AllowEdit) error {
		if !offered {
			if err := edit.Offer(); err != nil {
				return err
			}
		}
		return edit.Set(entry, tree)
	})
}

// printAllowed prints what is allowed from now on.
func (o *allowOptions) printAllowed(entry, known policy.Entry, facts *report.ScriptFacts) {
	if known.PinScript {
		o.app.printf("allowed %s@%s, with any other files of its skill\n", serve.ScriptName(entry),
			short(facts.Digest))
	} else {
		files := ""
		if len(facts.Files) > 0 {
			files = ", among them " + strings.Join(facts.Files, ", ")
		}
		o.app.printf("allowed %s@%s, with the other files of its skill as they are%s\n",
			serve.ScriptName(entry), short(facts.Digest), report.Printable(files))
	}
	o.app.notef("skillsd: note: written to %s\n"+
		"skillsd: note: servers with this configuration apply it at once",
		facts.Config)
	if ask := cmp.Or(entry.Ask, known.Ask); ask == policy.AskNever {
		o.app.notef("skillsd: note: it runs without asking, in every client")
	}
	if facts.Lacking != "" {
		o.app.notef("skillsd: warning: it cannot run on this machine yet: %s",
			report.Printable(facts.Lacking))
	}
	if facts.Unreleased != "" {
		o.app.notef("skillsd: warning: every run of it in a client is refused: %s\nskillsd: hint: %s",
			facts.Unreleased, serve.HintUnreleased)
	}
	// The entry was written, but this variable of the environment hides the list of the file.
	if o.app.isSet("allow-skill-script") {
		o.app.notef("skillsd: warning: %s is set and replaces the configuration's list",
			config.EnvOf("allow-skill-script"))
	}
}

// complete reports missing imports of an allowed script, and offers to make an environment with them. The
// user has already decided whether the script may run.
func (o *allowOptions) complete(ctx context.Context, found *environments.Imports, ask bool) error {
	lacks := found.Text()
	if lacks == "" {
		return nil
	}
	o.app.notef("skillsd: warning: it %s", report.Printable(lacks))
	if ask && len(found.Asked()) > 0 {
		agreed, err := o.app.confirm(ctx, "Add "+strings.Join(found.Asked(), ", ")+" to an environment "+
			found.Environment+" for it?")
		if err != nil {
			return err
		}
		if agreed {
			err = o.app.Load(o.app.err) // including the entry just written
		}
		if err != nil {
			return err
		}
		if agreed {
			return o.app.environments(new(false)).AddMissing(ctx, found)
		}
	}
	o.app.notef("skillsd: hint: %s", found.Hint())
	return nil
}

// short returns the beginning of a digest, which is enough to compare two by eye.
func short(d digest.Digest) string { return d.String()[:min(len(d), len("sha256:")+12)] }

// isSet reports whether the environment has a value for a flag.
func (a *app) isSet(flag string) bool {
	value, _ := a.Env(config.EnvOf(flag))
	return value != ""
}

// parseScript parses SKILL:PATH. The skill may be written as PLUGIN:SKILL, as clients do.
func parseScript(spec string) (policy.Entry, error) {
	if full, ok := policy.InPlugin(spec); ok {
		spec = full
	}
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

// list prints the entries of the configuration, each with its state.
func (o *allowOptions) list(ctx context.Context, snapshot *skills.Snapshot) error {
	verdicts, err := serve.NewJudge(o.app.serveOptions(), nil)
	if err != nil {
		return err
	}
	installed, err := o.app.installed()
	if err != nil {
		return err
	}
	rows, err := verdicts.AllowRows(ctx, &o.app.Process, snapshot, installed)
	if err != nil {
		return err
	}
	for i := range rows {
		if rows[i].Hint != "" {
			rows[i].Detail += "; " + o.app.again(rows[i].Hint)
		}
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, rows)
	}
	o.printRows(rows)
	return nil
}

// printRows prints the allowed scripts, each with what keeps it from running.
func (o *allowOptions) printRows(rows []serve.AllowRow) {
	if len(rows) == 0 {
		o.app.printf("no script is allowed\n")
	}
	for _, row := range rows {
		o.app.printf("%s %s\n", report.Pad(row.State, 11), report.Printable(row.Script))
		if row.Program != "" {
			o.app.printf("%s runs %s\n", report.Pad("", 11), report.Printable(row.Means()))
		}
		if row.Detail != "" {
			o.app.printf("%s %s\n", report.Pad("", 11), report.Printable(row.Detail))
		}
	}
}

func newDisallowCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "disallow SKILL:scripts/PATH",
		Short: "Stop a script from running: remove its entry",
		Args:  cobra.ExactArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error {
			entry, err := parseScript(args[0])
			if err != nil {
				return err
			}
			err = a.byUser("`skillsd disallow`")
			if err != nil {
				return err
			}
			entry, err = a.allowedAs(entry)
			if err != nil {
				return err
			}
			name := serve.ScriptName(entry)
			file, err := a.EditAllow(ctx, func(edit *config.AllowEdit) error {
				return edit.Remove(entry.Skill, entry.Path)
			})
			if errors.Is(err, config.ErrNotAllowed) {
				return exit.Errorf(exit.Failure, "`skillsd allow --list` shows what it allows", "%s: %w",
					name, err)
			} else if err != nil {
				return err
			}
			a.printf("disallowed %s\n", name)
			a.notef("skillsd: note: written to %s; servers with this configuration apply it at once", file)
			return nil
		}),
	}
}

// allowedAs returns the entry of the configuration for a script whose skill may be written by the end of its
// path, and written itself if there is no such entry. The skill need not be installed any more.
//
// Errors: *exit.Error if the entries of several skills fit.
func (a *app) allowedAs(written policy.Entry) (policy.Entry, error) {
	// An entry of another skill is not meant by the name of one that is installed.
	if lock, err := a.readLock(); err == nil && lock.Find(written.Skill) != nil {
		return written, nil
	}
	fit := map[string]policy.Entry{} // by name
	for _, key := range a.Cfg.Keys.Allow {
		entry, err := key.Entry()
		switch {
		case err != nil || entry.Path != written.Path:
		case entry.Skill == written.Skill:
			return entry, nil
		case strings.HasSuffix(entry.Skill, "/"+written.Skill):
			fit[serve.ShellName(entry)] = entry
		}
	}
	names := slices.Sorted(maps.Keys(fit))
	switch len(names) {
	case 0:
		return written, nil
	case 1:
		return fit[names[0]], nil
	}
	return written, exit.Errorf(exit.Failure, "use one of: "+strings.Join(names, ", "),
		"%s fits more than one entry", serve.ScriptName(written))
}
