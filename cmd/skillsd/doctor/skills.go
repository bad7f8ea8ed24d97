package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	sh "github.com/skillsd/skillsd/skills/script"
)

// checkSkills checks roots, the skills in them and the scripts that are allowed to run. The snapshot is nil
// if the roots cannot be read.
//
// Errors: *exit.Error for a flag that cannot be read; the error of ctx.
func (o *Doctor) checkSkills(ctx context.Context, verdicts *serve.Judge) (*skills.Snapshot, []Check, error) {
	roots, options, err := (&config.ReaderOptions{Roots: o.Serve.Roots, Skills: o.Serve.Choice}).Resolve(
		o.Process)
	if usage, wrong := errors.AsType[*exit.Error](err); wrong {
		return nil, nil, usage
	}
	if err != nil {
		return nil, []Check{{Verdict: Fail, Area: "roots", Fact: err.Error(),
			Hint: "give --skills-root DIR"}}, nil
	}
	snapshot, err := skills.Scan(ctx, roots, options)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err != nil {
		return nil, []Check{{Verdict: Fail, Area: "roots", Fact: err.Error(),
			Hint: "mend or leave out the root"}}, nil
	}
	if len(roots) == 0 {
		return snapshot, []Check{{Verdict: Warn, Area: "roots", Fact: config.ErrNoRoots().Error(),
			Hint: "run: skillsd install SOURCE, or give --skills-root DIR"}}, nil
	}
	rows, err := report.NewSkillRows(ctx, snapshot, verdicts.Allow, o.Err)
	if err != nil {
		return nil, nil, err
	}
	checks := append(checkRoots(snapshot), checkScan(snapshot)...)
	for i := range rows {
		row := &rows[i]
		if row.State == string(skills.StateDisabled) {
			checks = append(checks, Check{Verdict: OK, Area: "skill",
				Fact: row.Path + " is not served: " + strings.Join(row.Reasons, ", ")})
		}
		checks = append(checks, diagnosticChecks(report.Notable(row.Path+"/", row.Diagnostics))...)
	}
	return snapshot, append(checks, o.checkAllowed(ctx, snapshot, verdicts)...), nil
}

func checkRoots(snapshot *skills.Snapshot) []Check {
	served, withheld := map[*skills.Root]int{}, map[*skills.Root]int{}
	for _, sk := range snapshot.Skills {
		served[sk.Root]++
	}
	for _, sk := range snapshot.Withheld {
		withheld[sk.Root]++
	}
	var checks []Check
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		if info, err := os.Stat(root.Dir); root.FS == nil && (err != nil || !info.IsDir()) {
			checks = append(checks, Check{Verdict: Warn, Area: "roots",
				Fact: root.Dir + " is missing or not a directory",
				Hint: "make it, or leave it out: " + report.ShellLine("mkdir", "-p", root.Dir)})
			continue
		}
		if unreadable := unreadableRoot(snapshot, root.Dir); unreadable != nil {
			checks = append(checks, Check{Verdict: Warn, Area: "roots",
				Fact: root.Dir + ": " + unreadable.Detail, Hint: unreadable.Code.Fix()})
			continue
		}
		fact := fmt.Sprintf("%s (%s): %s", root.Dir, root.Tier, report.Plural(served[root], "skill"))
		if n := withheld[root]; n > 0 {
			fact += fmt.Sprintf(", %d withheld", n)
		}
		checks = append(checks, Check{Verdict: OK, Area: "roots", Fact: fact})
	}
	return checks
}

// unreadableRoot is the diagnostic of a root that could not be read, or nil.
func unreadableRoot(snapshot *skills.Snapshot, dir string) *skills.Diagnostic {
	for i := range snapshot.Diagnostics {
		if d := &snapshot.Diagnostics[i]; d.Code == skills.CodeUnreadableRoot && d.Path == dir {
			return d
		}
	}
	return nil
}

