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
	"github.com/skillsd/skillsd/sandbox"
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
func (s *Session) asked(r *run, f *scriptFile) askState {
	call := encode(struct {
		Args    []string      `json:"args"`
		Cwd     string        `json:"cwd"`
		Stdin   digest.Digest `json:"stdin"`
		Given   bool          `json:"given"`
		Timeout time.Duration `json:"timeout"`
		Dir     string        `json:"dir"`
	}{r.in.Args, r.in.Cwd, digest.FromBytes(r.in.Stdin), r.in.Stdin != nil, r.in.Timeout, r.call.Workspace.Path})
	return askState{
		Tool: r.call.Method, Skill: f.skill.Path, Path: f.path, Tree: f.index.TreeDigest,
		Call:      digest.NewDigestFromBytes(digest.SHA256, s.approver.mac(call)),
		Principal: r.call.Principal.Name, Session: s.id,
	}
}

// approval returns what an approval of the script for the rest of the session would cover.
func (f *scriptFile) approval() approvalKey {
	return approvalKey{skill: f.skill.Path, path: f.path, tree: f.index.TreeDigest}
}

// ask records that the user is asked about a run and returns the question.
//
// Errors: *Question, *policy.Denial, *Error.
func (s *Session) ask(ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired) error {
	until := s.cfg.Now().Add(AskLife)
	state, key := s.asked(r, f), declinedKey{r.call.Principal.Name, f.approval()}
	state.Expires, state.Nonce = until.Unix(), rand.Text()
	if !s.approver.begin(key, state.Nonce, until, s.cfg.Now()) {
		return r.denial(askedAlready, f.skill.Path, f.path)
	}
	row := cfharness.ScriptRequest{
		Type: cfharness.TypeScriptRequest, OutputID: r.output, Args: r.secrets.Texts(r.in.Args),
		CWD: r.secrets.Text(r.in.Cwd), Target: string(needs.Target), Digest: f.file.Digest,
	}
	if r.in.Stdin != nil {
		row.Stdin = cfharness.SummarizeText(r.secrets.Bytes(r.in.Stdin))
	}
	err := s.append(ctx, &provenance.Event{
		Kind: provenance.KindApprovalAsked, Skill: f.skill.Path, Path: f.path, Want: state.Tree.String(),
		Detail: fmt.Sprintf("%s; call %s", needs.Denial.Code, state.Call), Row: encode(row),
	})
	if err != nil {
		s.approver.withdraw(key, state.Nonce)
		return err
	}
	return &Question{Message: s.question(r, f, needs), State: s.approver.seal(state), Remember: needs.Remember, Until: until}
}

// answered checks the answer to a question about a run and records it. It returns nil if the answer
// approves the run.
//
// Errors: *policy.Denial, *Error.
func (s *Session) answered(ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired) error {
	answer := r.in.Answer
	failure := s.approver.open(answer.State, s.asked(r, f), s.cfg.Now())
	if failure == nil && answer.Remember && !needs.Remember {
		failure = errUnasked
	}
	accepted := failure == nil && answer.Action == "accept"
	detail := clip(answer.Action)
	switch {
	case failure != nil:
		detail = "not accepted: " + failure.Error()
	case accepted && answer.Remember:
		detail = cfharness.ApprovalRemembered
	}
	err := s.append(ctx, &provenance.Event{
		Kind: provenance.KindApprovalAnswered, Skill: f.skill.Path, Path: f.path, Want: f.index.TreeDigest.String(),
		Detail: detail, Row: r.row(),
	})
	if err != nil {
		return err
	}
	switch {
	case failure != nil:
		return r.denial(answerInvalid, f.skill.Path, f.path, "{cause}", failure.Error())
	case !accepted:
		// A call that was canceled took its question with it: the user has said nothing.
		if ctx.Err() == nil {
			s.approver.refused(declinedKey{r.call.Principal.Name, f.approval()}, s.cfg.Now())
		}
		row := userSilent
		if answer.Action == "decline" {
			row = userDeclined
		}
		return r.denial(row, f.skill.Path, f.path, "{remedy}", needs.Denial.Remedy)
	case answer.Remember:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.approved[f.approval()] = true
	}
	return nil
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

// tired reports whether the user is not to be asked about a script by a call.
func (s *Session) tired(call Call, f *scriptFile) bool {
	return s.approver.tired(declinedKey{call.Principal.Name, f.approval()}, s.cfg.Now())
}

// question is what the user reads: facts of the server, and what the model chose in quotes. Clients
// show the first few lines and fold the rest, so the whole of it is four.
func (s *Session) question(r *run, f *scriptFile, needs *policy.ApprovalRequired) string {
	where := "in a sandbox"
	if needs.Target == policy.TargetHost {
		where = "on this machine, WITHOUT a sandbox"
	}
	call := quoteArgs(r.secrets.Texts(r.in.Args))
	if r.in.Cwd != "" {
		call += "; directory: " + strconv.QuoteToASCII(clip(r.secrets.Text(r.in.Cwd)))
	}
	if r.in.Stdin != nil {
		call += fmt.Sprintf("; input: %d bytes, %s", len(r.in.Stdin), digest.FromBytes(r.secrets.Bytes(r.in.Stdin)))
	}
	why := "Asked because the skill's origin or the operator demands it."
	if needs.Denial.Code == policy.CodeDirectCommandRequired {
		why = "Asked because nothing shows that a user wants this run."
	}
	return fmt.Sprintf("Run %s of the skill %s (%s) %s?\narguments: %s\nit can use: %s\n%s %s",
		f.path, f.skill.Path, f.skill.Root.Tier, where, call, s.reach(r.call, needs), why, f.file.Digest)
}

// reach is what a run can use besides the files of its skill, in words for a user.
func (s *Session) reach(call Call, needs *policy.ApprovalRequired) string {
	var uses []string
	switch {
	case !s.hasWorkspace(call) || needs.Entry.Workspace == string(sandbox.WorkspaceNone):
	case s.clientNames(call):
		uses = append(uses, "workspace: the directory the client works in")
	default:
		uses = append(uses, "workspace: "+string(narrower(s.cfg.Workspace.Mode, needs.Entry)))
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
