package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/sandbox/detect"
)

// doctorOptions are the flags of doctor: those of serve, and its own.
type doctorOptions struct {
	app   *app
	Serve serve.Options
	Flags *pflag.FlagSet // its own
	all   *pflag.FlagSet // those of serve
	JSON  bool
}

// check is one line of the doctor.
type check struct {
	Verdict string `json:"verdict"` // ok, warn or fail
	Area    string `json:"area"`
	Fact    string `json:"fact"`
	Hint    string `json:"hint,omitempty"`

	Backend  string           `json:"backend,omitempty"`  // the sandbox backend it is about
	Enforces *detect.Enforces `json:"enforces,omitempty"` // by what means that one bounds a script here
}

const (
	ok   = "ok"
	warn = "warn"
	fail = "fail"
)

func newDoctorCmd(a *app) *cobra.Command {
	opts := &doctorOptions{app: a, Serve: *a.serveOptions(), all: pflag.NewFlagSet("serve", pflag.ContinueOnError)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check roots, skills, sandbox, interpreters and directories, and say what would mend them",
		Long: "Check what `skillsd serve` needs, with the configuration and the flags it would have: roots, skills, what is\n" +
			"allowed, every byte of what is installed, the sandbox, interpreters, directories and addresses. Each line is\n" +
			"ok, warn or fail, with a hint that mends it; the exit code is 3 when one is fail. Nothing is changed.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	opts.Serve.Register(opts.all)
	opts.Flags = cmd.Flags()
	opts.Flags.AddFlagSet(opts.all)
	opts.Flags.BoolVar(&opts.JSON, "json", false, "print JSON")
	// A fault in what else serve is told is a line of what is found.
	var first pflag.FlagSet
	(&config.ReaderOptions{}).Register(&first)
	names := "allow-skill-script sandbox"
	first.VisitAll(func(f *pflag.Flag) { names += " " + f.Name })
	cmd.Annotations = map[string]string{configures: names}
	return cmd
}

func (o *doctorOptions) run(ctx context.Context) error {
	// Options that cannot be read leave doctor those that Annotations names, and a plan of nothing.
	serving, wrong := &o.Serve, o.Serve.Configure(o.all)
	if wrong != nil {
		serving = nil
	}
	verdicts, err := serve.JudgeFor(&o.app.Process, serving, o.Serve.AllowScripts)
	if err != nil {
		return err
	}
	snapshot, found, err := o.checkSkills(ctx, verdicts)
	if err != nil {
		return err
	}
	var refused []check
	if wrong != nil {
		refused = []check{o.serveCheck(serve.Problem{Severity: skills.Error, Err: wrong}, &o.app.Cfg)}
	} else {
		refused = o.checkPlan(ctx, snapshot)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	usable := !slices.ContainsFunc(refused, func(c check) bool { return c.Verdict == fail })
	checks := append(o.checkConfiguration(usable), refused...)
	checks = append(checks, found...)
	checks = append(checks, o.checkInstalled(ctx)...)
	checks = append(checks, o.checkSandbox(ctx)...)
	checks = append(checks, o.checkDirectories()...)
	if o.JSON {
		if err := report.WriteJSON(o.app.out, checks); err != nil {
			return err
		}
	}
	failed := false
	for _, c := range checks {
		failed = failed || c.Verdict == fail
		if o.JSON {
			continue
		}
		fmt.Fprintln(o.app.out, o.app.folded(c.Verdict+" "+c.Area+": "+report.Printable(c.Fact)))
		if c.Hint != "" {
			fmt.Fprintf(o.app.out, "hint: %s\n", report.Printable(c.Hint))
		}
	}
	if failed {
		return &exitError{Code: exitProblems}
	}
	return nil
}

// checkPlan returns the problems of the plan that serve would run. Nothing is written, and addresses that are listened
// on are released immediately.
func (o *doctorOptions) checkPlan(ctx context.Context, snapshot *skills.Snapshot) []check {
	plan, discard := o.Serve.Plan(), slog.New(slog.DiscardHandler)
	defer plan.Close(ctx, discard)
	if _, err := serve.NewLogger(io.Discard, o.Serve.LogLevel, o.Serve.LogFormat, true); err != nil {
		plan.Problems = slices.Insert(plan.Problems, 0, serve.Problem{Severity: skills.Error, Err: err})
	}
	plan.Probe(ctx, snapshot)
	var checks []check
	for _, problem := range plan.Problems {
		// The check of the skills says what is wrong with their roots.
		if !problem.OfRoots() {
			checks = append(checks, o.serveCheck(problem, &o.Serve.Process.Cfg))
		}
	}
	return append(checks, checkWorkspace(plan)...)
}

// serveCheck returns the line for a problem of the plan of a server.
func (o *doctorOptions) serveCheck(problem serve.Problem, cfg *config.Configuration) check {
	c := check{Verdict: fail, Area: "serve", Fact: strings.ReplaceAll(problem.Err.Error(), "\n", "; ")}
	if exit, ok := errors.AsType[*exitError](problem.Err); ok {
		c.Hint = cmp.Or(exit.Hint, systemHint(problem.Err), flagHint("skillsd doctor", o.Flags, exit.Flag))
	}
	taken := errors.Is(problem.Err, serve.AddressTaken)
	if problem.Severity == skills.Warning {
		c.Verdict = warn
	}
	if taken {
		// It may be the address of a server of this very configuration.
		c.Hint = "nothing is wrong if that is a server of this configuration; else: " + c.Hint
	}
	if taken || c.Verdict == fail {
		for _, note := range cfg.Notes(c.Fact) {
			c.Fact += "; " + note
		}
	}
	return c
}

func (o *doctorOptions) checkDirectories() []check {
	var checks []check
	for _, dir := range []struct {
		area, flag string
		find       func() (string, error)
	}{{"state", "--state", o.app.stateDir}, {"records", "--artifact-root", o.app.artifactDir}} {
		path, err := dir.find()
		if err == nil {
			err = writable(path)
		}
		if err != nil {
			checks = append(checks, check{Verdict: fail, Area: dir.area, Fact: err.Error(), Hint: "give " + dir.flag + " a directory of your own that can be written"})
			continue
		}
		checks = append(checks, check{Verdict: ok, Area: dir.area, Fact: path + " can be written", Hint: ""})
	}
	return checks
}

// writable tries to make a file in dir, or in its nearest parent when it is not there yet.
func writable(dir string) error {
	for {
		file, err := os.CreateTemp(dir, ".doctor-*")
		if err == nil {
			return errors.Join(file.Close(), os.Remove(file.Name()))
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, os.ErrNotExist) || parent == dir {
			return err
		}
		dir = parent
	}
}
