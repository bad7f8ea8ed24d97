// Package sessions implements the commands of `skillsd session` on open records: it shows a session, replays
// it, and verifies it.
package sessions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/evals"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Show prints a session, or a part of it.
//
// Concurrency: one call at a time.
type Show struct {
	Output string // output or handle with the kept streams to print; empty for events
	Since  string // first event to print: a number, an age or a time; empty for all
	Follow bool   // until the session ends
	JSON   bool

	To      io.Writer
	Columns int    // of a terminal; 0 for no limit
	Agent   string // variable that shows that this is an agent's shell, where withheld output is not printed
}

// Run prints the session.
//
// Errors: *exit.Error for a wrong request, or the error of reading or writing.
func (o *Show) Run(ctx context.Context, records provenance.Reader, id string) error {
	if o.Output != "" {
		return o.printOutput(ctx, records, id)
	}
	if o.Agent != "" {
		records = report.ForAgent(records)
	}
	query, from, err := o.since(time.Now())
	if err != nil {
		return err
	}
	query.Session = id
	out, events := o.To, records.Events(ctx, query)
	if o.Follow {
		events = records.Follow(ctx, query)
	}
	events = report.EventsFrom(events, from)
	children, err := report.Children(ctx, records, id)
	if err != nil {
		return err
	}
	if !o.JSON {
		return report.WriteTimeline(out, id, events, children, o.Columns)
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err != nil {
			return err
		}
		if len(children) > 0 {
			line, err = withChildren(line, children)
			children = nil
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(report.QuietJSON(line)); err != nil {
			return err
		}
	}
	return nil
}

// since parses --since: events from a number on, or from a time on.
func (o *Show) since(now time.Time) (q provenance.Query, from time.Time, err error) {
	if o.Since == "" {
		return q, from, nil
	}
	q.From, err = strconv.ParseUint(o.Since, 10, 64)
	if err == nil {
		return q, from, nil
	}
	if age, err := config.ParseAge(o.Since); err == nil {
		return q, now.Add(-age), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime,
		"2006-01-02 15:04", time.DateOnly} {
		from, err = time.ParseInLocation(layout, o.Since, time.Local)
		if err == nil {
			return q, from, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.Parse(layout, o.Since); err == nil {
			return q, time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(),
				at.Nanosecond(), time.Local), nil
		}
	}
	return q, from, exit.Usagef("give the number of an event, an age such as 10m, or a time such "+
		"as 15:04 or 2006-01-02T15:04:05Z", "--since %q is neither a number, an age nor a time", o.Since)
}

// withChildren returns the line of an event with the ids of children as its last member.
func withChildren(line []byte, children []string) ([]byte, error) {
	ids, err := provenance.Encode(children)
	return fmt.Appendf(bytes.TrimSuffix(line, []byte("}\n")), ",\"children\":%s}\n", ids), err
}

// printOutput prints kept streams: one for a handle, both for an output id.
func (o *Show) printOutput(ctx context.Context, records provenance.Reader, id string) error {
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
		if o.Agent != "" {
			withheld, err := report.Withheld(ctx, records, id, output, stream)
			if err != nil {
				return errors.Join(err, file.Close())
			}
			// The model can read what a command prints in its shell, so printing would undo the withholding.
			if withheld {
				err = exit.Errorf(exit.Failure, "ask the user to read it in a terminal of their own",
					"%s was withheld from the model, so it is not printed in an agent's shell, as %s "+
						"shows this to be",
					stream, o.Agent)
			}
			if err != nil {
				return errors.Join(err, file.Close())
			}
		}
		err = report.CopyOutput(o.To, file, report.IsTerminal(o.To))
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

// Shown yields, in order, the texts that the selected events showed the model. Stored skill trees are in the
// state directory; "" means none.
//
// Errors: the errors of reading the record.
func Shown(
	ctx context.Context, records provenance.Reader, query provenance.Query, state string,
) iter.Seq2[*report.Shown, error] {
	return func(yield func(*report.Shown, error) bool) {
		stored := storedTrees(state)
		if stored != nil {
			defer stored.Close()
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
		report.Replay(ctx, records, query, tree)(yield)
	}
}

// storedTrees opens the store of trees in a state directory, or returns nil. Opening a store would create it,
// but reading a session must not.
func storedTrees(state string) *store.Store {
	if state == "" || !fsys.Exists(config.TreesDir(state)) {
		return nil
	}
	stored, err := store.Open(state)
	if err != nil {
		return nil
	}
	return stored
}

// Replay prints, in order, what the model was shown.
//
// Errors: one with exit.Problems if a text can no longer be found, or the error of reading or writing.
func Replay(
	ctx context.Context, to io.Writer, records provenance.Reader, id, state string, asJSON bool,
) error {
	out := bufio.NewWriter(to)
	missing := 0
	for shown, err := range Shown(ctx, records, provenance.Query{Session: id}, state) {
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
	return exit.Errorf(exit.Problems, "`skillsd session verify` shows what differs from the log",
		"%d of the texts shown can no longer be found by their digest", missing)
}

// maxEval is the maximum size of the description of an evaluation.
const maxEval = 1 << 20

// WriteEval writes a session as a run of an evaluation into a new directory, such as eval-0/with_skill/run-1.
// The description of the evaluation is the eval_metadata.json in eval-0, if it exists; otherwise its number
// is the one in the name.
//
// With released, output withheld from the model is left out, as in an agent's shell.
//
// Errors: the errors of reading the session, or of writing; the directory is then removed.
func WriteEval(
	ctx context.Context, records provenance.Reader, id, state, dir string, released bool,
) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	eval := evals.Eval{Name: id, Released: released}
	if released {
		records = report.ForAgent(records)
	}
	if err := describe(&eval, dir); err != nil {
		return err
	}
	// These are ordinary files of the user, so the umask decides who can read them.
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	// The directory must be new: on an error it is removed with all that is in it.
	if err := os.Mkdir(dir, 0o777); errors.Is(err, fs.ErrExist) {
		return exit.Errorf(exit.Failure, "give a directory that does not exist, as eval-0/with_skill/run-2",
			"%s exists already", dir)
	} else if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return evals.Write(ctx, root, records, id, eval, func(yield func(evals.Text, error) bool) {
		for shown, err := range Shown(ctx, records, provenance.Query{Session: id}, state) {
			if err != nil {
				yield(evals.Text{}, err)
				return
			}
			if !yield(evals.Text{Seq: shown.Seq, Bytes: shown.Bytes, Write: shown.WriteText}, nil) {
				return
			}
		}
	})
}

// describe completes an evaluation by the description in the nearest directory above dir that is named as one
// of an evaluation, if it has any.
func describe(eval *evals.Eval, dir string) error {
	for _, above := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		number, found := strings.CutPrefix(filepath.Base(above), "eval-")
		if !found {
			continue
		}
		eval.Name = filepath.Base(above)
		// Names such as eval-long-report have no number.
		eval.ID, _ = strconv.Atoi(number)
		name := filepath.Join(above, "eval_metadata.json")
		text, err := fsys.ReadFile(name, maxEval, nil)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = json.Unmarshal(text, eval)
		}
		if err != nil {
			return exit.Errorf(exit.Failure, "correct or remove it", "read %s: %w", name, err)
		}
		return nil
	}
	return nil
}
