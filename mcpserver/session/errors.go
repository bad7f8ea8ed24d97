package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/policy"
)

// Code names a plain error: one that is neither a denial nor a failure of the server's own.
// The words are the reference's where it has one.
type Code string

// The closed list of plain error codes.
const (
	CodeInvalidArguments      Code = "invalid_arguments"
	CodePromptSlotInvalid     Code = "prompt_slot_invalid"
	CodeSkillNotFound         Code = "skill_not_found"
	CodeSkillAmbiguous        Code = "skill_ambiguous"
	CodeResourcePathInvalid   Code = "resource_path_invalid"
	CodeResourceNotIndexed    Code = "resource_not_indexed"
	CodeResourceNotFound      Code = "resource_not_found"
	CodeResourceNotFile       Code = "resource_not_file"
	CodeResourceChanged       Code = "resource_changed"
	CodeScriptPathInvalid     Code = "script_path_invalid"
	CodeScriptNotIndexed      Code = "script_not_indexed"
	CodeResourceNotScript     Code = "resource_not_script"
	CodeUnsupportedRuntime    Code = "unsupported_runtime"
	CodeInterpreterNotFound   Code = "interpreter_not_found"
	CodeEnvironmentNotMade    Code = packages.NotMade
	CodeEnvironmentChanged    Code = packages.Changed
	CodeEnvironmentForeign    Code = packages.InterpreterChanged
	CodeEnvironmentUnusable   Code = packages.Unsupported
	CodeCwdDenied             Code = "cwd_denied"
	CodeEnvDenied             Code = "env_denied"
	CodeSandboxUnavailable    Code = "sandbox_unavailable"
	CodeOutcomeUnknown        Code = "outcome_unknown"
	CodeProvenanceUnavailable Code = "provenance_unavailable"
	CodeRecordsFull           Code = "records_full"
	CodeServerBusy            Code = "server_busy"
	CodeSessionMoved          Code = "session_moved"
	CodeInternal              Code = "internal"
)

// Error is a plain error. Message and Remedy are public: they hold no host path. Err is the
// private cause, for the log only.
type Error struct {
	Code    Code
	Message string
	Remedy  string
	Err     error

	Output    any  // the reference's output object of the call that failed; nil if there is none
	Rescanned bool // the registry was brought up to date because of this error
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.Err }

// failure is a row of the table of plain errors. Its texts have words in braces, which because fills;
// {cause} is the text of the error that led to it.
type failure struct {
	code            Code
	message, remedy string
}

// environmentError returns the error of a run that does not get its environment.
func environmentError(err error) error {
	if refusal, ok := errors.AsType[*packages.Refusal](err); ok {
		return &Error{Code: Code(refusal.Code), Message: refusal.Message, Remedy: refusal.Remedy, Err: err}
	}
	return Internal(err)
}

// because returns the plain error of a row, with words in pairs in the place of their names.
func (f failure) because(err error, words ...string) *Error {
	if public, ok := errors.AsType[*Error](err); ok {
		err = public.Err // its own text would be the message again
	}
	if err != nil {
		words = append(words, "{cause}", err.Error())
	}
	// A Replacer makes one pass: names in the words of the caller are not replaced.
	fill := strings.NewReplacer(words...)
	return &Error{Code: f.code, Message: fill.Replace(f.message), Remedy: fill.Replace(f.remedy), Err: err}
}

const (
	remedyBusy = "call again in 10 seconds; if it stays so, the operator can raise the limit of open files " +
		"(ulimit -n, LimitNOFILE=)"
	remedyWithheld = "the user can read it in the record of this session, by the handle"
	remedyFiles    = "use the path of a script from the skill's file list"
)

