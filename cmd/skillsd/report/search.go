package report

import (
	"bufio"
	"fmt"
	"io"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/search"
)

// Hit is a found skill as printed by search --json.
type Hit struct {
	Path        string  `json:"path"`
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Tier        string  `json:"tier"`
	Score       float64 `json:"score"`
}

// Found is the output of search --json.
type Found struct {
	Query      string `json:"query"`
	Total      int    `json:"total"`
	Suggestion string `json:"suggestion,omitempty"`
	Hits       []Hit  `json:"hits"`
}

// Search returns at most limit of the skills that a query finds; 0 means all.
func Search(index *search.Index, query string, limit int) (*Found, error) {
	result := &Found{Query: query, Hits: []Hit{}}
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
			row := Hit{Path: sk.Path, Name: sk.Name(), Description: sk.Description(),
				Tier: sk.Root.Tier.String(), Score: hit.Score}
			result.Hits = append(result.Hits, row)
		}
		page.Cursor = found.Next
		if page.Cursor == "" {
			return result, nil
		}
	}
}

// Print prints a table of the hits on out, and notes on stderr.
func (f *Found) Print(out, stderr io.Writer, columns int) error {
	w := bufio.NewWriter(out)
	if len(f.Hits) == 0 {
		fmt.Fprintln(w, "nothing found")
	}
	paths := 0
	for _, hit := range f.Hits {
		paths = max(paths, Cells(Printable(hit.Path)))
	}
	// A single long path must not narrow all descriptions.
	paths = min(paths, max(minPathColumn, columns/2))
	for _, hit := range f.Hits {
		path := Pad(Printable(hit.Path), paths)
		if Cells(path) > paths {
			path += "\n" + Pad("", paths)
		}
		left := max(minDescription, columns-paths-len(gap))
		fmt.Fprintf(w, "%s%s%s\n", path, gap, Shorten(hit.Description, left))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if rest := f.Total - len(f.Hits); rest > 0 {
		fmt.Fprintf(stderr, "%d more; --limit 0 prints all\n", rest)
	}
	if f.Suggestion != "" {
		fmt.Fprintf(stderr, "did you mean: %s\n", Printable(f.Suggestion))
	}
	return nil
}

// PrintEvaluation prints a table of the scores, and the questions without good answers.
func PrintEvaluation(out io.Writer, e *search.Evaluation) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%-18s%6s%6s%6s%6s\n", fmt.Sprintf("%d questions", e.Questions), "first", "in 5", "in 20",
		"MRR")
	row := func(name string, s *search.Scores) {
		fmt.Fprintf(w, "%-18s%6d%6d%6d%6.2f\n", name, s.At1, s.At5, s.At20, s.MRR)
	}
	row("search_skills", &e.Search)
	row("plain BM25", &e.Plain)
	for _, a := range e.Answers {
		if a.Rank > 5 || a.Rank == 0 {
			rank := "not found"
			if a.Rank > 0 {
				rank = fmt.Sprintf("place %d", a.Rank)
			}
			fmt.Fprintf(w, "%s: %s (%s)\n", rank, Printable(a.Query), Printable(a.Want[0]))
		}
	}
	return w.Flush()
}
