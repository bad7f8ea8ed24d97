package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/provenance"
)

// sessionGCOptions are the flags of session gc.
type sessionGCOptions struct {
	app       *app
	OlderThan string
	Keep      int
	DryRun    bool
}

func newSessionGCCmd(a *app) *cobra.Command {
	opts := &sessionGCOptions{app: a}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete old sessions",
		Long: "Delete the sessions last written longer ago than --older-than, but never one that a server has\n" +
			"open, nor the --keep that were written last. A session is deleted as a whole: record, views, outputs\n" +
			"and texts that only it was shown. While no server runs, stored skill trees that nothing names any\n" +
			"more are deleted too. Parents and children do not depend on each other; a child whose parent is\n" +
			"deleted still names it.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	cmd.Flags().StringVar(&opts.OlderThan, "older-than", "", "`AGE`, such as 30d or 12h; required")
	cmd.Flags().IntVar(&opts.Keep, "keep", 0, "keep this many of the sessions written last, however old")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print what would be deleted and delete nothing")
	return cmd
}

func (o *sessionGCOptions) run(ctx context.Context) error {
	age, err := parseAge(o.OlderThan)
	if err != nil {
		return usageError("give an age such as 30d or 12h", "--older-than %q is not an age", o.OlderThan)
	}
	if o.Keep < 0 {
		return usageError("give 0 or more", "--keep %d is negative", o.Keep)
	}
	records, _, err := o.app.records()
	if err != nil {
		return err
	}
	defer records.Close()
	before := time.Now().Add(-age)
	list, err := records.Collect(ctx, provenance.CollectOptions{Before: before, Keep: o.Keep, DryRun: o.DryRun})
	did, kept := "deleted", 0
	if o.DryRun {
		did = "would delete"
	}
	var bytes int64
	for _, c := range list {
		switch {
		case errors.Is(c.Err, provenance.ErrHeld):
			kept++
			fmt.Fprintf(o.app.out, "kept %s: %v\n", c.ID, c.Err)
		case c.Err != nil:
			kept++
			err = errors.Join(err, fmt.Errorf("session %s: %w", c.ID, c.Err))
		default:
			bytes += c.Bytes
			at := c.Written.Local().Format(time.DateTime)
			fmt.Fprintf(o.app.out, "%s %s: %d bytes, last written %s\n", did, c.ID, c.Bytes, at)
		}
	}
	fmt.Fprintf(o.app.out, "%s %d sessions, %d bytes\n", did, len(list)-kept, bytes)
	if err == nil && !o.DryRun {
		o.collectTrees(ctx)
	}
	return err
}

// collectTrees removes the stored trees that only the deleted sessions named.
func (o *sessionGCOptions) collectTrees(ctx context.Context) {
	if state, err := o.app.stateDir(); err != nil || !existing(state) {
		return
	}
	installed, err := o.app.installation(ctx, nil)
	if err != nil {
		return // the sessions are deleted; the trees only cost space
	}
	o.app.collectTrees(ctx, installed.Installer)
	_ = installed.Close()
}

// parseAge reads a duration, or a number of days such as 30d.
func parseAge(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	age, err := time.ParseDuration(s)
	if err == nil && age < 0 {
		err = errors.New("negative")
	}
	return age, err
}
