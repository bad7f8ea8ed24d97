package cfharness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

var stringifyCases = []struct{ in, want string }{
	{" { \"b\" : 1 , \"a\" : [ true , false , null ] } \n", `{"b":1,"a":[true,false,null]}`},
	{`[1.0,-0,0.1e1,100e-2,1e21,1e20,123456789012345678901234567890,1e-6,1e-7,1.5e-9,1e400,-1e400,5e-324,0.000001234]`,
		`[1,0,1,1,1e+21,100000000000000000000,1.2345678901234568e+29,0.000001,1e-7,1.5e-9,null,null,5e-324,0.000001234]`},
	{`"\u0041\/\u00e9\u2028\u007f\u0000\u001F\b\f\n\r\t\"\\"`, "\"A/\u00e9\u2028\u007f\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\\""},
	{`"\ud83d\ude00"`, `"😀"`},
	{`{"__proto__":1,"":2}`, `{"__proto__":1,"":2}`},
	{`"<>&"`, `"<>&"`},
	{`{}`, `{}`}, {`[]`, `[]`}, {`[[],{}]`, `[[],{}]`}, {` null `, `null`},
}

func TestStringify(t *testing.T) {
	for _, tc := range stringifyCases {
		if got, err := cfharness.Stringify([]byte(tc.in)); err != nil || string(got) != tc.want {
			t.Errorf("Stringify(%s) = %s, %v, want %s", tc.in, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "{", "{}{}", "nul", "\"\xff\"", "[1,]", strings.Repeat("[", 20000)} {
		if got, err := cfharness.Stringify([]byte(bad)); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("Stringify(%.20q) = %s, %v", bad, got, err)
		}
	}
}

// What JavaScript itself makes of the cases.
func TestStringifyIsJavaScript(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	var lines bytes.Buffer
	for _, tc := range stringifyCases {
		raw, err := json.Marshal(tc.in)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(raw, '\n'))
	}
	const program = `for (const l of require("fs").readFileSync(0, "utf8").trim().split("\n"))
		process.stdout.write(JSON.stringify(JSON.stringify(JSON.parse(JSON.parse(l)))) + "\n")`
	cmd := exec.CommandContext(t.Context(), node, "-e", program)
	cmd.Stdin = &lines
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		want, err := cfharness.Stringify([]byte(line)) // the text of a string, in the same form
		if err != nil {
			t.Fatal(err)
		}
		got, err := cfharness.Stringify([]byte(stringifyCases[i].in))
		if err != nil {
			t.Fatal(err)
		}
		quoted := bytes.NewBufferString("")
		quoted.Write(raw(t, string(got)))
		again, err := cfharness.Stringify(quoted.Bytes())
		if err != nil || !bytes.Equal(want, again) {
			t.Errorf("%s: %s, JavaScript has %s (%v)", stringifyCases[i].in, again, want, err)
		}
	}
}

// Stringify of a valid text is valid, equal in value and a fixed point.
func FuzzStringify(f *testing.F) {
	for _, tc := range stringifyCases {
		f.Add([]byte(tc.in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := cfharness.Stringify(data)
		if err != nil {
			if json.Valid(data) && bytes.Equal(data, bytes.ToValidUTF8(data, nil)) {
				t.Fatalf("Stringify(%q) = %v", data, err)
			}
			return
		}
		if again, err := cfharness.Stringify(out); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("Stringify(%q) = %q, and of that %q, %v", data, out, again, err)
		}
		if len(data) > 1<<16 {
			return
		}
		pretty, err := provenance.EncodePretty(json.RawMessage(out))
		if err != nil {
			t.Fatal(err)
		}
		if a, _ := cfharness.CompactDigest(data); a == "" {
			t.Fatal("no digest")
		} else if b, _ := cfharness.CompactDigest(pretty); a != b {
			t.Fatalf("digests of %q and %q differ", data, pretty)
		}
	})
}

func TestCompactDigest(t *testing.T) {
	a, errA := cfharness.CompactDigest([]byte("{\n  \"a\": 1\n}\n"))
	b, errB := cfharness.CompactDigest([]byte(`{"a":1}`))
	if a != b || a != digest.FromString(`{"a":1}`) || errA != nil || errB != nil {
		t.Errorf("CompactDigest = %v and %v (%v, %v)", a, b, errA, errB)
	}
}
