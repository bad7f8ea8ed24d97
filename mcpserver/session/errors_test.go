package session

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

// Want of descriptors passes: what was not isolated for it is no missing sandbox.
func TestSandboxErrorOfDescriptors(t *testing.T) {
	for cause, want := range map[error]Code{
		&fs.PathError{Op: "pipe", Err: syscall.EMFILE}: CodeServerBusy,
		syscall.ENFILE:       CodeServerBusy,
		syscall.EPERM:        CodeSandboxUnavailable,
		errors.New("broken"): CodeSandboxUnavailable,
	} {
		err := sandboxError(&sandbox.UnavailableError{Backend: "native", Reason: "no pipes could be made", Err: cause})
		if err.Code != want {
			t.Errorf("%v: %s, want %s", cause, err.Code, want)
		}
	}
}
