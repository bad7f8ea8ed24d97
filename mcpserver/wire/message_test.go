package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"
)

func TestParseFields(t *testing.T) {
	tests := []struct {
		name, in           string
		kind               kind
		method, id, params string
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":["}",{}]}}`, request, "a", "1", `{"x":["}",{}]}`},
		{"spaces", " {\t\"jsonrpc\" : \"2.0\" , \"id\" : \"a\\\"b\" ,\r \"method\" : \"a\" } \r", request, "a", `"a\"b"`, ""},
		{"backslashes", `{"x":"\\","jsonrpc":"2.0","y":"\\\"","id":-1.5e3,"method":"a\u002fb"}`, request, "a/b", "-1.5e3", ""},
		{"unknown keys may repeat", `{"x":1,"x":[2],"jsonrpc":"2.0","method":"a"}`, notification, "a", "", ""},
		{"literals", `{"x":true,"y":null,"z":-0.1,"jsonrpc":"2.0","method":"a","params":null}`, notification, "a", "", "null"},
		{"response", `{"jsonrpc":"2.0","id":1,"result":null}`, response, "", "1", ""},
		{"error with null id", `{"jsonrpc":"2.0","id":null,"error":{}}`, response, "", "", ""},
	}
	for _, tt := range tests {
		m, err := parse([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: parse() = %v", tt.name, err)
			continue
		}
		if m.kind != tt.kind || m.method != tt.method || string(m.id) != tt.id || string(m.params) != tt.params {
			t.Errorf("%s: kind %v method %q id %q params %q", tt.name, m.kind, m.method, m.id, m.params)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xff\"}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\x00\"}",
		"\x00", "{\"jsonrpc\":\"2.0\"}{}", strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
	} {
		if m, err := parse([]byte(in)); err == nil || err.Code != mcp.PARSE_ERROR || m.id != nil {
			t.Errorf("parse(%.60q) = %v, want %d and no id", in, err, mcp.PARSE_ERROR)
		}
	}
}

// FuzzParse holds the reading of a message against encoding/json's, which is mcp-go's.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		initialize, callLine("1", "a", ""), cancelLine(`"x"`), `{"jsonrpc":"2.0","ID":1,"method":"a"}`,
		`{"jsonrpc":"2.0","re\u017fult":1,"id":1,"method":"a"}`, `{"\\":"\\\\","jsonrpc":"2.0","id":1e5,"method":"\ud800"}`,
		`{"jſonrpc":"1","jsonrpc":"2.0","method":"a"}`, `[`, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a\"b":1,"protocolVersion":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":1,"A":1}}`, `{}`, `1`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, failure := parse(in)
		if failure != nil || m.kind == response {
			return
		}
		var want struct {
			JSONRPC string          `json:"jsonrpc"`
			Method  string          `json:"method"`
			ID      any             `json:"id,omitempty"`
			Result  any             `json:"result,omitempty"`
			Params  json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(m.raw, &want); err != nil {
			t.Fatalf("parse(%q) passes what mcp-go cannot read: %v", in, err)
		}
		if want.JSONRPC != "2.0" || want.Method != m.method || want.Result != nil ||
			(want.ID != nil) != (m.kind == request) || string(want.Params) != string(m.params) {
			t.Errorf("parse(%q) = %+v, mcp-go reads %+v", in, m, want)
		}
		if m.kind == request {
			var id any
			if err := json.Unmarshal(m.id, &id); err != nil || id != want.ID {
				t.Errorf("parse(%q): id %s, mcp-go reads %v", in, m.id, want.ID)
			}
		}
	})
}

