package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
)

// The first half of a configuration may allow what the whole one does not: one that is written in place is not
// read before it has rested.
func TestSettled(t *testing.T) {
	for name, test := range map[string]struct {
		first   config.Change
		later   []config.Change // then unchanged
		settled bool
		after   time.Duration
	}{
		"renamed":         {config.Replaced, nil, true, settle},
		"written":         {config.Written, nil, true, settleWritten},
		"written twice":   {config.Written, []config.Change{config.Written}, true, 2 * settleWritten},
		"renamed, edited": {config.Replaced, []config.Change{config.Written}, true, settle + settleWritten},
		"written for long": {config.Written, []config.Change{config.Written, config.Written, config.Written,
			config.Written, config.Written, config.Written}, false, maxSettle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &reloader{changed: func() config.Change {
					if len(test.later) == 0 {
						return config.Unchanged
					}
					change := test.later[0]
					test.later = test.later[1:]
					return change
				}}
				begin := time.Now()
				if got := r.settled(test.first); got != test.settled || time.Since(begin) != test.after {
					t.Errorf("settled = %v after %v, want %v after %v", got, time.Since(begin), test.settled, test.after)
				}
			})
		})
	}
}
