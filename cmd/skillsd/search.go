package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/search"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

func newSearchCmd(a *app) *cobra.Command {
	var reader config.ReaderOptions
	limit, asJSON, questions := 0, false, ""
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search your skills, as a model does with search_skills",
		Long: "Search name, path, description, tags and when_to_use of the skills that a model may " +
			"see, best first. The beginning of the instructions weighs less. Several words need no " +
			"quotes.\n\n" +
			"--evaluate measures how well search finds your skills. Each line of FILE is a query, a " +
			"tab, and the path or name of the skill that answers it; if there are several with tabs " +
			"between them, any is right. # begins a comment. It prints how many answers are the first " +
			"hit, among 5 and among 20, the mean of 1/place (MRR), and the same for plain BM25; then " +
			"the questions whose answer is not among the first 5.",
		Args: func(cmd *cobra.Command, words []string) error {
			if questions != "" && len(words) == 0 {
				return nil
			}
			if questions != "" {
				return exit.Usagef("leave out one of the two", "search: --evaluate takes the place of QUERY")
			}
			return cobra.MinimumNArgs(1)(cmd, words)
		},
		RunE: runE(func(ctx context.Context, words []string) error {
			if limit < 0 {
				return exit.Usagef("give a number from 0", "--limit: %d is negative", limit)
			}
			snapshot, err := reader.Scan(ctx, &a.Process)
			if err != nil {
				return err
			}
			offered, _ := catalog.Offered(snapshot)
			index := search.New(offered)
			missing := unreadable(&reader, snapshot, false)
			if questions != "" {
				return cmp.Or(a.evaluate(index, questions, asJSON), missing)
			}
			result, err := report.Search(index, strings.Join(words, " "), limit)
			if err != nil {
				return err
			}
			partial := a.partial(snapshot)
			if asJSON {
				return cmp.Or(report.WriteJSON(a.out, result), partial, missing)
			}
			return cmp.Or(result.Print(a.out, a.err, a.columns(a.out)), partial, missing)
		}),
	}
	reader.Register(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 20, "most skills to print; 0 for all")
	cmd.Flags().StringVar(&questions, "evaluate", "",
		"measure search with the questions of `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// evaluate measures search with the questions of a file.
func (a *app) evaluate(index *search.Index, file string, asJSON bool) error {
	data, err := fsys.ReadFile(file, maxQuestions, nil)
	if err != nil {
		return fmt.Errorf("--evaluate: %w", err)
	}
	questions, err := search.ParseQuestions(string(data))
	if err != nil {
		return exit.Usagef("see `skillsd search --help`", "--evaluate %s: %v", file, err)
	}
	result, err := index.Evaluate(questions)
	if err != nil {
		return exit.Usagef("use paths or names that `skillsd list` prints", "--evaluate %s: %v", file, err)
	}
	if asJSON {
		return report.WriteJSON(a.out, result)
	}
	return report.PrintEvaluation(a.out, result)
}

// maxQuestions is the maximum size of a file of questions in bytes.
const maxQuestions = 16 << 20
