// Package detect finds a sandbox backend and the interpreters of this machine.
//
// A backend that [Select] returns has just passed a self-test on this machine. It ran a real script under a
// system call filter; kept the script from a planted file of the host, from the network, from writing to its
// own tree and from every capability; and killed it together with a background process. A program that merely
// has the name of a backend's program does not pass.
//
// The self-test does not try every attack. Package sandboxtest tries more, in the tests of each backend.
package detect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/runsc"
)

// Words that [Select] accepts besides the names of backends.
const (
	Auto = "auto"
	None = "none"
)

// A backend is a row in the table of backends. A new backend needs only a new row.
type backend struct {
	name      string
	automatic bool // tried by [Auto]
	program   bool // needs a program with its name

	// new returns a runner; path is the backend's program, if it needs one. It is nil if this version does
	// not include the backend.
	new func(path string, opts *native.Options) *native.Runner

	// differ changes the limits that the backend enforces differently from package native.
	differ func(e *Enforces, root bool)
}

// backends is the table, in the order in which [Auto] tries the backends and reports list them.
var backends = []backend{
	{
		name: native.Name, automatic: true,
		new: func(_ string, opts *native.Options) *native.Runner { return native.New(opts) },
	},
	{
		name: bwrap.Name, automatic: true, program: true,
		new: bwrap.New,
		differ: func(e *Enforces, root bool) {
			e.Files = "bounded by memory"
			if !root {
				e.Workspaces = []string{string(sandbox.WorkspaceRO), string(sandbox.WorkspaceRW)}
			}
		},
	},
	{
		// gVisor is not automatic, because it takes twenty times as long to start.
		name: runsc.Name, program: true,
		new: runsc.New,
		differ: func(e *Enforces, root bool) {
			e.Files, e.Processes = "bounded by memory", "bounded by memory"
			e.Network, e.Kernel = "none", "gVisor's"
			if !root {
				e.Workspaces = []string{string(sandbox.WorkspaceRO)}
			}
		},
	},
	{name: "seatbelt"},
}

// Names returns the words that [Select] accepts: [Auto] and the name of every backend, including those not in
// this version.
func Names() []string {
	names := []string{Auto}
	for _, b := range backends {
		names = append(names, b.name)
	}
	return names
}

// Present returns the words of Names whose backends are in this version.
func Present() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		return slices.ContainsFunc(backends, func(b backend) bool { return b.name == name && b.new == nil })
	})
}

// Usage describes the words for the backends in this version, for the help of an option.
func Usage() string {
	var automatic, names []string
	for _, b := range backends {
		if b.automatic {
			automatic = append(automatic, b.name)
		}
		if b.new != nil {
			names = append(names, b.name)
		}
	}
	last := len(names) - 1
	return fmt.Sprintf("%s (%s), %s or %s", Auto, strings.Join(automatic, ", else "),
		strings.Join(names[:last], ", "), names[last])
}

// Options configure [Select]. The zero value of each field is its default.
type Options struct {
	Native *native.Options // options of every backend

	// Path lists the directories, as in PATH, to search for the programs of backends before /usr/bin,
	// /usr/local/bin and /bin.
	Path     string
	Writable []Writable // paths through these directories are not searched
}

// A Report is the state of one backend, for the operator. It is not shown to clients.
type Report struct {
	Name      string // of the backend
	Automatic bool   // tried by [Auto]
	OK        bool
	Fact      string
	Hint      string    // advice; empty if OK
	Enforces  *Enforces // nil unless OK
}

// Select returns the backend named want or, for [Auto] or "", the first one that passes its self-test. The
// reports list every candidate that was tried, even on success. It takes about 0.2 s, or a second for gVisor,
// and is safe for concurrent use.
//
// Errors: *[sandbox.UnavailableError] with the reason for each candidate if none is usable; another error if
// the name is unknown.
func Select(ctx context.Context, want string, opts *Options) (sandbox.Runner, []Report, error) {
	if opts == nil {
		opts = &Options{}
	}
	var candidates []backend
	for _, b := range backends {
		if b.name == want || b.automatic && (want == "" || want == Auto) {
			candidates = append(candidates, b)
		}
	}
	switch {
	case want == None:
		return refuse(want, "this version does not run scripts without a sandbox", "use --sandbox auto")
	case len(candidates) == 0:
		return nil, nil, fmt.Errorf("unknown sandbox %q: want one of %s", want,
			strings.Join(append(Names(), None), ", "))
	// Automatic backends are in every version, so this one was named.
	case candidates[0].new == nil:
		return refuse(want, "this version has no such backend", "use --sandbox native")
	}
	var reports []Report
	var refusals []*sandbox.UnavailableError
	for _, b := range candidates {
		r, report, err := opts.try(ctx, b)
		reports = append(reports, report)
		if err == nil {
			return r, reports, nil
		}
		refusals = append(refusals, err)
	}
	return nil, reports, together(refusals)
}

// Survey tries all backends concurrently and returns their reports in the order of the table.
func Survey(ctx context.Context, opts *Options) []Report {
	if opts == nil {
		opts = &Options{}
	}
	tried := slices.DeleteFunc(slices.Clone(backends), func(b backend) bool { return b.new == nil })
	reports := make([]Report, len(tried))
	var g sync.WaitGroup
	for i, b := range tried {
		// The report includes the error.
		g.Go(func() { _, reports[i], _ = opts.try(ctx, b) })
	}
	g.Wait()
	return reports
}

