// Package fault defines the errors of sessions that are not denials. Their texts are public, and give a model
// a remedy.
package fault

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"syscall"

	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
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
	Plain   string // Message in words for a user, if Message is the reference's text; else ""
	Err     error

	Output any // the reference's output object of the call that failed, or nil
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Public returns the message in words for a user.
func (e *Error) Public() string { return cmp.Or(e.Plain, e.Message) }

// Fault is a row of the table of plain errors. Its texts have words in braces, which Because fills;
// {cause} is the text of the error that led to it.
type Fault struct {
	code            Code
	message, remedy string
}

// OfEnvironment returns the error of a run that does not get its environment.
func OfEnvironment(err error) error {
	if refusal, ok := errors.AsType[*packages.Refusal](err); ok {
		return &Error{Code: Code(refusal.Code), Message: refusal.Message, Remedy: refusal.Remedy, Err: err}
	}
	return Internal(err)
}

// Because returns the error of a row with cause err. words are pairs of a name in the texts and its
// replacement.
func (f Fault) Because(err error, words ...string) *Error {
	if public, ok := errors.AsType[*Error](err); ok {
		// The text of the error itself would repeat the message.
		err = public.Err
	}
	if err != nil {
		words = append(words, "{cause}", err.Error())
	}
	// A Replacer makes one pass: names in the words of the caller are not replaced.
	fill := strings.NewReplacer(words...)
	return &Error{Code: f.code, Message: fill.Replace(f.message), Remedy: fill.Replace(f.remedy),
		Plain: fill.Replace(plain[f.message]), Err: err}
}

const (
	remedyBusy = "call again in 10 seconds; if it stays so, the user can raise the limit of open files " +
		"(ulimit -n, LimitNOFILE=)"
	remedyFiles = "use the path of a script from the skill's file list"
)

