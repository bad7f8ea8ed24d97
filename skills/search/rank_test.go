package search_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/search"
)

// TestGolden is the judge of the ranking: what stands first for a query a reader would ask.
func TestGolden(t *testing.T) {
	x := search.New(inventedSkills())
	tests := []struct{ query, want string }{
		{"pdf-tables", "pdf-tables"},
		{"PDF Tables", "pdf-tables"},
		{"extract a table from a pdf", "pdf-tables"},
		{"fill in a form", "pdf-forms"},
		{"acme/billing/refunds", "acme/billing/refunds"},
		{"billing refund", "acme/billing/refunds"},
		{"dunning", "acme/billing/invoices"},
		{"give the customer money back", "acme/billing/refunds"},
		{"git commit message", "conventional-commits"},
		{"bisect", "git-bisect"},
		{"github", "github-actions"},
		{"ci", "github-actions"},
		{"codereview", "code-review"},
		{"code_review", "code-review"},
		{"codeReview", "code-review"},
		{"feedback on my pull request", "code-review"},
		{"C++", "cpp-modernize"},
		{"c#", "csharp-linq"},
		{"java", "java-spring"},
		{"javascript", "javascript-bundle"},
		{"kube", "kubernetes-debug"},
		{"k8s pod crash", "kubernetes-debug"},
		{"why does my pod not start?", "kubernetes-debug"},
		{"helm", "helm-charts"},
		{"chart for a data set", "data-visualization"},
		{"visualize data", "data-visualization"},
		{"excel", "excel-models"},
		{"xlsx", "excel-models"},
		{"spreadsheets", "excel-models"},
		{"power point", "pptx-slides"},
		{"presentation", "pptx-slides"},
		{"word document", "docx-edit"},
		{"write unit tests in python", "python-testing"},
		{"pytest", "python-testing"},
		{"tests that fail sometimes", "flaky-tests"},
		{"golang performance", "go-profiling"},
		{"slow sql query", "sql-tuning"},
		{"migrate the database", "database-migration"},
		{"schema change without downtime", "database-migration"},
		{"oauth", "oauth2-login"},
		{"OAuth2", "oauth2-login"},
		{"openid", "oauth2-login"},
		{"vulnerabilities", "security-audit"},
		{"leaked secret", "security-audit"},
		{"outage", "incident-report"},
		{"postmortem of an incident", "incident-report"},
		{"infrastructure", "terraform-modules"},
		{"dockerfile", "docker-image"},
		{"subtitle", "video-subtitles"},
		{"transcribe a recording", "audio-transcription"},
		{"minutes of a meeting", "meeting-notes"},
		{"write a blog article", "blog-post"},
		{"translate texts", "localization"},
		{"architecture decision records", "adr-writer"},
		{"flights", "travel-booking"},
		{"latex", "latex-paper"},
		{"regular expression", "regex-helper"},
		{"логотип", "дизайн-логотипа"},
		{"ДИЗАЙН", "дизайн-логотипа"},
		{"GRÖSSEN", "größen-umrechnung"},
		{"strasse", "größen-umrechnung"},
		{"分析", "数据分析"},
		{"报告", "数据分析"},
		{"翻訳", "文書翻訳"},
		{"語", "文書翻訳"},
		{"회의", "회의록"},
		{"록", "회의록"},
		{"ｐｄｆ ｔａｂｌｅｓ", "pdf-tables"},
	}
	for _, tt := range tests {
		result, err := x.Search(tt.query, search.Page{})
		if err != nil || len(result.Hits) == 0 || result.Hits[0].Skill.Path != tt.want {
			t.Errorf("Search(%q) = %v, %v, want %s first", tt.query, summary(result), err, tt.want)
		}
	}
}

// summary is what a failing test shows of a result.
func summary(result search.Result) []string {
	var lines []string
	for _, hit := range result.Hits[:min(len(result.Hits), 4)] {
		lines = append(lines, fmt.Sprintf("%s %.2f", hit.Skill.Path, hit.Score))
	}
	return lines
}