func refuse(name, reason, remedy string) (sandbox.Runner, []Report, error) {
	return nil, []Report{{Name: name, Fact: reason, Hint: remedy}},
		&sandbox.UnavailableError{Backend: name, Reason: reason, Remedy: remedy}
}

// try returns a runner of one backend if it passes the self-test.
func (o *Options) try(ctx context.Context, b backend) (sandbox.Runner, Report, *sandbox.UnavailableError) {
	r, err := o.checked(ctx, b)
	if err == nil {
		e := enforcement(r.Memory(), r.Processes())
		if b.differ != nil {
			b.differ(e, os.Geteuid() == 0)
		}
		fact := "self-test passed; " + e.String()
		return r, Report{Name: b.name, Automatic: b.automatic, OK: true, Fact: fact, Enforces: e}, nil
	}
	// Any other error is a failure of the test, so the backend is not usable either.
	u, ok := errors.AsType[*sandbox.UnavailableError](err)
	if !ok {
		u = &sandbox.UnavailableError{
			Backend: b.name, Reason: "the self-test failed", Err: err,
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
	return nil, Report{Name: b.name, Automatic: b.automatic, Fact: fact, Hint: u.Remedy}, u
}

// checked returns a runner of a backend after the self-test passed.
func (o *Options) checked(ctx context.Context, b backend) (*native.Runner, error) {
	path := ""
	if b.program {
		var err error
		path, err = o.program(b.name)
		if err != nil {
			return nil, err
		}
	}
	r := b.new(path, o.Native)
	if err := check(ctx, r); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// program returns the path of a backend's program, or "" if it is not installed, which the backend reports
// later.
//
// Errors: *[sandbox.UnavailableError] if every program of that name could be replaced by a user other than
// root and this process's user.
func (o *Options) program(name string) (string, error) {
	var refused error
	for _, dir := range outside(searchPath(o.Path), o.Writable) {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil || !isExecutable(path) || leadsThrough(filepath.Join(dir, name), o.Writable) {
			continue
		}
		err = errors.Join(trusted(path), ownOrRoots(path))
		if err == nil {
			return path, nil
		}
		refused = &sandbox.UnavailableError{
			Backend: name, Reason: "its program could be changed by others",
			Err:    fmt.Errorf("%s: %w", path, err),
			Remedy: "install it where only its owner may write",
		}
	}
	return "", refused
}

// searchPath returns the absolute directories in path, a list as in PATH, and the system's.
func searchPath(path string) (dirs []string) {
	for _, d := range append(filepath.SplitList(path), "/usr/bin", "/usr/local/bin", "/bin") {
		// A relative directory depends on where the server was started.
		if filepath.IsAbs(d) && !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0)
}

// Command returns the path of the first program called name in the directories of path, a list as in PATH, or
// else in /usr/bin, /usr/local/bin and /bin; "" if there is no such program. It starts nothing. The name may
// come from an untrusted source; if it contains a path, Command returns "". On Windows, extensions, a list as
// in PATHEXT, are appended to name.
func Command(path, extensions, name string) string {
	if name == "" || strings.ContainsAny(name, "/\\:\x00") || !filepath.IsLocal(name) {
		return ""
	}
	names := []string{name}
	if runtime.GOOS == "windows" {
		for _, extension := range filepath.SplitList(extensions) {
			names = append(names, name+extension)
		}
	}
	for _, dir := range searchPath(path) {
		for _, name := range names {
			if program := filepath.Join(dir, name); isExecutable(program) {
				return program
			}
		}
	}
	return ""
}

// together returns one error with the reasons and causes of all refusals.
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
	all.Reason = strings.Join(reasons, "; ")
	all.Remedy = strings.Join(remedies, "; or ")
	all.Err = errors.Join(causes...)
	return all
}

// Enforces describes how a backend limits commands on this machine.
type Enforces struct {
	Memory     native.Memory `json:"memory"`
	Processes  string        `json:"processes"`
	Network    string        `json:"network"`
	Workspaces []string      `json:"workspaces"`
	Files      string        `json:"files"`
	Kernel     string        `json:"kernel"`
}

// enforcement returns the limits that package native enforces on this machine.
func enforcement(memory, processes native.Memory) *Enforces {
	e := &Enforces{
		Memory:    memory,
		Processes: string(processes),
		Network:   "none, or through the proxy",
		Files:     "counted",
		Kernel:    "the host's, behind a system call filter",
		Workspaces: []string{
			string(sandbox.WorkspaceRO), string(sandbox.WorkspaceStaged), string(sandbox.WorkspaceRW),
		},
	}
	if runtime.GOOS == "linux" && !native.Landlock() {
		e.Kernel += " and without Landlock: a named pipe in a workspace mounted ro can be written to"
	}
	if processes == native.MemorySampled {
		e.Processes = "resource limit"
	}
	return e
}

// String returns a description for the operator.
func (e *Enforces) String() string {
	memory := "by " + string(e.Memory)
	if e.Memory == native.MemorySampled {
		memory = "is sampled every 20 ms"
	}
	return "memory " + memory + "; processes: " + e.Processes + "; files: " + e.Files +
		"; network: " + e.Network + "; workspace: " + strings.Join(e.Workspaces, ", ") +
		"; kernel: " + e.Kernel
}
