package frontmatter_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// The fields that authors write for other agents, in the forms in which they write them.
func TestAuthorsFields(t *testing.T) {
	for _, test := range []struct {
		json             string
		hint             string
		triggers         []string
		deps, notApplied []string
	}{
		{`{}`, "", nil, nil, nil},
		{`{"argument-hint":"[file] <out>"}`, "[file] <out>", nil, nil, nil},
		{`{"argument-hint":["pr-number","by"]}`, "[pr-number, by]", nil, nil, nil},
		{`{"argument-hint":null,"model":null}`, "", nil, nil, nil},
		{`{"argument-hint":{"a":["b"],"c":3}}`, "b, 3", nil, nil, nil},
		{`{"triggers":"a b"}`, "", []string{"a b"}, nil, nil},
		{`{"triggers":["x",{"k":"y","l":{"m":["z"]}},true],"other":["w"]}`, "", []string{"x", "y", "z"}, nil, nil},
		{`{"dependencies":"python>=3.8, pandas>=1.5,<2, openpyxl"}`, "", nil, []string{"pandas>=1.5,<2", "openpyxl"}, nil},
		{`{"dependencies":["node>=18","requests [socks]>=2"]}`, "", nil, []string{"requests [socks]>=2"}, nil},
		{`{"dependencies":{"python":["pypdf"]}}`, "", nil, []string{"pypdf"}, nil},
		{`{"dependencies":"<2"}`, "", nil, []string{"<2"}, nil},
		{`{"model":"sonnet","context":"fork","hooks":{"x":[]}}`, "", nil, nil, []string{"context fork", "hooks", "model sonnet"}},
	} {
		f := frontmatter.Fields{JSON: []byte(test.json)}
		got := []any{f.ArgumentHint(), f.Texts("triggers"), f.Dependencies(), f.NotApplied()}
		if want := []any{test.hint, test.triggers, test.deps, test.notApplied}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", test.json, got, want)
		}
	}
	many := frontmatter.Fields{JSON: []byte(`{"triggers":[` + strings.Repeat(`"a",`, 5000) + `"b"]}`)}
	if n := len(many.Texts("triggers")); n > 1000 {
		t.Errorf("%d texts", n)
	}
}

func FuzzTexts(f *testing.F) {
	for _, seed := range []string{`["a",{"b":"c"}]`, `{"a":[{}],"b":1}`, `[[`, `"a, b>=1, <2"`, `null`, `[1.5,true,null,""]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) {
			return // the parser of the frontmatter writes valid JSON
		}
		for _, key := range []string{"triggers", "dependencies", "argument-hint", "model"} {
			fields := frontmatter.Fields{JSON: []byte(`{"name":"x","` + key + `":` + string(value) + `}`)}
			fields.Texts(key)
			_, _, _ = fields.ArgumentHint(), fields.Dependencies(), fields.NotApplied()
		}
	})
}
