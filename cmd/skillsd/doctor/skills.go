package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/owners"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	sh "github.com/skillsd/skillsd/skills/script"
)

// checkSkills checks roots, the skills in them and the allowed scripts. The snapshot is nil if the roots
// cannot be read.
//
// Errors: *exit.Error for a flag that cannot be read; the error of ctx.
func (o *Doctor) checkSkills(ctx context.Context, verdicts *serve.Judge) (*skills.Snapshot, []Check, error) {
	roots, options, err := (&config.ReaderOptions{Roots: o.Serve.Roots, Skills: o.Serve.Choice}).Resolve(
		o.Process)
	if usage, wrong := errors.AsType[*exit.Error](err); wrong {
		return nil, nil, usage
	}
	if err != nil {
		return nil, []Check{fail("roots", err.Error(), "give --skills-root DIR")}, nil
	}
	snapshot, err := config.Scan(ctx, o.Process, roots, options)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err != nil {
		const hint = "correct the directory of skills, or leave it out"
		return nil, []Check{fail("roots", err.Error(), hint)}, nil
	}
	if len(roots) == 0 {
		none := o.Serve.Roots.NoRoots(o.Process)
		return snapshot, append([]Check{warn("roots", none.Error(), none.Hint)},
			o.checkAllowed(ctx, snapshot, verdicts)...), nil
	}
	rows, err := report.NewSkillRows(ctx, snapshot, verdicts.Allow, o.Err)
	if err != nil {
		return nil, nil, err
	}
	o.needed = map[string]bool{}
	checks := checkRoots(snapshot, len(o.Serve.Roots.Specs) == 0)
	var programs []string
	for i := range rows {
		row := &rows[i]
		for _, script := range row.Scripts {
			o.needed[script.Runtime] = true
		}
		// Code outside scripts/ runs only if an entry allows it; other code needs no interpreter here.
		for _, script := range row.Code {
			if script.Allowed {
				o.needed[script.Runtime] = true
			}
		}
		if row.State == string(skills.StateDisabled) {
			checks = append(checks, ok("skill", row.Path+" is not served: "+strings.Join(row.Reasons, ", ")))
		}
		checks = append(checks, diagnosticChecks(report.Notable(row.Path+"/", row.Diagnostics))...)
		for _, program := range row.OtherPrograms() {
			programs = append(programs, row.Path+"/"+program)
		}
	}
	if n := len(programs); n > 0 {
		fact := "programs outside scripts/ that are not allowed: " + strings.Join(programs[:min(n, 5)], ", ")
		if n > 5 {
			fact += fmt.Sprintf(", %d more (skillsd show SKILL)", n-5)
		}
		c := ok("skill", fact)
		c.Hint = report.HintPrograms
		checks = append(checks, c)
	}
	return snapshot, append(checks, o.checkAllowed(ctx, snapshot, verdicts)...), nil
}

// checkRoots reports, for each root, whether it is readable and who else can write it, then the scan's
// findings. conventional is set unless the operator named roots.
func checkRoots(snapshot *skills.Snapshot, conventional bool) []Check {
	served, withheld := map[*skills.Root]int{}, map[*skills.Root]int{}
	for _, sk := range snapshot.Skills {
		served[sk.Root]++
	}
	for _, sk := range snapshot.Withheld {
		withheld[sk.Root]++
	}
	unreadable := map[string]skills.Diagnostic{}
	for _, d := range snapshot.Diagnostics {
		if d.Code == skills.CodeUnreadableRoot {
			unreadable[d.Path] = d
		}
	}
	var checks []Check
	look, all := owners.New(), slices.Concat(snapshot.Skills, snapshot.Withheld, snapshot.Shadowed)
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		failure, failed := unreadable[root.Dir]
		switch {
		// An archive is a file, and its root has a file system of its own.
		case root.FS == nil && !config.IsDir(root.Dir):
			checks = append(checks, warn("roots", root.Dir+" is missing or not a directory",
				"make it, or leave it out: "+report.ShellLine("mkdir", "-p", root.Dir)))
		case failed:
			checks = append(checks, warn("roots", root.Dir+": "+failure.Detail, failure.Fix()))
		default:
			found := checkRoot(root, served[root], withheld[root], look.Root(root, all, true))
			// A conventional directory without skills, such as one named skills in Go sources, is only a
			// detail.
			found[0].detail = conventional && found[0].skills == 0
			checks = append(checks, found...)
		}
	}
	for _, d := range snapshot.Diagnostics {
		isRoot := func(root skills.Root) bool { return root.Dir == d.Path }
		// The loop above reported the unreadable roots.
		if d.Code != skills.CodeUnreadableRoot || !slices.ContainsFunc(snapshot.Roots, isRoot) {
			checks = append(checks, diagnosticChecks(report.Diagnostics([]skills.Diagnostic{d}))...)
		}
	}
	return checks
}

