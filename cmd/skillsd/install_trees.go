package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills/install"
)

// collectTime is how long the records of sessions are searched for trees that they name. A server that
// starts meanwhile waits.
const collectTime = 3 * time.Second

// collectTrees removes the stored trees that neither the lock file nor a session names. It costs space
// only when that cannot be told, or while a server runs: then all stay.
func (a *app) collectTrees(ctx context.Context, i *install.Installer) {
	state, errState := a.stateDir()
	records, errRecords := a.artifactDir()
	if errState != nil || errRecords != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	n, err := i.Collect(ctx, func(trees map[digest.Digest]bool) error {
		// Servers that were given no place for their records have them in the state directory.
		for _, dir := range []string{records, filepath.Join(state, "sessions")} {
			sessions, err := filestore.OpenReader(dir)
			if err == nil {
				err = errors.Join(sessions.DropNamed(within, trees), sessions.Close())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && n > 0 {
		fmt.Fprintf(a.err, "skillsd: note: %s that nothing needs any more left the store\n", report.Plural(n, "tree"))
	}
}
