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

// configured gives the options what the environment and the file of this process say. A flag of the running
// command that serve has too is the caller's to carry over.
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

// Judge says of allowed scripts whether the configuration lets any run of them through.
type Judge struct {
	Allow     policy.Allowlist
	policy    *policy.Policy // nil when serve would refuse the configuration
	workspace bool
}

// NewJudge is that of the entries of a command, which may have taken them from the configuration. serve
// has no
// values yet.
//
// Errors: *exitError for entries that cannot be read.
func NewJudge(serve *Options, specs []string) (*Judge, error) {
	process := serve.Process
	if err := serve.configured(); err != nil {
		serve = nil
	}
	return JudgeFor(process, serve, specs)
}

// JudgeFor is the judge of a server with options o, nil when they are such that none would start.
//
// Errors: *exitError for entries that cannot be read.
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
		// Asked what would be if it were allowed; of the tool there is no question.
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

// Refusal is what the rules refuse every run of an allowed script with, whoever wants it and whatever a user
// approves; nil when they do not. What only a call can bring, such as a lease, does not count.
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

// Refuses is the refusal of the script of an entry. It is nil also when the script is not there or cannot be
// read, which callers tell of themselves.
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

// RefusalText is a refusal without the name of the tool.
func RefusalText(denial *policy.Denial) string {
	return strings.TrimPrefix(denial.Detail, mcpserver.ToolRun+": ")
}

// Mark takes back in rows that a script may run, if no run of it is let through.
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

// whyUnreleased says of a script that is refused for want of a release what its entry lets it reveal.
func (j *Judge) whyUnreleased(row *report.SkillRow, path string, file digest.Digest) (reason string) {
	for _, entry := range j.Allow.Find(row.Path, path) {
		if entry.Changed(file, row.TreeDigest) == policy.Unchanged {
			reason = Unreleased(entry)
		}
	}
	return reason
}
