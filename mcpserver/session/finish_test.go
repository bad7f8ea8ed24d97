package session

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	godigest "github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// runRecorded runs scripts/ok.sh and returns the answer with what a program sees of it.
func (b *bench) runRecorded(t *testing.T) (*RunResult, *cfharness.CallRecords, string) {
	t.Helper()
	ses, call := b.call("run_skill_script")
	call.Records = &Recorder{}
	result, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	records, err := call.Records.Records(false)
	if err != nil {
		t.Fatal(err)
	}
	output := encode(result.Output)
	conforms(t, "run-skill-script-output", output)
	conforms(t, "records", encode(records))
	b.validateSession(ses)
	return result, records, string(output)
}

// mediated is what a runtime says of what the runner of a bench returns.
func mediated(stdout, exit string) []byte {
	text, _ := json.Marshal("secret output\n")
	word := func(policy string) string {
		switch policy {
		case "observed":
			return `"policy":"observed","segments":[{"text":` + string(text[:8]) + `","label":{}},{"text":"` + string(text[8:]) + `,"label":{}}]`
		case "part":
			return `"policy":"observed","truncated":true,"segments":[{"text":"some ","label":{}},{"text":"of it","label":{}}]`
		}
		return `"policy":"` + policy + `","reason":"run_skill_script: tainted"`
	}
	return fmt.Appendf(nil, `{"version":1,"stdout":{"channel":"stdout","label":{"confidentiality":["x"]},%s},"stderr":{"channel":"stderr","policy":"observed","label":{},"segments":[]},`+
		`"exitCode":{"policy":%q,"label":{},"value":0},"diagnostics":[{"level":"info","code":"c","message":"m"}]}`, word(stdout), exit)
}

// What a runtime that labels its output does not let through is withheld in every mode; the decisions are
// those that were recorded of the reference.
func TestMediation(t *testing.T) {
	data, err := os.ReadFile("../../skills/policy/testdata/policy-matrix.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Case, Mode, Role, ResultType, Status string
		Decision                             []string
		ReasonCodes                          [][]string
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, row := range rows {
		word, ok := strings.CutPrefix(row.Case, "run/mediated-")
		if !ok {
			continue
		}
		tried++
		t.Run(row.Mode+" "+word, func(t *testing.T) {
			mode, err := policy.ParseMode(row.Mode)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, benchOptions{policy: policy.Config{Mode: mode, Role: policy.Role(row.Role)}})
			b.runner.result.Mediation = mediated(word, "observed")
			b.load("demo")
			result, records, output := b.runRecorded(t)
			var decision struct {
				Decision    string
				ReasonCodes []string
			}
			if err := json.Unmarshal(records.Decision, &decision); err != nil || decision.Decision != row.Decision[0] || decision.ReasonCodes[0] != row.ReasonCodes[0][0] {
				t.Errorf("decision = %s, %v, want %v %v", records.Decision, err, row.Decision, row.ReasonCodes)
			}
			o := result.Output
			if o.Type != row.ResultType || string(o.Status) != row.Status || *o.ExitCode != 0 || string(o.CFCResult.Stdout.Policy) != word ||
				string(o.CFCResult.Stdout.Label) != `{"confidentiality":["x"]}` || len(o.CFCResult.Diagnostics) != 1 {
				t.Errorf("output = %s", output)
			}
			if released := word == "observed"; released != strings.Contains(output, "secret output") || released != (len(records.PolicyEvents) == 0) {
				t.Errorf("output = %s, events %s", output, records.PolicyEvents)
			}
			_, err = b.shown(Call{Principal: local}, provenance.OutputName(o.OutputID, "stdout"))
			if (err == nil) != (word == "observed") {
				t.Errorf("the kept stream: %v", err)
			}
			object := o.Stdout.Denied
			if word == "observed" {
				return
			}
			want := map[string][2]string{"opaque": {"needs-opaque-pass-through", "run_skill_script: stdout was not released by CFC policy"}, "denied": {"not-observable", "run_skill_script: tainted"}}[word]
			if object == nil || object.Reason != want[0] || object.Detail != want[1] || object.Handle.HandleID != o.OutputID+":stdout" ||
				object.Handle.PassThrough != (word == "opaque") || (object.ByteLength != nil) != (word == "opaque") || !strings.Contains(string(records.PolicyEvents[0]), object.Handle.HandleID) {
				t.Errorf("in place of the stream: %s", output)
			}
			if word == "denied" && (strings.Contains(output, `"byteLength":14`) || strings.Contains(string(encode(records)), `"bytes":14`)) {
				t.Errorf("the length of a denied stream shows: %s %s", output, encode(records))
			}
		})
	}
	if tried != 12 {
		t.Errorf("%d rows, want 12", tried)
	}
}

