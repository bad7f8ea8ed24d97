package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

// LoadArgs are the arguments of load_skill.
type LoadArgs struct {
	Name       string `json:"name" jsonschema:"Path or unique name of the skill"`
	FilePath   string `json:"file_path,omitempty" jsonschema:"Return this file of the skill instead of its instructions"`
	Force      bool   `json:"force,omitempty" jsonschema:"Send the instructions again although this session already has them"`
	Activation string `json:"activation,omitempty" jsonschema:"Activation handle of an earlier load_skill, to add the skill to the same session; good for 24 hours"`
}

// ReadArgs are the arguments of read_skill_resource.
type ReadArgs struct {
	Skill      string `json:"skill" jsonschema:"Path or unique name of the skill"`
	Path       string `json:"path" jsonschema:"Path of the file, relative to the skill, as load_skill lists it"`
	MaxBytes   *int64 `json:"maxBytes,omitempty" jsonschema:"Most bytes to return (default 64000)"`
	Offset     int64  `json:"offset,omitempty" jsonschema:"Byte to start at, as the end of a cut text names it"`
	Activation string `json:"activation,omitempty" jsonschema:"Activation handle of load_skill"`
}

// SearchArgs are the arguments of search_skills.
type SearchArgs struct {
	Query  string `json:"query" jsonschema:"Words to look for"`
	Cursor string `json:"cursor,omitempty" jsonschema:"Where to continue, as the end of the page before it says"`
}

// RunArgs are the arguments of run_skill_script.
type RunArgs struct {
	Skill      string   `json:"skill" jsonschema:"Path or unique name of a loaded skill"`
	Path       string   `json:"path" jsonschema:"Path of the script, relative to the skill, below scripts/"`
	Args       []string `json:"args,omitempty" jsonschema:"Arguments of the script, passed as they are, without a shell"`
	Cwd        string   `json:"cwd,omitempty" jsonschema:"Working directory below /workspace, /skill or /tmp"`
	TimeoutMs  *int64   `json:"timeoutMs,omitempty" jsonschema:"Milliseconds until the script and all it started are killed (default 60000)"`
	Stdin      *string  `json:"stdin,omitempty" jsonschema:"Text for the script's standard input, at most 1 MiB"`
	Activation string   `json:"activation,omitempty" jsonschema:"Activation handle of load_skill"`
}

// decodeArguments reads the arguments of a tool call into dst, a pointer to a struct. Clients check
// neither types nor required fields, so each mistake is answered in words the model can act on. With
// strict set an unknown field is a mistake too; a known one in another case is an unknown one.
func decodeArguments(raw json.RawMessage, dst any, strict bool) error {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		raw = []byte("{}")
	}
	if !utf8.Valid(raw) || hasLoneSurrogate(raw) {
		return invalidArguments("a string holds a lone surrogate or bytes that are not UTF-8", "send well-formed Unicode text")
	}
	raw, err := knownArguments(raw, reflect.TypeOf(dst).Elem(), strict)
	if err != nil {
		return err
	}
	if err = json.Unmarshal(raw, dst); err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return invalidArguments("arguments must be a JSON object, not "+article(wrong.Value), "send an object with the fields of the input schema")
		}
		return invalidArguments(fmt.Sprintf("argument %q must be %s, not %s", wrong.Field, kindName(wrong.Type.Kind().String()), article(wrong.Value)),
			"send the argument with that type")
	}
	return invalidArguments("arguments are not a JSON object", "send an object with the fields of the input schema")
}

// knownArguments returns arguments without those that no field of a struct type is named like
// exactly, which decoding would give to a field in another case. With strict set these are a mistake.
func knownArguments(raw json.RawMessage, fields reflect.Type, strict bool) (json.RawMessage, error) {
	members, err := wire.Members(raw)
	if err != nil {
		return nil, invalidArguments("arguments: "+err.Error(), "send each argument once, spelt as in the input schema")
	}
	known := func(m wire.Member) bool { return fieldOf(fields, m.Key) != nil }
	for _, m := range members {
		if field := fieldOf(fields, m.Key); field != nil && field.Type.Kind() == reflect.Slice {
			if err := checkItems(m); err != nil {
				return nil, err
			}
		}
	}
	unknown := slices.IndexFunc(members, func(m wire.Member) bool { return !known(m) })
	if unknown < 0 {
		return raw, nil
	}
	if strict {
		return nil, invalidArguments(fmt.Sprintf("unknown argument %q", clip(members[unknown].Key)), "leave it out; the input schema lists the arguments there are")
	}
	object := make(map[string]json.RawMessage, fields.NumField())
	for _, m := range members {
		if known(m) {
			object[m.Key] = m.Value
		}
	}
	return json.Marshal(object)
}

// fieldOf returns the field of a struct type that an argument is named like exactly, or nil.
func fieldOf(fields reflect.Type, name string) *reflect.StructField {
	for i := range fields.NumField() {
		field := fields.Field(i)
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return &field
		}
	}
	return nil
}

// checkItems answers a list of strings that holds something else. Decoding would make an empty string
// of a null. What is no list is left to it.
func checkItems(m wire.Member) error {
	var items []json.RawMessage
	if json.Unmarshal(m.Value, &items) != nil {
		return nil
	}
	for i, item := range items {
		if what := jsonKind(item); what != "string" {
			return invalidArguments(fmt.Sprintf("argument %q must be a list of strings, but item %d is %s", m.Key, i+1, article(what)),
				"send every item as a string, or leave it out")
		}
	}
	return nil
}

// jsonKind is what a JSON value is, in the words that decoding has for it.
func jsonKind(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	return "number"
}

// required answers a missing or empty argument.
func required(name, value string) error {
	if strings.TrimSpace(value) != "" {
		return nil
	}
	return invalidArguments(fmt.Sprintf("argument %q is missing or empty", name), "send a non-empty string")
}

func invalidArguments(message, remedy string) error {
	return &session.Error{Code: session.CodeInvalidArguments, Message: message, Remedy: remedy}
}

// hasLoneSurrogate reports whether a JSON text escapes half of a surrogate pair, which decoding
// would silently turn into U+FFFD.
func hasLoneSurrogate(raw []byte) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		unit, ok := escapedUnit(raw[i:])
		if !ok {
			i++
			continue
		}
		switch {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			low, ok := escapedUnit(raw[i+6:])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
		i += 5
	}
	return false
}

// escapedUnit reads a \uXXXX escape at the start of b.
func escapedUnit(b []byte) (unit uint32, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			unit = unit<<4 | uint32(c-'a'+10)
		case c >= 'A' && c <= 'F':
			unit = unit<<4 | uint32(c-'A'+10)
		default:
			return 0, false
		}
	}
	return unit, true
}

func kindName(kind string) string {
	switch kind {
	case "slice":
		return "a list of strings"
	case "bool":
		return "true or false"
	case "int64":
		return "a whole number"
	}
	return "a " + kind
}

func article(value string) string {
	if value == "null" {
		return value
	}
	if value == "array" || value == "object" {
		return "an " + value
	}
	return "a " + value
}

// clip bounds a value of the caller's before it is repeated to it.
func clip(s string) string {
	const most = 128
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
