package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	// AskLife is how long a user has to answer.
	AskLife = 5 * time.Minute

	// maxDeclined is how often a user declines a script before they are asked no more, for restLife: a
	// model must not wear them down. maxPending is how many questions about it are open at a time.
	maxDeclined = 3
	maxPending  = 3
	restLife    = time.Hour

	// maxCounted bounds the scripts of principals whose refusals and questions are counted.
	maxCounted = 10_000

	// maxAskedArgs is how many characters of the arguments a question shows.
	maxAskedArgs = 1000
)

// Question is what a user must be asked before a script may run. It is an error of
// [Session.RunScript], which is called again with the answer.
type Question struct {
	Message  string // in plain text
	State    string // comes back with the answer; opaque, bound to exactly this call
	Remember bool   // whether the answer may be for the rest of the session
	Until    time.Time
}

func (q *Question) Error() string { return "a user must approve the run" }

// Answer is what became of a Question. None of it is trusted but what State proves.
type Answer struct {
	State    string
	Action   string // accept, decline or cancel
	Remember bool   // allow the script, as it is now, for the rest of the session
}

// approvalKey is what an approval for the rest of a session covers: one script of one tree, with any
// arguments.
type approvalKey struct {
	skill, path string
	tree        digest.Digest
}

// approver makes and checks the states of questions. It is safe for concurrent use.
type approver struct {
	key [sha256.Size]byte

	mu       sync.Mutex
	used     map[string]time.Time // nonces of answers, until they expire
	declined map[declinedKey]refusals
	pending  map[declinedKey]map[string]time.Time // nonces of questions without an answer, until they expire
}

// declinedKey is what refusals are counted for: they outlast a session, which a model can open anew.
type declinedKey struct {
	principal string
	approvalKey
}

// refusals are those of one principal for one script.
type refusals struct {
	n    int
	last time.Time
}

// askState is what a question is bound to.
type askState struct {
	Tool      string        `json:"tool"`
	Skill     string        `json:"skill"`
	Path      string        `json:"path"`
	Tree      digest.Digest `json:"tree"`
	Call      digest.Digest `json:"call"` // of arguments, directory, input and time; keyed, since it is recorded and would confirm a guess
	Principal string        `json:"principal"`
	Session   string        `json:"session"`
	Expires   int64         `json:"expires"` // Unix seconds
	Nonce     string        `json:"nonce"`
}

