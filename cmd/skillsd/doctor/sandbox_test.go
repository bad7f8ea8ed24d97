package doctor

import "testing"

// A crash handler that no limit keeps from the memory of scripts is told of; others are.
func TestCoreChecks(t *testing.T) {
	for pattern, warned := range map[string]bool{
		"": false, "core\n": false, "|/usr/lib/systemd/systemd-coredump %P\n": false,
		"@/run/crash.sock\n": true, "@@/run/crash.sock\n": true,
	} {
		checks := coreChecks(pattern)
		if (len(checks) > 0) != warned || warned && (checks[0].Verdict != Warn || checks[0].Hint == "") {
			t.Errorf("coreChecks(%q) = %+v, want a warning: %t", pattern, checks, warned)
		}
	}
}