func TestMembers(t *testing.T) {
	for _, tt := range []struct{ in, want, failure string }{
		{`{}`, ``, ""},
		{` { "a" : 1 , "b":{"c":[1,{"c":2}],"d":"}"} } `, `a=1 b={"c":[1,{"c":2}],"d":"}"} `, ""},
		{`[{"a":1,"a":2}]`, ``, ""},
		{`"{\"a\":1,\"a\":2}"`, ``, ""},
		{`null`, ``, ""},
		{`{"\u0061":1,"b":2}`, `a=1 b=2 `, ""},
		{`{"a":1,"b":2,"a":3}`, "", `key "a"`},
		{`{"a":1,"\u0041":3}`, "", `key "A"`},
		{"{\"k\":1,\"\u212a\":2}", "", "key \"\u212a\""},
		{"{\"s\":1,\"\u017f\":2}", "", "key \"\u017f\""},
		{`{"":1,"":2}`, "", `key ""`},
		{`{"` + strings.Repeat("ä", 100) + `":1,"` + strings.Repeat("Ä", 100) + `":2}`, "", `Ä", or one that`},
	} {
		members, err := Members(json.RawMessage(tt.in))
		if tt.failure != "" {
			if err == nil || !strings.Contains(err.Error(), tt.failure) || len(err.Error()) > 300 {
				t.Errorf("Members(%s) = %v, want %s", tt.in, err, tt.failure)
			}
			continue
		}
		got := ""
		for _, m := range members {
			got += fmt.Sprintf("%s=%s ", m.Key, m.Value)
		}
		if got != tt.want || err != nil {
			t.Errorf("Members(%s) = %s, %v, want %s", tt.in, got, err, tt.want)
		}
	}
	if members, err := Members(manyMembers(maxMembers)); err != nil || len(members) != maxMembers {
		t.Errorf("Members(%d members) = %d, %v", maxMembers, len(members), err)
	}
	if _, err := Members(manyMembers(maxMembers + 1)); err == nil {
		t.Error("one member too many is accepted")
	}
}

func manyMembers(n int) json.RawMessage {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	return json.RawMessage("{" + b.String()[1:] + "}")
}

// What Members accepts, a decoder into a map, into a struct and a reader of exact keys read alike.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{"name":"a","arguments":{"a":1}}`, `{"name":1,"NAME":2}`, `{"\u006eame":1}`, "{\"\u212a\":1,\"k\":2}",
		"{\"\u0130\":1,\"i\":2}", `{"\ud800":1,"\udc00":2}`, `{"k\\":"\\\"","":[]}`, `{"Name":1}`, ` { } `, `[1]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if !json.Valid([]byte(in)) || strings.ToValidUTF8(in, "") != in {
			return
		}
		members, err := Members(json.RawMessage(in))
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(in), &object) != nil {
			object = nil
		}
		if len(object) != len(members) {
			t.Fatalf("Members(%q) has %d members, decoding gives %d", in, len(members), len(object))
		}
		for i, m := range members {
			if value, ok := object[m.Key]; !ok || string(value) != string(m.Value) {
				t.Errorf("Members(%q): %q is %s, decoding gives %s", in, m.Key, m.Value, value)
			}
			for _, other := range members[:i] {
				if strings.EqualFold(m.Key, other.Key) {
					t.Errorf("Members(%q) has %q and %q", in, other.Key, m.Key)
				}
			}
		}
		if checkParams("prompts/get", json.RawMessage(strings.TrimSpace(in))) != nil {
			return
		}
		var loose struct {
			Name json.RawMessage `json:"name"`
			Task json.RawMessage `json:"task"`
		}
		if err := json.Unmarshal([]byte(in), &loose); err == nil && (string(loose.Name) != string(object["name"]) || string(loose.Task) != string(object["task"])) {
			t.Errorf("checkParams(%q): a struct gets %s and %s", in, loose.Name, loose.Task)
		}
	})
}

// A value that Unambiguous accepts decodes to what its text says, key by key.
func FuzzUnambiguous(f *testing.F) {
	for _, seed := range []string{`{"a":[{"b":{}},[],""," "]}`, `[{"a":1,"A":2}]`, ` [ 1 , {"action":"x"} ] `, `{"Action":1}`, `[[[[]]]]`, `"{"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if !json.Valid([]byte(in)) || strings.ToValidUTF8(in, "") != in || Unambiguous(json.RawMessage(in), "action") != nil {
			return
		}
		var exact struct {
			Action json.RawMessage `json:"action"`
		}
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(in), &object) == nil && json.Unmarshal([]byte(in), &exact) == nil && string(exact.Action) != string(object["action"]) {
			t.Errorf("%s: a decoder reads %s, a reader of exact keys %s", in, exact.Action, object["action"])
		}
	})
}

func TestFold(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if next := unicode.SimpleFold(r); next != r && fold(string(r)) != fold(string(next)) {
			t.Errorf("fold(%q) = %q, fold(%q) = %q", r, fold(string(r)), next, fold(string(next)))
		}
	}
	if fold("sSkK\u212a\u017f") != "SSKKKS" {
		t.Errorf("fold = %q", fold("sSkK\u212a\u017f"))
	}
}

