// Package doctor checks everything that a server needs on this machine, and gives advice for each problem.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
)

// Doctor checks the needs of a server with some options.
type Doctor struct {
	Process *config.Process
	Serve   *serve.Options
	Flags   *pflag.FlagSet // of serve, as given to doctor
	Err     io.Writer      // progress, on a terminal
	// FlagHint names the command with the help of a flag.
	FlagHint func(flag string) string
	// Thorough verifies all installed skills, however long that takes, and reports every problem.
	Thorough bool

	needed map[string]bool // interpreters that scripts of the skills need
}

// Check is one line of the doctor's output.
type Check struct {
	Verdict string `json:"verdict"` // ok, warn or fail
	Area    string `json:"area"`
	Fact    string `json:"fact"`
	Hint    string `json:"hint,omitempty"`

	Script   string           `json:"script,omitempty"`   // the allowed script that is checked
	Backend  string           `json:"backend,omitempty"`  // the sandbox backend that is checked
	Enforces *detect.Enforces `json:"enforces,omitempty"` // how it enforces limits on this machine

	// brief replaces the fact in the short output, which omits details.
	brief  string
	detail bool
	remark bool // it is printed in one line, with the hint

	file   string // of a skill, that a remark is about; the short output has one remark about each
	skills int    // of a root, also those that are not served
}

// The verdicts.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// Label returns the area in the words of a user.
func (c *Check) Label() string {
	return cmp.Or(map[string]string{"roots": "skills", "allowlist": "allowed"}[c.Area], c.Area)
}

func ok(area, fact string) Check { return Check{Verdict: OK, Area: area, Fact: fact} }

func warn(area, fact, hint string) Check {
	return Check{Verdict: Warn, Area: area, Fact: fact, Hint: hint}
}

func fail(area, fact, hint string) Check {
	return Check{Verdict: Fail, Area: area, Fact: fact, Hint: hint}
}

// Broken runs the checks that need no configuration, after err, the error of reading it.
//
// Errors: the error of ctx.
func (o *Doctor) Broken(ctx context.Context, err error) ([]Check, error) {
	c := fail("configuration", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "configuration "),
		"\n", "; "), "")
	if failed, ok := errors.AsType[*exit.Error](err); ok {
		c.Hint = cmp.Or(failed.Hint, exit.SystemHint(err), o.FlagHint(failed.Flag))
	}
	c.Fact += "; what depends on it was not checked"
	checks := slices.Concat([]Check{c}, o.checkInstalled(ctx), o.checkSandbox(ctx), o.checkDirectories())
	return checks, ctx.Err()
}

// Checks runs all checks. It changes nothing.
//
// Errors: *exit.Error for a flag that cannot be read; the error of ctx.
func (o *Doctor) Checks(ctx context.Context) ([]Check, error) {
	// If the options are invalid, the roots are known, but a server cannot be planned.
	serving, wrong := o.Serve, o.Serve.Configure(o.Flags)
	if wrong != nil {
		serving = nil
	}
	verdicts, err := serve.JudgeFor(o.Process, serving, o.Serve.AllowScripts)
	if err != nil {
		return nil, err
	}
	snapshot, found, err := o.checkSkills(ctx, verdicts)
	if err != nil {
		return nil, err
	}
	var refused []Check
	if wrong != nil {
		refused = []Check{o.serveCheck(serve.Problem{Severity: skills.Error, Err: wrong}, &o.Process.Cfg)}
	} else {
		refused = o.checkPlan(ctx, snapshot)
	}
	// After an interrupt the checks would report canceled operations as faults of the machine.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	usable := !slices.ContainsFunc(refused, func(c Check) bool { return c.Verdict == Fail })
	return slices.Concat(
		o.checkConfiguration(usable), refused, found, o.checkClients(ctx), o.checkInstalled(ctx),
		o.checkVerifier(), o.checkSandbox(ctx), o.checkEnvironments(ctx),
		o.checkDirectories(),
	), nil
}

