package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/skills"
)

// join makes sure that the server decides as the others of its cluster do. It does nothing without a cluster.
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

// parts returns what the server decides by, in parts with names of the configuration: its policy with the
// limits of runs, principals, profiles, entries of the allowlist, environments that these name, and skills.
// Tokens only say who somebody is.
//
// Errors: the error of ctx.
func (p *Plan) parts(ctx context.Context, snapshot *skills.Snapshot) (cluster.Parts, error) {
	o, parts := p.options, cluster.Parts{}
	add := func(value any, format string, args ...any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		name := fmt.Sprintf(format, args...)
		parts[name] += string(text) + "\n"
		return nil
	}
	for _, option := range o.Table() {
		var err error
		switch {
		case option.Section == config.SectionPolicy && option.InFile == nil && option.Flag != "":
			err = add(option.Value, "--%s", option.Flag)
		case option.Flag == "limit" && option.Part != "concurrent":
			err = add(option.Value, "--limit %s", option.Part)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := add(o.ClosedTiers, "--tier-scripts"); err != nil {
		return nil, err
	}
	for name, principal := range o.Process.Cfg.Keys.PolicyPrincipals(o.HTTP.Evidence) {
		if err := add(principal, "principal %s", name); err != nil {
			return nil, err
		}
	}
	for _, profile := range p.Policy.Profiles() {
		if err := add(profile, "profile %s", profile.Name); err != nil {
			return nil, err
		}
	}
	for _, entry := range p.Policy.Entries() {
		if err := add(entry, "allowlist entry %s:%s", entry.Skill, entry.Path); err != nil {
			return nil, err
		}
		if entry.Environment == "" || p.lock == nil || p.lock.Environments[entry.Environment] == nil {
			continue
		}
		parts["environment "+entry.Environment] = p.lock.Environments[entry.Environment].Digest.String()
	}
	for _, sk := range snapshot.Skills {
		content := sk.Digest
		index, err := sk.Index(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			content = index.TreeDigest
		}
		parts[cluster.SkillPart(sk.Root.Tier.String(), sk.Path)] = content.String()
	}
	return parts, nil
}

// LookAtCluster looks at the cluster of the server, which is not opened. snapshot has the skills; it is nil
// if they cannot be read, and then nothing is compared.
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

// changedAlone warns that skills of a server of a cluster have changed, which the others may not have.
func (p *Plan) changedAlone(ctx context.Context, diff skills.Diff, logger *slog.Logger) {
	changed := slices.Concat(diff.Added, diff.Changed, diff.Removed)
	if p.Cluster == nil || len(changed) == 0 {
		return
	}
	logger.WarnContext(ctx, "skills changed here, and other servers of the cluster may not have them: "+
		"make them the same, and restart the servers with --cluster-generation one higher",
		slog.String("skill", changed[0]), slog.Int("skills", len(changed)))
}
