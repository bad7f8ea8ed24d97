package detect

import (
	"io"
	"strings"
	"testing"
)

// TestLimited keeps what an interpreter prints within its limit however it is copied.
func TestLimited(t *testing.T) {
	out := &limited{left: 10}
	if _, err := io.Copy(out, io.LimitReader(strings.NewReader(strings.Repeat("x", 100)), 100)); err == nil || out.buf.Len() > 10 {
		t.Errorf("kept %d bytes, %v", out.buf.Len(), err)
	}
}
