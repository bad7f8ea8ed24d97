package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

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
	options, wrong := o.serve()
	verdicts, err := serve.JudgeFor(&o.app.Process, options, o.Serve.AllowScripts)
	if err != nil {
		return err
	}
	found, err := o.checkSkills(ctx, verdicts)
	if err != nil {
		return err
	}
	var refused []check
	if wrong != nil {
		refused = []check{o.refusal(wrong, &o.app.Cfg)}
	} else {
		refused = append(o.checkServe(ctx, options), o.checkWorkspace(options)...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	checks := append(o.checkConfiguration(!slices.ContainsFunc(refused, func(c check) bool { return c.Verdict == fail })), refused...)
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
