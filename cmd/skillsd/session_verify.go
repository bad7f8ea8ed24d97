package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/filestore"
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
	Notes    []string       `json:"notes"`              // what is no difference and yet worth knowing
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
		Long: "Recompute a session's hash chain from its bytes and compare every view, every kept output and what was shown\n" +
			"with it. The first difference is printed as FILE:LINE: WHAT and the exit code is 3. With --key, the key must\n" +
			"also have signed the last event. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(func(_ context.Context, args []string) error { return opts.run(sessionArg(args)) }),
	}
	cmd.Flags().StringVar(&opts.Key, "key", "", "`FILE` with the public key that must have signed the session, as skillsd session keygen makes it")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *sessionVerifyOptions) run(name string) error {
	var keys []note.Verifier
	if o.Key != "" {
		text, err := readKey(o.Key)
		if err != nil {
			return err
		}
		key, err := note.NewVerifier(text)
		if err != nil {
			return usageError("give the .pub file that `skillsd session keygen` wrote", "%s holds no public key", o.Key)
		}
		keys = append(keys, key)
	}
	dir, id, err := o.app.findSession(name)
	if err != nil {
		return err
	}
	found, err := filestore.Verify(dir, id, keys...)
	verdict := sessionVerdict{ID: id, Notes: []string{}}
	if wrong, ok := errors.AsType[*filestore.VerifyError](err); ok {
		verdict.Problem = &recordProblem{wrong.File, wrong.Line, wrong.What}
		return errors.Join(o.print(&verdict, wrong.Error()), &exitError{Code: exitProblems})
	}
	if err != nil {
		return err
	}
	verdict.OK, verdict.Events, verdict.Files, verdict.Notes = true, found.Events, found.Files, notesOn(found)
	signed := ""
	if found.Signed {
		verdict.SignedBy = keys[0].Name()
		signed = ", signed by " + verdict.SignedBy
	}
	return o.print(&verdict, fmt.Sprintf("ok %s: %d events, %d files%s", id, found.Events, found.Files, signed))
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

// notesOn says what is no difference and yet worth knowing.
func notesOn(found *filestore.Report) []string {
	notes := []string{}
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, view := range found.Stale {
		say("%s is of an earlier moment", view)
	}
	for _, file := range found.Unrecorded {
		say("no event names %s", file)
	}
	if n := len(found.Unfinished); n > 0 {
		say("%d scripts were requested and have no outcome, the first is %s", n, found.Unfinished[0])
	}
	if n := found.NotKept; n > 0 {
		say("%d of the texts shown are not kept, and the record does not say that they must be", n)
	}
	if found.Removed > 0 {
		say("%d outputs were removed to make room, as the record says", found.Removed)
	}
	if found.Torn > 0 {
		say("a torn last line of %s is no part of the record", report.Plural(int(found.Torn), "byte"))
	}
	return notes
}

// readKey reads the line of a key file.
func readKey(name string) (string, error) {
	data, err := config.ReadFile(name, serve.MaxKeyFile)
	return strings.TrimSpace(string(data)), err
}
