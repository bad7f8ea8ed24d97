package serve

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// HintRuntime returns what makes a script run that cannot for a problem.
func HintRuntime(problem string) string {
	return cmp.Or(script.Info{Problem: problem}.Fix(),
		"begin the script with a line such as #!/bin/sh or #!/usr/bin/env python3")
}

// AllowRow is an entry of the allowlist as allow --list prints it.
type AllowRow struct {
	Script string `json:"script"`
	State  string `json:"state"` // allowed, unpinned, changed, missing, unsupported or unreleased
	Detail string `json:"detail,omitempty"`
	// Changed says what is no longer what was allowed.
	Changed policy.Change `json:"changed,omitempty"`
	Target  policy.Target `json:"target,omitempty"`
	// Execution is stdin for a script that its interpreter reads there.
	Execution string `json:"execution,omitempty"`
	Program   string `json:"program,omitempty"` // the path of its interpreter here

	Pin         digest.Digest  `json:"pin,omitempty"`  // of the script
	Tree        digest.Digest  `json:"tree,omitempty"` // of all files of the skill
	Network     []string       `json:"network,omitempty"`
	Env         []string       `json:"env,omitempty"`
	Secrets     []string       `json:"secrets,omitempty"`
	Workspace   string         `json:"workspace,omitempty"`
	Environment string         `json:"environment,omitempty"` // of packages
	Ask         policy.Ask     `json:"ask,omitempty"`         // how often the user is asked; absent: by tier
	Release     policy.Release `json:"release,omitempty"`     // of its output; absent: the server's

	Hint    string         `json:"-"` // what mends it
	Runtime script.Runtime `json:"-"` // of a script that is there
}

// Means says by what the script runs, and where if that is the host.
func (r *AllowRow) Means() string {
	means := "with " + r.Program
	if r.Execution == policy.ExecutionStdin {
		means += " from standard input"
	}
	if r.Target == policy.TargetHost {
		means = "on the host, without a sandbox, " + means
	}
	return means
}

// The states of entries that a program looks for.
const (
	StateAllowed    = "allowed"
	StateUnpinned   = "unpinned"
	stateChanged    = "changed"
	StateUnreleased = "unreleased" // no run of it is let through
)

// ScriptName is how an entry names its script.
func ScriptName(entry policy.Entry) string { return entry.Skill + ":" + entry.Path }

// ShellName is how a command line names the script of an entry: its author chose that name.
func ShellName(entry policy.Entry) string { return report.ShellLine(ScriptName(entry)) }

// AllowState says whether an entry still holds, and if not why and what to do.
func AllowState(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) AllowRow {
	name := ShellName(entry)
	row := AllowRow{Script: ScriptName(entry), State: "missing", Execution: entry.Execution,
		Target: cmp.Or(entry.Target, policy.TargetSandbox), Hint: "to take it back: skillsd disallow " + name,
		Pin: entry.Pin, Tree: entry.Tree, Network: entry.Network, Env: entry.Env, Secrets: entry.Secrets,
		Workspace: entry.Workspace, Environment: entry.Environment, Ask: entry.Ask,
		Release: entry.Release}
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		row.Detail = "no skill of that path is served"
		for _, withheld := range snapshot.Withheld {
			if withheld.Path == entry.Skill {
				row.Detail += ": " + strings.Join(snapshot.Status(withheld).Reasons, ", ")
				return row
			}
		}
		if suggestion := snapshot.NotFound(entry.Skill).Suggestion; suggestion != "" {
			row.Hint = "did you mean " + suggestion + "? " + row.Hint
		}
		return row
	}
	index, err := sk.Index(ctx)
	if err != nil {
		row.Detail, row.Hint = "the files of the skill cannot be read: "+err.Error(),
			skills.CodeUnreadableDir.Fix()
		return row
	}
	r := index.Resource(entry.Path)
	if r == nil || r.Script == nil {
		row.Detail = "the skill has no such script"
		return row
	}
	row.Runtime = r.Script.Runtime
	row.Changed = entry.Changed(r.Digest, index.TreeDigest)
	switch {
	case row.Runtime == "":
		row.State, row.Detail, row.Hint, row.Changed = "unsupported", r.Script.Problem,
			HintRuntime(r.Script.Problem), ""
	case row.Changed != policy.Unchanged:
		row.State, row.Hint = stateChanged, "read that and `skillsd allow "+name+"`"
		row.Detail = string(row.Changed) + " changed since it was allowed"
	case entry.Pin == "":
		row.State, row.Detail, row.Hint = StateUnpinned, Looseness(entry), "`skillsd allow "+name+"` pins it"
	default:
		row.State, row.Detail, row.Hint = StateAllowed, Looseness(entry), ""
		switch {
		case entry.PinScript:
			row.Hint = "take out pin: script and `skillsd allow " + name + "` pins them"
		case row.Detail != "":
			row.Hint = "`skillsd allow " + name + "` pins them"
		}
	}
	return row
}

