package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

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
		Long: "Recompute a session's hash chain from its bytes and compare every view, every kept output and\n" +
			"every text that was shown with it. The first difference is printed as FILE:LINE: WHAT and the\n" +
			"exit code is 3. With --key, the key must also have signed the last event. Without SESSION it is\n" +
			"the newest.",
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
			return usageError("give the .pub file that `skillsd session keygen` wrote",
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
		return errors.Join(o.print(&verdict, wrong.Error()), &exitError{Code: exitProblems})
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
