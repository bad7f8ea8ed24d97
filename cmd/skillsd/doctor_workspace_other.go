//go:build !linux

package main

import "github.com/skillsd/skillsd/cmd/skillsd/serve"

// checkWorkspace has nothing to say where no script runs.
func (o *doctorOptions) checkWorkspace(*serve.Options) []check { return nil }