func TestSuggestion(t *testing.T) {
	x := search.New(inventedSkills())
	tests := []struct{ query, want string }{
		{"pfd", "pdf"},
		{"kuberntes", "kubernetes"},
		{"kuberntes pod", "kubernetes pod"},
		{"Terafform moduls", "terraform moduls"},
		{"логотп", "логотип"},
		{"pdf", ""},
		{"the", ""},
		{"zzzzzzzzzz", ""},
		{"xubernetis", ""},
		{"kubenretes", "kubernetes"},
		{"xq", ""},
		{"谢谢", ""},
	}
	for _, tt := range tests {
		result, err := x.Search(tt.query, search.Page{})
		if err != nil || result.Suggestion != tt.want {
			t.Errorf("Search(%q) suggests %q, %v, want %q", tt.query, result.Suggestion, err, tt.want)
		}
		if tt.want == "" {
			continue
		}
		if again, err := x.Search(result.Suggestion, search.Page{}); err != nil || again.Total == 0 {
			t.Errorf("Search(%q) suggests %q, which finds %d, %v", tt.query, result.Suggestion, again.Total,
				err)
		}
	}
	if result, err := search.New(nil).Search("pdf", search.Page{}); err != nil || result.Total != 0 ||
		result.Suggestion != "" {
		t.Errorf("Search of nothing = %+v, %v", result, err)
	}
}

// TestStuffing makes sure that a skill does not win by repeating words, nor take memory by it.
func TestStuffing(t *testing.T) {
	all := append(inventedSkills(), skill("stuffed",
		strings.Repeat("pdf tables extract kubernetes excel ", 20_000)))
	for _, query := range []string{"pdf tables", "kubernetes", "excel"} {
		result, err := search.New(all).Search(query, search.Page{})
		if err != nil || result.Hits[0].Skill.Path == "stuffed" {
			t.Errorf("Search(%q) = %v, %v: the stuffed skill wins", query, summary(result), err)
		}
	}
	var different strings.Builder
	for i := range 1_100 {
		fmt.Fprintf(&different, "%03x ", i)
	}
	for name, text := range map[string]string{"4 KiB": strings.Repeat("word ", 2_000),
		"1,024 words": different.String()[:4_080]} {
		late := skill("late", text+"needle")
		late.Frontmatter.WhenToUse = "needles"
		result, err := search.New([]*skills.Skill{late}).Search("needle", search.Page{})
		if want := map[string]int{"4 KiB": 1, "1,024 words": 0}[name]; err != nil || result.Total != want {
			t.Errorf("a word after %s of the description: %d hits, %v, want %d", name, result.Total, err,
				want)
		}
	}
}

// TestOrderOfMatches holds which of two ways to match a query is the better one.
func TestOrderOfMatches(t *testing.T) {
	long := strings.Repeat("something quite different that fills a description ", 3)
	tests := []struct{ name, query, better, worse string }{
		{"word before beginning", "commit", "Commit it.", "Committees meet."},
		{"word form before beginning", "parse", "Parsing it.", "Parsec it."},
		{"joined before apart", "web socket", "Websocket servers.", "Web servers."},
		{"whole query before a part of it", "convert invoices",
			"Convert " + strings.Repeat("filler ", 40) + "invoices.",
			"Convert, convert, convert, convert, convert."},
		{"the word itself says how rare it is", "des zebra", "Des.", "Striped zebra animals of the plains."},
		{"rare before frequent", "describe zebra", "A zebra.", "Describe it."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := []*skills.Skill{skill("a", tt.worse), skill("b", tt.better), skill("c", "Describe this."),
				skill("d", "Describe "+long)}
			result, err := search.New(all).Search(tt.query, search.Page{})
			if err != nil || len(result.Hits) < 2 || result.Hits[0].Skill.Path != "b" ||
				result.Hits[1].Skill.Path != "a" {
				t.Errorf("Search(%q) = %v, %v, want %q before %q", tt.query, summary(result), err, tt.better,
					tt.worse)
			}
		})
	}
	if result, err := search.New([]*skills.Skill{skill("a", "Deploy it.")}).Search("deployment",
		search.Page{}); err != nil || result.Total != 1 {
		t.Errorf("Search(deployment) does not find what deploys: %v", err)
	}
}

// TestExactName makes sure that a skill called what is asked for stands first.
func TestExactName(t *testing.T) {
	all := []*skills.Skill{
		skill("data", strings.Repeat("Sorts, filters and stores records of all kinds for later. ", 4)),
		skill("data-data", "Data, data, data."), skill("tools/data-model", "Data of a data model for data."),
		skill("data--my_records", "Something else."),
		skill("data--data--my_records", "Data, my data--my_records."),
	}
	all[2].Frontmatter.Name = "the model"
	for query, want := range map[string]string{"data": "data", "DATA": "data", "data-data": "data-data",
		"tools/data-model": "tools/data-model", "Data Model": "tools/data-model",
		" data--my_records": "data--my_records"} {
		if result, err := search.New(all).Search(query, search.Page{}); err != nil ||
			result.Hits[0].Skill.Path != want {
			t.Errorf("Search(%q) = %v, %v, want %s first", query, summary(result), err, want)
		}
	}
}
