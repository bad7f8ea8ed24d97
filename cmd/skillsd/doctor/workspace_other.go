//go:build !linux

package doctor

import "github.com/skillsd/skillsd/cmd/skillsd/serve"

// checkWorkspace has nothing to say where no script runs.
func checkWorkspace(*serve.Plan) []Check { return nil }
