package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store"
)

// sessionReplayOptions are the flags of session replay.
type sessionReplayOptions struct {
	app  *app
	JSON bool
}

func newSessionReplayCmd(a *app) *cobra.Command {
	opts := &sessionReplayOptions{app: a}
	cmd := &cobra.Command{
		Use:   "replay [SESSION]",
		Short: "Print in order what the model was shown",
		Long: "Print in order what the model was shown: instructions, files and parts of files, released\n" +
			"output of scripts and refusals. Every text is found by the digest that the record has of it and\n" +
			"printed behind \"| \"; if it can no longer be found, the reason is printed instead and the exit\n" +
			"code is 3. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON, one object a line, with the exact bytes")
	return cmd
}

func (o *sessionReplayOptions) run(ctx context.Context, args []string) error {
	return o.app.onSession(ctx, args, o.replay)
}

func (o *sessionReplayOptions) replay(ctx context.Context, records provenance.Reader, id string) error {
	tree, closeTrees := o.app.storedTrees()
	defer closeTrees()
	out := bufio.NewWriter(o.app.out)
	missing := 0
	for shown, err := range report.Replay(ctx, records, id, tree) {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if shown.Missing != "" {
			missing++
		}
		write := shown.WriteText
		if o.JSON {
			write = shown.WriteJSON
		}
		if err := write(out); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if missing > 0 {
		return &exitError{
			Code: exitProblems,
			Err:  fmt.Errorf("%d of the texts shown can no longer be found by their digest", missing),
			Hint: "`skillsd session verify` says what differs from the record",
		}
	}
	return nil
}

// storedTrees returns a function that opens a stored tree. It finds no tree if the store cannot be read.
func (a *app) storedTrees() (open func(context.Context, digest.Digest) (report.TreeFile, error), end func()) {
	none := func(context.Context, digest.Digest) (report.TreeFile, error) {
		return nil, provenance.ErrNotFound
	}
	state, err := a.stateDir()
	if err != nil {
		return none, func() {}
	}
	// Opening a store creates it, which reading a session must not.
	if _, err := os.Stat(filepath.Join(state, "trees")); err != nil {
		return none, func() {}
	}
	stored, err := store.Open(state)
	if err != nil {
		return none, func() {}
	}
	open = func(ctx context.Context, d digest.Digest) (report.TreeFile, error) {
		tree, err := stored.Tree(ctx, d)
		if err != nil {
			return nil, err
		}
		return tree.ReadFile, nil
	}
	return open, func() { stored.Close() }
}
