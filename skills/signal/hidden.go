package signal

import (
	"bytes"

	"github.com/skillsd/skillsd/skills/pattern"
)

// maxHidden is the maximum size of a comment that is searched for an order, in bytes.
const maxHidden = 4 << 10

// order matches a text that gives orders to a model, or commands to a shell.
var order = pattern.New(`(?is)` +
	`\b(?:ignore|disregard|forget|override|bypass)\b.{0,60}\b(?:instructions?|rules|prompts?|guidelines|` +
	`safety)\b` +
	`|\b(?:AI|assistants?|agents?|models?|LLMs?|claude|gpt|copilot)\b[^.]{0,40}` +
	`\b(?:must|should|shall|will|need to|has to|have to|please|now)\b[^.]{0,80}` +
	`\b(?:run|execute|send|upload|post|fetch|download|read|install|add|append|include|delete|visit|open|` +
	`call|obey)\b` +
	`|\b(?:before|after|when|while|first|always|silently|secretly|quietly)\b[^.]{0,80}` +
	`\b(?:run|execute|send|upload|post|exfiltrate|fetch|download|pipe)\b[^.]{0,80}` +
	`(?:https?://|~/|\$HOME|\.env\b|\bscripts?/|\bcurl\b|\bwget\b|\bbash\b|\bcredentials?\b|\btokens?\b|` +
	`\bkeys?\b|` + "`" + `)` +
	`|\b(?:curl|wget)\s+\S*.{0,40}(?:https?://|\|)` +
	`|\b(?:ba|z)?sh\s+-c\b|\bbase64\s+-(?:d|D)` +
	`|\b(?:do not|don'?t|never|without)\s+(?:\w+\s+){0,2}(?:tell|telling|mention|inform|reveal|show|` +
	`ask)\w*\b` +
	`[^.]{0,40}\buser\b` +
	`|(?:\.ssh/|id_rsa|\.aws/credentials)`)

// addHidden collects the text of comments that only a model sees, and counts those with an order.
func (s *Scanner) addHidden(line []byte) {
	for len(line) > 0 {
		if !s.hiding {
			at := bytes.Index(line, []byte("<!--"))
			if at < 0 {
				return
			}
			line = line[at+len("<!--"):]
			s.hiding, s.hiddenLine, s.hidden = true, s.line, s.hidden[:0]
		}
		text, rest, closed := bytes.Cut(line, []byte("-->"))
		room := max(0, maxHidden-len(s.hidden))
		// The blank keeps the last word of a line apart from the first one of the next.
		s.hidden = append(append(s.hidden, text[:min(len(text), room)]...), ' ')
		if !closed {
			return
		}
		s.endHidden()
		line = rest
	}
}

// endHidden decides about the collected comment.
func (s *Scanner) endHidden() {
	s.hiding = false
	// An order has no harmless use where no reader of the page sees it: authors' comments are about the text.
	if s.spend(s.hidden) && order().Match(s.hidden) && !onlyReads(s.hidden) {
		s.countPlain(Comment, s.hiddenLine)
	}
}

// onlyReads reports whether all that a comment orders is to read texts of its skill.
func onlyReads(comment []byte) bool {
	rest := reading().ReplaceAll(comment, nil)
	return len(rest) < len(comment) && !bytes.ContainsAny(rest, "~$/\\`@|") && !order().Match(rest) &&
		!obeys().Match(rest)
}

// reading matches the order to read a text of a skill, by its path in the skill.
var reading = pattern.New(`(?i)\b(?:read|open|see|consult|check)\s+(?:the\s+)?(?:files?\s+)?` + ownText +
	`(?:(?:,|,?\s+and)\s+` + ownText + `)*`)

const ownText = "[`\"']?(?:\\./)?(?:(?:references?|docs?|assets|examples?|resources|templates" +
	"|guides|rules)/(?:[\\w-]+/)*[\\w-]+|SKILL|README)\\.(?:md|txt)\\b[`\"']?"

// obeys matches an order to do what a text says, or one about other files.
var obeys = pattern.New(`(?i)\b(?:follow|do (?:as|what)|apply|comply|carry out|perform|execute)\b` +
	`|\B\.\w|\w\.[a-z]\w`)

// reference matches a comment of Markdown that is written as the definition of a link.
var reference = pattern.New(`^\s{0,3}\[//\]:\s*(?:#|<>)\s*[("'](.*)[)"']\s*$`)
