package cfharness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// MaxRunManifest is the maximum size of a run manifest, in bytes.
const MaxRunManifest = 1 << 20

// RunManifestSource is the source key of every run manifest, and RunManifestLabelSource the labelSource of
// its cfc.
const (
	RunManifestSource      = "loom"
	RunManifestLabelSource = "loom-run-manifest"
)

// RunManifest is the description of a run by the program that started it. Nothing in it is verified.
type RunManifest struct {
	// Raw is the manifest as stored: keys in their original order, including unknown ones, after the keys
	// type, version and source if these were absent.
	Raw json.RawMessage

	WishID, ParentWishID, DispatchClass, CapabilityProfile string

	PromptSlot  json.RawMessage // an object that is not checked further; nil if absent
	Mode        string          // cfc.enforcementMode, empty if absent
	LabelSource string          // cfc.labelSource, empty if absent
}

// ParseRunManifest parses a run manifest. Keys are case-sensitive, and duplicates are rejected. Every key is
// optional. A key that is present must have its type; type, version and source must have their only value.
//
// Errors: ErrInvalid, with the name of the key.
func ParseRunManifest(data []byte) (*RunManifest, error) {
	m, err := parseManifest(data)
	if err != nil {
		return nil, fmt.Errorf("run manifest: %w", err)
	}
	return m, nil
}

func parseManifest(data []byte) (*RunManifest, error) {
	if len(data) > MaxRunManifest {
		return nil, fmt.Errorf("%w: longer than %d bytes", provenance.ErrInvalid, MaxRunManifest)
	}
	keys, fields, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	m := &RunManifest{}
	for _, check := range manifestChecks(m) {
		if raw, present := fields[check.key]; present && !check.accept(raw) {
			return nil, fmt.Errorf("%w: %q does not have its form", provenance.ErrInvalid, check.key)
		}
	}
	m.Raw = keptManifest(keys, fields)
	return m, nil
}

// manifestCheck validates the value of a key, and may store it.
type manifestCheck struct {
	key    string
	accept func(json.RawMessage) bool
}

func manifestChecks(m *RunManifest) []manifestCheck {
	var none string
	text := textInto(&none)
	return []manifestCheck{
		{"type", is(TypeRunManifest)}, {"version", is(1)}, {"source", is(RunManifestSource)},
		{"instanceId", text},
		{"wishId", textInto(&m.WishID)},
		{"parentWishId", textInto(&m.ParentWishID)},
		{"dispatchClass", textInto(&m.DispatchClass)},
		{"capabilityProfile", textInto(&m.CapabilityProfile)},
		{"model", text}, {"modelProvider", oneOf(&none, "openai-compatible-gateway", "openai-codex")},
		{"modelAuthSource", oneOf(&none, "api-key", "none", "owner-bound-oauth", "cf-harness-local-store")},
		{"credentialOwner", keys(3, manifestCheck{"type", is("cf-harness.credential-owner-ref")},
			manifestCheck{"version", is(1)}, manifestCheck{"ownerKey", text},
			manifestCheck{"tenantKey", text})},
		{"harnessHomeIdentity", func(raw json.RawMessage) bool {
			var d digest.Digest
			return textInto((*string)(&d))(raw) && d.Validate() == nil && d.Algorithm() == digest.SHA256
		}},
		{"workspace", keys(0, manifestCheck{"hostPath", text}, manifestCheck{"sandboxPath", text},
			manifestCheck{"cwd", text})},
		{"promptSlot", func(raw json.RawMessage) bool { m.PromptSlot = raw; return keys(0)(raw) }},
		{"cfc", keys(0, manifestCheck{"enforcementMode", oneOf(&m.Mode, Modes()...)},
			manifestCheck{"labelSource", oneOf(&m.LabelSource, RunManifestLabelSource)})},
		{"extra", keys(0)},
	}
}

// Modes returns the enforcement modes in order of strictness.
func Modes() []string { return []string{"disabled", "observe", "enforce-explicit", "enforce-strict"} }

// keptManifest returns the object with the keys type, version and source. If absent, they are added at the
// front.
func keptManifest(keys []string, fields map[string]json.RawMessage) json.RawMessage {
	var first []string
	for _, f := range [...][2]string{
		{"type", strconv.Quote(TypeRunManifest)}, {"version", "1"},
		{"source", strconv.Quote(RunManifestSource)},
	} {
		if fields[f[0]] == nil {
			first, fields[f[0]] = append(first, f[0]), json.RawMessage(f[1])
		}
	}
	return object(slices.Concat(first, keys), fields)
}

// keys accepts an object whose keys pass the checks; the first few are required. Other keys are ignored.
func keys(required int, checks ...manifestCheck) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		_, fields, err := parseObject(raw)
		return err == nil && !slices.ContainsFunc(checks, func(check manifestCheck) bool {
			value, present := fields[check.key]
			return present && !check.accept(value)
		}) && !slices.ContainsFunc(checks[:required], func(check manifestCheck) bool {
			return fields[check.key] == nil
		})
	}
}

// textInto accepts a string and stores it.
func textInto(dst *string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		var text *string
		if json.Unmarshal(raw, &text) != nil || text == nil {
			return false
		}
		*dst = *text
		return true
	}
}

// oneOf accepts one of some strings and stores it.
func oneOf(dst *string, words ...string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool { return textInto(dst)(raw) && slices.Contains(words, *dst) }
}

// is accepts exactly one value.
func is[T comparable](want T) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		var got *T
		return json.Unmarshal(raw, &got) == nil && got != nil && *got == want
	}
}