// The table of plain errors, by code.
var (
	argumentsInvalid = failure{CodeInvalidArguments, "{cause}", "shorten or mend the arguments"}
	parentUnknown    = failure{CodeInvalidArguments, "the parent {name} is not a session of this principal",
		"call in the parent's session first, and name the parent as that call did or by the runId of its " +
			"records"}
	stdinTaken = failure{CodeInvalidArguments,
		"the script takes no stdin: it is handed to its interpreter there",
		"leave stdin out, and pass the text as an argument"}

	skillAmbiguous = failure{CodeSkillAmbiguous, "{name} names more than one skill: {paths}",
		"use one of these paths"}
	skillNotFound = failure{CodeSkillNotFound, "skill not found in registry: {name}",
		"use the exact name of a configured skill"}
	skillNotServed = failure{CodeSkillNotFound, "skill {name} is not served: {reason}", ""}

	resourcePathInvalid = failure{CodeResourcePathInvalid, "resource {cause}",
		"use a path from the skill's file list, relative to the skill, with / between names"}
	resourceNotIndexed = failure{CodeResourceNotIndexed,
		"resource not found in run-start registry for skill {skill}: {path}",
		"use a path from the skill's file list, relative to the skill"}
	resourceNotServed = failure{CodeResourceNotIndexed, "{path} is not served: {reason}",
		"use a path from the skill's file list, relative to the skill"}
	resourceUnknown = failure{CodeResourceNotFound, "no resource {uri}",
		"list the resources for the URIs there are"}
	resourceGone = failure{CodeResourceNotFound, "{path} is no longer there",
		"call load_skill again for the current file list"}
	artifactUnknown = failure{CodeResourceNotFound, "no resource {uri} in this session",
		"check the name; over HTTP, name the session too: a program by skillsd/session in _meta, a " +
			"model by ?activation=HANDLE after the URI, the handle that load_skill returned"}
	resourceNotFile = failure{CodeResourceNotFile, "resource is not a file: {path}",
		"use the path of a file from the skill's file list"}
	artifactTooLarge = failure{CodeResourceNotFile, "{path} is too large to be sent",
		"the operator finds it in the session's directory"}
	resourceInvalid = failure{CodeResourceChanged, "{path} changed and cannot be loaded: {reason}",
		"use another skill; its author finds what is wrong with `skillsd validate`"}
	resourceChanging = failure{CodeResourceChanged, "{path} is being changed", "try again"}
	resourceTooLarge = failure{CodeResourceChanged, "{path} changed and is now too large to read",
		"call load_skill again for the current file list"}
	resourceChanged = failure{CodeResourceChanged, "{path} changed since it was indexed",
		"call load_skill again for the current version"}
	resourceRelisted = failure{CodeResourceChanged, "{uri} changed since it was listed",
		"list the resources again and read the current one"}

	scriptPathInvalid = failure{CodeScriptPathInvalid, "{cause}",
		"use the path of a script below scripts/, as load_skill lists it"}
	scriptNotIndexed = failure{CodeScriptNotIndexed,
		"script not found in run-start registry for skill {skill}: {path}", "{instead}"}
	scriptIsDirectory = failure{CodeResourceNotScript, "the path is a directory", remedyFiles}
	resourceNotScript = failure{CodeResourceNotScript, "resource is not a script resource: {path}",
		remedyFiles}

	runtimeUnsupported = failure{CodeUnsupportedRuntime,
		"unsupported skill script runtime for {path}: {problem}",
		"bash, sh, python3, node and deno scripts run, with the shebang flags the documentation lists"}
	runtimeNotOnStdin = failure{CodeUnsupportedRuntime,
		"the script cannot be run on standard input: {problem}",
		"the operator can leave execution out of the script's entry"}
	interpreterNotFound = failure{CodeInterpreterNotFound, "there is no {runtime} that this script can use",
		"the operator can see why with `skillsd doctor`, install {runtime} and restart the server"}

	cwdDenied           = failure{CodeCwdDenied, "cwd {cwd}: {reason}", "{remedy}"}
	cwdWithoutWorkspace = failure{CodeCwdDenied,
		"no workspace is granted to this script, so it has no other directory than its own",
		"leave cwd out, or the operator can grant a workspace"}
	workspaceDenied = failure{CodeCwdDenied, "the workspace that the client names cannot be mounted: {cause}",
		"work in another directory, or ask the user for a server that does not take the client's"}
	envDenied = failure{CodeEnvDenied, "the script lacks what its entry is to hand it: {what}",
		"the operator can provide it and call again; the server's log has the cause"}

	sandboxFailed = failure{CodeSandboxUnavailable, "the sandbox did not start",
		"the operator can run `skillsd doctor`"}
	sandboxDetected = failure{CodeSandboxUnavailable, "scripts cannot be isolated here: {reason}", "{remedy}"}

	outcomeUnknown = failure{CodeOutcomeUnknown, "the script may have run in part, and is not run again: " +
		"{what} ended before it said what became of it",
		"look at what the script changes, and call again only if it may run twice"}

	recordUnavailable = failure{CodeProvenanceUnavailable,
		"the session's record cannot be written, so nothing is read and nothing runs",
		"ask the user to free space, or to mend permissions, where the server keeps its records; " +
			"then call again"}
	recordsFull = failure{CodeRecordsFull,
		"the records of {principal} are full ({what}), so nothing more is read or runs for it; " +
			"others are served",
		"ask the user to have old sessions deleted with `skillsd session gc`, or the quota raised where " +
			"the server runs; a server with sessions.gc deletes them by itself; then call again"}
	recordWithoutFiles = failure{CodeServerBusy,
		"the server has too many files open to record this call, so nothing was shown and nothing ran",
		remedyBusy}
	outcomeUnrecorded = failure{CodeProvenanceUnavailable,
		"the script ran, but its record could not be written, so its output is withheld " +
			"and nothing more runs",
		recordUnavailable.remedy}

	filesExhausted = failure{CodeServerBusy, "the server has too many files open to do this", remedyBusy}
	runsCrowded    = failure{CodeServerBusy, "too many scripts wait for a run slot",
		"call again when some of them have ended"}
	runsLate = failure{CodeServerBusy, "no run slot was free in two minutes; runs that come " +
		"before this one: {before}", runsCrowded.remedy}
	readsCrowded = failure{CodeServerBusy, "too many parts of records are being read",
		"call again in 10 seconds"}
	sessionsInUse = failure{CodeServerBusy, "the server has too many sessions in use", readsCrowded.remedy}

	sessionMoved = failure{CodeSessionMoved, "the session is at another server now",
		"call again; what a script that was running did is in the record of the session only if it ended " +
			"before"}

	internalFailure = failure{CodeInternal, "the server could not do this",
		"the operator finds the cause in the server's log"}
)

