// Package detect finds a sandbox backend and the interpreters that this machine has.
//
// It guarantees that a backend it returns has, on this machine and just now, kept a real script
// from a planted file of the host, from the network, from writing to its own tree and from every
// capability, has run it under a system call filter, and has ended it together with a process it had
// sent to the background. A program that only has the name of a backend's does not pass that. It does
// not guarantee that the backend contains attacks that this self-test does not try; package
// sandboxtest tries more of them, at the time a backend is built.
package detect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/runsc"
)

// Names that [Select] takes.
const (
	Auto     = "auto"
	Native   = native.Name
	Bwrap    = bwrap.Name
	Runsc    = runsc.Name
	Seatbelt = "seatbelt"
	None     = "none"
)

// automatic are the backends that [Auto] tries, in this order. gVisor is left to be asked for: it
// takes twenty times as long to start.
var automatic = [...]string{Native, Bwrap}

// Options change what [Select] tries. The zero value is the default of every field.
type Options struct {
	Native  *native.Options // of every backend
	TempDir string          // where the self-test puts its files; "" is [os.TempDir]

	// Path lists the directories, as in PATH, in which bwrap and runsc are looked for, before
	// /usr/bin, /usr/local/bin and /bin.
	Path string
}

// A Report is one fact for the operator. It never goes to a client.
type Report struct {
	Name     string // the backend
	OK       bool
	Fact     string
	Hint     string    // what would mend it; empty when OK
	Enforces *Enforces // nil unless OK
}

// Enforces says by what means a backend bounds a command on this machine.
type Enforces struct {
	Memory     native.Memory `json:"memory"`
	Processes  string        `json:"processes"`
	Network    string        `json:"network"`
	Workspaces []string      `json:"workspaces"`
	Files      string        `json:"files"`
	Kernel     string        `json:"kernel"`
}

// Select returns the backend that want names, or with [Auto] (or "") the first one that passes
// its self-test. The reports say what was found of each candidate, also on success. It takes
// about 0.2 s, with gVisor a second, and is safe for concurrent use.
//
// Errors: *[sandbox.UnavailableError] when no candidate is usable, with the reason of each; an
// unknown name is another error.
func Select(ctx context.Context, want string, opts *Options) (sandbox.Runner, []Report, error) {
	if opts == nil {
		opts = &Options{}
	}
	names := automatic[:]
	switch want {
	case "", Auto:
	case Native, Bwrap, Runsc:
		names = []string{want}
	case Seatbelt:
		return refuse(want, "this version has no such backend", "use --sandbox native")
	case None:
		return refuse(want, "this version does not run scripts without a sandbox", "use --sandbox auto")
	default:
		return nil, nil, fmt.Errorf("unknown sandbox %q: want one of %s", want,
			strings.Join([]string{Auto, Native, Bwrap, Runsc, Seatbelt, None}, ", "))
	}
	var reports []Report
	var refusals []*sandbox.UnavailableError
	for _, name := range names {
		r, report, err := opts.try(ctx, name)
		reports = append(reports, report)
		if err == nil {
			return r, reports, nil
		}
		refusals = append(refusals, err)
	}
	return nil, reports, together(refusals)
}

// Survey tries every backend, at the same time, and reports on each in the order of preference.
func Survey(ctx context.Context, opts *Options) []Report {
	if opts == nil {
		opts = &Options{}
	}
	names := []string{Native, Bwrap, Runsc}
	reports := make([]Report, len(names))
	var g errgroup.Group
	for i, name := range names {
		g.Go(func() error {
			_, reports[i], _ = opts.try(ctx, name) // the report says why
			return nil
		})
	}
	_ = g.Wait()
	return reports
}

func refuse(name, reason, remedy string) (sandbox.Runner, []Report, error) {
	return nil, []Report{{Name: name, Fact: reason, Hint: remedy}},
		&sandbox.UnavailableError{Backend: name, Reason: reason, Remedy: remedy}
}

func (o *Options) backend(name string) (*native.Runner, error) {
	if name == Native {
		return native.New(o.Native), nil
	}
	path, err := o.program(name)
	if err != nil {
		return nil, err
	}
	if name == Bwrap {
		return bwrap.New(path, o.Native), nil
	}
	return runsc.New(path, o.Native), nil
}

// program finds a backend's program, or returns "" when there is none.
func (o *Options) program(name string) (string, error) {
	var refused error
	for _, path := range candidates(o.Path, name) {
		if err := errors.Join(trusted(path), ownOrRoots(path)); err != nil {
			refused = &sandbox.UnavailableError{
				Backend: name, Reason: "its program could be changed by others", Err: fmt.Errorf("%s: %w", path, err),
				Remedy: "install it where only its owner may write",
			}
			continue
		}
		return path, nil
	}
	return "", refused
}

func (o *Options) try(ctx context.Context, name string) (sandbox.Runner, Report, *sandbox.UnavailableError) {
	r, err := o.backend(name)
	if err == nil {
		err = Check(ctx, r, o.TempDir)
	}
	if err == nil {
		e := enforcement(name, r.Memory(), r.Processes())
		return r, Report{Name: name, OK: true, Fact: "self-test passed; " + e.String(), Enforces: e}, nil
	}
	u, ok := errors.AsType[*sandbox.UnavailableError](err)
	if !ok {
		u = &sandbox.UnavailableError{
			Backend: name, Reason: "the self-test failed", Err: err,
			Remedy: "run the doctor command and check this machine's sandbox settings",
		}
		if c, ok := errors.AsType[*CheckError](err); ok {
			u.Reason += ": " + strings.Join(c.Misses, "; ")
		}
	}
	fact := u.Reason
	if u.Err != nil && !strings.Contains(u.Err.Error(), u.Reason) {
		fact += ": " + u.Err.Error()
	}
	return nil, Report{Name: name, Fact: fact, Hint: u.Remedy}, u
}

// together is one error with the reason and the cause of each.
func together(refusals []*sandbox.UnavailableError) *sandbox.UnavailableError {
	if len(refusals) == 1 {
		return refusals[0]
	}
	all := &sandbox.UnavailableError{Backend: Auto}
	var reasons, remedies []string
	var causes []error
	for _, u := range refusals {
		reasons = append(reasons, u.Error())
		if u.Remedy != "" {
			remedies = append(remedies, u.Backend+": "+u.Remedy)
		}
		if u.Err != nil {
			causes = append(causes, fmt.Errorf("%s: %w", u.Backend, u.Err))
		}
	}
	all.Reason, all.Remedy, all.Err = strings.Join(reasons, "; "), strings.Join(remedies, "; or "), errors.Join(causes...)
	return all
}
