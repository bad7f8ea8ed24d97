package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
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
		Long: "Print in order what the model was shown: instructions, files and parts of files, released output of scripts and\n" +
			"refusals. Every text is found by the digest the record has of it and stands behind \"| \"; where it can no longer\n" +
			"be found, that is said in its place and the exit code is 3. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error { return opts.run(ctx, sessionArg(args)) }),
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON, one object a line, with the exact bytes")
	return cmd
}

// replayItem is one thing shown, as --json prints it.
type replayItem struct {
	Seq     uint64               `json:"seq"`
	Time    provenance.Timestamp `json:"time"`
	What    string               `json:"what"` // instructions, file, stdout, stderr, denial or error
	Skill   string               `json:"skill,omitempty"`
	Path    string               `json:"path,omitempty"`
	Digest  string               `json:"digest,omitempty"` // of the whole file
	Offset  int64                `json:"offset"`
	Bytes   int                  `json:"bytes"`
	Text    *string              `json:"text,omitempty"`
	Base64  string               `json:"base64,omitempty"`
	Missing string               `json:"missing,omitempty"` // why it is not here

	data []byte
}

func (o *sessionReplayOptions) run(ctx context.Context, name string) error {
	dir, id, err := o.app.findSession(name)
	if err != nil {
		return err
	}
	found := &shownFinder{dir: filepath.Join(dir, id), trees: map[string][]*store.Tree{}}
	found.open(o.app)
	defer found.close()
	found.gather(ctx, dir, id)
	out := bufio.NewWriter(o.app.out)
	missing := 0
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil {
			return errors.Join(out.Flush(), brokenRecord(err))
		}
		items, err := found.items(e)
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		for i := range items {
			if items[i].Missing != "" {
				missing++
			}
			if err := o.print(out, &items[i]); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if missing > 0 {
		return &exitError{Code: exitProblems, Err: fmt.Errorf("%d of the texts shown can no longer be found by their digest", missing),
			Hint: "`skillsd session verify` says what differs from the record"}
	}
	return nil
}

func (o *sessionReplayOptions) print(w *bufio.Writer, item *replayItem) error {
	if o.JSON {
		if utf8.Valid(item.data) {
			item.Text = new(string(item.data))
		} else {
			item.Base64 = base64.StdEncoding.EncodeToString(item.data)
		}
		raw, err := provenance.Encode(item)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", report.QuietJSON(raw))
		return err
	}
	subject := item.Skill
	if item.Path != "" {
		subject += ":" + item.Path
	}
	fmt.Fprintf(w, "#%d %s %s %s", item.Seq, item.Time.Local().Format("15:04:05.000"), item.What, report.OneLine(subject))
	if item.Digest != "" {
		fmt.Fprintf(w, " bytes %d-%d of %s", item.Offset, item.Offset+int64(item.Bytes), item.Digest)
	}
	fmt.Fprintln(w)
	switch {
	case item.Missing != "":
		fmt.Fprintf(w, "! %s\n", report.OneLine(item.Missing))
	case !utf8.Valid(item.data):
		fmt.Fprintf(w, "! %d bytes that are no text; --json has them\n", len(item.data))
	default:
		for line := range bytes.Lines(item.data) {
			fmt.Fprintf(w, "| %s\n", report.Visible(string(bytes.TrimSuffix(line, []byte("\n")))))
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// shownFinder finds what was shown by digest: in the session, else among the stored trees.
type shownFinder struct {
	dir    string // of the session
	stored *store.Store
	trees  map[string][]*store.Tree // by skill path
}

// open opens the stored trees when there are any that can be read.
func (f *shownFinder) open(a *app) {
	state, err := a.stateDir()
	if err != nil {
		return
	}
	if _, err := os.Stat(filepath.Join(state, "trees")); err != nil {
		return
	}
	if stored, err := store.Open(state); err == nil {
		f.stored = stored
	}
}

func (f *shownFinder) close() {
	if f.stored != nil {
		f.stored.Close()
	}
}

// items is what an event says was shown.
func (f *shownFinder) items(e *provenance.Event) ([]replayItem, error) {
	base := replayItem{Seq: e.Seq, Time: provenance.Stamp(e.Time), Skill: e.Skill, Path: e.Path}
	switch e.Kind {
	case provenance.KindSkillActivated:
		return f.instructions(e, base)
	case provenance.KindResourceRead:
		return f.file(e, base)
	case provenance.KindScriptExecuted:
		return f.streams(e, base)
	case provenance.KindPolicyDenied:
		base.What, base.data = "denial", []byte(e.Detail+"\n")
		base.Bytes = len(base.data)
		return []replayItem{base}, nil
	}
	return nil, nil
}

// rowOf reads the row of an event; one that has none was not shown anything.
func rowOf[T any](e *provenance.Event) (*T, error) {
	if len(e.Row) == 0 {
		return nil, nil
	}
	row := new(T)
	if err := json.Unmarshal(e.Row, row); err != nil {
		return nil, fmt.Errorf("row of event %d: %w", e.Seq, err)
	}
	return row, nil
}
