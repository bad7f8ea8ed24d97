package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
)

func TestDecodeArguments(t *testing.T) {
	for _, test := range []struct {
		raw    string
		strict bool
		want   string // part of the message, empty for none
	}{
		{`{"skill":"a","path":"scripts/x"}`, true, ""},
		{``, true, ""},
		{`null`, true, ""},
		{`{"skill":"a","path":"scripts/x","shell":true}`, false, ""},
		{`{"skill":"a","path":"scripts/x","shell":true}`, true, `unknown argument "shell"`},
		{`{"skill":"a","path":"x","args":["ok"],"ARGS":["evil"]}`, false, `key "ARGS"`},
		{`{"skill":"a","path":"x","args":["ok"],"ARGS":["evil"]}`, true, `key "ARGS"`},
		{`{"args":["ok"],"\u0061rgs":["evil"]}`, true, `key "args"`},
		{`{"x":1,"X":2}`, false, `key "X"`},
		{`{"Skill":"a"}`, true, `unknown argument "Skill"`},
		{"{\"s\u212aill\":\"a\"}", true, "unknown argument \"s\u212aill\""},
		{`{"` + strings.Repeat("x", 9999) + `":1}`, true, "…"},
		{`{"skill":7}`, false, `argument "skill" must be a string, not a number`},
		{`{"args":"x"}`, false, `argument "args" must be a list of strings, not a string`},
		{`{"args":[1]}`, false, `argument "args" must be a list of strings, but item 1 is 1`},
		{`{"args":[null]}`, true, `argument "args" must be a list of strings, but item 1 is null`},
		{`{"args":["a", null, "b"]}`, false, "item 2 is null"},
		{`{"args":["a",["b"]]}`, false, `item 2 is ["b"]`},
		{`{"args":["a",{},true]}`, false, "item 2 is {}"},
		{`{"args":[ ]}`, true, ""},
		{`{"args":null}`, true, ""},
		{`{"timeoutMs":"5"}`, false, `argument "timeoutMs" must be a whole number, not a string`},
		{`{"timeoutMs":1.5}`, false, `argument "timeoutMs" must be a whole number`},
		{`[]`, false, "arguments must be a JSON object, not an array"},
		{`"x"`, false, "arguments must be a JSON object, not a string"},
		{`{"args":["\ud800"]}`, false, "lone surrogate"},
		{`{"args":["\udc00x"]}`, false, "lone surrogate"},
		{`{"args":["\ud83d\ude00", "\\ud800"]}`, false, ""},
		{"{\"args\":[\"\xff\"]}", false, "not UTF-8"},
	} {
		var args RunArgs
		err := decodeArguments(json.RawMessage(test.raw), &args, test.strict)
		if test.want == "" {
			if err != nil {
				t.Errorf("decodeArguments(%s) = %v", test.raw, err)
			}
			continue
		}
		plain, ok := errors.AsType[*session.Error](err)
		if !ok || plain.Code != fault.CodeInvalidArguments || !strings.Contains(plain.Message, test.want) || plain.Remedy == "" {
			t.Errorf("decodeArguments(%s) = %v, want %q", test.raw, err, test.want)
		}
	}
}

// A field takes the argument of exactly its name.
func TestDecodeArgumentsExactly(t *testing.T) {
	for raw, want := range map[string]RunArgs{
		`{"Skill":"a","path":"p"}`:                       {Path: "p"},
		"{\"s\u212aill\":\"a\",\"PATH\":\"p\",\"x\":{}}": {},
		`{ "skill" : "a" , "x" : [1] , "Path" : 7 }`:     {Skill: "a"},
		`{"s\u006bill":"a"}`:                             {Skill: "a"},
	} {
		var args RunArgs
		if err := decodeArguments(json.RawMessage(raw), &args, false); err != nil || !reflect.DeepEqual(args, want) {
			t.Errorf("decodeArguments(%s) = %+v, %v, want %+v", raw, args, err, want)
		}
	}
}

// The longest message is read in one pass, whatever escapes it holds: time by the square of its length would
// be that of the whole test.
func TestLoneSurrogateLong(t *testing.T) {
	for _, text := range []string{`\\`, `\ud83d\ude00`, `\u0041`} {
		raw := append(bytes.Repeat([]byte(text), 8<<20/len(text)), `\ud800`...)
		if !hasLoneSurrogate(raw) {
			t.Errorf("no lone surrogate behind %s", text)
		}
	}
}

func FuzzLoneSurrogate(f *testing.F) {
	for _, seed := range []string{`"\ud800"`, `"\\ud800"`, `"\ud83d\ude00"`, `"\ud83d\ud83d\ude00"`, `\u`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var s string
		if json.Unmarshal([]byte(raw), &s) != nil || strings.Contains(raw, "\uFFFD") || strings.Contains(strings.ToLower(raw), `\ufffd`) || !json.Valid([]byte(raw)) {
			return
		}
		for _, r := range raw {
			if r == '\uFFFD' {
				return
			}
		}
		if got, want := hasLoneSurrogate([]byte(raw)), strings.ContainsRune(s, '\uFFFD'); got != want && strings.ToValidUTF8(raw, "") == raw {
			t.Errorf("hasLoneSurrogate(%s) = %v, decoding gives %q", raw, got, s)
		}
	})
}

// The schemas of tools are written out, so they are compared with what their arguments are decoded into.
func TestSchemas(t *testing.T) {
	inferred := func(schema *jsonschema.Schema, err error) *jsonschema.Schema {
		if err != nil {
			t.Fatal(err)
		}
		return schema
	}
	for _, tt := range []struct {
		tool mcp.Tool
		want *jsonschema.Schema
	}{
		{loadTool("", `a "name"`), inferred(jsonschema.For[LoadArgs](nil))}, {readTool(), inferred(jsonschema.For[ReadArgs](nil))},
		{searchTool(), inferred(jsonschema.For[SearchArgs](nil))}, {runTool(true, true), inferred(jsonschema.For[RunArgs](nil))},
	} {
		var got jsonschema.Schema
		if err := json.Unmarshal(tt.tool.RawInputSchema, &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Required, tt.want.Required) || len(got.Properties) != len(tt.want.Properties) {
			t.Errorf("%s = %s", tt.tool.Name, tt.tool.RawInputSchema)
		}
		for name, want := range tt.want.Properties {
			property := got.Properties[name]
			if property == nil || property.Description == "" {
				t.Errorf("%s does not describe %s", tt.tool.Name, name)
				continue
			}
			if of := property.Type; of != want.Type && !slices.Equal([]string{"null", of}, want.Types) ||
				(of == "array") != (property.Items != nil && property.Items.Type == want.Items.Type) {
				t.Errorf("%s: %s is of type %s", tt.tool.Name, name, of)
			}
		}
	}
}
