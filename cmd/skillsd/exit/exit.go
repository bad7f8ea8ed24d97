// Package exit has the exit codes of the command and the error that selects one.
package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Exit codes of every command.
const (
	OK       = 0
	Failure  = 1
	Usage    = 2
	Problems = 3 // the command worked and found problems
)

// Error is an error with an exit code. A nil Err prints nothing: the command has already printed its
// findings.
type Error struct {
	Code int
	Err  error
	Hint string
	// Flag is the name of the flag with the invalid value, without hyphens. Without a Hint, the hint refers
	// to the help of the flag.
	Flag string
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "problems were found"
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usagef returns a usage error with a hint.
func Usagef(hint, format string, args ...any) error { return Errorf(Usage, hint, format, args...) }

// Errorf returns an error with an exit code and a hint.
func Errorf(code int, hint, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Flag returns the error for an invalid value of a flag.
func Flag(flag string, err error) error {
	return &Error{Code: Usage, Err: fmt.Errorf("--%s: %w", flag, err), Flag: flag}
}

// SystemHint returns the hint for a system error, or "".
func SystemHint(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "check its owner and mode, or use another path"
	case errors.Is(err, fs.ErrNotExist):
		return "check the path"
	case errors.Is(err, syscall.ENOTDIR):
		return "a part of the path is a file; use another path"
	case errors.Is(err, syscall.ENOSPC):
		return "free some space, or use another path"
	}
	return ""
}

// Directory is the error for a directory of the server that cannot be used. An error with its own hint is
// returned unchanged.
func Directory(what, flag string, err error) error {
	// Its hint is about the cause, which is more useful than the name of the flag.
	if exit, ok := errors.AsType[*Error](err); ok {
		return exit
	}
	return &Error{Code: Failure, Err: fmt.Errorf("%s: %w", what, err),
		Hint: "give " + flag + " a writable directory of your own"}
}
