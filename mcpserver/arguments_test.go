package mcpserver

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
)

func TestDecodeArguments(t *testing.T) {
	const invalid, list = fault.CodeInvalidArguments, fault.CodeScriptPathInvalid
	for _, test := range []struct {
		raw  string
		code fault.Code
		want string // a part of the message and the remedy
	}{
		{`{"skill":"a","args":["ok"],"ARGS":["evil"]}`, invalid, `key "ARGS"`},
		{`{"skill":"a","args":["ok"],"\u0061rgs":["evil"]}`, invalid, `key "args"`},
		{`{"skill":"a","x":1,"X":2}`, invalid, `key "X"`},
		{`{"skill":7}`, invalid, `argument "skill" must be a string, not a number. send it as in "skill": "NAME"`},
		{`{"skill":["a"]}`, invalid, `argument "skill" must be a string, not an array`},
		{`{}`, invalid, `argument "skill" is missing or empty. send a text, as in "skill": "NAME"`},
		{`{"skill":" "}`, invalid, `argument "skill" is missing or empty. send`},
		{`{"skills":"a"}`, invalid, `"skill" is missing or empty: the arguments of this tool are skill, path, args, cwd, `},
		{"{\"s\u212aill\":\"a\"}", invalid, `"skill" is missing or empty: the arguments`},
		{`{"skill":"a","script":"b","file":"c"}`, invalid,
			`argument "path" is missing, and both "script" and "file" could mean it. send it as "path"`},
		{`{"skill":"a","` + strings.Repeat("x", 9999) + `":1,"file":"b","resource":"c"}`, invalid, `both "file" and`},
		{`{"skill":"a","args":"x"}`, list, `run_skill_script args must be an array of strings. send a list of strings, as in "args": ["--top", "3"]`},
		{`{"skill":"a","args":"--top 3"}`, list, "array of strings"},
		{`{"skill":"a","args":{"x":1}}`, list, "array of strings"},
		{`{"skill":"a","args":"{}"}`, list, "array of strings"},
		{`{"skill":"a","args":[1]}`, list, `item 1 is 1: send a list`},
		{`{"skill":"a","args":"[1]"}`, list, `item 1 is 1: send a list`},
		{`{"skill":"a","args":["a", null, "b"]}`, list, "item 2 is null"},
		{`{"skill":"a","args":["a",["b"]]}`, list, `item 2 is ["b"]`},
		{`{"skill":"a","args":["a",{},true]}`, list, "item 2 is {}"},
		{`{"skill":"a","args":"[\"\\ud800\"]"}`, list, "array of strings"},
		{`{"skill":"a","timeoutMs":"5s"}`, invalid,
			`argument "timeoutMs" must be a whole number, not a string. send it as in "timeoutMs": 1000`},
		{`{"skill":"a","timeoutMs":1.5}`, invalid, `argument "timeoutMs" must be a whole number`},
		{`{"skill":"a","timeoutMs":"1.5"}`, invalid, `argument "timeoutMs" must be a whole number`},
		{`{"skill":"a","timeoutMs":1e300}`, invalid, `argument "timeoutMs" must be a whole number`},
		{`[]`, invalid, "arguments must be a JSON object, not an array"},
		{`"x"`, invalid, "arguments must be a JSON object, not a string"},
		{`"[]"`, invalid, "arguments must be a JSON object, not an array"},
		{`"{\"skill\":\"a\",\"Skill\":\"b\"}"`, invalid, `key "Skill"`},
		{`{"skill":"a","args":["\ud800"]}`, invalid, "lone surrogate"},
		{`{"skill":"a","args":["\udc00x"]}`, invalid, "lone surrogate"},
		{"{\"args\":[\"\xff\"]}", invalid, "not UTF-8"},
	} {
		var args runArgs
		err := decodeArguments(json.RawMessage(test.raw), &args, "skill")
		if err == nil || err.Code != test.code || !strings.Contains(err.Message+". "+err.Remedy, test.want) {
			t.Errorf("decodeArguments(%.200s) = %+v, want %q", test.raw, err, test.want)
		}
	}
}

