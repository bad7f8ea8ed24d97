package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/search"
)

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
		Long: "Search name, path, description, tags and when_to_use of the skills a model may see, best first, as the\n" +
			"tool search_skills does. Several words need no quotes.",
		Args: cobra.MinimumNArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error { return opts.run(ctx, strings.Join(args, " ")) }),
	}
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().IntVar(&opts.Limit, "limit", 20, "most skills to print; 0 for all")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *searchOptions) run(ctx context.Context, query string) error {
	if o.Limit < 0 {
		return usageError("give a number from 0", "--limit: %d is negative", o.Limit)
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
			return usageError("use fewer words", "search: %v", err)
		}
		result.Total, result.Suggestion = found.Total, found.Suggestion
		for _, hit := range found.Hits {
			sk := hit.Skill
			result.Hits = append(result.Hits, hitRow{sk.Path, sk.Name(), sk.Description(), sk.Root.Tier.String(), hit.Score})
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
	paths = min(paths, max(minPathColumn, most/2))
	for _, hit := range result.Hits {
		path := report.Pad(report.Printable(hit.Path), paths)
		if report.Cells(path) > paths {
			path += "\n" + report.Pad("", paths)
		}
		if _, err := fmt.Fprintln(o.app.out, path+gap+report.Shorten(hit.Description, max(minDescription, most-paths-len(gap)))); err != nil {
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
