package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// past is what a program has done in the lines before.
type past struct {
	answers  bool // it has fetched or decoded something
	fetches  bool // it has fetched something
	loads    bool // it has fetched from an open address
	connects bool // it has opened a connection
	sockets  bool // it has a connection between any two programs
}

// searchProgram searches a line of a program for values that come from elsewhere and are run, and for files
// of the user that are sent or written. It follows variables, so that the steps may be lines apart.
func (s *Scanner) searchProgram(line []byte) {
	if s.docs && containsAny(line, onOpening) {
		s.task.line = s.line
	}
	if s.program == code && togglesDocs(line) {
		s.searchLiteral(line)
		s.docs = !s.docs
		return
	}
	if len(s.written.end) > 0 {
		s.searchWritten(line)
	}
	switch {
	case s.docs || isComment(line):
	case s.program == shell:
		s.searchShell(line)
	default:
		s.searchCode(line)
	}
}

// searchShell searches a line of a shell.
func (s *Scanner) searchShell(line []byte) {
	s.searchSplit(line)
	does := literals(line)
	if does&fetched != 0 {
		s.searchInline(line)
	}
	here := s.tainted(line, does)
	s.searchSinks(line, here)
	if does&tokens != 0 && s.spend(line) && sendsToken().Match(line) && !s.isPrinted(line) {
		s.found.addPlain(Phrase, s.line)
	}
	s.searchConnection(line, does)
	s.searchStartup(line, here, does)
	s.searchTasks(line, here, does)
	s.searchPicked(line, does)
	s.assign(line, here)
	s.copies(line, here)
}

// searchCode searches a line of a language whose strings may be commands.
func (s *Scanner) searchCode(line []byte) {
	line = s.joined(line)
	does := literals(line)
	s.searchAnswer(line, does)
	here := s.tainted(line, does)
	if does&fills != 0 {
		s.writesFile(line, here)
		here = s.tainted(line, does)
	}
	s.past.loads = s.past.loads || hasTaint(here, open) && loads(line)
	s.searchSinks(line, here)
	s.searchConnection(line, does)
	s.searchStartup(line, here, does)
	s.searchTasks(line, here, does)
	s.assign(line, here)
	s.packs(line, here)
	s.gathers(line, here)
}

// searchAnswer records that a line fetches or decodes something, and the variable in which a function
// collects the parts of an answer.
func (s *Scanner) searchAnswer(line []byte, does taint) {
	if does&fetched != 0 {
		s.past.answers, s.past.fetches = true, s.past.fetches || loads(line)
	}
	if !s.past.answers || !containsAny(line, ".on(") || !s.spend(line) {
		return
	}
	for _, m := range collects().FindAllSubmatch(line, -1) {
		s.names.add(string(m[1]), fetched)
	}
}

// assign records the variable that a line assigns a tainted value to. here are the values in the line.
func (s *Scanner) assign(line []byte, here []tainted) {
	name, value := assignment(line)
	if len(name) == 0 || len(s.names) == maxNames {
		return
	}
	// A program does not return the environment that it gets.
	if call, _, ok := bytes.Cut(value, []byte("env=")); ok && containsAny(call, "subprocess.") {
		value = call
	}
	from := taint(0)
	if len(here) > 0 {
		from = s.assigned(line, name, value)
	}
	if s.program == shell && s.picksEnv(name, value) {
		from |= picked
	}
	if s.isInstaller(value) {
		from |= piped
	}
	if from != 0 {
		s.names.add(string(name), from)
	}
}

// assigned returns where the value that a line assigns to a name comes from.
func (s *Scanner) assigned(line, name, value []byte) (from taint) {
	for _, t := range s.taintOf(s.withoutKeys(value)) {
		if t.name != string(name) {
			from |= t.from
		}
	}
	// The output of a command is not the name of the file that it reads.
	if s.program == shell && bytes.ContainsAny(value, "(\x60") {
		from &^= arrived
	}
	if from&environ != 0 && !s.isWholeEnv(line, value) {
		from &^= environ
	}
	if from&picked != 0 && !s.hasPicked(value) {
		from &^= picked
	}
	// An answer to who logs in with a value is not that value.
	if from&(picked|environ) != 0 && s.program == shell && requests().Match(value) {
		from &^= picked | environ
	}
	return from
}

// isInstaller reports whether a value is the text of a command that runs what it downloads.
func (s *Scanner) isInstaller(value []byte) bool {
	quote := bytes.IndexAny(value, "\"'")
	if quote < 0 || !containsAny(value, "curl ", "wget ") || !s.spend(value) || !pipeToShell().Match(value) {
		return false
	}
	words := bytes.Fields(value[quote+1:])
	return len(words) > 0 && slices.Contains([]string{"curl", "wget", "sudo"}, string(words[0]))
}

