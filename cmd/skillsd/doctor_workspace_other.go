//go:build !linux

package main

// checkWorkspace has nothing to say where no script runs.
func (o *doctorOptions) checkWorkspace(*serveOptions) []check { return nil }
