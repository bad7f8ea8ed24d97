package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/skills"
)

// join makes sure that the server decides like the others of its cluster. Without a cluster it does nothing.
//
// Errors: *exit.Error.
func (p *Plan) join(ctx context.Context) error {
	if p.Cluster == nil {
		return nil
	}
	parts, err := p.parts(ctx, p.Registry.Snapshot())
	if err != nil {
		return err
	}
	return p.Cluster.Join(ctx, p.options.Cluster.Generation, parts)
}

// parts returns the rules and skills that the server's decisions depend on, under names of the configuration.
//
// Errors: the error of ctx.
func (p *Plan) parts(ctx context.Context, snapshot *skills.Snapshot) (cluster.Parts, error) {
	parts, err := p.rules()
	if err != nil {
		return nil, err
	}
	for _, sk := range snapshot.Skills {
		content := sk.Digest
		index, err := sk.Index(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// A skill that cannot be indexed is compared by its SKILL.md, so that one broken skill does not keep
		// a server out.
		if err == nil {
			content = index.TreeDigest
		}
		parts[cluster.SkillPart(sk.Root.Tier.String(), sk.Path)] = content.String()
	}
	return parts, nil
}

// rules returns the parts without the skills: the policy with the limits of runs, principals, profiles,
// entries of the allowlist and their environments. Tokens are left out, because they only identify
// principals.
func (p *Plan) rules() (cluster.Parts, error) {
	o, parts := p.options, encodedParts{Parts: cluster.Parts{}}
	for _, option := range o.Table() {
		switch {
		// Options with a form of their own in the file, such as entries and profiles, are compared one by one
		// below.
		case option.Section == config.SectionPolicy && option.InFile == nil && option.Flag != "":
			parts.add("--"+option.Flag, option.Value)
		// How many runs a machine can take depends on the machine.
		case option.Flag == "limit" && option.Part != "concurrent":
			parts.add("--limit "+option.Part, option.Value)
		}
	}
	parts.add("--tier-scripts", o.ClosedTiers)
	for name, principal := range o.Process.Cfg.Keys.PolicyPrincipals(o.HTTP.Evidence) {
		parts.add("principal "+name, principal)
	}
	for _, profile := range p.Policy.Profiles() {
		parts.add("profile "+profile.Name, profile)
	}
	for _, entry := range p.Policy.Entries() {
		parts.add("allowlist entry "+entry.Skill+":"+entry.Path, entry)
		if entry.Environment == "" || p.lock == nil || p.lock.Environments[entry.Environment] == nil {
			continue
		}
		parts.Parts["environment "+entry.Environment] = p.lock.Environments[entry.Environment].Digest.String()
	}
	return parts.Parts, parts.err
}

// encodedParts are parts in the making.
type encodedParts struct {
	cluster.Parts
	err error // of the first value that cannot be encoded
}

// add adds a line with a value to a part.
func (p *encodedParts) add(name string, value any) {
	text, err := json.Marshal(value)
	p.err = cmp.Or(p.err, err)
	p.Parts[name] += string(text) + "\n"
}

// LookAtCluster inspects the cluster of the server without opening it. snapshot has the skills; if it is nil
// because they cannot be read, nothing is compared.
//
// Errors: the errors of cluster.Look.
func (p *Plan) LookAtCluster(
	ctx context.Context, snapshot *skills.Snapshot, logger *slog.Logger,
) (*cluster.Seen, error) {
	var parts cluster.Parts
	if snapshot != nil && p.Policy != nil {
		var err error
		parts, err = p.parts(ctx, snapshot)
		if err != nil {
			return nil, err
		}
	}
	return cluster.Look(ctx, &p.options.Cluster, parts, logger)
}

// changedAlone warns that skills of a server in a cluster changed, perhaps only on this server.
func (p *Plan) changedAlone(ctx context.Context, diff skills.Diff, logger *slog.Logger) {
	changed := slices.Concat(diff.Added, diff.Changed, diff.Removed)
	if p.Cluster == nil || len(changed) == 0 {
		return
	}
	logger.WarnContext(ctx, "skills changed on this server, perhaps not on other servers of the cluster: "+
		"make the same change there, and restart the servers with --cluster-generation one higher",
		slog.String("skill", changed[0]), slog.Int("skills", len(changed)))
}
