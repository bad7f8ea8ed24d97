package provenance_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/iotest"

	"io"

	"github.com/skillsd/skillsd/provenance"
)

// texts are valid and invalid, compact and spaced.
var texts = []string{
	"", " ", "{}", "[]", "0", "-0", "-", "00", "01", "1.", "1.5", "1.5e3", "1e", "1e+", "1E-2", "1e5.", "-1.0E+07", ".5", "+1",
	"true", "false", "null", "tru", "truex", "nul", "True", `""`, `"`, `"a`, `"\"`, `"\""`, `"\\"`, `"\u00e9\/\b"`, `"\u00g0"`, `"\x"`,
	"\"\x1f\"", "\"\x7f\"", "\"\xff\"", "\"é\u2028\"", "{} ", " {}", "{}{}", "{}x", "[1,2]", "[1,]", "[,1]", "[1 2]", "[ ]", "[]]", "[}", "{]",
	`{"a":1}`, `{"a":1,}`, `{"a" : 1}`, `{"a":}`, `{"a"}`, `{a:1}`, `{,}`, `{"a":1,"b":[{"c":null},true,-2.5e3,"x\ny"],"d":{}}`,
	`{"status":"read","Status":"x"}`, `{"status":"read","status":"x"}`, `{"\u0073tatus":"x"}`, `{"ſtatus":"x"}`, `{"status":null}`,
	`{"x":{"status":"no"},"status":"yes","y":["status",{"status":1}]}`, `[[[[]]]]`, `{"status":1,"a":"}"}`, `{"a":"\\","status":"s"}`, `{"a":[],"status":{}}`,
	"{\"status\":\"0\xf2\xf2\xf20\"}",
	strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
	"{\n  \"a\": [\n    1\n  ]\n}\n", "tr ue", "- 1", "1 ", "\"a\nb\"", "\v{}", "{}\x00",
}

func FuzzAgainstJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got bytes.Buffer
		valid := json.Compact(&want, text) == nil
		if whole := provenance.JSONValue(text) == len(text) && len(text) > 0; whole != (valid && bytes.Equal(want.Bytes(), text)) {
			t.Errorf("jsonValue(%.80q) = %d of %d; JSON: %v, compact: %q", text, provenance.JSONValue(text), len(text), valid, &want)
		}
		for _, read := range []io.Reader{bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text))} {
			got.Reset()
			w := provenance.NewCompactor(&got)
			_, err := io.Copy(w, read)
			if err == nil {
				err = w.Close()
			}
			if (err == nil) != valid || valid && !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("Compactor of %.80q wrote %q, %v; json.Compact %q, valid %v", text, &got, err, &want, valid)
			}
		}
		if len(text) > 5_000 {
			return // depth makes indentation large
		}
		// Neither may panic for what is not JSON, nor be wrong for what is.
		indented, ok := provenance.AppendIndented([]byte("x"), text, "    ", "  ")
		var all struct{ Status, Other json.RawMessage }
		values := make([][]byte, 2)
		sure := provenance.MembersOf(text, []string{"status", "other"}, values)
		if !valid {
			return
		}
		want.Reset()
		want.WriteByte('x')
		if err := json.Indent(&want, text, "    ", "  "); err != nil || ok && !bytes.Equal(indented, want.Bytes()) {
			t.Errorf("AppendIndented(%.80q) = %q, want %q, %v", text, indented, &want, err)
		}
		if provenance.JSONValue(text) == len(text) && !ok {
			t.Errorf("AppendIndented(%.80q) does not answer", text)
		}
		if !sure {
			return
		}
		if err := json.Unmarshal(text, &all); err != nil || !bytes.Equal(all.Status, values[0]) || !bytes.Equal(all.Other, values[1]) {
			t.Errorf("MembersOf(%.80q) = %q, want %q and %q, %v", text, values, all.Status, all.Other, err)
		}
		for _, value := range values {
			var want string
			if text, ok := provenance.PlainText(value); ok && (json.Unmarshal(value, &want) != nil || want != string([]rune(text))) {
				t.Errorf("PlainText(%q) = %q, want %q", value, text, want)
			}
		}
	})
}

// TestMembersOf wants the rows of records read, not left to encoding/json.
func TestMembersOf(t *testing.T) {
	values := make([][]byte, 2)
	for text, want := range map[string]string{
		`{}`: "|", `{"status":"read"}`: `"read"|`, `{"a":[1,{"status":2}],"other":{"b":"}\""},"status":-1.5}`: `-1.5|{"b":"}\""}`,
		`{"status":"read","Status":"x"}`: "", `{"status":1,"status":2}`: "", `{"ſtatus":"x"}`: "", `{"status": 1}`: "", `{"\u0073":1}`: "",
	} {
		sure := provenance.MembersOf([]byte(text), []string{"status", "other"}, values)
		if got := string(values[0]) + "|" + string(values[1]); sure != (want != "") || sure && got != want {
			t.Errorf("MembersOf(%s) = %s, %v, want %s", text, got, sure, want)
		}
	}
}
