package cfharness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// InvocationContext describes the inputs of one command in the sandbox by size and digest, never by content.
// It is the Invocation of a skill.script_executed event.
type InvocationContext struct {
	Type         string             `json:"type"`
	Version      int                `json:"version"`
	Sequence     int                `json:"sequence"` // number of the context in its run, from 1
	RunID        string             `json:"runId"`
	CreatedAt    Timestamp          `json:"createdAt"`
	ToolID       string             `json:"toolId"`
	ToolOutputID string             `json:"toolOutputId,omitempty"`
	Operation    string             `json:"operation"` // command
	Mode         string             `json:"cfcEnforcementMode"`
	CWD          string             `json:"cwd"`
	PromptSlot   json.RawMessage    `json:"promptSlot,omitempty"`
	RunManifest  InvocationManifest `json:"runManifest"`
	Inputs       InvocationInputs   `json:"inputs"`
	InputLabels  *InputLabels       `json:"cfcInputLabels,omitempty"`
}

// OperationCommand is the operation of an [InvocationContext] for an argv without a shell.
const OperationCommand = "command"

// InvocationManifest identifies the run manifest of an invocation.
type InvocationManifest struct {
	Present           bool   `json:"present"`
	Path              string `json:"path,omitempty"` // path of the session's copy
	Source            string `json:"source,omitempty"`
	WishID            string `json:"wishId,omitempty"`
	DispatchClass     string `json:"dispatchClass,omitempty"`
	Mode              string `json:"cfcEnforcementMode,omitempty"`
	PromptSlotPresent *bool  `json:"promptSlotPresent,omitempty"`
}

// InvocationInputs are the inputs of a command; absent inputs are nil.
type InvocationInputs struct {
	Argv  *SequenceSummary `json:"argv,omitempty"`
	Args  *SequenceSummary `json:"args,omitempty"`
	Stdin *TextSummary     `json:"stdin,omitempty"`
	Env   *EnvSummary      `json:"env,omitempty"`
}

// TextSummary describes a text without its content.
type TextSummary struct {
	Type   string        `json:"type"`
	Bytes  int64         `json:"bytes"`
	Digest digest.Digest `json:"digest"`
}

// SequenceSummary describes a list of texts without their content. Digest is the digest of the list as
// compact JSON.
type SequenceSummary struct {
	Type       string        `json:"type"`
	Count      int           `json:"count"`
	TotalBytes int64         `json:"totalBytes"`
	Digest     digest.Digest `json:"digest"`
}

// EnvSummary describes an environment by its sorted names, without values.
type EnvSummary struct {
	Type  string       `json:"type"`
	Count int          `json:"count"`
	Names List[string] `json:"names"`
}

// SummarizeText returns the summary of a text.
func SummarizeText(text []byte) *TextSummary {
	return &TextSummary{Type: TypeTextSummary, Bytes: int64(len(text)), Digest: digest.FromBytes(text)}
}

// SummarizeSequence returns the summary of a list. Invalid UTF-8 is included unchanged in the length, and as
// U+FFFD in the digest.
func SummarizeSequence(list []string) *SequenceSummary {
	s := &SequenceSummary{Type: TypeSequenceSummary, Count: len(list)}
	compact := []byte{'['}
	for i, text := range list {
		if i > 0 {
			compact = append(compact, ',')
		}
		s.TotalBytes += int64(len(text))
		compact = appendText(compact, strings.ToValidUTF8(text, "\uFFFD"))
	}
	s.Digest = digest.FromBytes(append(compact, ']'))
	return s
}

// SummarizeEnv returns the summary of an environment of "NAME=value" entries.
func SummarizeEnv(env []string) *EnvSummary {
	s := &EnvSummary{Type: TypeEnvSummary, Count: len(env)}
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		s.Names = append(s.Names, name)
	}
	slices.Sort(s.Names)
	return s
}

// InputLabels are the labels of the inputs of a command.
type InputLabels struct {
	Version int              `json:"version"` // 1
	Entries List[InputLabel] `json:"entries"`
}

// InputLabel labels one input, or a part of it.
type InputLabel struct {
	Path  List[any] `json:"path"` // an input, followed by strings and integers
	Label Label     `json:"label"`
}

// Label holds atoms, which may have any form.
type Label struct {
	Confidentiality []json.RawMessage `json:"confidentiality,omitempty"`
	Integrity       []json.RawMessage `json:"integrity,omitempty"`
}

// labelledInputs are the names of inputs that may have a label.
var labelledInputs = []string{"argv", "args", "env", "cwd"}

// LabelledInputs returns the names of inputs that may have a label.
func LabelledInputs() []string { return slices.Clone(labelledInputs) }

const (
	// MaxInputLabels is the maximum size of the input labels of a call, in bytes.
	MaxInputLabels = 64 << 10

	maxLabelEntries = 256
	maxLabelPath    = 32
)