// The table of plain errors, by code.
var (
	ArgumentsInvalid = Fault{CodeInvalidArguments, "{cause}", "shorten or fix the arguments"}
	ParentUnknown    = Fault{CodeInvalidArguments, "the parent {name} is not a session of this principal",
		"call in the parent's session first, and name the parent as that call did or by the runId of its " +
			"records"}
	StdinTaken = Fault{CodeInvalidArguments,
		"the script takes no stdin: it is handed to its interpreter there",
		"leave stdin out, and pass the text as an argument"}

	SkillAmbiguous = Fault{CodeSkillAmbiguous, "{name} names more than one skill: {paths}",
		"use one of these paths"}
	SkillNotFound = Fault{CodeSkillNotFound, "skill not found in registry: {name}",
		"use the exact name of a configured skill"}
	SkillRemoved   = Fault{CodeSkillNotFound, "skill {name} was removed or disabled", "do without it"}
	SkillNotServed = Fault{CodeSkillNotFound, "skill {name} is not served: {reason}", ""}

	ResourcePathInvalid = Fault{CodeResourcePathInvalid, "resource {cause}",
		"use a path from the skill's file list, relative to the skill, with / between names"}
	ResourceNotIndexed = Fault{CodeResourceNotIndexed,
		"resource not found in run-start registry for skill {skill}: {path}",
		"use a path from the skill's file list, relative to the skill"}
	ResourceNotServed = Fault{CodeResourceNotIndexed, "{path} is not served: {reason}",
		"use a path from the skill's file list, relative to the skill"}
	ResourceUnknown = Fault{CodeResourceNotFound, "no resource {uri}",
		"list the resources for the URIs there are"}
	ResourceGone = Fault{CodeResourceNotFound, "{path} is no longer there",
		"call load_skill again for the current file list"}
	ArtifactUnknown = Fault{CodeResourceNotFound, "no resource {uri} in this session",
		"check the name; over HTTP, name the session too: a program by skillsd/session in _meta, a " +
			"model by ?activation=HANDLE after the URI, the handle that load_skill returned"}
	ResourceNotFile = Fault{CodeResourceNotFile, "resource is not a file: {path}",
		"use the path of a file from the skill's file list"}
	ArtifactTooLarge = Fault{CodeResourceNotFile, "{path} is too large to be sent",
		"the user finds it in the session's directory"}
	ResourceInvalid = Fault{CodeResourceChanged, "{path} changed and cannot be loaded: {reason}",
		"use another skill; its author finds what is wrong with `skillsd validate`"}
	ResourceChanging = Fault{CodeResourceChanged, "{path} is being changed", "try again"}
	ResourceTooLarge = Fault{CodeResourceChanged, "{path} changed and is now too large to read",
		"call load_skill again for the current file list"}
	ResourceChanged = Fault{CodeResourceChanged, "{path} changed since it was indexed",
		"call load_skill again for the current version"}
	ResourceRelisted = Fault{CodeResourceChanged, "{uri} changed since it was listed",
		"list the resources again and read the current one"}

	ScriptPathInvalid = Fault{CodeScriptPathInvalid, "{cause}",
		"use the path of a script below scripts/, as load_skill lists it"}
	// The reference has the code of a wrong path for wrong arguments too.
	ScriptArgsInvalid = Fault{CodeScriptPathInvalid, "run_skill_script args must be an array of strings",
		"send a list of strings"}
	ScriptNotIndexed = Fault{CodeScriptNotIndexed,
		"script not found in run-start registry for skill {skill}: {path}", "{instead}"}
	ScriptIsDirectory = Fault{CodeResourceNotScript, "the path is a directory", remedyFiles}
	ResourceNotScript = Fault{CodeResourceNotScript, "resource is not a script resource: {path}",
		remedyFiles}

	RuntimeUnsupported = Fault{CodeUnsupportedRuntime,
		"unsupported skill script runtime for {path}: {problem}",
		"do without it, or ask the user: skillsd help env lists which shebangs run"}
	RuntimeNotOnStdin = Fault{CodeUnsupportedRuntime,
		"the script cannot be run on standard input: {problem}",
		"the user can leave execution out of the script's entry"}
	InterpreterNotFound = Fault{CodeInterpreterNotFound, "there is no {runtime} that this script can use",
		"the user can see why with `skillsd doctor`, install {runtime} and restart the server"}

	CwdDenied           = Fault{CodeCwdDenied, "cwd {cwd}: {reason}", "{remedy}"}
	CwdWithoutWorkspace = Fault{CodeCwdDenied,
		"no workspace is granted to this script, so it has no other directory than its own",
		"leave cwd out, or ask the user for a server with a workspace"}
	WorkspaceDenied = Fault{CodeCwdDenied, "the workspace that the client names cannot be mounted: {cause}",
		"work in another directory, or ask the user for a server that does not take the client's"}
	EnvDenied = Fault{CodeEnvDenied, "the script lacks what its entry is to hand it: {what}",
		"the user can provide it and call again; the server's log has the cause"}

	SandboxFailed = Fault{CodeSandboxUnavailable, "the sandbox did not start",
		"the user can run `skillsd doctor`"}
	SandboxDetected = Fault{CodeSandboxUnavailable, "scripts cannot be isolated here: {reason}", "{remedy}"}

	OutcomeUnknown = Fault{CodeOutcomeUnknown, "the script may have run in part, and is not run again: " +
		"{what} ended before it said what became of it",
		"look at what the script changes, and call again only if it may run twice"}

	WorkersBusy = Fault{CodeServerBusy, "no worker began the script in time; it did not start",
		"call again in 10 seconds; if it stays so, the user can start more workers"}
	TreeElsewhere = Fault{CodeSandboxUnavailable,
		"the worker does not have the skill {skill} with the files {tree}",
		"the user can install the same version where the worker runs"}
	WorkedOnHost = Fault{CodeSandboxUnavailable, "workers run scripts in a sandbox only",
		"the user can set the entry's target to sandbox there"}

	RecordUnavailable = Fault{CodeProvenanceUnavailable,
		"the session log cannot be written, so nothing is read and nothing runs",
		"ask the user to free space, or to fix permissions, where the server keeps its logs; " +
			"then call again"}
	RecordsFull = Fault{CodeRecordsFull,
		"the logs of {principal} are full ({what}), so nothing more is read or runs for it; " +
			"others are served",
		"ask the user to have old sessions deleted with `skillsd session gc`, or the quota raised where " +
			"the server runs; a server with sessions.gc deletes them by itself; then call again"}
	RecordWithoutFiles = Fault{CodeServerBusy,
		"the server has too many files open to record this call, so nothing was shown and nothing ran",
		remedyBusy}
	OutcomeUnrecorded = Fault{CodeProvenanceUnavailable,
		"the script ran, but its log could not be written, so its output is withheld " +
			"and nothing more runs",
		RecordUnavailable.remedy}

	FilesExhausted = Fault{CodeServerBusy, "the server has too many files open to do this", remedyBusy}
	RunsCrowded    = Fault{CodeServerBusy, "too many scripts wait for a run slot",
		"call again when some of them have ended"}
	RunsLate = Fault{CodeServerBusy, "no run slot was free for {wait}; runs that come " +
		"before this one: {before}", RunsCrowded.remedy}
	ReadsCrowded = Fault{CodeServerBusy, "too many parts of records are being read",
		"call again in 10 seconds"}
	SessionsInUse = Fault{CodeServerBusy, "the server has too many sessions in use", ReadsCrowded.remedy}

	SessionMoved = Fault{CodeSessionMoved, "the session is at another server now",
		"call again; what a script that was running did is in the record of the session only if it ended " +
			"before"}

	InternalFailure = Fault{CodeInternal, "the server could not do this",
		"the user finds the cause in the server's log"}
)