// seal makes the state of a question.
func (a *approver) seal(state askState) string {
	raw, err := json.Marshal(state)
	if err != nil {
		panic("session: state does not marshal: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(append(a.mac(raw), raw...))
}

func (a *approver) mac(raw []byte) []byte {
	mac := hmac.New(sha256.New, a.key[:])
	mac.Write(raw)
	return mac.Sum(nil)
}

// Why an answer does not count.
var (
	errForged   = errors.New("it does not belong to a question of this server")
	errForeign  = errors.New("it was given for another call")
	errReplayed = errors.New("it was used before")
	errExpired  = errors.New("it came too late")
	errUnasked  = errors.New("it allows more than was asked")
)

// open checks a state against the call it comes with and uses it up, whatever the answer is.
func (a *approver) open(token string, want askState, now time.Time) error {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], a.mac(raw[sha256.Size:])) {
		return errForged
	}
	var got askState
	if err := json.Unmarshal(raw[sha256.Size:], &got); err != nil {
		return errForged
	}
	expires := time.Unix(got.Expires, 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	for nonce, until := range a.used {
		if now.After(until) {
			delete(a.used, nonce)
		}
	}
	if _, replayed := a.used[got.Nonce]; replayed {
		return errReplayed
	}
	if !now.Before(expires) {
		return errExpired
	}
	if a.used == nil {
		a.used = make(map[string]time.Time)
	}
	a.used[got.Nonce] = expires
	for _, open := range a.pending {
		delete(open, got.Nonce)
	}
	want.Expires, want.Nonce = got.Expires, got.Nonce
	if got != want {
		return errForeign
	}
	return nil
}

// asked is what a question about a run is bound to.
func (s *Session) asked(r *run) askState {
	call := encode(struct {
		Args    []string      `json:"args"`
		Cwd     string        `json:"cwd"`
		Stdin   digest.Digest `json:"stdin"`
		Given   bool          `json:"given"`
		Timeout time.Duration `json:"timeout"`
		Dir     string        `json:"dir"`
	}{r.in.Args, r.in.Cwd, digest.FromBytes(r.in.Stdin), r.in.Stdin != nil, r.in.Timeout, r.in.Call.Workspace.Path})
	return askState{Tool: r.call.Method, Skill: r.skill.Path, Path: r.path, Tree: r.approval().tree, Call: digest.NewDigestFromBytes(digest.SHA256, s.approver.mac(call)),
		Principal: r.call.Principal.Name, Session: s.id}
}

// approval is what an approval of the run for the rest of the session would cover.
func (r *run) approval() approvalKey {
	return approvalKey{skill: r.skill.Path, path: r.path, tree: r.index.TreeDigest}
}

// ask records that the user is asked about a run and returns the question.
func (s *Session) ask(ctx context.Context, r *run, needs *policy.ApprovalRequired) error {
	until := s.cfg.Now().Add(AskLife)
	state := s.asked(r)
	state.Expires, state.Nonce = until.Unix(), rand.Text()
	if !s.approver.begin(r.declined(), state.Nonce, until, s.cfg.Now()) {
		return s.deny(ctx, r.request, s.denial(r.request, policy.CodeApprovalDeclined, "the user is being asked about this script already",
			"wait for the answer to the calls before"))
	}
	e := &provenance.Event{Kind: provenance.KindApprovalAsked, Skill: r.skill.Path, Path: r.path, Want: state.Tree.String(),
		Detail: fmt.Sprintf("%s; call %s", needs.Denial.Code, state.Call), Row: approvalRequest(r, needs)}
	if err := s.append(ctx, e); err != nil {
		s.approver.withdraw(r.declined(), state.Nonce)
		return err
	}
	return &Question{Message: s.question(r, needs), State: s.approver.seal(state), Remember: needs.Remember, Until: until}
}

// approvalRequest is what the user is asked about, as the record has the inputs of runs.
func approvalRequest(r *run, needs *policy.ApprovalRequired) json.RawMessage {
	row := cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest, OutputID: r.out.OutputID, Args: r.out.Args,
		CWD: r.redact.Text(r.in.Cwd), Target: string(needs.Target), Digest: r.file.Digest}
	if r.in.Stdin != nil {
		row.Stdin = cfharness.SummarizeText(r.redact.Bytes(r.in.Stdin))
	}
	return encode(row)
}

// answered checks the answer to a question about a run, records it, and returns the denial it leads
// to, if it does not approve the run.
func (s *Session) answered(ctx context.Context, r *run, needs *policy.ApprovalRequired) (*policy.Denial, error) {
	answer := r.in.Answer
	failure := s.approver.open(answer.State, s.asked(r), s.cfg.Now())
	if failure == nil && answer.Remember && !needs.Remember {
		failure = errUnasked
	}
	detail := clip(answer.Action)
	switch {
	case failure != nil:
		detail = "not accepted: " + failure.Error()
	case answer.Action == "accept" && answer.Remember && needs.Remember:
		detail = cfharness.ApprovalRemembered
	}
	err := s.append(ctx, &provenance.Event{Kind: provenance.KindApprovalAnswered, Skill: r.skill.Path, Path: r.path, Want: r.approval().tree.String(),
		Detail: detail, Row: scriptRequest(r)})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case failure != nil:
		return s.denial(r.request, policy.CodeApprovalDeclined, "the answer to the approval does not count: "+failure.Error(),
			"call the tool again and let the user answer"), nil
	case answer.Action != "accept":
		// A call that was cancelled took its question with it: the user has said nothing.
		if ctx.Err() == nil {
			s.approver.refused(r.declined(), s.cfg.Now())
		}
		said := "declined"
		if answer.Action != "decline" {
			said = "did not answer"
		}
		return s.denial(r.request, policy.CodeApprovalDeclined, "the user "+said, "ask the user before you call the tool again; "+needs.Denial.Remedy), nil
	}
	if answer.Remember && needs.Remember {
		s.approved[r.approval()] = true
	}
	return nil, nil
}

