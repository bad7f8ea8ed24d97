//go:build !linux

// Package pidone is process 1 of a native sandbox, which exists on Linux only.
package pidone

// Main does nothing: there are no helpers on this system.
func Main() {}
