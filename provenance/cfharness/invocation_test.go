package cfharness_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

func TestSummaries(t *testing.T) {
	if s := cfharness.SummarizeSequence([]string{"a\u2028<", "é\xff"}); s.Count != 2 || s.TotalBytes != 8 || s.Digest != digest.FromString("[\"a\u2028<\",\"é\uFFFD\"]") {
		t.Errorf("sequence = %+v", s)
	}
	if s := cfharness.SummarizeSequence(nil); s.Count != 0 || s.Digest != digest.FromString("[]") {
		t.Errorf("no sequence = %+v", s)
	}
	if s := cfharness.SummarizeText([]byte("secret")); s.Bytes != 6 || s.Digest != digest.FromString("secret") {
		t.Errorf("text = %+v", s)
	}
	env := cfharness.SummarizeEnv([]string{"TOKEN=secret=1", "A=secret", "EMPTY=", "NONE"})
	if text := string(raw(t, env)); text != `{"type":"cf-harness.env-summary","count":4,"names":["A","EMPTY","NONE","TOKEN"]}` {
		t.Errorf("env = %s", text)
	}
}

func TestParseInputLabels(t *testing.T) {
	const good = `{"version":1,"entries":[{"path":["args",0,"x"],"label":{"confidentiality":["c",{"any":1}],"integrity":[]}},{"path":["cwd"],"label":{}}]}`
	labels, err := cfharness.ParseInputLabels([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(raw(t, labels)); got != strings.Replace(good, `,"integrity":[]`, "", 1) {
		t.Errorf("labels = %s", got)
	}
	for _, text := range []string{
		``, `null`, `[]`, `{}`, `{"version":1}`, `{"version":2,"entries":[]}`, `{"version":1,"entries":null}`, `{"version":1,"entries":[],"x":1}`, `{"version":1,"version":1,"entries":[]}`,
		entry(`"path":[],"label":{}`), entry(`"path":["stdin"],"label":{}`), entry(`"path":["command"],"label":{}`), entry(`"path":[0],"label":{}`), entry(`"path":["args",-1],"label":{}`),
		entry(`"path":["args",1.5],"label":{}`), entry(`"path":["args",null],"label":{}`), entry(`"path":"args","label":{}`), entry(`"path":["args"]`), entry(`"label":{}`),
		entry(`"path":["args"],"label":[]`), entry(`"path":["args"],"label":{"trust":[]}`), entry(`"path":["args"],"label":{"confidentiality":"c"}`), entry(`"path":["args"],"label":{"integrity":null}`),
		entry(`"path":["args"` + strings.Repeat(`,0`, 40) + `],"label":{}`), `{"version":1,"entries":[` + strings.Repeat(`{"path":["env"],"label":{}},`, 300) + `{"path":["env"],"label":{}}]}`,
		entry(`"path":["args"],"label":{"integrity":["` + strings.Repeat("x", cfharness.MaxInputLabels) + `"]}`),
	} {
		if labels, err := cfharness.ParseInputLabels([]byte(text)); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("ParseInputLabels(%.80s) = %+v, %v", text, labels, err)
		}
	}
}

func entry(text string) string { return `{"version":1,"entries":[{` + text + `}]}` }

// Labels that are accepted are written as something that is accepted and says the same.
func FuzzParseInputLabels(f *testing.F) {
	f.Add([]byte(`{"version":1,"entries":[{"path":["args",0],"label":{"confidentiality":["c"]}}]}`))
	f.Add([]byte(`{"version":1,"entries":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		labels, err := cfharness.ParseInputLabels(data)
		if err != nil {
			return
		}
		for _, e := range labels.Entries {
			if first, ok := e.Path[0].(string); !ok || first == "stdin" {
				t.Fatalf("%q labels %v", data, e.Path)
			}
		}
		written, err := provenance.Encode(labels)
		if err != nil {
			t.Fatal(err)
		}
		again, err := cfharness.ParseInputLabels(written)
		if len(written) > cfharness.MaxInputLabels {
			return
		}
		if err != nil {
			t.Fatalf("%q is written %q: %v", data, written, err)
		}
		if second, err := json.Marshal(again); err != nil || len(again.Entries) != len(labels.Entries) {
			t.Fatalf("%q, then %q, %v", written, second, err)
		}
	})
}
