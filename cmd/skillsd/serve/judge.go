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
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// HintRuntime returns the remedy for a script that cannot run because of a problem.
func HintRuntime(problem string) string {
	return cmp.Or(script.Info{Problem: problem}.Fix(),
		"begin the script with a line such as #!/bin/sh or #!/usr/bin/env python3")
}

// AllowRow is an entry of the allowlist as printed by allow --list.
type AllowRow struct {
	Script string `json:"script"`
	State  string `json:"state"` // allowed, unpinned, changed, missing, unsupported or unreleased
	Detail string `json:"detail,omitempty"`
	// Changed lists what differs from what was allowed.
	Changed policy.Change `json:"changed,omitempty"`
	Target  policy.Target `json:"target,omitempty"`
	// Execution is stdin for a script that its interpreter reads from standard input.
	Execution string `json:"execution,omitempty"`
	Program   string `json:"program,omitempty"` // the path of its interpreter on this machine

	Pin       digest.Digest `json:"pin,omitempty"`  // of the script
	Tree      digest.Digest `json:"tree,omitempty"` // of all files of the skill
	Network   []string      `json:"network,omitempty"`
	Env       []string      `json:"env,omitempty"`
	Secrets   []string      `json:"secrets,omitempty"`
	Workspace string        `json:"workspace,omitempty"`
	// Given are workspaces that the configuration, or the entry of a client, gives to scripts, in words.
	Given       []string       `json:"given,omitempty"`
	Environment string         `json:"environment,omitempty"` // with its packages
	Ask         policy.Ask     `json:"ask,omitempty"`         // how often the user is asked; empty: by tier
	Release     policy.Release `json:"release,omitempty"`     // of its output; empty: the server's

	Hint    string         `json:"-"` // the remedy
	Runtime script.Runtime `json:"-"` // of an existing script
}

// Means returns the interpreter of the script, and where it runs if that is the host.
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

// The states of entries that programs compare.
const (
	StateAllowed    = "allowed"
	StateUnpinned   = "unpinned"
	StateMissing    = "missing"
	stateChanged    = "changed"
	StateUnreleased = "unreleased" // every run is refused for lack of a release
)

// ScriptName returns the name of an entry's script.
func ScriptName(entry policy.Entry) string { return entry.Skill + ":" + entry.Path }

// ShellName returns the name of an entry's script, quoted for a shell: its author chose the name.
func ShellName(entry policy.Entry) string { return report.ShellLine(ScriptName(entry)) }

// Texts about an installed skill whose files are not those that were installed. To allow such a script would
// allow whatever was written into it.
const (
	TamperedText = "files of its skill were changed where it is installed, and not by an update"
	TamperedHint = "skillsd sync brings back what was installed"
	missingText  = "its skill is installed, but the files are missing"
)

// EntryState reports whether an entry is still valid, and if not why, with a hint.
func EntryState(
	ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry, installed install.Installed,
) AllowRow {
	row := AllowRow{Script: ScriptName(entry), State: StateMissing, Execution: entry.Execution,
		Target: cmp.Or(entry.Target, policy.TargetSandbox),
		Hint:   "to remove it: skillsd disallow " + ShellName(entry),
		Pin:    entry.Pin, Tree: entry.Tree, Network: entry.Network, Env: entry.Env, Secrets: entry.Secrets,
		Workspace: entry.Workspace, Environment: entry.Environment, Ask: entry.Ask,
		Release: entry.Release}
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
		row.withoutSkill(snapshot, entry, installed)
		return row
	}
	index, err := sk.Index(ctx)
	if err != nil {
		row.Detail, row.Hint = "the files of the skill cannot be read: "+err.Error(),
			skills.CodeUnreadableDir.Fix()
		return row
	}
	r := index.Resource(entry.Path)
	if r == nil || r.Program() == nil {
		row.Detail = "the skill has no such script"
		if installed.Tampered(ctx, sk) { // somebody removed it, and the entry is still right
			row.change(TamperedText, TamperedHint)
		}
		return row
	}
	// The policy has the file under the path of the nested skill only.
	if nested := snapshot.Nested(sk, entry.Path); nested != nil && script.Outside(entry.Path) {
		row.State, row.Detail = "unsupported", OfNested(nested)
		return row
	}
	info := r.Program()
	row.Runtime = info.Runtime
	// The state comes before changes: allowing the script again would not make it run.
	if row.Runtime == "" {
		row.State, row.Detail, row.Hint = "unsupported", info.Problem, HintRuntime(info.Problem)
		return row
	}
	row.Changed = entry.Changed(r.Digest, index.TreeDigest)
	row.compared(entry, row.Changed != policy.Unchanged && installed.Tampered(ctx, sk))
	return row
}