// checkRoot reports how many skills a root has, and who else can change them.
func checkRoot(root *skills.Root, served, withheld int, others string) []Check {
	fact := fmt.Sprintf("%s (%s): %s", root.Dir, root.Tier, report.Plural(served, "skill"))
	if withheld > 0 {
		fact += fmt.Sprintf(", %d withheld", withheld)
	}
	c := ok("roots", fact)
	c.skills = served + withheld
	if others == "" {
		return []Check{c}
	}
	// Skills of the least trusted tier are not trusted anyway, so a warning is not needed.
	if root.Tier == skills.LeastTrusted() {
		c.Fact += "; others can change them: " + others
		return []Check{c}
	}
	return []Check{c, warn("roots", fmt.Sprintf("others can change the %s skills of %s: %s",
		root.Tier, root.Dir, others), owners.Hint(root))}
}

// diagnosticChecks returns the warnings and errors among diagnostics.
func diagnosticChecks(rows []report.Diagnostic) []Check {
	var checks []Check
	for _, row := range rows {
		if row.Severity != skills.Info {
			location := report.Location(row.Path, row.Line)
			c := warn("skill", report.ProblemLine(location, string(row.Code), row.Detail, ""), row.Fix)
			c.remark, c.file = true, row.Path
			checks = append(checks, c)
		}
	}
	return checks
}

// checkAllowed reports for each entry of the allowlist whether its script can run.
func (o *Doctor) checkAllowed(ctx context.Context, snapshot *skills.Snapshot, verdicts *serve.Judge) []Check {
	looker := &environments.Looker{Process: o.Process, Sandbox: o.Serve.Sandbox}
	// The checks of the environments report the error.
	unmade, _ := o.unmade(ctx)
	state, lock := o.installed()
	var checks []Check
	for _, entry := range verdicts.Allow.Entries() {
		a := &allowedCheck{doctor: o, entry: entry,
			state: serve.EntryState(ctx, snapshot, entry, lock.In(state))}
		a.problem, a.hint = a.state.Detail, a.state.Hint
		switch a.state.State {
		case serve.StateMissing:
			if !a.inFile() {
				a.hint = "leave it out of --allow-skill-script"
			}
		case serve.StateAllowed, serve.StateUnpinned:
			found, err := looker.Interpreter(ctx, entry, a.state.Runtime)
			if found != nil {
				a.state.Program, a.version = found.Path, found.Version
			}
			a.problem, a.hint = a.obstacle(found, err, unmade[entry.Environment], verdicts,
				verdicts.Refuses(ctx, snapshot, entry))
		}
		sk := snapshot.Skill(entry.Skill)
		asks := a.problem == "" && verdicts.Asks(ctx, snapshot, entry)
		checks = append(checks, a.check(ctx, looker, sk, asks))
		why := sh.NoProxy(a.state.Runtime, a.version)
		if why != "" && len(entry.Network) > 0 && a.problem == "" {
			checks = append(checks, warn("allowlist",
				a.state.Script+" does not reach the hosts of its entry: "+why,
				"install a later version of "+string(a.state.Runtime)+", or let the script use curl"))
		}
		if entry.Target == policy.TargetHost {
			checks = append(checks, checkPrograms(sk, entry)...)
		}
	}
	return checks
}

// allowedCheck is the check of one entry of the allowlist.
type allowedCheck struct {
	doctor        *Doctor
	entry         policy.Entry
	state         serve.AllowRow
	problem, hint string // why the script cannot run, and what to do; empty if it can
	version       string // of its interpreter
}

// inFile reports whether the entry is in the configuration's file.
func (a *allowedCheck) inFile() bool {
	return a.doctor.Process.Cfg.OriginOf("allow-skill-script").Kind == config.FromFile
}

