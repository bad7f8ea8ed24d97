package serve

import (
	"context"
	"log/slog"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// pinWarner says which allowed scripts do not run because they are no longer what was allowed, and what
// to do: at start, and when a skill changes while the server runs.
type pinWarner struct {
	serve  *Options
	logger *slog.Logger
	said   map[string]bool // of scripts that do not hold, so that each change is told once
}

// warn compares the entries with a snapshot. It is for one goroutine at a time.
func (w *pinWarner) warn(ctx context.Context, snapshot *skills.Snapshot) {
	list, err := w.serve.Allowlist()
	if err != nil {
		return // the start has refused it
	}
	// Several pins of one script allow any of these contents.
	holds := map[string]bool{}
	type change struct {
		entry policy.Entry
		what  policy.Change
	}
	var changed []change
	for _, entry := range list.Entries() {
		if ctx.Err() != nil {
			return
		}
		if entry.Pin == "" {
			continue
		}
		switch row := AllowState(ctx, snapshot, entry); row.State {
		case StateAllowed:
			holds[ScriptName(entry)] = true
		case stateChanged:
			changed = append(changed, change{entry, row.Changed})
		}
	}
	told := w.said
	w.said = map[string]bool{}
	for _, c := range changed {
		name := ScriptName(c.entry)
		if holds[name] || w.said[name] {
			continue
		}
		if w.said[name] = true; !told[name] {
			w.logger.WarnContext(ctx, "an allowed script changed and does not run until it is allowed again",
				slog.String("skill", c.entry.Skill), slog.String("path", c.entry.Path),
				slog.String("changed", string(c.what)),
				slog.String("remedy", "skillsd allow "+ShellName(c.entry)))
		}
	}
}
