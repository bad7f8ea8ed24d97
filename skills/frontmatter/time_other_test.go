//go:build !linux

package frontmatter_test

import (
	"testing"
	"time"
)

var began = time.Now()

// spent is the time of the clock, where the system does not measure that of a thread.
func spent(*testing.T) time.Duration { return time.Since(began) }