// copies records the temporary files that a command makes of a secret.
func (s *Scanner) copies(line []byte, here []tainted) {
	from := union(here) & (secret | environ)
	if from == 0 || !s.spend(line) {
		return
	}
	if m := copied().FindSubmatch(line); m != nil {
		s.names.add(string(m[1]), from)
	}
	for word := range bytes.FieldsSeq(line) {
		word = bytes.Trim(word, "\"';&|)>")
		if isShared(word) {
			s.names.add(string(word), from)
		}
	}
}

// sendsToken matches a command that prints what the user is logged in with into the body of a request. In a
// header it goes to the service that issued it.
var sendsToken = pattern.New(`\b` + printsToken + `\b[^|;&]*\|(?:[^|;&]*\|)*\s*` +
	`(?:curl\b.*(?:@-|\s-T\s*-)|wget\b.*=(?:-|/dev/stdin)|nc(?:at)?\s)` +
	`|\bcurl\b.*\s(?:-d|-F|--data\S*|--form)[\s=]*["']?[^\s"']*(?:\$\(|\x60)\s*` + printsToken)

const printsToken = `(?:gh auth token|gcloud auth (?:application-default )?print-(?:access|identity)-token|` +
	`az account get-access-token|aws configure get|op read|pass show)`

// archive is an archive that a program opens, and the file or the buffer that it is written into.
type archive struct{ name, file []byte }

// packs records an archive that gets a secret, and what it is written into.
func (s *Scanner) packs(line []byte, here []tainted) {
	a := &s.archive
	if containsAny(line, "ZipFile(", "tarfile.open(") && s.spend(line) {
		if m := opensArchive().FindSubmatch(line); m != nil {
			a.name = append(append(a.name[:0], m[1]...), m[3]...)
			a.file = append(a.file[:0], m[2]...)
		}
	}
	if len(a.name) == 0 || !hasTaint(here, secret) || !s.spend(line) {
		return
	}
	for _, m := range packing().FindAllSubmatch(line, -1) {
		if bytes.Equal(m[1], a.name) {
			s.names.add(string(a.name), secret)
			s.names.add(string(a.file), secret)
			return
		}
	}
}

// opensArchive matches an archive that a program opens, and the file or the buffer that it is written into.
var opensArchive = pattern.New(`(?:([A-Za-z_]\w*)\s*=\s*)?\b(?:[\w.]*ZipFile|tarfile\.open)\(\s*` +
	`(?:file(?:obj)?\s*=\s*)?["']?([\w./~-]+)["']?[^)]*\)(?:\s+as\s+([A-Za-z_]\w*))?`)

// packing matches a call that adds to an archive.
var packing = pattern.New(`\b([A-Za-z_]\w*)\.(?:write|writestr|add|addfile)\(`)

// copied matches a command that copies to the directory of a variable.
var copied = pattern.New(`(?:^|[\s;&|])(?:cp|rsync|install|mv)\s[^;&|]*\s["']?\$\{?(\w{1,60})\}?[^\s;&` +
	`|]*\s*(?:$|[;&|])`)

// loopIn matches the variable of a loop, and what it goes through.
var loopIn = pattern.New(`^\s*for\s*\(?(?:const |let |var )?\s*([A-Za-z_]\w{0,60})\s+(?:in|of)\s+(.*)`)

// assignment splits a line "name = value", in any of the languages, or "with value as name:".
func assignment(line []byte) (name, value []byte) {
	if from, to, ok := bytes.Cut(line, []byte(" as ")); ok && containsAny(from, "with ") {
		return bytes.TrimRight(bytes.TrimSpace(to), ":"), from
	}
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("for")) {
		if m := loopIn().FindSubmatch(line); m != nil {
			return m[1], m[2]
		}
	}
	at := bytes.IndexByte(line, '=')
	const longest = 80 // bytes before the sign
	isSign := at > 0 && at <= longest && at+1 < len(line) && line[at+1] != '=' &&
		bytes.IndexByte([]byte("!<>="), line[at-1]) < 0
	if !isSign {
		return nil, nil
	}
	left := bytes.TrimRight(line[:at], " \t+:")
	left, _, _ = bytes.Cut(left, []byte(":")) // x: string = …
	fields := bytes.Fields(left)
	if len(fields) == 0 {
		return nil, nil
	}
	name = bytes.TrimLeft(fields[len(fields)-1], "$@({[")
	if !isName(name) {
		return nil, nil
	}
	return name, line[at+1:]
}

// isName reports whether a text is the name of a variable that is followed.
func isName(text []byte) bool {
	const longest = 60 // bytes
	return len(text) > 0 && len(text) <= longest && (isLetter(text[0]) || text[0] == '_') &&
		!slices.ContainsFunc(text, func(c byte) bool { return !isWord(c) })
}

