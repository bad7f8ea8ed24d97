package mcpserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// loadArgs are the arguments of load_skill.
type loadArgs struct {
	Name       string `json:"name" means:"skill,skill_name,skillName"`
	FilePath   string `json:"file_path,omitempty" means:"filePath"`
	Activation string `json:"activation,omitempty"`
	Force      bool   `json:"force,omitempty"`
}

// readArgs are the arguments of read_skill_resource.
type readArgs struct {
	Skill      string `json:"skill" means:"name,skill_name,skillName"`
	Path       string `json:"path" means:"file,file_path,filePath,resource,script,script_path,scriptPath"`
	MaxBytes   *int64 `json:"maxBytes,omitempty" means:"max_bytes"`
	Offset     int64  `json:"offset,omitempty"`
	Activation string `json:"activation,omitempty"`
}

// searchArgs are the arguments of search_skills.
type searchArgs struct {
	Query  string `json:"query"`
	Cursor string `json:"cursor,omitempty"`
}

// runArgs are the arguments of run_skill_script.
type runArgs struct {
	Skill      string   `json:"skill" means:"name,skill_name,skillName"`
	Path       string   `json:"path" means:"file,file_path,filePath,resource,script,script_path,scriptPath"`
	Args       []string `json:"args,omitempty" means:"arguments,argv"`
	Cwd        string   `json:"cwd,omitempty"`
	TimeoutMs  *int64   `json:"timeoutMs,omitempty" means:"timeout_ms"`
	Stdin      *string  `json:"stdin,omitempty"`
	Activation string   `json:"activation,omitempty"`
}

// decodeArguments decodes the arguments of a tool call into dst, a pointer to a struct. Clients check neither
// types nor required fields, and models write both from memory: an unambiguous mistake is corrected, and any
// other is answered in words that the model can act on. Unknown arguments are ignored. Required strings must
// not be empty. After a mistake dst has the fields that could be decoded, for the record of the call.
func decodeArguments(raw json.RawMessage, dst any, required ...string) *session.Error {
	members, mistake := argumentsOf(raw)
	if mistake != nil {
		return mistake
	}
	fields, target := reflect.VisibleFields(reflect.TypeOf(dst).Elem()), reflect.ValueOf(dst).Elem()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i], _, _ = strings.Cut(field.Tag.Get("json"), ",")
	}
	values := make([]json.RawMessage, len(fields))
	var unknown []wire.Member
	for _, m := range members {
		i := slices.Index(names, m.Key)
		if i < 0 {
			unknown = append(unknown, m)
			continue
		}
		values[i] = m.Value
	}
	for i, field := range fields {
		value := values[i]
		if value == nil && len(unknown) > 0 {
			var ambiguous *session.Error
			value, ambiguous = otherName(names[i], field, unknown)
			mistake = cmp.Or(mistake, ambiguous)
		}
		if value != nil {
			mistake = cmp.Or(mistake, decodeArgument(names[i], value, target.Field(i)))
		}
	}
	for i, name := range names {
		if slices.Contains(required, name) && strings.TrimSpace(target.Field(i).String()) == "" {
			mistake = cmp.Or(mistake, missingArgument(name, names, len(unknown) > 0))
		}
	}
	return mistake
}

// argumentsOf returns the arguments in the raw form in which a client sent them: an object, its text in a
// string, or nothing.
func argumentsOf(raw json.RawMessage) ([]wire.Member, *session.Error) {
	raw = unquoted(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	// Decoding would replace both silently, so policy could decide about another text than the script
	// receives.
	if !utf8.Valid(raw) || hasLoneSurrogate(raw) {
		return nil, invalidArguments("a string holds a lone surrogate or bytes that are not UTF-8",
			"send well-formed Unicode text")
	}
	// A program that approves calls may read keys exactly. It must not approve another call than the one that
	// runs.
	members, err := wire.Members(raw)
	if err != nil {
		return nil, invalidArguments("arguments: "+err.Error(),
			"send each argument once, spelt as in the input schema")
	}
	if members == nil {
		what, object := "are not a JSON object", struct{}{}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(raw, &object)); ok {
			what = "must be a JSON object, not " + article(wrong.Value)
		}
		return nil, invalidArguments("arguments "+what, "send an object with the fields of the input schema")
	}
	return members, nil
}