// checkScan returns what the scan found wrong, except for roots that cannot be read.
func checkScan(snapshot *skills.Snapshot) []Check {
	left := slices.DeleteFunc(slices.Clone(snapshot.Diagnostics), func(d skills.Diagnostic) bool {
		return d.Code == skills.CodeUnreadableRoot &&
			slices.ContainsFunc(snapshot.Roots, func(root skills.Root) bool { return root.Dir == d.Path })
	})
	return diagnosticChecks(report.Diagnostics(left))
}

// diagnosticChecks returns the warnings and errors among diagnostics.
func diagnosticChecks(rows []report.Diagnostic) []Check {
	var checks []Check
	for _, row := range rows {
		if row.Severity != skills.Info {
			checks = append(checks, Check{Verdict: Warn, Area: "skill",
				Fact: report.ProblemLine(report.PlaceAt(row.Path, row.Line), string(row.Code), row.Detail,
					""), Hint: row.Fix})
		}
	}
	return checks
}

// checkAllowed says of every entry of the allowlist whether its script could be run.
func (o *Doctor) checkAllowed(ctx context.Context, snapshot *skills.Snapshot, verdicts *serve.Judge) []Check {
	path, _ := o.Process.Env("PATH")
	finder := detect.Interpreters(path)
	finder.Keep(o.Process.OwnPaths()...)
	var checks []Check
	for _, entry := range verdicts.Allow.Entries() {
		name := entry.Skill + ":" + entry.Path
		problem, hint := allowProblem(ctx, snapshot, entry, finder)
		if problem == "" && verdicts.Unreleased(entry) {
			problem, hint = serve.Unreleased(entry), serve.HintUnreleased
		}
		if denial := verdicts.Refuses(ctx, snapshot, entry); problem == "" && denial != nil {
			problem, hint = serve.RefusalText(denial), denial.Remedy
			if denial.Code == policy.CodeToolNotAllowed {
				problem, hint = "the tool that runs scripts is not offered",
					"run: skillsd allow --offer-tool "+report.ShellLine(name)
			}
		}
		if problem == "" {
			c := Check{Verdict: OK, Area: "allowlist", Fact: name + " may run"}
			if loose := serve.Looseness(entry); loose != "" &&
				o.Process.Cfg.OriginOf("allow-skill-script").Kind == config.FromFile {
				c.Fact, c.Hint = c.Fact+"; "+loose,
					"pin what is there now, after reading it: skillsd allow "+report.ShellLine(name)
			}
			checks = append(checks, c)
			continue
		}
		checks = append(checks, Check{Verdict: Warn, Area: "allowlist",
			Fact: name + " cannot run: " + problem, Hint: hint})
	}
	return checks
}

func allowProblem(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry,
	finder *detect.Finder) (problem, hint string) {
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		for _, withheld := range snapshot.Withheld {
			if withheld.Path == entry.Skill {
				return "the skill is not served: " + strings.Join(snapshot.Status(withheld).Reasons, ", "), ""
			}
		}
		hint := "use a path that `skillsd list` prints"
		if suggestion := snapshot.NotFound(entry.Skill).Suggestion; suggestion != "" {
			hint = "did you mean " + suggestion + "?"
		}
		return "there is no such skill", hint
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return err.Error(), skills.CodeUnreadableDir.Fix()
	}
	r := index.Resource(entry.Path)
	switch {
	case r == nil || r.Script == nil:
		return "the skill has no such script",
			"`skillsd show " + report.ShellLine(sk.Path) + "` lists its scripts"
	case entry.Changed(r.Digest, index.TreeDigest) == policy.TreeChanged:
		return "other files of its skill changed since it was allowed: the digest of its tree is " +
				index.TreeDigest.String(),
			"review the skill and allow the script again: skillsd allow " + serve.ShellName(entry)
	case entry.Changed(r.Digest, index.TreeDigest) != policy.Unchanged:
		return "it changed since it was allowed: its digest is " + r.Digest.String(),
			"read the script and allow it again: skillsd allow " + serve.ShellName(entry)
	case r.Script.Runtime == "":
		return r.Script.Problem, serve.HintRuntime
	}
	if found, err := finder.Find(ctx, string(r.Script.Runtime)); found == nil || err != nil {
		return "there is no usable " + string(r.Script.Runtime),
			"install " + string(r.Script.Runtime) + " from your distribution"
	}
	return "", ""
}

