package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// AskLife is how long a user has to answer a question.
const AskLife = 5 * time.Minute

// pollApproval is the interval at which AwaitApproval looks for the decision about a waiting call.
const pollApproval = time.Second

// Question is the question that a user must answer before a script may run. It is an error of
// [Session.RunScript], which is called again with the answer.
type Question struct {
	approval.Form
	State    string // opaque, bound to exactly this call; the client returns it with the answer
	Remember bool   // whether the answer may hold for the rest of the session
	Until    time.Time
}

func (q *Question) Error() string { return "a user must approve the run" }

// Answer is the answer to a Question. Only State, which the server sealed, is trusted.
type Answer struct {
	State    string
	Action   string         // accept, decline or cancel
	Remember bool           // allow the present version of the script for the rest of the session
	Content  map[string]any // of the form; the answer is invalid if a field of the question was edited

	// Chosen is set if the user decided: the answer has a decision other than the form's default, or was
	// typed at a terminal of this process.
	Chosen bool
	// Unclear is set if the form was accepted without a decision, or with one that it does not offer.
	Unclear bool
	// Failed is set if the client could not ask, although it declares that it can.
	Failed bool
}

// automatic reports whether a client gave the answer, of an age, without its user. A form that was returned
// unchanged is a decision of the user only if there was time to read it.
func (a *Answer) automatic(age time.Duration) bool {
	least := approval.Least
	if a.Action == "accept" {
		least = approval.Quickest
	}
	return !a.Chosen && age < least
}

// questionState returns the state of a question about a run. It is bound to the call and to everything that
// the run could use, which a change of the configuration may widen while the question waits.
func (s *Session) questionState(r *run, f *scriptFile, needs *policy.ApprovalRequired) approval.State {
	call := []byte(s.callDigest(r, f, needs))
	return approval.State{Tool: r.call.Method, Skill: f.skill.Path, Path: f.path, Tree: f.index.TreeDigest,
		Call: s.approver.Digest(call), ID: r.id, Principal: r.call.Principal.Name, Session: s.id}
}

// approval returns the key of an approval of the script for the rest of the session, without the workspace.
func (f *scriptFile) approval() approval.Key {
	return approval.Key{Skill: f.skill.Path, Path: f.path, Tree: f.index.TreeDigest}
}

// ask records that the user is asked about a run and returns the question.
//
// Errors: *Question; *policy.Denial if the same question is open already; *Error.
func (s *Session) ask(ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired) error {
	until := s.cfg.Now().Add(AskLife)
	state := s.questionState(r, f, needs)
	form, err := s.question(r, f, needs)
	if err != nil {
		return err
	}
	if asked, err := s.approver.Begin(ctx, &state, form, until, s.cfg.Now()); err != nil {
		return fault.OfRecord(err)
	} else if !asked {
		return r.denial(askedAlready, f.skill.Path, f.path)
	}
	row := cfharness.ScriptRequest{
		Type: cfharness.TypeScriptRequest, OutputID: r.output, Args: r.secrets.Texts(r.in.Args),
		CWD: r.secrets.Text(r.in.Cwd), Target: string(needs.Target), Digest: f.file.Digest,
	}
	if r.in.Stdin != nil {
		row.Stdin = cfharness.SummarizeText(r.secrets.Bytes(r.in.Stdin))
	}
	err = s.append(ctx, r.request, &provenance.Event{
		Kind: provenance.KindApprovalAsked, Skill: f.skill.Path, Path: f.path, Want: state.Tree.String(),
		Detail: fmt.Sprintf("%s; call %s", needs.Denial.Code, state.Call), Row: encode(row),
	})
	// A question without a record is not asked. If it stayed open, it would keep the next call from asking.
	if err != nil {
		s.approver.Withdraw(ctx, &state, s.cfg.Now())
		return err
	}
	// The call is made again with the answer, under the same output id.
	s.mu.Lock()
	delete(s.taken, r.output)
	s.mu.Unlock()
	return &Question{Form: form, State: s.approver.Seal(&state), Remember: needs.Remember && form.Whole,
		Until: until}
}

