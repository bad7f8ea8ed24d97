package script

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// The codes of what a script lacked.
const (
	MissingDependency = "missing_dependency" // a module of its language
	MissingLibrary    = "missing_library"    // a shared library
	MissingProgram    = "missing_program"
	MissingProxy      = "missing_proxy" // an interpreter that reaches granted hosts
)

// missingLines is how many of the last lines are looked at: a program says last why it failed.
const missingLines = 25

// npmName is the name of a package, and of a file in it.
const npmName = `(@?\w[\w.@-]{0,79}(?:/[\w.-]{1,40})*)`

// missingForms are the messages of interpreters and of the loader about what they did not find, with the name
// as the only group. The text is the script's own: a name is taken only in the form that names of modules,
// libraries and programs have, without a path.
var missingForms = []struct {
	code string
	form func() *regexp.Regexp
	with string // in one of the lines; else the message is about something else
}{
	{MissingDependency, pattern.New(`^ModuleNotFoundError: No module named '(\w[\w.-]{0,79})'`), ""},
	{MissingDependency, pattern.New(`Cannot find module '` + npmName + `'`), ""},
	{MissingDependency, pattern.New(`Cannot find package '` + npmName + `' (?:imported )?from `), ""},
	{MissingDependency, pattern.New(`^error: Import "` + npmName + `" not a dependency`), ""},
	{MissingLibrary, pattern.New(
		`(?:^|: )(\w[\w.+-]{0,79}\.so(?:\.[0-9]{1,8}){0,4}): cannot open shared object file`), ""},
	{MissingProgram, pattern.New(
		`^FileNotFoundError: \[Errno 2\] .*: '(\w[\w.+-]{0,79})'$`), "in _execute_child"},
	{MissingProgram, pattern.New(`(?:^|: )(\w[\w.+-]{0,79}): (?:command )?not found$`), ""},
	{MissingProgram, pattern.New(`\bspawn (\w[\w.+-]{0,79}) ENOENT`), ""},
}

// FindMissing returns what a script that failed lacked, by the last lines of its standard error, and the
// code of that; code is empty if they do not say so. A script may print what it likes: the result is advice,
// and no decision may depend on it.
func FindMissing(stderr string) (code, name string) {
	lines := strings.Split(strings.TrimRight(stderr, "\r\n "), "\n")
	lines = lines[max(len(lines)-missingLines, 0):]
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimRight(lines[i], "\r ")
		for _, m := range missingForms {
			found := m.form().FindStringSubmatch(line)
			if found != nil && strings.Contains(stderr, m.with) {
				return m.code, found[1]
			}
		}
	}
	return "", ""
}

var unreached = pattern.New(`\b(?:getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|connect E(?:NET|HOST)UNREACH) `)

// FindNoProxy is [FindMissing] for a script to which hosts are granted: by its standard error it did not
// reach one, and its interpreter is of a version that could not, see [NoProxy]. The name is of a version that
// can.
func FindNoProxy(stderr string, r Runtime, version string) (code, name string) {
	if NoProxy(r, version) == "" || !unreached().MatchString(stderr) {
		return "", ""
	}
	return MissingProxy, fmt.Sprintf("%s %s or later", r, strings.Join(r.Interpreter().proxyFrom, ".x, "))
}