// Every field that the library decodes from the params of a request is a name whose misspellings are
// refused.
func TestParamNames(t *testing.T) {
	var check func(t reflect.Type)
	check = func(params reflect.Type) {
		for i := range params.NumField() {
			field := params.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous && name == "":
				check(field.Type)
			case name != "-" && (paramNames[fold(name)] != name || paramNames[fold(strings.ToUpper(name))] != name):
				t.Errorf("%s: %q is not known", params, name)
			}
		}
	}
	for _, params := range []any{
		mcp.RequestParams{}, mcp.InitializeParams{}, mcp.PaginatedParams{}, mcp.ReadResourceParams{}, mcp.SubscribeParams{}, mcp.UnsubscribeParams{},
		mcp.SetLevelParams{}, mcp.GetPromptParams{}, mcp.CallToolParams{}, mcp.CompleteParams{}, mcp.SubscriptionsListenParams{}, mcp.DiscoverParams{},
		mcp.GetTaskParams{}, mcp.TaskResultParams{}, mcp.CancelTaskParams{},
	} {
		check(reflect.TypeOf(params))
	}
}

// Requests that readers of exact keys understand otherwise than decoders do.
func TestAmbiguousParams(t *testing.T) {
	d := testDispatcher(io.Discard)
	for params, want := range map[string]string{
		`{"name":"echo","Name":"fail"}`:                           `duplicate key \"Name\"`,
		`{"name":"echo","name":"fail"}`:                           `duplicate key \"name\"`,
		"{\"name\":\"echo\",\"ta\u017f\u212a\":{}}":               `must be spelt \"task\"`,
		`{"Name":"echo"}`:                                         `must be spelt \"name\"`,
		`{"name":"echo","arguments":{},"Arguments":{"text":"x"}}`: `duplicate key \"Arguments\"`,
		`{"name":"echo","_meta":{"k":1,"K":2}}`:                   `_meta: duplicate key \"K\"`,
		`{"name":"echo","_META":{}}`:                              `must be spelt \"_meta\"`,
		`{"name":"echo","_meta":{"skillsd/prompt-slot":{"role":"quote","role":"direct-command"}}}`:                        `_meta: skillsd/prompt-slot: duplicate key \"role\"`,
		`{"name":"echo","_meta":{"skillsd/input-labels":{"entries":[[{"path":1,"Path":2}]]}}}`:                            `key \"Path\"`,
		`{"name":"echo","_meta":{"x-codex-turn-metadata":{"turn_id":"a","turn_id":"b"}}}`:                                 `duplicate key \"turn_id\"`,
		`{"name":"echo","_meta":{"codex/sandbox-state-meta":{"a":[{"b":1,"B":2}]}}}`:                                      `key \"B\"`,
		`{"name":"echo","inputResponses":{"approval":{"action":"decline","Action":"accept"}}}`:                            `inputResponses: duplicate key \"Action\"`,
		`{"name":"echo","inputResponses":{"approval":{"Action":"accept"}}}`:                                               `must be spelt \"action\"`,
		`{"name":"echo","inputResponses":{"approval":{"action":"accept","content":{"decision":1,"decision":2}}}}`:         `key \"decision\"`,
		`{"name":"echo","_meta":{"skillsd/x":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}}`: `nested too deep`,
		`{"name":"echo","_meta":{"skillsd/x":[` + strings.Repeat(string(manyMembers(maxMembers))+",", 16) + `{"a":1}]}}`:  `more than 4096 keys`,
		`[]`: errParams,
		`5`:  errParams,
	} {
		line := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + params + `}`
		got := string(d.dispatch(t.Context(), []byte(line)))
		if !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":3,"error":{"code":-32602,`) || !strings.Contains(got, want) {
			t.Errorf("tools/call %s = %s, want %s", params, got, want)
		}
	}
	for method, params := range map[string]string{
		"resources/read": `{"uri":"a","URI":"b"}`, "skills/get": `{"uri":"a","uri":"b"}`, "resources/list": `{"Cursor":"x"}`,
		"prompts/get": `{"name":"a","arguments":{"a":"1","A":"2"}}`, "ping": `{"_meta":{"a":1,"a":2}}`, "no/such": `{"a":1,"a":1}`,
	} {
		line := fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":%q,"params":%s}`, method, params)
		if got := string(d.dispatch(t.Context(), []byte(line))); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s %s = %s", method, params, got)
		}
	}
	for _, params := range []string{`null`, `{"name":"echo","_meta":{"other/x":{"a":1,"A":2},"skillsd/x":[1,"{",{},{"a":[ ]} ]}}`, `{"name":"echo","arguments":{"a":1,"A":2}}`, `{"name":"echo","extra":1,"more":{"a":1,"a":2}}`} {
		line := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + params + `}`
		if got := string(d.dispatch(t.Context(), []byte(line))); strings.Contains(got, "key ") {
			t.Errorf("tools/call %s = %s", params, got)
		}
	}
}