// checkPlan returns the problems of the plan that serve would run. It writes nothing, and releases addresses
// immediately after listening on them.
func (o *Doctor) checkPlan(ctx context.Context, snapshot *skills.Snapshot) []Check {
	// The plan is the one that serve would run, so that both find the same problems.
	plan, discard := o.Serve.Plan(), slog.New(slog.DiscardHandler)
	defer plan.Close(ctx, discard)
	if _, err := serve.NewLogger(io.Discard, o.Serve.LogLevel, o.Serve.LogFormat, true); err != nil {
		plan.Problems = slices.Insert(plan.Problems, 0, serve.Problem{Severity: skills.Error, Err: err})
	}
	plan.Probe(ctx, snapshot)
	var checks []Check
	for _, problem := range plan.Problems {
		// The check of the skills reports problems of their roots.
		if !problem.OfRoots {
			checks = append(checks, o.serveCheck(problem, &o.Serve.Process.Cfg))
		}
	}
	// An invalid plan may lack the address or the key of the cluster.
	if o.Serve.Cluster.Enabled() && plan.Err() == nil {
		checks = append(checks, checkCluster(ctx, plan, snapshot)...)
	}
	return append(checks, checkWorkspace(plan)...)
}

// serveCheck returns the line for a problem of the plan.
func (o *Doctor) serveCheck(problem serve.Problem, cfg *config.Configuration) Check {
	c := Check{Verdict: Fail, Area: "serve", Fact: strings.ReplaceAll(problem.Err.Error(), "\n", "; ")}
	if failed, ok := errors.AsType[*exit.Error](problem.Err); ok {
		c.Hint = cmp.Or(failed.Hint, exit.SystemHint(problem.Err), o.FlagHint(failed.Flag))
	}
	taken := errors.Is(problem.Err, serve.AddressTaken) || errors.Is(problem.Err, filestore.ErrServing)
	if problem.Severity == skills.Warning {
		c.Verdict = Warn
	}
	if taken {
		// The address may be in use by a server of this configuration.
		c.Hint = "nothing is wrong if that is a server of this configuration; else: " + c.Hint
	}
	if taken || c.Verdict == Fail {
		for _, note := range cfg.Notes(c.Fact) {
			c.Fact += "; " + note
		}
	}
	return c
}

func (o *Doctor) checkDirectories() []Check {
	var checks []Check
	for _, dir := range []struct {
		area, flag string
		find       func() (string, error)
	}{{"state", "--state", o.Process.StateDir}, {"records", "--artifact-root", o.Process.ArtifactDir}} {
		path, err := writable(dir.find)
		if err != nil {
			checks = append(checks, fail(dir.area, err.Error(),
				"give "+dir.flag+" a writable directory of your own"))
			continue
		}
		c := ok(dir.area, path+" can be written")
		c.detail = true
		checks = append(checks, c)
	}
	return checks
}

// writable returns the directory that find returns, after it has created and removed a file in it, or in its
// nearest existing parent.
func writable(find func() (string, error)) (string, error) {
	path, err := find()
	if err != nil {
		return "", err
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		// Mode bits do not show read-only mounts, quotas and access control lists, so a file is really made.
		file, err := os.CreateTemp(dir, ".doctor-*")
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
			continue
		}
		if err != nil {
			return "", err
		}
		return path, errors.Join(file.Close(), os.Remove(file.Name()))
	}
}

// checkConfiguration reports which file was read, and which variables and secrets of its entries are missing
// or unreadable. usable is set if serve accepts the file.
func (o *Doctor) checkConfiguration(usable bool) []Check {
	const area = "configuration"
	cfg := &o.Process.Cfg
	if cfg.File == "" {
		fact := "no file"
		if path, err := o.Process.ConfigPath(); err == nil && path != "" {
			fact = "no file at " + path
		}
		return []Check{ok(area, fact)}
	}
	fact := cfg.File + " is read"
	if usable {
		fact = cfg.File + " can be used"
	}
	checks := []Check{ok(area, fact)}
	var secrets, variables []string
	for _, entry := range cfg.Keys.Allow {
		secrets, variables = append(secrets, entry.Secrets...), append(variables, entry.Env...)
	}
	slices.Sort(variables)
	for _, name := range slices.Compact(variables) {
		if _, set := o.Process.Env(name); !set {
			checks = append(checks, warn(area,
				"scripts are to get the variable "+name+", which is not set here",
				"set it where the server is started, or remove it from allow"))
		}
	}
	slices.Sort(secrets)
	for _, name := range slices.Compact(secrets) {
		if _, err := o.Process.Secret(name); err != nil {
			checks = append(checks, warn(area, "the secret "+name+" cannot be read: "+err.Error(),
				"correct its source in secrets; scripts that need it do not run"))
		}
	}
	return checks
}
