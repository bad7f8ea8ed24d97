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

	strict bool // the reference validator accepts it in a directory of its name
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
// with a diagnostic for every repair. A missing description is replaced by the first paragraph of
// the body, a missing name is left empty. The document keeps no part of data but Body.
//
// Errors: *FrontmatterError.
func ParseFrontmatter(data []byte) (*Document, []Diagnostic, error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, nil, &FrontmatterError{Code: CodeInvalidEncoding, Reason: "the file is not UTF-8 text"}
	}
	p := split(data)
	doc := &Document{Body: data[p.body:], BodyOffset: int64(p.body)}
	var notes notes
	switch {
	case p.unclosed:
		return nil, nil, &FrontmatterError{Code: CodeInvalidFrontmatter, Line: 1, Reason: "the frontmatter has no closing line ---"}
	case !p.fenced:
		doc.Frontmatter = newFrontmatter(&value{kind: mapping})
		notes.repaired(1, "there is no frontmatter")
	case len(p.block) > MaxFrontmatter:
		return nil, nil, &FrontmatterError{Code: CodeInvalidFrontmatter, Line: p.line,
			Reason: fmt.Sprintf("the frontmatter has %d bytes, the most is %d", len(p.block), MaxFrontmatter)}
	default:
		whole, err := parseBlock(p.block, p.line, &notes)
		if err != nil {
			return nil, nil, err
		}
		doc.Frontmatter = newFrontmatter(whole)
		doc.strict = strictFields(whole)
	}
	if doc.Frontmatter.Description == "" {
		if doc.Frontmatter.Description = firstParagraph(doc.Body); doc.Frontmatter.Description == "" {
			return nil, nil, &FrontmatterError{Code: CodeMissingDescription, Reason: "there is no description and no paragraph to take for one"}
		}
		notes.repaired(0, "there is no description; the first paragraph stands in")
	}
	doc.Repaired = len(notes.repairs) > 0
	doc.strict = doc.strict && !doc.Repaired && !notes.loose && !bytes.HasPrefix(data, bom) && !bytes.Contains(p.block, []byte("---"))
	return doc, notes.repairs, nil
}

// BodyOffset returns where the instructions of a SKILL.md begin, in bytes.
func BodyOffset(data []byte) int64 { return int64(split(data).body) }

// notes are what is found while a block is read.
type notes struct {
	repairs []Diagnostic
	loose   bool // it uses YAML that the reference validator refuses
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
	block    []byte // between the two --- lines
	line     int    // of the first line of block
	body     int    // offset of the body
	fenced   bool   // both --- lines are there
	unclosed bool   // only the first is
}

// split finds the frontmatter: a line --- at the start, after a byte order mark at most, and the
// next line ---. Blanks behind them and CRLF are tolerated.
func split(data []byte) parts {
	start := 0
	if bytes.HasPrefix(data, bom) {
		start = len(bom)
	}
	whole := parts{body: start}
	first, rest, _ := bytes.Cut(data[start:], []byte("\n"))
	if !isFence(first) {
		return whole
	}
	begin := min(start+len(first)+1, len(data))
	for offset := begin; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		next := min(offset+len(line)+1, len(data))
		if isFence(line) {
			return parts{block: data[begin:offset], line: 2, body: next, fenced: true}
		}
		rest, offset = after, next
	}
	whole.unclosed = true
	return whole
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
