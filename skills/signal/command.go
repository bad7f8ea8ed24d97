package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// command is a command line that may continue after a backslash or a pipe.
type command struct {
	text []byte
	line int // its first line
}

// add appends a line, and reports whether the command continues on the next line.
func (c *command) add(line []byte, number int) (more bool) {
	if len(c.text) == 0 {
		c.line = number
	}
	c.text = append(c.text, line...)
	text := bytes.TrimRight(c.text, " \t\r")
	switch {
	case len(text) == 0 || len(text) >= maxLine:
		return false
	case text[len(text)-1] == '\\':
		c.text = append(text[:len(text)-1], ' ')
		return true
	}
	return text[len(text)-1] == '|'
}

// searchCommand searches for a download that is passed to a shell, in a command that may continue on the next
// line. The cells of a table are separate commands.
func (s *Scanner) searchCommand(line []byte) {
	row := bytes.TrimLeft(line, " \t")
	if s.markdown && len(row) > 0 && row[0] == '|' && len(s.command.text) == 0 {
		for cell := range cells(row) {
			s.command.add(cell, s.line)
			s.endCommand()
		}
		return
	}
	if more := s.command.add(line, s.line); !more {
		s.endCommand()
	}
}

// endCommand decides about the collected command.
func (s *Scanner) endCommand() {
	text := s.command.text
	if s.spend(text) {
		s.drops(text)
		if !s.searchPipe(text) && !s.startsDropped(text, s.command.line) {
			s.keepDownload(text)
		}
	}
	s.command.text = s.command.text[:0]
}

// shells matches programs that execute their input.
const shells = `(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+)?(?:\w+=\S*\s+)*(?:/(?:usr/)?bin/)?` +
	`(?:(?:ba|z|da|k|a|fi)?sh\b|(?:python3?|node|perl|ruby|php)(?:\s+-)?(?:\s*$|["')` + "`" + `]|\s*[;&|]))`

// pipeToShell matches a command that downloads or decodes into a shell: by a pipe, by substitution, by
// process substitution, or the same in PowerShell. A pipe needs an address before it: prose about "curl | sh"
// is not a command.
var pipeToShell = pattern.New(`(?i)` +
	`\b(?:curl|wget)\s[^|]*[/.$][^|]*\|(?:.*\|)?\s*` + shells +
	`|\bbase64\s+(?:-d|--decode)\b.*\|\s*` + shells +
	`|\b(?:(?:ba|z|da|k|a)?sh|eval|source|exec)\s+(?:-\S+\s+)*["']?` +
	"(?:<\\(|\\$\\(|`)" + `\s*(?:curl|wget|base64\s+-)` +
	`|(?:^|\s)\.\s+<\(\s*(?:curl|wget)` +
	`|\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|curl|downloadstring)\b` +
	`.*\|\s*(?:iex|invoke-expression)\b` +
	`|\b(?:iex|invoke-expression)\b.*\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|downloadstring)\b` +
	`|\b(?:python3?|node|perl|ruby|php)\s+-(?:c|e|r)\s+["']?` + "(?:\\$\\(|`)" +
	`\s*(?:curl|wget|base64\s+-)`)

// mayRun reports whether a command has the parts of pipeToShell that an anchor does not cover; few have.
func mayRun(command []byte) bool {
	return containsAny(command, "|", "/dev/tcp", "http:", "-c ", "`", "$(", "<(", "iex", "IEX", "Iex",
		"xpression", " -e", " -E")
}

// decodes matches a command that runs a text which is decoded or assembled at run time, or one from an open
// connection. Whatever the text is, a reader of the command does not see it.
var decodes = pattern.New(`(?i)` +
	`\bbase64\s+(?:-d|-D|--decode|-di)\b.*\|(?:.*\|)?\s*` + shells +
	`|\b(?:xxd\s+-r|openssl\s+(?:enc|base64|aes\S*)\s.*-d|uudecode|rev\b|` +
	`tr\s+["']?\S+["']?\s+["']?\S+["']?|gunzip\b|zcat\b|gzip\s+-d\S*)` +
	`[^|]*\|(?:[^|]*\|)?\s*` + shells +
	"|\\b(?:printf|echo\\s+-[ne]*e[ne]*)\\s+[\"'$]*(?:[^|]*\\\\(?:x[0-9a-f]{2}|[0-7]{3})){4}[^|" +
	"]*\\|\\s*" + shells +
	"|\\b(?:eval|source|(?:ba|z|da|k|a)?sh\\s+-c|exec)\\s+[\"']?(?:\\$\\(|`)[^)`]*\\b(?:base64|xxd|" +
	"openssl|rev|printf|tr\\s)\\b" +
	`|\b(?:eval|exec|Function)\s*\(.{0,80}\b(?:b64decode|atob|fromhex|unhexlify|decompress|base64_decode|` +
	`FromBase64String|urlopen|requests\.get)\b` +
	`|\b(?:powershell|pwsh)(?:\.exe)?\s.*-e(?:c|nc|ncodedcommand)?\s+["']?[A-Za-z0-9+/=]{16,}` +
	`|\b(?:ba|z|da|k)?sh\s+-i\s*(?:[0-9]?>&|<)\s*/dev/tcp/|/dev/tcp/[^\s/]+/\d+.*\b(?:exec|sh|bash)\b|` +
	`\bexec\s+\d+<>\s*/dev/tcp/` +
	`|\bnc(?:at)?\s+(?:-\w+\s+)*[^-\s]\S*\s+\S.*\s-\w*[ec]\s+["']?/?(?:bin/)?(?:ba|z|da)?sh\b|` +
	`\bnc(?:at)?\b.*\s-\w*[ec]\s+["']?/?(?:bin/)?(?:ba|z|da)?sh\b["']?\s+[^-\s;|&]\S*\s+\S|` +
	`\bmkfifo\b.*\|\s*(?:/bin/)?(?:ba)?sh\b.*\bnc\b` +
	`|\bcat\s+[^|;&\s]+\s+[^|;&]*\|\s*` + shells +
	`|(?:^|[;&(]\s*)["']?\$\{?\w+\}?["']*\$\{?\w+\}?["']?\s[^|]*\|\s*` + shells +
	`|\b(?:pip3?|uv|npm|pnpm|yarn|gem|cargo|poetry)\b.*(?:--(?:extra-)?index(?:-url)?|-i|--registry|` +
	`--source)["',\s=]+http://(?:[^l1/]|l[^o]|1[^2])` +
	`|\b(?:pip3?|uv|npm|pnpm|yarn|gem|cargo|go)\b.*\b(?:install|add|i)\s(?:.*["'\s@])?(?:git\+)?http://` +
	`(?:[^l1/\s]|l[^o]|1[^2])`)

