package policy

import (
	"bytes"
	"encoding/json"
)

// slotType is the type of a prompt-slot binding.
const slotType = "https://commonfabric.org/cfc/atom/PromptSlotBound"

// maxSlot is the maximum size of a binding, in bytes.
const maxSlot = 64 << 10

// PromptSlot is a binding that states the origin of the words behind a call.
type PromptSlot struct {
	Role Role
	Raw  json.RawMessage // the binding as received, for the records
}

// SlotError reports a malformed binding.
type SlotError struct{ Reason string }

func (e *SlotError) Error() string { return "prompt slot: " + e.Reason }

// ParsePromptSlot parses a PromptSlotBound object. Its digests are recorded, not verified: a client that may
// send bindings is trusted with them.
//
// Errors: *SlotError.
func ParsePromptSlot(raw json.RawMessage) (*PromptSlot, error) {
	if len(raw) > maxSlot {
		return nil, &SlotError{"longer than 64 KiB"}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, &SlotError{"not an object"}
	}
	if kind, ok := text(fields["type"]); !ok || kind != slotType {
		return nil, &SlotError{"type is not " + slotType}
	}
	// The form follows the reference, which accepts a string or an object.
	if !nonEmpty(fields["source"]) {
		return nil, &SlotError{"source is neither a non-empty string nor a non-empty object"}
	}
	// A missing role is the empty text, which parseRole refuses.
	name, _ := text(fields["role"])
	role, err := parseRole(name)
	if err != nil {
		return nil, &SlotError{err.Error()}
	}
	for _, key := range []string{"kernelName", "surface"} {
		if value, ok := text(fields[key]); !ok || value == "" {
			return nil, &SlotError{key + " is not a non-empty string"}
		}
	}
	for _, key := range []string{"subject", "eventId", "valueDigest", "slotDigest", "snapshotDigest",
		"targetPath"} {
		if value, present := fields[key]; present && !optionalText(key, value) {
			return nil, &SlotError{key + " does not have its type"}
		}
	}
	if ref, present := fields["renderRef"]; present && !isRenderRef(ref) {
		return nil, &SlotError{"renderRef is not {seq, rootRef}"}
	}
	// Compact, so that a record has the same bytes for any white space of the client.
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, &SlotError{"not an object"}
	}
	return &PromptSlot{Role: role, Raw: compact.Bytes()}, nil
}

func text(raw json.RawMessage) (string, bool) {
	var s *string
	// JSON null decodes into a string without an error; only the pointer shows it.
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

func nonEmpty(raw json.RawMessage) bool {
	if s, ok := text(raw); ok {
		return s != ""
	}
	var object map[string]json.RawMessage
	return len(raw) > 0 && json.Unmarshal(raw, &object) == nil && len(object) > 0
}

// optionalText accepts a string; targetPath may also be a list of strings.
func optionalText(key string, raw json.RawMessage) bool {
	if _, ok := text(raw); ok {
		return true
	}
	var list []string
	return key == "targetPath" && json.Unmarshal(raw, &list) == nil && list != nil
}

func isRenderRef(raw json.RawMessage) bool {
	var ref struct {
		Seq     *int64  `json:"seq"`
		RootRef *string `json:"rootRef"`
	}
	return json.Unmarshal(raw, &ref) == nil && ref.Seq != nil && ref.RootRef != nil
}