// obstacle returns why a script with the allowed bytes cannot run, and what to do. found is its interpreter,
// or nil with err; unmade is what its environment lacks, denial the answer of the policy.
func (a *allowedCheck) obstacle(
	found *sandbox.Interpreter, err error, unmade string, verdicts *serve.Judge, denial *policy.Denial,
) (problem, hint string) {
	environment := a.entry.Environment
	switch {
	case unmade != "":
		return "its environment " + environment + " is " + unmade,
			"run: skillsd env sync " + report.ShellLine(environment)
	case found == nil || err != nil:
		return environments.Lacking(a.state.Runtime, found, err)
	case verdicts.Unreleased(a.entry):
		return serve.Unreleased(a.entry), serve.HintUnreleased
	case denial != nil && denial.Code == policy.CodeToolNotAllowed:
		return "the tool that runs scripts is not offered", "run: skillsd allow " + serve.ShellName(a.entry)
	case denial != nil:
		return serve.RefusalText(denial), denial.Operator
	}
	return "", ""
}

// check reports whether the script can run, and what it would lack. asks is whether the user is asked first.
func (a *allowedCheck) check(
	ctx context.Context, looker *environments.Looker, sk *skills.Skill, asks bool,
) Check {
	name := a.state.Script
	named := func(c Check) Check {
		c.Script = name
		return c
	}
	if a.problem != "" {
		words := " cannot run: "
		if a.hint == serve.HintUnreleased {
			words = " cannot run in a client: "
		}
		return named(warn("allowlist", name+words+a.problem, a.hint))
	}
	if sk != nil {
		found, err := looker.Look(ctx, sk, a.entry)
		if lacks := found.Text(); err == nil && lacks != "" {
			return named(warn("allowlist", name+" may run, and "+lacks, found.Hint()))
		}
	}
	client := clients.Named(a.doctor.Serve.Roots.Client)
	if asks && client != nil && client.Asks == clients.No {
		return named(warn("allowlist", name+" runs only after an approval elsewhere: "+client.Title+
			" cannot ask the user", "let it run without asking: skillsd allow "+serve.ShellName(a.entry)+
			" --ask never; for one call: skillsd approve CODE"))
	}
	c := named(ok("allowlist", name+" may run "+a.state.Means()))
	if asks {
		c.Fact += ", where the client can ask the user"
	}
	loose := serve.Looseness(a.entry)
	if loose == "" || !a.inFile() {
		return c
	}
	c.Fact += "; " + loose
	c.Hint = "pin what is there now, after reading it: skillsd allow " + serve.ShellName(a.entry)
	if a.entry.PinScript {
		c.Hint = "to pin these files too, remove pin: script, then: skillsd allow " + serve.ShellName(a.entry)
	}
	return c
}

// checkPrograms reports where a script on the host finds the programs in the requirements and allowed-tools
// of its skill.
func checkPrograms(sk *skills.Skill, entry policy.Entry) (checks []Check) {
	name := serve.ScriptName(entry)
	for _, dir := range entry.SearchPath {
		if !config.IsDir(dir) {
			checks = append(checks, warn("allowlist", name+": path names "+dir+", which is not a directory",
				"make it, or take it out of path"))
		}
	}
	if sk == nil {
		return checks
	}
	programs := slices.Concat(sk.Frontmatter.Requires.Commands, policy.Programs(sk.Frontmatter.AllowedTools))
	slices.Sort(programs)
	for _, program := range slices.Compact(programs) {
		if path := detect.Command(session.HostPath(entry), "", program); path != "" {
			checks = append(checks, ok("allowlist", name+" finds "+program+" at "+path))
		} else {
			checks = append(checks, warn("allowlist", name+" does not find "+program+" on the host",
				"name the directory of "+program+" in path of its entry"))
		}
	}
	return checks
}

