package jetstream

import (
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Whatever the header of a message holds, what is made of it can be continued.
func FuzzCheckpoint(f *testing.F) {
	pack := func(data string) string {
		var text strings.Builder
		to := base64.NewEncoder(base64.StdEncoding, &text)
		packed := gzip.NewWriter(to)
		packed.Write([]byte(data)) // into memory
		packed.Close()
		to.Close()
		return text.String()
	}
	whole, err := provenance.Encode(checkpoint{Form: cfharness.FoldForm, Fold: &cfharness.Fold{}})
	if err != nil {
		f.Fatal(err)
	}
	if unpack(pack(string(whole))) == nil {
		f.Fatal("a whole checkpoint is refused")
	}
	for _, data := range []string{string(whole),
		strings.Replace(string(whole), `"pending":null`, `"pending":["x"]`, 1),
		strings.Replace(string(whole), `"ids":null`, `"ids":["1+a:","=b","-1+","99999999999999999999+c"]`, 1),
		strings.Replace(string(whole), `"skills":null`, `"skills":["a"]`, 1)} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		unpack(data)
		c := unpack(pack(data))
		if c == nil {
			return
		}
		for _, e := range c.Fold.Recollection().Unfinished {
			if e == nil {
				t.Error("a run without its request")
			}
		}
		for _, kind := range []provenance.Kind{provenance.KindScriptRequested, provenance.KindSkillActivated} {
			// An error means that all events are read.
			_ = c.Fold.Add(&provenance.Event{Kind: kind, Row: []byte(`{"outputId":"s:run:1"}`)})
		}
		c.Fold.Recollection()
	})
}
