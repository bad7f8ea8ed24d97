//go:build !linux

package main

import "github.com/skillsd/skillsd/cmd/skillsd/serve"

// checkWorkspace has nothing to say where no script runs.
func checkWorkspace(*serve.Plan) []check { return nil }
