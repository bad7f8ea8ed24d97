package session

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/policy"
)

// Error is an error for the client that is not a denial.
type Error = fault.Error

const remedyWithheld = "the user can read it in the record of this session, by the handle"

// refusal is a row of the table of denials for facts that the policy does not evaluate.
type refusal struct {
	code           policy.Code
	detail, remedy string // with words in braces; an empty remedy is the one of the code
	plain          string // the detail in words for a user, if detail is the reference's text
	// operator is the remedy with flags and commands, which clients are not shown; "": the remedy of the row,
	// or else that of the code for the operator.
	operator string
	rule     string // "": the code
}

// The table of these denials, by code.
var (
	handleUnknown = refusal{code: policy.CodeActivationUnknown,
		detail: "the activation handle is unknown or has expired"}
	skillExcluded = refusal{code: policy.CodeProfileExcludes, rule: "subagent_profile_not_allowed",
		detail:   "the profile of this session does not include the skill {name}",
		remedy:   "{nearest}do without it, or ask the user whether this session should have it",
		operator: "the user can add the skill to the profile"}
	fileOutsideRoot = refusal{code: policy.CodeResourceOutsideRoot,
		detail: "the file lies outside of its skill"}
	fileNotReadable = refusal{code: policy.CodePermissionDenied,
		detail: "the server may not read this file", remedy: "the user can make the file readable for it"}
	scriptDiffers = refusal{code: policy.CodeScriptSnapshotMismatch,
		plain:  "the script differs from the one that was loaded",
		detail: "Skill script differs from the run-start registry snapshot; refusing to execute active code.",
		remedy: treeDiffers.remedy, operator: treeDiffers.operator}
	treeDiffers = refusal{code: policy.CodeScriptSnapshotMismatch,
		detail: "the skill's files differ from those that were loaded and allowed{file}",
		remedy: "ask the user to review the change and to allow the script again; then load the skill " +
			"again",
		operator: "the user can review the change and allow the script again; then load the skill again"}
	loadedOld = refusal{code: policy.CodeScriptSnapshotMismatch,
		detail: "the skill changed since it was loaded, and the script is allowed as it is now",
		remedy: "call load_skill again, then run the script again"}
	// tampered changes the remedies of a denial.
	tampered = refusal{
		remedy: "somebody changed the files of this installed skill; ask the user to bring back what was " +
			"installed, with `skillsd sync` in a terminal of their own, then load the skill again",
		operator: "files of the skill were changed where it is installed, and not by an update: " +
			"`skillsd sync` brings back what was installed; then load the skill again"}
	skillRemoved = refusal{code: policy.CodeScriptSnapshotMismatch,
		detail:   "the skill {name} was removed or disabled",
		remedy:   "do without it, or ask the user to put it back as it was",
		operator: "the user can put the skill back as it was"}
	outputOpaque = refusal{code: policy.CodeOutputOpaque,
		detail: "{stream} was not released by CFC policy", remedy: remedyWithheld}
	outputDenied = refusal{code: policy.CodeOutputNotReleased, detail: "{reason}", remedy: remedyWithheld}
	askedAlready = refusal{code: policy.CodeApprovalDeclined,
		detail: "the user is being asked about this script already",
		remedy: "wait for the answer to the calls before"}
	declinedOften = refusal{code: policy.CodeApprovalDeclined,
		detail: "the user has declined this script several times",
		remedy: "ask the user in the conversation; they can be asked again in an hour. If they changed " +
			"their mind: {remedy}"}
	answerInvalid = refusal{code: policy.CodeApprovalDeclined,
		detail: "the answer to the approval does not count: {cause}",
		remedy: "call the tool again and let the user answer"}
	stateForged = refusal{code: policy.CodeApprovalDeclined, rule: RuleStateForged,
		detail: "requestState is not of a question that this server asked, or it was restarted since",
		remedy: "call the tool again without requestState, so that the user is asked anew"}
	waitsHere = refusal{code: policy.CodeApprovalRequired,
		remedy: "ask the user to type `skillsd approve {code}` in a terminal of their own within ten " +
			"minutes; then make this call again, unchanged",
		operator: "to approve this call, within ten minutes: `skillsd approve {code}`, then make it again"}
	waitsThere = refusal{code: policy.CodeApprovalRequired,
		remedy: "ask the user to have the call {code} approved within ten minutes, by `skillsd approve " +
			"{code}` where the server runs, or on its page if it has one; then make this call again, " +
			"unchanged",
		operator: waitsHere.operator}
	clientCannotAsk = refusal{code: policy.CodeApprovalRequired,
		remedy: "the user was not asked: this client cannot ask; {remedy}"}
	clientFailed = refusal{code: policy.CodeApprovalRequired,
		detail: "the user was not asked: the client answered with an error", remedy: "{remedy}"}
	clientAnswered = refusal{code: policy.CodeApprovalRequired,
		detail: "the user was not asked: the client answered by itself, sooner than a person can",
		remedy: "claude -p, codex exec and clients that may not ask do so; {remedy}"}
	formUnfilled = refusal{code: policy.CodeApprovalRequired,
		detail: "the form came back without a decision",
		remedy: "call the tool again and let the user choose a decision, or {remedy}"}
	userDeclined = refusal{code: policy.CodeApprovalDeclined, detail: "the user declined"}
	userSilent   = refusal{code: policy.CodeApprovalRequired,
		detail: "the question to the user was closed without an answer",
		remedy: "{remedy}"}
)

