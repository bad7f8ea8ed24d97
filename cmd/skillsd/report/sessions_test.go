package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
	"github.com/skillsd/skillsd/skills/policy"
)

func TestSessionLines(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 4, 0, 0, time.Local)
	sessions := []SessionRow{
		{Session: provenance.Session{ID: "ses_019aa6f0-7c00-7000-8000-000000000000",
			CreatedAt: provenance.Stamp(now), Principal: "local", Client: "claude-code 2.0.14",
			State: provenance.StateDamaged}},
		{Skills: []string{"csv-report", "text-stats", "c"},
			Session: provenance.Session{ID: "ses_019aa6f0-7c00-7000-8000-00000000000f",
				CreatedAt: provenance.Stamp(now.AddDate(-1, 0, 0)), Principal: strings.Repeat("p", 60),
				Client: "evil\x1b[2J\nx 1", State: provenance.StateOpen,
				Counts: provenance.Counts{Activations: 1234, Runs: 123, Denials: 1234}}},
		{Session: provenance.Session{ID: "run-7", CreatedAt: provenance.Stamp(now), Principal: "ops",
			State: provenance.StateEnded}},
	}
	long := sessionLines(sessions, 0, "local", now)
	for i, want := range []string{
		"START        SKILLS                     RUN  DENY  STATE    USER",
		sessions[0].ID + "  11-21 15:04                             0    0     damaged  local ",
		sessions[1].ID + "  2025-11-21   csv-report, text-stats, c  123  1234  open     " +
			sessions[1].Principal,
	} {
		if !strings.Contains(long[i], want) {
			t.Errorf("line %q, want %q in it", long[i], want)
		}
	}
	if !strings.HasSuffix(long[1], "  claude-code 2.0.14") {
		t.Errorf("the client is cut in %q", long[1])
	}
	forged := sessions[2]
	forged.Skills, forged.State = []string{"a\x1b[2J", "b\nc"}, "open\u202e"
	for _, line := range sessionLines([]SessionRow{forged}, 0, "local", now) {
		if strings.ContainsAny(line, "\x1b\n\u202e") {
			t.Errorf("a record reaches the terminal as it is: %q", line)
		}
	}
	same := sessionLines(sessions[1:], 80, "local", now)
	for _, line := range append(same, sessionLines([]SessionRow{sessions[0], sessions[2]}, 80, "local",
		now)...) {
		if Cells(line) > 80 || strings.ContainsAny(line, "\x1b\n") {
			t.Errorf("%d columns: %q", Cells(line), line)
		}
	}
	if !strings.Contains(same[1], "  csv-r…  123  ") {
		t.Errorf("the skills are not cut to their column in %q", same[1])
	}
	alone := sessionLines(sessions[:1], 80, "local", now)
	if strings.Contains(alone[0], "USER") || !strings.HasSuffix(alone[1], "  claude-code 2.0.14") || Cells(alone[1]) > 80 {
		t.Errorf("of this machine's user alone: %q", alone)
	}
	sessions[0].Skills = []string{"a-skill-with-a-name-that-is-longer-than-half-a-line"}
	alone = sessionLines(sessions[:1], 80, "local", now)
	if !strings.Contains(alone[1], "  a-skill") || Cells(alone[1]) > 80 {
		t.Errorf("of this machine's user alone: %q", alone)
	}
	if !strings.HasPrefix(same[1], "ses_019aa6f0-7c00  ") {
		t.Errorf("the id is not cut in %q", same[1])
	}
	if ids := shortIDs([]string{sessions[0].ID, sessions[1].ID, sessions[2].ID}); ids[0] == ids[1] ||
		ids[2] != "run-7" {
		t.Errorf("ids %q do not tell sessions apart", ids)
	}
}

// A timeline has no code of a refusal, and no kind of evidence, in place of words.
func TestTimelineWords(t *testing.T) {
	for _, code := range policy.Codes() {
		if text := story.Words(string(code)); text == strings.ReplaceAll(string(code), "_", " ") || len(text) > 36 {
			t.Errorf("%s is %q", code, text)
		}
	}
	for _, evidence := range []policy.Evidence{
		policy.EvidenceSlot, policy.EvidenceApproval, policy.EvidenceOperator, policy.EvidenceEntry,
	} {
		if story.Permission(string(evidence)) == string(evidence) {
			t.Errorf("%s has no words", evidence)
		}
	}
}

// What was asked of a user and what ran can be read in the timeline.
func TestTimelineDetails(t *testing.T) {
	encode := func(v any) json.RawMessage {
		raw, err := provenance.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	sum := digest.FromString("script")
	decision := encode(cfharness.PolicyDecision{Skillsd: &cfharness.DecisionExtension{Evidence: "approval"}})
	head := detailIndent + sum.String()[:len("sha256:")+12] + ", "
	for _, tc := range []struct {
		name string
		e    provenance.Event
		want []string
	}{
		{"asked", provenance.Event{Kind: provenance.KindApprovalAsked,
			Row: encode(cfharness.ScriptRequest{OutputID: "ses_a:run_skill_script:3",
				Args: []string{"a b", "\n\x1b"}, CWD: "d", Target: "host", Digest: sum})},
			[]string{detailIndent + `"a b" "\n\x1b" in "d"`, head + "host, run_skill_script:3"}},
		{"ran", provenance.Event{Kind: provenance.KindScriptExecuted, Decision: decision,
			Row: encode(cfharness.ScriptExecution{OutputID: "ses_a:run_skill_script:3", Args: []string{"x"},
				FileFacts: cfharness.FileFacts{ObservedDigest: sum}})},
			[]string{detailIndent + `"x"`, head + "the user approved it, run_skill_script:3"}},
		{"without arguments", provenance.Event{Kind: provenance.KindScriptExecuted,
			Row: encode(cfharness.ScriptExecution{OutputID: "other:1"})}, []string{detailIndent + "other:1"}},
		{"no script", provenance.Event{Kind: provenance.KindResourceRead,
			Row: encode(cfharness.ResourceRead{OutputID: "x"})}, nil},
		{"no row", provenance.Event{Kind: provenance.KindApprovalAsked}, nil},
	} {
		tc.e.Session = "ses_a"
		if got := eventDetails(story.StepOf(&tc.e), 0); strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	long := provenance.Event{Kind: provenance.KindScriptExecuted,
		Row: encode(cfharness.ScriptExecution{Args: []string{strings.Repeat("x", 500)}})}
	if got := eventDetails(story.StepOf(&long), 0); len(got) != 1 || Cells(got[0]) > 80 {
		t.Errorf("%q", got)
	}
}
