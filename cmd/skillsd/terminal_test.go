package main

import (
	"bytes"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	quiet := newProgress(&out, "skills", 2)
	quiet.step()
	quiet.clear()
	if out.Len() > 0 {
		t.Errorf("without a terminal progress wrote %q", out.String())
	}
	shown := &progress{statusLine: &statusLine{w: &out}, what: "skills", total: 2}
	shown.step()
	shown.shown = time.Now().Add(time.Hour)
	shown.step()
	shown.clear()
	shown.clear()
	if want := "\rskills: 1 of 2\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("progress wrote %q, want %q", out.String(), want)
	}
}
