//go:build !linux

package doctor

import "github.com/skillsd/skillsd/cmd/skillsd/serve"

// checkWorkspace returns nil: scripts run on Linux only.
func checkWorkspace(*serve.Plan) []Check { return nil }
