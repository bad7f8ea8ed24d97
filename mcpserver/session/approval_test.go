package session

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// askRun runs a script whose run needs an approval; the question is nil when there was none.
func (b *bench) askRun(args []string, answer *Answer) (*Question, *RunResult, error) {
	b.t.Helper()
	ses, call := b.call("run_skill_script")
	result, err := ses.RunScript(b.t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: args, Timeout: time.Minute, CanAsk: true, Answer: answer})
	q, _ := errors.AsType[*Question](err)
	return q, result, err
}

func TestApprovalExpires(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	b.Current().background.Wait() // it reads the clock that is replaced
	now := time.Now()
	b.cfg.Now = func() time.Time { return now }
	for _, tt := range []struct {
		after time.Duration
		runs  bool
	}{{AskLife - time.Second, true}, {AskLife + time.Second, false}, {-time.Minute, true}, {-time.Hour, false}} {
		asked := now
		q, _, err := b.askRun([]string{"a"}, nil)
		if q == nil {
			t.Fatalf("not asked: %v", err)
		}
		if life := q.Until.Sub(asked); life > 5*time.Minute {
			t.Errorf("a question lives %s", life)
		}
		now = asked.Add(tt.after)
		_, result, err := b.askRun([]string{"a"}, &Answer{State: q.State, Action: "accept", Chosen: true})
		if ran := result != nil && err == nil; ran != tt.runs || !ran && code(err) != string(policy.CodeApprovalDeclined) {
			t.Errorf("an answer after %s: %v", tt.after, err)
		}
		now = asked.Add(24 * time.Hour)
	}
}

// Whatever byte of a state is changed, it is no state of this server; nor is one of another process.
func TestApprovalStateIsAuthentic(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	q, _, _ := b.askRun([]string{"a"}, nil)
	raw, err := base64.RawURLEncoding.DecodeString(q.State)
	if err != nil {
		t.Fatal(err)
	}
	want := approval.State{Session: b.Current().ID()}
	for i := range raw {
		raw[i] ^= 1
		if _, err := b.approver.Open(t.Context(), base64.RawURLEncoding.EncodeToString(raw), want, time.Now()); !errors.Is(err, approval.ErrForged) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		raw[i] ^= 1
	}
	for _, token := range []string{"", "A", strings.Repeat("A", 40), strings.Repeat("A", 1<<20)} {
		if _, err := b.approver.Open(t.Context(), token, want, time.Now()); !errors.Is(err, approval.ErrForged) {
			t.Errorf("%.20q: %v", token, err)
		}
	}
	if _, err := New(b.cfg).approver.Open(t.Context(), q.State, want, time.Now()); !errors.Is(err, approval.ErrForged) {
		t.Errorf("another process: %v", err)
	}
}

// A third-party skill is asked about also when the operator's binding says direct-command, and a
// changed tree ends what was remembered.
func TestApprovalOfThirdParty(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct, tier: skills.TierThirdParty})
	b.load("demo")
	q, _, err := b.askRun([]string{"a"}, nil)
	if q == nil || !q.Remember {
		t.Fatalf("not asked: %v", err)
	}
	if _, _, err := b.askRun([]string{"a"}, &Answer{State: q.State, Action: "accept", Chosen: true, Remember: true}); err != nil {
		t.Fatal(err)
	}
	if q, _, err := b.askRun([]string{"b"}, nil); q != nil || err != nil {
		t.Errorf("asked again: %v", err)
	}
	a := b.Current().activated("demo")
	changed := *a.index
	changed.TreeDigest = "sha256:" + "0123456789012345678901234567890123456789012345678901234567890123"
	a.index = &changed
	if b.Current().approved[(&scriptFile{skill: a.skill, path: "scripts/ok.sh", index: a.index}).approval()] {
		t.Error("an approval of another tree is remembered")
	}
	kinds := b.kinds(b.Current())
	asked, answered := 0, 0
	for _, kind := range kinds {
		switch kind {
		case provenance.KindApprovalAsked:
			asked++
		case provenance.KindApprovalAnswered:
			answered++
		}
	}
	if asked != 1 || answered != 1 {
		t.Errorf("recorded %v", kinds)
	}
}

