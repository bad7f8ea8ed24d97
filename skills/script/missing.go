package script

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// The codes of missing dependencies.
const (
	MissingDependency = "missing_dependency" // a module of its language
	MissingLibrary    = "missing_library"    // a shared library
	MissingProgram    = "missing_program"
	MissingProxy      = "missing_proxy" // an interpreter that supports the proxy
	NoNetwork         = "no_network"    // network access, perhaps with the name of a host or a package
	OwnModule         = "own_module"    // a module of its skill, in a directory that is not searched
	OwnFile           = "own_file"      // a file of its skill, not in the working directory
	ReadOnly          = "read_only"     // a writable path
	LineEndings       = "line_endings"  // a program that it starts has CRLF line endings
)

// missingLines is the number of final lines to search: programs print the reason of a failure last.
const missingLines = 25

// npmName matches the name of a package, optionally with a file in it.
const npmName = `(@?\w[\w.@-]{0,79}(?:/[\w.-]{1,40})*)`

// plainFile matches a path that cannot contain a sentence.
const plainFile = `[\w./@+~-]{1,200}`

// missingForms are the messages of interpreters and of the loader about missing dependencies, with the name
// as the only group. The text is controlled by the script, so the patterns accept only the form of names of
// modules, libraries and programs, without a path.
var missingForms = []struct {
	code string
	form func() *regexp.Regexp
	with string // required somewhere in the text; may be empty
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

// FindMissing returns what a failed script lacked, by the last lines of its standard error, with its code.
// code is "" if nothing is found, and name if the message has none. The name of an OwnFile or a ReadOnly path
// is as written by the script. Findings for which agrees returns false are skipped. A script may print
// anything: the result is advice, and no decision may depend on it.
func FindMissing(stderr string, agrees func(code, name string) bool) (code, name string) {
	lines := strings.Split(strings.TrimRight(stderr, "\r\n "), "\n")
	lines = lines[max(len(lines)-missingLines, 0):]
	// The last message is the one that ended the script; earlier ones may have been handled.
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

// FindNoProxy is [FindMissing] for a script with granted hosts: its standard error shows an unreachable host,
// and its interpreter cannot use the proxy, see [NoProxy]. The name contains the versions that can.
func FindNoProxy(stderr string, r Runtime, version string) (code, name string) {
	if NoProxy(r, version) == "" || !unreached().MatchString(stderr) {
		return "", ""
	}
	return MissingProxy, fmt.Sprintf("%s %s or later", r, strings.Join(r.Interpreter().proxyFrom, ".x, "))
}
