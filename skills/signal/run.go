package signal

import (
	"bytes"
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
		s.countPlain(Pipe, s.line)
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

// isRunOf reports whether a line runs one of the tainted values in it: the value follows what runs it, or a
// pipe leads there.
func (s *Scanner) isRunOf(line []byte, here []tainted) bool {
	runs := shellRuns
	if s.program == code {
		runs = codeRuns
	}
	for _, m := range runs().FindAllIndex(line, -1) {
		rest, call := line[m[1]:], bytes.ToLower(line[m[0]:m[1]])
		isPipe := bytes.IndexByte(call, '|') >= 0
		if isPipe {
			rest = line[:m[0]]
		}
		// A list of arguments is a program with arguments, not a text that is run.
		isCall := bytes.Contains(call, []byte("subprocess")) || bytes.Contains(call, []byte("spawn")) ||
			bytes.Contains(line[m[0]:m[1]], []byte("execFile"))
		if s.program == code && !isPipe && isFetch(rest, bytes.Contains(call, []byte("sync"))) {
			continue
		}
		for _, t := range here {
			if t.from&(fetched|piped) == 0 {
				continue
			}
			if t.name == "" {
				if s.program == shell && !bytes.Contains(call, []byte("eval")) &&
					!bytes.Contains(call, []byte("-c")) && !bytes.Contains(call, []byte("iex")) {
					continue
				}
				// searchPipe decides about a command with all parts.
				if isPipe || isCall {
					continue
				}
				// The match may begin with the end of an arrow.
				before := line[:m[1]-len(bytes.TrimLeft(call, ">{ "))]
				if len(s.taintOf(rest)) > 0 || isAnswer(before, rest) {
					return true
				}
				continue
			}
			if isCall && !bytes.Contains(line, []byte("shell=True")) && !takesText().Match(line) {
				continue
			}
			if hasWord(rest, []byte(t.name)) {
				if !isPipe && s.program == shell {
					// "eval x=$name" and "source dir/$name" do not run the value itself.
					first, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t\"'"), []byte(" "))
					if !bytes.HasPrefix(first, []byte("$")) {
						continue
					}
				}
				return true
			}
		}
	}
	return false
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
