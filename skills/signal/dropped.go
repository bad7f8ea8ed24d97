package signal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Files that come from an open address and are then started, whatever their names are. In a shell, the
// command for the download has the name. In other languages the fetching, the writing and the start are lines
// apart, in any order of the first two.

// loaders are texts of calls that fetch from an address.
var loaders = []string{"requests.", "urlopen", "urlretrieve", "http.get(", "http').get(", "https.get(",
	"http.request(", "axios", "fetch(", "httpx", "URI.open", "URI(", "Net::HTTP", "LWP", "getstore",
	"file_get_contents", "DownloadFile", "WebClient", "curl", "wget", "aiohttp", "ession.get(",
	"lient.get(", ".download("}

func loads(line []byte) bool { return containsAny(line, loaders...) }

// savedIn matches the names of files into which a command downloads.
var savedIn = pattern.New(`(?i)(?:\s(?:-[a-z]*o|--output(?:-document)?|-outfile)[\s=]+|\s>>?\s*` +
	`|\|\s*tee\s+|downloadfile\([^,]*,\s*|` +
	`\bcertutil\S*\s.*https?://\S+\s+)` +
	`["']?([^\s"';&|<>)]+)`)

// sharedDirs are the directories in which every program may write. A script starts nothing there that it did
// not put there.
var sharedDirs = []string{"/tmp", "/var/tmp", "/dev/shm"}

// inShared is an expression of the beginning of a file in one of sharedDirs.
var inShared = "(?:" + strings.Join(sharedDirs, "|") + ")/"

// isShared reports whether a file is in one of sharedDirs.
func isShared(name []byte) bool {
	isBelow := func(dir string) bool { return bytes.HasPrefix(name, []byte(dir+"/")) }
	return slices.ContainsFunc(sharedDirs, isBelow)
}

// keepsName matches a command that saves under the last part of an address.
var keepsName = pattern.New(`\bwget\s|\bcurl\b.*\s(?:-[a-zA-Z]*O\b|--remote-name)`)

// drops records the files into which a command downloads from an open address, and the temporary ones from
// any address.
func (s *Scanner) drops(command []byte) {
	if !containsAny(command, "curl", "wget", "iwr", "irm", "Web", "web", "certutil") {
		return
	}
	const most = 8 // files of a command
	here := s.taintOf(command)
	if hasTaint(here, open) {
		s.dropsOpen(command, savedIn().FindAllSubmatch(command, most))
		return
	}
	if s.program != shell || !hasTaint(here, temporary) || staysHere(command) {
		return
	}
	for _, m := range savedIn().FindAllSubmatch(command, most) {
		if s.hasKind(m[1], temporary) {
			s.drop(m[1], arrived)
		}
	}
}

// dropsOpen records the files into which a command downloads from an open address. saved are the matches of
// savedIn.
func (s *Scanner) dropsOpen(command []byte, saved [][][]byte) {
	if s.program == shell {
		// It may unpack what it fetched, or leave the name to a caller.
		for _, dir := range sharedDirs {
			s.names.add(dir+"/", dropped)
		}
	}
	for _, m := range saved {
		s.drop(m[1], dropped)
	}
	if len(saved) > 0 || !keepsName().Match(command) {
		return
	}
	for word := range bytes.FieldsSeq(command) {
		if containsAny(word, "://") {
			s.drop(bytes.Trim(word, "\"';&|)`"), dropped)
			return
		}
	}
}

// drop records a file that a command names by its path, by a variable, or by the address that it comes from.
func (s *Scanner) drop(name []byte, from taint) {
	if containsAny(name, "://") {
		name = name[bytes.LastIndexByte(name, '/')+1:]
	}
	name = bytes.TrimPrefix(name, []byte("./"))
	if variable, isVariable := bytes.CutPrefix(name, []byte("$")); isVariable {
		variable = bytes.Trim(variable, "{}")
		if !slices.ContainsFunc(variable, func(c byte) bool { return !isWord(c) }) {
			name = variable
		}
	}
	// Standard output and devices keep no file that could be started.
	isDevice := bytes.HasPrefix(name, []byte("/dev/")) && !isShared(name)
	if len(name) == 0 || string(name) == "-" || isDevice {
		return
	}
	s.names.add(string(name), from)
}

// value is the expression of a literal or a variable in a program.
const value = `([fru]?["'\x60][^"'\x60]{1,200}["'\x60]|[A-Za-z_$][\w.]{0,60})`

// writtenAs matches the name of a file that a program writes.
var writtenAs = pattern.New(`(?i)\bopen\(\s*` + value + `\s*,\s*(?:mode\s*=\s*)?["']r?b?[wax]` +
	`|\b(?:File\.(?:bin)?write|File\.open|createWriteStream|writeFile(?:Sync)?|file_put_contents)\(\s*` +
	value +
	`|\b(?:urlretrieve|DownloadFile|getstore)\(?[^,]*,\s*` + value +
	`|` + value + `\.(?:write_(?:bytes|text)\(|open\(\s*["'][wax])`)

