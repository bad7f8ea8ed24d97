package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store"
)

// sessionShowOptions are the flags of session show.
type sessionShowOptions struct {
	app    *app
	Output string
	JSON   bool
}

func newSessionShowCmd(a *app) *cobra.Command {
	opts := &sessionShowOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show [SESSION]",
		Short: "Show what a session was shown, ran and was refused",
		Long: "Show what a session was shown, ran and was refused, an event a line. Without SESSION it is\n" +
			"the newest; the beginning of an id is enough.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	cmd.Flags().StringVar(&opts.Output, "output", "",
		"print a kept stream by its output or handle `ID`, [RUN:]TOOL:N[:stdout|:stderr];"+
			" control characters are left out on a terminal only")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print the events as JSON, one a line")
	return cmd
}

func (o *sessionShowOptions) run(ctx context.Context, args []string) error {
	return o.app.onSession(ctx, args, o.show)
}

func (o *sessionShowOptions) show(ctx context.Context, records provenance.Reader, id string) error {
	if o.Output != "" {
		return o.printOutput(ctx, records, id)
	}
	out, events := o.app.out, records.Events(ctx, provenance.Query{Session: id})
	if !o.JSON {
		return report.WriteTimeline(out, id, events, o.app.knownColumns(out))
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err != nil {
			return err
		}
		if _, err := out.Write(report.QuietJSON(line)); err != nil {
			return err
		}
	}
	return nil
}

// printOutput prints kept streams: of a handle one, of an output id both.
func (o *sessionShowOptions) printOutput(ctx context.Context, records provenance.Reader, id string) error {
	output, streams := o.Output, []string{"stdout", "stderr"}
	for _, stream := range streams {
		if name, ok := strings.CutSuffix(output, ":"+stream); ok {
			output, streams = name, []string{stream}
			break
		}
	}
	if strings.Count(output, ":") == 1 {
		output = id + ":" + output
	}
	found := false
	for _, stream := range streams {
		file, err := records.Stored(ctx, id, provenance.OutputName(output, stream))
		switch {
		case errors.Is(err, provenance.ErrInvalid):
			return exit.Usagef("use an output id from `skillsd session show "+id+"`",
				"%q is not an output id", o.Output)
		case errors.Is(err, provenance.ErrNotFound):
			continue
		case err != nil:
			return err
		}
		found = true
		err = report.CopyOutput(o.app.out, file, report.IsTerminal(o.app.out))
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	if !found {
		return &exit.Error{
			Code: exit.Failure,
			Err:  fmt.Errorf("session %s keeps no output %q", id, o.Output),
			Hint: "`skillsd session show " + id + "` names its outputs",
		}
	}
	return nil
}

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
			"output of scripts and refusals. Every text is found by the digest that the record has of it\n" +
			"and printed behind \"| \"; if it can no longer be found, the reason is printed instead and\n" +
			"the exit code is 3. Without SESSION it is the newest.",
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
		return &exit.Error{
			Code: exit.Problems,
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
	state, err := a.StateDir()
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

// sessionVerifyOptions are the flags of session verify.
type sessionVerifyOptions struct {
	app  *app
	Key  string
	JSON bool
}

// sessionVerdict is what session verify --json prints.
type sessionVerdict struct {
	ID       string         `json:"id"`
	OK       bool           `json:"ok"`
	Problem  *recordProblem `json:"problem,omitempty"` // the first difference
	Events   int            `json:"events"`            // 0 with a problem, as are the counts below
	Files    int            `json:"files"`
	SignedBy string         `json:"signedBy,omitempty"` // the name of the key given with --key
	Notes    []string       `json:"notes"`              // what is worth knowing without being a difference
}

// recordProblem is where a record differs from what it says of itself.
type recordProblem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

func newSessionVerifyCmd(a *app) *cobra.Command {
	opts := &sessionVerifyOptions{app: a}
	cmd := &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "Recompute a session's hash chain and compare every file with it",
		Long: "Recompute a session's hash chain from its bytes and compare every view, every kept output\n" +
			"and every text that was shown with it. The first difference is printed as FILE:LINE: WHAT\n" +
			"and the exit code is 3. With --key, the key must also have signed the last event. Without\n" +
			"SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	cmd.Flags().StringVar(&opts.Key, "key", "",
		"`FILE` with the public key that must have signed the session, as skillsd session keygen makes it")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *sessionVerifyOptions) run(ctx context.Context, args []string) error {
	var keys []note.Verifier
	if o.Key != "" {
		text, err := config.ReadFile(o.Key, serve.MaxKeyFile)
		if err != nil {
			return err
		}
		key, err := note.NewVerifier(strings.TrimSpace(string(text)))
		if err != nil {
			return exit.Usagef("give the .pub file that `skillsd session keygen` wrote",
				"%s does not contain a public key", o.Key)
		}
		keys = append(keys, key)
	}
	return o.app.onSession(ctx, args, func(ctx context.Context, records provenance.Reader, id string) error {
		return o.verify(ctx, records, id, keys)
	})
}

func (o *sessionVerifyOptions) verify(
	ctx context.Context, records provenance.Reader, id string, keys []note.Verifier,
) error {
	found, err := records.Verify(ctx, id, keys...)
	verdict := sessionVerdict{ID: id, Notes: []string{}}
	if wrong, ok := errors.AsType[*provenance.VerifyError](err); ok {
		verdict.Problem = &recordProblem{wrong.File, wrong.Line, wrong.What}
		return errors.Join(o.print(&verdict, wrong.Error()), &exit.Error{Code: exit.Problems})
	}
	if err != nil {
		return err
	}
	verdict.OK, verdict.Events, verdict.Files = true, found.Events, found.Files
	verdict.Notes = report.VerifyNotes(found)
	signed := ""
	if found.Signed {
		verdict.SignedBy = keys[0].Name()
		signed = ", signed by " + verdict.SignedBy
	}
	line := fmt.Sprintf("ok %s: %d events, %d files%s", id, found.Events, found.Files, signed)
	return o.print(&verdict, line)
}

// print prints a verdict, in words as one line and, on stderr, the notes.
func (o *sessionVerifyOptions) print(verdict *sessionVerdict, line string) error {
	if o.JSON {
		return report.WriteJSON(o.app.out, verdict)
	}
	if _, err := fmt.Fprintln(o.app.out, report.Printable(line)); err != nil {
		return err
	}
	for _, text := range verdict.Notes {
		fmt.Fprintf(o.app.err, "note: %s\n", report.Printable(text))
	}
	return nil
}
