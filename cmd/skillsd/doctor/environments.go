package doctor

import (
	"context"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// checkEnvironments reports for each environment whether it is made, and which scripts use it.
func (o *Doctor) checkEnvironments(ctx context.Context) (checks []Check) {
	const area = "environment"
	if len(o.Process.Cfg.Keys.Environments) == 0 {
		return nil
	}
	rows, err := (&environments.Command{Process: o.Process}).Rows(ctx)
	if err != nil {
		return []Check{fail(area, err.Error(),
			"take the lock from where it was committed, or run: skillsd env update")}
	}
	for _, r := range rows {
		what := report.Plural(len(r.Packages), "package")
		if r.Root != "" {
			what = "a root file system with " + environments.Programs(r.Programs)
		}
		fact := r.Name + ": " + r.State + ", " + what
		if r.Python != "" {
			fact += " for Python " + r.Python
		}
		if r.Base != "" {
			fact += " on " + r.Base
		}
		if r.Digest != "" {
			fact += ", " + r.Digest.String()[:19]
		}
		if len(r.UsedBy) > 0 {
			fact += ", for " + strings.Join(r.UsedBy, ", ")
		}
		switch {
		case r.State == environments.Made:
			checks = append(checks, ok(area, fact))
		// No script is affected, so this is not a failure.
		case len(r.UsedBy) == 0:
			checks = append(checks, warn(area, fact, "run: skillsd env sync"))
		default:
			checks = append(checks, fail(area, fact, "run: skillsd env sync"))
		}
	}
	return checks
}