// A runtime's result that cannot be understood lets nothing through, and neither does one in which the
// operator's word is the stricter one. An exit code that is withheld shows nowhere.
func TestStricterMediation(t *testing.T) {
	for name, test := range map[string]struct {
		mediation      []byte
		release        policy.Release
		stdout, stderr cfharness.ObservationPolicy
		exit           bool
		text           string
	}{
		"nothing":        {[]byte(``), "", "denied", "denied", false, ""},
		"no result":      {[]byte(`[]`), "", "denied", "denied", false, ""},
		"version":        {[]byte(`{"version":2}`), "", "denied", "denied", false, ""},
		"without stream": {[]byte(`{"version":1}`), "", "denied", "denied", false, ""},
		"unknown word":   {mediated("shown", "observed"), "", "denied", "denied", false, ""},
		"exit code":      {mediated("observed", "opaque"), "", "observed", "observed", false, "secret output\n"},
		"part":           {mediated("part", "observed"), "", "observed", "observed", true, "some of it"},
		"operator":       {mediated("observed", "observed"), policy.ReleaseOpaque, "opaque", "opaque", false, ""},
		"runtime":        {mediated("denied", "observed"), policy.ReleaseOpaque, "denied", "opaque", false, ""},
		"none":           {nil, policy.ReleaseOpaque, "opaque", "opaque", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: test.release}, workspace: workspaceOf(test.release)})
			b.runner.result.Mediation, b.runner.result.ExitCode = test.mediation, 77
			b.runner.result.Out = []sandbox.OutFile{{Name: "report", Data: []byte("r")}}
			b.load("demo")
			result, records, output := b.runRecorded(t)
			m := result.Output.CFCResult
			if m.Stdout.Policy != test.stdout || m.Stderr.Policy != test.stderr || (m.ExitCode.Policy == "observed") != test.exit || (result.Output.ExitCode != nil) != test.exit || result.Opaque != (test.release == policy.ReleaseOpaque) {
				t.Errorf("cfcResult = %s", encode(m))
			}
			if got := result.Output.Stdout.Text; (got != nil) != (test.stdout == "observed") || got != nil && *got != test.text {
				t.Errorf("stdout = %s", output)
			}
			seen := output + string(encode(records))
			if !test.exit && (strings.Contains(seen, `"exitCode":77`) || strings.Contains(seen, `"value":77`)) || strings.Contains(seen, "report") || strings.Contains(seen, ".stdout\"") || !result.Sealed {
				t.Errorf("what is withheld shows: %s", seen)
			}
			if kept := b.artifact(provenance.ScriptExecutionsFile); !strings.Contains(kept, `"exitCode": 77`) || !strings.Contains(kept, `.stdout"`) {
				t.Errorf("the record = %s", kept)
			}
		})
	}
}

func workspaceOf(release policy.Release) sandbox.WorkspaceMode {
	if release == "" {
		return ""
	}
	return sandbox.WorkspaceRO // what a run needs to be released
}

