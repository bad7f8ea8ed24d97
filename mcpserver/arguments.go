package mcpserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/policy"
)

// LoadArgs are the arguments of load_skill.
type LoadArgs struct {
	Name       string `json:"name"`
	FilePath   string `json:"file_path,omitempty"`
	Force      bool   `json:"force,omitempty"`
	Activation string `json:"activation,omitempty"`
}

// ReadArgs are the arguments of read_skill_resource.
type ReadArgs struct {
	Skill      string `json:"skill"`
	Path       string `json:"path"`
	MaxBytes   *int64 `json:"maxBytes,omitempty"`
	Offset     int64  `json:"offset,omitempty"`
	Activation string `json:"activation,omitempty"`
}

// SearchArgs are the arguments of search_skills.
type SearchArgs struct {
	Query  string `json:"query"`
	Cursor string `json:"cursor,omitempty"`
}

// RunArgs are the arguments of run_skill_script.
type RunArgs struct {
	Skill      string   `json:"skill"`
	Path       string   `json:"path"`
	Args       []string `json:"args,omitempty"`
	Cwd        string   `json:"cwd,omitempty"`
	TimeoutMs  *int64   `json:"timeoutMs,omitempty"`
	Stdin      *string  `json:"stdin,omitempty"`
	Activation string   `json:"activation,omitempty"`
}

// decodeArguments reads the arguments of a tool call into dst, a pointer to a struct. Clients check neither
// types nor required fields, so each mistake is answered in words that the model can act on. With strict set
// an unknown field is a mistake too, and so is a known one in another case. Required strings are not empty.
// After a mistake dst has the fields that could be read, for the record of the call.
func decodeArguments(raw json.RawMessage, dst any, strict bool, required ...string) *session.Error {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		raw = []byte("{}")
	}
	// Decoding would replace both silently, so policy could decide about another text than the script gets.
	if !utf8.Valid(raw) || hasLoneSurrogate(raw) {
		return invalidArguments("a string holds a lone surrogate or bytes that are not UTF-8",
			"send well-formed Unicode text")
	}
	members, err := wire.Members(raw)
	if err != nil {
		return invalidArguments("arguments: "+err.Error(),
			"send each argument once, spelt as in the input schema")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		what := "are not a JSON object"
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			what = "must be a JSON object, not " + article(wrong.Value)
		}
		return invalidArguments("arguments "+what, "send an object with the fields of the input schema")
	}
	var mistake *session.Error // the first
	fields, target := reflect.VisibleFields(reflect.TypeOf(dst).Elem()), reflect.ValueOf(dst).Elem()
	for _, m := range members {
		at := slices.IndexFunc(fields, func(field reflect.StructField) bool {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			return name == m.Key
		})
		switch {
		case at >= 0:
			mistake = cmp.Or(mistake, decodeArgument(m, target.Field(at)))
		case strict:
			mistake = cmp.Or(mistake, invalidArguments(fmt.Sprintf("unknown argument %q", policy.Clip(m.Key)),
				"leave it out; the input schema lists the arguments there are"))
		}
	}
	for _, name := range required {
		if text := ""; json.Unmarshal(given[name], &text) != nil || strings.TrimSpace(text) == "" {
			mistake = cmp.Or(mistake, invalidArguments(fmt.Sprintf("argument %q is missing or empty", name),
				"send a non-empty string"))
		}
	}
	return mistake
}

// decodeArgument reads one argument into its field.
func decodeArgument(m wire.Member, field reflect.Value) *session.Error {
	if field.Kind() == reflect.Slice {
		var items []json.RawMessage
		_ = json.Unmarshal(m.Value, &items) // decoding finds out what is not a list
		// Decoding would make an empty string of a null.
		i := slices.IndexFunc(items, func(item json.RawMessage) bool { return item[0] != '"' })
		if i >= 0 {
			return invalidArguments(fmt.Sprintf("argument %q must be a list of strings, but item %d is %s",
				m.Key, i+1, policy.Clip(string(items[i]))), "send every item as a string, or leave it out")
		}
	}
	wrong, _ := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(m.Value, field.Addr().Interface()))
	if wrong == nil {
		return nil
	}
	kind := wrong.Type.Kind()
	wanted := cmp.Or(map[reflect.Kind]string{
		reflect.Slice: "a list of strings", reflect.Bool: "true or false", reflect.Int64: "a whole number",
	}[kind], "a "+kind.String())
	return invalidArguments(fmt.Sprintf("argument %q must be %s, not %s", m.Key, wanted,
		article(wrong.Value)),
		"send the argument with that type")
}

func invalidArguments(message, remedy string) *session.Error {
	return &session.Error{Code: fault.CodeInvalidArguments, Message: message, Remedy: remedy}
}

// hasLoneSurrogate reports whether a JSON text escapes half of a surrogate pair, which decoding
// would silently turn into U+FFFD.
func hasLoneSurrogate(raw []byte) bool {
	escape := func(i int) rune { // the unit of \uXXXX; 0 for anything else
		if len(raw)-i < 6 || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0
		}
		unit, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return rune(unit)
	}
	// Regular expressions would take seconds for a message of 8 MiB.
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if unit := escape(i); utf16.IsSurrogate(unit) {
			if utf16.DecodeRune(unit, escape(i+6)) == utf8.RuneError {
				return true
			}
			i += 6
		}
		i++ // the character behind a backslash may be another one
	}
	return false
}

func article(value string) string {
	switch value {
	case "null":
		return value
	case "array", "object":
		return "an " + value
	}
	return "a " + value
}
