//go:build !linux

package runsc

import "github.com/skillsd/skillsd/sandbox/native"

// newBuilder returns nil: gVisor exists on Linux only.
func newBuilder(string) native.Builder { return nil }