// Looseness returns what may change while the script of an entry still runs; empty if nothing may.
func Looseness(entry policy.Entry) string {
	switch {
	case entry.PinScript && entry.Pin == "":
		return "what it is when the server starts runs, with the other files of its skill as they are at " +
			"each run"
	case entry.PinScript:
		return "its bytes are pinned, the other files of its skill are what they are at each run"
	case entry.Pin == "":
		return "it is not pinned: what it is when the server starts runs"
	case entry.Tree == "":
		return "its bytes are pinned, the other files of its skill are not"
	}
	return ""
}

// pinWarner warns of allowed scripts that do not run because they are no longer what was allowed: at the
// start and when a skill changes.
type pinWarner struct {
	serve  *Options
	logger *slog.Logger
	warned map[string]bool // scripts that were changed at the last comparison
}

// warn compares the entries with a snapshot. It is for one goroutine at a time.
func (w *pinWarner) warn(ctx context.Context, snapshot *skills.Snapshot) {
	list, err := w.serve.Allowlist()
	if err != nil {
		return // the start has refused it
	}
	// Several pins of one script allow any of these contents.
	holds, changed := map[string]bool{}, map[string]bool{}
	for _, entry := range list.Entries() {
		name := ScriptName(entry)
		holds[name] = holds[name] || AllowState(ctx, snapshot, entry).State == StateAllowed
	}
	for _, entry := range list.Entries() {
		row := AllowState(ctx, snapshot, entry)
		if row.State != stateChanged || holds[row.Script] || changed[row.Script] {
			continue
		}
		changed[row.Script] = true
		if !w.warned[row.Script] {
			w.logger.WarnContext(ctx, "an allowed script changed and does not run until it is allowed again",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path),
				slog.String("changed", string(row.Changed)),
				slog.String("remedy", "skillsd allow "+ShellName(entry)))
		}
	}
	w.warned = changed
}

// Judge decides whether the configuration lets any run of an allowed script through.
type Judge struct {
	Allow     policy.Allowlist
	policy    *policy.Policy // nil if serve would refuse the configuration
	workspace bool
}

// NewJudge returns the judge for the entries of a command, which may have taken them from the configuration.
// It sets the values of serve, which must not have any.
//
// Errors: as for JudgeFor.
func NewJudge(serve *Options, specs []string) (*Judge, error) {
	process, flags := serve.Process, pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serve.Register(flags)
	if err := serve.Configure(flags); err != nil {
		return JudgeFor(process, nil, specs)
	}
	// The caller copies the flags of the running command that serve also has.
	for key, at := range process.Cfg.Origins {
		if at.Kind == config.FromFlag {
			serve.Process.Cfg.Origins[key] = at
		}
	}
	return JudgeFor(process, serve, specs)
}