// answered checks the answer to a question about a run and records it. It returns nil if the answer
// approves the run.
//
// Errors: *policy.Denial; *Error.
func (s *Session) answered(ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired) error {
	reply, err := s.replyOf(ctx, r, f, needs)
	if err != nil {
		return err
	}
	// The record has every answer, valid or not, before the answer has an effect.
	err = s.append(ctx, r.request, &provenance.Event{Kind: provenance.KindApprovalAnswered,
		Skill: f.skill.Path, Path: f.path, Want: f.index.TreeDigest.String(), Detail: reply.detail(),
		Row: encode(cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest, OutputID: r.output})})
	if err != nil {
		return err
	}
	switch {
	case reply.invalid == approval.ErrForged && reply.State != "":
		return r.denial(stateForged, f.skill.Path, f.path)
	case reply.invalid == approval.ErrNoChoice:
		return s.unapproved(ctx, r, f, formUnfilled, needs)
	case reply.invalid != nil:
		return r.denial(answerInvalid, f.skill.Path, f.path, "{cause}", reply.invalid.Error())
	case reply.Failed:
		return s.unapproved(ctx, r, f, clientFailed, needs)
	case reply.silent:
		return s.unapproved(ctx, r, f, clientAnswered, needs)
	case reply.Action == "decline":
		return s.declined(ctx, r, f, needs)
	case !reply.accepts():
		// A window that was closed, and a call that was cancelled, are no refusal by the user.
		return s.unapproved(ctx, r, f, userSilent, needs)
	case reply.Remember:
		s.keepApproval(r, f)
	}
	return nil
}

// reply is an answer that was compared with its question.
type reply struct {
	*Answer
	invalid error // why the answer is not valid for the question, or nil
	silent  bool  // the client answered without its user; false if the answer is invalid
}

// replyOf compares the answer of a run with its question. The first reason decides: a state that the server
// did not issue, then a client that answered without its user, then faults of the form.
//
// Errors: *Error.
func (s *Session) replyOf(
	ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired,
) (*reply, error) {
	answer := r.in.Answer
	age, err := s.approver.Open(ctx, answer.State, s.questionState(r, f, needs), s.cfg.Now())
	if errors.Is(err, approval.ErrUnknown) {
		return nil, fault.OfRecord(err)
	}
	form, failure := s.question(r, f, needs)
	if failure != nil {
		return nil, failure
	}
	switch {
	case err != nil:
		return &reply{Answer: answer, invalid: err}, nil
	// A canceled call also ends its question within the time of an automatic answer, but its client did not
	// answer.
	case ctx.Err() == nil && (answer.Failed || answer.automatic(age)):
		return &reply{Answer: answer, silent: true}, nil
	case answer.Unclear:
		return &reply{Answer: answer, invalid: approval.ErrNoChoice}, nil
	case answer.Remember && !(needs.Remember && form.Whole):
		return &reply{Answer: answer, invalid: approval.ErrUnasked}, nil
	case form.Edited(answer.Content):
		return &reply{Answer: answer, invalid: approval.ErrEdited}, nil
	}
	return &reply{Answer: answer}, nil
}

// accepts reports whether the user approved the run.
func (r *reply) accepts() bool { return r.invalid == nil && !r.silent && r.Action == "accept" }

// detail returns the record's text about the answer.
func (r *reply) detail() string {
	switch {
	case r.silent:
		return cfharness.ApprovalNotAsked + policy.Clip(r.Action)
	case r.invalid != nil:
		return "not accepted: " + r.invalid.Error()
	case r.accepts() && r.Remember:
		return cfharness.ApprovalRemembered
	}
	return policy.Clip(r.Action)
}

// declined registers that the user refused a script, and returns the denial.
//
// Errors: *policy.Denial; *Error.
func (s *Session) declined(ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired) error {
	err := s.approver.Refused(ctx, r.call.Principal.Name, f.approval(), s.cfg.Now())
	if err != nil {
		return fault.OfRecord(err)
	}
	denial := r.denial(userDeclined, f.skill.Path, f.path)
	denial.Operator = needs.Denial.Operator
	return denial
}

