// Package evals exports a recorded session as one run of an evaluation of a skill, in the form of the
// skill-creator of github.com/anthropics/skills: its viewer shows the run, its grader reads it, and its
// aggregation includes it once it is graded.
//
// A run is a directory such as eval-0/with_skill/run-1:
//
//	eval_metadata.json   the evaluation, as in its own directory
//	transcript.md        the texts shown to the model, in order
//	timing.json          the duration of the session, and the tokens of the shown texts
//	skillsd.json         a [Run]: each call and its result
//	outputs/metrics.json calls by tool, errors and sizes
//	outputs/N-I-NAME     file I made by the run of event N, as stored
//
// The record has no prompts, no answers of a model, and no tokens except for texts that the server showed.
package evals

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
)

// The type and the version of a [Run].
const (
	runType    = "skillsd.eval-run"
	runVersion = 1
)

// bytesPerToken is the number of bytes that are estimated as one token. Tokenizers differ between models.
const bytesPerToken = 4

// Eval is the evaluation of a run: the content of eval_metadata.json.
type Eval struct {
	ID     int    `json:"eval_id"`
	Name   string `json:"eval_name"`
	Prompt string `json:"prompt"`
	// Assertions are copied from the evaluation.
	Assertions provenance.List[json.RawMessage] `json:"assertions"`

	// Released omits the files of runs whose output was withheld from the model.
	Released bool `json:"-"`
}

// Text is a text that was shown to the model with an event.
type Text struct {
	Seq   uint64
	Bytes int
	Write func(io.Writer) error // writes it in the form of the transcript
}

// Run is the content of skillsd.json.
type Run struct {
	Type    string                `json:"type"`
	Version int                   `json:"version"`
	Session string                `json:"session"`
	Steps   provenance.List[Step] `json:"steps"`
	Summary
}

// Summary summarizes the steps of a run.
type Summary struct {
	Client string `json:"client,omitempty"`
	// Skills are the skills in the last snapshot of the session.
	Skills provenance.List[string] `json:"skills"`
	Totals Totals                  `json:"totals"`
}

// Step is one event of the session.
type Step struct {
	Seq  uint64               `json:"seq"`
	Time provenance.Timestamp `json:"time"`
	// The kind of the step: loaded, read, ran, denied or failed.
	What  string `json:"what"`
	Tool  string `json:"tool,omitempty"` // tool or method; empty if no call caused the step
	Skill string `json:"skill,omitempty"`
	Path  string `json:"path,omitempty"`
	// Source is the cause of the activation of a loaded skill.
	Source cfharness.Source `json:"source,omitempty"`
	Code   string           `json:"code,omitempty"` // of a denial or an error
	// Outcome, ExitCode and DurationMS are set for scripts that started.
	Outcome    cfharness.Outcome `json:"outcome,omitempty"`
	ExitCode   *int              `json:"exitCode,omitempty"`
	DurationMS int64             `json:"durationMs,omitempty"`
	Files      []string          `json:"files,omitempty"` // files in outputs/ made by the script
	// PromptSlot is the binding of the call, as given by its caller.
	PromptSlot  json.RawMessage `json:"promptSlot,omitempty"`
	ShownBytes  int             `json:"shownBytes"`
	ShownTokens int             `json:"shownTokens"`
}

// Totals are the sums of the steps.
type Totals struct {
	Loaded      int `json:"loaded"`
	Read        int `json:"read"`
	Ran         int `json:"ran"`
	Denied      int `json:"denied"`
	Failed      int `json:"failed"`
	ShownBytes  int `json:"shownBytes"`
	ShownTokens int `json:"shownTokens"`
}

// Metrics is the content of metrics.json without files_created, which lists the files in outputs/.
type Metrics struct {
	ToolCalls       map[string]int `json:"tool_calls"`
	TotalToolCalls  int            `json:"total_tool_calls"`
	TotalSteps      int            `json:"total_steps"`
	Errors          int            `json:"errors_encountered"`
	OutputChars     int64          `json:"output_chars"`
	TranscriptChars int64          `json:"transcript_chars"`
}

// Timing is the content of timing.json.
type Timing struct {
	TotalTokens int                  `json:"total_tokens"` // of the shown texts
	DurationMS  int64                `json:"duration_ms"`
	Seconds     float64              `json:"total_duration_seconds"`
	Start       provenance.Timestamp `json:"executor_start"`
	End         provenance.Timestamp `json:"executor_end"`
	Executor    float64              `json:"executor_duration_seconds"`
}

