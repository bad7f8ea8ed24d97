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

// comment is the comment of Markdown that a line is in, or the last one.
type comment struct {
	isOpen bool
	text   []byte // at most maxHidden bytes of it, and a blank for each line
	line   int    // where it begins
}

// beginsComment records a comment that begins at line[at], and reports whether it is worth a search. In code,
// a comment is shown to readers.
func (s *Scanner) beginsComment(line []byte, at int) bool {
	if !s.markdown || s.fence.open() || inCode(line[:at]) {
		return false
	}
	isReference := line[at] == '['
	if isReference {
		return true
	}
	if isMarker(line[at+len("<!--"):]) {
		return false
	}
	s.found.add(Comment, s.line)
	return true
}

// searchComment searches a line of Markdown for the text of comments that only a model sees.
func (s *Scanner) searchComment(line []byte, seen group) {
	if s.comment.isOpen {
		s.addComment(line)
		return
	}
	if !s.markdown || seen&comments == 0 {
		return
	}
	if m := reference().FindSubmatch(line); m != nil {
		s.comment.text, s.comment.line = append(s.comment.text[:0], m[1]...), s.line
		s.endComment()
		return
	}
	s.addComment(line)
}

// addComment collects the text of comments, and records each with an order.
func (s *Scanner) addComment(line []byte) {
	c := &s.comment
	for len(line) > 0 {
		if !c.isOpen {
			at := bytes.Index(line, []byte("<!--"))
			if at < 0 {
				return
			}
			line = line[at+len("<!--"):]
			c.isOpen, c.line, c.text = true, s.line, c.text[:0]
		}
		text, rest, isClosed := bytes.Cut(line, []byte("-->"))
		room := max(0, maxHidden-len(c.text))
		// The blank keeps the last word of a line apart from the first one of the next.
		c.text = append(append(c.text, text[:min(len(text), room)]...), ' ')
		if !isClosed {
			return
		}
		s.endComment()
		line = rest
	}
}

// endComment decides about the collected comment.
func (s *Scanner) endComment() {
	s.comment.isOpen = false
	text := s.comment.text
	// An order has no harmless use where no reader of the page sees it: authors' comments are about the text.
	if s.spend(text) && order().Match(text) && !onlyReads(text) {
		s.found.addPlain(Comment, s.comment.line)
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