// keepApproval keeps the approval of a script for the rest of the session.
func (s *Session) keepApproval(r *run, f *scriptFile) {
	key := s.approvalFor(r.request, r.call, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Rules that were replaced meanwhile may not have the entry, and their approvals were deleted already.
	if r.rules.number == s.Replacements() {
		s.approved[key] = true
	}
}

// unapproved returns the denial of a run without an approval: the user was not asked or did not answer. row
// has the reason. If the call can wait, the denial has the code by which the user can approve it elsewhere.
//
// Errors: *policy.Denial; *Error for a project that cannot be mounted.
func (s *Session) unapproved(
	ctx context.Context, r *run, f *scriptFile, row refusal, needs *policy.ApprovalRequired,
) error {
	form, err := s.form(r, f, needs, false)
	if err != nil {
		return err
	}
	denial := *needs.Denial
	denial.ApprovalCode = s.offer(ctx, r, f, needs, form)
	where := &waitsHere
	if r.call.Remote {
		where = &waitsThere
	}
	if denial.ApprovalCode != "" {
		waits := r.denial(*where, denial.Skill, denial.Path, "{code}", denial.ApprovalCode)
		denial.Remedy, denial.Operator = waits.Remedy, waits.Operator+"; "+denial.Operator
	}
	d := r.denial(row, denial.Skill, denial.Path, "{remedy}", denial.Remedy)
	denial.Remedy = d.Remedy
	if row.detail != "" {
		denial.Detail, denial.Plain, denial.Code, denial.RuleID = d.Detail, d.Plain, d.Code, d.RuleID
	}
	return &denial
}

// callDigest returns the digest of a call and of everything that its run could use: an approval is valid for
// calls with the same digest. It does not cover the session, since the next call of a client without a
// terminal may come from a new process.
func (s *Session) callDigest(r *run, f *scriptFile, needs *policy.ApprovalRequired) digest.Digest {
	return digest.FromBytes(encode([]any{r.call.Principal.Name, r.call.Method, f.skill.Path, f.path,
		f.file.Digest, f.index.TreeDigest, r.in.Args, r.in.Cwd, digest.FromBytes(r.in.Stdin),
		r.in.Stdin != nil, r.in.Timeout, s.mounted(r.rules, r.call), needs.Entry, needs.Target,
		needs.Tier, r.mode}))
}

// mounted returns the mode and the resolved path of the workspace of a call, or "". An approval is valid for
// no other directory, and for no wider access.
func (s *Session) mounted(rules *inForce, call Call) string {
	workspace, named, err := s.openWorkspace(rules, call)
	if err != nil {
		return call.Workspace.Path + ": " + err.Error()
	}
	if named {
		defer workspace.Dir.Close()
	}
	if workspace.Dir == nil {
		return ""
	}
	return string(workspace.Mode) + " " + workspace.Dir.Name()
}

// approvalFor returns the key of an approval of the script for the rest of the session, in the workspace of a
// call.
func (s *Session) approvalFor(r *request, call Call, f *scriptFile) approval.Key {
	key := f.approval()
	key.Project = s.mounted(r.rules, call)
	return key
}

// offer registers a call that waits for the user's decision, and returns its code, or "" if it cannot wait.
func (s *Session) offer(
	ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired, form approval.Form,
) string {
	if s.cfg.Codes == nil || ctx.Err() != nil {
		return ""
	}
	code, err := s.cfg.Codes.Offer(ctx, s.callDigest(r, f, needs), approval.Waiting{
		Principal: r.call.Principal.Name, Session: s.id, Client: s.client, Script: f.file.Digest,
		Tree: f.index.TreeDigest, Text: form.Message}, s.cfg.Now())
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "a call cannot wait for an approval", tint.Err(err))
		return ""
	}
	return code
}

// AwaitApproval returns when the call with a code has been approved elsewhere, when it can no longer be
// approved, or when ctx ends.
func (s *Sessions) AwaitApproval(ctx context.Context, code string) {
	if s.cfg.Codes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, approval.CodeLife)
	defer cancel()
	ticker := time.NewTicker(pollApproval)
	defer ticker.Stop()
	for {
		// Any other error, such as a cluster that does not respond, does not mean that the call is gone.
		if _, err := s.cfg.Codes.Find(ctx, code, s.cfg.Now()); errors.Is(err, approval.ErrNoCall) {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// givenByCode reports whether a user approved the call outside of their client, and records the approval.
// An approval is used up by one call.
//
// Errors: *Error.
func (s *Session) givenByCode(
	ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired,
) (bool, error) {
	if s.cfg.Codes == nil || r.in.Answer != nil {
		return false, nil
	}
	by, err := s.cfg.Codes.Take(ctx, s.callDigest(r, f, needs), s.cfg.Now())
	// Without the ledger's answer the call is not approved, but its user can still be asked.
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "cannot look up whether a call was approved", tint.Err(err))
	}
	if by == "" {
		return false, nil
	}
	// The user is willing again: earlier refusals of the script no longer keep it from asking.
	if err := s.approver.Willing(ctx, r.call.Principal.Name, f.approval(), s.cfg.Now()); err != nil {
		return false, fault.OfRecord(err)
	}
	return true, s.append(ctx, r.request, &provenance.Event{Kind: provenance.KindApprovalAnswered,
		Skill: f.skill.Path, Path: f.path, Want: f.index.TreeDigest.String(),
		Detail: cfharness.ApprovalBy + policy.Clip(by),
		Row:    encode(cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest, OutputID: r.output})})
}

