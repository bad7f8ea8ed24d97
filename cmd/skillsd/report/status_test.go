package report

import (
	"bytes"
	"testing"
	"time"
)

func TestStatusLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	quiet := NewStatusLine(&out)
	quiet.Count("skills", 1, 2)
	quiet.Set("skills")
	quiet.Clear()
	if out.Len() > 0 {
		t.Errorf("without a terminal it wrote %q", out.String())
	}
	shown := &StatusLine{w: &out}
	shown.Count("skills", 1, 2)
	shown.counted = time.Now().Add(time.Hour)
	shown.Count("skills", 2, 2)
	shown.Count("end", 0, 0)
	shown.Clear()
	shown.Clear()
	if want := "\rskills: 1 of 2\x1b[K\rend\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("it wrote %q, want %q", out.String(), want)
	}
}
