package signal

import "github.com/skillsd/skillsd/skills/pattern"

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
			isPlain := s.isPlainConfig(line, m[0], m[1])
			s.found.addIf(isPlain, Config, s.line)
			s.configured = s.line
			if isPlain {
				s.configured = 0
			}
			return
		}
	}
	if s.configured == 0 || len(line) == 0 || !s.spend(line) {
		return
	}
	if isStealthy(line) && !s.isExample(nil, line) {
		s.found.addPlain(Config, s.configured)
		s.configured = 0
	}
}

// isPlainConfig reports whether an order, from one place of a line to another, is one that a user should look
// at. To change the configuration of an agent is the purpose of many skills, so an order alone is a fact.
func (s *Scanner) isPlainConfig(line []byte, from, to int) bool {
	if s.program != none {
		return false
	}
	isHostile := isStealthy(line) || s.recent.last(2, isStealthy) ||
		s.fence.open() && ofUser().Match(line) || replaces().Match(line) || sendsLater().Match(line[to:])
	return isHostile && !s.isExample(line[:from], line)
}

// configuration matches an instruction to change an agent's start text, tools or hooks.
var configuration = pattern.New(`(?i)` +
	`\b(?:add|append|insert|put|paste|inject|prepend|copy|write|save|set)\b.{0,80}` +
	`(?:\bto|\bin|\binto|>>?)\s+.{0,40}` + configFiles +
	`|\bmerge\b.{0,80}\b(?:in|into|with)\s+.{0,40}` + configFiles +
	`|\b(?:edit|modify|update|overwrite|change|extend)\s+(?:\S+\s+){0,4}\S{0,20}` + configFiles +
	`|(?:\S\s+>>?|\btee(?:\s+-a)?)\s*\S{0,60}` + configFiles)

const configFiles = `(?:CLAUDE(?:\.local)?\.md|AGENTS\.md|GEMINI\.md|\.cursorrules|` +
	`\.(?:claude|gemini|vscode)/settings(?:\.local)?\.json|\.vscode/tasks\.json|\.?mcp\.json|` +
	`\.codex/config\.toml)`

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