// The object in place of a stream commits to it, and the digest of the stream is in the record only.
func TestWithheldObject(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}, workspace: sandbox.WorkspaceRO})
	b.load("demo")
	result, records, _ := b.runRecorded(t)
	object := result.Output.Stdout.Denied
	var kept cfharness.ScriptExecutions
	if err := json.Unmarshal([]byte(b.artifact(provenance.ScriptExecutionsFile)), &kept); err != nil {
		t.Fatal(err)
	}
	var row cfharness.ScriptExecution
	if err := json.Unmarshal(kept.Executions[0], &row); err != nil {
		t.Fatal(err)
	}
	x := row.Skillsd.Stdout
	if x.Withheld != "opaque" || x.Digest.String() != b.runner.result.Stdout.SHA256 || len(x.Salt) < 26 || object.Digest != godigest.FromString(x.Salt+x.Digest.String()) || object.ByteLength != nil {
		t.Errorf("object %s, record %+v", encode(object), x)
	}
	if got, want := b.events(), "session.started activated script_requested policy.denied policy.denied script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	if len(records.PolicyEvents) != 2 || object.EventID != records.EventIDs[0] || strings.Contains(string(encode(records)), x.Salt) {
		t.Errorf("object %s, records %s", encode(object), encode(records))
	}
}

// What a caller can see of an opaque run is the same for all that succeed, and for all that fail, whatever the
// script did: a script that is called again can put the next part of a secret into anything else.
func TestOpaque(t *testing.T) {
	changing := regexp.MustCompile(`ses_[\w-]+|sha256:[0-9a-f]{64}|"(prev|hash)":"[0-9a-f]{64}"|20\d\d-[\d-]+T[\d:.]+Z|/[^" ]+/TestOpaque\w+/\w+|"size":\d+|0x[0-9a-f]+|"seq":\d+|(:\d+"|"eventId":"[^"]+")`)
	snapshots := regexp.MustCompile(`.*"registry.snapshot".*\n`) // which come when they are ready
	seen := func(mediation []byte, outcome sandbox.Result) string {
		b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}, workspace: sandbox.WorkspaceStaged})
		outcome.Mediation = mediation
		b.runner.result = outcome
		b.load("demo")
		result, records, output := b.runRecorded(t)
		text := fmt.Sprintf("%s %+v %s", output, *result, encode(records))
		for _, name := range b.ArtifactNames(t.Context(), Call{Principal: local}) {
			text += name
			if shown, err := b.shown(Call{Principal: local}, name); err == nil && (name == provenance.EventsFile || name == provenance.ScriptExecutionsFile) {
				text += string(shown.Data)
			}
		}
		return changing.ReplaceAllString(snapshots.ReplaceAllString(text, ""), "X") // pointers too, of which the output has what they point to
	}
	out := []sandbox.OutFile{{Name: "report", Data: []byte("r")}, {Name: "b"}}
	long := sandbox.Stream{Head: []byte("begin"), Tail: []byte("end"), Total: 1 << 20, Truncated: true, SHA256: "sha256:" + strings.Repeat("1", 64)}
	writes := []sandbox.Write{{Path: "a", Op: "write", Size: 7}, {Path: "b", Op: "delete", Refused: "why"}}
	failed := []sandbox.Result{
		{Outcome: sandbox.Exited, ExitCode: 3, Duration: time.Millisecond},
		{Outcome: sandbox.Exited, ExitCode: 77, Duration: time.Minute, Stdout: long, Out: out},
		{Outcome: sandbox.Exited, ExitCode: 1, Stderr: sandbox.Stream{Head: []byte("ModuleNotFoundError: No module named 'x'\n"), Total: 41}},
		{Outcome: sandbox.Signaled, ExitCode: 137, Signal: "SIGKILL", Stderr: long},
		{Outcome: sandbox.TimedOut, Duration: time.Hour, OutSkips: 2, Skipped: []string{"x"}},
		{Outcome: sandbox.MemoryLimit, Writes: writes},
	}
	succeeded := []sandbox.Result{
		{Outcome: sandbox.Exited},
		{Outcome: sandbox.Exited, Duration: time.Minute, Stdout: long, Stderr: long, Out: out, OutSkips: 2, Skipped: []string{"x"}, Writes: writes},
	}
	for name, test := range map[string]struct {
		mediation []byte
		results   []sandbox.Result
		want      []string
	}{
		"failed":          {nil, failed, []string{`"outcome":"failed"`, `"exitCode":{"policy":"opaque","label":{}}`}},
		"succeeded":       {nil, succeeded, []string{`"exitCode":0`, `"outcome":"exited"`}},
		"of a runtime":    {mediated("part", "observed"), failed, []string{`"outcome":"failed"`}},
		"without a word":  {mediated("observed", "denied"), append(failed, succeeded...), []string{`"outcome":"exited"`, `"exitWithheld":true`}},
		"denied":          {mediated("denied", "observed"), succeeded, []string{`"exitCode":0`}},
		"canceled by one": {nil, []sandbox.Result{{Outcome: sandbox.Canceled, Duration: time.Second}}, []string{`"outcome":"canceled"`}},
	} {
		t.Run(name, func(t *testing.T) {
			first := seen(test.mediation, test.results[0])
			for _, want := range test.want {
				if !strings.Contains(first, want) {
					t.Errorf("without %s: %s", want, first)
				}
			}
			for i, result := range test.results[1:] {
				if now := seen(test.mediation, result); now != first {
					at := 0
					for now[at] == first[at] {
						at++
					}
					t.Errorf("result %d can be told from the first: %.400s, not %.400s", i+1, now[max(at-100, 0):], first[max(at-100, 0):])
				}
			}
		})
	}
}

