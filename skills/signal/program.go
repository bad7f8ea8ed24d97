package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// searchProgram searches a line of a program for values that come from elsewhere and are run, and for files
// of the user that are sent or written. It follows variables, so that the steps may be lines apart.
func (s *Scanner) searchProgram(line []byte) {
	if s.docs && bytes.Contains(line, []byte(onOpening)) {
		s.openingLine = s.line
	}
	if s.program == code && togglesDocs(line) {
		s.searchText(line)
		s.docs = !s.docs
		return
	}
	if len(s.hookEnd) > 0 {
		s.searchHook(line)
	}
	if s.docs || isComment(line) {
		return
	}
	s.searchSplit(line)
	if s.program == code {
		line = s.joined(line)
	}
	does := literals(line)
	if does&fetched != 0 && s.program == shell {
		s.searchInline(line)
	}
	if does&fetched != 0 && s.program == code {
		s.answers, s.fetches = true, s.fetches || loads(line)
	}
	if s.answers && bytes.Contains(line, []byte(".on(")) && s.spend(line) {
		for _, m := range collects().FindAllSubmatch(line, -1) {
			s.name(string(m[1]), fetched)
		}
	}
	here := s.tainted(line, does)
	if does&fills != 0 && s.program == code {
		s.writesFile(line, here)
		here = s.tainted(line, does)
	}
	s.loads = s.loads || s.program == code && isOpen(here) && loads(line)
	if len(here) > 0 {
		s.searchSinks(line, here)
	}
	if does&tokens != 0 && s.program == shell && s.spend(line) && sendsToken().Match(line) &&
		!s.isPrinted(line) {
		s.countPlain(Phrase, s.line)
	}
	s.searchConnection(line, does)
	s.searchStartup(line, here, does)
	s.searchTasks(line, here, does)
	if s.program == shell {
		s.searchPicked(line, does)
	}
	s.assign(line, len(here) > 0)
	if s.program == code {
		s.packs(line, here)
		s.gathers(line, here)
	}
	if s.program == shell {
		s.copies(line, here)
	}
}

// assign records the variable that a line assigns a tainted value to. isTainted is set if the line has one.
func (s *Scanner) assign(line []byte, isTainted bool) {
	name, value := assignment(line)
	if len(name) == 0 || len(s.names) == maxNames {
		return
	}
	// A program does not return the environment that it gets.
	if call, _, ok := bytes.Cut(value, []byte("env=")); ok && bytes.Contains(call, []byte("subprocess.")) {
		value = call
	}
	from := taint(0)
	if isTainted {
		for _, t := range s.taintOf(s.withoutKeys(value)) {
			if t.name != string(name) {
				from |= t.from
			}
		}
		// The output of a command is not the name of the file that it reads.
		if s.program == shell && bytes.ContainsAny(value, "(\x60") {
			from &^= arrived
		}
		if from&environ != 0 && !(s.hasEnv(value) && s.keepsWhole(line, value)) {
			from &^= environ
		}
		if from&picked != 0 && !s.hasPicked(value) {
			from &^= picked
		}
		// An answer to who logs in with a value is not that value.
		if from&(picked|environ) != 0 && s.program == shell && requests().Match(value) {
			from &^= picked | environ
		}
	}
	if s.program == shell && s.picksEnv(name, value) {
		from |= picked
	}
	if bytes.Contains(value, []byte("curl ")) || bytes.Contains(value, []byte("wget ")) {
		if i := bytes.IndexAny(value, "\"'"); i >= 0 && s.spend(value) && pipeToShell().Match(value) &&
			len(bytes.Fields(value[i+1:])) > 0 && isFetcher(bytes.Fields(value[i+1:])[0]) {
			from |= piped
		}
	}
	if from == 0 {
		return
	}
	s.name(string(name), from)
}

