// Package frontmatter parses the SKILL.md of a skill: the YAML between two lines ---, and the instructions
// below it.
//
// One parser gives three verdicts. [Parse] accepts text with only one plausible meaning, and lists a [Repair]
// for each place that is not valid YAML, or that YAML parsers read differently. A document without repairs
// has the JSON of a parser for the YAML 1.2 core schema. [Validate] applies the rules of the reference
// validator (skills-ref), message by message.
//
// Every file is untrusted. The package opens no files, limits what it keeps, and never decodes YAML into Go
// values.
package frontmatter

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a SKILL.md.
const (
	MaxSize          = 64 << 10 // bytes of the block between the --- lines
	MaxName          = 64       // characters
	MaxDescription   = 1024     // characters, in a published skill
	maxCompatibility = 500      // characters
)

var bom = []byte("\xef\xbb\xbf")

// Document is a parsed SKILL.md.
type Document struct {
	Fields     Fields
	Body       []byte // aliases the parsed data
	BodyOffset int64  // offset of Body in the file
	Repairs    []Repair
	// StrictName is the only directory name with which the reference validator accepts the file; empty if it
	// accepts none.
	StrictName string
}

// Repaired reports whether the frontmatter was invalid or lacked a field, and was repaired.
func (d *Document) Repaired() bool { return len(d.Repairs) > 0 }

// Repair is a place of the frontmatter that is not read as written.
type Repair struct {
	Line   int // in the file, from 1
	Reason string
}

// Kind is the reason why a SKILL.md cannot be loaded.
type Kind int

// The kinds of errors.
const (
	Encoding      Kind = iota + 1 // not UTF-8 text
	Syntax                        // the block cannot be parsed, even with repairs
	NoDescription                 // no description, and no paragraph to use instead
)

// Error reports why a SKILL.md cannot be loaded.
type Error struct {
	Kind   Kind
	Line   int // in the file, from 1; 0 if not about a line
	Reason string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return e.Reason
}

// Parse parses a SKILL.md leniently, with a repair for each place that is not read as written. The first
// paragraph of the body replaces a missing description; a missing name stays empty. Without a closing line,
// the block ends after the last key. The document retains no part of data except Body.
//
// Errors: *Error.
func Parse(data []byte) (*Document, error) {
	if line, reason := notText(data); reason != "" {
		return nil, &Error{Kind: Encoding, Line: line, Reason: reason}
	}
	p := split(data)
	doc := &Document{Body: data[p.body:], BodyOffset: int64(p.body)}
	var notes notes
	if p.fault != "" {
		notes.repaired(p.faultLine, p.fault)
	}
	switch {
	case !p.fenced:
		doc.Fields = newFields(&value{kind: mapping})
		notes.repaired(1, "there is no frontmatter")
	case len(p.block) > MaxSize:
		return nil, &Error{Kind: Syntax, Line: p.line,
			Reason: fmt.Sprintf("the frontmatter has %d bytes, the most is %d", len(p.block), MaxSize)}
	default:
		whole, err := parseBlock(p.block, p.line, &notes)
		if err != nil {
			// The reference ends the block at the first ---, even within a value. A skill that it accepts
			// must load.
			whole = asReference(data, &notes)
			if whole == nil {
				return nil, err
			}
		}
		doc.Fields = newFields(whole)
	}
	if doc.Fields.Description == "" {
		doc.Fields.Description = firstParagraph(doc.Body)
		if doc.Fields.Description == "" {
			// The missing line is the cause here, and more helpful to the author than a missing description.
			if p.open {
				return nil, &Error{Kind: Syntax, Line: 1, Reason: "the frontmatter has no closing line ---"}
			}
			return nil, &Error{Kind: NoDescription,
				Reason: "there is no description and no paragraph to use instead"}
		}
		notes.repaired(1, "there is no description; the first paragraph is used")
	}
	doc.Repairs = notes.repairs
	if p.fault != "" {
		// The reference reads another block than this one, so its verdict cannot come from these fields.
		notes.plain = nil
	}
	doc.StrictName = strictName(data, p.block, &notes)
	return doc, nil
}