// If the outcome of a run whose output is withheld cannot be recorded, nothing more runs until it is, and
// each event is recorded once.
func TestWithheldUnrecorded(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}, workspace: sandbox.WorkspaceRO})
	b.load("demo")
	b.records.noResult.Store(true)
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" {
		t.Fatalf("run = %v", err)
	}
	b.records.noResult.Store(false)
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	const run = " policy.denied policy.denied script_executed"
	if got, want := b.events(), "session.started activated script_requested"+run+" script_requested"+run; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
}

// Events about a run that are recorded late belong to its call like the others, whatever failed.
func TestLateEventsHaveCall(t *testing.T) {
	for name, failure := range map[string]func(s *failingStore, fails bool){
		"output":  func(s *failingStore, fails bool) { s.unkept.Store(fails) },
		"outcome": func(s *failingStore, fails bool) { s.noResult.Store(fails) },
	} {
		b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}})
		b.load("demo")
		b.Current().background.Wait()
		failure(b.records, true)
		if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" {
			t.Fatalf("%s: run = %v", name, err)
		}
		failure(b.records, false)
		if err := b.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := map[string]int{}
		for e, err := range b.records.Events(t.Context(), provenance.Query{Session: b.Current().ID()}) {
			if err != nil {
				t.Fatal(err)
			}
			switch e.Kind {
			case provenance.KindScriptRequested, provenance.KindPolicyDenied, provenance.KindScriptExecuted:
				calls[e.Call]++
			}
		}
		if len(calls) != 1 || calls[""] != 0 {
			t.Errorf("%s: events by call: %v", name, calls)
		}
	}
}

