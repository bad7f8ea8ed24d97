package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// configuredServe returns the options that serve has with the environment and the file of this process
// alone. A flag of the running command that serve has too is the caller's to carry over.
func (a *app) configuredServe() (*serveOptions, error) {
	own := *a // whose origins are those of serve, not of the command that runs
	o := &serveOptions{app: &own}
	cmd := &cobra.Command{Use: "serve"}
	o.register(cmd.Flags())
	if err := own.cfg.configure(cmd, a.env); err != nil {
		return nil, err
	}
	for key, at := range a.cfg.origins {
		if at.Kind == fromFlag {
			own.cfg.origins[key] = at
		}
	}
	return o, nil
}

// judge says of allowed scripts whether the configuration lets any run of them through.
type judge struct {
	allow     policy.Allowlist
	policy    *policy.Policy // nil when serve would refuse the configuration
	workspace bool
}

// judge is that of the entries of a command, which may have taken them from the configuration.
//
// Errors: *exitError for entries that cannot be read.
func (a *app) judge(specs []string) (*judge, error) {
	o, err := a.configuredServe()
	if err != nil {
		o = nil
	}
	return a.judgeFor(o, specs)
}

// judgeFor is the judge of a server with options o, nil when they are such that none would start.
//
// Errors: *exitError for entries that cannot be read.
func (a *app) judgeFor(serve *serveOptions, specs []string) (*judge, error) {
	allow, err := parseAllow(specs)
	if err != nil {
		return nil, err
	}
	j := &judge{allow: allow}
	if serve == nil {
		return j, nil
	}
	o := *serve
	o.AllowScripts = specs
	if a.cfg.originOf("allow-skill-script").Kind == fromFlag {
		// Asked what would be if it were allowed; of the tool there is no question.
		o.AllowTools = []string{mcpserver.ToolRun}
	}
	j.workspace = o.Workspace != ""
	if list, err := o.allowlist(); err == nil {
		j.allow = list
	}
	if pol, err := o.policy(); err == nil {
		j.policy = pol
	}
	return j, nil
}

// unreleased reports whether no run of an entry is let through for want of a release.
func (j *judge) unreleased(entry policy.Entry) bool {
	return j.policy != nil && j.policy.Unreleased(entry, j.workspace)
}

// refusal is what the rules refuse every run of an allowed script with, whoever wants it and whatever a user
// approves; nil when they do not. What only a call can bring, such as a lease, does not count.
func (j *judge) refusal(sk *skills.Skill, path string, file, tree digest.Digest) *policy.Denial {
	if j.policy == nil {
		return nil
	}
	_, err := j.policy.Decide(policy.Request{
		Tool: mcpserver.ToolRun, Class: policy.SideEffect, Principal: mcpserver.LocalPrincipal(),
		Skill: sk.Path, SkillName: cmp.Or(sk.Frontmatter.Name, sk.Name()), Tier: sk.Root.Tier,
		AllowedTools: sk.Frontmatter.AllowedTools, AllowedToolsDeclared: sk.Frontmatter.AllowedToolsDeclared,
		Activated: true, Path: path, FileDigest: file, TreeDigest: tree, StartTree: tree, Workspace: j.workspace, Approved: policy.ApprovalOfCall,
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

// refuses is the refusal of the script of an entry. It is nil also when the script is not there or cannot be
// read, which callers tell of themselves.
func (j *judge) refuses(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) *policy.Denial {
	sk := snapshot.Skill(entry.Skill)
	if sk == nil {
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
	return j.refusal(sk, entry.Path, r.Digest, index.TreeDigest)
}

// refusalText is a refusal without the name of the tool.
func refusalText(denial *policy.Denial) string {
	return strings.TrimPrefix(denial.Detail, mcpserver.ToolRun+": ")
}

// mark takes back that scripts of the skills of a snapshot may run of which no run is let through.
func (j *judge) mark(snapshot *skills.Snapshot, rows []skillRow) {
	for i := range rows {
		row := &rows[i]
		sk := snapshot.Skill(row.Path)
		if sk == nil {
			continue
		}
		for k := range row.Scripts {
			script := &row.Scripts[k]
			at := slices.IndexFunc(row.Resources, func(r resourceRow) bool { return r.Path == script.Path })
			if !script.Allowed || at < 0 {
				continue
			}
			if denial := j.refusal(sk, script.Path, row.Resources[at].Digest, row.TreeDigest); denial != nil {
				script.Allowed, script.Reason = false, refusalText(denial)
				if denial.Code == policy.CodeOutputNotReleased {
					script.Reason = j.whyUnreleased(row, script.Path, row.Resources[at].Digest)
				}
			}
		}
	}
}

// whyUnreleased says of a script that is refused for want of a release what its entry lets it reveal.
func (j *judge) whyUnreleased(row *skillRow, path string, file digest.Digest) (reason string) {
	for _, entry := range j.allow.Find(row.Path, path) {
		if entry.Changed(file, row.TreeDigest) == policy.Unchanged {
			reason = unreleased(entry)
		}
	}
	return reason
}
