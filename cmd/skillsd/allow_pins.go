package main

import (
	"context"
	"log/slog"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// warnOfPins says at start which allowed scripts do not run because they are no longer what was
// allowed, and what to do.
func (o *serveOptions) warnOfPins(ctx context.Context, snapshot *skills.Snapshot, logger *slog.Logger) {
	list, err := o.allowlist()
	if err != nil {
		return // the start has refused it
	}
	// Several pins of one script allow any of these contents.
	holds := map[string]bool{}
	var changed []policy.Entry
	for _, entry := range list.Entries() {
		if ctx.Err() != nil {
			return
		}
		if entry.Pin == "" {
			continue
		}
		switch allowState(ctx, snapshot, entry).State {
		case stateAllowed:
			holds[scriptName(entry)] = true
		case stateChanged:
			changed = append(changed, entry)
		}
	}
	for _, entry := range changed {
		if name := scriptName(entry); !holds[name] {
			holds[name] = true // said once
			logger.WarnContext(ctx, "an allowed script changed and does not run until it is allowed again",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), slog.String("remedy", "skillsd allow "+name))
		}
	}
}
