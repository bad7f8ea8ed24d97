package signal

import (
	"bytes"

	"github.com/skillsd/skillsd/skills/pattern"
)

// maxRecent is the number of lines before the current one that can show that it is an example.
const maxRecent = 6

// recent holds the beginnings of the last lines, and the last heading.
type recent struct {
	lines   [maxRecent][]byte
	next    int
	heading []byte
}

const maxKept = 300 // bytes of a line

// add adds a line, whose number of bytes is not bounded.
func (r *recent) add(line []byte, heading bool) {
	line = line[:min(len(line), maxKept)]
	r.lines[r.next] = append(r.lines[r.next][:0], line...)
	r.next = (r.next + 1) % maxRecent
	if heading {
		r.heading = append(r.heading[:0], line...)
	}
}

// reset forgets all lines, and keeps their memory.
func (r *recent) reset() {
	for n := range r.lines {
		r.lines[n] = r.lines[n][:0]
	}
	r.heading = r.heading[:0]
}

// last reports whether is is true for one of the last n lines.
func (r *recent) last(n int, is func([]byte) bool) bool {
	for back := 1; back <= n; back++ {
		if is(r.lines[(r.next-back+maxRecent)%maxRecent]) {
			return true
		}
	}
	return false
}

// lesson matches words of a text that teaches about attacks.
var lesson = pattern.New(`(?i)\b(?:attack(?:s|er|ers|ing)?|malicious\w*|vulnerab\w+|exploit\w*|payloads?|` +
	`insecure\w*|` +
	`suspicious\w*|red flags?|anti-?patterns?|threats?|(?:prompt|command|code|shell) injections?|` +
	`injection\w*|` +
	`jailbreaks?|phishing|backdoors?|adversar\w+|untrusted|(?:security|skill) (?:review|audit|scan|` +
	`scanner)\w*|` +
	`red team\w*|pen(?:etration )?-?test\w*|obfuscat\w+|exfiltrat\w+|malware|bad (?:example|practice)s?|` +
	`(?:wrong|bad|unsafe|dangerous|vulnerable|insecure)\s*:|detect(?:s|ed|ing|ion)?)\b|❌|🚫`)

// refusal matches the words directly before a phrase or a command that turn it into its contrary, or into
// something that is only spoken about.
var refusal = pattern.New("(?i)(?:\\b(?:never|do(?:es)? not|don'?t|doesn'?t|must not|mustn'?t|should not|" +
	"shouldn'?t|" +
	"cannot|can'?t|won'?t|not|no|nor|neither|rather than|instead of|without|avoid\\w*|refus\\w+|" +
	"prevent\\w*|" +
	"detect\\w*|reject\\w*|block\\w*|forbid\\w*|prohibit\\w*|(?:attempt|try|trie)\\w* to|convinced?|" +
	"trick\\w*|" +
	"attackers?|malicious\\w*|such as|e\\.g\\.|(?:text|phrases?|strings?|messages?) like)\\b" +
	"(?:[\\s*_\"'`(]+[\\w-]+){0,4})[\\s*_\"'`(:]*$")

// encouraged matches a refusal of a refusal: "do not hesitate to".
var encouraged = pattern.New(`(?i)\b(?:not|n't|dont|never|no need to|without)(?: \w+){0,2} (?:hesitat\w+` +
	`|afraid|shy|` +
	`reluctan\w+|fail|forget|neglect|refus\w+|scared|delay\w*|wait\w*|worry|fear|` +
	`need \w+ to|only|just|merely)\b(?:[\s*_]+[\w'-]+){0,4}[\s*_]*$` +
	`|\bno (?:matter|reason not)\b(?:[\s*_]+[\w'-]+){0,4}[\s*_]*$`)

// supposed matches what makes of an order a thing that may happen: "this could …".
var supposed = pattern.New(`(?i)\b(?:could|would|might)[\s*_]+$`)

// lastOf returns the end of a text, as far as an expression for the text before a match needs it: there may
// be many matches in a line.
func lastOf(before []byte) []byte {
	const near = 200 // bytes
	return before[max(0, len(before)-near):]
}

// isRefused reports whether the text before a match turns it into its contrary, or into a possibility.
func isRefused(before []byte) bool {
	before = lastOf(before)
	return (refusal().Match(before) || supposed().Match(before)) && !encouraged().Match(before)
}

// ordered matches the text before a quotation that makes an order of it.
var ordered = pattern.New(`(?i)(?:^|[.:;!,*_]\s*|\b(?:please|and|then|now|must|should|always|to|start` +
	`|session|turn|` +
	`begin)\b,?\s+)(?:carry out|execute|follow|obey|perform|comply with|act on|do|apply|(?:respond|react` +
	`|answer) to|` +
	`your (?:\w+ )?(?:task|instruction|order|goal|job|rule)s?)\b[^"“` + "`" + `.!?]{0,60}["“` + "`" + `]\s*$`)

// isQuoted reports whether the text of a line between two parts is a quotation that only speaks of it.
func isQuoted(before, after []byte) bool {
	if !inQuotes(before, after) {
		return false
	}
	return isRefused(before) || !ordered().Match(before)
}

// isExample reports whether the text of a line after before is one that is only spoken of: it is
// refused, or is a part of an example of an attack.
func (s *Scanner) isExample(before, line []byte) bool {
	const near = 4 // lines
	// Words such as "never" are near every order, so only code, lists, tables and quotes near these are
	// examples.
	isLesson := func(text []byte) bool { return s.spend(text) && lesson().Match(text) }
	return isRefused(before) || isLesson(before) || inCode(before) && isLesson(line) ||
		s.isSetOff(before) && (isLesson(s.recent.heading) || s.recent.last(near, isLesson))
}

// isSetOff reports whether the line after before is code, an item, a row or a quotation.
func (s *Scanner) isSetOff(before []byte) bool {
	return s.item || s.program != none || s.fence.open() || inCode(before) || quoteAt(before,
		len(before)) != 0
}

// inQuotes reports whether the text between two parts of a line is quoted, like an example.
func inQuotes(before, after []byte) bool {
	if bytes.Count(before, []byte(`"`))%2 == 1 && bytes.IndexByte(after, '"') >= 0 || inCode(before) {
		return true
	}
	open, shut := bytes.LastIndex(before, []byte("“")), bytes.LastIndex(before, []byte("”"))
	return open > shut
}
