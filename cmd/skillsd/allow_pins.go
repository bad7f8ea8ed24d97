package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// pinWarner says which allowed scripts do not run because they are no longer what was allowed, and what
// to do: at start, and when a skill changes while the server runs.
type pinWarner struct {
	serve  *serveOptions
	logger *slog.Logger
	said   map[string]bool // of scripts that do not hold, so that each change is told once
}

// warn compares the entries with a snapshot. It is for one goroutine at a time.
func (w *pinWarner) warn(ctx context.Context, snapshot *skills.Snapshot) {
	list, err := w.serve.allowlist()
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
	told := w.said
	w.said = map[string]bool{}
	for _, entry := range changed {
		name := scriptName(entry)
		if holds[name] || w.said[name] {
			continue
		}
		if w.said[name] = true; !told[name] {
			w.logger.WarnContext(ctx, "an allowed script changed and does not run until it is allowed again",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), slog.String("remedy", "skillsd allow "+name))
		}
	}
}

// notePins says which entries of the configuration no longer fit skills that a command changed. after
// returns what is installed under a name then, or nil.
func (a *app) notePins(names []string, after func(name string) *install.Entry) {
	type state struct{ gone, changed, holds bool }
	var order []string
	found := map[string]*state{}
	for _, key := range a.cfg.Keys.Allow {
		entry, err := parseScript(key.Script)
		if err != nil || !slices.Contains(names, entry.Skill) {
			continue
		}
		name := scriptName(entry)
		if found[name] == nil {
			found[name] = &state{}
			order = append(order, name)
		}
		content, there := contentOf(after(entry.Skill), entry.Path)
		is := found[name]
		is.gone = is.gone || !there
		is.changed = is.changed || entry.Pin != "" && entry.Pin != content
		is.holds = is.holds || entry.Pin == "" || entry.Pin == content
	}
	for _, name := range order {
		switch is := found[name]; {
		case is.gone:
			fmt.Fprintf(a.err, "skillsd: note: the configuration still allows %s, which is gone; take that back: skillsd disallow %s\n", name, name)
		case is.changed && !is.holds:
			fmt.Fprintf(a.err, "skillsd: note: %s is not what was allowed and does not run; read it and allow it again: skillsd allow %s\n", name, name)
		}
	}
}

// contentOf is the digest of a file of an installed skill.
func contentOf(e *install.Entry, path string) (content digest.Digest, there bool) {
	if e == nil {
		return "", false
	}
	for _, f := range e.Files {
		if f.Path == path {
			return f.Digest, true
		}
	}
	return "", false
}
