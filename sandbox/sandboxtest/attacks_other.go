//go:build !linux

package sandboxtest

import "testing"

func testAttacks(t *testing.T, _ *fixture)       { Need(t, "linux") }
func testUsers(t *testing.T, _ *fixture)         { Need(t, "linux") }
func testLeavesNothing(t *testing.T, _ *fixture) { Need(t, "linux") }
