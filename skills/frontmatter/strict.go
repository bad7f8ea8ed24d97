package frontmatter

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// RuleEncoding is the rule for files that are not UTF-8 text, or whose frontmatter has a NUL or another
// control character. The reference validator crashes on such files.
const RuleEncoding = "invalid-encoding"

// Violation is a violation of a rule of the reference validator (skills-ref).
//
// The rules, in the order of application: V1 the path exists, V2 it is a directory, V3 it has a readable
// SKILL.md or skill.md, V4 the file starts with ---, V5 a second --- closes the frontmatter, V6 that is YAML
// of a restricted kind (no flow style, anchors, tags or duplicate keys), V7 it is a mapping, V8 it has no
// unknown fields; V9 the name exists, V10 has at most 64 characters, V11 is lower case, V12 neither starts
// nor ends with a hyphen, V13 has no consecutive hyphens, V14 has only letters, digits and hyphens, V15
// equals the name of the directory; V16 the description exists, V17 has at most 1024 characters; V18
// compatibility is text of at most 500 characters. V19 and V20 accept any metadata, license, allowed-tools
// and body, so they cannot be violated.
type Violation struct {
	Rule    string // V1 to V18, or RuleEncoding
	Line    int    // in the file, from 1; 0 if not about a line
	Message string // one line; it may quote printable text of the skill
	Fix     string // the remedy, one phrase
}

func (v Violation) String() string { return v.Rule + ": " + v.Message }

// Validate applies the strict rules to a skill file, given the name of its directory, its own name and its
// content. The result is empty exactly if the reference validator accepts the skill; if the reference
// crashes, the skill is invalid. A violation of V1 to V7 is the only one.
//
// Like the reference, Validate does not limit the size of a file: time and memory are proportional to it.
func Validate(dirName, fileName string, data []byte) []Violation {
	// Other spellings load here, but the reference does not find them.
	if fileName != "SKILL.md" && fileName != "skill.md" {
		return MissingFile()
	}
	root, read, failed := strictFile(data)
	if failed != nil {
		return []Violation{*failed}
	}
	return read.fields(root).check(dirName)
}

// MissingFile returns the violations of a directory without a skill file.
func MissingFile() []Violation {
	return []Violation{{Rule: "V3", Message: "Missing required file: SKILL.md", Fix: "add a file SKILL.md"}}
}

// strictBlock returns the text between the first two --- of a file, wherever the second is, with all line
// breaks converted to line feeds.
func strictBlock(data []byte) (string, *Violation) {
	if !utf8.Valid(data) {
		line, reason := notText(data)
		return "", &Violation{Rule: RuleEncoding, Line: line, Message: "T" + reason[1:],
			Fix: "save it as UTF-8"}
	}
	inner, fenced := bytes.CutPrefix(data, []byte("---"))
	if !fenced {
		return "", &Violation{Rule: "V4", Line: 1, Message: "SKILL.md must start with YAML frontmatter (---)",
			Fix: "make --- the first line, without a byte order mark, blank or empty line before it"}
	}
	// The reference splits the text at "---" wherever it is, even within a line.
	inner, _, closed := bytes.Cut(inner, []byte("---"))
	if !closed {
		return "", &Violation{Rule: "V5", Line: 1,
			Message: "SKILL.md frontmatter not properly closed with ---",
			Fix:     "put a line --- below the last field"}
	}
	block := string(inner)
	// Python opens the file in text mode, which translates all line ends.
	if strings.Contains(block, "\r") {
		block = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(block)
	}
	return block, nil
}

// strictName returns the name of the directory in which a skill is valid, or "" if it is valid in none. It
// uses the fields of parsePlain, unless the reference ends the block at another place.
func strictName(data, block []byte, notes *notes) string {
	var fields strictFields
	if notes.plain != nil && bytes.HasPrefix(data, []byte("---\n")) && !bytes.Contains(block, []byte("---")) {
		fields = fieldsOf(notes.plain)
	} else {
		root, read, failed := strictFile(data)
		if failed != nil {
			return ""
		}
		fields = read.fields(root)
	}
	field, _ := fields.find("name")
	name := norm.NFKC.String(strip(field.text))
	if len(fields.check(name)) > 0 {
		return ""
	}
	return name
}

// fieldsOf returns the fields of a mapping from parsePlain.
func fieldsOf(plain *value) strictFields {
	fields := make(strictFields, 0, len(plain.keys))
	for i, key := range plain.keys {
		item := &plain.items[i]
		nest := item.kind == list || item.kind == mapping
		fields = append(fields, strictField{key: key, text: item.source, nest: nest})
	}
	return fields
}

// maxShown is the maximum length of a quotation in a message, in characters.
const maxShown = 200

// Shown returns untrusted text as one printable line.
func Shown(s string) string {
	var b strings.Builder
	for _, r := range Clip(s, maxShown) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
