package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Shown is one text that was shown to a model.
type Shown struct {
	Seq     uint64               `json:"seq"`
	Time    provenance.Timestamp `json:"time"`
	What    string               `json:"what"` // instructions, file, stdout, stderr, made, denial or error
	Skill   string               `json:"skill,omitempty"`
	Path    string               `json:"path,omitempty"`
	Digest  string               `json:"digest,omitempty"` // of the whole file
	Offset  int64                `json:"offset"`
	Bytes   int                  `json:"bytes"`
	Text    *string              `json:"text,omitempty"`
	Base64  string               `json:"base64,omitempty"`
	Missing string               `json:"missing,omitempty"` // why the text is missing

	data []byte
}

// A TreeFile reads a file of a stored skill tree.
type TreeFile func(name string) ([]byte, error)

// Replay yields, in order, what the selected events of a session showed the model. Each text is found by its
// digest in the record: kept by the session, or in a stored tree of its skill, which tree opens. A text that
// cannot be found is yielded with the reason.
//
// Errors: the errors of reading the record; an error ends the iteration.
func Replay(
	ctx context.Context, records provenance.Reader, query provenance.Query,
	tree func(ctx context.Context, d digest.Digest) (TreeFile, error),
) iter.Seq2[*Shown, error] {
	return func(yield func(*Shown, error) bool) {
		// A file may have been shown before its skill was activated, so the trees are opened first.
		f := &shownFinder{ctx: ctx, records: records, session: query.Session,
			trees: openTrees(ctx, records, query.Session, tree)}
		for e, err := range records.Events(ctx, query) {
			if err != nil {
				yield(nil, err)
				return
			}
			found, err := f.shownBy(story.StepOf(e))
			err = cmp.Or(err, f.silent)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range found {
				if !yield(&found[i], nil) {
					return
				}
			}
		}
	}
}

// openTrees opens the stored trees that a session activated, by the paths of their skills. A tree that cannot
// be opened is left out.
func openTrees(
	ctx context.Context, records provenance.Reader, session string,
	open func(ctx context.Context, d digest.Digest) (TreeFile, error),
) map[string][]TreeFile {
	trees, opened := map[string][]TreeFile{}, map[digest.Digest]bool{}
	for e, err := range records.Events(ctx, provenance.Query{Session: session,
		Kinds: []provenance.Kind{provenance.KindSkillActivated}}) {
		if err != nil {
			// Replay reads the events again, with the same error.
			break
		}
		row := story.StepOf(e).Activation
		if row == nil || row.Skillsd == nil || opened[row.Skillsd.TreeDigest] {
			continue
		}
		opened[row.Skillsd.TreeDigest] = true
		if read, err := open(ctx, row.Skillsd.TreeDigest); err == nil {
			trees[e.Skill] = append(trees[e.Skill], read)
		}
	}
	return trees
}

// forAgent is a reader for an agent's shell: its events of runs contain only what the model was shown.
type forAgent struct{ provenance.Reader }

// ForAgent returns a reader of the same records whose events contain nothing that was withheld from the
// model. Its files are those in the record.
func ForAgent(records provenance.Reader) provenance.Reader { return forAgent{records} }

func (r forAgent) Events(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return sealed(r.Reader.Events(ctx, q))
}

func (r forAgent) Follow(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return sealed(r.Reader.Follow(ctx, q))
}