// notText returns the reason why a file is not UTF-8 text, and its line; "" if it is.
func notText(data []byte) (line int, reason string) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return 1, "the file is UTF-16 text, not UTF-8"
	}
	at, what := bytes.IndexByte(data, 0), "a NUL byte"
	if !utf8.Valid(data) {
		at = 0
		c, size := utf8.DecodeRune(data)
		// A valid U+FFFD in the text is decoded to RuneError too, but with three bytes.
		for c != utf8.RuneError || size > 1 {
			at += size
			c, size = utf8.DecodeRune(data[at:])
		}
		what = fmt.Sprintf("the byte 0x%02X", data[at])
	}
	if at < 0 {
		return 0, ""
	}
	return 1 + bytes.Count(data[:at], []byte("\n")), "the file is not UTF-8 text: " + what
}

// BodyOffset returns the offset of the instructions in a SKILL.md, in bytes.
func BodyOffset(data []byte) int64 { return int64(split(data).body) }

// LineOf returns the line of a top-level key of the frontmatter, or the first line of the block if the key is
// not found, for example because it is escaped.
func LineOf(data []byte, field string) int {
	p := split(data)
	number := p.line
	for line := range bytes.Lines(p.block) {
		key, _, found := bytes.Cut(line, []byte(":"))
		if found && string(bytes.Trim(key, " \t\"'")) == field && bytes.IndexByte([]byte(" \t"), key[0]) < 0 {
			return number
		}
		number++
	}
	return p.line
}

// notes collects findings while a block is parsed.
type notes struct {
	repairs []Repair
	plain   *value // the block, if parsePlain read it
}

// maxRepairs is the maximum number of repairs of a block, which could have thousands of faults.
const maxRepairs = 20

func (n *notes) repaired(line int, reason string) {
	switch {
	case len(n.repairs) == maxRepairs:
		return
	case len(n.repairs) == maxRepairs-1:
		// The last repair names that there are more, so that a list that was cut does not look complete.
		reason = "there are more repairs than are listed"
	}
	n.repairs = append(n.repairs, Repair{Line: line, Reason: reason})
}

// parts locates the frontmatter and the body of a SKILL.md.
type parts struct {
	block     []byte // between the two --- lines
	line      int    // number of the first line of block
	body      int    // offset of the body
	fenced    bool   // the first --- line exists, and the second or a place for it
	open      bool   // the first --- line exists, the second does not
	fault     string // fault of the second --- line
	faultLine int
}

// split locates the frontmatter: a line --- at the start, after a byte order mark or text that aside skips,
// and the next line ---. Trailing blanks and CRLF are accepted. If text follows the second ---, the body
// starts with it. Without a second one, the block ends before the first line that cannot be frontmatter.
// Lines --- around text without any key are thematic breaks, and part of the body.
func split(data []byte) parts {
	start := 0
	if bytes.HasPrefix(data, bom) {
		start = len(bom)
	}
	first, rest, _ := bytes.Cut(data[start:], []byte("\n"))
	if above := aside(data[start:]); above > 0 {
		// Only a complete block below is frontmatter: a heading and a thematic break begin ordinary Markdown.
		below := split(data[start+above:])
		if !below.fenced || below.open {
			return parts{body: start}
		}
		lines := bytes.Count(data[start:start+above], []byte("\n"))
		below.body += start + above
		below.line, below.faultLine = below.line+lines, below.faultLine+lines
		if below.fault == "" {
			below.fault, below.faultLine = "there is text above the frontmatter, which is left out", 1
		}
		return below
	}
	if !isFence(first) {
		return parts{body: start}
	}
	begin := min(start+len(first)+1, len(data))
	whole := parts{line: 2, fenced: true}
	// Any line that starts with --- ends the block, even ---- or "--- title": a misspelt closing line is more
	// common than a value that starts with three hyphens.
	for offset := begin; len(rest) > 0; whole.faultLine++ {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if bytes.HasPrefix(line, []byte("---")) {
			whole.block, whole.body = data[begin:offset], min(offset+len(line)+1, len(data))
			// Two thematic breaks around prose would otherwise hide the text between them from the
			// instructions.
			if isProse(whole.block) {
				return parts{body: start}
			}
			if isFence(line) {
				return whole
			}
			whole.faultLine += 2
			whole.fault = "the line that closes the frontmatter has more than ---"
			if len(bytes.Trim(line, "- \t\r")) > 0 {
				// Text after the hyphens belongs to the instructions, so that none of it is lost.
				whole.body = offset + 3
			}
			return whole
		}
		rest, offset = after, min(offset+len(line)+1, len(data))
	}
	size, ok := unclosed(data[begin:])
	if !ok {
		return parts{body: start, open: true}
	}
	whole.open = true
	whole.block, whole.body = data[begin:begin+size], begin+size
	whole.faultLine = 2 + bytes.Count(whole.block, []byte("\n"))
	// It loads all the same: without its fields a skill would lose what narrows it, such as allowed-tools.
	whole.fault = "the frontmatter has no closing line ---; it ends above this line"
	return whole
}

