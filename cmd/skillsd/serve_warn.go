package main

import (
	"context"
	"log/slog"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// logStart says what is served, and what of the configuration is without effect.
func (o *serveOptions) logStart(ctx context.Context, roots []skills.Root, pol *policy.Policy, workspace bool, logger *slog.Logger) {
	logger.InfoContext(ctx, "start", slog.String("transport", o.HTTP.transport()), slog.Int("roots", len(roots)))
	if len(roots) == 0 {
		logger.WarnContext(ctx, errNoRoots().Error(), slog.String("hint", hintRoots))
	}
	if len(o.AllowTools) > 0 != (len(o.AllowScripts) > 0) {
		logger.WarnContext(ctx, "run_skill_script is not offered, it takes both --allow-tool run_skill_script and --allow-skill-script")
	}
	o.warnOfKeys(ctx, logger)
	if !pol.Offers(mcpserver.ToolRun) {
		return
	}
	for _, entry := range pol.Entries() {
		if pol.Unreleased(entry, workspace) {
			logger.WarnContext(ctx, "no run of an allowed script is let through: "+unreleased(entry), slog.String("script", entry.Spec()), slog.String("hint", hintUnreleased))
		}
	}
}

// hintUnreleased mends what unreleased tells.
const hintUnreleased = "set release: observed, or release: opaque, on its entry or with --release"

// unreleased says why the output of an entry would have to be released.
func unreleased(entry policy.Entry) string {
	switch {
	case entry.Target == policy.TargetHost:
		return "it is on the host, and its output is not released"
	case len(entry.Network) > 0:
		return "it may reach hosts, and its output is not released"
	case len(entry.Env)+len(entry.Secrets) > 0:
		return "it gets variables or secrets, and its output is not released"
	}
	return "it sees the workspace, and its output is not released"
}
