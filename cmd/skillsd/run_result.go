package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// runReport is what run --json prints: what the tool answers, and where the record is.
type runReport struct {
	Session string                       `json:"session,omitempty"` // id
	Result  *cfharness.RunOutput         `json:"result,omitempty"`  // the tool's _meta["skillsd/result"]
	Denial  *cfharness.ObservationDenied `json:"denial,omitempty"`  // the tool's structured content
	Error   *runError                    `json:"error,omitempty"`   // the tool's text, when it was neither refused nor run
	Whole   []string                     `json:"whole,omitempty"`   // commands that print the streams that are not whole in result
}

// runError is why a run could not be made.
type runError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// ended prints what a script left, and becomes the exit code.
func (o *runOptions) ended(id string, r *session.RunResult) error {
	result := &runReport{Session: id, Result: &r.Output}
	show := func(name string, s *session.Stream) {
		if s.Truncated || s.Withheld != "" {
			result.Whole = append(result.Whole, o.sessionCommand("show", id, "--output", strings.TrimPrefix(r.Output.OutputID, id+":")+":"+name))
		}
	}
	show("stdout", &r.Stdout)
	show("stderr", &r.Stderr)
	if o.JSON {
		if err := report.WriteJSON(o.app.out, result); err != nil {
			return err
		}
	} else if err := o.printStreams(id, r); err != nil {
		return err
	}
	for i, file := range r.Out {
		o.app.say("note", fmt.Sprintf("/out/%s, %s, is kept as %s", file.Name, report.Plural(int(file.Bytes), "byte"), o.kept(id, r, "out-"+strconv.Itoa(i))))
	}
	for line := range strings.Lines(mcpserver.RenderSkips(r) + mcpserver.RenderWrites(r)) {
		o.app.say("note", strings.TrimSuffix(line, "\n"))
	}
	for _, command := range result.Whole {
		o.app.say("hint", "what is not shown: "+command)
	}
	o.summary(id, mcpserver.RunLine(r))
	switch {
	case r.Outcome == string(sandbox.Canceled):
		return &exitError{Code: exitFailure}
	case r.Outcome != string(sandbox.Exited) || r.ExitCode != 0:
		return &exitError{Code: exitProblems}
	}
	return nil
}

// refused says why a script was not run.
func (o *runOptions) refused(id string, err error) error {
	result, exit := &runReport{Session: id}, &exitError{Code: exitFailure, Err: err}
	word := "not run"
	if denied, ok := errors.AsType[*session.Denied](err); ok {
		word, result.Denial = "refused", &denied.Object
		exit.Err = fmt.Errorf("refused, %s: %s (%s)", denied.Object.Code, denied.Object.Detail, denied.Object.Reason)
		exit.Hint = remedyOf(&denied.Object)
	} else if plain, ok := errors.AsType[*session.Error](err); ok {
		result.Error = &runError{string(plain.Code), plain.Message, plain.Remedy}
		if output, ok := plain.Output.(cfharness.RunOutput); ok {
			result.Result = &output
		}
		exit.Err = fmt.Errorf("%s: %s%s", plain.Code, plain.Message, causeOf(plain))
		exit.Hint = plain.Remedy
	} else if errors.Is(err, errCanceled) {
		word, result.Error = "canceled", &runError{"canceled", "the command was ended before the script ran", ""}
	} else {
		return err
	}
	if id != "" {
		o.summary(id, word)
	}
	if o.JSON {
		return errors.Join(exit, report.WriteJSON(o.app.out, result))
	}
	return exit
}

// remedyOf is the remedy of a denial, for who has called no tool but is the operator.
func remedyOf(d *cfharness.ObservationDenied) string {
	switch policy.Code(d.Code) {
	case policy.CodeApprovalDeclined:
		return "" // who was asked knows
	case policy.CodeApprovalRequired, policy.CodeDirectCommandRequired:
		return d.Remedy + "; on a terminal `skillsd run` asks, without --stdin"
	case policy.CodeToolNotAllowed:
		return d.Remedy + ", and allow a script; or, in the configuration: " + shellLine([]string{"skillsd", "allow", "--offer-tool", d.Skill + ":" + d.Path})
	}
	return d.Remedy
}

// causeOf is what a client is not told, and the operator is.
func causeOf(plain *session.Error) string {
	switch plain.Code {
	case session.CodeInternal, session.CodeProvenanceUnavailable, session.CodeServerBusy, session.CodeSandboxUnavailable:
		if _, known := errors.AsType[*sandbox.UnavailableError](plain.Err); plain.Err != nil && !known {
			return ": " + plain.Err.Error()
		}
	}
	return ""
}

// summary is the last line of the command's own. It is not folded: its end is a command to copy.
func (o *runOptions) summary(id, what string) {
	fmt.Fprintf(o.app.err, "skillsd: %s; %s\n", report.Printable(what), o.sessionCommand("show", id))
}

// sessionCommand is the command that finds the record where this command has put it.
func (o *runOptions) sessionCommand(words ...string) string {
	words = append([]string{"skillsd", "session"}, words...)
	for _, flag := range []struct{ name, value string }{{"config", o.app.File}, {"state", o.app.State}, {"artifact-root", o.app.Artifacts}} {
		if given := o.Flags.Lookup(flag.name); given != nil && given.Changed {
			words = append(words, "--"+flag.name, flag.value)
		}
	}
	return shellLine(words)
}

// kept is where the record of a run keeps a file.
func (o *runOptions) kept(id string, r *session.RunResult, name string) string {
	dir, err := o.app.artifactDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, id, filepath.FromSlash(provenance.OutputName(r.Output.OutputID, name)))
}

// printStreams prints what the script printed, each stream where the script printed it.
func (o *runOptions) printStreams(id string, r *session.RunResult) error {
	for _, one := range []struct {
		name string
		s    *session.Stream
		w    io.Writer
	}{{"stdout", &r.Stdout, o.app.out}, {"stderr", &r.Stderr, o.app.err}} {
		if one.s.Total == 0 || one.s.Withheld != "" {
			continue
		}
		last := &lastByte{w: one.w}
		if err := o.printStream(last, report.IsTerminal(one.w), o.kept(id, r, one.name), one.s); err != nil {
			return err
		}
		if last.b != '\n' && (one.name == "stderr" || report.IsTerminal(one.w)) {
			// What follows there is a line of the command's own.
			if _, err := io.WriteString(one.w, "\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// printStream prints a stream: of one that is whole the bytes that were kept, which need not be text.
func (o *runOptions) printStream(w io.Writer, terminal bool, file string, s *session.Stream) error {
	if s.Truncated {
		return report.CopyOutput(w, strings.NewReader(mcpserver.RenderStream(s)), terminal)
	}
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", file)
	}
	if err != nil {
		return err
	}
	kept, err := os.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(report.CopyOutput(w, kept, terminal), kept.Close())
}

// lastByte remembers how a text ended.
type lastByte struct {
	w io.Writer
	b byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.b = p[len(p)-1]
	}
	return l.w.Write(p)
}
