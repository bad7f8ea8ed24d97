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
	NoNetwork         = "no_network"    // what it fetches, perhaps with the name of a host or a package
	OwnModule         = "own_module"    // a module of its skill, in another directory than modules are
	OwnFile           = "own_file"      // a file of its skill, in another directory than it started in
	ReadOnly          = "read_only"     // where it writes
	LineEndings       = "line_endings"  // of a program that it starts: CRLF
)

// missingLines is how many of the last lines are looked at: a program says last why it failed.
const missingLines = 25

// npmName is the name of a package, and of a file in it.
const npmName = `(@?\w[\w.@-]{0,79}(?:/[\w.-]{1,40})*)`

// plainFile is a path that no sentence can hide in.
const plainFile = `[\w./@+~-]{1,200}`

// missingForms are the messages of interpreters and of the loader about what they did not find, with the name
// as the only group. The text is the script's own: a name is taken only in the form that names of modules,
// libraries and programs have, without a path.
var missingForms = []struct {
	code string
	form func() *regexp.Regexp
	with string // in one of the lines; else the message is about something else
}{
	{LineEndings, pattern.New(`^(?:/usr/bin/)?env: .?(\w[\w.+-]{0,79})\\r.?: No such file`), ""},
	{LineEndings, pattern.New(`: \$'.{0,80}\\r': command not found$`), ""},
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
	{ReadOnly, pattern.New(`Read-only file system: '(` + plainFile + `)'`), ""},
	{ReadOnly, pattern.New(`: (?:.* )?['‘"]?(` + plainFile + `)['’"]?: Read-only file system$`), ""},
	{ReadOnly, pattern.New(`\bEROFS: read-only file system, \w+ '(` + plainFile + `)'`), ""},
	{ReadOnly, pattern.New(`Read-only file system \(os error 30\).* '(` + plainFile + `)'`), ""},
	{OwnFile, pattern.New(`(?:No such file or directory: |\bcan't open file )'([^']{1,200})'`), ""},
	{OwnFile, pattern.New(`\bENOENT: no such file or directory, \w+ '([^']{1,200})'`), ""},
	{OwnFile, pattern.New(`No such file or directory \(os error 2\).* '([^']{1,200})'`), ""},
	{OwnFile, pattern.New(`\bcannot open ([^:]{1,200}): No such file`), ""},
	{OwnFile, pattern.New(`(?:^|: )(?:cannot [a-z ]{1,40})?['‘"]?([^:'‘’"]{1,200})['’"]?: ` +
		`No such file or directory$`), ""},
	{NoNetwork, pattern.New(`(?i)\b(?:could not resolve host|failed to resolve|` +
		`unable to resolve host address|getaddrinfo (?:ENOTFOUND|EAI_AGAIN))` +
		`[:\s'"‘]{1,3}([\w.-]{1,100})`), ""},
	{NoNetwork, pattern.New(`\bcode (?:ENOTCACHED|EAI_AGAIN|ENOTFOUND|ENETUNREACH)$`), ""},
	{NoNetwork, pattern.New(`\bNo matching distribution found for (\w[\w.-]{0,79})`), ""},
	{NoNetwork, pattern.New(`^error: externally-managed-environment$|^hint: See PEP 668 `), ""},
	{NoNetwork, pattern.New(`(?i)temporary failure in name resolution|name or service not known|` +
		`network is unreachable|\bconnect ENETUNREACH|the network was disabled|dns error`), ""},
}

// FindMissing returns what a script that failed lacked, by the last lines of its standard error, and the
// code of that; code is empty if they do not say so, and name if they name nothing. The name of an OwnFile or
// of what is ReadOnly is a path as the script wrote it. What agrees denies is passed over. A script may print
// what it likes: the result is advice, and no decision may depend on it.
func FindMissing(stderr string, agrees func(code, name string) bool) (code, name string) {
	lines := strings.Split(strings.TrimRight(stderr, "\r\n "), "\n")
	lines = lines[max(len(lines)-missingLines, 0):]
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimRight(lines[i], "\r ")
		for _, m := range missingForms {
			found := m.form().FindStringSubmatch(line)
			if found == nil || !strings.Contains(stderr, m.with) {
				continue
			}
			if name := strings.Join(found[1:], ""); agrees(m.code, name) {
				return m.code, name
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
