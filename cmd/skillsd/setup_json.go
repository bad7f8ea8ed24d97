package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// jsonObject is where an object stands in a text of JSON.
type jsonObject struct {
	open, end int // of its braces; end is behind the closing one
	members   []jsonMember
}

// jsonMember is where a member of an object stands.
type jsonMember struct {
	key               string
	start, value, end int // of the key, of the value, behind the value
}

// checkJSON refuses a text that is no JSON object, with the line. An empty text is an empty object.
func checkJSON(text []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return []byte("{}\n"), nil
	}
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		if cause, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("line %d: is no JSON: %w", lineAt(text, int(cause.Offset)), err)
		}
		return nil, err
	}
	_, err := readObject(text, 0)
	return text, err
}

// lineAt is the number of the line that holds an offset.
func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), len(text))], []byte("\n"))
}

// readObject finds the members of the object that begins at or behind the white space at an offset
// of a valid text. A key that stands twice is an error: clients differ in which of the two counts.
func readObject(text []byte, at int) (*jsonObject, error) {
	decoder := json.NewDecoder(bytes.NewReader(text[at:]))
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	here := func() int { return at + int(decoder.InputOffset()) }
	if token != json.Delim('{') {
		return nil, fmt.Errorf("line %d: is no JSON object", lineAt(text, here()))
	}
	object := &jsonObject{open: here() - 1}
	before, seen := here(), map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		member := jsonMember{start: before + bytes.IndexByte(text[before:], '"')}
		member.key, _ = token.(string)
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, err
		}
		member.end = here()
		member.value = member.end - len(raw)
		if seen[member.key] {
			return nil, fmt.Errorf("line %d: %q stands twice", lineAt(text, member.start), report.Printable(clipValue(member.key)))
		}
		seen[member.key] = true
		object.members = append(object.members, member)
		before = member.end
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	object.end = here()
	return object, nil
}

func (o *jsonObject) find(key string) *jsonMember {
	for i := range o.members {
		if o.members[i].key == key {
			return &o.members[i]
		}
	}
	return nil
}

// jsonText is a value as it stands in a file. Nothing is escaped that need not be.
func jsonText(v any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// setMember gives a member of an object a value, and leaves all other bytes as they are. One that is
// not there comes last, in the way the others are laid out.
func setMember(text []byte, at int, key, value string) ([]byte, error) {
	object, err := readObject(text, at)
	if err != nil {
		return nil, err
	}
	if member := object.find(key); member != nil {
		if begin := bytes.LastIndexByte(text[:member.start], '\n') + 1; begin > 0 && len(bytes.TrimSpace(text[begin:member.start])) == 0 {
			value = layOut(value, indentAt(text, member.start), unitOf(text), lineEnd(text))
		}
		return splice(text, member.value, member.end, value), nil
	}
	name, err := jsonText(key)
	if err != nil {
		return nil, err
	}
	if len(object.members) == 0 {
		outer := indentAt(text, object.open)
		inner := outer + unitOf(text)
		laid := lineEnd(text) + inner + name + ": " + layOut(value, inner, unitOf(text), lineEnd(text)) + lineEnd(text) + outer
		return splice(text, object.open+1, object.end-1, laid), nil
	}
	last := object.members[len(object.members)-1]
	from := object.open + 1
	if len(object.members) > 1 {
		from = object.members[len(object.members)-2].end
	}
	gap := strings.Replace(string(text[from:last.start]), ",", "", 1)
	if !strings.Contains(gap, "\n") {
		return splice(text, last.end, last.end, ", "+name+": "+value), nil
	}
	// Blank lines between members are the user's; one line end is enough.
	gap = lineEnd(text) + gap[strings.LastIndex(gap, "\n")+1:]
	laid := "," + gap + name + ": " + layOut(value, indentAt(text, last.start), unitOf(text), lineEnd(text))
	return splice(text, last.end, last.end, laid), nil
}

// dropMember takes a member out of an object. It undoes setMember of one that was not there.
func dropMember(text []byte, at int, key string) ([]byte, error) {
	object, err := readObject(text, at)
	if err != nil {
		return nil, err
	}
	for i, member := range object.members {
		switch {
		case member.key != key:
		case len(object.members) == 1:
			return splice(text, object.open+1, object.end-1, ""), nil
		case i == 0:
			return splice(text, member.start, object.members[1].start, ""), nil
		default:
			return splice(text, object.members[i-1].end, member.end, ""), nil
		}
	}
	return text, nil
}

// splice puts text in the place of a range.
func splice(text []byte, from, to int, with string) []byte {
	out := make([]byte, 0, len(text)+len(with))
	out = append(out, text[:from]...)
	out = append(out, with...)
	return append(out, text[to:]...)
}

// layOut breaks a value into lines below a member of the given indentation.
func layOut(value, indent, unit, end string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(value), indent, unit); err != nil {
		return value
	}
	return strings.ReplaceAll(b.String(), "\n", end)
}

// indentAt is the white space at the begin of the line that holds an offset.
func indentAt(text []byte, at int) string {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// unitOf is one step of indentation: that of the first line that has some, else two spaces.
func unitOf(text []byte) string {
	for line := range bytes.Lines(text) {
		rest := bytes.TrimLeft(line, " \t")
		if len(rest) < len(line) && len(bytes.TrimSpace(rest)) > 0 {
			return string(line[:len(line)-len(rest)])
		}
	}
	return "  "
}

// lineEnd is how the lines of a text end.
func lineEnd(text []byte) string {
	if at := bytes.IndexByte(text, '\n'); at > 0 && text[at-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