// change sets the state of an entry whose script does not run because files differ from those that the entry
// allows.
func (r *AllowRow) change(detail, hint string) {
	r.State, r.Detail, r.Hint = stateChanged, detail, hint
}

// withoutSkill sets the state of an entry with a path at which no skill is served.
func (r *AllowRow) withoutSkill(snapshot *skills.Snapshot, entry policy.Entry, installed install.Installed) {
	r.Detail = "no skill with that path is served"
	for _, withheld := range snapshot.Withheld {
		if withheld.Path == entry.Skill {
			r.Detail += ": " + strings.Join(snapshot.Status(withheld).Reasons, ", ")
			return
		}
	}
	if installed.Missing(entry.Skill) {
		r.change(missingText, TamperedHint)
		return
	}
	if suggestion := snapshot.NotFound(entry.Skill).Suggestion; suggestion != "" {
		r.Hint = "did you mean " + suggestion + "? " + r.Hint
	}
}

// compared sets the state of an entry whose script has an interpreter: allowed, unless files have changed, of
// an installed skill perhaps where it is installed.
func (r *AllowRow) compared(entry policy.Entry, isTampered bool) {
	name := ShellName(entry)
	switch {
	case isTampered:
		r.change(TamperedText, TamperedHint)
	case r.Changed != policy.Unchanged:
		r.change(string(r.Changed)+" changed since it was allowed",
			"review the change, then run `skillsd allow "+name+"`")
	case entry.Pin == "":
		r.State, r.Detail, r.Hint = StateUnpinned, Looseness(entry), "`skillsd allow "+name+"` pins it"
	default:
		r.State, r.Detail, r.Hint = StateAllowed, Looseness(entry), ""
		switch {
		case entry.PinScript:
			r.Hint = "remove pin: script, then `skillsd allow " + name + "` pins them"
		case r.Detail != "":
			r.Hint = "`skillsd allow " + name + "` pins them"
		}
	}
}

// OfNested returns the reason why an entry of a skill cannot allow a file of a skill nested in it.
func OfNested(nested *skills.Skill) string {
	return "the file belongs to the skill " + nested.Path + ", whose own entry can allow it"
}

// Looseness returns which files may change while the script of an entry still runs; empty for none.
func Looseness(entry policy.Entry) string {
	switch {
	case entry.PinScript && entry.Pin == "":
		return "not pinned: the server runs the script as it is at startup, with the other files of its " +
			"skill as they are at each run"
	case entry.PinScript:
		return "only the script is pinned; the other files of its skill may change before each run"
	case entry.Pin == "":
		return "not pinned: the server runs the files as they are at startup"
	case entry.Tree == "":
		return "only the script is pinned, not the other files of its skill"
	}
	return ""
}

// pinWarner warns of allowed scripts that do not run because they have changed: at startup and when a skill
// changes.
type pinWarner struct {
	serve     *Options
	installed func() install.Installed
	logger    *slog.Logger
	warned    map[string]bool // scripts that had changed at the last comparison
}

// warn compares the entries with a snapshot. It must not be called concurrently.
func (w *pinWarner) warn(ctx context.Context, snapshot *skills.Snapshot) {
	list, err := w.serve.Allowlist()
	if err != nil {
		return // the start has reported it
	}
	// Several pins of one script allow any of their contents.
	holds, changed := map[string]bool{}, map[string]bool{}
	rows := make([]AllowRow, len(list.Entries()))
	installed := w.installed()
	for i, entry := range list.Entries() {
		rows[i] = EntryState(ctx, snapshot, entry, installed)
		holds[rows[i].Script] = holds[rows[i].Script] || rows[i].State == StateAllowed
	}
	for i, entry := range list.Entries() {
		row := &rows[i]
		if row.State != stateChanged || holds[row.Script] || changed[row.Script] {
			continue
		}
		changed[row.Script] = true
		// A skill that changes often must not repeat the warning for each scan.
		if w.warned[row.Script] {
			continue
		}
		text, remedy := "an allowed script changed; it does not run until it is allowed again",
			"skillsd allow "+ShellName(entry)
		if row.Hint == TamperedHint {
			text, remedy = "an allowed script does not run: "+row.Detail, "skillsd sync"
		}
		w.logger.WarnContext(ctx, text, slog.String("skill", entry.Skill), slog.String("path", entry.Path),
			slog.String("changed", string(row.Changed)), slog.String("remedy", remedy))
	}
	w.warned = changed
}

// Judge decides whether the configuration allows any run of an allowed script.
type Judge struct {
	Allow     policy.Allowlist
	policy    *policy.Policy // nil if serve would refuse the configuration
	workspace bool
}