// writers are texts. Each match of writtenAs has one.
var writers = []string{"open(", "write", "Write", "WRITE", "retrieve", "Download", "getstore", "put_contents"}

// writesFile records the file that a line of a program writes, and whether it fetches what it writes.
func (s *Scanner) writesFile(line []byte, here []tainted) {
	// Written names must not use up the room for the values from elsewhere.
	const kept = 8
	if len(s.names) >= maxNames-kept || !s.spend(line) {
		return
	}
	// The function returns the name of the file, which is a temporary one without an argument.
	if m := retrieved().FindSubmatch(line); m != nil {
		s.names.add(string(m[1]), written|arrived)
	}
	m := writtenAs().FindSubmatch(line)
	if m == nil {
		return
	}
	name := bytes.Join(m[1:], nil)
	if at := bytes.IndexAny(name, "\"'`"); at >= 0 {
		name = bytes.Trim(name[at:], "\"'`")
	}
	from := written
	// A decoded literal is often an image, so it is no finding without a call that fetches.
	isFetched := func(t tainted) bool {
		return t.from&fetched != 0 && (t.name != "" && s.past.fetches || loads(line))
	}
	if containsAny(line, "urlretrieve", "getstore") || slices.ContainsFunc(here, isFetched) {
		from |= arrived
	}
	s.names.add(string(name), from)
}

// retrieved matches the variable for the name of a file that is fetched.
var retrieved = pattern.New(`^\s*([A-Za-z_]\w{0,60})\s*(?:,\s*\w+\s*)?=\s*[\w.]*\burlretrieve\(`)

// Expressions that match the text between the beginning of a line and a file that it starts, and for chmod
// the text after the file.
var (
	started = pattern.New(`(?i)(?:^|[;&|({` + "`" + `]|\b(?:then|do|else)\b)\s*(?:(?:exec|nohup|sudo` +
		`|setsid|env|` +
		`time|source|\.|&|open|start|start-process|(?:ba|z|da|k)?sh(?:\s*<)?|python[0-9.]*|node|bun|deno` +
		`|perl|ruby|php|(?:powershell|pwsh)(?:\.exe)?\s.*-file|` +
		`chmod\s+(?:[ugoa]*\+[rwst]*x\w*|[0-7]*[1357][0-7]*))\s+(?:-\S+\s+)*)*["'` + "`" + `]*(\.[/\\]` +
		`|\$\{?)?$`)
	startedIn = pattern.New(`(?i)(?:\b(?:system|popen|exec\w*|spawn\w*|startfile|shell_exec|passthru` +
		`|check_output|` +
		`check_call|getoutput|run|call|chmod(?:Sync)?\(\s*0o?[0-7]*[1357][0-7]*\s*,)\s*\(?\s*\[?\s*|\x60)` +
		`(?:str\(|[fr]?["'\x60]|(?:/\w+)*/?(?:ba|z|da)?sh\b|python3?|node|perl|ruby|sys\.executable` +
		`|\s+-\w+|[,+\s]|` +
		`\$?\{|\./)*$`)
	permits   = pattern.New(`(?i)\bchmod(?:Sync)?\(\s*[fr]?["']?$|\bFile\.chmod\(.*$`)
	permitted = pattern.New(`(?i)^["']?\s*,\s*(?:0o?[0-7]*[1357]|["'][0-7]*[1357]|.*S_IX|.*S_IEXEC` +
		`|.*\|\s*0o?1)`)
	allows = pattern.New(`^["']?\.chmod\(\s*(?:0o?[0-7]*[1357]|.*S_IX|.*S_IEXEC|.*\|\s*0o?1)`)
)

// isStarted reports whether a line starts a file of a kind, or makes a program of it.
func (s *Scanner) isStarted(line []byte, values []tainted, kind taint) bool {
	return slices.ContainsFunc(values, func(t tainted) bool {
		return t.name != "" && t.from&kind != 0 && s.starts(line, []byte(t.name), kind == arrived)
	})
}

// starts reports whether a line starts a file by its name. If isCall is set, only the call that starts a
// program counts: a vendor's file may be made executable, and its name is an argument of many calls.
func (s *Scanner) starts(line, name []byte, isCall bool) bool {
	const most = 8 // names in a line
	n := 0
	for at, end := range places(line, name) {
		n++
		isPart := at > 0 && isWord(line[at-1]) && isWord(name[0])
		goesOn := end < len(line) && name[len(name)-1] != '/' &&
			(isWord(line[end]) || line[end] == '=' || line[end] == '.' && s.program != code)
		switch {
		case isPart, goesOn:
		case !s.spend(line):
			return false
		case isCall && s.callsAt(line, at, end), !isCall && s.startsAt(line, at, end):
			return true
		}
		if n == most {
			return false
		}
	}
	return false
}