// refusal is a row of the table of denials that facts call for which the policy does not know.
type refusal struct {
	code           policy.Code
	detail, remedy string // with words in braces
	operator       string // likewise, with flags and commands, which a client is not shown; empty: the remedy
	rule           string // empty: the code
}

// The table of these denials, by code.
var (
	handleUnknown = refusal{code: policy.CodeActivationUnknown,
		detail: "the activation handle is unknown or has expired",
		remedy: "call load_skill again and use the handle it returns"}
	skillExcluded = refusal{code: policy.CodeProfileExcludes, rule: "subagent_profile_not_allowed",
		detail:   "the profile of this session does not include the skill {name}",
		remedy:   "{nearest}do without it, or ask the user whether this session should have it",
		operator: "the operator can add the skill to the profile"}
	fileOutsideRoot = refusal{code: policy.CodeResourceOutsideRoot,
		detail: "the file lies outside of its skill",
		remedy: "the operator can put the file inside the skill"}
	fileNotReadable = refusal{code: policy.CodePermissionDenied,
		detail: "the server may not read this file", remedy: "the operator can make the file readable for it"}
	scriptDiffers = refusal{code: policy.CodeScriptSnapshotMismatch,
		detail: "Skill script differs from the run-start registry snapshot; refusing to execute active code.",
		remedy: treeDiffers.remedy, operator: treeDiffers.operator}
	treeDiffers = refusal{code: policy.CodeScriptSnapshotMismatch,
		detail:   "the skill's files differ from those that were loaded and allowed{file}",
		remedy:   "ask the user to review the change and to restart the server; then load the skill again",
		operator: "the operator can review the change and restart the server; then load the skill again"}
	outputOpaque = refusal{code: policy.CodeOutputOpaque,
		detail: "{stream} was not released by CFC policy", remedy: remedyWithheld}
	outputDenied = refusal{code: policy.CodeOutputNotReleased, detail: "{reason}", remedy: remedyWithheld}
	askedAlready = refusal{code: policy.CodeApprovalDeclined,
		detail: "the user is being asked about this script already",
		remedy: "wait for the answer to the calls before"}
	declinedOften = refusal{code: policy.CodeApprovalDeclined,
		detail: "the user has declined this script several times",
		remedy: "ask the user in the conversation; an hour later they can be asked again"}
	answerInvalid = refusal{code: policy.CodeApprovalDeclined,
		detail: "the answer to the approval does not count: {cause}",
		remedy: "call the tool again and let the user answer"}
	stateForged = refusal{code: policy.CodeApprovalDeclined, rule: RuleStateForged,
		detail: "requestState is not of a question that this server asked, or it was restarted since",
		remedy: "call the tool again without requestState, so that the user is asked anew"}
	clientCannotAsk = refusal{code: policy.CodeApprovalRequired,
		remedy: "nobody was asked, because this client cannot ask its user; {remedy}"}
	clientAnswered = refusal{code: policy.CodeApprovalRequired,
		detail: "nobody was asked: the client answered by itself",
		remedy: "a client without a terminal, such as claude -p or codex exec, and one that may not " +
			"ask, answers for its user; {remedy}"}
	userDeclined = refusal{code: policy.CodeApprovalDeclined,
		detail: "the user declined", remedy: "ask the user before you call the tool again"}
	userSilent = refusal{code: policy.CodeApprovalDeclined,
		detail: "the user did not answer", remedy: "ask the user before you call the tool again"}
)

