package search_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/search"
)

// sentences are questions as users ask them, in words that few descriptions have.
const sentences = `
# a comment, and an empty line

the customer wants his money back for the broken lamp	acme/billing/refunds
can you look at my patch before I merge it	code-review
this test is green on my machine and red on the server every third time	flaky-tests
our page takes ages because the browser loads half a megabyte of code	javascript-bundle
which commit broke the build	git-bisect
the report is slow, I think a database index is missing	sql-tuning
write down who promised what in the call	meeting-notes
we decided to use a queue, note down why	adr-writer
what should our users know about the new version	release-notes	changelog
put the numbers of this spreadsheet into a nice picture	data-visualization
let people log in with their google account	oauth2-login
I have a scan of a bank statement and need the figures in a table	pdf-tables
the pod keeps restarting	kubernetes-debug
my mailbox is full, what is urgent	email-triage
how many requests at once can our service take	load-testing
a new colleague starts on Monday	acme/onboarding
tell me what the other side changed in this contract	acme/legal/contract-review
get me to Lisbon and back with a hotel near the beach	travel-booking
somebody committed a password, what else leaks	security-audit	password-policy
shrink these photos for the web	image-resize
`

// TestEvaluate holds how well search answers sentences and keywords: it may get better.
func TestEvaluate(t *testing.T) {
	x := search.New(inventedSkills())
	questions, err := search.ParseQuestions(sentences)
	if err != nil || len(questions) != 20 {
		t.Fatalf("%d questions, %v", len(questions), err)
	}
	e, err := x.Evaluate(questions)
	if err != nil {
		t.Fatal(err)
	}
	if e.Search.At1 < 11 || e.Search.At5 < 15 || e.Search.MRR < e.Plain.MRR || e.Search.At5 < e.Plain.At5 {
		t.Errorf("%+v, plain BM25 %+v", e.Search, e.Plain)
		for _, a := range e.Answers {
			t.Logf("%d (%d) %s", a.Rank, a.Plain, a.Query)
		}
	}
}

func TestParseQuestions(t *testing.T) {
	got, err := search.ParseQuestions("\ufeffa b\tx/y\t Name of it \r\n\n# c\td\n")
	if want := []search.Question{{Query: "a b", Want: []string{"x/y", "Name of it"}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"a b", "ok\tx\na\t \t"} {
		if got, err := search.ParseQuestions(text); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("ParseQuestions(%q) = %v, %v", text, got, err)
		}
	}
	for _, q := range []search.Question{{Query: "a", Want: []string{"gone"}}, {Query: strings.Repeat("a", search.MaxQuery+1), Want: []string{"a"}}} {
		if e, err := search.New([]*skills.Skill{skill("a", "b")}).Evaluate([]search.Question{q}); err == nil {
			t.Errorf("Evaluate(%.20q) = %+v", q.Query, e)
		}
	}
}

// The instructions lift a skill whose fields lack the words of a sentence, below the first by the fields, and
// change nothing where the fields have all words.
func TestInstructions(t *testing.T) {
	all := inventedSkills()
	for i := range 300 {
		all = append(all, skill(fmt.Sprintf("other-%d", i), "Looks after a gadget of some sort."))
		all[len(all)-1].Lead = skills.NewLead([]byte(strings.Repeat("pad ", 130) + "the customer and their lamp"))
	}
	long := skill("warranty", "Handles goods.")
	long.Lead = skills.NewLead([]byte(strings.Repeat("filler ", 80) +
		"The lamp is broken and the customer wants his money back."))
	all = append(all, long)
	x := search.New(all)
	place := func(query string) int {
		result, err := x.Search(query, search.Page{Size: search.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		return slices.IndexFunc(result.Hits, func(h search.Hit) bool { return h.Skill == long })
	}
	if got := place("my broken lamp, I want money"); got < 0 || got > 4 {
		t.Errorf("place %d", got)
	}
	for _, query := range []string{"pull request", "terraform modules", "pdf"} {
		plain, err := search.New(inventedSkills()).Search(query, search.Page{})
		if err != nil {
			t.Fatal(err)
		}
		result, err := x.Search(query, search.Page{})
		if err != nil || len(plain.Hits) == 0 || result.Hits[0].Skill.Path != plain.Hits[0].Skill.Path {
			t.Errorf("%s: %v, want %v", query, summary(result), summary(plain))
		}
	}
	// Pages are parts of one order, without gaps or repetitions, also beyond the places that are fused.
	seen, page := map[string]bool{}, search.Page{Size: 37}
	for {
		result, err := x.Search("the customer wants a gadget for his lamp", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, hit := range result.Hits {
			if seen[hit.Skill.Path] {
				t.Errorf("%s is there twice", hit.Skill.Path)
			}
			seen[hit.Skill.Path] = true
		}
		if page.Cursor = result.Next; page.Cursor == "" {
			if len(seen) != result.Total || len(seen) < 300 {
				t.Errorf("%d hits of %d", len(seen), result.Total)
			}
			break
		}
	}
}

// TestSentence makes sure that words of the sentence, not of the wish, and beginnings of other words
// find nothing better than what is asked for.
func TestSentence(t *testing.T) {
	all := []*skills.Skill{skill("let-fate-decide", "Draws cards."), skill("backoffice", "Offers backoff and backups."),
		skill("sandwich", "Let me get you the thing."), skill("mailer", "Sends an app message."), skill("rates", "How to back out when a rate limit is hit."),
		skill("sheet", "A table."), skill("quiet", "Does nothing.")}
	all[6].Frontmatter.JSON = []byte(`{"triggers":["zoom oauth",{"phrase":"websockets"}]}`)
	all[5].Lead = skills.NewLead([]byte("# Sheet\n\nPivot numbers of a quarter."))
	for query, want := range map[string]string{"let me see how my app can get out of sending this thing": "mailer", "I hit the limit, how do I back off": "rates",
		"zoom oauth": "quiet", "connect by websockets": "quiet", "pivot": "sheet", "make a pivot of the quarter": "sheet"} {
		result, err := search.New(all).Search(query, search.Page{})
		if err != nil || len(result.Hits) == 0 || result.Hits[0].Skill.Path != want {
			t.Errorf("Search(%q) = %v, %v, want %s first", query, summary(result), err, want)
		}
	}
}