// searchSinks decides about a line with tainted values.
func (s *Scanner) searchSinks(line []byte, here []tainted) {
	if len(here) == 0 || !s.spend(line) {
		return
	}
	from := union(here)
	switch {
	case from&(fetched|piped) != 0 && s.isRunOf(line, here):
		// joined may have counted the line already.
		if s.found[Pipe].last != s.line {
			s.found.addPlain(Pipe, s.line)
		}
	case s.isStarted(line, here, dropped),
		s.past.loads && s.isStarted(line, here, written),
		s.isStarted(line, here, arrived):
		s.found.addPlain(Pipe, s.line)
	case from&secret != 0 && (s.isSent(line, from) || s.sendsPrivate(line)),
		from&environ != 0 && s.sendsEnv(line, from):
		s.found.addPlain(Phrase, s.line)
	case from&settings != 0 && s.writesSettings(line) && !s.isPrinted(line):
		s.found.addPlain(Config, s.line)
	}
}

// isPrinted reports whether a line prints its text.
func (s *Scanner) isPrinted(line []byte) bool {
	text := bytes.TrimLeft(line, " \t")
	// A text that is printed into a pipe or a file has other readers than the user.
	return prints().Match(text) && !bytes.ContainsAny(text, "|>")
}

// prints matches a statement that prints a text.
var prints = pattern.New(`(?i)^(?:[\w.]+\s*(?:&&|\|\|)\s*)*(?:echo|printf|print|puts|say|log\w*|warn\w*|` +
	`err\w*|fail|die|info|fatal|` +
	`hint|usage|abort|ok|note|cat\s*<<|write-(?:host|output|error|warning)|console\.\w+|logg?er?\.\w+|` +
	`sys\.std\w+\.write|` +
	`process\.std\w+\.write|throw|raise|(?:\w+\.)?(?:append|add|push|extend|printf?|fail|error|warn\w*|` +
	`log\w*))\b`)

// isShown reports whether the text of a program between from and to is only shown to a user: a comment, a
// string that is printed, or, in a language with strings, one that is a sentence or is not run.
func (s *Scanner) isShown(text []byte, from, to int) bool {
	if isComment(text) || s.docs {
		return true
	}
	quote := quoteAt(text, from)
	isInside := quote != 0 && bytes.IndexByte(text[from:to], quote) < 0
	if s.program == shell {
		return endsInComment(text[:from]) || isInside && isSaid(text[:from])
	}
	if calls().Match(text[:from]) || !isInside && quote != 0 && !separate().Match(text[from:to]) {
		return false
	}
	// The arguments of a call may be in the next lines.
	isOpenCall := func(line []byte) bool {
		line = bytes.TrimRight(line, " \t\r")
		return len(line) > 0 && bytes.IndexByte([]byte("([{,"), line[len(line)-1]) >= 0 && calls().Match(line)
	}
	return !s.recent.last(2, isOpenCall)
}

// endsInComment reports whether the first number sign of a text of a shell begins a comment.
func endsInComment(text []byte) bool {
	mark := bytes.IndexByte(text, '#')
	return mark > 0 && text[mark-1] == ' ' && quoteAt(text, mark) == 0
}

// isSaid reports whether a shell prints or keeps the string in which a text ends, or the string advises a
// reader.
func isSaid(before []byte) bool {
	start := before
	if at := bytes.LastIndexAny(before, ";|&{("); at >= 0 && quoteAt(before, at) == 0 {
		start = before[at+1:]
	}
	start = bytes.TrimLeft(start, " \t")
	// bash -c and ssh run the string that follows.
	isSentence := speaks().Match(start) && !containsAny(start, " -c") &&
		!bytes.HasPrefix(start, []byte("ssh "))
	_, value := assignment(before)
	return isSentence || prints().Match(start) ||
		len(bytes.Fields(bytes.Trim(value, " \t\"'"))) > 0
}

// separate matches the end of a literal and the beginning of the next one in a list.
var separate = pattern.New(`["']\s*,\s*[rb]?["']`)

// speaks matches the beginning of a string that advises a reader.
var speaks = pattern.New(`(?i)["'][^"'$;|&]*\b(?:install|run|try|hint|usage|use|with|via|see)\b[^"';|&]*$`)

// calls matches a call that starts a program.
var calls = pattern.New(`(?i)\b(?:system|popen|exec\w*|spawn\w*|shell_exec|passthru|check_output|` +
	`check_call|getoutput|` +
	`subprocess\.\w+|child_process\.\w+|run_command|sh)\s*\(|\bdo shell script\b|\$` + "`")