// Write writes the run to an empty directory. shown are the texts shown in the session, in order. Memory does
// not grow with the session.
//
// Errors: the errors of reading the record, ErrCorrupt for a file that does not match the record, or the
// errors of writing.
func Write(
	ctx context.Context, dir *os.Root, records provenance.Reader, session string, eval Eval,
	shown iter.Seq2[Text, error],
) (err error) {
	w := &writer{ctx: ctx, dir: dir, records: records, session: session, released: eval.Released,
		metrics: Metrics{ToolCalls: map[string]int{}}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := dir.Mkdir("outputs", 0o700); err != nil {
		return err
	}
	head, err := provenance.Encode(Run{Type: runType, Version: runVersion, Session: session})
	if err != nil {
		return err
	}
	// The first empty list is the list of steps, which are written one by one.
	head, _, _ = bytes.Cut(head, []byte("[]"))
	w.transcript, w.runs = w.create("transcript.md"), w.create("skillsd.json")
	w.made = w.create("outputs/metrics.json")
	// The viewer reads the prompt below this heading.
	prompt := cmp.Or(eval.Prompt, "(the record has no prompts)")
	fmt.Fprintf(w.transcript, "## Eval Prompt\n\n%s\n\n## What the model was shown\n\n", prompt)
	fmt.Fprintf(w.runs, "%s[", head)
	fmt.Fprint(w.made, `{"files_created":[`)
	if err := w.steps(shown); err != nil {
		return err
	}
	if w.registry {
		if err := w.skills(); err != nil {
			return err
		}
	}
	if err := w.transcript.Flush(); err != nil {
		return err
	}
	w.metrics.TotalSteps, w.metrics.TranscriptChars = w.metrics.TotalToolCalls, w.transcript.written
	took := w.timing.End.Sub(w.timing.Start.Time)
	w.timing.TotalTokens, w.timing.DurationMS = w.sum.Totals.ShownTokens, took.Milliseconds()
	w.timing.Seconds, w.timing.Executor = took.Seconds(), took.Seconds()
	return errors.Join(w.runs.end(w.sum), w.made.end(w.metrics), w.create("timing.json").pretty(w.timing),
		w.create("eval_metadata.json").pretty(eval))
}

// writer is the state of Write.
type writer struct {
	ctx     context.Context
	dir     *os.Root
	records provenance.Reader
	session string
	files   []*file

	transcript, runs, made *file

	released bool // omit withheld files
	registry bool // the session has a registry
	sum      Summary
	metrics  Metrics
	timing   Timing
}

// file is a file of a run. If it could not be created, every write returns that error.
type file struct {
	*bufio.Writer
	file    *os.File
	written int64
	listed  int
}

func (w *writer) create(name string) *file {
	to, err := w.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	f := &file{file: to}
	f.Writer = bufio.NewWriter(writes(func(p []byte) (n int, _ error) {
		if err != nil {
			return 0, err
		}
		n, err = to.Write(p)
		f.written += int64(n)
		return n, err
	}))
	w.files = append(w.files, f)
	return f
}

type writes func(p []byte) (int, error)

func (w writes) Write(p []byte) (int, error) { return w(p) }

// close closes all created files.
func (w *writer) close() (err error) {
	for _, f := range w.files {
		err = errors.Join(err, f.Flush())
		if f.file != nil {
			err = errors.Join(err, f.file.Close())
		}
	}
	return err
}

// add appends an element to the list that begins the file.
func (f *file) add(v any) error {
	raw, err := provenance.Encode(v)
	if err != nil {
		return err
	}
	separator := "\n"
	if f.listed > 0 {
		separator = ",\n"
	}
	f.listed++
	_, err = fmt.Fprintf(f, "%s%s", separator, raw)
	return err
}

// end ends the list and writes the other members of the object.
func (f *file) end(rest any) error {
	raw, err := provenance.Encode(rest)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\n],%s\n", raw[1:])
	return err
}

func (f *file) pretty(v any) error {
	text, err := provenance.EncodePretty(v)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return err
}

// steps adds every event of the session with its texts.
func (w *writer) steps(shown iter.Seq2[Text, error]) error {
	next, stop := iter.Pull2(shown)
	defer stop()
	text, err, more := next()
	for e, failure := range w.records.Events(w.ctx, provenance.Query{Session: w.session}) {
		if failure != nil {
			return failure
		}
		event := story.StepOf(e)
		step := stepOf(event)
		// Both are in the same order. An event without texts here may have been recorded in the meantime.
		for ; more && (err != nil || text.Seq <= e.Seq); text, err, more = next() {
			if err != nil {
				return err
			}
			err = text.Write(w.transcript)
			if err != nil {
				return err
			}
			step.ShownBytes += text.Bytes
		}
		if err := w.add(event, &step); err != nil {
			return err
		}
	}
	return nil
}