// What can mean one thing only is taken for it.
func TestDecodeArgumentsMeant(t *testing.T) {
	for raw, want := range map[string]runArgs{
		``:                                 {},
		`null`:                             {},
		`{"skill":"a","path":"p"}`:         {Skill: "a", Path: "p"},
		`"{\"skill\":\"a\"}"`:              {Skill: "a"},
		`{ "skill" : "a" , "x" : [1] }`:    {Skill: "a"},
		`{"s\u006bill":"a"}`:               {Skill: "a"},
		`{"name":"a","script":"p"}`:        {Skill: "a", Path: "p"},
		`{"skill_name":"a","file":"p"}`:    {Skill: "a", Path: "p"},
		`{"skillName":"a","filePath":"p"}`: {Skill: "a", Path: "p"},
		`{"Skill":"a","Script":"p"}`:       {},
		`{"skill":"a","scriptPath":"p"}`:   {Skill: "a", Path: "p"},
		`{"skill":"a","name":"b"}`:         {Skill: "a"},
		`{"path":"p","script":"q"}`:        {Path: "p"},
		"{\"s\u212aill\":\"a\"}":           {},
		`{"args":null,"timeoutMs":null,"stdin":null,"cwd":null}`: {},
		`{"args":[ ]}`:                           {Args: []string{}},
		`{"args":""}`:                            {},
		`{"args":"[\"a\", \"b c\"]"}`:            {Args: []string{"a", "b c"}},
		`{"args":["\ud83d\ude00", "\\ud800"]}`:   {Args: []string{"\U0001f600", `\ud800`}},
		`{"timeoutMs":"5000"}`:                   {TimeoutMs: new(int64(5000))},
		`{"timeoutMs":5000.0}`:                   {TimeoutMs: new(int64(5000))},
		`{"timeout_ms":"5e3"}`:                   {TimeoutMs: new(int64(5000))},
		`{"timeoutMs":"","stdin":"[1]"}`:         {Stdin: new("[1]")},
		`{"timeoutMs":-9007199254740993}`:        {TimeoutMs: new(int64(-9007199254740993))},
		`{"cwd":"/skill","stdin":"\"quoted\" "}`: {Cwd: "/skill", Stdin: new(`"quoted" `)},
	} {
		var args runArgs
		if err := decodeArguments(json.RawMessage(raw), &args); err != nil || !reflect.DeepEqual(args, want) {
			t.Errorf("decodeArguments(%s) = %+v, %v, want %+v", raw, args, err, want)
		}
	}
	var load loadArgs
	for raw, want := range map[string]loadArgs{
		`{"skill":"a","force":"true"}`:      {Name: "a", Force: true},
		`{"skill_name":"a","filePath":"p"}`: {Name: "a", FilePath: "p"},
	} {
		load = loadArgs{}
		if err := decodeArguments(json.RawMessage(raw), &load); err != nil || load != want {
			t.Errorf("decodeArguments(%s) = %+v, %v, want %+v", raw, load, err, want)
		}
	}
	// After a mistake there is what could be read.
	var args runArgs
	if err := decodeArguments(json.RawMessage(`{"args":7,"skill":"a","path":"p"}`), &args); err == nil || args.Path != "p" {
		t.Errorf("decodeArguments = %+v, %v", args, err)
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

// A tool describes each of its arguments, and requires those without which a call means nothing.
func TestSchemas(t *testing.T) {
	for _, tt := range []struct {
		tool      mcp.Tool
		inferred  *jsonschema.Schema
		arguments int
		required  []string
	}{
		{loadTool("", `a "name"`, true), loadSchema(), 4, []string{"name"}},
		{loadTool("", `a "name"`, false), loadSchema(), 3, []string{"name"}},
		{readTool(), readSchema(), 5, []string{"skill", "path"}},
		{searchTool(), searchSchema(), 2, []string{"query"}},
		{runTool(true, true, time.Minute, time.Minute), runSchema(), 7, []string{"skill", "path"}},
	} {
		var got jsonschema.Schema
		if err := json.Unmarshal(tt.tool.RawInputSchema, &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Required, tt.required) || len(got.Properties) != tt.arguments || got.Type != "object" ||
			got.AdditionalProperties != nil {
			t.Errorf("%s = %s", tt.tool.Name, tt.tool.RawInputSchema)
		}
		for name, p := range got.Properties {
			if p.Description == "" || p.Type == "" || p.Type != tt.inferred.Properties[name].Type {
				t.Errorf("%s: %s is %+v", tt.tool.Name, name, p)
			}
		}
		// Clients show the arguments in the order of the schema: what is required comes first.
		if at := bytes.Index(tt.tool.RawInputSchema, []byte(`"activation"`)); at >= 0 {
			for _, name := range tt.required {
				if first := bytes.Index(tt.tool.RawInputSchema, []byte(`"`+name+`"`)); first > at {
					t.Errorf("%s: %s comes after activation", tt.tool.Name, name)
				}
			}
		}
	}
}

// BenchmarkDescribe is the part of a list of tools that inferred schemas take.
func BenchmarkDescribe(b *testing.B) {
	for b.Loop() {
		runTool(true, true, time.Minute, time.Minute)
	}
}
