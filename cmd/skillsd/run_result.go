package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// runReport is the output of run --json: what the tool answers, and where the record is.
type runReport struct {
	Session string                       `json:"session,omitempty"` // id
	Result  *cfharness.RunOutput         `json:"result,omitempty"`  // the tool's _meta["skillsd/result"]
	Denial  *cfharness.ObservationDenied `json:"denial,omitempty"`  // the tool's structured content
	Error   *runError                    `json:"error,omitempty"`   // the tool's text, if neither of the two
	Whole   []string                     `json:"whole,omitempty"`   // commands that print what Result cuts
}

// runError is why a run could not be made.
type runError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// ended prints the output of a script and returns its outcome as an exit code.
func (o *runOptions) ended(ctx context.Context, id string, r *session.RunResult) error {
	result := &runReport{Session: id, Result: &r.Output}
	show := func(name string, s *session.Stream) {
		if s.Truncated || s.Withheld != "" {
			output := strings.TrimPrefix(r.Output.OutputID, id+":") + ":" + name
			result.Whole = append(result.Whole, o.sessionCommand("show", id, "--output", output))
		}
	}
	show("stdout", &r.Stdout)
	show("stderr", &r.Stderr)
	if o.JSON {
		if err := report.WriteJSON(o.app.out, result); err != nil {
			return err
		}
	} else if err := o.printStreams(ctx, id, r); err != nil {
		return err
	}
	dir, err := o.app.artifactDir()
	if err != nil {
		return err
	}
	for i, file := range r.Out {
		name := provenance.OutputName(r.Output.OutputID, "out-"+strconv.Itoa(i))
		o.app.say("note", fmt.Sprintf("/out/%s, %s, is kept as %s", file.Name,
			report.Plural(int(file.Bytes), "byte"), filepath.Join(dir, id, filepath.FromSlash(name))))
	}
	for line := range strings.Lines(mcpserver.RenderSkips(r) + mcpserver.RenderWrites(r)) {
		o.app.say("note", strings.TrimSuffix(line, "\n"))
	}
	for _, command := range result.Whole {
		o.app.say("hint", "to see what is not shown: "+command)
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

// refused reports why a script was not run.
func (o *runOptions) refused(id string, err error) error {
	result, exit := &runReport{Session: id}, &exitError{Code: exitFailure, Err: err}
	word := "not run"
	if denied, ok := errors.AsType[*session.Denied](err); ok {
		word, result.Denial = "refused", &denied.Object
		object := &denied.Object
		exit.Err = fmt.Errorf("refused, %s: %s (%s)", object.Code, object.Detail, object.Reason)
		exit.Hint = remedyOf(object)
	} else if plain, ok := errors.AsType[*session.Error](err); ok {
		result.Error = &runError{string(plain.Code), plain.Message, plain.Remedy}
		if output, ok := plain.Output.(cfharness.RunOutput); ok {
			result.Result = &output
		}
		exit.Err = fmt.Errorf("%s: %s%s", plain.Code, plain.Message, causeOf(plain))
		exit.Hint = plain.Remedy
	} else if errors.Is(err, errCanceled) {
		word = "canceled"
		result.Error = &runError{"canceled", "the command was ended before the script ran", ""}
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

// remedyOf returns the remedy of a denial for the operator, who called no tool.
func remedyOf(d *cfharness.ObservationDenied) string {
	switch policy.Code(d.Code) {
	case policy.CodeApprovalDeclined:
		return "" // the operator has just answered
	case policy.CodeApprovalRequired, policy.CodeDirectCommandRequired:
		return d.Remedy + "; on a terminal `skillsd run` asks, without --stdin"
	case policy.CodeToolNotAllowed:
		return d.Remedy + ", and allow a script; or, in the configuration: " +
			report.ShellLine("skillsd", "allow", "--offer-tool", d.Skill+":"+d.Path)
	}
	return d.Remedy
}

// causeOf returns the cause of an error, which is for the operator and not for clients.
func causeOf(plain *session.Error) string {
	switch plain.Code {
	case session.CodeInternal, session.CodeProvenanceUnavailable, session.CodeServerBusy,
		session.CodeSandboxUnavailable:
		if _, known := errors.AsType[*sandbox.UnavailableError](plain.Err); plain.Err != nil && !known {
			return ": " + plain.Err.Error()
		}
	}
	return ""
}

// summary prints the last line. It is not folded, because it ends with a command to copy.
func (o *runOptions) summary(id, what string) {
	fmt.Fprintf(o.app.err, "skillsd: %s; %s\n", report.Printable(what), o.sessionCommand("show", id))
}

// sessionCommand returns a command that finds the record where this command has put it.
func (o *runOptions) sessionCommand(words ...string) string {
	words = append([]string{"skillsd", "session"}, words...)
	for _, name := range []string{"config", "state", "artifact-root"} {
		if given := o.Flags.Lookup(name); given != nil && given.Changed {
			words = append(words, "--"+name, given.Value.String())
		}
	}
	return report.ShellLine(words...)
}

// printStreams prints the output of the script, each stream on the stream on which the script printed it.
func (o *runOptions) printStreams(ctx context.Context, id string, r *session.RunResult) error {
	records, _, err := o.app.records()
	if err != nil {
		return err
	}
	defer records.Close()
	for _, one := range []struct {
		name string
		s    *session.Stream
		w    io.Writer
	}{{"stdout", &r.Stdout, o.app.out}, {"stderr", &r.Stderr, o.app.err}} {
		if one.s.Total == 0 || one.s.Withheld != "" {
			continue
		}
		text := io.NopCloser(strings.NewReader(mcpserver.RenderStream(one.s)))
		if !one.s.Truncated {
			// The bytes that were kept need not be text.
			text, err = records.Stored(ctx, id, provenance.OutputName(r.Output.OutputID, one.name))
			if errors.Is(err, provenance.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
		}
		last := &lastByte{w: one.w}
		err := report.CopyOutput(last, text, report.IsTerminal(one.w))
		if err := errors.Join(err, text.Close()); err != nil {
			return err
		}
		if last.b != '\n' && (one.name == "stderr" || report.IsTerminal(one.w)) {
			// The next line there is one of this command's.
			if _, err := io.WriteString(one.w, "\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastByte is a writer that remembers the last byte.
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
