package session

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills/policy"
)

// A call that asks for it is told what it left in the record: one row, the decision and what the policy
// had to say, exactly as recorded, and to clients elsewhere without host paths.
func TestRecorder(t *testing.T) {
	for _, remote := range []bool{false, true} {
		b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Mode: policy.Observe, Release: policy.ReleaseOpaque},
			allow: []string{"demo:scripts/ok.sh", "demo:scripts/x.rb"}})
		for _, test := range []struct {
			name string
			do   func(*Session, Call) error
			file string // of the record
			want string // status, or code of the error
			kind string // decision; empty for none
			says int    // policy events
		}{
			{"load", func(s *Session, c Call) error {
				_, err := s.Activate(t.Context(), ActivateRequest{Call: c, Skill: "demo"})
				return err
			}, provenance.ActivationsFile, `"source":"model-tool"`, "allowed", 0},
			{"load again", func(s *Session, c Call) error {
				_, err := s.Activate(t.Context(), ActivateRequest{Call: c, Skill: "demo"})
				return err
			}, "", "", "allowed", 0},
			{"load nothing", func(s *Session, c Call) error {
				s.Activate(t.Context(), ActivateRequest{Call: c, Skill: "none"})
				return nil
			}, "", "", "", 0},
			{"read", func(s *Session, c Call) error {
				_, err := s.ReadResource(t.Context(), ReadRequest{Call: c, Skill: "demo", Path: "notes.md", MaxBytes: 3})
				return err
			}, provenance.ResourceReadsFile, `"status":"read"`, "allowed", 0},
			{"read nothing", func(s *Session, c Call) error {
				s.ReadResource(t.Context(), ReadRequest{Call: c, Skill: "demo", Path: "none", MaxBytes: 3})
				return nil
			}, provenance.ResourceReadsFile, `"code":"resource_not_indexed"`, "allowed", 0},
			{"run", func(s *Session, c Call) error {
				_, err := s.RunScript(t.Context(), RunRequest{Call: c, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
				return err
			}, provenance.ScriptExecutionsFile, `"status":"executed"`, "allowed", 2},
			{"run, warned", func(s *Session, c Call) error {
				c.Slot = &policy.PromptSlot{Role: policy.Context, Raw: json.RawMessage(strings.Replace(slotText, "direct-command", "context", 1))}
				_, err := s.RunScript(t.Context(), RunRequest{Call: c, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
				return err
			}, provenance.ScriptExecutionsFile, `"status":"executed"`, "warned", 3},
			{"run, denied", func(s *Session, c Call) error {
				s.RunScript(t.Context(), RunRequest{Call: c, Skill: "demo", Path: "scripts/none.sh", Timeout: time.Minute})
				return nil
			}, "", "", "denied", 1},
		} {
			_, call := b.call("run_skill_script")
			ses := b.Current()
			call.Records = &Recorder{}
			if err := test.do(ses, call); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			records, err := call.Records.Records(remote)
			if err != nil || records == nil {
				t.Fatalf("%s: %+v, %v", test.name, records, err)
			}
			text := string(encode(records))
			conforms(t, "records", []byte(text))
			var decision struct{ Decision string }
			json.Unmarshal(records.Decision, &decision)
			if records.File != test.file || !strings.Contains(string(records.Record), test.want) || decision.Decision != test.kind || len(records.PolicyEvents) != test.says || records.RunID != ses.ID() {
				t.Errorf("%s: %s", test.name, text)
			}
			if remote == strings.Contains(text, b.root) && test.file != "" && !strings.Contains(text, `"status":"error"`) {
				t.Errorf("%s, remote %v: %s", test.name, remote, text)
			}
			if test.file == provenance.ScriptExecutionsFile && records.Invocation == nil {
				t.Errorf("%s has no context: %s", test.name, text)
			}
		}
	}
}

// The digests of output that is withheld are not told with the records either.
func TestRecorderSeals(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}, workspace: "ro"})
	b.load("demo")
	ses, call := b.call("run_skill_script")
	call.Records = &Recorder{}
	result, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
	if err != nil || result.Stdout.Withheld == nil {
		t.Fatalf("run = %+v, %v", result, err)
	}
	records, err := call.Records.Records(false)
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, "records", encode(records))
	var row cfharness.ScriptExecution
	if err := json.Unmarshal(records.Record, &row); err != nil || row.Skillsd.Stdout.Digest != "" || row.Skillsd.TreeDigest == "" {
		t.Errorf("record = %s, %v", records.Record, err)
	}
}

