package main

import (
	"context"
	"fmt"
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
	if o.JSON {
		if err = report.AddViolations(ctx, rows); err == nil {
			err = report.WriteJSON(o.app.out, o.withBroken(rows, snapshot))
		}
	} else {
		err = o.print(rows)
	}
	if err != nil {
		return err
	}
	found := report.Diagnostics(snapshot.Diagnostics)
	if o.JSON {
		return report.WriteDiagnostics(o.app.err, found, len(found))
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
		rows = append(rows, report.SkillRow{
			Path:        dir,
			Name:        path.Base(dir),
			State:       stateBroken,
			Reasons:     []string{d.Detail},
			Tags:        []string{},
			Resources:   []report.ResourceRow{},
			Scripts:     []report.ScriptRow{},
			Shadows:     []report.ShadowRow{},
			Diagnostics: report.Diagnostics([]skills.Diagnostic{d}),
			Violations:  []report.Problem{},
		})
	}
	slices.SortStableFunc(rows, func(a, b report.SkillRow) int { return strings.Compare(a.Path, b.Path) })
	return rows
}

func (o *listOptions) print(rows []report.SkillRow) error {
	if len(rows) > 0 {
		return report.PrintSkills(o.app.out, rows, o.app.columns(o.app.out))
	}
	text := "no skills"
	if o.Only != "" {
		text = "no skill is " + o.Only
	}
	_, err := fmt.Fprintln(o.app.out, text)
	return err
}

// searchOptions are the flags of search.
type searchOptions struct {
	app    *app
	Reader config.ReaderOptions
	Limit  int
	JSON   bool
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
	opts := &searchOptions{app: a}
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search the skills a model may see, as the tool search_skills does",
		Long: "Search name, path, description, tags and when_to_use of the skills a model may see, best\n" +
			"first, as the tool search_skills does. Several words need no quotes.",
		Args: cobra.MinimumNArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error {
			return opts.run(ctx, strings.Join(args, " "))
		}),
	}
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().IntVar(&opts.Limit, "limit", 20, "most skills to print; 0 for all")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *searchOptions) run(ctx context.Context, query string) error {
	if o.Limit < 0 {
		return exit.Usagef("give a number from 0", "--limit: %d is negative", o.Limit)
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return err
	}
	offered, _ := catalog.Offered(snapshot)
	index := search.New(offered)
	result := searchResult{Query: query, Hits: []hitRow{}}
	page := search.Page{Size: search.MaxPage}
	for {
		found, err := index.Search(query, page)
		if err != nil {
			return exit.Usagef("use fewer words", "search: %v", err)
		}
		result.Total, result.Suggestion = found.Total, found.Suggestion
		for _, hit := range found.Hits {
			sk := hit.Skill
			row := hitRow{sk.Path, sk.Name(), sk.Description(), sk.Root.Tier.String(), hit.Score}
			result.Hits = append(result.Hits, row)
		}
		enough := o.Limit > 0 && len(result.Hits) >= o.Limit
		if enough {
			result.Hits = result.Hits[:o.Limit]
		}
		if page.Cursor = found.Next; page.Cursor == "" || enough {
			break
		}
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, result)
	}
	return o.print(&result)
}

func (o *searchOptions) print(result *searchResult) error {
	if len(result.Hits) == 0 {
		fmt.Fprintln(o.app.out, "nothing found")
	}
	most := o.app.columns(o.app.out)
	paths := 0
	for _, hit := range result.Hits {
		paths = max(paths, report.Cells(report.Printable(hit.Path)))
	}
	paths = min(paths, max(report.MinPathColumn, most/2))
	for _, hit := range result.Hits {
		path := report.Pad(report.Printable(hit.Path), paths)
		if report.Cells(path) > paths {
			path += "\n" + report.Pad("", paths)
		}
		description := report.Shorten(hit.Description, max(report.MinDescription, most-paths-len(report.Gap)))
		if _, err := fmt.Fprintln(o.app.out, path+report.Gap+description); err != nil {
			return err
		}
	}
	if rest := result.Total - len(result.Hits); rest > 0 {
		fmt.Fprintf(o.app.err, "%d more; --limit 0 prints all\n", rest)
	}
	if result.Suggestion != "" {
		fmt.Fprintf(o.app.err, "did you mean: %s\n", report.Printable(result.Suggestion))
	}
	return nil
}
