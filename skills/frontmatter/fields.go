package frontmatter

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Fields are the fields of the YAML block in a SKILL.md: typed if this program uses a field, and complete as
// JSON. Strings are as written, except for trimmed white space, and may contain anything. Scalars of any type
// are read as text.
type Fields struct {
	Name          string // empty if missing
	Description   string
	License       string
	Compatibility string
	WhenToUse     string // when_to_use
	// AllowedTools is allowed-tools: a list, or a text split at spaces and commas outside of parentheses. A
	// null value means not declared; a declared list may be empty.
	AllowedTools           []string
	AllowedToolsDeclared   bool
	DisableModelInvocation bool // false if missing
	UserInvocable          bool // true if missing
	Author                 string
	Version                string
	Tags                   []string
	Requires               Requires
	// JSON is the whole block, as parsed by the YAML 1.2 core schema, in its order.
	JSON json.RawMessage
}

// Requires lists the requirements of a skill. They come from metadata.requires, and from blocks named
// requires at the top, in metadata, or in a vendor's block of metadata, such as the blocks of openclaw,
// clawdbot and Hermes. The keys of a block are bins, anyBins, env, os, platforms, skills and tools. In
// addition, platforms, required_environment_variables, required-skills and prerequisites.env_vars are read at
// the top, os in a vendor's block, and requires_tools and requires_toolsets in both.
type Requires struct {
	Commands    []string // on PATH
	AnyCommands []string // each a list of commands separated by spaces, one of them on PATH
	Env         []string // variables
	Platforms   []string // one of them is enough
	Skills      []string // names of other skills
	Tools       []string // tools of the client or its MCP servers
	Servers     []string // MCP servers that the client must have
}

// Lists returns pointers to all lists.
func (r *Requires) Lists() []*[]string {
	return []*[]string{&r.Commands, &r.AnyCommands, &r.Env, &r.Platforms, &r.Skills, &r.Tools,
		&r.Servers}
}

// Value returns the JSON of a top-level field, or nil if the field is missing.
func (f *Fields) Value(key string) json.RawMessage {
	// The quick check finds most absent keys without parsing.
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

// Plain returns an object with the fields that are strings, booleans or lists of strings, in order.
func (f *Fields) Plain() json.RawMessage {
	out := []byte{'{'}
	for key, raw := range f.fields() {
		var texts []string
		switch raw[0] {
		case '"', 't', 'f':
		case '[':
			// Decoded into strings, a null would become an empty text that the author never wrote.
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

// decodeList returns the elements of a list. Decoding into strings would turn a null into "".
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
		f.AllowedToolsDeclared, f.AllowedTools = true, tools.words(splitList)
		if f.AllowedTools == nil {
			f.AllowedTools = []string{}
		}
	}
	// Vendors declare requirements in many places; all of them apply.
	metadata := whole.member("metadata")
	f.Author, f.Version = metadata.text("author"), metadata.text("version")
	f.Tags = metadata.member("tags").words(strings.Fields)
	f.Requires.read(whole.member("requires"))
	// A text or list in metadata lists commands by convention; elsewhere it may name anything.
	if v := metadata.member("requires"); v != nil && v.kind != mapping {
		f.Requires.Commands = append(f.Requires.Commands, v.words(strings.Fields)...)
	} else {
		f.Requires.read(v)
	}
	if metadata != nil && metadata.kind == mapping {
		for i := range metadata.items {
			vendor := &metadata.items[i]
			f.Requires.read(vendor.member("requires"))
			f.Requires.Platforms = append(f.Requires.Platforms, vendor.member("os").words(splitList)...)
			f.Requires.readHermes(vendor)
		}
	}
	f.Requires.Platforms = append(f.Requires.Platforms, whole.member("platforms").words(splitList)...)
	f.Requires.Skills = append(f.Requires.Skills, whole.member("required-skills").words(splitList)...)
	f.Requires.readHermes(whole)
	f.Requires.readVariables(whole.member("required_environment_variables"))
	f.Requires.readVariables(whole.member("prerequisites").member("env_vars"))
	return f
}

// readHermes adds the tools without which Hermes hides a skill.
func (r *Requires) readHermes(v *value) {
	r.Tools = append(r.Tools, v.member("requires_tools").words(splitList)...)
	r.Tools = append(r.Tools, v.member("requires_toolsets").words(splitList)...)
}

// readVariables adds the variables of a list of names, or of mappings with a name that are not optional.
func (r *Requires) readVariables(v *value) {
	if v == nil || v.kind != list {
		return
	}
	for i := range v.items {
		name := v.items[i].scalar()
		if v.items[i].kind == mapping && !v.items[i].flag("optional", false) {
			name = v.items[i].text("name")
		}
		if name != "" {
			r.Env = append(r.Env, name)
		}
	}
}

// read adds a requires block. A block that is not a mapping may have any meaning, such as other skills or
// versions, and is ignored.
func (r *Requires) read(v *value) {
	r.Commands = append(r.Commands, v.member("bins").words(strings.Fields)...)
	r.Env = append(r.Env, v.member("env").words(strings.Fields)...)
	if group := v.member("anyBins").words(strings.Fields); len(group) > 0 {
		r.AnyCommands = append(r.AnyCommands, strings.Join(group, " "))
	}
	r.Platforms = append(r.Platforms, v.member("os").words(splitList)...)
	r.Platforms = append(r.Platforms, v.member("platforms").words(splitList)...)
	r.Skills = append(r.Skills, v.member("skills").words(splitList)...)
	r.Tools = append(r.Tools, v.member("tools").words(splitList)...)
	r.Servers = append(r.Servers, v.member("mcp").words(splitList)...)
	r.Servers = append(r.Servers, v.member("mcp_servers").words(splitList)...)
}

// splitList splits a list written as text at spaces and commas outside of parentheses.
func splitList(s string) []string {
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
