package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// checkSkills checks roots, the skills in them and what is allowed to run. The snapshot is nil if there is none.
//
// Errors: a flag that cannot be read; those of ctx.
func (o *doctorOptions) checkSkills(ctx context.Context, verdicts *serve.Judge) (*skills.Snapshot, []check, error) {
	roots, options, err := (&config.ReaderOptions{Roots: o.Serve.Roots, Skills: o.Serve.Choice}).Resolve(&o.app.Process)
	if usage, wrong := errors.AsType[*exitError](err); wrong {
		return nil, nil, usage
	}
	if err != nil {
		return nil, []check{{Verdict: fail, Area: "roots", Fact: err.Error(), Hint: "give --skills-root DIR"}}, nil
	}
	snapshot, err := skills.Scan(ctx, roots, options)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err != nil {
		return nil, []check{{Verdict: fail, Area: "roots", Fact: err.Error(), Hint: "mend or leave out the root"}}, nil
	}
	if len(roots) == 0 {
		return snapshot, []check{{Verdict: warn, Area: "roots", Fact: config.ErrNoRoots().Error(), Hint: "run: skillsd install SOURCE, or give --skills-root DIR"}}, nil
	}
	rows, err := newSkillRows(ctx, snapshot, verdicts.Allow, o.app.err)
	if err != nil {
		return nil, nil, err
	}
	checks := append(checkRoots(snapshot), checkScan(snapshot)...)
	for i := range rows {
		row := &rows[i]
		if row.State == string(skills.StateDisabled) {
			checks = append(checks, check{Verdict: ok, Area: "skill", Fact: row.Path + " is not served: " + strings.Join(row.Reasons, ", ")})
		}
		checks = append(checks, diagnosticChecks(report.Notable(row.Path+"/", row.Diagnostics))...)
	}
	return snapshot, append(checks, o.checkAllowed(ctx, snapshot, verdicts)...), nil
}

func checkRoots(snapshot *skills.Snapshot) []check {
	served, withheld := map[*skills.Root]int{}, map[*skills.Root]int{}
	for _, sk := range snapshot.Skills {
		served[sk.Root]++
	}
	for _, sk := range snapshot.Withheld {
		withheld[sk.Root]++
	}
	var checks []check
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		if info, err := os.Stat(root.Dir); root.FS == nil && (err != nil || !info.IsDir()) {
			checks = append(checks, check{Verdict: warn, Area: "roots", Fact: root.Dir + " is missing or not a directory", Hint: "make it, or leave it out: " + shellLine([]string{"mkdir", "-p", root.Dir})})
			continue
		}
		if unreadable := unreadableRoot(snapshot, root.Dir); unreadable != nil {
			checks = append(checks, check{Verdict: warn, Area: "roots", Fact: root.Dir + ": " + unreadable.Detail, Hint: unreadable.Code.Fix()})
			continue
		}
		fact := fmt.Sprintf("%s (%s): %s", root.Dir, root.Tier, report.Plural(served[root], "skill"))
		if n := withheld[root]; n > 0 {
			fact += fmt.Sprintf(", %d withheld", n)
		}
		checks = append(checks, check{Verdict: ok, Area: "roots", Fact: fact})
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

// checkScan is what the scan found wrong beside the roots themselves.
func checkScan(snapshot *skills.Snapshot) []check {
	left := slices.DeleteFunc(slices.Clone(snapshot.Diagnostics), func(d skills.Diagnostic) bool {
		return d.Code == skills.CodeUnreadableRoot &&
			slices.ContainsFunc(snapshot.Roots, func(root skills.Root) bool { return root.Dir == d.Path })
	})
	return diagnosticChecks(report.Diagnostics(left))
}

// diagnosticChecks are the warnings and errors among diagnostics.
func diagnosticChecks(rows []report.Diagnostic) []check {
	var checks []check
	for _, row := range rows {
		if row.Severity != skills.Info {
			checks = append(checks, check{Verdict: warn, Area: "skill", Fact: report.ProblemLine(report.PlaceAt(row.Path, row.Line), string(row.Code), row.Detail, ""), Hint: row.Fix})
		}
	}
	return checks
}

// checkAllowed says of every entry of the allowlist whether its script could be run.
func (o *doctorOptions) checkAllowed(ctx context.Context, snapshot *skills.Snapshot, verdicts *serve.Judge) []check {
	path, _ := o.app.Env("PATH")
	finder := detect.Interpreters(path)
	finder.Keep(o.app.OwnPaths()...)
	var checks []check
	for _, entry := range verdicts.Allow.Entries() {
		name := entry.Skill + ":" + entry.Path
		problem, hint := allowProblem(ctx, snapshot, entry, finder)
		if problem == "" && verdicts.Unreleased(entry) {
			problem, hint = serve.Unreleased(entry), serve.HintUnreleased
		}
		if denial := verdicts.Refuses(ctx, snapshot, entry); problem == "" && denial != nil {
			problem, hint = serve.RefusalText(denial), denial.Remedy
			if denial.Code == policy.CodeToolNotAllowed {
				problem, hint = "the tool that runs scripts is not offered", "run: skillsd allow --offer-tool "+shellLine([]string{name})
			}
		}
		if problem == "" {
			c := check{Verdict: ok, Area: "allowlist", Fact: name + " may run"}
			if loose := serve.Looseness(entry); loose != "" && o.app.Cfg.OriginOf("allow-skill-script").Kind == config.FromFile {
				c.Fact, c.Hint = c.Fact+"; "+loose, "pin what is there now, after reading it: skillsd allow "+shellLine([]string{name})
			}
			checks = append(checks, c)
			continue
		}
		checks = append(checks, check{Verdict: warn, Area: "allowlist", Fact: name + " cannot run: " + problem, Hint: hint})
	}
	return checks
}

func allowProblem(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry, finder *detect.Finder) (problem, hint string) {
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
		return "the skill has no such script", "`skillsd show " + shellLine([]string{sk.Path}) + "` lists its scripts"
	case entry.Changed(r.Digest, index.TreeDigest) == policy.TreeChanged:
		return "other files of its skill changed since it was allowed: the digest of its tree is " + index.TreeDigest.String(),
			"review the skill and allow the script again: skillsd allow " + serve.ShellName(entry)
	case entry.Changed(r.Digest, index.TreeDigest) != policy.Unchanged:
		return "it changed since it was allowed: its digest is " + r.Digest.String(), "read the script and allow it again: skillsd allow " + serve.ShellName(entry)
	case r.Script.Runtime == "":
		return r.Script.Problem, serve.HintRuntime
	}
	if found, err := finder.Find(ctx, string(r.Script.Runtime)); found == nil || err != nil {
		return "there is no usable " + string(r.Script.Runtime), "install " + string(r.Script.Runtime) + " from your distribution"
	}
	return "", ""
}