// ParseInputLabels parses input labels. Each entry must name one of [LabelledInputs], because a label for any
// other input would be lost silently.
//
// Errors: ErrInvalid.
func ParseInputLabels(raw []byte) (*InputLabels, error) {
	if len(raw) > MaxInputLabels {
		return nil, fmt.Errorf("input labels: %w: longer than %d bytes", provenance.ErrInvalid,
			MaxInputLabels)
	}
	fields, err := onlyKeys(raw, "version", "entries")
	var entries []json.RawMessage
	switch {
	case err != nil:
		return nil, fmt.Errorf("input labels: %w", err)
	case !is(1)(fields["version"]):
		return nil, fmt.Errorf("input labels: %w: version is not 1", provenance.ErrInvalid)
	case json.Unmarshal(fields["entries"], &entries) != nil || entries == nil ||
		len(entries) > maxLabelEntries:
		return nil, fmt.Errorf("input labels: %w: entries is not a list of at most %d", provenance.ErrInvalid,
			maxLabelEntries)
	}
	labels := &InputLabels{Version: 1}
	for i, entry := range entries {
		label, err := parseInputLabel(entry)
		if err != nil {
			return nil, fmt.Errorf("input labels: entry %d: %w", i, err)
		}
		labels.Entries = append(labels.Entries, label)
	}
	return labels, nil
}

// Influenced returns the labels of the inputs that a command has, with atom, unless nil, added to the
// confidentiality of each; nil if there are no labels. cwd is whether the command has a working directory. l
// may be nil and is not changed.
func (l *InputLabels) Influenced(atom json.RawMessage, cwd bool) *InputLabels {
	labels := &InputLabels{Version: 1}
	has := func(input any) bool { return input != "cwd" || cwd }
	if l != nil {
		for _, entry := range l.Entries {
			if has(entry.Path[0]) {
				labels.Entries = append(labels.Entries, entry)
			}
		}
	}
	for _, input := range labelledInputs {
		if atom == nil || !has(input) {
			continue
		}
		i := slices.IndexFunc(labels.Entries,
			func(e InputLabel) bool { return len(e.Path) == 1 && e.Path[0] == input })
		// An input without a label gets one, since the atom applies to every input of the command.
		if i < 0 {
			i = len(labels.Entries)
			labels.Entries = append(labels.Entries, InputLabel{Path: List[any]{input}})
		}
		label := &labels.Entries[i].Label
		// Clipped, so that the append copies: l is not changed.
		label.Confidentiality = append(slices.Clip(label.Confidentiality), atom)
	}
	if len(labels.Entries) == 0 {
		return nil
	}
	slices.SortStableFunc(labels.Entries, func(a, b InputLabel) int {
		return strings.Compare(fmt.Sprint(a.Path...), fmt.Sprint(b.Path...))
	})
	return labels
}

func parseInputLabel(raw []byte) (label InputLabel, err error) {
	fields, err := onlyKeys(raw, "path", "label")
	if err != nil {
		return label, err
	}
	label.Label, err = parseLabel(fields["label"])
	if err != nil {
		return label, err
	}
	label.Path, err = parseLabelPath(fields["path"])
	return label, err
}

func parseLabel(raw []byte) (label Label, err error) {
	atoms, err := onlyKeys(raw, "confidentiality", "integrity")
	if err != nil {
		return label, fmt.Errorf("label: %w", err)
	}
	for key, value := range atoms {
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || list == nil {
			return label, fmt.Errorf("%w: %s is not a list", provenance.ErrInvalid, key)
		}
		if key == "integrity" {
			label.Integrity = list
		} else {
			label.Confidentiality = list
		}
	}
	return label, nil
}

func parseLabelPath(raw []byte) (path List[any], err error) {
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 || len(parts) > maxLabelPath {
		return nil, fmt.Errorf("%w: path is not a list of 1 to %d", provenance.ErrInvalid, maxLabelPath)
	}
	for i, part := range parts {
		var text *string
		var number *int64
		switch {
		case json.Unmarshal(part, &text) == nil && text != nil &&
			(i > 0 || slices.Contains(labelledInputs, *text)):
			path = append(path, *text)
		case i > 0 && json.Unmarshal(part, &number) == nil && number != nil && *number >= 0:
			path = append(path, *number)
		default:
			known := strings.Join(labelledInputs, ", ")
			return nil, fmt.Errorf("%w: path does not name one of %s", provenance.ErrInvalid, known)
		}
	}
	return path, nil
}

// Influence returns the atom for a prompt slot, or nil without one. The atom records whose words led to an
// input. It affects confidentiality only: the author of a command does not vouch for its inputs.
func Influence(slot json.RawMessage, manifest *RunManifest) json.RawMessage {
	var of map[string]json.RawMessage
	if slot == nil || json.Unmarshal(slot, &of) != nil {
		return nil
	}
	null := json.RawMessage("null")
	atom := map[string]json.RawMessage{"role": null, "kernelName": null, "surface": null}
	maps.Copy(atom, of)
	atom["type"], atom["version"] = json.RawMessage(strconv.Quote(TypeInfluence)), json.RawMessage("1")
	delete(atom, "runManifest")
	if m := manifest; m != nil {
		atom["runManifest"], _ = provenance.Encode(struct {
			Source        string `json:"source,omitempty"`
			WishID        string `json:"wishId,omitempty"`
			DispatchClass string `json:"dispatchClass,omitempty"`
		}{RunManifestSource, m.WishID, m.DispatchClass})
	}
	return object([]string{"type", "version", "role", "kernelName", "surface", "subject", "eventId",
		"valueDigest", "slotDigest", "snapshotDigest", "targetPath", "runManifest"}, atom)
}
