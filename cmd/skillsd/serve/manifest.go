package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Decided returns the policy of a server and what the records say of it in addition. It checks and completes
// the options of the transport and of a session to resume.
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
		err = exit.Usagef("over HTTP, activation handles find their session after a restart by themselves",
			"--resume has no effect on HTTP")
	}
	return pol, facts, err
}

// decidedRun returns the policy and the facts of a process that serves no client.
func (o *Options) decidedRun() (*policy.Policy, snapshot.Facts, error) {
	facts := snapshot.Facts{ModeSource: snapshot.ModeDefault}
	switch o.Process.Cfg.OriginOf("cfc-enforcement-mode").Kind {
	case config.FromFlag:
		facts.ModeSource = snapshot.ModeOverride
	case config.FromEnv, config.FromFile:
		facts.ModeSource = snapshot.ModeConfig
	}
	search, _ := o.Process.Env("PATH")
	facts.Command = func(name string) string { return findCommand(search, name) }
	// The manifest may set the mode and the role, so it is read before the policy is made.
	if o.Manifest != "" {
		if err := o.readManifest(&facts); err != nil {
			failed := &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--run-manifest: %w", err)}
			if exit.SystemHint(err) == "" {
				failed.Hint = "have it written again by what starts the run, or leave out --run-manifest"
			}
			return nil, facts, failed
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

// readManifest reads the run manifest, which sets options without a value from a flag or the configuration.
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
		var at config.Place
		syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, new(json.RawMessage)))
		if ok {
			at = config.PlaceOf(text, max(0, int(syntax.Offset)-1))
		}
		return fmt.Errorf("%s%s: %w", path, at, err)
	}
	facts.Manifest, facts.ManifestPath = manifest, path
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

// findCommand returns the first executable file of that name in the directories of a search path, which
// is not run.
func findCommand(search, name string) string {
	for _, dir := range append(filepath.SplitList(search), "/usr/bin", "/usr/local/bin", "/bin") {
		path := filepath.Join(dir, name)
		// A relative directory would depend on where the server was started.
		if info, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() &&
			info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