// copies records the temporary files that a command makes of a secret.
func (s *Scanner) copies(line []byte, here []tainted) {
	from := taint(0)
	for _, t := range here {
		from |= t.from & (secret | environ)
	}
	if from == 0 || !s.spend(line) {
		return
	}
	if m := copied().FindSubmatch(line); m != nil {
		s.name(string(m[1]), from)
	}
	for word := range bytes.FieldsSeq(line) {
		word = bytes.Trim(word, "\"';&|)>")
		if bytes.HasPrefix(word, []byte("/tmp/")) {
			s.name(string(word), from)
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

// packs records an archive that gets a secret, and what it is written into.
func (s *Scanner) packs(line []byte, here []tainted) {
	opens := bytes.Contains(line, []byte("ZipFile(")) || bytes.Contains(line, []byte("tarfile.open("))
	if opens && s.spend(line) {
		if m := archive().FindSubmatch(line); m != nil {
			s.archive = append(s.archive[:0], bytes.Join([][]byte{m[1], m[3]}, nil)...)
			s.packed = append(s.packed[:0], m[2]...)
		}
	}
	isSecret := func(t tainted) bool { return t.from&secret != 0 }
	if len(s.archive) == 0 || !slices.ContainsFunc(here, isSecret) || !s.spend(line) {
		return
	}
	for _, m := range packing().FindAllSubmatch(line, -1) {
		if bytes.Equal(m[1], s.archive) {
			s.name(string(s.archive), secret)
			s.name(string(s.packed), secret)
			return
		}
	}
}

// archive matches an archive that a program opens, and the file or the buffer that it is written into.
var archive = pattern.New(`(?:([A-Za-z_]\w*)\s*=\s*)?\b(?:[\w.]*ZipFile|tarfile\.open)\(\s*` +
	`(?:file(?:obj)?\s*=\s*)?["']?([\w./~-]+)["']?[^)]*\)(?:\s+as\s+([A-Za-z_]\w*))?`)

// packing matches a call that adds to an archive.
var packing = pattern.New(`\b([A-Za-z_]\w*)\.(?:write|writestr|add|addfile)\(`)

// copied matches a command that copies to the directory of a variable.
var copied = pattern.New(`(?:^|[\s;&|])(?:cp|rsync|install|mv)\s[^;&|]*\s["']?\$\{?(\w{1,60})\}?[^\s;&` +
	`|]*\s*(?:$|[;&|])`)

func isFetcher(word []byte) bool {
	return bytes.Equal(word, []byte("curl")) || bytes.Equal(word, []byte("wget")) || bytes.Equal(word,
		[]byte("sudo"))
}

// loop matches the variable of a loop, and what it goes through.
var loop = pattern.New(`^\s*for\s*\(?(?:const |let |var )?\s*([A-Za-z_]\w{0,60})\s+(?:in|of)\s+(.*)`)

// assignment splits a line "name = value", in any of the languages, or "with value as name:".
func assignment(line []byte) (name, value []byte) {
	if from, to, ok := bytes.Cut(line, []byte(" as ")); ok && bytes.Contains(from, []byte("with ")) {
		return bytes.TrimRight(bytes.TrimSpace(to), ":"), from
	}
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("for")) {
		if m := loop().FindSubmatch(line); m != nil {
			return m[1], m[2]
		}
	}
	at := bytes.IndexByte(line, '=')
	const longest = 80 // bytes before the sign
	if at <= 0 || at > longest || at+1 == len(line) || line[at+1] == '=' ||
		bytes.IndexByte([]byte("!<>="), line[at-1]) >= 0 {
		return nil, nil
	}
	left := bytes.TrimRight(line[:at], " \t+:")
	if typed, _, ok := bytes.Cut(left, []byte(":")); ok {
		left = typed // x: string = …
	}
	fields := bytes.Fields(left)
	if len(fields) == 0 {
		return nil, nil
	}
	name = bytes.TrimLeft(fields[len(fields)-1], "$@({[")
	if len(name) == 0 || len(name) > 60 || !isLetter(name[0]) && name[0] != '_' ||
		slices.ContainsFunc(name, func(c byte) bool { return !isWord(c) }) {
		return nil, nil
	}
	return name, line[at+1:]
}

// searchSinks decides about a line with tainted values.
func (s *Scanner) searchSinks(line []byte, here []tainted) {
	from := taint(0)
	for _, t := range here {
		from |= t.from
	}
	if !s.spend(line) {
		return
	}
	switch {
	case from&(fetched|piped) != 0 && s.isRunOf(line, here):
		// joined may have counted the line already.
		if s.found[Pipe].last != s.line {
			s.countPlain(Pipe, s.line)
		}
	case from&dropped != 0 && s.isStarted(line, here, dropped),
		from&written != 0 && s.loads && s.isStarted(line, here, written),
		from&arrived != 0 && s.isStarted(line, here, arrived):
		s.countPlain(Pipe, s.line)
	case from&secret != 0 && (s.isSent(line, from) || s.sendsPrivate(line)),
		from&environ != 0 && s.sendsEnv(line, from):
		s.countPlain(Phrase, s.line)
	case from&settings != 0 && s.writesSettings(line) && !s.isPrinted(line):
		s.countPlain(Config, s.line)
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
	if s.program == none {
		return true
	}
	if isComment(text) || s.docs {
		return true
	}
	mark := bytes.IndexByte(text[:from], '#')
	if s.program == shell && mark > 0 && text[mark-1] == ' ' && quoteAt(text, mark) == 0 {
		return true
	}
	quote := quoteAt(text, from)
	isInside := quote != 0 && bytes.IndexByte(text[from:to], quote) < 0
	if s.program == shell {
		start := bytes.TrimLeft(text[:from], " \t")
		if at := bytes.LastIndexAny(text[:from], ";|&{("); at >= 0 && quoteAt(text, at) == 0 {
			start = bytes.TrimLeft(text[at+1:from], " \t")
		}
		_, value := assignment(text[:from])
		// bash -c and ssh run the string that follows.
		isSentence := speaks().Match(start) && !bytes.Contains(start, []byte(" -c")) &&
			!bytes.HasPrefix(start, []byte("ssh "))
		return isInside && (isSentence || prints().Match(start) || len(bytes.Fields(bytes.Trim(value,
			" \t\"'"))) > 0)
	}
	isCalled := calls().Match(text[:from])
	if isCalled || !isInside && quote != 0 && !separate().Match(text[from:to]) {
		return false
	}
	// The arguments of a call may be in the next lines.
	isOpenCall := func(line []byte) bool {
		line = bytes.TrimRight(line, " \t\r")
		return len(line) > 0 && bytes.IndexByte([]byte("([{,"), line[len(line)-1]) >= 0 && calls().Match(line)
	}
	return !s.recent.last(2, isOpenCall)
}

// separate matches the end of a literal and the beginning of the next one in a list.
var separate = pattern.New(`["']\s*,\s*[rb]?["']`)

// speaks matches the beginning of a string that advises a reader.
var speaks = pattern.New(`(?i)["'][^"'$;|&]*\b(?:install|run|try|hint|usage|use|with|via|see)\b[^"';|&]*$`)

// calls matches a call that starts a program.
var calls = pattern.New(`(?i)\b(?:system|popen|exec\w*|spawn\w*|shell_exec|passthru|check_output|` +
	`check_call|getoutput|` +
	`subprocess\.\w+|child_process\.\w+|run_command|sh)\s*\(|\bdo shell script\b|\$` + "`")
