package wire

import (
	"encoding/json"
	"strings"
	"testing"

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
