package jetstream

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// Whatever a message holds, it is refused unless it is lines up to the event that its state names.
func FuzzMessage(f *testing.F) {
	var tally provenance.Tally
	var lines []byte
	for _, detail := range []string{"a", "b"} {
		line, err := tally.Extend(&provenance.Event{Kind: provenance.KindScriptRequested, Session: "s",
			Principal: "p", Detail: detail}, time.Now)
		if err != nil {
			f.Fatal(err)
		}
		lines = append(lines, line...)
	}
	whole, err := json.Marshal(state{Session: tally.Session})
	if err != nil {
		f.Fatal(err)
	}
	read := func(header string, data []byte) (*provenance.Scanner, error) {
		m := &jetstream.RawStreamMsg{Data: data, Header: nats.Header{headerState: {header}}}
		l := &lineReader{stop: func() {},
			next: func() (*jetstream.RawStreamMsg, error, bool) { return nil, nil, false }}
		sc := provenance.NewScanner(l)
		l.tally = &sc.Tally
		err := l.take(m)
		for _, failed := range sc.All() {
			err = failed
		}
		return sc, err
	}
	if _, err := read(string(whole), lines); err != nil {
		f.Fatal(err)
	}
	f.Add(string(whole), lines)
	f.Add(string(whole), lines[:len(lines)-1])
	f.Add(string(whole), append(bytes.Clone(lines), '{'))
	f.Add(strings.Replace(string(whole), `"seq":2`, `"seq":1`, 1), lines)
	f.Add("{}", []byte(nil))
	f.Fuzz(func(t *testing.T, header string, data []byte) {
		sc, err := read(header, data)
		var s state
		if err == nil && (sc.Offset != int64(len(data)) || json.Unmarshal([]byte(header), &s) != nil ||
			s.Session.Head != sc.Tally.Session.Head) {
			t.Errorf("%d of %d bytes are read, up to %+v, of %s", sc.Offset, len(data), sc.Tally.Session.Head, header)
		}
	})
}
