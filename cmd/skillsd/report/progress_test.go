package report

import (
	"bytes"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	quiet := NewProgress(&out, "skills", 2)
	quiet.Step()
	quiet.Clear()
	if out.Len() > 0 {
		t.Errorf("without a terminal progress wrote %q", out.String())
	}
	shown := &progress{StatusLine: &StatusLine{w: &out}, what: "skills", total: 2}
	shown.Step()
	shown.shown = time.Now().Add(time.Hour)
	shown.Step()
	shown.Clear()
	shown.Clear()
	if want := "\rskills: 1 of 2\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("progress wrote %q, want %q", out.String(), want)
	}
}
