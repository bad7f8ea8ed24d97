package main

import (
	"slices"

	"github.com/spf13/cobra"

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
	allow, err := parseAllow(specs)
	if err != nil {
		return nil, err
	}
	j := &judge{allow: allow}
	o, err := a.configuredServe()
	if err != nil {
		return j, nil
	}
	o.AllowScripts = specs
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

// mark takes back that scripts may run of which no run is let through.
func (j *judge) mark(rows []skillRow) {
	for i := range rows {
		row := &rows[i]
		for k := range row.Scripts {
			script := &row.Scripts[k]
			at := slices.IndexFunc(row.Resources, func(r resourceRow) bool { return r.Path == script.Path })
			if !script.Allowed || at < 0 {
				continue
			}
			for _, entry := range j.allow.Find(row.Path, script.Path) {
				if entry.Pin != "" && entry.Pin != row.Resources[at].Digest {
					continue
				}
				if !j.unreleased(entry) {
					script.Allowed, script.Reason = true, ""
					break
				}
				script.Allowed, script.Reason = false, unreleased(entry)
			}
		}
	}
}