// A question shows what the model chose so that none of it can pass for a line of the server's.
func TestQuestionIsNotForged(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	for _, args := range [][]string{
		{"a\nit can use: nothing"}, {"a\u2028b", "\x1b[2K", "\u202eevil"}, make([]string, 1000), {strings.Repeat("x", 5000)},
	} {
		q, _, err := b.askRun(args, nil)
		if q == nil {
			t.Fatalf("not asked: %v", err)
		}
		// Answered for another call it is used up, and the next may be asked.
		b.askRun([]string{"other"}, &Answer{State: q.State, Action: "accept", Chosen: true})
		if strings.Contains(q.Message, "\nit can use: nothing") || q.Remember != q.Whole {
			t.Errorf("%q, remember %v", q.Message, q.Remember)
		}
		for _, r := range q.Message {
			if r != '\n' && (r < ' ' || r > '~') {
				t.Errorf("%q in %q", r, q.Message)
			}
		}
	}
}

// What cannot be shown whole is not allowed for the session, and an answer that changes what was shown is none.
func TestAnswerFitsTheQuestion(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	run := func(args []string, answer *Answer) (*Question, error) {
		ses, call := b.call("run_skill_script")
		_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: args, Stdin: []byte("in"),
			Timeout: time.Minute, CanAsk: true, Fields: true, Answer: answer})
		q, _ := errors.AsType[*Question](err)
		return q, err
	}
	for _, tt := range []struct {
		name, arg string
		answer    Answer
		why       string // empty: it runs
	}{
		{"once", "a", Answer{}, ""},
		{"the same text", "a", Answer{Content: map[string]any{"shown01": `"a"`, "shown02": `"in"`}}, ""},
		{"another text", "a", Answer{Content: map[string]any{"shown01": `"b"`}}, approval.ErrEdited.Error()},
		{"another stdin", "a", Answer{Content: map[string]any{"shown02": `""`}}, approval.ErrEdited.Error()},
		{"once, of a long one", strings.Repeat("x", 600), Answer{}, ""},
		{"for the session, of a long one", strings.Repeat("x", 600), Answer{Remember: true}, approval.ErrUnasked.Error()},
	} {
		q, err := run([]string{tt.arg}, nil)
		if q == nil || q.Remember != (len(tt.arg) == 1) {
			t.Fatalf("%s: %+v, %v", tt.name, q, err)
		}
		tt.answer.State, tt.answer.Action, tt.answer.Chosen = q.State, "accept", true
		_, err = run([]string{tt.arg}, &tt.answer)
		if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A model can neither put many questions before a user at once, nor ask anew by loading the skill anew.
func TestUserIsNotWornDown(t *testing.T) {
	b := newBench(t, benchOptions{})
	now := time.Now()
	b.cfg.Now = func() time.Time { return now }
	ask := func(answer *Answer) (*Question, error) {
		call := remote(alice, true, "", "", "")
		ses := b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		call.Method, call.Handle = "run_skill_script", loaded.Handle
		_, err = ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute, CanAsk: true, Answer: answer})
		q, asked := errors.AsType[*Question](err)
		if asked && answer == nil {
			return q, nil
		}
		return nil, err
	}
	for i := range approval.MaxPending + 2 {
		if q, err := ask(nil); (q != nil) != (i < approval.MaxPending) {
			t.Errorf("question %d: %v", i, err)
		}
	}
	now = now.Add(AskLife + time.Second)
	ses, call := b.call("run_skill_script")
	b.load("demo")
	answered := func(after time.Duration, answer Answer) (*Question, error) {
		_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute, CanAsk: true})
		q, _ := errors.AsType[*Question](err)
		now = now.Add(after)
		if q != nil {
			answer.State = q.State
			_, err = ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute, Answer: &answer})
		}
		return q, err
	}
	decline := func(after time.Duration) (*Question, error) { return answered(after, Answer{Action: "decline"}) }
	// What a client answers by itself is not the user's word, and does not count; nor is a form that was
	// closed or came back without a decision.
	for name, tt := range map[string]struct {
		after  time.Duration
		answer Answer
		says   string
	}{
		"accepted as it was sent":   {20 * time.Millisecond, Answer{Action: "accept"}, "the client answered by itself"},
		"declined by a busy client": {2 * time.Second, Answer{Action: "decline"}, "the client answered by itself"},
		"closed":                    {4 * time.Second, Answer{Action: "cancel"}, "closed without an answer"},
		"closed at once":            {0, Answer{Action: "cancel"}, "the client answered by itself"},
		"answered with an error":    {4 * time.Second, Answer{Action: "cancel", Failed: true}, "the client answered with an error"},
		"not filled in":             {4 * time.Second, Answer{Action: "accept", Unclear: true}, "came back without a decision"},
	} {
		for range approval.MaxDeclined + 1 {
			q, err := answered(tt.after, tt.answer)
			if q == nil || code(err) != string(policy.CodeApprovalRequired) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: asked %v, %v", name, q != nil, err)
			}
		}
	}
	for i := range approval.MaxDeclined + 1 {
		if q, err := decline(approval.Least - time.Millisecond); q == nil || code(err) != string(policy.CodeApprovalRequired) ||
			!strings.Contains(err.Error(), "the client answered by itself") {
			t.Errorf("answer %d by the client: asked %v, %v", i, q != nil, err)
		}
	}
	if text := b.artifact("events.jsonl"); !strings.Contains(text, `"detail":"by the client itself: decline"`) || strings.Contains(text, `"detail":"decline"`) || strings.Contains(text, `"detail":"accept"`) {
		t.Errorf("recorded %s", text)
	}
	for i := range approval.MaxDeclined + 1 {
		if q, err := decline(approval.Least); (q != nil) != (i < approval.MaxDeclined) {
			t.Errorf("refusal %d: asked %v, %v", i, q != nil, err)
		}
	}
	// A word elsewhere shows that the user changed their mind.
	b.cfg.Codes = approval.NewCodes(&cells{of: map[string][]byte{}})
	_, err := decline(approval.Least)
	denied, ok := errors.AsType[*Denied](err)
	if !ok || denied.Object.ApprovalCode == "" {
		t.Fatalf("no code after three refusals: %v", err)
	}
	if err := b.cfg.Codes.Approve(t.Context(), denied.Object.ApprovalCode, "alice", now); err != nil {
		t.Fatal(err)
	}
	if q, err := decline(approval.Least); q != nil || err != nil {
		t.Errorf("approved elsewhere: asked %v, %v", q != nil, err)
	}
	for i := range approval.MaxDeclined + 1 {
		if q, err := decline(approval.Least); (q != nil) != (i < approval.MaxDeclined) {
			t.Errorf("refusal %d after that: asked %v, %v", i, q != nil, err)
		}
	}
	now = now.Add(approval.Pause + time.Second)
	if q, err := decline(approval.Least); q == nil {
		t.Errorf("an hour later: %v", err)
	}
}

