//go:build !linux

package sandboxtest

import "testing"

func testStagedGuards(t *testing.T, _ *fixture) { t.Skip("missing capability: linux") }
