package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Options are the values of the options of a server, and its process environment. Flags have the names of the
// reference harness, where it has them.
type Options struct {
	Process  *config.Process
	In       io.Reader // of stdio
	Out, Err io.Writer // of stdio, and of the log
	Version  string    // of the server
	// Begins is called before the server reads In: from then on it answers its client. Optional.
	Begins func()
	// ServePage serves the operator's page at a listener until ctx ends.
	ServePage func(ctx context.Context, listener net.Listener, source PageSource) error
	// Again returns the options of the same command line with the current configuration; nil if it cannot be
	// read again.
	Again func() (*Options, error)
	// FindSession resolves an abbreviated session id.
	FindSession func(ctx context.Context, name string) (id string, err error)

	config.Options
}

// Configure sets the flags of serve, some or all of which are flags of the running command. Flags that were
// not given get their values from the environment or the file. The origins are then the origins of serve.
func (o *Options) Configure(all *pflag.FlagSet) error {
	// The copy keeps the origins of the running command, which its messages are about.
	own := *o.Process
	o.Process = &own
	return own.Cfg.Configure(config.Flags{All: all, Own: all}, own.Env)
}

// Policy returns the policy that the flags describe.
func (o *Options) Policy() (*policy.Policy, error) {
	mode, err := policy.ParseMode(o.Mode)
	if err != nil {
		return nil, exit.Flag("cfc-enforcement-mode", err)
	}
	if err := o.checkWords(); err != nil {
		return nil, err
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
	closed, err := o.closedTiers()
	if err != nil {
		return nil, err
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

// checkWords rejects unknown words of options whose words nothing else checks.
func (o *Options) checkWords() error {
	checked := []string{"prompt-slot-role", "release", "allowed-tools", "drift", "sandbox", "search",
		"http-activation", "skill-script-execution-target"}
	for _, option := range o.Table() {
		word, ok := option.Value.(*string)
		if !ok || !slices.Contains(checked, option.Flag) || *word == option.Default ||
			slices.Contains(option.Words, *word) {
			continue
		}
		problem := fmt.Errorf("%q is not one of %s", *word, strings.Join(option.Words, ", "))
		if option.Flag == "sandbox" {
			problem = fmt.Errorf("%q is not one of %s; scripts never run without a sandbox", *word,
				strings.Join(detect.Present(), ", "))
		}
		return exit.Flag(option.Flag, problem)
	}
	return nil
}

// closedTiers returns the tiers of --tier-scripts, whose scripts never run.
func (o *Options) closedTiers() (closed []skills.Tier, err error) {
	for _, spec := range o.ClosedTiers {
		name, action, _ := strings.Cut(spec, "=")
		tier, err := skills.ParseTier(name)
		if err != nil || action != "deny" {
			return nil, exit.Flag("tier-scripts", fmt.Errorf("%q is not TIER=deny; TIER is %s",
				config.Clip(spec), skills.TierList()))
		}
		closed = append(closed, tier)
	}
	return closed, nil
}

// Allowlist returns the allowlist of the source with precedence: the file, or the command line and the
// environment, whose entries have few options.
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

// checkProfiles rejects unknown names of profiles: with a typo, a session would be allowed nothing, or
// everything.
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

// Decided returns the policy of a server and its facts for the records. It checks and completes the options
// of the transport and of a session to resume.
func (o *Options) Decided() (*policy.Policy, snapshot.Facts, error) {
	pol, facts, err := o.decidedRun()
	if err != nil {
		return nil, facts, err
	}
	if err := o.checkHTTP(); err != nil {
		return nil, facts, err
	}
	r := &o.Resume
	switch {
	case r.Drift != "fail" && r.Drift != "reload":
		err = exit.Flag("resume-drift", fmt.Errorf("%q is neither fail nor reload", r.Drift))
	case r.Session == "" && o.Process.Cfg.OriginOf("resume-drift").Kind == config.FromFlag:
		err = exit.Usagef("add --resume SESSION", "--resume-drift has no effect without --resume")
	case r.Session != "" && o.HTTP.Enabled():
		err = exit.Usagef("over HTTP, clients continue their sessions by their activation handles",
			"--resume has no effect on HTTP")
	}
	return pol, facts, err
}

// decidedRun returns the policy and the facts of a process without clients.
func (o *Options) decidedRun() (*policy.Policy, snapshot.Facts, error) {
	facts := snapshot.Facts{ModeSource: snapshot.ModeDefault}
	switch o.Process.Cfg.OriginOf("cfc-enforcement-mode").Kind {
	case config.FromFlag:
		facts.ModeSource = snapshot.ModeOverride
	case config.FromEnv, config.FromFile:
		facts.ModeSource = snapshot.ModeConfig
	}
	search, _ := o.Process.Env("PATH")
	facts.Command = func(name string) string { return detect.Command(search, "", name) }
	// The manifest may set the mode and the role, so it is read before the policy is made.
	if o.Manifest != "" {
		if err := o.readManifest(&facts); err != nil {
			hint := cmp.Or(exit.SystemHint(err),
				"write it again, or remove --run-manifest")
			return nil, facts, exit.Usagef(hint, "--run-manifest: %w", err)
		}
	}
	if o.Role != "" && facts.Slot == nil {
		slot, err := provenance.Encode(struct {
			Type       string               `json:"type"`
			Source     cfharness.SlotSource `json:"source"`
			Role       string               `json:"role"`
			KernelName string               `json:"kernelName"`
			Surface    string               `json:"surface"`
		}{cfharness.TypePromptSlot, cfharness.OperatorSource(facts.ManifestPath), o.Role, "skillsd",
			cfharness.SurfaceCLI})
		if err != nil {
			return nil, facts, err
		}
		facts.Slot = slot
	}
	pol, err := o.Policy()
	return pol, facts, err
}

// readManifest reads the run manifest, which sets options that neither a flag nor the configuration sets.
func (o *Options) readManifest(facts *snapshot.Facts) error {
	path, err := filepath.Abs(o.Manifest)
	if err != nil {
		return err
	}
	text, err := fsys.ReadFile(path, cfharness.MaxRunManifest, nil)
	if err != nil {
		return err
	}
	manifest, err := cfharness.ParseRunManifest(text)
	if err != nil {
		var at config.Position
		syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, new(json.RawMessage)))
		if ok {
			at = config.PositionOf(text, max(0, int(syntax.Offset)-1))
		}
		return fmt.Errorf("%s%s: %w", path, at, err)
	}
	facts.Manifest, facts.ManifestPath = manifest, path
	// The manifest is written for one run, and what the operator configured wins over it.
	if manifest.Mode != "" && facts.ModeSource == snapshot.ModeDefault {
		o.Mode, facts.ModeSource = manifest.Mode, snapshot.ModeManifest
	}
	if manifest.PromptSlot == nil {
		return nil
	}
	slot, err := policy.ParsePromptSlot(manifest.PromptSlot)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if o.Role == "" {
		o.Role, facts.Slot = string(slot.Role), slot.Raw
	}
	return nil
}