// remembered reports whether the user approved the script for the rest of the session.
func (s *Session) remembered(key approvalKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.approved[key]
}

// refused counts a refusal.
func (a *approver) refused(key declinedKey, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.declined == nil || len(a.declined) >= maxCounted {
		a.declined = make(map[declinedKey]refusals)
	}
	a.declined[key] = refusals{n: a.declined[key].n + 1, last: now}
}

// tired reports whether the user has declined a script too often to be asked now.
func (a *approver) tired(key declinedKey, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.declined[key]
	if now.Sub(was.last) > restLife {
		delete(a.declined, key)
		return false
	}
	return was.n >= maxDeclined
}

// begin notes a question, unless as many about the script are open as may be.
func (a *approver) begin(key declinedKey, nonce string, until, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil || len(a.pending) >= maxCounted {
		a.pending = make(map[declinedKey]map[string]time.Time)
	}
	open := a.pending[key]
	if open == nil {
		open = make(map[string]time.Time)
		a.pending[key] = open
	}
	for nonce, until := range open {
		if now.After(until) {
			delete(open, nonce)
		}
	}
	if len(open) >= maxPending {
		return false
	}
	open[nonce] = until
	return true
}

// withdraw forgets a question that was not asked.
func (a *approver) withdraw(key declinedKey, nonce string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending[key], nonce)
}

// tired reports whether the user is not to be asked about a run.
func (s *Session) tired(r *run) bool { return s.approver.tired(r.declined(), s.cfg.Now()) }

func (r *run) declined() declinedKey {
	return declinedKey{r.call.Principal.Name, r.approval()}
}

// question is what the user reads: facts of the server, and what the model chose in quotes. Clients
// show the first few lines and fold the rest, so the whole of it is four.
func (s *Session) question(r *run, needs *policy.ApprovalRequired) string {
	where := "in a sandbox"
	if needs.Target == policy.TargetHost {
		where = "on this machine, WITHOUT a sandbox"
	}
	call := quoteArgs(r.out.Args)
	if r.in.Cwd != "" {
		call += "; directory: " + strconv.QuoteToASCII(clip(r.redact.Text(r.in.Cwd)))
	}
	if r.in.Stdin != nil {
		call += fmt.Sprintf("; input: %d bytes, %s", len(r.in.Stdin), digest.FromBytes(r.redact.Bytes(r.in.Stdin)))
	}
	return fmt.Sprintf("Run %s of the skill %s (%s) %s?\narguments: %s\nit can use: %s\n%s %s",
		r.path, r.skill.Path, r.skill.Root.Tier, where, call, s.reach(r, needs), reasonToAsk(needs.Denial.Code), r.file.Digest)
}

// reach is what a run can use beside the files of its skill.
func (s *Session) reach(r *run, needs *policy.ApprovalRequired) string {
	var uses []string
	if mount := s.mountOf(r, needs.Entry); mount != "none" {
		uses = append(uses, "workspace: "+mount)
	}
	if len(needs.Entry.Network) > 0 {
		uses = append(uses, "network: "+strings.Join(needs.Entry.Network, ", "))
	}
	if names := slices.Concat(needs.Entry.Env, needs.Entry.Secrets); len(names) > 0 {
		uses = append(uses, "environment: "+strings.Join(names, ", "))
	}
	switch {
	case needs.Target == policy.TargetHost:
		return strings.Join(append(uses, "everything this user can"), "; ")
	case len(uses) == 0:
		return "only the files of its skill; no workspace, no network"
	}
	return strings.Join(uses, "; ")
}

func reasonToAsk(code policy.Code) string {
	if code == policy.CodeDirectCommandRequired {
		return "Asked because nothing shows that a user wants this run."
	}
	return "Asked because the skill's origin or the operator demands it."
}

// quoteArgs shows arguments so that none can pass for another line of the question.
func quoteArgs(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, arg := range args {
		quoted := strconv.QuoteToASCII(arg)
		if b.Len()+len(quoted) > maxAskedArgs {
			fmt.Fprintf(&b, " … and %d more, all of them %s", len(args)-i, digest.FromBytes(encode(args)))
			return b.String()
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quoted)
	}
	return b.String()
}
