//go:build !linux

package bwrap

import "github.com/skillsd/skillsd/sandbox/native"

// newBuilder returns nil: bubblewrap exists on Linux only.
func newBuilder(string) native.Builder { return nil }
