package serve

import (
	"context"
	"errors"
	"log/slog"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills/policy"
)

// logStart logs what is served, and which parts of the configuration have no effect.
func (p *Plan) logStart(ctx context.Context, logger *slog.Logger) {
	o := p.options
	logger.InfoContext(ctx, "start", slog.String("transport", o.httpServer().transport()),
		slog.Int("roots", len(p.roots)))
	if len(p.roots) == 0 {
		logger.WarnContext(ctx, config.ErrNoRoots().Error(), slog.String("hint", config.HintRoots))
	}
	if len(o.AllowTools) > 0 != (len(o.AllowScripts) > 0) {
		logger.WarnContext(ctx, "run_skill_script is not offered, it takes both --allow-tool "+
			"run_skill_script and "+
			"--allow-skill-script")
	}
	for _, problem := range p.Problems {
		var hint string
		if mends, ok := errors.AsType[*exit.Error](problem.Err); ok {
			hint = mends.Hint
		}
		logger.WarnContext(ctx, problem.Err.Error(), slog.String("hint", hint))
	}
	if !p.Policy.Offers(mcpserver.ToolRun) {
		return
	}
	for _, entry := range p.Policy.Entries() {
		if p.Policy.Unreleased(entry, p.Workspace.Dir != nil) {
			logger.WarnContext(ctx, "no run of an allowed script is let through: "+Unreleased(entry),
				slog.String("script", entry.Spec()), slog.String("hint", HintUnreleased))
		}
	}
}

// HintUnreleased is the hint for the reason that Unreleased returns.
const HintUnreleased = "set release: observed, or release: opaque, on its entry or with --release"

// Unreleased says why the output of an entry would have to be released.
func Unreleased(entry policy.Entry) string {
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
