package session

import (
	"testing"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// TestWaitedTooLong names in the error of a run without a slot how long it waited, and how many come before it.
func TestWaitedTooLong(t *testing.T) {
	err := waitedTooLong(&admit.LateError{Before: 3})
	if want := "no run slot was free for 2 minutes; runs that come before this one: 3"; err.Message != want {
		t.Errorf("%s, want %s", err.Message, want)
	}
}
