//go:build !linux

// Package pidone is process 1 of a native sandbox, which exists on Linux only.
package pidone

// Main does nothing: this system has no helpers.
func Main() {}