// RuleStateForged is the rule of a denial of a call whose state no question of this server had: such a call
// is against the protocol.
const RuleStateForged = "request_state_forged"

// denial returns the denial of a row for a request about a file of a skill, both of which may be empty.
func (r *request) denial(why refusal, skill, path string, words ...string) *policy.Denial {
	fill := strings.NewReplacer(words...)
	d := policy.NewDenial(why.code, r.call.Method+": "+fill.Replace(why.detail), fill.Replace(why.remedy))
	d.Skill, d.Path, d.Operator = skill, path, cmp.Or(fill.Replace(why.operator), d.Remedy)
	if why.rule != "" {
		d.RuleID = why.rule
	}
	return d
}

// lookupError turns a failed lookup into the error a model can act on: the nearest names and,
// because a changed catalogue reaches no model through a tool description, the current ones.
func (s *Session) lookupError(call Call, err error) *Error {
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		return skillAmbiguous.because(err, "{name}", quote(ambiguous.Name), "{paths}",
			strings.Join(ambiguous.Paths, ", "))
	}
	missing, ok := errors.AsType[*skills.NotFoundError](err)
	if !ok {
		return Internal(err)
	}
	if !s.cfg.NamesInErrors {
		return skillNotFound.because(err, "{name}", plain(missing.Name))
	}
	snapshot := s.visible(call)
	reason := unserved(snapshot.Diagnostics, missing.Name+"/")
	for _, sk := range snapshot.Withheld {
		// An answer does not mention skills that the operator disabled.
		if status := snapshot.Status(sk); status.State == skills.StateUnavailable &&
			(sk.Path == missing.Name || sk.Name() == missing.Name) {
			reason = strings.Join(status.Reasons, "; ")
			break
		}
	}
	e := skillNotFound.because(err, "{name}", plain(missing.Name))
	if reason != "" {
		e = skillNotServed.because(err, "{name}", quote(missing.Name), "{reason}", reason)
	}
	if e.Remedy = oneOf(missing); missing.Total == 0 {
		e.Remedy = "no skills are configured; ask the user to install some"
	}
	return e
}

// oneOf returns what could be meant by a name that is not found, in words.
func oneOf(missing *skills.NotFoundError) string {
	remedy := "use one of: " + strings.Join(missing.Nearest, ", ")
	if more := missing.Total - len(missing.Nearest); more > 0 {
		remedy += fmt.Sprintf(", and %d more", more)
	}
	if missing.Suggestion != "" {
		remedy = fmt.Sprintf("did you mean %q? ", missing.Suggestion) + remedy
	}
	return remedy
}