// NewJudge returns the judge for the entries given to a command, or else for the entries of the file. It
// sets the values of serve, which must be empty.
//
// Errors: as for JudgeFor.
func NewJudge(serve *Options, specs []string) (*Judge, error) {
	process, flags := serve.Process, pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serve.Register(flags)
	// A broken configuration is reported by the command itself; rows without a verdict are still useful.
	if err := serve.Configure(flags); err != nil {
		return JudgeFor(process, nil, specs)
	}
	// The caller copies the flags of the running command that serve has too.
	for key, at := range process.Cfg.Origins {
		if at.Kind == config.FromFlag {
			serve.Process.Cfg.Origins[key] = at
		}
	}
	return JudgeFor(process, serve, specs)
}

// JudgeFor returns the judge of a server with the options serve. If a server would refuse the options, the
// judge has no policy and refuses nothing.
//
// Errors: *exit.Error for entries that cannot be read.
func JudgeFor(p *config.Process, serve *Options, specs []string) (*Judge, error) {
	allow, err := config.ParseAllow(specs)
	if err != nil || serve == nil {
		return &Judge{Allow: allow}, err
	}
	// The copy keeps the given entries from becoming options of the caller.
	o := *serve
	o.AllowScripts = specs
	if p.Cfg.OriginOf("allow-skill-script").Kind == config.FromFlag {
		// The flag asks what would happen if the script were allowed, so treat the tool as offered.
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

// Unreleased reports whether every run of an entry is refused for lack of a release.
func (j *Judge) Unreleased(entry policy.Entry) bool {
	return j.policy != nil && j.policy.Unreleased(entry, j.workspace)
}

// AllowState is [EntryState], and also reports an entry whose output is not released.
func (j *Judge) AllowState(
	ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry, installed install.Installed,
) AllowRow {
	row := EntryState(ctx, snapshot, entry, installed)
	if row.State == StateAllowed && j.Unreleased(entry) {
		row.State, row.Detail, row.Hint = StateUnreleased, Unreleased(entry), HintUnreleased
	}
	return row
}

// Refuses returns the denial with which the rules refuse every run of the script of an entry, for every
// caller and every approval. It is nil if some run could be allowed: a missing lease or approval, which only
// a call can have, is ignored. It is also nil if the script does not exist or cannot be read, which callers
// report themselves.
func (j *Judge) Refuses(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) *policy.Denial {
	// With the strongest approval, whatever is still refused no user can allow.
	denial := j.denial(ctx, snapshot, entry, policy.ApprovalOfCall)
	if denial != nil && (denial.Code == policy.CodeLeaseInvalid || needsUser(denial)) {
		return nil
	}
	return denial
}

// Asks reports whether a user must be asked before the script of an entry runs, if the client sends no
// evidence of the user's intent.
func (j *Judge) Asks(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) bool {
	denial := j.denial(ctx, snapshot, entry, policy.ApprovalNone)
	return denial != nil && needsUser(denial)
}

func needsUser(denial *policy.Denial) bool {
	return denial.Code == policy.CodeDirectCommandRequired || denial.Code == policy.CodeApprovalRequired
}

// denial returns the denial of a run of the script of an entry; nil if it is allowed, or does not exist.
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
		Activated: true, Path: entry.Path, Runtime: runtimeOf(r),
		FileDigest: r.Digest, TreeDigest: index.TreeDigest,
		StartTree: index.TreeDigest, StartFile: r.Digest, Workspace: j.workspace,
		Approved: approved,
	})
	if err == nil {
		return nil
	}
	return policy.DenialOf(err)
}

// runtimeOf returns the runtime of a file, or "".
func runtimeOf(r *skills.Resource) script.Runtime {
	if info := r.Program(); info != nil {
		return info.Runtime
	}
	return ""
}

// Covers reports whether the allowed-tools of a skill let one of its scripts run. If not, an entry for it has
// no effect.
func (j *Judge) Covers(sk *skills.Skill, path string, runtime script.Runtime) bool {
	return j.policy == nil || j.policy.Covers(policy.Request{Path: path, Runtime: runtime,
		AllowedTools: sk.Frontmatter.AllowedTools, AllowedToolsDeclared: sk.Frontmatter.AllowedToolsDeclared})
}

// RefusalText returns the text of a refusal without the name of the tool.
func RefusalText(denial *policy.Denial) string {
	return strings.TrimPrefix(denial.Detail, mcpserver.ToolRun+": ")
}

// Mark marks the scripts in rows as not allowed if every run of them is refused.
func (j *Judge) Mark(ctx context.Context, snapshot *skills.Snapshot, rows []report.SkillRow) {
	for _, row := range rows {
		scripts := make([]*report.ScriptRow, 0, len(row.Scripts))
		for i := range row.Scripts {
			scripts = append(scripts, &row.Scripts[i])
		}
		for i := range row.Code {
			scripts = append(scripts, &row.Code[i])
		}
		for _, script := range scripts {
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
