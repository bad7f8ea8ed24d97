package main

import "github.com/skillsd/skillsd/cmd/skillsd/exit"

// The names that commands use for errors and exit codes.
type exitError = exit.Error

const (
	exitOK       = exit.OK
	exitFailure  = exit.Failure
	exitUsage    = exit.Usage
	exitProblems = exit.Problems
)

func usageError(hint, format string, args ...any) error { return exit.Usagef(hint, format, args...) }

func flagError(flag string, err error) error { return exit.Flag(flag, err) }

func placeError(what, flag string, err error) error { return exit.Place(what, flag, err) }

func systemHint(err error) string { return exit.SystemHint(err) }