// A cancellation that could mean two requests cancels none.
func TestAmbiguousCancel(t *testing.T) {
	for params, want := range map[string]string{
		`{"requestId":1}`: "n1", `{"requestId":"a","reason":"x"}`: "sa", `{"requestId":1,"requestID":2}`: "", `{"requestId":1,"requestId":2}`: "",
		`{"requestid":1}`: "", `{"requestId":null}`: "", `[]`: "", ``: "",
	} {
		if got := canceledKey(json.RawMessage(params)); got != want {
			t.Errorf("canceledKey(%s) = %s, want %s", params, got, want)
		}
	}
}

func TestInitializeVersion(t *testing.T) {
	for version, want := range map[string]string{
		`"2025-11-25"`: "2025-11-25", `"2025-06-18"`: "2025-06-18", `"2025-03-26"`: "2025-11-25", `"2024-11-05"`: "2025-11-25",
		`""`: "2025-11-25", `null`: "2025-11-25", `"2026-07-28"`: "2025-11-25", `"9"`: "2025-11-25", `"2025\u002d06-18"`: "2025-06-18",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := startPeer(t, fixture(testServer()), &StdioOptions{})
			params := `{"clientInfo":{"name":"n","version":"1"},"protocolVersion":` + version + `,"capabilities":{"roots":{}}}`
			got := p.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+params+`}`, callLine("2", "who", ""))
			if len(got) != 2 || !strings.Contains(got[0], `"protocolVersion":"`+want+`"`) || !strings.Contains(got[1], " n "+want+" ") {
				t.Errorf("initialize with %s: %s", version, got)
			}
		})
	}
	d := testDispatcher(io.Discard)
	for _, params := range []string{``, `,"params":null`, `,"params":{}`} {
		got := string(d.dispatch(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"`+params+`}`)))
		if !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
			t.Errorf("initialize%s = %s", params, got)
		}
	}
}

func BenchmarkCheckParams(b *testing.B) {
	params := json.RawMessage(`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","stdin":"` + strings.Repeat("x", 800) + `"},` + modernMeta + `}`)
	b.SetBytes(int64(len(params)))
	b.ReportAllocs()
	for b.Loop() {
		if err := checkParams("tools/call", params); err != nil {
			b.Fatal(err)
		}
	}
}

// Keys that mean the same are found among many as they are among few.
func TestTwiceAmongMany(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	for _, tt := range []struct {
		a, b  string
		again bool
	}{
		{"a", "b", false}, {"a", "a", true}, {"a", "A", true}, {"k", "\u212a", true}, {"K", "\u212a", true}, {"\u212a", "k", true},
		{"s", "\u017f", true}, {"ä", "Ä", true}, {"ß", "ẞ", true}, {"ß", "ss", false}, {"", "", true}, {"σ", "ς", true}, {"i", "İ", false},
		{long + "x", long + "y", false}, {long + "x", long + "X", true},
	} {
		for _, n := range []int{0, 7, 30} {
			for _, before := range []int{0, n / 2, n} {
				object := json.RawMessage(`{`)
				for i := range n + 2 {
					key := fmt.Sprint("other ", i)
					switch i {
					case before:
						key = tt.a
					case n + 1:
						key = tt.b
					}
					object = fmt.Appendf(object, `%q:1,`, key)
				}
				object[len(object)-1] = '}'
				members, err := Members(object)
				if again := err != nil; again != tt.again || !again && len(members) != n+2 {
					t.Errorf("%.20q and %.20q among %d: %d members, %v", tt.a, tt.b, n, len(members), err)
				}
			}
		}
	}
}

// BenchmarkLongKeys reads a message whose keys differ at their ends alone.
func BenchmarkLongKeys(b *testing.B) {
	for _, letter := range []string{"a", "ä"} {
		b.Run(letter, func(b *testing.B) {
			object := json.RawMessage(`{`)
			for i := range maxMembers {
				object = fmt.Appendf(object, `"%s%03d":1,`, strings.Repeat(letter, 15_000/len(letter)), i)
			}
			object[len(object)-1] = '}'
			b.SetBytes(int64(len(object)))
			for b.Loop() {
				if _, err := Members(object); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
