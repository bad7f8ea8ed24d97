package main

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/search"
)

// listOptions are the flags of list.
type listOptions struct {
	app          *app
	Reader       config.ReaderOptions
	AllowScripts []string
	Only         string
	JSON         bool
}

// listStates are the states that list can be limited to. Skills that are broken have rows only in
// JSON.
var listStates = []string{
	string(skills.StateEnabled), string(skills.StateHidden), string(skills.StateDisabled),
	string(skills.StateUnavailable), stateBroken,
}

// stateFlag is --state of list: the state directory as everywhere, or one of the states of --only.
type stateFlag struct {
	cmd  *cobra.Command
	only *string
}

func (f stateFlag) Set(text string) error {
	if slices.Contains(listStates, text) {
		*f.only = text
		return nil
	}
	return f.cmd.Root().PersistentFlags().Set("state", text)
}

func (f stateFlag) String() string { return "" }
func (f stateFlag) Type() string   { return "string" }

func newListCmd(a *app) *cobra.Command {
	opts := &listOptions{app: a}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the skills that would be served, those withheld, and what was found wrong",
		Long: "List every skill with its state: ✓ enabled, ○ hidden from models or disabled, ✗\n" +
			"unavailable. VERDICT is strict when `skillsd validate` accepts the skill, repaired when its\n" +
			"frontmatter loads only after a repair, else lenient. RUN counts the scripts that\n" +
			"--allow-skill-script lets run, of all. What was found wrong is on stderr, each with a fix.\n" +
			"Here --state also takes the states of --only; a directory of such a name is ./NAME.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().StringArrayVar(&opts.AllowScripts, "allow-skill-script", nil,
		"show this `SCRIPT` as allowed: SKILL:scripts/PATH (repeatable)")
	cmd.Flags().StringVar(&opts.Only, "only", "",
		"only skills in this `STATE`: enabled, hidden, disabled, unavailable or, with --json, broken")
	global := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(config.Process).Register(global)
	cmd.Flags().Var(stateFlag{cmd, &opts.Only}, "state", global.Lookup("state").Usage)
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

// maxListed bounds the diagnostics printed with a list; a tree of thousands of skills has thousands.
const maxListed = 50

func (o *listOptions) run(ctx context.Context) error {
	if o.Only != "" && !slices.Contains(listStates, o.Only) {
		return exit.Usagef("use enabled, hidden, disabled, unavailable or broken",
			"--only: unknown state %q", o.Only)
	}
	verdicts, err := serve.NewJudge(o.app.serveOptions(), o.AllowScripts)
	if err != nil {
		return err
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return err
	}
	rows, err := report.NewSkillRows(ctx, snapshot, verdicts.Allow, o.app.err)
	if err != nil {
		return err
	}
	verdicts.Mark(ctx, snapshot, rows)
	lock, err := o.app.markInstalled(rows)
	if err != nil {
		return err
	}
	if !o.Reader.Roots.NoDefaults {
		rows = withInstalled(rows, lock)
	}
	if o.Only != "" {
		rows = slices.DeleteFunc(rows, func(row report.SkillRow) bool { return row.State != o.Only })
	}
	found := report.Diagnostics(snapshot.Diagnostics)
	if o.JSON {
		if err := report.AddViolations(ctx, rows); err != nil {
			return err
		}
		if err := report.WriteJSON(o.app.out, o.withBroken(rows, snapshot)); err != nil {
			return err
		}
		return report.WriteDiagnostics(o.app.err, found, len(found))
	}
	switch {
	case len(rows) > 0:
		err = report.PrintSkills(o.app.out, rows, o.app.columns(o.app.out))
	case o.Only != "":
		o.app.printf("no skill is %s\n", o.Only)
	default:
		o.app.printf("no skills\n")
	}
	if err != nil {
		return err
	}
	for i := range rows {
		found = append(found, report.Notable(rows[i].Path+"/", rows[i].Diagnostics)...)
	}
	return report.WriteDiagnostics(o.app.err, found, maxListed)
}

// stateBroken is the state of a skill that cannot be loaded.
const stateBroken = "broken"

