package cfharness

import (
	"encoding/json"

	"github.com/skillsd/skillsd/provenance"
)

// ObservationPolicy is how much of an output a caller may observe.
type ObservationPolicy string

// The policies, from the least to the most restrictive.
const (
	PolicyObserved ObservationPolicy = "observed" // the output itself
	PolicyOpaque   ObservationPolicy = "opaque"   // a handle, which the caller can pass on
	PolicyDenied   ObservationPolicy = "denied"   // only that there is an output
)

// SandboxResult is the CfcSandboxResult of the reference: how much of the output of a run a caller may
// observe. A runtime that labels its output returns one, and an answer contains one with what was released.
type SandboxResult struct {
	Version     int                 `json:"version"` // 1
	Stdout      StreamObservation   `json:"stdout"`
	Stderr      StreamObservation   `json:"stderr"`
	ExitCode    ExitCodeObservation `json:"exitCode"`
	Diagnostics []json.RawMessage   `json:"diagnostics,omitempty"` // of the runtime
}

// StreamObservation is how much of a stream a caller may observe. Segments is set only if it is observed,
// ByteLength only if it is opaque, Reason only if it is denied.
type StreamObservation struct {
	Channel    string              `json:"channel"` // stdout or stderr
	Policy     ObservationPolicy   `json:"policy"`
	Label      json.RawMessage     `json:"label"` // not interpreted
	Segments   List[StreamSegment] `json:"segments,omitzero"`
	ByteLength *int64              `json:"byteLength,omitempty"`
	Truncated  bool                `json:"truncated,omitempty"`
	Reason     string              `json:"reason,omitempty"`
}

// StreamSegment is a part of an observed stream. Offset and ByteLength are in bytes.
type StreamSegment struct {
	Text       string          `json:"text"`
	Label      json.RawMessage `json:"label"`
	Offset     int64           `json:"offset"`
	ByteLength int64           `json:"byteLength"`
}

// ExitCodeObservation is how much of an exit code a caller may observe. Value is set only if it is observed,
// Reason only if it is denied.
type ExitCodeObservation struct {
	Policy ObservationPolicy `json:"policy"`
	Label  json.RawMessage   `json:"label"`
	Value  *int              `json:"value,omitempty"`
	Reason string            `json:"reason,omitempty"`
}

// ReadSandboxResult parses the result of a runtime. A nil result observes everything. An invalid one denies
// everything: a runtime that labels its output must not be treated as one that does not.
func ReadSandboxResult(raw []byte) *SandboxResult {
	unlabelled := json.RawMessage("{}")
	m := &SandboxResult{Version: 1}
	m.Stdout.Policy, m.Stderr.Policy, m.ExitCode.Policy = PolicyObserved, PolicyObserved, PolicyObserved
	if raw != nil {
		*m = SandboxResult{}
		known := json.Unmarshal(raw, m) == nil && m.Version == 1
		for _, p := range []ObservationPolicy{m.Stdout.Policy, m.Stderr.Policy, m.ExitCode.Policy} {
			known = known && (p == PolicyObserved || p == PolicyOpaque || p == PolicyDenied)
		}
		if !known {
			const reason = "the runtime's mediation result cannot be read"
			stream := StreamObservation{Policy: PolicyDenied, Reason: reason}
			m = &SandboxResult{Version: 1, Stdout: stream, Stderr: stream,
				ExitCode: ExitCodeObservation{Policy: PolicyDenied, Reason: reason}}
		}
	}
	m.Stdout.Channel, m.Stderr.Channel = "stdout", "stderr"
	for _, label := range []*json.RawMessage{&m.Stdout.Label, &m.Stderr.Label, &m.ExitCode.Label} {
		if len(*label) == 0 {
			*label = unlabelled
		}
	}
	return m
}

// Observation is the value of a stream in an output object: the text, or the reason why it was withheld. The
// zero value is an absent key.
type Observation struct {
	Text   *string
	Denied *ObservationDenied
}

// MarshalJSON implements json.Marshaler.
func (o Observation) MarshalJSON() ([]byte, error) {
	if o.Denied != nil {
		return provenance.Encode(o.Denied)
	}
	return provenance.Encode(o.Text)
}
