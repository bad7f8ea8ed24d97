package skills

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDescription is the longest description that is published, in characters.
const maxDescription = 1024

var bom = []byte("\xef\xbb\xbf")

// Document is a SKILL.md taken apart.
type Document struct {
	Frontmatter Frontmatter
	Body        []byte // shares the data that was parsed
	BodyOffset  int64  // where Body starts in the file
	Repaired    bool   // it did not parse, or lacked a field, as it is

	strictName string // of the directory in which the reference validator accepts it; empty when in none
}

// FrontmatterError says why a SKILL.md cannot be loaded.
type FrontmatterError struct {
	Code   Code
	Line   int // in the file, from 1; 0 when it is about no line
	Reason string
}

func (e *FrontmatterError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return e.Reason
}

// ParseFrontmatter takes a SKILL.md apart, leniently: what its author must have meant is accepted,
// with a diagnostic for every repair, which names its line. What parsers of YAML read differently is
// a repair too, so that Frontmatter.JSON of a document without any is what each of them gives. A
// missing description is replaced by the first paragraph of the body, a missing name is left empty;
// a block nobody closed ends where the keys do. The document keeps no part of data but Body.
//
// Errors: *FrontmatterError.
func ParseFrontmatter(data []byte) (*Document, []Diagnostic, error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, nil, &FrontmatterError{Code: CodeInvalidEncoding, Reason: "the file is not UTF-8 text"}
	}
	p := split(data)
	doc := &Document{Body: data[p.body:], BodyOffset: int64(p.body)}
	var notes notes
	if p.fault != "" {
		notes.repaired(p.faultLine, p.fault)
	}
	switch {
	case !p.fenced:
		doc.Frontmatter = newFrontmatter(&value{kind: mapping})
		notes.repaired(1, "there is no frontmatter")
	case len(p.block) > MaxFrontmatter:
		return nil, nil, &FrontmatterError{Code: CodeInvalidFrontmatter, Line: p.line,
			Reason: fmt.Sprintf("the frontmatter has %d bytes, the most is %d", len(p.block), MaxFrontmatter)}
	default:
		whole, err := parseBlock(p.block, p.line, &notes)
		if err != nil {
			if whole = asReference(data, &notes); whole == nil {
				return nil, nil, err
			}
		}
		doc.Frontmatter = newFrontmatter(whole)
	}
	if doc.Frontmatter.Description == "" {
		if doc.Frontmatter.Description = firstParagraph(doc.Body); doc.Frontmatter.Description == "" {
			if p.open {
				return nil, nil, &FrontmatterError{Code: CodeInvalidFrontmatter, Line: 1, Reason: "the frontmatter has no closing line ---"}
			}
			return nil, nil, &FrontmatterError{Code: CodeMissingDescription, Reason: "there is no description and no paragraph to take for one"}
		}
		notes.repaired(1, "there is no description; the first paragraph stands in")
	}
	doc.Repaired = len(notes.repairs) > 0
	if p.fault != "" {
		notes.plain = nil
	}
	doc.strictName = strictName(data, p.block, notes.plain)
	return doc, notes.repairs, nil
}

// BodyOffset returns where the instructions of a SKILL.md begin, in bytes.
func BodyOffset(data []byte) int64 { return int64(split(data).body) }

// notes are what is found while a block is read.
type notes struct {
	repairs []Diagnostic
	plain   *value // the block, when parsePlain read it
}

// maxRepairs bounds the diagnostics of one block, which has room for thousands of faults.
const maxRepairs = 20

func (n *notes) repaired(line int, reason string) {
	switch {
	case len(n.repairs) == maxRepairs:
		return
	case len(n.repairs) == maxRepairs-1:
		reason = "there are more repairs than are listed"
	}
	n.repairs = append(n.repairs, Diagnostic{Severity: Warning, Code: CodeFrontmatterRepaired, Detail: reason, Line: line})
}

// parts says where the frontmatter and the body of a SKILL.md lie.
type parts struct {
	block     []byte // between the two --- lines
	line      int    // of the first line of block
	body      int    // offset of the body
	fenced    bool   // the first --- line is there, and the second or what must be its place
	open      bool   // the first is there, the second is not
	fault     string // why the second is none
	faultLine int
}

// split finds the frontmatter: a line --- at the start, after a byte order mark at most, and the
// next line ---. Blanks behind them and CRLF are tolerated. Where text stands behind the second, the
// body starts with it. Where there is no second, the first line ends the block that no frontmatter has.
// Lines --- around text without any key are rules, and part of the body.
func split(data []byte) parts {
	start := 0
	if bytes.HasPrefix(data, bom) {
		start = len(bom)
	}
	first, rest, _ := bytes.Cut(data[start:], []byte("\n"))
	if !isFence(first) {
		return parts{body: start}
	}
	begin := min(start+len(first)+1, len(data))
	whole := parts{line: 2, fenced: true}
	for offset := begin; len(rest) > 0; whole.faultLine++ {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if bytes.HasPrefix(line, []byte("---")) {
			whole.block, whole.body = data[begin:offset], min(offset+len(line)+1, len(data))
			if isProse(whole.block) {
				return parts{body: start}
			}
			if isFence(line) {
				return whole
			}
			whole.faultLine, whole.fault = whole.faultLine+2, "more than --- stands in the line that closes the frontmatter"
			if len(bytes.Trim(line, "- \t\r")) > 0 {
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
	whole.faultLine, whole.fault = 2+bytes.Count(whole.block, []byte("\n")), "the frontmatter has no closing line ---; it ends above this line"
	return whole
}

// isProse reports a block of text in which nothing can be a key, and that begins as no list does.
func isProse(block []byte) bool {
	written := false
	for line := range bytes.Lines(block) {
		text := bytes.TrimRight(line, " \t\r\n")
		if len(text) == 0 {
			continue
		}
		if bytes.IndexByte(text, ':') >= 0 || !written && bytes.IndexByte([]byte("-[{?<\"'&!|>"), text[0]) >= 0 {
			return false
		}
		written = true
	}
	return written
}

// unclosed returns the size of a frontmatter nobody closed: up to the first heading, or the first line
// that is neither indented nor a key nor a list's entry. Without a key it is none.
func unclosed(data []byte) (size int, ok bool) {
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line[:min(len(line), 4*maxDescription)]), "\r\n")
		key := entryLine.MatchString(text)
		if ok = ok || key; size > MaxFrontmatter || !key && text != "" && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "\t") && !isEntry(text) {
			break
		}
		size += len(line)
	}
	return size, ok
}

func isFence(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && len(bytes.TrimRight(line[3:], " \t\r")) == 0
}

// firstParagraph returns the first text of a body that is no heading, comment or code, on one line.
func firstParagraph(body []byte) string {
	var words []string
	until := "" // what ends the block that is being skipped
	size := 0
	for line := range bytes.Lines(body) {
		text := strings.TrimSpace(string(line[:min(len(line), 4*maxDescription)]))
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
				return clip(strings.Join(words, " "), maxDescription)
			}
			continue
		}
		words = append(words, strings.ToValidUTF8(text, ""))
		if size += len(text); size > 4*maxDescription {
			break
		}
	}
	return clip(strings.Join(words, " "), maxDescription)
}

// clip bounds foreign text to n characters.
func clip(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
