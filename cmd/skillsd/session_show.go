package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
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
		Long: "Show what a session was shown, ran and was refused, an event a line. Without SESSION it is " +
			"the newest; the beginning of an id is enough. Its parent and its children come first.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(opts.show),
	}
	cmd.Flags().StringVar(&opts.Output, "output", "",
		"print a kept stream by its output or handle `ID`, [RUN:]TOOL:N[:stdout|:stderr];"+
			" control characters are left out on a terminal only")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print the events as JSON, one a line; the first also "+
		"has the children of the session")
	return cmd
}

func (o *sessionShowOptions) show(ctx context.Context, records provenance.Reader, id string) error {
	if o.Output != "" {
		return o.printOutput(ctx, records, id)
	}
	out, events := o.app.out, records.Events(ctx, provenance.Query{Session: id})
	children, err := report.Children(ctx, records, id)
	if err != nil {
		return err
	}
	if !o.JSON {
		return report.WriteTimeline(out, id, events, children, o.app.knownColumns(out))
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err == nil && len(children) > 0 {
			line, err = withChildren(line, children)
			children = nil
		}
		if err != nil {
			return err
		}
		o.app.printf("%s", report.QuietJSON(line))
	}
	return nil
}

// withChildren returns the line of an event with the ids of children as its last member.
func withChildren(line []byte, children []string) ([]byte, error) {
	ids, err := provenance.Encode(children)
	return fmt.Appendf(bytes.TrimSuffix(line, []byte("}\n")), ",\"children\":%s}\n", ids), err
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
		if variable := o.app.agentShell(); variable != "" {
			withheld, err := report.Withheld(ctx, records, id, output, stream)
			if err == nil && withheld {
				err = exit.Errorf(exit.Failure, "ask the user to read it in a terminal of their own",
					"%s was withheld from the model, so it is not printed in an agent's shell, as %s "+
						"says this is",
					stream, variable)
			}
			if err != nil {
				return errors.Join(err, file.Close())
			}
		}
		err = report.CopyOutput(o.app.out, file, report.IsTerminal(o.app.out))
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	if !found {
		return exit.Errorf(exit.Failure, "`skillsd session show "+id+"` names its outputs",
			"session %s keeps no output %q", id, o.Output)
	}
	return nil
}

func newSessionReplayCmd(a *app) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "replay [SESSION]",
		Short: "Print in order what the model was shown",
		Long: "Print in order what the model was shown: instructions, files and parts of files, released " +
			"output of scripts and refusals. Every text is found by the digest that the record has of it " +
			"and printed behind \"| \"; if it can no longer be found, the reason is printed instead and " +
			"the exit code is 3. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
			return a.replay(ctx, records, id, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line, with the exact bytes")
	return cmd
}

func (a *app) replay(ctx context.Context, records provenance.Reader, id string, asJSON bool) error {
	var stored *store.Store
	// Opening a store creates it, which reading a session must not.
	if state, err := a.StateDir(); err == nil && existing(filepath.Join(state, "trees")) {
		if stored, err = store.Open(state); err == nil {
			defer stored.Close()
		}
	}
	tree := func(ctx context.Context, d digest.Digest) (report.TreeFile, error) {
		if stored == nil {
			return nil, provenance.ErrNotFound
		}
		tree, err := stored.Tree(ctx, d)
		if err != nil {
			return nil, err
		}
		return tree.ReadFile, nil
	}
	out := bufio.NewWriter(a.out)
	missing := 0
	for shown, err := range report.Replay(ctx, records, id, tree) {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if shown.Missing != "" {
			missing++
		}
		write := shown.WriteText
		if asJSON {
			write = shown.WriteJSON
		}
		if err := write(out); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil || missing == 0 {
		return err
	}
	return exit.Errorf(exit.Problems, "`skillsd session verify` says what differs from the record",
		"%d of the texts shown can no longer be found by their digest", missing)
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

// sessionVerifyOptions are the flags of session verify.
type sessionVerifyOptions struct {
	app  *app
	Key  string
	JSON bool
}

func newSessionVerifyCmd(a *app) *cobra.Command {
	opts := &sessionVerifyOptions{app: a}
	cmd := &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "Recompute a session's hash chain and compare every file with it",
		Long: "Recompute a session's hash chain from its bytes and compare every view, every kept output " +
			"and every text that was shown with it. The first difference is printed as FILE:LINE: WHAT " +
			"and the exit code is 3. With --key, the key must also have signed the last event. Without " +
			"SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(opts.verify),
	}
	cmd.Flags().StringVar(&opts.Key, "key", "",
		"`FILE` with the public key that must have signed the session, as skillsd session keygen makes it")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *sessionVerifyOptions) verify(ctx context.Context, records provenance.Reader, id string) error {
	var keys []note.Verifier
	if o.Key != "" {
		text, err := fsys.ReadFile(o.Key, serve.MaxKeyFile, nil)
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
	found, err := records.Verify(ctx, id, keys...)
	verdict, line := sessionVerdict{ID: id, Notes: []string{}}, ""
	wrong, differs := errors.AsType[*provenance.VerifyError](err)
	switch {
	case differs:
		verdict.Problem, line = &recordProblem{wrong.File, wrong.Line, wrong.What}, wrong.Error()
		err = &exit.Error{Code: exit.Problems}
	case err != nil:
		return err
	default:
		verdict.OK, verdict.Events, verdict.Files = true, found.Events, found.Files
		verdict.Notes = report.VerifyNotes(found)
		line = fmt.Sprintf("ok %s: %d events, %d files", id, found.Events, found.Files)
		if found.Signed {
			verdict.SignedBy = keys[0].Name()
			line += ", signed by " + verdict.SignedBy
		}
	}
	if o.JSON {
		return errors.Join(report.WriteJSON(o.app.out, verdict), err)
	}
	o.app.printf("%s\n", report.Printable(line))
	for _, text := range verdict.Notes {
		o.app.notef("note: %s", report.Printable(text))
	}
	return err
}