// checkSandbox tries every backend and finds the interpreters.
func (o *Doctor) checkSandbox(ctx context.Context) []Check {
	path, _ := o.Process.Env("PATH")
	checks := backendChecks(detect.Survey(ctx, &detect.Options{Path: path}), o.Serve.Sandbox)
	runner, _, err := detect.Select(ctx, o.Serve.Sandbox, &detect.Options{Path: path})
	switch {
	case !slices.Contains(detect.Names(), o.Serve.Sandbox):
		// The checks of serve already report the unknown word.
	case err != nil:
		checks = append(checks, Check{Verdict: Fail, Area: "sandbox",
			Fact: "scripts cannot run: " + err.Error(),
			Hint: "mend one of the backends above; everything else works"})
	default:
		checks = append(checks, Check{Verdict: OK, Area: "sandbox", Fact: "scripts run in " + runner.Name()})
	}
	// The file exists on Linux only; without it the pattern is empty and nothing is checked.
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	checks = append(checks, coreChecks(string(pattern))...)
	finder := detect.Interpreters(path)
	finder.Keep(o.Process.OwnPaths()...)
	for _, in := range sh.Interpreters() {
		checks = append(checks, interpreterCheck(ctx, finder, string(in.Runtime)))
	}
	return checks
}

// coreChecks warns of a host that sends the memory of crashed processes to a socket, since a limit on core
// files does not stop that.
func coreChecks(pattern string) []Check {
	if !strings.HasPrefix(pattern, "@") {
		return nil
	}
	return []Check{{
		Verdict: Warn, Area: "sandbox",
		Fact: "the host's crash handler is told of every script that crashes: its memory is left out, its " +
			"registers and the start of its command line are not",
		Hint: "have core files written or piped: sysctl kernel.core_pattern=core",
	}}
}

// backendChecks has a line for each backend. One that cannot be used is a warning only where nothing
// else that want allows can.
func backendChecks(reports []detect.Report, want string) []Check {
	var checks []Check
	usable := map[string]bool{}
	for _, r := range reports {
		usable[r.Name] = r.OK
		usable[detect.Auto] = usable[detect.Auto] || r.OK && r.Automatic
	}
	for _, r := range reports {
		c := Check{Verdict: OK, Area: "sandbox", Fact: r.Name + ": " + r.Fact, Hint: r.Hint, Backend: r.Name,
			Enforces: r.Enforces}
		switch {
		case !r.OK && (want == r.Name || want == detect.Auto && !usable[detect.Auto]):
			c.Verdict = Warn
		case !r.OK:
			c.Fact = r.Name + " is not usable and not needed: " + r.Fact
		case r.Enforces.Memory == native.MemorySampled:
			c.Hint = "a burst of memory may pass the limit for 20 ms, and some of the kernel's own is not " +
				"counted: run the server as root, or where it may make control groups with the memory and " +
				"pids controllers"
		}
		checks = append(checks, c)
	}
	return checks
}

func interpreterCheck(ctx context.Context, finder *detect.Finder, name string) Check {
	found, err := finder.Find(ctx, name)
	c := Check{Area: "interpreter"}
	switch {
	case err != nil:
		c.Verdict, c.Fact, c.Hint = Warn, name+": "+err.Error(), "install "+name+" from your distribution"
	case found == nil:
		c.Verdict, c.Fact, c.Hint = Warn, name+": not found", "install "+name+" if skills need it"
	default:
		c.Verdict = OK
		c.Fact = strings.Join(strings.Fields(
			fmt.Sprintf("%s: %s %s %s", name, found.Path, found.Version, found.Digest)), " ")
		if len(found.Mounts) > 0 {
			c.Fact += ", its scripts can read " + strings.Join(found.Mounts, ", ")
		}
	}
	return c
}
