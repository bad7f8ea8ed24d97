package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Verdict is the output of session verify --json.
type Verdict struct {
	ID       string   `json:"id"`
	OK       bool     `json:"ok"`
	Problem  *Problem `json:"problem,omitempty"` // first difference
	Events   int      `json:"events"`            // 0 with a problem, like the counters below
	Files    int      `json:"files"`
	SignedBy string   `json:"signedBy,omitempty"` // name of the given key that signed it
	Notes    []string `json:"notes"`              // remarks that are not differences

	// RegisterHead identifies the register of sessions up to its last line, in the form of --head; empty
	// without lines.
	RegisterHead string `json:"registerHead,omitempty"`
}

// Problem is a difference between a record and its hashes.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

// ReadKeys reads public key files.
func ReadKeys(names []string) (keys []note.Verifier, err error) {
	for _, name := range names {
		text, err := fsys.ReadFile(name, serve.MaxKeyFile, nil)
		if err != nil {
			return nil, err
		}
		key, err := note.NewVerifier(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, exit.Usagef("give the .pub file that `skillsd session keygen` wrote",
				"%s does not contain a public key", name)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// WriteKey writes a key file, which must not exist.
func WriteKey(name, key string, mode fs.FileMode) error {
	// O_EXCL keeps an existing key, which could not be made again.
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return exit.Errorf(exit.Failure, "choose another name; a key that is lost cannot be made again",
			"%s already exists", name)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(key + "\n")
	// A key that was lost in a crash after its first use would leave sessions that no key can verify.
	return errors.Join(err, file.Sync(), file.Close())
}

// Verify prints whether records are unchanged.
type Verify struct {
	Head string // expected head of the register of sessions; empty for any
	All  bool   // all sessions; otherwise a fault of the register is the session's
	JSON bool

	To, Notes io.Writer
}

// Run prints a verdict about each session, and about the register.
//
// Errors: one with exit.Problems if something differs, or the error of reading or writing.
func (o *Verify) Run(
	ctx context.Context, records provenance.Reader, ids []string, keys []note.Verifier,
) error {
	register, wrong, err := o.register(ctx, records, keys)
	if err != nil {
		return err
	}
	var found error
	verdicts := make([]Verdict, len(ids))
	for i, id := range ids {
		v := &verdicts[i]
		*v = Verdict{ID: id, Notes: []string{}, RegisterHead: register.Head()}
		line, err := v.verify(ctx, records, register, keys)
		problem, _ := errors.AsType[*provenance.VerifyError](err)
		if err != nil && problem == nil {
			return err
		}
		// With --all the register has a row of its own, and a fault in it must not make every session look
		// changed.
		if problem == nil && (id == provenance.RegisterFile || !o.All) {
			problem = wrong
		}
		v.OK = problem == nil
		if !v.OK {
			line = o.differs(v, problem)
			found = &exit.Error{Code: exit.Problems}
		}
		if o.JSON {
			continue
		}
		if _, err := fmt.Fprintln(o.To, report.Printable(line)); err != nil {
			return err
		}
		for _, text := range v.Notes {
			fmt.Fprintln(o.Notes, "note: "+report.Printable(text))
		}
	}
	switch {
	case o.JSON && o.All:
		err = report.WriteJSON(o.To, verdicts)
	case o.JSON:
		err = report.WriteJSON(o.To, verdicts[0])
	}
	return errors.Join(err, found)
}

// register returns the register of sessions, empty if it cannot be read, and its fault, if any.
//
// Errors: *exit.Error for a wrong Head; the error of reading.
func (o *Verify) register(
	ctx context.Context, records provenance.Reader, keys []note.Verifier,
) (*provenance.Register, *provenance.VerifyError, error) {
	register, err := records.Register(ctx, keys...)
	if err == nil && o.Head != "" {
		err = register.CheckHead(o.Head)
		if errors.Is(err, provenance.ErrInvalid) {
			return nil, nil, exit.Usagef("give N:HASH, as `skillsd session verify --all` printed it",
				"--head: %w", err)
		}
	}
	wrong, _ := errors.AsType[*provenance.VerifyError](err)
	if err != nil && wrong == nil {
		return nil, nil, err
	}
	if register == nil {
		register = &provenance.Register{}
	}
	return register, wrong, nil
}

// differs makes a verdict one about a difference, and returns the line for it.
func (o *Verify) differs(v *Verdict, problem *provenance.VerifyError) string {
	*v = Verdict{ID: v.ID, Notes: []string{}, RegisterHead: v.RegisterHead,
		Problem: &Problem{problem.File, problem.Line, problem.What}}
	if o.All {
		return v.ID + ": " + problem.Error()
	}
	return problem.Error()
}

// verify verifies one session, or the register, and returns a line that describes the result.
//
// Errors: *provenance.VerifyError, or the error of reading.
func (v *Verdict) verify(
	ctx context.Context, records provenance.Reader, register *provenance.Register, keys []note.Verifier,
) (line string, err error) {
	if v.ID == provenance.RegisterFile {
		if register.Lines == 0 {
			return "ok " + v.ID + ": no sessions are signed here", nil
		}
		return fmt.Sprintf("ok %s: %s, head %s", v.ID, report.Plural(register.Lines, "line"),
			v.RegisterHead), nil
	}
	found, err := records.Verify(ctx, v.ID, keys...)
	// The register has a line for each session that was signed, so a deleted session is found although its
	// files are gone.
	if is := register.Sessions[v.ID]; errors.Is(err, provenance.ErrNotFound) && is != nil {
		return "", &provenance.VerifyError{File: provenance.RegisterFile, Line: is.Line,
			What: fmt.Sprintf("session %s is missing: it had %s, and session gc did not delete it",
				v.ID, report.Plural(int(is.Events), "event"))}
	}
	if err != nil {
		return "", err
	}
	v.Events, v.Files, v.SignedBy, v.Notes = found.Events, found.Files, found.SignedBy,
		report.VerifyNotes(found)
	line = fmt.Sprintf("ok %s: %s, %s", v.ID, report.Plural(int(found.Events), "event"),
		report.Plural(found.Files, "file"))
	if found.SignedBy != "" {
		line += ", signed by " + found.SignedBy
	}
	return line, nil
}
