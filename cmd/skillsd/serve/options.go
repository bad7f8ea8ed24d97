package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/sandbox"
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
	var role policy.Role
	if o.Role != "" {
		if role, err = policy.ParseRole(o.Role); err != nil {
			return nil, exit.Flag("prompt-slot-role", err)
		}
	}
	release, err := policy.ParseRelease(o.Release)
	if err != nil {
		return nil, exit.Flag("release", err)
	}
	allowlist, err := o.Allowlist()
	if err != nil {
		return nil, err
	}
	for _, tool := range o.AllowTools {
		if tool != mcpserver.ToolRun {
			return nil, exit.Flag("allow-tool",
				fmt.Errorf("%q is no tool that can be added; only %s is", tool, mcpserver.ToolRun))
		}
	}
	if err := o.checkWords(); err != nil {
		return nil, err
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
		Tools: tools, Allowlist: allowlist, Mode: mode, Role: role, Release: release,
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

// checkWords refuses unknown words as values of options.
func (o *Options) checkWords() error {
	if !slices.Contains(SandboxWords(), o.Sandbox) {
		return exit.Flag("sandbox", fmt.Errorf(
			"%q is none of auto, native, bwrap, runsc and seatbelt; scripts never run without a sandbox",
			o.Sandbox))
	}
	if err := oneOf("search", o.Search, "auto", "always"); err != nil {
		return err
	}
	if err := oneOf("drift", o.Drift, "report", "refuse"); err != nil {
		return err
	}
	if err := oneOf("allowed-tools", o.AllowedTools, "enforce", "advisory"); err != nil {
		return err
	}
	return oneOf("skill-script-execution-target", o.Target, string(policy.TargetSandbox),
		string(policy.TargetHost))
}

// SandboxWords are the values of --sandbox.
func SandboxWords() []string { return []string{"auto", "native", "bwrap", "runsc", "seatbelt"} }

// oneOf refuses a value that is neither of two words.
func oneOf(flag, value, one, other string) error {
	if value == one || value == other {
		return nil
	}
	return exit.Flag(flag, fmt.Errorf("%q is neither %s nor %s", value, one, other))
}

func (o *Options) closedTiers() ([]skills.Tier, error) {
	var closed []skills.Tier
	for _, spec := range o.ClosedTiers {
		name, action, _ := strings.Cut(spec, "=")
		tier, err := skills.ParseTier(name)
		if err != nil || action != "deny" {
			return nil, exit.Flag("tier-scripts", fmt.Errorf("%q is not TIER=deny", spec))
		}
		closed = append(closed, tier)
	}
	return closed, nil
}

// OpenWorkspace opens the granted workspace. The caller closes the handle.
func (o *Options) OpenWorkspace() (ws sandbox.Workspace, path string, err error) {
	if o.Workspace == "" {
		return sandbox.Workspace{}, "", nil
	}
	dir, mode := o.Workspace, sandbox.WorkspaceRO
	// The name of a directory may contain colons, so only a known mode is cut off.
	for _, known := range []sandbox.WorkspaceMode{sandbox.WorkspaceRO, sandbox.WorkspaceStaged,
		sandbox.WorkspaceRW} {
		if rest, ok := strings.CutSuffix(o.Workspace, ":"+string(known)); ok {
			dir, mode = rest, known
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return ws, "", exit.Flag("workspace", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ws, "", missingWorkspace(dir)
	}
	if err != nil {
		return ws, "", &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--workspace: %s: %w", dir, err),
			Hint: cmp.Or(exit.SystemHint(err), "name another directory")}
	}
	dir = real
	handle, err := os.OpenFile(dir, os.O_RDONLY|config.OpenNonblock, 0)
	if err != nil {
		return ws, "", exit.Flag("workspace", err)
	}
	if info, err := handle.Stat(); err != nil || !info.IsDir() {
		handle.Close()
		return ws, "", exit.Flag("workspace", fmt.Errorf("%s is not a directory", dir))
	}
	return sandbox.Workspace{Mode: mode, Dir: handle, Protected: o.Roots.Within(o.Process, dir)}, dir, nil
}

// missingWorkspace returns the error of a workspace that does not exist: the directory is missing, or the
// word behind an existing directory is not a mode.
func missingWorkspace(dir string) error {
	if at := strings.LastIndexByte(dir, ':'); at > 0 {
		if info, err := os.Stat(dir[:at]); err == nil && info.IsDir() {
			return exit.Flag("workspace", fmt.Errorf("%q is no mode; the modes are ro, staged and rw",
				dir[at+1:]))
		}
	}
	return exit.Usagef("make the directory, or name another", "--workspace: there is no directory %s", dir)
}

// checkPlaces refuses a layout in which a script could reach the server's own state, or could write the
// configuration of the next server or the skills of others. configFile is the path at which the server looks
// for a configuration.
func checkPlaces(roots []skills.Root, configFile, state, artifacts, workspace string,
	mode sandbox.WorkspaceMode) error {
	for _, own := range []struct{ flag, dir string }{{"state", state}, {"artifact-root", artifacts}} {
		for _, root := range roots {
			if root.FS == nil && config.Inside(own.dir, root.Dir) {
				return exit.Usagef("keep state and records outside of what is served",
					"--%s %s lies inside the skills root %s", own.flag, own.dir, root.Dir)
			}
		}
		if workspace != "" && config.Inside(own.dir, workspace) {
			return exit.Usagef("keep state and records outside of what scripts may see",
				"--%s %s lies inside the workspace %s", own.flag, own.dir, workspace)
		}
		if workspace != "" && config.Inside(workspace, own.dir) {
			return exit.Usagef("keep state and records outside of what scripts may see",
				"the workspace %s lies inside --%s %s", workspace, own.flag, own.dir)
		}
	}
	// The rest is about writing: scripts may read the configuration's directory and the skills.
	if workspace == "" || mode == sandbox.WorkspaceRO {
		return nil
	}
	if configFile != "" && config.Inside(configFile, workspace) {
		return exit.Usagef("grant the workspace read-only, or keep the configuration elsewhere",
			"the configuration %s, which says what may run, lies inside the writable workspace %s",
			configFile, workspace)
	}
	for _, root := range roots {
		if config.Inside(root.Dir, workspace) {
			return exit.Usagef("grant the workspace read-only, or serve skills from elsewhere",
				"the skills root %s lies inside the writable workspace %s", root.Dir, workspace)
		}
		if config.Inside(workspace, root.Dir) {
			return exit.Usagef("grant the workspace read-only, or serve skills from elsewhere",
				"the writable workspace %s lies inside the skills root %s", workspace, root.Dir)
		}
	}
	return nil
}
