// Package detect finds a sandbox backend and the interpreters that this machine has.
//
// It guarantees that a backend it returns has, on this machine and just now, kept a real script
// from a planted file of the host, from the network, from writing to its own tree and from every
// capability, and has ended it together with a process it had sent to the background. It does
// not guarantee that the backend contains attacks that this self-test does not try; package
// sandboxtest tries more of them, at the time a backend is built.
package detect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// Names that [Select] takes.
const (
	Auto     = "auto"
	Native   = native.Name
	Bwrap    = "bwrap"
	Runsc    = "runsc"
	Seatbelt = "seatbelt"
	None     = "none"
)

// Options change what [Select] tries. The zero value is the default of every field.
type Options struct {
	Native  *native.Options
	TempDir string // where the self-test puts its files; "" is [os.TempDir]
}

func (o *Options) native() *native.Options {
	if o == nil {
		return nil
	}
	return o.Native
}

func (o *Options) tempDir() string {
	if o == nil {
		return ""
	}
	return o.TempDir
}

// A Report is one fact for the operator. It never goes to a client.
type Report struct {
	Name string // the backend
	OK   bool
	Fact string
	Hint string // what would mend it; empty when OK
}

// Select returns the backend that want names, or with [Auto] (or "") the first one that passes
// its self-test. The reports say what was found of each candidate, also on success. It takes
// about 0.2 s and is safe for concurrent use.
//
// Errors: *[sandbox.UnavailableError] when no candidate is usable, with the reason of each; an
// unknown name is another error.
func Select(ctx context.Context, want string, opts *Options) (sandbox.Runner, []Report, error) {
	switch want {
	case "", Auto, Native:
		return try(ctx, native.New(opts.native()), opts)
	case Bwrap, Runsc, Seatbelt:
		return refuse(want, "this version has no such backend", "use --sandbox native")
	case None:
		return refuse(want, "this version does not run scripts without a sandbox", "use --sandbox auto")
	}
	return nil, nil, fmt.Errorf("unknown sandbox %q: want one of %s", want,
		strings.Join([]string{Auto, Native, Bwrap, Runsc, Seatbelt, None}, ", "))
}

func refuse(name, reason, remedy string) (sandbox.Runner, []Report, error) {
	return nil, []Report{{Name: name, Fact: reason, Hint: remedy}},
		&sandbox.UnavailableError{Backend: name, Reason: reason, Remedy: remedy}
}

func try(ctx context.Context, r *native.Runner, opts *Options) (sandbox.Runner, []Report, error) {
	err := Check(ctx, r, opts.tempDir())
	if err == nil {
		return r, []Report{{Name: r.Name(), OK: true, Fact: "self-test passed; " + enforcement(r)}}, nil
	}
	var u *sandbox.UnavailableError
	if !errors.As(err, &u) {
		u = &sandbox.UnavailableError{
			Backend: r.Name(), Reason: "the self-test failed", Err: err,
			Remedy: "run the doctor command and check this machine's sandbox settings",
		}
	}
	fact := u.Reason
	if u.Err != nil {
		fact += ": " + u.Err.Error()
	}
	return nil, []Report{{Name: r.Name(), Fact: fact, Hint: u.Remedy}}, u
}

func enforcement(r *native.Runner) string {
	switch m := r.Memory(); m {
	case native.MemorySampled:
		return "memory is sampled every 20 ms, processes by resource limit"
	default:
		return "memory and processes by " + string(m)
	}
}