// A program that asks for records gets streams as they were kept, and the model as much as it is shown.
func TestWholeStreams(t *testing.T) {
	long, wide := strings.Repeat("0123456789abcde\n", 64_000), strings.Repeat("\x01", 600_000)
	for name, test := range map[string]struct {
		stdout sandbox.Stream
		want   string // nil: cut
		offset int64
	}{
		"whole":                  {sandbox.Stream{Head: []byte(long), Total: int64(len(long))}, long, 0},
		"kept":                   {sandbox.Stream{Head: []byte("begin\n"), Tail: []byte("end\n"), Total: 1000, Truncated: true}, "begin\nend\n", 996},
		"too much for a message": {sandbox.Stream{Head: []byte(wide), Total: int64(len(wide))}, "", 600_000 - maxWhole/3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchOptions{policy: direct})
			test.stdout.SHA256 = godigest.FromString("x").String()
			b.runner.result.Stdout = test.stdout
			b.load("demo")
			result, records, output := b.runRecorded(t)
			o := result.Output
			if test.want != "" && *o.Stdout.Text != test.want || len(output) > 8<<20 {
				t.Errorf("%d bytes of stdout, %d of the answer", len(*o.Stdout.Text), len(output))
			}
			if cut := o.StdoutTruncated != nil; cut != (test.offset > 0) || cut != o.CFCResult.Stdout.Truncated || o.CFCResult.Stdout.Segments[len(o.CFCResult.Stdout.Segments)-1].Offset != test.offset {
				t.Errorf("truncated %v, segments %.300s", cut, encode(o.CFCResult.Stdout.Segments))
			}
			if shown := len(result.Stdout.Head) + len(result.Stdout.Tail); shown > HeadShare+TailShare {
				t.Errorf("the model is shown %d bytes", shown)
			}
			var row cfharness.ScriptExecution
			if err := json.Unmarshal(records.Record, &row); err != nil || row.Skillsd.Stdout.Shown.Digest != godigest.FromString(*o.Stdout.Text) || row.Skillsd.Stdout.URI == "" || row.Skillsd.Stderr.URI != "" {
				t.Errorf("row = %.2000s, %v", records.Record, err)
			}
			if text := b.mustHave(Call{Principal: local}, strings.TrimPrefix(row.Skillsd.Stdout.URI, ArtifactBase)); text != string(test.stdout.Head)+string(test.stdout.Tail) {
				t.Errorf("%s has %d bytes", row.Skillsd.Stdout.URI, len(text))
			}
			if *o.CFCResult.ExitCode.Value != 0 || o.CFCResult.Stderr.Segments == nil {
				t.Errorf("cfcResult = %.300s", encode(o.CFCResult.ExitCode))
			}
		})
	}
	b := newBench(t, benchOptions{policy: direct})
	b.runner.result.Stdout.Head, b.runner.result.Outcome = []byte(long), sandbox.TimedOut
	b.load("demo")
	if result, err := b.run("demo", "scripts/ok.sh"); err != nil || len(*result.Output.Stdout.Text) > HeadShare+TailShare || result.Output.CFCResult != nil {
		t.Errorf("without records: %v, %d bytes", err, len(*result.Output.Stdout.Text))
	}
	if result, _, _ := b.runRecorded(t); result.Output.CFCResult.ExitCode.Reason != "no exit code: timeout" {
		t.Errorf("of a script that was stopped: %s", encode(result.Output.CFCResult.ExitCode))
	}
}

// A program that asks for records gets the instructions and the files of a load, and reads as long as it asks
// for; the model gets what it is shown of them.
func TestWholeLoadsAndReads(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("narrow")
	ses, call := b.call("load_skill")
	call.Conversation = "c"
	loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
	if err != nil || loaded.Output.Content != nil || loaded.Output.Resources != nil {
		t.Errorf("without records: %s, %v", encode(loaded.Output), err)
	}
	call.Records = &Recorder{}
	for _, test := range []struct {
		force bool
		want  string
	}{{false, ""}, {true, "---\nname: demo\ndescription: For tests.\n---\nDo it.\n"}} {
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo", Force: test.force})
		if err != nil {
			t.Fatal(err)
		}
		o := loaded.Output
		conforms(t, "load-skill-output", encode(o))
		if content := o.Content; (content != nil) != test.force || content != nil && *content != test.want {
			t.Errorf("force %v: content of %s", test.force, encode(o))
		}
		if len(o.Resources) != 3 || o.Resources[0].ResourcePath != "/workspace/skills/demo/notes.md" || strings.Contains(string(encode(o)), b.root) {
			t.Errorf("force %v: resources of %s", test.force, encode(o))
		}
	}
}
