package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	app     *app
	Roots   rootOptions
	Sandbox string
	JSON    bool
}

// check is one line of the doctor.
type check struct {
	Verdict string `json:"verdict"` // ok, warn or fail
	Area    string `json:"area"`
	Fact    string `json:"fact"`
	Hint    string `json:"hint,omitempty"`
}

const (
	ok   = "ok"
	warn = "warn"
	fail = "fail"
)

func newDoctorCmd(a *app) *cobra.Command {
	opts := &doctorOptions{app: a}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check roots, skills, sandbox, interpreters and directories, and say what would mend them",
		Args:  cobra.NoArgs,
		RunE:  runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	opts.Roots.register(cmd.Flags())
	cmd.Flags().StringVar(&opts.Sandbox, "sandbox", "auto", "sandbox backend to check")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *doctorOptions) run(ctx context.Context) error {
	checks := o.checkSkills(ctx)
	checks = append(checks, o.checkSandbox(ctx)...)
	checks = append(checks, o.checkDirectories()...)
	if o.JSON {
		if err := writeJSON(o.app.out, checks); err != nil {
			return err
		}
	}
	failed := false
	for _, c := range checks {
		failed = failed || c.Verdict == fail
		if o.JSON {
			continue
		}
		fmt.Fprintf(o.app.out, "%s %s: %s\n", c.Verdict, c.Area, printable(c.Fact))
		if c.Hint != "" {
			fmt.Fprintf(o.app.out, "hint: %s\n", printable(c.Hint))
		}
	}
	if failed {
		return &exitError{Code: exitProblems}
	}
	return nil
}

func (o *doctorOptions) checkSkills(ctx context.Context) []check {
	roots, err := o.Roots.resolve(o.app)
	if err != nil {
		return []check{{fail, "roots", err.Error(), "give --skills-root DIR"}}
	}
	if len(roots) == 0 {
		return []check{{warn, "roots", "no skills root given and none of the conventional ones exists", "give --skills-root DIR"}}
	}
	snapshot, err := skills.Scan(ctx, roots, o.Roots.scanOptions())
	if err != nil {
		return []check{{fail, "roots", err.Error(), "mend or leave out the root"}}
	}
	var checks []check
	for _, root := range snapshot.Roots {
		count := 0
		for _, sk := range snapshot.Skills {
			if sk.Root.Dir == root.Dir {
				count++
			}
		}
		if info, err := os.Stat(root.Dir); err != nil || !info.IsDir() {
			checks = append(checks, check{warn, "roots", root.Dir + " is missing or not a directory", "make it, or leave it out"})
			continue
		}
		checks = append(checks, check{ok, "roots", fmt.Sprintf("%s (%s): %d skills", root.Dir, root.Tier, count), ""})
	}
	checks = append(checks, diagnosticChecks("", snapshot.Diagnostics)...)
	for _, sk := range snapshot.Skills {
		diagnostics := sk.Diagnostics
		if index, err := sk.Index(ctx); err == nil {
			diagnostics = append(append([]skills.Diagnostic{}, diagnostics...), index.Diagnostics...)
		} else {
			checks = append(checks, check{warn, "skill", sk.Path + ": " + err.Error(), "make its files readable"})
		}
		checks = append(checks, diagnosticChecks(sk.Path+"/", diagnostics)...)
	}
	return checks
}

// diagnosticChecks are the warnings and errors of diagnostics, whose paths are put below prefix.
func diagnosticChecks(prefix string, diagnostics []skills.Diagnostic) []check {
	var checks []check
	for _, d := range diagnostics {
		if d.Severity == skills.Info {
			continue
		}
		place := prefix + d.Path
		if d.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, d.Line)
		}
		checks = append(checks, check{warn, "skill", fmt.Sprintf("%s: %s (%s)", place, d.Detail, d.Code), ""})
	}
	return checks
}

func (o *doctorOptions) checkSandbox(ctx context.Context) []check {
	var checks []check
	runner, reports, err := detect.Select(ctx, o.Sandbox, nil)
	for _, report := range reports {
		verdict := ok
		if !report.OK {
			verdict = warn
		}
		checks = append(checks, check{verdict, "sandbox", report.Name + ": " + report.Fact, report.Hint})
	}
	switch {
	case err != nil:
		checks = append(checks, check{fail, "sandbox", "scripts cannot run: " + err.Error(), "mend one of the backends above; everything else works"})
	default:
		checks = append(checks, check{ok, "sandbox", "scripts run in " + runner.Name(), ""})
	}
	path, _ := o.app.env("PATH")
	finder := detect.Interpreters(path)
	for _, name := range []string{"bash", "sh", "python3", "node", "deno"} {
		found, err := finder.Find(ctx, name)
		switch {
		case err != nil:
			checks = append(checks, check{warn, "interpreter", name + ": " + err.Error(), "install " + name + " from your distribution"})
		case found == nil:
			checks = append(checks, check{warn, "interpreter", name + ": not found", "install " + name + " if skills need it"})
		default:
			checks = append(checks, check{ok, "interpreter", strings.Join(strings.Fields(fmt.Sprintf("%s: %s %s %s", name, found.Path, found.Version, found.Digest)), " "), ""})
		}
	}
	return checks
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
			checks = append(checks, check{fail, dir.area, err.Error(), "give " + dir.flag + " a directory that can be written"})
			continue
		}
		checks = append(checks, check{ok, dir.area, path + " can be written", ""})
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
