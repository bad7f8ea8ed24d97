package session

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// What a user was asked stands in the record, also when they declined; declared secrets do not.
func TestQuestionIsRecorded(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	b := newBench(t, benchOptions{})
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.setPolicy(policy.New(policy.Config{Allowlist: allowed, Release: policy.ReleaseObserved, Tools: []string{"load_skill", "run_skill_script"}}))
	b.rules.Load().Secret = func(string) (string, error) { return secret, nil }
	b.load("demo")
	b.Current().background.Wait()
	run := func(answer *Answer) error {
		ses, call := b.call("run_skill_script")
		_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: []string{"--token=" + secret, "all"}, Stdin: []byte("x " + secret), Cwd: "/tmp/" + secret,
			Timeout: time.Minute, CanAsk: true, Answer: answer})
		return err
	}
	err = run(nil)
	q, ok := errors.AsType[*Question](err)
	if !ok {
		t.Fatalf("not asked: %v", err)
	}
	if b.Secrets().Contains([]byte(q.Message)) || strings.Contains(q.Message, digest.FromString("x "+secret).Encoded()) || strings.Count(q.Message, "[secret TOKEN]") != 3 {
		t.Errorf("the question shows the secret: %s", q.Message)
	}
	if err := run(&Answer{State: q.State, Action: "decline", Chosen: true}); code(err) != string(policy.CodeApprovalDeclined) {
		t.Fatalf("declined: %v", err)
	}
	var asked, answered cfharness.ScriptRequest
	index := b.Current().activated("demo").index
	calls := map[string]int{}
	for e, err := range b.records.Events(t.Context(), provenance.Query{Session: b.Current().ID()}) {
		if err != nil {
			t.Fatal(err)
		}
		if text := string(encode(e)); strings.Contains(text, secret) || strings.Contains(text, digest.FromString("x "+secret).Encoded()) {
			t.Errorf("the secret stands in %s", text)
		}
		if e.Call != "" {
			calls[e.Call]++
		}
		switch e.Kind {
		case provenance.KindApprovalAsked:
			err = json.Unmarshal(e.Row, &asked)
		case provenance.KindApprovalAnswered:
			err = json.Unmarshal(e.Row, &answered)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(asked.Args) != 2 || !strings.HasPrefix(asked.Args[0], "--token=") || asked.Args[1] != "all" {
		t.Errorf("asked about %q", asked.Args)
	}
	if asked.Target != "sandbox" || asked.Digest != index.Resource("scripts/ok.sh").Digest || asked.Stdin == nil || asked.OutputID == "" {
		t.Errorf("asked: %+v", asked)
	}
	if answered.OutputID == "" || answered.OutputID == asked.OutputID || slices.Contains(answered.Args, "all") {
		t.Errorf("answered: %+v", answered)
	}
	// Requested, asked, requested, answered, denied.
	if want := (map[string]int{strings.TrimPrefix(asked.OutputID, b.Current().ID()+":"): 5}); !maps.Equal(calls, want) {
		t.Errorf("events of calls: %v, want %v", calls, want)
	}
}