// searchPipe decides whether a command runs what it downloads or decodes, and counts it.
func (s *Scanner) searchPipe(text []byte) bool {
	if !mayRun(text) {
		return false
	}
	line := s.command.line
	if s.program != none && s.found[Pipe].last == line {
		// searchProgram has counted it.
		return true
	}
	if m := decodes().FindIndex(text); m != nil {
		s.found.addIf(s.isPlainDecoding(text, m[0], m[1]), Pipe, line)
		return true
	}
	if m := pipeToShell().FindIndex(text); m != nil {
		s.found.addIf(s.isPlainPipe(text, m[0], m[1]), Pipe, line)
		return true
	}
	return false
}

// isPlainDecoding reports whether a command that runs a decoded text, from one place to another, is more than
// an example.
func (s *Scanner) isPlainDecoding(text []byte, from, to int) bool {
	isCode := s.program == code && quoteAt(text, from) == 0 && !isComment(text) && !s.docs
	isShown := s.program != none && !isCode && s.isShown(text, from, to)
	// A shell cannot run a text that its author cuts with an ellipsis.
	isCut := bytes.HasPrefix(text[to:], []byte("...")) || bytes.HasPrefix(text[to:], []byte("…"))
	return !isShown && !isCut && !s.isExample(text[:from], text)
}

// isPlainPipe reports whether a command that runs what it downloads, from one place to another, is more than
// a vendor's installer for a reader.
func (s *Scanner) isPlainPipe(text []byte, from, to int) bool {
	before := text[:from]
	switch {
	case bytes.HasSuffix(bytes.TrimRight(before, " "), []byte("!`")):
		// Some clients run it while they load the skill.
		return true
	case s.program != none && !s.isShown(text, from, to),
		isKey().Match(before) && !s.fence.open() && !s.isExample(before, text):
		return true
	}
	// A program that prints an installer, or prose that names it, speaks to a reader.
	isOpen := openAddress(text[from:to]) || containsAny(text[from:], "://") && openAddress(text[from:])
	return isOpen && !s.isExample(before, text)
}

// isKey matches the text before a command of a hook or a server, which a client runs without a question.
var isKey = pattern.New(`^\s*(?:-\s*)?command:\s*["']?$`)

// splits are ways in which shells read a word that a search does not find.
var splits = []string{"''", `""`, ifs, "$IFS", "$@", "\\"}

// ifs is a variable that a shell reads as a blank.
const ifs = "${IFS}"

// words are commands that a program has no reason to hide.
var words = []string{"curl", "wget", "bash", "base64", "eval", "python", "nc ", "/bin/sh", "chmod"}

// searchSplit searches a line of a shell for a command whose name is split: c""url, w'g'et, cu\rl.
func (s *Scanner) searchSplit(line []byte) {
	if !containsAny(line, splits...) {
		return
	}
	s.clean = appendUnsplit(s.clean[:0], line)
	clean := s.clean
	if len(clean) == len(line) {
		return
	}
	isNew := func(word string) bool {
		// A command that the line has in one piece too is not hidden.
		return bytes.Count(clean, []byte(word)) > bytes.Count(line, []byte(word))
	}
	if slices.ContainsFunc(words, isNew) || containsAny(line, ifs) && pipeToShell().Match(clean) {
		s.found.addPlain(Pipe, s.line)
	}
}

// appendUnsplit appends a line as a shell reads it, without what splits its words.
func appendUnsplit(clean, line []byte) []byte {
	for i := 0; i < len(line); {
		switch n := splitAt(line, i); {
		case n > 0:
			i += n
		case bytes.HasPrefix(line[i:], []byte(ifs)):
			clean = append(clean, ' ')
			i += len(ifs)
		default:
			clean = append(clean, line[i])
			i++
		}
	}
	return clean
}

// splitAt returns the length of what splits a word of letters at line[i], or 0.
func splitAt(line []byte, i int) int {
	isLetterAt := func(at int) bool { return at >= 0 && at < len(line) && isLetter(line[at]) }
	if !isLetterAt(i - 1) {
		return 0
	}
	switch c := line[i]; {
	case c == '\\' && isLetterAt(i-2) && isLetterAt(i+1):
		return 1
	case (c == '\'' || c == '"') && isLetterAt(i+2) && line[i+1] == c,
		c == '$' && isLetterAt(i+2) && line[i+1] == '@':
		return 2
	default:
		return 0
	}
}
