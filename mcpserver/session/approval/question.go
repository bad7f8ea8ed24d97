package approval

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sizes of a question. Claude Code cuts each line of a message and each field at the width of the terminal,
// shows four lines and ten fields, and opens neither; Codex wraps a message, but one taller than the screen
// pushes the choices out. What follows fits 80 columns.
const (
	lineColumns  = 74
	fieldColumns = 50
	maxFields    = 9  // besides the decision
	maxLines     = 15 // of a message without fields
)

// Facts are the contents of a question to a user: facts of the server and arguments that a model chose.
type Facts struct {
	Script, Skill, Tier string
	OnHost              bool   // not in the sandbox
	Reach               string // what it can use
	Reason              string // why they are asked; a sentence
	Cwd                 string // empty: the script's own
	Args                []string
	Stdin               []byte // nil: none
}

// Form is a question as a user sees it.
type Form struct {
	Message string
	Fields  []Field // texts that do not fit into the message, in order; an answer must not change one
	Whole   bool    // everything that was asked about is shown
}

// Field is a text of a form.
type Field struct{ Name, Title, Text string }

// part is a text that may be longer than a line.
type part struct{ label, text string }

// Form renders a question: with fields for a client that cuts long lines of a message, else as one message.
// The model's arguments are quoted, with escapes for characters that are not visible, so that they cannot
// look like a line of the question. The message has the number of lines that do not fit.
func (f *Facts) Form(fields bool) Form {
	where := "in a sandbox"
	if f.OnHost {
		where = "on this machine, WITHOUT a sandbox"
	}
	script, skill := Visible(f.Script), fmt.Sprintf("%s (%s)", Visible(f.Skill), f.Tier)
	head := []string{"Run " + script + " of the skill " + skill + " " + where + "?",
		"it can use: " + f.Reach, f.Reason}
	var parts []part
	if columns(head[0]) > lineColumns {
		head[0] = "Run the script below " + where + "?"
		parts = append(parts, part{"script", script}, part{"skill", skill})
	}
	if columns(head[1]) > lineColumns {
		head[1], parts = "it can use what is below", append(parts, part{"can use", Visible(f.Reach)})
	}
	if f.Cwd != "" {
		parts = append(parts, part{"directory", quote(f.Cwd)})
	}
	if len(f.Args) > 0 {
		quoted := make([]string, len(f.Args))
		for i, arg := range f.Args {
			quoted[i] = quote(arg)
		}
		parts = append(parts, part{"arguments", strings.Join(quoted, " ")})
	}
	if f.Stdin != nil {
		parts = append(parts, part{"stdin", quote(string(f.Stdin))})
	}
	switch {
	case len(f.Args) > 0 || f.Stdin != nil:
	case len(parts) == 0:
		head = append(head, "it gets no arguments and no stdin")
	default:
		parts = append(parts, part{"arguments", "none, and no stdin"})
	}
	return layout(head, parts, fields)
}

// layout returns the form of a head of lines and of parts, each of which gets a share of the room.
func layout(head []string, parts []part, fields bool) Form {
	form := Form{Whole: true}
	width, room := fieldColumns, maxFields
	if !fields {
		width, room = lineColumns, maxLines-len(head)-1
		for i, p := range parts {
			parts[i].text = p.label + ": " + p.text
		}
	}
	var hidden []string // labels of parts that are cut
	unseen := 0         // characters
	for i, rows := range share(parts, width, room) {
		p := parts[i]
		shown := chunks(p.text, width, rows)
		left := utf8.RuneCountInString(p.text) - utf8.RuneCountInString(strings.Join(shown, ""))
		if left > 0 {
			hidden, unseen = append(hidden, p.label), unseen+left
		}
		for n, text := range shown {
			title := p.label
			if len(shown) > 1 {
				title = fmt.Sprintf("%s %d/%d", p.label, n+1, len(shown))
			}
			if n == len(shown)-1 && left > 0 {
				title += ", cut"
			}
			switch {
			case fields:
				form.Fields = append(form.Fields,
					Field{fmt.Sprintf("shown%02d", len(form.Fields)+1), title, text})
			case n == 0:
				head = append(head, text)
			// The mark prevents that the row begins like a line of the question.
			default:
				head = append(head, "| "+text)
			}
		}
	}
	if len(hidden) > 0 {
		form.Whole = false
		labels := strings.Replace(strings.Join(hidden, ", "), "script, skill", "names", 1)
		head = append(head, fmt.Sprintf("NOT SHOWN: %s characters of %s", thousands(unseen), labels))
	}
	form.Message = strings.Join(head, "\n")
	return form
}

// Edited reports whether the content of an answer changes a text of the form.
func (f *Form) Edited(content map[string]any) bool {
	for _, field := range f.Fields {
		given, ok := content[field.Name]
		if text, isText := given.(string); ok &&
			(!isText || strings.TrimSpace(text) != strings.TrimSpace(field.Text)) {
			return true
		}
	}
	return false
}

// share returns how many rows of a width each part gets of those there are: the longest give way, and each
// has one.
func share(parts []part, width, room int) []int {
	rows, total := make([]int, len(parts)), 0
	for i, p := range parts {
		rows[i] = min(len(chunks(p.text, width, room+1)), room+1)
		total += rows[i]
	}
	for ; total > room; total-- {
		longest := 0
		for i := range rows {
			if rows[i] > rows[longest] {
				longest = i
			}
		}
		if rows[longest] == 1 {
			break
		}
		rows[longest]--
	}
	return rows
}

// chunks returns the beginning of a text in rows of a width, at most so many. Rows end after a blank or a
// slash, unless the text then needs more of them.
func chunks(text string, width, most int) []string {
	hard, whole := wrap(text, width, most, false)
	soft, _ := wrap(text, width, len(hard), true)
	if whole && strings.Join(soft, "") == text {
		return soft
	}
	return hard
}

// wrap returns the beginning of a text in at most so many rows of a width, and whether that is all of it.
// Joined, the rows are the text.
func wrap(text string, width, most int, soft bool) (rows []string, whole bool) {
	for len(rows) < most && (text != "" || len(rows) == 0) {
		used, end, after := 0, len(text), 0
		for i, r := range text {
			used += cells(r)
			if used > width {
				end = i
				break
			}
			if r == ' ' || r == '/' {
				after = i + 1
			}
		}
		if soft && end < len(text) && after > 0 {
			end = after
		}
		rows, text = append(rows, text[:end]), text[end:]
	}
	return rows, text == ""
}

func columns(text string) (n int) {
	for _, r := range text {
		n += cells(r)
	}
	return n
}

// cells returns how wide a visible character may be on a terminal.
func cells(r rune) int {
	if r < 0x300 {
		return 1
	}
	return 2
}

// quote is Visible within quotation marks, and escapes quotation marks of the text.
func quote(text string) string {
	return `"` + visible(text, func(r rune) bool { return r == '"' }) + `"`
}

// Visible returns a text with escapes, as Go and JSON have them, for all that is not one visible character
// of its own: controls, line ends, other blanks, marks, and what changes the direction of a text or shows
// nothing.
func Visible(text string) string { return visible(text, func(rune) bool { return false }) }

func visible(text string, also func(rune) bool) string {
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\\' || also(r):
			b.WriteString(`\` + string(r))
		case !strconv.IsPrint(r) || unicode.In(r, unicode.M, unicode.Other_Default_Ignorable_Code_Point) ||
			r == 0x2800:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
