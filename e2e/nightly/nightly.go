// Package nightly leaves out, unless `make nightly` sets SKILLSD_NIGHTLY, what takes long in tests.
package nightly

import (
	"os"
	"testing"
)

var full = os.Getenv("SKILLSD_NIGHTLY") != ""

// Only skips a test that takes long, and whose parts other tests check for every change.
func Only(tb testing.TB) {
	tb.Helper()
	if !full {
		tb.Skip("takes long: `make nightly` runs it")
	}
}

// Size returns the size of a test for every change, or at night the full size.
func Size(every, night int) int {
	if full {
		return night
	}
	return every
}
