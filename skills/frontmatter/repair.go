package frontmatter

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/skillsd/skillsd/skills/pattern"
)

const (
	// maxEntries is the maximum number of keys in a block to repair, since each is parsed separately.
	maxEntries = 200
	// maxRepairDepth is the maximum depth of mappings to repair.
	maxRepairDepth = 4
)

// entryLine matches a key at the start of a line, and the text after its colon.
var entryLine = pattern.New(`^([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(?:[ \t]+(.*?))?[ \t\r]*$`)

// blockHead matches the indicator of a block text.
var blockHead = pattern.New(`^[>|][-+0-9]*$`)

// textFields are fields that can only be text, so any value is read as text.
var textFields = []string{"name", "description", "when_to_use", "license", "compatibility"}

// boundFields are fields that identify a skill or restrict its use: if one of them cannot be parsed, the
// skill must not load without it.
var boundFields = []string{
	"name", "description", "allowed-tools", "disable-model-invocation", "user-invocable", "requires",
}

// repairer parses a block of invalid YAML entry by entry. An entry that is invalid by itself is read as the
// text that its author must have meant: it has a ": " inside, a first character with another meaning, text
// after a block indicator, quotes inside quotes, or lines that are not indented. Other top-level fields that
// cannot be repaired are dropped, unless they are in boundFields.
type repairer struct {
	notes   *notes
	entries int
	depth   int
	fault   *Error // fault of the entry that could not be parsed, if known
}

// fixes maps reasons of repairs to their remedies. The first entry whose words are in the reason applies.
var fixes = []struct{ words, fix string }{
	{"put it in quotes", "put the value in quotes"},
	{"needs quotes", "put the value in quotes"},
	{"cannot be understood", "correct the value, or remove the field"},
	{"duplicate key", "remove one of the two"},
	{"indented with tabs", "indent it with spaces"},
	{"a tab where spaces", "write a space for the tab"},
	{"starts with a tab", "indent the line with spaces"},
	{"the first key is indented", "begin every key at the start of its line"},
	{"follows the end of the mapping", "begin every key at the start of its line"},
	{"the line that closes", "write nothing but --- in the line"},
	{"no closing line", "write --- in a line below the last key"},
	{"there is no frontmatter", "begin the file with ---, name:, description: and ---, a line each"},
	{"there is no description", "add description: and say what the skill does and when to use it"},
	{"a comment needs a space", "write a space before the #"},
	{"not indented", "indent the lines more than their key"},
	{"control characters", "remove the control characters"},
	{"an escape", "put the value in double quotes, or leave out the escape"},
	{"carriage return", "end lines with a line feed"},
	{"byte order mark", "remove the byte order mark"},
}

// Fix returns a phrase with the remedy for a repair with that reason.
func Fix(reason string) string {
	for _, f := range fixes {
		if strings.Contains(reason, f.words) {
			return f.fix
		}
	}
	return "write it in another way, so that every client reads it alike"
}

// faulty is a key with its lines.
type faulty struct {
	key, rest string
	line      int // of the file
	lines     []string
}

// value describes the value of an entry in a message. A key that may be any text is not repeated.
func (e *faulty) value() string {
	if slices.Contains(textFields, e.key) || slices.Contains(boundFields, e.key) {
		return "the value of " + e.key
	}
	return "the value"
}

// broken reports whether an entry is invalid YAML, rather than valid YAML that is not accepted.
func (e *faulty) broken() bool {
	_, _, err := parseNodes(strings.Join(e.lines, "\n") + "\n")
	// Anchors, tags and depth are refused on purpose; to drop such a field would be to accept it.
	refused := strings.ContainsAny(e.rest, "&*!") ||
		err != nil && (strings.Contains(err.Error(), "anchor") || strings.Contains(err.Error(), "depth"))
	return err != nil && !refused
}

// mapping parses lines; at is the number of the first one in the file.
func (p *repairer) mapping(lines []string, at int) (*value, bool) {
	if p.depth == maxRepairDepth {
		return nil, false
	}
	p.depth++
	defer func() { p.depth-- }()
	whole := &value{kind: mapping}
	seen := map[string]int{}
	for i := 0; i < len(lines); {
		if trimmed := strings.TrimSpace(lines[i]); trimmed == "" || trimmed[0] == '#' {
			i++
			continue
		}
		match := entryLine().FindStringSubmatch(lines[i])
		if match == nil || p.entries == maxEntries {
			return nil, false
		}
		p.entries++
		// Below the top the names of text fields may mean anything.
		loose := p.depth == 1 && slices.Contains(textFields, match[1])
		end := i + 1
		for end < len(lines) && continues(lines[end], loose) {
			end++
		}
		e := faulty{key: match[1], rest: match[2], line: at + i, lines: lines[i:end]}
		i = end
		before := len(p.notes.repairs)
		item, ok := p.entry(e, loose)
		if !ok && !p.mayDrop(e) {
			return nil, false
		}
		if !ok {
			p.notes.repairs = p.notes.repairs[:before]
			p.notes.repaired(e.line, e.value()+" cannot be understood; the field is left out")
			continue
		}
		// Parsers differ about which of two equal keys they keep.
		if first, twice := seen[e.key]; twice {
			p.notes.repaired(e.line, fmt.Sprintf("duplicate key: the one at line %d is used", first))
			continue
		}
		seen[e.key] = e.line
		whole.keys, whole.items = append(whole.keys, e.key), append(whole.items, *item)
	}
	return whole, len(whole.keys) > 0
}