// withBroken adds a row for each skill that cannot be loaded, with the few facts there are.
func (o *listOptions) withBroken(rows []report.SkillRow, snapshot *skills.Snapshot) []report.SkillRow {
	if o.Only != "" && o.Only != stateBroken {
		return rows
	}
	for _, d := range snapshot.Diagnostics {
		file := path.Base(d.Path)
		if d.Severity != skills.Error || !strings.EqualFold(file, "SKILL.md") {
			continue
		}
		dir := path.Dir(d.Path)
		d.Path = file
		row := report.EmptyRow(dir, path.Base(dir), stateBroken)
		row.Reasons, row.Diagnostics = []string{d.Detail}, report.Diagnostics([]skills.Diagnostic{d})
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b report.SkillRow) int { return strings.Compare(a.Path, b.Path) })
	return rows
}

// hitRow is a found skill as search --json prints it.
type hitRow struct {
	Path        string  `json:"path"`
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Tier        string  `json:"tier"`
	Score       float64 `json:"score"`
}

// searchResult is what search --json prints.
type searchResult struct {
	Query      string   `json:"query"`
	Total      int      `json:"total"`
	Suggestion string   `json:"suggestion,omitempty"`
	Hits       []hitRow `json:"hits"`
}

func newSearchCmd(a *app) *cobra.Command {
	var reader config.ReaderOptions
	limit, asJSON := 0, false
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search the skills a model may see, as the tool search_skills does",
		Long: "Search name, path, description, tags and when_to_use of the skills a model may see, best " +
			"first, as the tool search_skills does. Several words need no quotes.",
		Args: cobra.MinimumNArgs(1),
		RunE: runE(func(ctx context.Context, words []string) error {
			if limit < 0 {
				return exit.Usagef("give a number from 0", "--limit: %d is negative", limit)
			}
			snapshot, err := reader.Scan(ctx, &a.Process)
			if err != nil {
				return err
			}
			result, err := searchSkills(snapshot, strings.Join(words, " "), limit)
			if err != nil {
				return err
			}
			if asJSON {
				return report.WriteJSON(a.out, result)
			}
			a.printHits(result)
			return nil
		}),
	}
	reader.Register(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 20, "most skills to print; 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// searchSkills returns at most limit of the skills that a query finds; 0 for all.
func searchSkills(snapshot *skills.Snapshot, query string, limit int) (*searchResult, error) {
	offered, _ := catalog.Offered(snapshot)
	index := search.New(offered)
	result := &searchResult{Query: query, Hits: []hitRow{}}
	for page := (search.Page{Size: search.MaxPage}); ; {
		found, err := index.Search(query, page)
		if err != nil {
			return nil, exit.Usagef("use fewer words", "search: %v", err)
		}
		result.Total, result.Suggestion = found.Total, found.Suggestion
		for _, hit := range found.Hits {
			if limit > 0 && len(result.Hits) == limit {
				return result, nil
			}
			sk := hit.Skill
			row := hitRow{sk.Path, sk.Name(), sk.Description(), sk.Root.Tier.String(), hit.Score}
			result.Hits = append(result.Hits, row)
		}
		if page.Cursor = found.Next; page.Cursor == "" {
			return result, nil
		}
	}
}

func (a *app) printHits(result *searchResult) {
	if len(result.Hits) == 0 {
		a.printf("nothing found\n")
	}
	most, paths := a.columns(a.out), 0
	for _, hit := range result.Hits {
		paths = max(paths, report.Cells(report.Printable(hit.Path)))
	}
	paths = min(paths, max(report.MinPathColumn, most/2))
	for _, hit := range result.Hits {
		path := report.Pad(report.Printable(hit.Path), paths)
		if report.Cells(path) > paths {
			path += "\n" + report.Pad("", paths)
		}
		left := max(report.MinDescription, most-paths-len(report.Gap))
		a.printf("%s%s%s\n", path, report.Gap, report.Shorten(hit.Description, left))
	}
	if rest := result.Total - len(result.Hits); rest > 0 {
		a.notef("%d more; --limit 0 prints all", rest)
	}
	if result.Suggestion != "" {
		a.notef("did you mean: %s", report.Printable(result.Suggestion))
	}
}