// maxAside is the maximum size of text above the frontmatter that is skipped, in bytes.
const maxAside = 4 << 10

// aside returns the size of the blank lines, comments and headings above a line ---, or 0 if there is other
// text.
func aside(data []byte) (size int) {
	comment := false
	// The limit keeps a large file without frontmatter from being searched to its end.
	for line := range bytes.Lines(data[:min(len(data), maxAside)]) {
		text := bytes.TrimSpace(line)
		switch {
		case !comment && isFence(bytes.TrimSuffix(line, []byte("\n"))):
			return size
		case !comment && bytes.HasPrefix(text, []byte("<!--")):
			comment = !bytes.Contains(text, []byte("-->"))
		case comment:
			comment = !bytes.Contains(text, []byte("-->"))
		case len(text) > 0 && text[0] != '#':
			return 0
		}
		size += len(line)
	}
	return 0
}

// isProse reports whether a block has no possible key and does not begin like a list.
func isProse(block []byte) bool {
	written := false
	for line := range bytes.Lines(block) {
		text := bytes.TrimRight(line, " \t\r\n")
		if len(text) == 0 {
			continue
		}
		key := bytes.IndexByte(text, ':') >= 0
		// A block that begins like a list or a quoted key is meant as YAML, and its errors must be reported.
		if key || !written && bytes.IndexByte([]byte("-[{?<\"'&!|>"), text[0]) >= 0 {
			return false
		}
		written = true
	}
	return written
}

// unclosed returns the size of a frontmatter without a closing line: up to the first heading, or the first
// line that is not indented, a key or a list entry. Text without a key is not frontmatter.
func unclosed(data []byte) (size int, ok bool) {
	for line := range bytes.Lines(data) {
		// A line of megabytes is not matched with an expression.
		text := strings.TrimRight(string(line[:min(len(line), 4*MaxDescription)]), "\r\n")
		key := entryLine().MatchString(text)
		indented := strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t")
		ok = ok || key
		if size > MaxSize || !key && text != "" && !indented && !isEntry(text) {
			break
		}
		size += len(line)
	}
	return size, ok
}

func isFence(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && len(bytes.TrimRight(line[3:], " \t\r")) == 0
}

// firstParagraph returns the first text of a body that is not a heading, comment or code, as one line.
func firstParagraph(body []byte) string {
	var words []string
	until := "" // end of the block that is being skipped
	size := 0
	for line := range bytes.Lines(body) {
		text := strings.TrimSpace(string(line[:min(len(line), 4*MaxDescription)]))
		switch {
		case until != "":
			if strings.Contains(text, until) {
				until = ""
			}
			continue
		case len(words) == 0 && strings.HasPrefix(text, "<!--"):
			if !strings.Contains(text, "-->") {
				until = "-->"
			}
			continue
		case len(words) == 0 && strings.HasPrefix(text, "```"):
			until = "```"
			continue
		case text == "" || strings.HasPrefix(text, "#") || isFence([]byte(text)):
			if len(words) > 0 {
				return Clip(strings.Join(words, " "), MaxDescription)
			}
			continue
		}
		words = append(words, strings.ToValidUTF8(text, ""))
		size += len(text)
		if size > 4*MaxDescription {
			break
		}
	}
	return Clip(strings.Join(words, " "), MaxDescription)
}

// Clip truncates untrusted text to n characters, the last of them an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