// plain has the messages in words for a user whose own words are the reference's.
var plain = map[string]string{
	SkillNotFound.message:      "there is no skill {name}",
	ResourceNotIndexed.message: "the skill {skill} has no file {path}",
	ResourceNotFile.message:    "{path} is not a file",
	ScriptNotIndexed.message:   "the skill {skill} has no script {path}",
	ResourceNotScript.message:  "{path} is not a script",
	RuntimeUnsupported.message: "no interpreter here runs {path}: {problem}",
}

// OfSandbox maps a run that did not start isolated.
func OfSandbox(err error) *Error {
	if cwd, ok := errors.AsType[*sandbox.CwdError](err); ok {
		return CwdDenied.Because(err, "{cwd}", Quote(cwd.Cwd), "{reason}", cwd.Reason, "{remedy}",
			cwd.Remedy())
	}
	// A sandbox that could not be made for want of descriptors is there again when they are.
	if OutOfFiles(err) {
		return FilesExhausted.Because(err)
	}
	if off, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		return SandboxDetected.Because(err, "{reason}", off.Reason, "{remedy}", off.Remedy)
	}
	return SandboxFailed.Because(err)
}

// IsCwd reports whether a sandbox refused the working directory of a run.
func IsCwd(err error) bool {
	_, is := errors.AsType[*sandbox.CwdError](err)
	return is
}

// OfRecord is the answer when the record of a call cannot be written: nothing is shown that
// could not be proven afterwards.
func OfRecord(err error) *Error {
	if errors.Is(err, provenance.ErrLost) {
		return SessionMoved.Because(err)
	}
	if OutOfFiles(err) {
		return RecordWithoutFiles.Because(err)
	}
	if full, ok := errors.AsType[*provenance.FullError](err); ok {
		return RecordsFull.Because(err, "{principal}", policy.Clip(full.Principal), "{what}", full.What)
	}
	return RecordUnavailable.Because(err)
}

// OutOfFiles reports whether the server lacks file descriptors, which passes.
func OutOfFiles(err error) bool {
	return errors.Is(err, skills.ErrExhausted) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE)
}

// Internal is the answer when something went wrong that a client has no part in, and whose cause only the
// log sees: CodeServerBusy when it passes by itself, else CodeInternal. An *Error stays what it is.
func Internal(err error) *Error {
	if public, ok := errors.AsType[*Error](err); ok {
		return public
	}
	if OutOfFiles(err) {
		return FilesExhausted.Because(err)
	}
	return InternalFailure.Because(err)
}

// Plain is policy.Clip, within quotation marks if the value has characters that could be taken for more
// than a name.
func Plain(s string) string {
	if quoted := Quote(s); quoted != `"`+policy.Clip(s)+`"` {
		return quoted
	}
	return policy.Clip(s)
}

// Quote is policy.Clip within quotation marks.
func Quote(s string) string { return strconv.Quote(policy.Clip(s)) }
