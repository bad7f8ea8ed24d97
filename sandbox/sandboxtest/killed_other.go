//go:build !linux

package sandboxtest

import (
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// Killed skips the test: it needs Linux.
func Killed(t *testing.T, _ func(t *testing.T) sandbox.Runner, _ int) { Need(t, "linux") }

// EndedWhileStarting skips the test: it needs Linux.
func EndedWhileStarting(t *testing.T, _ sandbox.Runner, _ int, _ time.Duration) { Need(t, "linux") }
