package signal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// searchInline searches the text of a program that a line of a shell contains.
func (s *Scanner) searchInline(line []byte) {
	if !s.spend(line) {
		return
	}
	m := inline().FindIndex(line)
	if m == nil || s.isShown(line, m[0], m[1]) || s.isPrinted(line) {
		return
	}
	text := line[m[1]:]
	s.program = code
	if here := s.taintOf(text); s.isRunOf(text, here) {
		s.found.addPlain(Pipe, s.line)
	}
	s.program = shell
}

// inline matches a command with the text of a program of another language.
var inline = pattern.New(`\b(?:python[0-9.]*|node|bun|deno|perl|ruby|php)\s+(?:-\w+\s+)*` +
	`-{1,2}(?:c|e|r|eval)\s+["']`)

// Expressions that match what runs a text as a program; the text follows, or precedes a pipe.
var (
	shellRuns = pattern.New("(?:^|[\\s;&|(])(?:eval|source|\\.)\\s+|\\b(?:ba|z|da|k)?sh\\s+-c\\b|" +
		"(?i:\\b(?:iex|Invoke-Expression)\\b)|" +
		"\\|\\s*(?:sudo\\s+)?(?:ba|z|da|k)?sh\\b|\\b(?:ba|z|da|k)?sh\\s+<<<\\s*")
	codeRuns = pattern.New("(?i)\\(0,\\s*eval\\)\\(\\s*|" +
		"(?:^|[^.\\w])(?:eval|exec|Function|compile|execfile|loadstring|" +
		"instance_eval|class_eval)\\s*\\(\\s*|" +
		"\\bvm\\.run\\w*\\(|\\b(?:os\\.)?(?:system|popen|execSync|shell_exec|passthru|" +
		"proc_open)\\s*\\(\\s*|\\bchild_process\\b.*\\bexec\\w*\\(|" +
		"\\bpickle\\.loads?\\(\\s*|" +
		"\\b(?:ba|z|da|k)?sh\\b[\"']?,?\\s*[\"']?-c\\b|\\|\\s*(?:ba|z)?sh\\b|" +
		"\\bsubprocess\\.\\w+\\(\\s*|(?:^|[^.\\w]|cp\\.|child_process\\.)(?:exec|spawn)(?:Sync)?\\(\\s*")
)

// run is a call or a command that runs a text as a program.
type run struct {
	line       []byte
	begin, end int    // of the name of the call, or of the pipe and the shell
	call       []byte // the text between these, in lower case, where it may have another length
	text       []byte // the part of the line with what is run
	isPipe     bool   // that is before the call
	isList     bool   // the call gets a program with its arguments, not a text that is run
}

func newRun(line []byte, begin, end int) run {
	call := bytes.ToLower(line[begin:end])
	r := run{line: line, begin: begin, end: end, call: call, text: line[end:]}
	if bytes.IndexByte(call, '|') >= 0 {
		r.isPipe, r.text = true, line[:begin]
	}
	r.isList = containsAny(call, "subprocess", "spawn") || containsAny(line[begin:end], "execFile")
	return r
}

// isRunOf reports whether a line runs one of the tainted values in it: the value follows what runs it, or a
// pipe leads there.
func (s *Scanner) isRunOf(line []byte, here []tainted) bool {
	runs := shellRuns
	if s.program == code {
		runs = codeRuns
	}
	for _, m := range runs().FindAllIndex(line, -1) {
		r := newRun(line, m[0], m[1])
		if s.program == code && !r.isPipe && isFetch(r.text, containsAny(r.call, "sync")) {
			continue
		}
		isRun := func(t tainted) bool {
			switch {
			case t.from&(fetched|piped) == 0:
				return false
			case t.name == "":
				return s.runsLiteral(r)
			default:
				return s.runsVariable(r, t.name)
			}
		}
		if slices.ContainsFunc(here, isRun) {
			return true
		}
	}
	return false
}

// runsLiteral reports whether a call runs a value that the line has without a name.
func (s *Scanner) runsLiteral(r run) bool {
	// searchPipe decides about a command with all parts.
	if r.isPipe || r.isList || s.program == shell && !containsAny(r.call, "eval", "-c", "iex") {
		return false
	}
	// The match may begin with the end of an arrow.
	before := r.line[:r.end-len(bytes.TrimLeft(r.line[r.begin:r.end], ">{ "))]
	return len(s.taintOf(r.text)) > 0 || isAnswer(before, r.text)
}

// runsVariable reports whether a call runs the value of a variable.
func (s *Scanner) runsVariable(r run, name string) bool {
	if r.isList && !containsAny(r.line, "shell=True") && !takesText().Match(r.line) {
		return false
	}
	if !hasWord(r.text, []byte(name)) {
		return false
	}
	// "eval x=$name" and "source dir/$name" do not run the value itself.
	return r.isPipe || s.program == code || bytes.HasPrefix(bytes.TrimLeft(r.text, " \t\"'"), []byte("$"))
}

// isFetch reports whether the arguments of a call begin with a literal that only fetches: its address may
// come from elsewhere too. isTemplate is set where such a literal may be in back quotes, which mean a command
// to other languages.
func isFetch(arguments []byte, isTemplate bool) bool {
	quotes := `"'`
	if isTemplate {
		quotes += "`"
	}
	if len(arguments) == 0 || strings.IndexByte(quotes, arguments[0]) < 0 {
		return false
	}
	command, _, _ := bytes.Cut(arguments[1:], arguments[:1])
	return fetch().Match(command)
}

// fetch matches a command that fetches and does nothing else.
var fetch = pattern.New("^(?:curl|wget)\\s(?:[^|;&$`]|&[^&]|\\$[^(])*$")

// takesText matches the option of a shell for a text that it runs.
var takesText = pattern.New(`(?:^|[\s"'])-c(?:$|[\s"'])`)

// isAnswer reports whether what runs rest is the body of a function whose parameter begins it, as in
// "fetch(x).then(text => eval(text))".
func isAnswer(before, rest []byte) bool {
	m := parameter().FindSubmatch(lastOf(before))
	return m != nil && bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), bytes.Join(m[1:], nil))
}

var parameter = pattern.New(`(?:([A-Za-z_$]\w*)\)?\s*=>|\bfunction\s*\(\s*([A-Za-z_$]\w*)\s*\))\s*\{?\s*$`)

// collects matches a function that collects the parts of an answer, and the variable for them.
var collects = pattern.New(`\.on\(\s*["']data["']\s*,\s*(?:function\s*\(\w+\)|\(?\w+\)?\s*=>)\s*\{?\s*` +
	`([A-Za-z_$]\w*)\s*(?:\+=|\.push\(|=\s*[A-Za-z_$]\w*\s*\+)`)
