package frontmatter

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Fields is the YAML block of a SKILL.md: typed where a field has a meaning here, and whole as
// JSON. Texts are as they were written and may hold anything; they are trimmed of space around
// them. A scalar of any type counts as its text.
type Fields struct {
	Name          string // empty when missing
	Description   string
	License       string
	Compatibility string
	WhenToUse     string // when_to_use
	// AllowedTools is allowed-tools, a list, or a text split at spaces and commas outside of
	// parentheses. Without a value it is not declared; a declared list may be empty.
	AllowedTools           []string
	AllowedToolsDeclared   bool
	DisableModelInvocation bool // false unless the field says something else
	UserInvocable          bool // true unless the field says something else
	Author                 string
	Version                string
	Tags                   []string
	Requires               Requires
	// JSON is the whole block as a parser of the YAML 1.2 core schema gives it, in its order.
	JSON json.RawMessage
}

// Requires is what a skill says its scripts need: metadata.requires, and requires.bins and
// requires.env at the top, in metadata, or in a vendor's block of metadata.
type Requires struct {
	Commands []string // on PATH
	Env      []string // variables
}

// Value returns the JSON of a top-level field, nil if the frontmatter has no such field.
func (f *Fields) Value(key string) json.RawMessage {
	// Most skills have few fields. A name is written as it is, unless it has what JSON escapes.
	if !bytes.Contains(f.JSON, appendString(nil, key)) {
		return nil
	}
	for name, raw := range f.fields() {
		if name == key {
			return raw
		}
	}
	return nil
}

// Plain returns an object of the fields that are texts, booleans or lists of texts, in order.
func (f *Fields) Plain() json.RawMessage {
	out := []byte{'{'}
	for key, raw := range f.fields() {
		var texts []string
		switch raw[0] {
		case '"', 't', 'f':
		case '[':
			if json.Unmarshal(raw, &texts) != nil || slices.Contains(decodeList(raw), nil) {
				continue
			}
		default:
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendString(out, key), ':'), raw...)
	}
	return append(out, '}')
}

// decodeList returns the members of a list. Decoding into texts would turn a null into an empty one.
func decodeList(raw json.RawMessage) (items []any) {
	if json.Unmarshal(raw, &items) != nil {
		return nil
	}
	return items
}

// fields iterates over the top-level fields of JSON.
func (f *Fields) fields() func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		decoder := json.NewDecoder(bytes.NewReader(f.JSON))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return
			}
			var raw json.RawMessage
			if decoder.Decode(&raw) != nil || !yield(key.(string), raw) {
				return
			}
		}
	}
}

// newFields fills the typed fields from a mapping.
func newFields(whole *value) Fields {
	f := Fields{
		Name:                   whole.text("name"),
		Description:            whole.text("description"),
		License:                whole.text("license"),
		Compatibility:          whole.text("compatibility"),
		WhenToUse:              whole.text("when_to_use"),
		DisableModelInvocation: whole.flag("disable-model-invocation", false),
		UserInvocable:          whole.flag("user-invocable", true),
		JSON:                   bytes.Clone(whole.appendJSON(make([]byte, 0, 512))),
	}
	if tools := whole.member("allowed-tools"); tools != nil && tools.kind != null {
		f.AllowedToolsDeclared, f.AllowedTools = true, tools.words(splitTools)
		if f.AllowedTools == nil {
			f.AllowedTools = []string{}
		}
	}
	// Vendors write requirements in three places; all of them count.
	metadata := whole.member("metadata")
	f.Author, f.Version = metadata.text("author"), metadata.text("version")
	f.Tags = metadata.member("tags").words(strings.Fields)
	f.Requires.read(whole.member("requires"))
	if v := metadata.member("requires"); v != nil && v.kind != mapping {
		f.Requires.Commands = append(f.Requires.Commands, v.words(strings.Fields)...)
	} else {
		f.Requires.read(v)
	}
	if metadata != nil && metadata.kind == mapping {
		for i := range metadata.items {
			f.Requires.read(metadata.items[i].member("requires"))
		}
	}
	return f
}

// read adds a requires block. One that is not a mapping may require anything, such as other skills or
// versions, and is ignored.
func (r *Requires) read(v *value) {
	r.Commands = append(r.Commands, v.member("bins").words(strings.Fields)...)
	r.Env = append(r.Env, v.member("env").words(strings.Fields)...)
}

// splitTools splits a list of tools at spaces and commas outside of parentheses.
func splitTools(s string) []string {
	depth := 0
	return strings.FieldsFunc(s, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth = max(depth-1, 0)
		}
		return depth == 0 && (r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r')
	})
}
