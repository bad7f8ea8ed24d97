package storetest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

func testSessions(t *testing.T, st provenance.Store) {
	for _, err := range st.Sessions(t.Context(), time.Time{}) {
		t.Errorf("Sessions of an empty store gave %v", err)
	}
	for _, id := range []string{"a", "b", "c"} {
		Append(t, st, id, provenance.KindSessionStarted, provenance.KindSkillActivated)
	}
	Append(t, st, "b", provenance.KindSessionEnded)
	Append(t, st, "a", provenance.KindResourceRead)
	var ids []string
	for s, err := range st.Sessions(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatalf("Sessions = %v", err)
		}
		ids = append(ids, s.ID)
		want := provenance.StateOpen
		if s.ID == "b" {
			want = provenance.StateEnded
		}
		if s.State != want || s.Counts.Activations != 1 || s.Principal != "local" {
			t.Errorf("Sessions gave %+v, want state %s, 1 activation", s, want)
		}
	}
	if len(ids) != 3 {
		t.Errorf("Sessions gave %q, want each of 3 once", ids)
	}
	for s := range st.Sessions(t.Context(), time.Now().Add(time.Hour)) {
		t.Errorf("Sessions since an hour from now gave %s", s.ID)
	}
	for range st.Sessions(t.Context(), time.Time{}) {
		break
	}
}

func testRecall(t *testing.T, st provenance.Store) {
	start := Event("s", provenance.KindSessionStarted, 1)
	start.Row = encode(provenance.SessionInfo{ClientSession: "theirs", Profile: "browser"})
	events := []*provenance.Event{start}
	for i, path := range []string{"pdf", "xlsx", "pdf"} {
		e := Event("s", provenance.KindSkillActivated, i+2)
		e.Skill = path
		e.Row = encode(cfharness.Activation{Name: path, Source: cfharness.SourceModel,
			Skillsd: &cfharness.ActivationExtension{
				Path: path, TreeDigest: digest.FromString(string(rune('a' + i))),
				HandleDigest: digest.FromString("handle"),
			}})
		events = append(events, e)
	}
	events = append(events, Event("s", provenance.KindResourceRead, 9))
	for _, e := range events {
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := cfharness.Recall(t.Context(), st, "s")
	if err != nil {
		t.Fatal(err)
	}
	if got.Principal != "local" || got.ClientSession != "theirs" || got.Profile != "browser" {
		t.Errorf("Recall = %+v", got)
	}
	if len(got.Activations) != 2 || got.Activations[0].Skillsd.TreeDigest != digest.FromString("c") ||
		got.Activations[1].Name != "xlsx" {
		t.Errorf("Recall gave activations %+v, want the last of each skill", got.Activations)
	}
	if _, err := cfharness.Recall(t.Context(), st, "other"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Recall of an unknown session = %v, want ErrNotFound", err)
	}
}

func testKeep(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted)
	text := []byte("instructions\n")
	for _, id := range []string{"s", "s", "other"} {
		d, err := st.Keep(t.Context(), id, text)
		if err != nil || d != digest.FromBytes(text) {
			t.Fatalf("Keep = %s, %v", d, err)
		}
		if got := Read(t, st, id, provenance.ShownName(d)); !bytes.Equal(got, text) {
			t.Errorf("kept %q, want %q", got, text)
		}
	}
	if _, err := st.Keep(t.Context(), "../s", text); !errors.Is(err, provenance.ErrInvalid) {
		t.Errorf("Keep in session ../s = %v, want ErrInvalid", err)
	}
	if _, err := st.Put(t.Context(), "s", provenance.ShownName(digest.FromBytes(text)), nil); !errors.Is(err,
		provenance.ErrInvalid) {
		t.Errorf("Put in the place of what was shown = %v, want ErrInvalid", err)
	}
	if _, err := st.Artifact(t.Context(), "s", provenance.ShownDir+"/../events.jsonl"); err == nil {
		t.Error("Artifact left the directory of what was shown")
	}
}

// Invocation contexts are a list of their own next to the decisions.
func testInvocations(t *testing.T, st provenance.Store) {
	var sent []*provenance.Event
	calls := 0
	for i, k := range []provenance.Kind{provenance.KindSessionStarted, provenance.KindScriptRequested,
		provenance.KindResourceRead, provenance.KindScriptRequested, provenance.KindPolicyDenied} {
		e := Event("s", k, i)
		if k == provenance.KindScriptRequested {
			e.Invocation = encode(map[string]any{"sequence": i, "text": "]\n  ["})
		}
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, e)
		if calls += len(e.Decision) + len(e.Invocation); calls == 0 {
			continue
		}
		want := View(t, provenance.PolicyTraceFile, sent)
		if got := Read(t, st, "s", provenance.PolicyTraceFile); !bytes.Equal(got, want) {
			t.Errorf("after %d events policy-trace.json is\n%s\nwant\n%s", i+1, got, want)
		}
	}
}
