package metrics

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestMember(t *testing.T) {
	for _, test := range []struct{ raw, name, want string }{
		{`{"a":1,"b":"x"}`, "b", `"x"`},
		{`{"a":1,"b":"x"}`, "a", `1`},
		{`{"a":{"b":1},"b":2}`, "b", `2`},
		{`{"a":["b",{"b":1}],"b":[2,{"c":"]"}]}`, "b", `[2,{"c":"]"}]`},
		{`{"a":"\",\"b\":\"1","b":"\\"}`, "b", `"\\"`},
		{`{"a":"\\\\\"}","b":true}`, "b", `true`},
		{" { \"a\" : 1 ,\n\t\"b\" : -1.5e3 } ", "b", `-1.5e3`},
		{`{"b":{},"b":2}`, "b", `{}`},
		{`{"a":1}`, "b", ``},
		{`{}`, "b", ``},
		{``, "b", ``},
		{`null`, "b", ``},
		{`["b",1]`, "b", ``},
		{`{"a":"unfinished`, "b", ``},
		{`{"a"`, "a", ``},
		{`{"a":`, "a", ``},
		{`{"`, "", ``},
	} {
		if got := member([]byte(test.raw), test.name); string(got) != test.want {
			t.Errorf("member(%s, %q) = %s, want %s", test.raw, test.name, got, test.want)
		}
	}
}

func TestText(t *testing.T) {
	for raw, want := range map[string]string{`"x"`: "x", `"\u0078\n"`: "x\n", `1`: "", ``: "", `"`: "", `""`: "", `"\"`: ""} {
		if got := text([]byte(raw)); got != want {
			t.Errorf("text(%s) = %q, want %q", raw, got, want)
		}
	}
	for raw, want := range map[string]uint64{`0`: 0, `12`: 12, `-1`: 0, `1.5`: 0, `18446744073709551615`: 0, ``: 0, `"1"`: 0} {
		if got := integer([]byte(raw)); got != want {
			t.Errorf("integer(%s) = %d, want %d", raw, got, want)
		}
	}
}

// first is what encoding/json finds for member.
func first(t *testing.T, raw []byte, name string) []byte {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if key == name {
			return value
		}
	}
	return nil
}

// FuzzMember holds member to encoding/json on whatever is valid, and to not failing on the rest.
func FuzzMember(f *testing.F) {
	for _, seed := range []string{
		`{"b":1}`, `{"a":"\"","b":[{"b":"}"}]}`, `{"a":{"b":[]},"b":""}`, " {\"b\" : null\r}", `{"a":"\\","b":"x"}`, `{"b":`, `[{"b":1}]`, `}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := member(raw, "b")
		text(got)
		integer(got)
		// A key that is written with escapes is none that the rows have.
		if !json.Valid(raw) || bytes.Contains(raw, []byte(`\u`)) {
			return
		}
		if want := first(t, raw, "b"); !bytes.Equal(got, want) {
			t.Errorf("member(%s) = %s, want %s", raw, got, want)
		}
	})
}