// mayDrop reports whether a field that cannot be parsed may be left out: it must not be one that restricts
// the skill, nor one that is valid but refused. It records the fault of another one, if that is known.
func (p *repairer) mayDrop(e faulty) bool {
	if p.depth == 1 && !slices.Contains(boundFields, e.key) && e.broken() {
		return true
	}
	if p.depth == 1 && e.rest != "" && strings.IndexByte("*@`%&!", e.rest[0]) >= 0 {
		p.fault = &Error{Kind: Syntax, Line: e.line, Reason: fmt.Sprintf(
			"%s begins with %c, which means something else in YAML: put it in quotes", e.value(), e.rest[0])}
	}
	return false
}

// continues reports whether a line belongs to the entry above it: it is indented or empty, or, after a text
// field, it is not a key and starts like prose.
func continues(line string, loose bool) bool {
	if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") || strings.TrimSpace(line) == "" {
		return true
	}
	return loose && !strings.ContainsRune("<&!{}?%\"'@:,", rune(line[0])) && !entryLine().MatchString(line)
}

// entry parses the value of one key.
func (p *repairer) entry(e faulty, loose bool) (*value, bool) {
	source := strings.Join(e.lines, "\n") + "\n"
	before := len(p.notes.repairs)
	if whole, err := parseYAML(source, e.line, p.notes); err == nil && len(whole.items) == 1 {
		return &whole.items[0], true
	}
	p.notes.repairs = p.notes.repairs[:before]
	if e.rest != "" {
		raw, ok := rawText(e, loose)
		if ok {
			p.notes.repaired(e.line, e.value()+" needs quotes in YAML; it is taken as text")
		}
		return &value{kind: text, source: raw}, ok
	}
	return p.below(e, loose)
}

// below parses the lines below a key: a text, or a mapping that is repaired in turn. A tab in the indentation
// is replaced by two spaces.
func (p *repairer) below(e faulty, loose bool) (*value, bool) {
	lines := slices.Clone(e.lines[1:])
	for i, line := range lines {
		trimmed := strings.TrimLeft(line, " \t")
		before := line[:len(line)-len(trimmed)]
		if strings.Contains(before, "\t") && strings.TrimSpace(line) != "" {
			lines[i] = strings.ReplaceAll(before, "\t", "  ") + trimmed
			p.notes.repaired(e.line+1+i, "the line is indented with tabs; each is read as two spaces")
		}
	}
	before := len(p.notes.repairs)
	source := e.lines[0] + "\n" + strings.Join(lines, "\n") + "\n"
	if whole, err := parseYAML(source, e.line, p.notes); err == nil && len(whole.items) == 1 {
		return &whole.items[0], true
	}
	p.notes.repairs = p.notes.repairs[:before]
	if loose {
		p.notes.repaired(e.line, e.value()+" needs quotes in YAML; it is taken as text")
		return &value{kind: text, source: words(lines)}, true
	}
	least := -1
	for _, line := range lines {
		if in := indent(line); !blank(line) && (least < 0 || in < least) {
			least = in
		}
	}
	// A line without indentation below a key that cannot be text belongs to nothing.
	if least <= 0 {
		return nil, false
	}
	for i, line := range lines {
		lines[i] = line[min(least, len(line)):]
	}
	return p.mapping(lines, e.line+1)
}

// rawText returns the value of an entry as text. Text fields accept anything; other fields reject values
// meant as a list, a mapping or a quoted text, and tags and anchors.
func rawText(e faulty, loose bool) (string, bool) {
	raw := words(append([]string{e.rest}, e.lines[1:]...))
	// Without a letter the value is punctuation, and a guess at its meaning could be wrong.
	if !loose && !isProseValue(e.rest) || !strings.ContainsFunc(raw, unicode.IsLetter) {
		return "", false
	}
	// Outer quotes that enclose the whole text were meant as quotes.
	if q := raw[0]; (q == '"' || q == '\'') && len(raw) > 1 && raw[len(raw)-1] == q {
		raw = raw[1 : len(raw)-1]
	}
	// Authors write text in the line of the indicator: "description: > Reads PDFs".
	if head, rest, ok := strings.Cut(raw, " "); ok && blockHead().MatchString(head) {
		raw = rest
	}
	return raw, true
}

// isProseValue reports whether a value begins like text, and not like a list, a mapping, a quoted text, a tag
// or an anchor.
func isProseValue(raw string) bool {
	switch raw[0] {
	case '[':
		_, behind, closed := strings.Cut(raw, "]")
		// "[Beta] reads files" is prose, "[a, b] # comment" is a list.
		isComment := strings.HasPrefix(strings.TrimLeft(behind, " "), "#")
		return closed && strings.Trim(behind, "] \t,}") != "" && !isComment
	case '{', '"', '\'':
		return false
	case '&', '!':
		return len(raw) == 1 || raw[1] == ' '
	default:
		return true
	}
}

// words joins lines into one line with single spaces.
func words(lines []string) string { return strings.Join(strings.Fields(strings.Join(lines, " ")), " ") }