// stepOf returns the step of an event; What is empty if it has none. A malformed decision or row is ignored
// here; verifying the session reports it.
func stepOf(e *story.Step) Step {
	ruling := e.Ruling()
	s := Step{Seq: e.Seq, Time: provenance.Stamp(e.Time), What: string(e.Action), Tool: ruling.ToolID,
		Skill: e.Skill, Path: e.Path, PromptSlot: ruling.PromptSlot, Code: e.Code()}
	switch e.Action {
	case story.Loaded:
		var sent bool
		if e.Activation != nil {
			s.Source = e.Activation.Source
			sent = e.Activation.Skillsd != nil && e.Activation.Skillsd.Sent
		}
		byItself := s.Source == cfharness.SourcePreload || s.Source == cfharness.SourceInherited
		switch {
		case s.Code != "":
			s.Tool = cmp.Or(s.Tool, "load_skill")
		case byItself && !sent, slices.Contains(ruling.ReasonCodes, cfharness.RuleResumeReload):
			// No call caused it.
			s.Tool = ""
		}
	case story.Read:
	case story.Ran:
		s.Outcome, s.DurationMS = e.Facts().Outcome, e.Facts().DurationMS
		if e.Run != nil {
			s.ExitCode = e.Run.ExitCode
		}
	case story.Refused:
		return s
	default:
		return Step{}
	}
	if e.Failed() {
		s.What, s.Code = "failed", cmp.Or(s.Code, "error")
	}
	return s
}

// add adds an event and its step to the totals and to the list of steps.
func (w *writer) add(e *story.Step, s *Step) error {
	w.sum.Client = cmp.Or(w.sum.Client, e.Client)
	if w.timing.Start.IsZero() {
		w.timing.Start = provenance.Stamp(e.Time)
	}
	w.timing.End = provenance.Stamp(e.Time)
	if e.Action == story.Snapshot && e.Detail == provenance.RegistryFile {
		w.registry = true
	}
	if s.What == "" {
		return nil
	}
	if s.Tool != "" {
		w.metrics.ToolCalls[s.Tool]++
		w.metrics.TotalToolCalls++
	}
	if s.Code != "" || s.What == "ran" && (s.ExitCode == nil || *s.ExitCode != 0) {
		w.metrics.Errors++
	}
	s.ShownTokens = (s.ShownBytes + bytesPerToken - 1) / bytesPerToken
	w.sum.Totals.add(s)
	if err := w.copyOutputs(e, s); err != nil {
		return err
	}
	return w.runs.add(s)
}

func (t *Totals) add(s *Step) {
	switch s.What {
	case "loaded":
		t.Loaded++
	case "read":
		t.Read++
	case "ran":
		t.Ran++
	case "denied":
		t.Denied++
	case "failed":
		t.Failed++
	}
	t.ShownBytes += s.ShownBytes
	t.ShownTokens += s.ShownTokens
}

// skills reads the names of the skills from the registry of the session.
func (w *writer) skills() error {
	from, err := w.records.Stored(w.ctx, w.session, provenance.RegistryFile)
	if err != nil {
		return fmt.Errorf("read %s: %w", provenance.RegistryFile, err)
	}
	defer from.Close()
	var registry struct {
		Skills []struct{ Name string }
	}
	if err := json.NewDecoder(from).Decode(&registry); err != nil {
		return fmt.Errorf("%w: %s: %v", provenance.ErrCorrupt, provenance.RegistryFile, err)
	}
	for _, skill := range registry.Skills {
		w.sum.Skills = append(w.sum.Skills, skill.Name)
	}
	slices.Sort(w.sum.Skills)
	return nil
}

// copyOutputs copies the files that a script made, and skips files that are no longer stored.
func (w *writer) copyOutputs(e *story.Step, s *Step) error {
	if s.What != "ran" {
		return nil
	}
	x := e.Facts()
	if w.released && (x.Stdout.Withheld != "" || x.Stderr.Withheld != "") {
		return nil
	}
	for i, made := range x.Out {
		kept := provenance.OutputName(e.Run.OutputID, fmt.Sprintf("out-%d", i))
		// Files that were withheld or too large were never stored.
		if !slices.ContainsFunc(e.Files, func(f provenance.File) bool { return f.Name == kept }) {
			continue
		}
		from, err := w.records.Stored(w.ctx, w.session, kept)
		if errors.Is(err, provenance.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", kept, err)
		}
		name := fmt.Sprintf("%d-%d-%s", e.Seq, i, fileName(made.Name))
		n, err := w.copy(name, from, made.Digest)
		if err = errors.Join(err, from.Close()); err != nil {
			return fmt.Errorf("copy %s: %w", kept, err)
		}
		w.metrics.OutputChars += n
		s.Files = append(s.Files, name)
		if err := w.made.add(name); err != nil {
			return err
		}
	}
	return nil
}

// copy writes a file to outputs/. The file must have the recorded digest.
func (w *writer) copy(name string, from io.Reader, want digest.Digest) (n int64, err error) {
	to, err := w.dir.OpenFile(path.Join("outputs", name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	got := digest.SHA256.Digester()
	n, err = io.Copy(io.MultiWriter(to, got.Hash()), from)
	if err := errors.Join(err, to.Close()); err != nil {
		return n, err
	}
	if got.Digest() != want {
		return n, fmt.Errorf("%w: the digest is not %.80q", provenance.ErrCorrupt, want.String())
	}
	return n, nil
}

// fileName returns the end of a path chosen by a script, as a file name that is valid on every system.
func fileName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '-' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, name)
	// The end has the extension.
	return strings.TrimRight(name[max(0, len(name)-100):], ".")
}
