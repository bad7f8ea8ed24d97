package serve

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// configured sets the options from the environment and the file of this process. The caller copies the flags
// of the running command that serve also has.
func (o *Options) configured() error {
	running := o.Process.Cfg.Origins
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.Register(flags)
	if err := o.Configure(flags); err != nil {
		return err
	}
	for key, at := range running {
		if at.Kind == config.FromFlag {
			o.Process.Cfg.Origins[key] = at
		}
	}
	return nil
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
// Errors: *exit.Error for entries that cannot be read.
func NewJudge(serve *Options, specs []string) (*Judge, error) {
	process := serve.Process
	if err := serve.configured(); err != nil {
		serve = nil
	}
	return JudgeFor(process, serve, specs)
}

// JudgeFor returns the judge of a server with the options serve. They are nil if a server would refuse them;
// then the judge refuses nothing.
//
// Errors: *exit.Error for entries that cannot be read.
func JudgeFor(p *config.Process, serve *Options, specs []string) (*Judge, error) {
	allow, err := config.ParseAllow(specs)
	if err != nil {
		return nil, err
	}
	j := &Judge{Allow: allow}
	if serve == nil {
		return j, nil
	}
	o := *serve
	o.AllowScripts = specs
	if p.Cfg.OriginOf("allow-skill-script").Kind == config.FromFlag {
		// The flag asks what would happen if the script were allowed, so the tool counts as offered.
		o.AllowTools = []string{mcpserver.ToolRun}
	}
	j.workspace = o.Workspace != ""
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

// Refusal returns the denial with which the rules refuse every run of an allowed script, whoever requests it
// and whatever a user approves. It is nil if some run could be allowed: a lease or an approval, which only a
// call can have, does not count.
func (j *Judge) Refusal(sk *skills.Skill, path string, file, tree digest.Digest) *policy.Denial {
	if j.policy == nil {
		return nil
	}
	_, err := j.policy.Decide(policy.Request{
		Tool: mcpserver.ToolRun, Class: policy.SideEffect, Principal: mcpserver.LocalPrincipal(),
		Skill: sk.Path, SkillName: cmp.Or(sk.Frontmatter.Name, sk.Name()), Tier: sk.Root.Tier,
		AllowedTools: sk.Frontmatter.AllowedTools, AllowedToolsDeclared: sk.Frontmatter.AllowedToolsDeclared,
		Activated: true, Path: path, FileDigest: file, TreeDigest: tree, StartTree: tree,
		Workspace: j.workspace, Approved: policy.ApprovalOfCall,
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

// Refuses returns the refusal of the script of an entry. It is also nil if the script does not exist or
// cannot be read, which callers report themselves.
func (j *Judge) Refuses(ctx context.Context, snapshot *skills.Snapshot, entry policy.Entry) *policy.Denial {
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
	return j.Refusal(sk, entry.Path, r.Digest, index.TreeDigest)
}

// RefusalText returns the text of a refusal without the name of the tool.
func RefusalText(denial *policy.Denial) string {
	return strings.TrimPrefix(denial.Detail, mcpserver.ToolRun+": ")
}

// Mark marks the scripts in rows as not allowed if no run of them is let through.
func (j *Judge) Mark(snapshot *skills.Snapshot, rows []report.SkillRow) {
	for i := range rows {
		row := &rows[i]
		sk := snapshot.Skill(row.Path)
		if sk == nil {
			continue
		}
		for k := range row.Scripts {
			script := &row.Scripts[k]
			at := slices.IndexFunc(row.Resources,
				func(r report.ResourceRow) bool { return r.Path == script.Path })
			if !script.Allowed || at < 0 {
				continue
			}
			if denial := j.Refusal(sk, script.Path, row.Resources[at].Digest, row.TreeDigest); denial != nil {
				script.Allowed, script.Reason = false, RefusalText(denial)
				if denial.Code == policy.CodeOutputNotReleased {
					script.Reason = j.whyUnreleased(row, script.Path, row.Resources[at].Digest)
				}
			}
		}
	}
}

// whyUnreleased returns why the output of a script would have to be released, by the entry that allows it.
func (j *Judge) whyUnreleased(row *report.SkillRow, path string, file digest.Digest) (reason string) {
	for _, entry := range j.Allow.Find(row.Path, path) {
		if entry.Changed(file, row.TreeDigest) == policy.Unchanged {
			reason = Unreleased(entry)
		}
	}
	return reason
}
