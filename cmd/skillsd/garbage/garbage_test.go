package garbage

import (
	"runtime/debug"
	"testing"
)

// What is set for the start of a process ends with it: a limit that is kept would have a larger process collect
// garbage all the time.
func TestUsual(t *testing.T) {
	Usual()
	now := debug.SetGCPercent(percent)
	if limit := debug.SetMemoryLimit(-1); limit <= late || now != percent {
		t.Errorf("percent %d, limit %d; the environment has %d", now, limit, percent)
	}
}