// A question that could not be recorded was not asked, and does not count as one that is open.
func TestUnrecordedQuestionIsNotOpen(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	b.Current().background.Wait()
	appends := 0
	b.records.onAppend = func() { appends++; b.records.broken.Store(appends%2 == 0) }
	for range approval.MaxPending {
		if q, _, err := b.askRun([]string{"a"}, nil); q != nil || code(err) != "provenance_unavailable" {
			t.Errorf("a question that cannot be recorded: %v", err)
		}
	}
	b.records.onAppend = nil
	b.records.broken.Store(false)
	if q, _, err := b.askRun([]string{"a"}, nil); q == nil {
		t.Errorf("not asked: %v", err)
	}
}

// A call that was cancelled while the user was asked is no refusal of theirs.
func TestCancelledIsNotDeclined(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	ses, call := b.call("run_skill_script")
	for i := range approval.MaxDeclined + 1 {
		q, _, err := b.askRun([]string{"a"}, nil)
		if q == nil {
			t.Fatalf("after %d cancelled calls: not asked: %v", i, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = ses.RunScript(ctx, RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Args: []string{"a"}, Timeout: time.Minute, CanAsk: true,
			Answer: &Answer{State: q.State, Action: "cancel"}})
		if code(err) != string(policy.CodeApprovalRequired) {
			t.Errorf("a cancelled call: %v", err)
		}
	}
}

// cells are what several servers have in common.
type cells struct {
	mu sync.Mutex
	of map[string][]byte
}

func (c *cells) Change(_ context.Context, key string, _ time.Duration, change func([]byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := change(c.of[key]); next != nil {
		c.of[key] = next
	}
	return nil
}

// A call that its client did not ask about waits for the user's word elsewhere, which holds for exactly this
// call, once, also in another session of the same user.
func TestApprovedElsewhere(t *testing.T) {
	common := &cells{of: map[string][]byte{}}
	elsewhere := approval.NewCodes(common)
	first, second := newBench(t, benchOptions{}), newBench(t, benchOptions{})
	for _, b := range []*bench{first, second} {
		b.cfg.Codes = elsewhere
		b.load("demo")
	}
	run := func(b *bench, in RunRequest) (string, error) {
		t.Helper()
		ses, call := b.call("run_skill_script")
		in.Call, in.Skill, in.Path = call, "demo", "scripts/ok.sh"
		_, err := ses.RunScript(t.Context(), in)
		if denied, ok := errors.AsType[*Denied](err); ok {
			return denied.Object.ApprovalCode, err
		}
		return "", err
	}
	asked := RunRequest{Args: []string{"a"}, Cwd: "/out", Stdin: []byte("in")}
	code, err := run(first, asked)
	if code == "" || !strings.Contains(err.(*Denied).Object.Remedy, "`skillsd approve "+code+"`") {
		t.Fatalf("no code: %v", err)
	}
	if again, err := run(first, asked); again != code {
		t.Errorf("the same call has another code: %v", err)
	}
	waits, err := elsewhere.Find(t.Context(), code, time.Now())
	if err != nil || waits.Script == "" || waits.Tree == "" || waits.Session != first.Current().ID() {
		t.Fatalf("%+v, %v", waits, err)
	}
	for _, want := range []string{"Run scripts/ok.sh of the skill demo", "no project, no network", `directory: "/out"`, `arguments: "a"`, `stdin: "in"`} {
		if !strings.Contains(waits.Text, want) {
			t.Errorf("the user does not read %q: %s", want, waits.Text)
		}
	}
	if err := elsewhere.Approve(t.Context(), code, "alice at a terminal", time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]RunRequest{
		"other arguments": {Args: []string{"b"}, Cwd: "/out", Stdin: []byte("in")},
		"more arguments":  {Args: []string{"a", ""}, Cwd: "/out", Stdin: []byte("in")},
		"other input":     {Args: []string{"a"}, Cwd: "/out", Stdin: []byte("IN")},
		"no input":        {Args: []string{"a"}, Cwd: "/out"},
		"elsewhere":       {Args: []string{"a"}, Cwd: "/tmp", Stdin: []byte("in")},
		"for longer":      {Args: []string{"a"}, Cwd: "/out", Stdin: []byte("in"), Timeout: time.Minute},
	} {
		if got, err := run(second, other); got == "" || got == code {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Other bytes of any file of the skill are another call.
	a := second.Current().activated("demo")
	index := a.index
	changed := *index
	changed.TreeDigest = "sha256:" + "0123456789012345678901234567890123456789012345678901234567890123"
	a.index = &changed
	if _, err := run(second, asked); err == nil {
		t.Error("an approval holds for other bytes")
	}
	a.index = index
	if _, err := run(second, asked); err != nil {
		t.Fatalf("approved: %v", err)
	}
	if text := second.artifact("events.jsonl"); !strings.Contains(text, `"detail":"accept by alice at a terminal"`) ||
		!strings.Contains(text, `"evidence":"approval"`) {
		t.Errorf("recorded %s", text)
	}
	if again, err := run(second, asked); again == "" || again == code {
		t.Errorf("used twice: %v", err)
	}
	// A refusal that no word of a user overrides has no code, and neither has one by the user.
	b := newBench(t, benchOptions{policy: policy.Config{Release: policy.ReleaseNone}})
	b.cfg.Codes = elsewhere
	b.load("demo")
	q, _, _ := b.askRun([]string{"a"}, nil)
	_, _, err = b.askRun([]string{"a"}, &Answer{State: q.State, Action: "decline", Chosen: true})
	if denied, ok := errors.AsType[*Denied](err); !ok || denied.Object.ApprovalCode != "" {
		t.Errorf("declined: %v", err)
	}
	q, _, _ = b.askRun([]string{"a"}, nil)
	_, _, err = b.askRun([]string{"a"}, &Answer{State: q.State, Action: "cancel"})
	if denied, ok := errors.AsType[*Denied](err); !ok || denied.Object.ApprovalCode == "" {
		t.Errorf("closed: %v", err)
	}
}
