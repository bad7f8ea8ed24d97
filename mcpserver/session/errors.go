package session

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
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
	CodeCwdDenied             Code = "cwd_denied"
	CodeEnvDenied             Code = "env_denied"
	CodeSandboxUnavailable    Code = "sandbox_unavailable"
	CodeProvenanceUnavailable Code = "provenance_unavailable"
	CodeServerBusy            Code = "server_busy"
	CodeInternal              Code = "internal"
)

// Error is a plain error. Message and Remedy are public: they hold no host path. Err is the
// private cause, for the log only.
type Error struct {
	Code    Code
	Message string
	Remedy  string
	Err     error
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.Err }

// lookupError turns a failed lookup into the error a model can act on: the nearest names and,
// because a changed catalogue reaches no model through a tool description, the current ones.
func (s *Session) lookupError(call Call, err error) *Error {
	withNames := s.cfg.NamesInErrors
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		return &Error{
			Code:    CodeSkillAmbiguous,
			Message: fmt.Sprintf("%q names more than one skill: %s", clip(ambiguous.Name), strings.Join(ambiguous.Paths, ", ")),
			Remedy:  "use one of these paths",
			Err:     err,
		}
	}
	missing, ok := errors.AsType[*skills.NotFoundError](err)
	if !ok {
		return internalError(err)
	}
	snapshot := s.visible(call)
	reason := unserved(snapshot.Diagnostics, missing.Name+"/")
	if sk := unavailable(snapshot, missing.Name); sk != nil {
		reason = strings.Join(snapshot.Status(sk).Reasons, "; ")
	}
	e := &Error{Code: CodeSkillNotFound, Message: fmt.Sprintf("no skill %q", clip(missing.Name)), Err: err}
	if reason != "" && withNames {
		e.Message = fmt.Sprintf("skill %q is not served: %s", clip(missing.Name), reason)
	}
	if !withNames {
		e.Remedy = "use the exact name of a configured skill"
		return e
	}
	if missing.Suggestion != "" {
		e.Message += fmt.Sprintf("; did you mean %q?", missing.Suggestion)
	}
	switch more := missing.Total - len(missing.Nearest); {
	case missing.Total == 0:
		e.Remedy = "no skills are configured; the operator can add some with --skills-root"
	case more > 0:
		e.Remedy = fmt.Sprintf("use one of: %s, and %d more", strings.Join(missing.Nearest, ", "), more)
	default:
		e.Remedy = "use one of: " + strings.Join(missing.Nearest, ", ")
	}
	return e
}

// unavailable returns the skill of that path or name that lacks what it requires, or nil. What the
// operator disabled is not spoken of.
func unavailable(snapshot *skills.Snapshot, name string) *skills.Skill {
	for _, sk := range snapshot.Withheld {
		if (sk.Path == name || sk.Name() == name) && snapshot.Status(sk).State == skills.StateUnavailable {
			return sk
		}
	}
	return nil
}

// unserved says why a file that is there is not served: what a scan found wrong with a path, or
// with one below it when the path ends in a slash.
func unserved(diagnostics []skills.Diagnostic, path string) string {
	for _, d := range diagnostics {
		if d.Severity != skills.Info && (d.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(d.Path, path)) {
			return d.Detail
		}
	}
	return ""
}

// readError maps what reading a file of a skill can run into. A file outside the root or without
// permission is a denial and is mapped by the caller.
func readError(err error, path string) *Error {
	path = clip(path)
	if invalid, ok := errors.AsType[*frontmatter.Error](err); ok {
		return &Error{Code: CodeResourceChanged, Message: fmt.Sprintf("%q changed and cannot be loaded: %s", path, clip(invalid.Error())),
			Remedy: "use another skill; its author finds what is wrong with `skillsd validate`", Err: err}
	}
	if _, ok := errors.AsType[*skills.DriftError](err); ok {
		return &Error{Code: CodeResourceChanged, Message: fmt.Sprintf("%q is being changed", path), Remedy: "try again", Err: err}
	}
	switch {
	case errors.Is(err, skills.ErrNotIndexed):
		return &Error{Code: CodeResourceNotIndexed, Message: fmt.Sprintf("%q is not a file of this skill", path),
			Remedy: "use a path from the skill's file list, relative to the skill", Err: err}
	case errors.Is(err, skills.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &Error{Code: CodeResourceNotFound, Message: fmt.Sprintf("%q is no longer there", path),
			Remedy: "call load_skill again for the current file list", Err: err}
	case errors.Is(err, skills.ErrTooLarge):
		return &Error{Code: CodeResourceChanged, Message: fmt.Sprintf("%q changed and is now too large to read", path),
			Remedy: "call load_skill again for the current file list", Err: err}
	case errors.Is(err, skills.ErrNotFile), errors.Is(err, skills.ErrOutsideRoot):
		return &Error{Code: CodeResourceNotFile, Message: fmt.Sprintf("%q is not a regular file", path),
			Remedy: "use the path of a file from the skill's file list", Err: err}
	}
	return internalError(err)
}

// sandboxError maps a run that did not start isolated.
func sandboxError(err error) *Error {
	if cwd, ok := errors.AsType[*sandbox.CwdError](err); ok {
		return &Error{Code: CodeCwdDenied, Message: fmt.Sprintf("cwd %q: %s", clip(cwd.Cwd), cwd.Reason),
			Remedy: "use an existing directory below /workspace, /skill or /tmp, or leave cwd out", Err: err}
	}
	// A sandbox that could not be made for want of descriptors is there again when they are.
	if busy := busyError(err); busy != nil {
		return busy
	}
	if off, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		return &Error{Code: CodeSandboxUnavailable, Message: "scripts cannot be isolated here: " + off.Reason,
			Remedy: off.Remedy, Err: err}
	}
	if errors.Is(err, errCrowded) {
		return &Error{Code: CodeServerBusy, Message: "too many scripts wait for a run slot",
			Remedy: "call again when some of them have ended", Err: err}
	}
	return &Error{Code: CodeSandboxUnavailable, Message: "the sandbox did not start",
		Remedy: "the operator can run `skillsd doctor`", Err: err}
}

// recordError is the answer when the record of a call cannot be written: nothing is shown that
// could not be proven afterwards.
func recordError(err error) *Error {
	e := &Error{Code: CodeProvenanceUnavailable,
		Message: "the session's record cannot be written, so nothing is read and nothing runs",
		Remedy:  "the operator can free space or fix permissions under --artifact-root; then call again", Err: err}
	if busyError(err) != nil {
		e.Remedy = remedyBusy
	}
	return e
}

// busyError is the answer when the server wants file descriptors, which passes; nil when it does not.
func busyError(err error) *Error {
	if !errors.Is(err, skills.ErrExhausted) && !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return nil
	}
	return &Error{Code: CodeServerBusy, Message: "the server has too many files open to do this", Remedy: remedyBusy, Err: err}
}

const remedyBusy = "call again in a while; if it stays so, the operator can raise the limit of open files (ulimit -n, LimitNOFILE=)"

// Internal is the answer when something went wrong that a client has no part in, and whose cause only the
// log sees: CodeServerBusy when it passes by itself, else CodeInternal.
func Internal(err error) *Error { return internalError(err) }

func internalError(err error) *Error {
	if busy := busyError(err); busy != nil {
		return busy
	}
	return &Error{Code: CodeInternal, Message: "the server could not do this", Remedy: "the operator finds the cause in the server's log", Err: err}
}

// clip bounds a value the model chose before it is repeated to it.
func clip(s string) string {
	const most = 128
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
