package garbage

import (
	"math"
	"runtime/debug"
	"testing"
)

// A process in a control group collects garbage before the group is full, unless the environment says when.
func TestWithin(t *testing.T) {
	before := limit
	defer func() {
		limit = before
		debug.SetMemoryLimit(before)
	}()
	for _, tt := range []struct{ set, most, want int64 }{
		{math.MaxInt64, 0, 0}, {math.MaxInt64, 512 << 20, 384 << 20}, {1 << 30, 512 << 20, 1 << 30}, {1 << 30, 0, 1 << 30},
	} {
		limit = tt.set
		if Within(tt.most) != tt.want || tt.want > 0 && limit != tt.want {
			t.Errorf("with GOMEMLIMIT %d within %d: %d, want %d", tt.set, tt.most, limit, tt.want)
		}
	}
}

// What is set for the start of a process ends with it: a limit that is kept would have a larger process collect
// garbage all the time.
func TestUsual(t *testing.T) {
	Usual()
	now := debug.SetGCPercent(percent)
	if limit := debug.SetMemoryLimit(-1); limit <= late || now != percent {
		t.Errorf("percent %d, limit %d; the environment has %d", now, limit, percent)
	}
}