// checkSandbox tests every backend and finds the interpreters.
func (o *Doctor) checkSandbox(ctx context.Context) []Check {
	if pool := o.Serve.Cluster.Pool; pool != "" && o.Serve.Cluster.Enabled() && o.Serve.HTTP.Enabled() {
		return []Check{ok("sandbox", "scripts run at the workers of pool "+pool+
			", where `skillsd doctor` without --pool looks at the sandbox")}
	}
	path, _ := o.Process.Env("PATH")
	uids, err := o.Serve.UIDs()
	if err != nil {
		// The checks of serve report it.
		uids = native.DefaultUIDs()
	}
	opts := &detect.Options{Path: path, Writable: o.Process.Writable(),
		Native: &native.Options{UIDs: uids}}
	checks := backendChecks(detect.Survey(ctx, opts), o.Serve.Sandbox)
	runner, _, err := detect.Select(ctx, o.Serve.Sandbox, opts)
	switch {
	case !slices.Contains(detect.Names(), o.Serve.Sandbox):
		// The checks of serve report the unknown word.
	case err != nil:
		hint := "follow the hint of one of the backends; no script runs without one"
		unavailable, ok := errors.AsType[*sandbox.UnavailableError](err)
		warned := func(c Check) bool { return c.Verdict == Warn }
		// Without a warning, no backend above has a hint for this.
		if ok && !slices.ContainsFunc(checks, warned) {
			hint = unavailable.Remedy
		}
		checks = append(checks, fail("sandbox", "scripts cannot run: "+err.Error(), hint))
	default:
		fact := "scripts run in " + runner.Name()
		if os.Geteuid() == 0 {
			fact += ", each run as a user of its own of " + uids.String()
		}
		checks = append(checks, ok("sandbox", fact))
	}
	// The file exists on Linux only; elsewhere pattern is empty and nothing is checked.
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	checks = append(checks, coreChecks(string(pattern))...)
	finder := o.Process.Interpreters()
	finder.UIDs = uids
	for _, in := range sh.Interpreters() {
		found, err := finder.Find(ctx, string(in.Runtime))
		checks = append(checks, o.interpreterChecks(string(in.Runtime), found, err)...)
	}
	return checks
}

// interpreterChecks reports on the interpreter that was found for a runtime; found is nil if none was.
func (o *Doctor) interpreterChecks(name string, found *sandbox.Interpreter, err error) []Check {
	if err != nil {
		return []Check{warn("interpreter", name+": "+err.Error(), "install "+name+" from your "+
			"distribution, or name a usable one in interpreters of the configuration")}
	}
	if found == nil && o.needed[name] {
		return []Check{warn("interpreter", name+": not found", "install "+name+", which a skill here needs")}
	}
	if found == nil {
		// A missing interpreter is a fault only if a script here would use it.
		c := ok("interpreter", name+": not found, and no skill here needs it")
		c.detail = true
		return []Check{c}
	}
	fact := strings.Join(strings.Fields(
		fmt.Sprintf("%s: %s %s %s", name, found.Path, found.Version, found.Digest)), " ")
	venv := found.Venv
	if venv != nil {
		fact += fmt.Sprintf(", the virtual environment of %s with %s", venv.Base,
			report.Plural(venv.Packages, "package"))
	}
	if len(found.Mounts) > 0 {
		fact += ", its scripts can read " + strings.Join(found.Mounts, ", ")
	}
	c := ok("interpreter", fact)
	c.brief = name
	checks := []Check{c}
	if venv != nil && len(venv.Elsewhere) > 0 {
		checks = append(checks, warn("interpreter", name+": packages of "+venv.Dir+" that lie elsewhere "+
			"are not there for scripts: "+strings.Join(venv.Elsewhere, ", "),
			"install them without --editable"))
	}
	return checks
}

// coreChecks warns of a host that sends the memory of crashed processes to a socket.
func coreChecks(pattern string) []Check {
	// The limit of core files does not apply to a socket.
	if !strings.HasPrefix(pattern, "@") {
		return nil
	}
	return []Check{warn("sandbox", "the host's crash handler is told of every script that crashes: "+
		"its memory is left out, its registers and the start of its command line are not",
		"have core files written or piped: sysctl kernel.core_pattern=core")}
}

// backendChecks returns a line for each backend. An unusable backend is a warning only if no other backend
// allowed by want is usable.
func backendChecks(reports []detect.Report, want string) []Check {
	var checks []Check
	usable := slices.ContainsFunc(reports, func(r detect.Report) bool { return r.OK && r.Automatic })
	for _, r := range reports {
		c := ok("sandbox", r.Name+": "+r.Fact)
		c.Hint, c.Backend, c.Enforces, c.detail = r.Hint, r.Name, r.Enforces, true
		switch {
		case !r.OK && (want == r.Name || want == detect.Auto && !usable):
			c.Verdict, c.detail = Warn, false
		case !r.OK:
			c.Fact = r.Name + " is not usable and not needed: " + r.Fact
		case r.Enforces.Memory == native.MemorySampled:
			c.Hint = "a burst of memory may pass the limit for 20 ms, and some of the kernel's own is not " +
				"counted: run the server as a service of systemd with Delegate=cpu memory pids, or, where " +
				"control groups are of version 1, as root"
		}
		checks = append(checks, c)
	}
	return checks
}