// missingArgument returns the error of a required argument that is missing or empty. It has the names of all
// arguments if the call has an unknown one.
func missingArgument(name string, names []string, hasUnknown bool) *session.Error {
	what := fmt.Sprintf("argument %q is missing or empty", name)
	if hasUnknown {
		what += ": the arguments of this tool are " + strings.Join(names, ", ")
	}
	return invalidArguments(what, fmt.Sprintf(`send a text, as in %q: "NAME"`, name))
}

// otherName returns the value of a missing argument that was sent under another name of its field, or nil.
func otherName(
	name string, field reflect.StructField, unknown []wire.Member,
) (json.RawMessage, *session.Error) {
	others := strings.Split(field.Tag.Get("means"), ",")
	meant := slices.DeleteFunc(slices.Clone(unknown),
		func(m wire.Member) bool { return !slices.Contains(others, m.Key) })
	switch len(meant) {
	case 0:
		return nil, nil
	case 1:
		return meant[0].Value, nil
	}
	return nil, invalidArguments(fmt.Sprintf("argument %q is missing, and both %q and %q could mean it", name,
		policy.Clip(meant[0].Key), policy.Clip(meant[1].Key)), fmt.Sprintf("send it as %q", name))
}

// decodeArgument decodes one argument into its field. A list, a number or a boolean may be sent as its JSON
// text, and an integer as 5.0; null, and an empty text for these types, are treated as missing.
func decodeArgument(name string, value json.RawMessage, field reflect.Value) *session.Error {
	of := field.Type()
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.String {
		value = unquoted(value)
		if len(value) == 0 {
			return nil
		}
	}
	if of.Kind() == reflect.Int64 {
		value = whole(value)
	}
	if of.Kind() == reflect.Slice {
		var items []json.RawMessage
		// If the value is not a list, decoding it into its field reports that.
		_ = json.Unmarshal(value, &items)
		// Decoding would turn null into an empty string.
		i := slices.IndexFunc(items, func(item json.RawMessage) bool { return item[0] != '"' })
		if i >= 0 {
			return invalidList(name, fmt.Sprintf("item %d is %s: ", i+1, policy.Clip(string(items[i]))))
		}
	}
	wrong, _ := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(value, field.Addr().Interface()))
	switch {
	case wrong == nil:
		return nil
	case of.Kind() == reflect.Slice:
		return invalidList(name, "")
	}
	wanted, example := "a string", `"NAME"`
	switch of.Kind() {
	case reflect.Bool:
		wanted, example = "true or false", "true"
	case reflect.Int64:
		wanted, example = "a whole number", "1000"
	}
	return invalidArguments(fmt.Sprintf("argument %q must be %s, not %s", name, wanted, article(wrong.Value)),
		fmt.Sprintf("send it as in %q: %s", name, example))
}

// unquoted returns the JSON inside a JSON string, empty for a blank one, and any other value unchanged.
func unquoted(value json.RawMessage) json.RawMessage {
	var text string
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return value
	}
	inner := json.RawMessage(strings.TrimSpace(text))
	if len(inner) > 0 && (inner[0] == '"' || !json.Valid(inner) || hasLoneSurrogate(inner)) {
		return value
	}
	return inner
}

// whole converts a number without fraction, such as 5.0 or 5e3, to a JSON integer, and returns any other
// value unchanged.
func whole(value json.RawMessage) json.RawMessage {
	// From this number on, a float64 does not represent every integer, so the value could change.
	const exact = 1 << 53
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) >= exact {
		return value
	}
	return strconv.AppendInt(nil, int64(n), 10)
}

// invalidList returns the error for a list of strings, with the wording of the reference.
func invalidList(name, what string) *session.Error {
	e := fault.ScriptArgsInvalid.Because(nil)
	e.Remedy = fmt.Sprintf(`%ssend a list of strings, as in %q: ["--top", "3"]`, what, name)
	return e
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
		// The escaped character may be a backslash.
		i++
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