// RuleStateForged is the rule of the denial of a call with a state that this server did not issue. Such a
// call violates the protocol.
const RuleStateForged = "request_state_forged"

// denial returns the denial of a row for a request about a file of a skill; skill and path may be empty.
func (r *request) denial(why refusal, skill, path string, words ...string) *policy.Denial {
	fill := strings.NewReplacer(words...)
	// The reason of a runtime may begin with the method.
	method := r.call.Method + ": "
	detail := method + strings.TrimPrefix(fill.Replace(why.detail), method)
	d := policy.NewDenial(why.code, detail, fill.Replace(cmp.Or(why.remedy, why.code.Remedy())))
	d.Plain = fill.Replace(cmp.Or(why.plain, why.detail))
	d.Skill, d.Path = skill, path
	d.Operator = fill.Replace(cmp.Or(why.operator, why.remedy, why.code.Operator()))
	if why.rule != "" {
		d.RuleID = why.rule
	}
	return d
}

// readError returns the error for the client for an error of reading a skill's file. The caller maps files
// outside the root and files without permission, which are denials.
func readError(err error, sk *skills.Skill, path string) *Error {
	quoted := fault.Quote(path)
	if invalid, ok := errors.AsType[*frontmatter.Error](err); ok {
		return fault.ResourceInvalid.Because(err, "{path}", quoted, "{reason}", policy.Clip(invalid.Error()))
	}
	if _, ok := errors.AsType[*skills.DriftError](err); ok {
		return fault.ResourceChanging.Because(err, "{path}", quoted)
	}
	switch {
	case errors.Is(err, skills.ErrNotIndexed):
		return fault.ResourceNotIndexed.Because(err, "{skill}", sk.Path, "{path}", fault.Plain(path))
	case (errors.Is(err, skills.ErrNotFound) || errors.Is(err, fs.ErrNotExist)) && sk.Gone():
		return fault.SkillRemoved.Because(err, "{name}", fault.Quote(sk.Path))
	case errors.Is(err, skills.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fault.ResourceGone.Because(err, "{path}", quoted)
	case errors.Is(err, skills.ErrTooLarge):
		return fault.ResourceTooLarge.Because(err, "{path}", quoted)
	case errors.Is(err, skills.ErrNotFile), errors.Is(err, skills.ErrOutsideRoot):
		return fault.ResourceNotFile.Because(err, "{path}", fault.Plain(path))
	}
	return fault.Internal(err)
}
