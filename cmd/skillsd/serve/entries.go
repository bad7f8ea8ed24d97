package serve

import (
	"context"
	"log/slog"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// HintRuntime mends a script without a runtime.
const HintRuntime = "begin the script with a line such as #!/bin/sh or #!/usr/bin/env python3"

// AllowRow is an entry of the allowlist as allow --list prints it.
type AllowRow struct {
	Script string `json:"script"`
	State  string `json:"state"` // allowed, unpinned, changed, missing, unsupported or unreleased
	Detail string `json:"detail,omitempty"`
	// Changed says what is no longer what was allowed.
	Changed policy.Change `json:"changed,omitempty"`

	Hint    string         `json:"-"` // what mends it
	Runtime script.Runtime `json:"-"` // of a script that is there
}

// The states of entries that a program looks for.
const (
	StateAllowed    = "allowed"
	StateUnpinned   = "unpinned"
	stateChanged    = "changed"
	StateUnreleased = "unreleased" // no run of it is let through
)

// ScriptName is how an entry names its script.
func ScriptName(entry policy.Entry) string { return entry.Skill + ":" + entry.Path }

// ShellName is how a command line names the script of an entry: its author chose that name.
func ShellName(entry policy.Entry) string { return report.ShellLine(ScriptName(entry)) }

// AllowState says whether an entry still holds, and if not why and what to do.
func AllowState(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) AllowRow {
	name := ShellName(entry)
	row := AllowRow{Script: ScriptName(entry), State: "missing",
		Hint: "to take it back: skillsd disallow " + name}
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		row.Detail = "no skill of that path is served"
		for _, withheld := range snapshot.Withheld {
			if withheld.Path == entry.Skill {
				row.Detail += ": " + strings.Join(snapshot.Status(withheld).Reasons, ", ")
				return row
			}
		}
		if suggestion := snapshot.NotFound(entry.Skill).Suggestion; suggestion != "" {
			row.Hint = "did you mean " + suggestion + "? " + row.Hint
		}
		return row
	}
	index, err := sk.Index(ctx)
	if err != nil {
		row.Detail, row.Hint = "the files of the skill cannot be read: "+err.Error(),
			skills.CodeUnreadableDir.Fix()
		return row
	}
	r := index.Resource(entry.Path)
	if r == nil || r.Script == nil {
		row.Detail = "the skill has no such script"
		return row
	}
	row.Runtime = r.Script.Runtime
	row.Changed = entry.Changed(r.Digest, index.TreeDigest)
	switch {
	case row.Runtime == "":
		row.State, row.Detail, row.Hint, row.Changed = "unsupported", r.Script.Problem, HintRuntime, ""
	case row.Changed != policy.Unchanged:
		row.State, row.Hint = stateChanged, "read that and `skillsd allow "+name+"`"
		row.Detail = string(row.Changed) + " changed since it was allowed"
	case entry.Pin == "":
		row.State, row.Detail, row.Hint = StateUnpinned, Looseness(entry), "`skillsd allow "+name+"` pins it"
	default:
		row.State, row.Detail, row.Hint = StateAllowed, Looseness(entry), ""
		if row.Detail != "" {
			row.Hint = "`skillsd allow " + name + "` pins them"
		}
	}
	return row
}

// Looseness returns what may change while the script of an entry still runs; empty if nothing may.
func Looseness(entry policy.Entry) string {
	switch {
	case entry.Pin == "":
		return "it is not pinned: what it is when the server starts runs"
	case entry.Tree == "":
		return "its bytes are pinned, the other files of its skill are not"
	}
	return ""
}

// pinWarner warns of allowed scripts that do not run because they are no longer what was allowed: at the
// start,
// and when a skill changes while the server runs.
type pinWarner struct {
	serve  *Options
	logger *slog.Logger
	warned map[string]bool // scripts that were changed at the last comparison
}

// warn compares the entries with a snapshot. It is for one goroutine at a time.
func (w *pinWarner) warn(ctx context.Context, snapshot *skills.Snapshot) {
	list, err := w.serve.Allowlist()
	if err != nil {
		return // the start has refused it
	}
	// Several pins of one script allow any of these contents.
	holds, changed := map[string]bool{}, map[string]bool{}
	for _, entry := range list.Entries() {
		name := ScriptName(entry)
		holds[name] = holds[name] || AllowState(ctx, snapshot, entry).State == StateAllowed
	}
	for _, entry := range list.Entries() {
		row := AllowState(ctx, snapshot, entry)
		if row.State != stateChanged || holds[row.Script] || changed[row.Script] {
			continue
		}
		changed[row.Script] = true
		if !w.warned[row.Script] {
			w.logger.WarnContext(ctx, "an allowed script changed and does not run until it is allowed again",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path),
				slog.String("changed", string(row.Changed)),
				slog.String("remedy", "skillsd allow "+ShellName(entry)))
		}
	}
	w.warned = changed
}
