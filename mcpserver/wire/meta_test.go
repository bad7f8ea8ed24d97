package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A _meta is held in memory as long as its call lasts, so it is bounded whoever its keys belong to.
func TestMetaIsBounded(t *testing.T) {
	d := testDispatcher(io.Discard)
	values := func(n int) string { return `{"others/x":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}` }
	text := func(n int) string {
		frame := `{"others/x":""}`
		return `{"others/x":"` + strings.Repeat("x", n-len(frame)) + `"}`
	}
	for _, tt := range []struct{ name, meta, want string }{
		{"as long as may be", text(maxMeta), ""},
		{"too long", text(maxMeta + 1), "_meta: it has 65537 bytes, the most is 65536"},
		{"many values", values(maxDeepMembers/2 - 2), ""},
		{"too many values", values(maxDeepMembers), "more than 4096 keys and elements"},
		{"too deep", `{"others/x":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, "nested too deep"},
		{"what looks like values in a text", `{"others/x":"` + strings.Repeat(`\"[{,`, 8000) + `"}`, ""},
	} {
		got := string(d.dispatch(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":%s}}`, tt.meta)))
		if refused := strings.Contains(got, `"code":-32602`); refused != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: answered %.300s, want %q", tt.name, got, tt.want)
		}
	}
}

// Elements count as keys do, in answers too.
func TestUnambiguousCountsElements(t *testing.T) {
	list := func(n int) json.RawMessage {
		return json.RawMessage(`[` + strings.TrimSuffix(strings.Repeat("0,", n), ",") + `]`)
	}
	if err := Unambiguous(list(maxDeepMembers)); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	if err := Unambiguous(list(maxDeepMembers + 1)); err == nil {
		t.Error("one too many is accepted")
	}
}
