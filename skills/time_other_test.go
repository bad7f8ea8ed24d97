//go:build !unix

package skills_test

import (
	"testing"
	"time"
)

var began = time.Now()

// spent is the time of the clock, where the system does not measure that of a process.
func spent(*testing.T) time.Duration { return time.Since(began) }
