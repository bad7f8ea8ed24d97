package signal

import (
	"bytes"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

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
		isCode := s.program == code && quoteAt(text, m[0]) == 0 && !isComment(text) && !s.docs
		isShown := s.program != none && !isCode && s.isShown(text, m[0], m[1])
		// A shell cannot run a text that its author cuts with an ellipsis.
		isCut := bytes.HasPrefix(text[m[1]:], []byte("...")) || bytes.HasPrefix(text[m[1]:], []byte("…"))
		s.countIf(!isShown && !isCut && !s.isExample(text[:m[0]], text), Pipe, line)
		return true
	}
	m := pipeToShell().FindIndex(text)
	if m == nil {
		return false
	}
	isOpen := openAddress(text[m[0]:m[1]]) || bytes.Contains(text[m[0]:], []byte("://")) &&
		openAddress(text[m[0]:])
	switch {
	case m[0] >= 2 && bytes.HasSuffix(bytes.TrimRight(text[:m[0]], " "), []byte("!`")):
		// Some clients run it while they load the skill.
		s.countPlain(Pipe, line)
	case s.program != none && !s.isShown(text, m[0], m[1]),
		isKey().Match(text[:m[0]]) && !s.fence.open() && !s.isExample(text[:m[0]], text):
		s.countPlain(Pipe, line)
	// A program that prints an installer, or prose that names it, speaks to a reader.
	default:
		s.countIf(isOpen && !s.isExample(text[:m[0]], text), Pipe, line)
	}
	return true
}

// isKey matches the text before a command of a hook or a server, which a client runs without a question.
var isKey = pattern.New(`^\s*(?:-\s*)?command:\s*["']?$`)

// splits are ways in which shells read a word that a search does not find.
var splits = []string{"''", `""`, "${IFS}", "$IFS", "$@", "\\"}

// words are commands that a program has no reason to hide.
var words = []string{"curl", "wget", "bash", "base64", "eval", "python", "nc ", "/bin/sh", "chmod"}

// searchSplit searches a line of a program for a command whose name is split: c""url, w'g'et, cu\rl.
func (s *Scanner) searchSplit(line []byte) {
	if s.program != shell || !slices.ContainsFunc(splits,
		func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
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
	if slices.ContainsFunc(words, isNew) || bytes.Contains(line, []byte("${IFS}")) &&
		pipeToShell().Match(clean) {
		s.countPlain(Pipe, s.line)
	}
}

// appendUnsplit appends a line as a shell reads it, without what splits its words.
func appendUnsplit(clean, line []byte) []byte {
	const space = "${IFS}"
	for i := 0; i < len(line); i++ {
		c, left := line[i], len(line)-i
		afterLetter := i > 0 && isLetter(line[i-1])
		twoBefore := afterLetter && left > 2 && isLetter(line[i+2]) // letters around two characters
		switch {
		case c == '\\' && afterLetter && left > 1 && isLetter(line[i+1]) && i > 1 && isLetter(line[i-2]):
		case twoBefore && (c == '\'' || c == '"') && line[i+1] == c,
			twoBefore && c == '$' && line[i+1] == '@':
			i++
		case c == '$' && bytes.HasPrefix(line[i:], []byte(space)):
			clean = append(clean, ' ')
			i += len(space) - 1
		default:
			clean = append(clean, c)
		}
	}
	return clean
}

// searchConfig searches a line for an order to change the configuration of an agent. It is plain if it is
// meant to happen unseen or takes rights, or if a command writes the configuration of all projects of the
// user.
func (s *Scanner) searchConfig(line []byte, seen group) {
	const near = 6 // lines
	if s.configured > 0 && (s.line > s.configured+near || s.program != none) {
		s.configured = 0
	}
	if seen&configs != 0 && s.spend(line) {
		if m := configuration().FindIndex(line); m != nil {
			// To change the configuration of an agent is the purpose of many skills, so an order alone is a
			// fact.
			plain := s.program == none && (isStealthy(line) || s.recent.last(2, isStealthy) ||
				s.fence.open() && ofUser().Match(line) || replaces().Match(line) ||
				sendsLater().Match(line[m[1]:])) &&
				!s.isExample(line[:m[0]], line)
			s.countIf(plain, Config, s.line)
			s.configured = s.line
			if plain {
				s.configured = 0
			}
			return
		}
	}
	if s.configured > 0 && len(line) > 0 && s.spend(line) && isStealthy(line) && !s.isExample(nil,
		line) {
		s.countPlain(Config, s.configured)
		s.configured = 0
	}
}

// stealthy matches words that turn an order to change a configuration into an attack: the user is not asked
// or does not learn of it, or later sessions no longer ask.
var stealthy = pattern.New(`(?i)\b(?:silently|secretly|quietly)\b|\bwithout (?:asking|telling|informing|` +
	`notifying|prompting|confirm\w*|` +
	`mention\w*|the user)|\b(?:do not|don'?t|never|no need to) (?:ask|tell|mention|inform|notify|show|` +
	`prompt|alert)\b[^.]{0,30}\b` +
	`(?:user|this|that|it|them|permission|confirmation)\b|\bbypassPermissions\b|` +
	`dangerously-skip-permissions|` +
	`"?enableAllProjectMcpServers"?\s*:\s*true|\bANTHROPIC_BASE_URL\b.{0,20}http|"(?:Bash|` +
	`Shell)\(:?\*\)"|"allow"\s*:\s*\[\s*"(?:Bash|Shell|\*)"|` +
	`\b(?:before|in) (?:every|each|any|all) (?:future |new |later )?(?:session|response|reply|answer|` +
	`task|message|commit)s?\b.{0,80}` +
	`(?:https?://|curl|wget|run |execute|send|upload|fetch)|\|\s*(?:ba|z)?sh\b`)

// sendsLater matches a text for later sessions that orders them to send something to an address.
var sendsLater = pattern.New(`(?i)\b(?:send|upload|forward|transmit|exfiltrate|leak)\b[^.!?]{1,60}https?://`)

// isStealthy reports whether a line has such words, which no refusal turns into care.
func isStealthy(line []byte) bool {
	m := stealthy().FindIndex(line)
	return m != nil && !isRefused(line[:m[0]])
}

// ofUser matches a redirection into the instructions for all projects. To show how a file of settings is made
// is the purpose of many skills.
var ofUser = pattern.New(`(?i)(?:>>?|\btee(?:\s+-a)?)\s*["']?(?:~` +
	`|\$\{?HOME\}?)/\S{0,60}(?:CLAUDE(?:\.local)?|AGENTS|` +
	`GEMINI)\.md`)

// replaces matches an order to put a file of the skill in the place of settings that run commands.
var replaces = pattern.New(`(?i)\b(?:copy|merge|install|move|symlink|link|put|paste` +
	`|append)\b[^.]{0,20}["'` + "`" + `(]?(?:\./)?` +
	`(?:[\w-]+/)+[\w.-]+\.json[^.]{0,40}\b(?:to|into|over|as|in)\b[^/~.]{0,30}["'` + "`" + `]?\S{0,20}` +
	`(?:\.(?:claude|gemini)/settings(?:\.local)?\.json|\.vscode/tasks\.json|\.?mcp\.json)`)