// instead returns which files of a skill could be meant by a path that it does not have, in words; of one
// kind, unless kind is empty.
func (s *Session) instead(sk *skills.Skill, index *skills.Index, path string, kind skills.Kind) string {
	missing := skills.NoFile(path, slices.DeleteFunc(slices.Clone(index.Resources),
		func(r skills.Resource) bool { return kind != "" && r.Kind != kind || s.Hides(sk, r.Path) }))
	switch {
	case missing.Total == 0 && kind == skills.KindScript:
		return "do without it: the skill has no scripts"
	case missing.Total == 0:
		return "do without it: the skill has no files besides " + sk.File
	}
	missing.Nearest = missing.Nearest[:min(len(missing.Nearest), maxInstead)]
	for i, name := range missing.Nearest {
		missing.Nearest[i] = plain(name)
	}
	return oneOf(missing)
}

// maxInstead is how many files are named in the place of one that is not there.
const maxInstead = 5

// unserved says why a file that is there is not served: what a scan found wrong with a path, or
// with one below it when the path ends in a slash.
func unserved(diagnostics []skills.Diagnostic, path string) string {
	for _, d := range diagnostics {
		if d.Severity != skills.Info && (d.Path == path || strings.HasSuffix(path, "/") &&
			strings.HasPrefix(d.Path, path)) {
			return d.Detail
		}
	}
	return ""
}

// readError maps what reading a file of a skill can run into. A file outside the root or without
// permission is a denial and is mapped by the caller.
func readError(err error, sk *skills.Skill, path string) *Error {
	quoted := quote(path)
	if invalid, ok := errors.AsType[*frontmatter.Error](err); ok {
		return resourceInvalid.because(err, "{path}", quoted, "{reason}", policy.Clip(invalid.Error()))
	}
	if _, ok := errors.AsType[*skills.DriftError](err); ok {
		return resourceChanging.because(err, "{path}", quoted)
	}
	switch {
	case errors.Is(err, skills.ErrNotIndexed):
		return resourceNotIndexed.because(err, "{skill}", sk.Path, "{path}", plain(path))
	case errors.Is(err, skills.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return resourceGone.because(err, "{path}", quoted)
	case errors.Is(err, skills.ErrTooLarge):
		return resourceTooLarge.because(err, "{path}", quoted)
	case errors.Is(err, skills.ErrNotFile), errors.Is(err, skills.ErrOutsideRoot):
		return resourceNotFile.because(err, "{path}", plain(path))
	}
	return Internal(err)
}

// sandboxError maps a run that did not start isolated.
func sandboxError(err error) *Error {
	if cwd, ok := errors.AsType[*sandbox.CwdError](err); ok {
		return cwdDenied.because(err, "{cwd}", quote(cwd.Cwd), "{reason}", cwd.Reason, "{remedy}",
			cwd.Remedy())
	}
	// A sandbox that could not be made for want of descriptors is there again when they are.
	if outOfFiles(err) {
		return filesExhausted.because(err)
	}
	if off, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		return sandboxDetected.because(err, "{reason}", off.Reason, "{remedy}", off.Remedy)
	}
	return sandboxFailed.because(err)
}

// recordError is the answer when the record of a call cannot be written: nothing is shown that
// could not be proven afterwards.
func recordError(err error) *Error {
	if errors.Is(err, provenance.ErrLost) {
		return sessionMoved.because(err)
	}
	if outOfFiles(err) {
		return recordWithoutFiles.because(err)
	}
	if full, ok := errors.AsType[*provenance.FullError](err); ok {
		return recordsFull.because(err, "{principal}", policy.Clip(full.Principal), "{what}", full.What)
	}
	return recordUnavailable.because(err)
}

// outOfFiles reports whether the server lacks file descriptors, which passes.
func outOfFiles(err error) bool {
	return errors.Is(err, skills.ErrExhausted) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE)
}

// Internal is the answer when something went wrong that a client has no part in, and whose cause only the
// log sees: CodeServerBusy when it passes by itself, else CodeInternal. An *Error stays what it is.
func Internal(err error) *Error {
	if public, ok := errors.AsType[*Error](err); ok {
		return public
	}
	if outOfFiles(err) {
		return filesExhausted.because(err)
	}
	return internalFailure.because(err)
}

// plain is policy.Clip, within quotation marks if the value has characters that could be taken for more
// than a name.
func plain(s string) string {
	if quoted := quote(s); quoted != `"`+policy.Clip(s)+`"` {
		return quoted
	}
	return policy.Clip(s)
}

// quote is policy.Clip within quotation marks.
func quote(s string) string { return strconv.Quote(policy.Clip(s)) }
