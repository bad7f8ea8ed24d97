package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// markInstalled adds the origins of installed skills to rows, with warnings about them.
func (a *app) markInstalled(
	ctx context.Context, rows []report.SkillRow, snapshot *skills.Snapshot,
) (*install.Lock, error) {
	state, err := a.StateDir()
	if err != nil {
		// Without a state directory nothing is installed.
		return &install.Lock{}, nil
	}
	lock, err := a.readLock()
	if err != nil {
		return nil, installing.Failure(err)
	}
	installing.Mark(ctx, rows, snapshot, lock, state)
	return lock, nil
}

// offOr returns the error for a missing skill: that it is installed but not served, or other.
func (a *app) offOr(name string, other error) error {
	state, errState := a.StateDir()
	lock, err := a.readLock()
	if err != nil || errState != nil {
		return other
	}
	if e := lock.Named(name); e != nil && (!e.Served() || lock.In(state).Missing(e.Name)) {
		state, reason := installing.NotServed(e)
		return exit.Errorf(exit.Failure, report.Printable(reason),
			"%s is installed and %s (from %s)", e.Name, report.StateWord(state),
			report.Printable(report.OriginText(e)))
	}
	return other
}

// collectTime is the maximum time of the search for trees in the records of sessions. Servers that start
// meanwhile wait.
const collectTime = 3 * time.Second

// collectTrees removes the stored trees that neither the lock file nor a session names. While a server runs,
// or if the records cannot be read, all trees stay, which only costs space. It returns how many were removed.
func (a *app) collectTrees(ctx context.Context, i *install.Installer) (removed int) {
	state, errState := a.StateDir()
	records, errRecords := a.ArtifactDir()
	if errState != nil || errRecords != nil {
		return 0
	}
	within, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	n, err := i.Collect(ctx, func(trees map[digest.Digest]bool) error {
		// Servers without an artifact root have their records in the state directory.
		for _, dir := range []string{records, filepath.Join(state, "sessions")} {
			sessions, err := filestore.OpenReader(dir)
			if err != nil {
				return err
			}
			err = errors.Join(sessions.DropNamed(within, trees), sessions.Close())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0
	}
	return n
}