func sealed(events iter.Seq2[*provenance.Event, error]) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		for e, err := range events {
			isSealed := false
			if err == nil {
				isSealed, err = withheldRun(e)
			}
			if isSealed {
				// The record itself has the withheld facts of a run, such as its exit code.
				none := func(string) bool { return false }
				e, err = (&cfharness.Viewer{Released: none, Shows: none}).Event(e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// withheldRun reports whether an event is a run with output withheld from the model.
func withheldRun(e *provenance.Event) (bool, error) {
	if e.Kind != provenance.KindScriptExecuted {
		return false, nil
	}
	step := story.StepOf(e)
	x := step.Facts()
	// Exit codes alone gave a secret away in 23 calls.
	return x.Opaque || x.ExitWithheld || x.Stdout.Withheld != "" || x.Stderr.Withheld != "", step.Malformed
}

// Withholds reports whether a session has a run with output withheld from the model.
//
// Errors: the errors of reading the record.
func Withholds(ctx context.Context, records provenance.Reader, session string) (bool, error) {
	for e, err := range records.Events(ctx, provenance.Query{Session: session,
		Kinds: []provenance.Kind{provenance.KindScriptExecuted}}) {
		if err != nil {
			return false, err
		}
		if withheld, err := withheldRun(e); withheld || err != nil {
			return withheld, err
		}
	}
	return false, nil
}

// Withheld reports whether a non-empty stream of a run was withheld from the model entirely, or the record
// does not have the run.
func Withheld(ctx context.Context, records provenance.Reader, session, outputID,
	stream string) (bool, error) {
	for e, err := range records.Events(ctx, provenance.Query{Session: session,
		Kinds: []provenance.Kind{provenance.KindScriptExecuted}}) {
		if err != nil {
			return true, err
		}
		step := story.StepOf(e)
		if step.Malformed != nil {
			return true, step.Malformed
		}
		row := step.Run
		if row == nil || row.Skillsd == nil || provenance.OutputName(row.OutputID, stream) !=
			provenance.OutputName(outputID, stream) {
			continue
		}
		summary := &row.Skillsd.Stdout
		if stream == "stderr" {
			summary = &row.Skillsd.Stderr
		}
		// Earlier versions recorded late outcomes as shown.
		return (summary.Shown == nil || row.Skillsd.Late) && summary.Bytes > 0, nil
	}
	return true, nil
}

// Content returns the text; its bytes may be arbitrary.
func (s *Shown) Content() []byte { return s.data }

// WriteJSON writes the text as a line of JSON, with its exact bytes.
func (s *Shown) WriteJSON(w io.Writer) error {
	out := *s
	if utf8.Valid(s.data) {
		out.Text = new(string(s.data))
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(s.data)
	}
	raw, err := provenance.Encode(out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", QuietJSON(raw))
	return err
}

// WriteText writes the text with the prefix "| ", below a line that describes it.
func (s *Shown) WriteText(w io.Writer) error {
	at := s.Time.Local().Format("15:04:05.000")
	fmt.Fprintf(w, "#%d %s %s %s", s.Seq, at, s.What, OneLine(subjectOf(s.Skill, s.Path)))
	if s.Digest != "" {
		fmt.Fprintf(w, " bytes %d-%d of %s", s.Offset, s.Offset+int64(s.Bytes), s.Digest)
	}
	fmt.Fprintln(w)
	switch {
	case s.Missing != "":
		fmt.Fprintf(w, "! %s\n", OneLine(s.Missing))
	case !utf8.Valid(s.data):
		fmt.Fprintf(w, "! %d bytes that are not text; --json has them\n", len(s.data))
	default:
		for line := range bytes.Lines(s.data) {
			fmt.Fprintf(w, "| %s\n", Visible(string(bytes.TrimSuffix(line, []byte("\n")))))
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// shownFinder finds texts by their digests.
type shownFinder struct {
	ctx     context.Context
	records provenance.Reader
	session string
	trees   map[string][]TreeFile // by skill path
	silent  error                 // why a text cannot be looked up
}

// shownBy returns the texts that an event showed.
//
// Errors: the error of an event that cannot be read.
func (f *shownFinder) shownBy(step *story.Step) ([]Shown, error) {
	s := Shown{Seq: step.Seq, Time: provenance.Stamp(step.Time), Skill: step.Skill, Path: step.Path}
	switch step.Action {
	case story.Loaded:
		// An activation that was preloaded, or whose skill had been shown before, showed nothing.
		if row := step.Activation; row != nil && row.SentBy(step.Event) {
			return f.instructions(s, row), nil
		}
		return nil, step.Malformed
	case story.Read:
		if step.Resource == nil {
			return nil, step.Malformed
		}
		return f.file(s, step.Resource), nil
	case story.Ran:
		if step.Run == nil {
			return nil, step.Malformed
		}
		// Without a decision, the outcome is of a lost server, and no client got it.
		if e := step.Run.Error; e != nil && e.Code == "outcome_unknown" && len(step.Decision) == 0 {
			return nil, nil
		}
		return f.outputs(s, step.Run), nil
	case story.Refused:
		s.What = "denial"
		return s.with([]byte(step.Detail+"\n"), nil), nil
	}
	return nil, nil
}

// instructions returns the SKILL.md that was sent, without its frontmatter.
func (f *shownFinder) instructions(s Shown, row *cfharness.Activation) []Shown {
	s.What, s.Digest = "instructions", row.Digest.String()
	data, err := f.find(row.Digest, s.Skill, s.Path)
	s.Offset = frontmatter.BodyOffset(data)
	return s.with(data[s.Offset:], err)
}

// file returns the part of a file that was read, or the error.
func (f *shownFinder) file(s Shown, row *cfharness.ResourceRead) []Shown {
	if row.Error != nil {
		return s.failed(row.Error)
	}
	x := row.Skillsd
	// A binary file that was read by its path was named and not shown.
	if x == nil || x.Offset == nil || x.Bytes == nil || *x.Bytes == 0 {
		return nil
	}
	s.What, s.Digest, s.Offset, s.Bytes = "file", row.ObservedDigest.String(), *x.Offset, int(*x.Bytes)
	return s.with(f.part(s.Skill, row))
}

// outputs returns the texts that a run wrote and that were shown, or the error.
func (f *shownFinder) outputs(s Shown, row *cfharness.ScriptExecution) []Shown {
	if row.Error != nil {
		return s.failed(row.Error)
	}
	x := row.Skillsd
	// Earlier versions recorded late outcomes as shown.
	if x == nil || x.Late {
		return nil
	}
	found := f.output(s, "stdout", x.Stdout.Shown, x.Stdout.Bytes)
	found = append(found, f.output(s, "stderr", x.Stderr.Shown, x.Stderr.Bytes)...)
	for _, made := range x.Out {
		s.Path = "/out/" + made.Name
		found = append(found, f.output(s, "made", made.Shown, made.Bytes)...)
	}
	return found
}

// with returns s with its text, or with the reason why the text is missing.
func (s Shown) with(data []byte, err error) []Shown {
	if err != nil {
		s.Missing = err.Error()
	} else {
		s.data, s.Bytes = data, len(data)
	}
	return []Shown{s}
}

func (s Shown) failed(e *cfharness.RecordError) []Shown {
	s.What = "error"
	return s.with([]byte(e.Code+": "+e.Message+"\n"), nil)
}

// part returns the shown part of a file: kept under its own digest, or cut from the whole.
func (f *shownFinder) part(skill string, row *cfharness.ResourceRead) ([]byte, error) {
	x := row.Skillsd
	offset, n := *x.Offset, *x.Bytes
	if x.Shown != "" {
		// The kept part is preferred, because the whole file may be gone with its tree.
		if data, err := f.kept(x.Shown); err == nil && int64(len(data)) == n {
			return data, nil
		}
	}
	whole, err := f.find(row.ObservedDigest, skill, row.Path)
	if err != nil {
		return nil, err
	}
	if offset < 0 || n < 0 || offset > int64(len(whole)) || n > int64(len(whole))-offset {
		return nil, errors.New("the part shown lies outside of the file")
	}
	data := whole[offset : offset+n]
	if x.Shown != "" && digest.FromBytes(data) != x.Shown {
		return nil, fmt.Errorf("the part shown is not %s", x.Shown)
	}
	return data, nil
}

// output returns the released output of a run, as far as it was shown.
func (f *shownFinder) output(s Shown, name string, shown *cfharness.ShownText, all int64) []Shown {
	if shown == nil {
		return nil
	}
	data, err := f.kept(shown.Digest)
	if head := shown.Head; err == nil && head != nil && *head >= 0 && *head <= int64(len(data)) {
		// Only the head and the tail were shown; joined without a gap they would look like one text.
		gap := fmt.Sprintf("\n[%d bytes were not shown]\n", all-shown.Bytes)
		data = slices.Concat(data[:*head], []byte(gap), data[*head:])
	}
	s.What, s.Digest = name, shown.Digest.String()
	found := s.with(data, err)
	found[0].Bytes = int(shown.Bytes)
	return found
}

// find returns bytes by their digest: kept by the session, or from a tree of its skill.
func (f *shownFinder) find(want digest.Digest, skill, file string) ([]byte, error) {
	data, err := f.kept(want)
	if err == nil {
		return data, nil
	}
	// A skill may have been activated with several trees, so only the digest decides.
	for _, read := range f.trees[skill] {
		if data, treeErr := read(file); treeErr == nil && digest.FromBytes(data) == want {
			return data, nil
		}
	}
	return nil, err
}

// kept returns bytes that the session keeps of shown texts.
func (f *shownFinder) kept(want digest.Digest) ([]byte, error) {
	// The digest becomes the name of a file and comes from a record that may be damaged.
	if want.Validate() != nil || want.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("%.80q is not a digest", want.String())
	}
	file, err := f.records.Stored(f.ctx, f.session, provenance.ShownName(want))
	if errors.Is(err, provenance.ErrSilent) {
		f.silent = err
	}
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return nil, fmt.Errorf("%s is not kept", want)
	case errors.Is(err, fsys.ErrNotRegular):
		return nil, fmt.Errorf("%s is not a regular file", provenance.ShownName(want))
	case err != nil:
		return nil, err
	}
	data, err := fsys.ReadAll(file, skills.MaxFile)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	// The file may have changed since; only the record determines what was shown.
	if digest.FromBytes(data) != want {
		return nil, fmt.Errorf("what is kept as %s has another digest", want)
	}
	return data, nil
}
