package serve

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Options are the values of the options of a server, and what it takes from the process. Flags have the
// names that they have in the reference harness, if it has them.
type Options struct {
	Process  *config.Process
	In       io.Reader // of stdio
	Out, Err io.Writer // of stdio, and of the log
	Version  string    // of the server
	// FindSession returns the whole id of a session that name means.
	FindSession func(ctx context.Context, name string) (id string, err error)

	config.Options
}

// Configure sets the flags of serve, some or all of which are flags of the running command. Flags that were
// not given get their values from the environment or the file. The origins are then the origins of serve.
func (o *Options) Configure(all *pflag.FlagSet) error {
	own := *o.Process
	o.Process = &own
	return own.Cfg.Configure(config.Flags{Own: all}, own.Env)
}

// Policy builds the policy the flags describe.
func (o *Options) Policy() (*policy.Policy, error) {
	mode, err := policy.ParseMode(o.Mode)
	if err != nil {
		return nil, exit.Flag("cfc-enforcement-mode", err)
	}
	// The words of other options are checked where they are used.
	words := []string{"prompt-slot-role", "release", "allowed-tools", "drift", "sandbox", "search",
		"skill-script-execution-target"}
	for _, option := range o.Table() {
		word, ok := option.Value.(*string)
		if ok && slices.Contains(words, option.Flag) && *word != option.Default &&
			!slices.Contains(option.Words, *word) {
			problem := fmt.Errorf("%q is not one of %s", *word, strings.Join(option.Words, ", "))
			if option.Flag == "sandbox" {
				problem = fmt.Errorf("%w; scripts never run without a sandbox", problem)
			}
			return nil, exit.Flag(option.Flag, problem)
		}
	}
	allowlist, err := o.Allowlist()
	if err != nil {
		return nil, err
	}
	for _, tool := range o.AllowTools {
		if tool != mcpserver.ToolRun {
			return nil, exit.Flag("allow-tool",
				fmt.Errorf("%q is not a tool that can be added; only %s is", tool, mcpserver.ToolRun))
		}
	}
	tools := mcpserver.ReadMethods()
	// The tool and an allowed script have no effect without each other; logStart warns of that.
	if len(o.AllowTools) > 0 && allowlist.Len() > 0 {
		tools = append(tools, mcpserver.ToolRun)
	}
	var closed []skills.Tier
	for _, spec := range o.ClosedTiers {
		name, action, _ := strings.Cut(spec, "=")
		tier, err := skills.ParseTier(name)
		if err != nil || action != "deny" {
			return nil, exit.Flag("tier-scripts", fmt.Errorf("%q is not TIER=deny", spec))
		}
		closed = append(closed, tier)
	}
	cfg := policy.Config{
		Tools: tools, Allowlist: allowlist, Mode: mode, Role: policy.Role(o.Role),
		Release:              policy.Release(o.Release),
		AllowedToolsAdvisory: o.AllowedTools == "advisory", ClosedTiers: closed,
		Profiles: o.Process.Cfg.Keys.PolicyProfiles(), Profile: o.Profile,
		HostTarget: o.Target == string(policy.TargetHost),
	}
	pol := policy.New(cfg)
	if err := o.checkProfiles(pol); err != nil {
		return nil, err
	}
	if err := cfg.Check(); err != nil {
		return nil, exit.Usagef("see `skillsd config show`", "policy: %w", err)
	}
	return pol, nil
}

// Allowlist builds the allowlist from the place that counts: entries of the file have options, entries of the
// command line and the environment do not.
func (o *Options) Allowlist() (policy.Allowlist, error) {
	cfg := &o.Process.Cfg
	if cfg.Origins["allow"].Kind != config.FromFile {
		return config.ParseAllow(o.AllowScripts)
	}
	var entries []policy.Entry
	for i := range cfg.Keys.Allow {
		entry, err := cfg.Keys.Allow[i].Entry()
		if err != nil {
			return policy.Allowlist{}, err
		}
		entries = append(entries, entry)
	}
	return policy.NewAllowlist(entries)
}

// checkProfiles refuses names of profiles that do not exist: a typo would leave nothing, or all.
func (o *Options) checkProfiles(pol *policy.Policy) error {
	keys := &o.Process.Cfg.Keys
	names := append(slices.Sorted(maps.Keys(keys.Profiles)), "browser")
	if o.Profile != "" && !pol.HasProfile(o.Profile) {
		return exit.Flag("profile", fmt.Errorf("no profile %q; %s", config.Clip(o.Profile),
			cmp.Or(strings.TrimPrefix(config.DidYouMean(o.Profile, names), "; "),
				"there are "+strings.Join(names, ", "))))
	}
	for _, name := range slices.Sorted(maps.Keys(keys.Principals)) {
		if profile := keys.Principals[name].Profile; profile != "" && !pol.HasProfile(profile) {
			return o.Process.Cfg.Problem("principals."+name+".profile", "no profile %q%s",
				config.Clip(profile), config.DidYouMean(profile, names))
		}
	}
	return nil
}
