package session

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// ended is a session of the process that loaded demo, ran a script and ended, and the server started
// again; change is made between.
func ended(t *testing.T, o benchOptions, change func(b *bench)) (b *bench, id, handle string) {
	t.Helper()
	b = newBench(t, o)
	handle = b.load("demo").Handle
	id = b.Current().ID()
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil && code(err) != string(policy.CodeDirectCommandRequired) {
		t.Fatal(err)
	}
	b.Current().background.Wait()
	if change != nil {
		change(b)
	}
	return b.restart(), id, handle
}

// A session that is resumed goes on where it ended: what it loaded is active, its handle is good, its
// numbers are not given out twice.
func TestResume(t *testing.T) {
	b, id, handle := ended(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}}, nil)
	before := len(events(t, b, id))
	if err := b.Resume(t.Context(), id, local, false); err != nil {
		t.Fatal(err)
	}
	ses := b.Current()
	if ses.ID() != id || ses.activated("demo") == nil || !ses.ownsSum(sha256.Sum256([]byte(handle))) || len(ses.approved) != 0 {
		t.Errorf("resumed as %s, active %v", ses.ID(), ses.active)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	all := events(t, b, id)
	if all[before].Kind != provenance.KindSessionResumed || len(all) < before+3 {
		t.Errorf("recorded %v", b.kinds(ses))
	}
	seen := map[string]bool{}
	for _, e := range all {
		if at := strings.Index(string(e.Row), `"outputId":"`); at >= 0 && e.Kind == provenance.KindScriptExecuted {
			id, _, _ := strings.Cut(string(e.Row)[at+12:], `"`)
			if seen[id] {
				t.Errorf("output %s was numbered twice", id)
			}
			seen[id] = true
		}
	}
}

func events(t testing.TB, b *bench, id string) (all []*provenance.Event) {
	t.Helper()
	for e, err := range b.records.Events(t.Context(), provenance.Query{Session: id}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// What differs is told file by file, and keeps the session from being resumed unless it is to be loaded
// anew.
func TestResumeDrift(t *testing.T) {
	write := func(name, content string) func(*bench) {
		return func(b *bench) {
			if err := os.WriteFile(filepath.Join(b.root, "demo", name), []byte(content), 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*bench)
		drift  string
	}{
		{"instructions", write("SKILL.md", "---\nname: demo\ndescription: For tests.\n---\nDo evil.\n"), "resume-skill-digest-drift: demo: SKILL.md"},
		{"a script", write("scripts/ok.sh", "#!/bin/sh\nrm -r .\n"), "resume-script-drift: demo: scripts/ok.sh"},
		{"a file", write("notes.md", "other\n"), "resume-resource-drift: demo: notes.md"},
		{"one more file", write("more.md", "more\n"), "resume-resource-drift: demo: more.md"},
		{"one file less", func(b *bench) { os.Remove(filepath.Join(b.root, "demo", "notes.md")) }, "resume-resource-drift: demo: notes.md"},
		{"the skill is gone", func(b *bench) { os.RemoveAll(filepath.Join(b.root, "demo")) }, "resume-skill-missing: demo"},
		{"the root is gone", func(b *bench) { os.Rename(b.root, b.root+".away") }, "resume-root-unavailable: demo"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, id, _ := ended(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}}, tt.change)
			err := b.Resume(t.Context(), id, local, false)
			var drifted *earlier.DriftedError
			if !errors.As(err, &drifted) || len(drifted.Drifts) != 1 || drifted.Drifts[0].String() != tt.drift {
				t.Fatalf("Resume: %v", err)
			}
			if b.Current() != nil {
				t.Error("the session goes on")
			}
			all := events(t, b, id)
			kinds := []provenance.Kind{all[len(all)-3].Kind, all[len(all)-2].Kind, all[len(all)-1].Kind}
			if !slices.Equal(kinds, []provenance.Kind{provenance.KindSessionResumed, provenance.KindDriftDetected, provenance.KindSessionEnded}) {
				t.Errorf("recorded %v", kinds)
			}
		})
	}
}

// With reload a changed skill is active as it is now, and its instructions are sent again.
func TestResumeReload(t *testing.T) {
	b, id, _ := ended(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}}, func(b *bench) {
		if err := os.WriteFile(filepath.Join(b.root, "demo", "notes.md"), []byte("other\n"), 0o644); err != nil {
			b.t.Fatal(err)
		}
	})
	if err := b.Resume(t.Context(), id, local, true); err != nil {
		t.Fatal(err)
	}
	if a := b.Current().activated("demo"); a == nil || a.skill != b.cfg.Registry.Snapshot().Skill("demo") {
		t.Errorf("active: %v", a)
	}
	if loaded := b.load("demo"); loaded.Sent {
		t.Error("the changed instructions were not sent")
	}
}