// Who does not ask pays nothing, and who is denied the record is told nothing.
func TestNoRecords(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	if records, err := (&Recorder{}).Records(true); records != nil || err != nil {
		t.Errorf("Records = %+v, %v", records, err)
	}
	b.records.broken.Store(true)
	ses, call := b.call("load_skill")
	call.Records = &Recorder{}
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"}); code(err) != "provenance_unavailable" {
		t.Fatal(err)
	}
	if records, err := call.Records.Records(false); records != nil || err != nil {
		t.Errorf("Records of what is not recorded = %+v, %v", records, err)
	}
}

// A caller's run id names the session when it can and nobody has it.
func TestRunID(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	named := func(id string, from Call) *Session {
		t.Helper()
		from.Method, from.RunID, from.Opens = "load_skill", id, true
		ses, err := b.Open(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		return ses
	}
	first := named("run.A-1_x", Call{Principal: local})
	if first.ID() != "run.A-1_x" {
		t.Fatalf("id = %s", first.ID())
	}
	loaded, err := first.Activate(t.Context(), ActivateRequest{Call: Call{Method: "load_skill", Principal: local}, Skill: "demo"})
	if err != nil || !strings.HasPrefix(loaded.Output.OutputID, "run.A-1_x:load_skill:") {
		t.Fatalf("output id %v, %v", loaded, err)
	}
	if !strings.Contains(b.artifact(provenance.ActivationsFile), `"runId": "run.A-1_x"`) {
		t.Error("rows do not have the run id")
	}
	if again := named("other", Call{Principal: local}); again != first {
		t.Errorf("a session under way got the id %s", again.ID())
	}
	// Others cannot have it, nor what no directory can be called, nor what means another session.
	far := Call{Principal: policy.Principal{Name: "bob", Evidence: true}, Remote: true}
	for _, id := range []string{"run.A-1_x", "RUN.a-1_X", "latest", "Latest", "", ".", "..", "../x", "a/b", "a b", strings.Repeat("x", 129), "ü"} {
		if ses := named(id, far); !strings.HasPrefix(ses.ID(), "ses_") {
			t.Errorf("%q became the id %q", id, ses.ID())
		}
	}
	// Nor one that another process left a record of.
	old := &provenance.Event{Session: "earlier", Kind: provenance.KindSessionStarted, Principal: "x", Detail: "d"}
	if err := b.records.Store.(*filestore.Store).Append(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if ses := named("earlier", far); !strings.HasPrefix(ses.ID(), "ses_") {
		t.Errorf("the id of an earlier session was given to another: %s", ses.ID())
	}
	var group sync.WaitGroup
	ids := make(chan string, 8)
	for range cap(ids) {
		group.Go(func() { ids <- named("one", far).ID() })
	}
	group.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		if seen[id] {
			t.Errorf("two sessions are called %s", id)
		}
		seen[id] = true
	}
	if !seen["one"] {
		t.Error("nobody got the free id")
	}
}

// A digest of inputs must not confirm a guess of a secret that stands in them.
func TestInvocationHidesSecrets(t *testing.T) {
	const secret = "a-secret-of-some-length"
	b := newBench(t, benchOptions{policy: direct})
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.setPolicy(policy.New(policy.Config{Role: policy.DirectCommand, Allowlist: allowed, Release: policy.ReleaseObserved, Tools: []string{"load_skill", "run_skill_script"}}))
	b.rules.Load().Secret = func(string) (string, error) { return secret, nil }
	b.load("demo")
	ses, call := b.call("run_skill_script")
	call.Records = &Recorder{}
	if _, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: []string{secret}, Stdin: []byte(secret), Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	records, err := call.Records.Records(false)
	if err != nil {
		t.Fatal(err)
	}
	text := string(records.Invocation)
	for _, guess := range []string{secret, string(cfharness.SummarizeText([]byte(secret)).Digest), string(cfharness.SummarizeSequence([]string{secret}).Digest)} {
		if strings.Contains(text, guess) {
			t.Errorf("%s is in %s", guess, text)
		}
	}
	if !strings.Contains(text, `"stdin":`) || !strings.Contains(text, `"TOKEN"`) {
		t.Errorf("context = %s", text)
	}
}
