package frontmatter

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// strictKeys are the fields in the specification.
var strictKeys = []string{"allowed-tools", "compatibility", "description", "license", "metadata", "name"}

// strictField is a top-level field.
type strictField struct {
	key  string
	line int
	text string // of a scalar, of any type
	nest bool   // a list or a mapping
}

type strictFields []strictField

func (f strictFields) find(key string) (strictField, bool) {
	for _, field := range f {
		if field.key == key {
			return field, true
		}
	}
	return strictField{}, false
}

// check applies the rules from V8 on.
func (f strictFields) check(dirName string) []Violation {
	var found []Violation
	report := func(rule string, line int, fix, format string, args ...any) {
		message := fmt.Sprintf(format, args...)
		found = append(found, Violation{Rule: rule, Line: line, Message: message, Fix: fix})
	}
	var unexpected []string
	first := 0
	for _, field := range f {
		if !slices.Contains(strictKeys, field.key) {
			// The reference names all unknown fields in one message, without a line; the first one leads the
			// author there.
			if first == 0 {
				first = field.line
			}
			unexpected = append(unexpected, field.key)
		}
	}
	if len(unexpected) > 0 {
		// The reference sorts them, and messages are compared with its.
		slices.Sort(unexpected)
		report("V8", first, "remove them or move them into metadata",
			"Unexpected fields in frontmatter: %s. Only [%s] are allowed.",
			Shown(strings.Join(unexpected, ", ")), "'"+strings.Join(strictKeys, "', '")+"'")
	}
	if name, ok := f.find("name"); ok {
		checkName(name, dirName, report)
	} else {
		report("V9", 1, "add a line name: with the directory's name",
			"Missing required field in frontmatter: name")
	}
	description, ok := f.find("description")
	size := utf8.RuneCountInString(description.text)
	switch {
	case !ok:
		report("V16", 1, "add a line description: that says what the skill does and when to use it",
			"Missing required field in frontmatter: description")
	case description.nest || strip(description.text) == "":
		report("V16", description.line, "say what the skill does and when to use it",
			"Field 'description' must be a non-empty string")
	case size > MaxDescription:
		report("V17", description.line, "shorten it; details belong in the body",
			"Description exceeds %d character limit (%d chars)", MaxDescription, size)
	}
	compatibility, ok := f.find("compatibility")
	size = utf8.RuneCountInString(compatibility.text)
	switch {
	case ok && compatibility.nest:
		report("V18", compatibility.line, "write it as one text",
			"Field 'compatibility' must be a string")
	case size > maxCompatibility:
		report("V18", compatibility.line, "shorten it",
			"Compatibility exceeds %d character limit (%d chars)", maxCompatibility, size)
	}
	return found
}

// checkName applies the rules for names.
func checkName(field strictField, dirName string,
	report func(rule string, line int, fix, format string, args ...any)) {
	trimmed := strip(field.text)
	if field.nest || trimmed == "" {
		report("V9", field.line, "give the directory's name", "Field 'name' must be a non-empty string")
		return
	}
	// The reference compares the normalized name.
	name := norm.NFKC.String(trimmed)
	if size := utf8.RuneCountInString(name); size > MaxName {
		report("V10", field.line, "shorten the name, and the name of the directory",
			"Skill name '%s' exceeds %d character limit (%d chars)", Shown(name), MaxName, size)
	}
	// Like Python's name != name.lower(), this accepts letters without case.
	if strings.ToLower(name) != name {
		report("V11", field.line, "write it in lower case",
			"Skill name '%s' must be lowercase", Shown(name))
	}
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
		report("V12", field.line, "remove that hyphen", "Skill name cannot start or end with a hyphen")
	}
	if strings.Contains(name, "--") {
		report("V13", field.line, "leave one hyphen of each row",
			"Skill name cannot contain consecutive hyphens")
	}
	odd := func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
	if strings.ContainsFunc(name, odd) {
		report("V14", field.line, "use hyphens for anything else",
			"Skill name '%s' contains invalid characters. Only letters, digits, and hyphens are allowed.",
			Shown(name))
	}
	if norm.NFKC.String(dirName) != name {
		report("V15", field.line, "rename the directory or the skill",
			"Directory name '%s' must match skill name '%s'", Shown(dirName), Shown(name))
	}
}

// strip trims white space like Python's strip, to which U+001C to U+001F are white space too.
func strip(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f })
}

// Publishable reports whether the skills extension accepts a name: lower-case letters and digits with single
// hyphens between them.
func Publishable(name string) bool {
	odd := func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return len(name) <= MaxName && !strings.ContainsFunc(name, odd) &&
		!slices.Contains(strings.Split(name, "-"), "")
}
