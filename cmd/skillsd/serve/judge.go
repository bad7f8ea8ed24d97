package serve

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Judge decides whether the configuration lets any run of an allowed script through.
type Judge struct {
	Allow     policy.Allowlist
	policy    *policy.Policy // nil if serve would refuse the configuration
	workspace bool
}

// NewJudge returns the judge for the entries of a command, which may have taken them from the configuration.
// It sets the values of serve, which must not have any.
//
// Errors: *exit.Error for entries that cannot be read.
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

// Refuses returns the denial with which the rules refuse every run of the script of an entry, whoever
// requests
// it and whatever a user approves. It is nil if some run could be allowed: a lease or an approval, which only
// a call can have, does not count. It is also nil if the script does not exist or cannot be read, which
// callers report themselves.
func (j *Judge) Refuses(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) *policy.Denial {
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
		StartTree: index.TreeDigest, Workspace: j.workspace, Approved: policy.ApprovalOfCall,
	})
	if err == nil {
		return nil
	}
	switch denial := policy.DenialOf(err); denial.Code {
	case policy.CodeLeaseInvalid, policy.CodeDirectCommandRequired, policy.CodeApprovalRequired:
		return nil
	default:
		return denial
	}
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
