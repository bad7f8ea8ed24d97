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
)

// Decided reads the run manifest, then makes the policy, since the manifest may set the mode. Then it checks
// and completes the options of the transport and of a session to resume.
func (o *Options) Decided() (*policy.Policy, snapshot.Facts, error) {
	facts, err := o.Facts()
	if err != nil {
		return nil, facts, err
	}
	pol, err := o.Policy()
	if err != nil {
		return nil, facts, err
	}
	if err := o.httpServer().check(&o.Process.Cfg); err != nil {
		return nil, facts, err
	}
	return pol, facts, o.checkResumption()
}

// Facts returns what the records say of the server in addition to its policy. The run manifest sets options
// without a value from a flag or the configuration.
func (o *Options) Facts() (snapshot.Facts, error) {
	facts := snapshot.Facts{ModeSource: snapshot.ModeDefault}
	switch o.Process.Cfg.OriginOf("cfc-enforcement-mode").Kind {
	case config.FromFlag:
		facts.ModeSource = snapshot.ModeOverride
	case config.FromEnv, config.FromFile:
		facts.ModeSource = snapshot.ModeConfig
	}
	search, _ := o.Process.Env("PATH")
	facts.Command = func(name string) string { return findCommand(search, name) }
	if o.Manifest.Path != "" {
		if err := o.readManifest(&facts); err != nil {
			failed := &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--run-manifest: %w", err)}
			if exit.SystemHint(err) == "" {
				failed.Hint = "have it written again by what starts the run, or leave out --run-manifest"
			}
			return facts, failed
		}
	}
	if o.Role != "" && facts.Slot == nil {
		slot, err := ownSlot(o.Role, facts.ManifestPath)
		if err != nil {
			return facts, err
		}
		facts.Slot = slot
	}
	return facts, nil
}

// readManifest reads the run manifest.
func (o *Options) readManifest(facts *snapshot.Facts) error {
	path, err := filepath.Abs(o.Manifest.Path)
	if err != nil {
		return err
	}
	text, err := config.ReadFile(path, cfharness.MaxRunManifest)
	if err != nil {
		return err
	}
	manifest, err := cfharness.ParseRunManifest(text)
	if err != nil {
		return fmt.Errorf("%s%s: %w", path, jsonFault(text), err)
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

// jsonFault returns the place at which a text is not valid JSON, the zero place if the text is valid.
func jsonFault(text []byte) config.Place {
	var whole json.RawMessage
	fault, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &whole))
	if !ok {
		return config.Place{}
	}
	return config.PlaceOf(text, max(0, min(len(text), int(fault.Offset)-1)))
}

// ownSlot returns the binding of a role that the operator gave the process.
func ownSlot(role, manifest string) (json.RawMessage, error) {
	source := cfharness.OperatorSource(manifest)
	return provenance.Encode(struct {
		Type       string               `json:"type"`
		Source     cfharness.SlotSource `json:"source"`
		Role       string               `json:"role"`
		KernelName string               `json:"kernelName"`
		Surface    string               `json:"surface"`
	}{cfharness.TypePromptSlot, source, role, "skillsd", cfharness.SurfaceCLI})
}

// findCommand returns the first executable file of that name in the directories of a search path, which
// is not run.
func findCommand(search, name string) string {
	for _, dir := range append(filepath.SplitList(search), "/usr/bin", "/usr/local/bin", "/bin") {
		// A relative directory would depend on where the server was started.
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