// callsAt reports whether the call that starts a program precedes the name of a file.
func (s *Scanner) callsAt(line []byte, at, end int) bool {
	before, name := line[:at], line[at:end]
	if s.program == code {
		m := startedIn().FindIndex(before)
		return m != nil && before[m[0]] != '`' && !bytes.Contains(before[m[0]:], []byte("chmod"))
	}
	m := started().FindSubmatchIndex(before)
	if m == nil || m[2] < 0 && bytes.IndexByte(name, '/') < 0 {
		return false
	}
	// The first element of a list is behind a parenthesis too.
	if m[0] > 0 && before[m[0]] == '(' && before[m[0]-1] == '=' {
		return false
	}
	return quoteAt(line, m[0]) == 0 && !bytes.Contains(before[m[0]:], []byte("chmod"))
}

// startsAt reports whether a line starts the file that it names, or makes a program of it.
func (s *Scanner) startsAt(line []byte, at, end int) bool {
	before, name, after := line[:at], line[at:end], line[end:]
	if s.program == code {
		isPermitted := permits().Match(before) && permitted().Match(after) || allows().Match(after)
		if isPermitted || startedIn().Match(before) {
			return true
		}
	}
	m := started().FindSubmatchIndex(before)
	// Outside of quotes, the languages of code have no commands of a shell.
	if m == nil || s.program == code && quoteAt(line, at) == 0 {
		return false
	}
	return m[2] >= 0 || m[1]-m[0] > 1 && hasLetter(before[m[0]:m[1]]) || bytes.ContainsAny(name, `/\`)
}

func hasLetter(text []byte) bool { return slices.ContainsFunc(text, isLetter) }

// joined returns a line of a program as its language reads it, with the literals that it joins in one piece.
// A command that no piece has is counted.
func (s *Scanner) joined(line []byte) []byte {
	if !bytes.ContainsAny(line, `"'`) {
		return line
	}
	between := map[byte]string{'+': "", '/': "/"}
	switch {
	case containsAny(line, "''.join(", `"".join(`, ".join('')", `.join("")`):
		between[','] = ""
	case containsAny(line, "join(", "Path(", "resolve("):
		between[','] = "/"
	}
	s.whole = appendJoined(s.whole[:0], line, between)
	if len(s.whole) == len(line) {
		return line
	}
	isNew := func(word string) bool { return hasWord(s.whole, []byte(word)) && !hasWord(line, []byte(word)) }
	// A program has no reason to split such a name over literals.
	if slices.ContainsFunc(hiddenWords, isNew) {
		s.found.addPlain(Pipe, s.line)
	}
	return s.whole
}

// hiddenWords are names of what runs a text as a program.
var hiddenWords = []string{"exec", "eval", "system", "popen", "subprocess", "child_process", "__import__",
	"curl", "wget", "powershell", "execSync"}

// appendJoined appends a line with what joins two literals in the place of the mark between them.
func appendJoined(whole, line []byte, between map[byte]string) []byte {
	for i := 0; i < len(line); {
		if size, joint := jointAt(line[i:], between); size > 0 {
			whole = append(whole, joint...)
			i += size
			continue
		}
		whole = append(whole, line[i])
		i++
	}
	return whole
}

// jointAt returns the size of the end of a literal at the beginning of a text, with the mark behind it and
// the beginning of the next literal, and what joins the two. The size of another text is 0.
func jointAt(text []byte, between map[byte]string) (size int, joint string) {
	if !isQuote(text[0]) {
		return 0, ""
	}
	rest := bytes.TrimLeft(text[1:], " \t")
	if len(rest) == 0 {
		return 0, ""
	}
	joint, isJoined := between[rest[0]]
	rest = bytes.TrimLeft(rest[1:], " \t")
	if !isJoined || len(rest) == 0 || !isQuote(rest[0]) {
		return 0, ""
	}
	return len(text) - len(rest) + 1, joint
}

// startsDropped searches a command for the start of a file that came from an open address. In prose it is
// plain unless it is an example.
func (s *Scanner) startsDropped(command []byte, line int) bool {
	if len(s.names) == 0 || s.program != none && (isComment(command) || s.docs) {
		return false
	}
	values := s.taintOf(command)
	if !hasTaint(values, dropped|arrived) || !s.spend(command) {
		return false
	}
	isStart := s.isStarted(command, values, dropped) ||
		s.program == shell && s.isStarted(command, values, arrived)
	if !isStart {
		return false
	}
	if s.program == none && s.isExample(nil, command) || s.program != none && s.isPrinted(command) {
		return false
	}
	s.found.addPlain(Pipe, line)
	s.names = slices.DeleteFunc(s.names, func(t tainted) bool { return t.from&(dropped|arrived) != 0 })
	return true
}