// The recorded mode holds unless the configured one is stricter; another's session is nobody's to resume.
func TestResumeMode(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	_, call := b.call("load_skill")
	call.Mode = policy.EnforceExplicit
	if _, err := b.Current().Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"}); err != nil {
		t.Fatal(err)
	}
	id := b.Current().ID()
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != string(policy.CodeDirectCommandRequired) {
		t.Errorf("the mode was not raised for the session: %v", err)
	}
	b = b.restart()
	if err := b.Resume(t.Context(), id, local, false); err != nil || b.Current().raise(b.Current().rules.Load(), 0) != policy.EnforceExplicit {
		t.Errorf("resumed in another mode: %v", err)
	}
	b = b.restart()
	if err := b.Resume(t.Context(), id, alice, false); !errors.Is(err, errNotLocal) {
		t.Errorf("another principal: %v", err)
	}
	if err := b.Resume(t.Context(), "ses_none", local, false); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("no such session: %v", err)
	}
}

// A decision that took a number and could not be recorded does not make a later number come twice.
func TestResumeNumbersDecisions(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	b.load("demo")
	id := b.Current().ID()
	b.Current().background.Wait()
	read := func() error {
		ses, call := b.call("read_skill_resource")
		_, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10})
		return err
	}
	b.records.broken.Store(true)
	if err := read(); code(err) != "provenance_unavailable" {
		t.Fatalf("read = %v", err)
	}
	b.records.broken.Store(false)
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	b = b.restart()
	if err := b.Resume(t.Context(), id, local, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range events(t, b, id) {
		for what, raw := range map[string][]byte{"decision": e.Decision, "invocation": e.Invocation} {
			var row struct {
				Sequence uint64 `json:"sequence"`
			}
			if json.Unmarshal(raw, &row) == nil && row.Sequence > 0 {
				if key := fmt.Sprint(what, " ", row.Sequence); seen[key] {
					t.Errorf("%s was numbered twice", key)
				} else {
					seen[key] = true
				}
			}
		}
	}
	if len(seen) != 3+2 {
		t.Errorf("numbered: %v", seen)
	}
}

// A session that was resumed with a changed skill, and is resumed once more, was not sent the
// instructions until the model asks for them.
func TestResumeAfterReload(t *testing.T) {
	b, id, _ := ended(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}}, func(b *bench) {
		if err := os.WriteFile(filepath.Join(b.root, "demo", "notes.md"), []byte("other\n"), 0o644); err != nil {
			b.t.Fatal(err)
		}
	})
	for i, known := range []bool{false, true} {
		if err := b.Resume(t.Context(), id, local, i == 0); err != nil {
			t.Fatal(err)
		}
		b = b.restart()
		if err := b.Resume(t.Context(), id, local, false); err != nil {
			t.Fatal(err)
		}
		if loaded := b.load("demo"); loaded.Sent != known {
			t.Errorf("resumed %d times: told to have been sent: %v", 2*i+2, loaded.Sent)
		}
		b = b.restart()
	}
}

// What is to be preloaded is active in a session that is resumed, and its record says so.
func TestResumePreloads(t *testing.T) {
	b, id, _ := ended(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}}, nil)
	if err := b.Start(t.Context(), []string{"demo", "narrow"}); err != nil {
		t.Fatal(err)
	}
	before := len(events(t, b, id))
	if err := b.Resume(t.Context(), id, local, false); err != nil {
		t.Fatal(err)
	}
	b.call("read_skill_resource")
	if b.Current().activated("narrow") == nil {
		t.Error("what is preloaded is not active")
	}
	b.Current().background.Wait()
	var preloaded []string
	for _, e := range events(t, b, id)[before:] {
		if e.Kind == provenance.KindSkillActivated {
			preloaded = append(preloaded, e.Skill+" "+e.Detail)
		}
	}
	if want := []string{"narrow " + string(cfharness.SourcePreload)}; !slices.Equal(preloaded, want) {
		t.Errorf("recorded %q, want %q", preloaded, want)
	}
	if loaded := b.load("narrow"); loaded.Sent {
		t.Error("instructions that were not sent are told to have been")
	}
}

// A script whose server was killed while it ran has an outcome in the record that is continued: that nobody
// knows it.
func TestResumeUnfinished(t *testing.T) {
	var output string
	b, id, _ := ended(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}}, func(b *bench) {
		ses, call := b.call("run_skill_script")
		r := ses.newRun(RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"})
		if err := ses.recordRequest(t.Context(), r)(); err != nil {
			t.Fatal(err)
		}
		output = r.output
	})
	for range 2 {
		if err := b.Resume(t.Context(), id, local, false); err != nil {
			t.Fatal(err)
		}
		b = b.restart()
	}
	var unknown []*provenance.Event
	for _, e := range events(t, b, id) {
		if e.Kind == provenance.KindScriptExecuted && e.Detail == string(fault.CodeOutcomeUnknown) {
			unknown = append(unknown, e)
		}
	}
	var row cfharness.ScriptExecution
	if len(unknown) != 1 || json.Unmarshal(unknown[0].Row, &row) != nil {
		t.Fatalf("%d outcomes that are not known", len(unknown))
	}
	if row.OutputID != output || row.Status != cfharness.StatusError || row.Path != "scripts/ok.sh" || unknown[0].Call == "" {
		t.Errorf("recorded %+v", row)
	}
}
