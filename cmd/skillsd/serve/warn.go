package serve

import (
	"context"
	"log/slog"
	"os"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// logStart says what is served, and what of the configuration is without effect.
func (o *Options) logStart(ctx context.Context, roots []skills.Root, pol *policy.Policy, workspace bool, logger *slog.Logger) {
	logger.InfoContext(ctx, "start", slog.String("transport", o.httpServer().transport()), slog.Int("roots", len(roots)))
	if len(roots) == 0 {
		logger.WarnContext(ctx, config.ErrNoRoots().Error(), slog.String("hint", config.HintRoots))
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
			logger.WarnContext(ctx, "no run of an allowed script is let through: "+Unreleased(entry), slog.String("script", entry.Spec()), slog.String("hint", HintUnreleased))
		}
	}
}

// HintUnreleased mends what unreleased tells.
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

// ReadableKeys are the keys that others than their owner can read, as flag and path. They may have to
// be, for a group, so that it is no error.
func (o *Options) ReadableKeys() [][2]string {
	var keys [][2]string
	for _, key := range [][2]string{{"--sign-key", o.Records.SignKey}, {"--tls-key", o.HTTP.Key}} {
		if info, err := os.Stat(key[1]); key[1] != "" && err == nil && config.OthersRead(info) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (o *Options) warnOfKeys(ctx context.Context, logger *slog.Logger) {
	for _, key := range o.ReadableKeys() {
		logger.WarnContext(ctx, "others can read the key of "+key[0], slog.String("hint", "chmod go-r "+report.ShellLine(key[1])))
	}
}