// tired reports whether the user declined a script so often that a call must not ask about it for a while.
func (s *Session) tired(ctx context.Context, call Call, f *scriptFile) bool {
	return s.approver.Tired(ctx, call.Principal.Name, f.approval(), s.cfg.Now())
}

// question returns the form that the user reads: facts of the server, and the model's words in quotes.
//
// Errors: *Error for a project that cannot be mounted.
func (s *Session) question(
	r *run, f *scriptFile, needs *policy.ApprovalRequired,
) (approval.Form, error) {
	return s.form(r, f, needs, r.in.Fields)
}

// form is question, with or without fields.
func (s *Session) form(
	r *run, f *scriptFile, needs *policy.ApprovalRequired, fields bool,
) (approval.Form, error) {
	reach, err := s.reach(r, needs)
	if err != nil {
		return approval.Form{}, err
	}
	facts := approval.Facts{Script: f.path, Skill: f.skill.Path, Tier: f.skill.Root.Tier.String(),
		OnHost: needs.Target == policy.TargetHost, Reach: reach,
		Reason: whyAsked(needs), Cwd: r.secrets.Text(r.in.Cwd), Args: r.secrets.Texts(r.in.Args)}
	if r.in.Stdin != nil {
		facts.Stdin = r.secrets.Bytes(r.in.Stdin)
	}
	return facts.Form(fields), nil
}

// whyAsked returns why a user is asked, in words for any user: on a page, another one may read them.
func whyAsked(needs *policy.ApprovalRequired) string {
	switch {
	case needs.Entry.Ask == policy.AskAlways:
		return "asked because your configuration lets you decide about each run of it"
	case needs.Tier.Scripts() >= skills.ConsentApproval:
		return "asked because the skill is " + needs.Tier.String()
	}
	return "asked because you have not yet let this script run without asking"
}

// project returns the workspace of an entry's run and what happens to changes in it, in words for a user, or
// "". A remote client does not see the path of the server's workspace.
//
// Errors: *Error for a directory of the client that cannot be mounted.
func (s *Session) project(r *run, entry policy.Entry) (string, error) {
	if !s.hasWorkspace(r.rules, r.call) || entry.Workspace == string(sandbox.WorkspaceNone) {
		return "", nil
	}
	workspace, named, err := s.openWorkspace(r.rules, r.call)
	if err != nil {
		return "", fault.WorkspaceDenied.Because(err)
	}
	name := "the server's directory"
	switch {
	case named:
		_ = workspace.Dir.Close()
		name = r.call.Workspace.Path
	case !r.call.Remote && workspace.Dir != nil:
		name = workspace.Dir.Name()
	}
	name = approval.Visible(r.secrets.Text(name))
	switch narrower(workspace.Mode, entry) {
	case sandbox.WorkspaceRO:
		return name + " (read-only)", nil
	case sandbox.WorkspaceStaged:
		return name + " (changes are checked, then kept)", nil
	}
	return name + " (changes are kept)", nil
}

// reach returns what a run can use apart from the files of its skill, in words for a user.
//
// Errors: *Error for a project that cannot be mounted.
func (s *Session) reach(r *run, needs *policy.ApprovalRequired) (string, error) {
	var uses []string
	project, err := s.project(r, needs.Entry)
	if err != nil {
		return "", err
	}
	if project != "" {
		uses = append(uses, "project "+project)
	}
	if len(needs.Entry.Network) > 0 {
		uses = append(uses, "network: "+strings.Join(needs.Entry.Network, ", "))
	}
	if names := slices.Concat(needs.Entry.Env, needs.Entry.Secrets); len(names) > 0 {
		uses = append(uses, "environment: "+strings.Join(names, ", "))
	}
	if needs.Entry.Environment != "" {
		uses = append(uses, "packages of "+needs.Entry.Environment)
	}
	if needs.Target == policy.TargetHost {
		uses = append(uses, "everything this user can")
	} else if len(uses) == 0 {
		return "only the files of its skill; no project, no network", nil
	}
	return strings.Join(uses, "; "), nil
}