// JudgeFor returns the judge of a server with the options serve. They are nil if a server would refuse them;
// then the judge refuses nothing.
//
// Errors: *exit.Error for entries that cannot be read.
func JudgeFor(p *config.Process, serve *Options, specs []string) (*Judge, error) {
	allow, err := config.ParseAllow(specs)
	if err != nil || serve == nil {
		return &Judge{Allow: allow}, err
	}
	o := *serve
	o.AllowScripts = specs
	if p.Cfg.OriginOf("allow-skill-script").Kind == config.FromFlag {
		// The flag asks what would happen if the script were allowed, so the tool counts as offered.
		o.AllowTools = []string{mcpserver.ToolRun}
	}
	j := &Judge{Allow: allow, workspace: o.Workspace != ""}
	if list, err := o.Allowlist(); err == nil {
		j.Allow = list
	}
	if pol, err := o.Policy(); err == nil {
		j.policy = pol
	}
	return j, nil
}

// Unreleased reports whether no run of an entry is let through for want of a release.
func (j *Judge) Unreleased(entry policy.Entry) bool {
	return j.policy != nil && j.policy.Unreleased(entry, j.workspace)
}

// Refuses returns the denial with which the rules refuse every run of the script of an entry, whoever asks
// and whatever a user approves. It is nil if some run could be allowed: a lease or an approval, which only a
// call can have, does not count. It is also nil if the script does not exist or cannot be read, which
// callers report themselves.
func (j *Judge) Refuses(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) *policy.Denial {
	denial := j.denial(ctx, snapshot, entry, policy.ApprovalOfCall)
	if denial != nil && (denial.Code == policy.CodeLeaseInvalid || needsUser(denial)) {
		return nil
	}
	return denial
}

// Asks reports whether a user must be asked before the script of an entry runs, if the client shows no
// evidence that they want it.
func (j *Judge) Asks(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) bool {
	denial := j.denial(ctx, snapshot, entry, policy.ApprovalNone)
	return denial != nil && needsUser(denial)
}

func needsUser(denial *policy.Denial) bool {
	return denial.Code == policy.CodeDirectCommandRequired || denial.Code == policy.CodeApprovalRequired
}

// denial returns the denial of a run of the script of an entry; nil if it is allowed, or if there is no
// such script.
func (j *Judge) denial(
	ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry, approved policy.Approval,
) *policy.Denial {
	sk := snapshot.Skill(entry.Skill)
	if sk == nil || j.policy == nil {
		return nil
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return nil
	}
	r := index.Resource(entry.Path)
	if r == nil {
		return nil
	}
	_, err = j.policy.Decide(policy.Request{
		Tool: mcpserver.ToolRun, Class: policy.SideEffect, Principal: mcpserver.LocalPrincipal(),
		Skill: sk.Path, SkillName: cmp.Or(sk.Frontmatter.Name, sk.Name()), Tier: sk.Root.Tier,
		AllowedTools: sk.Frontmatter.AllowedTools, AllowedToolsDeclared: sk.Frontmatter.AllowedToolsDeclared,
		Activated: true, Path: entry.Path, FileDigest: r.Digest, TreeDigest: index.TreeDigest,
		StartTree: index.TreeDigest, StartFile: r.Digest, Workspace: j.workspace,
		Approved: approved,
	})
	if err == nil {
		return nil
	}
	return policy.DenialOf(err)
}

// RefusalText returns the text of a refusal without the name of the tool.
func RefusalText(denial *policy.Denial) string {
	return strings.TrimPrefix(denial.Detail, mcpserver.ToolRun+": ")
}

// Mark marks the scripts in rows as not allowed if no run of them is let through.
func (j *Judge) Mark(ctx context.Context, snapshot *skills.Snapshot, rows []report.SkillRow) {
	for _, row := range rows {
		for i := range row.Scripts {
			script := &row.Scripts[i]
			if !script.Allowed {
				continue
			}
			denial := j.Refuses(ctx, snapshot, policy.Entry{Skill: row.Path, Path: script.Path})
			if denial == nil {
				continue
			}
			script.Allowed, script.Reason = false, RefusalText(denial)
			if denial.Code == policy.CodeOutputNotReleased {
				file := row.Skill.Resource(ctx, script.Path)
				for _, entry := range j.Allow.Find(row.Path, script.Path) {
					if entry.Changed(file.Digest, row.TreeDigest) == policy.Unchanged {
						script.Reason = Unreleased(entry)
					}
				}
			}
		}
	}
}
