// Package cfharness defines the JSON records of the reference harness and folds them from the events of a
// session: the rows of its artifacts (skill-activations.json, policy-trace.json …), its snapshots, its run
// manifest, its invocation contexts and the output objects of its tools.
//
// Field names, key order, omission of absent keys and values of enumerations follow the reference. A record
// may have a final key skillsd for facts that the reference does not cover. The package reads no files and
// keeps no state besides its folds.
package cfharness

import (
	"reflect"

	"github.com/skillsd/skillsd/provenance"
)

// List is [provenance.List].
type List[T any] = provenance.List[T]

// Timestamp is [provenance.Timestamp].
type Timestamp = provenance.Timestamp

// Values of the type key in records of this package.
const (
	TypeSkillRegistry     = "cf-harness.skill-registry"
	TypeActivations       = "cf-harness.skill-activations"
	TypeResourceReads     = "cf-harness.skill-resource-reads"
	TypeResourceRead      = "cf-harness.skill-resource-read"
	TypeScriptExecutions  = "cf-harness.skill-script-executions"
	TypeScriptExecution   = "cf-harness.skill-script-execution"
	TypePolicyTrace       = "cf-harness.policy-trace"
	TypePolicyEvent       = "cf-harness.policy-event"
	TypePolicyDecision    = "cf-harness.policy-decision"
	TypePolicySnapshot    = "cf-harness.cfc-policy-snapshot"
	TypeToolInputSummary  = "cf-harness.tool-input-summary"
	TypeObservationDenied = "cf-harness.observation-denied"
	TypeOpaqueHandle      = "cf-harness.opaque-handle"
	TypeCapabilities      = "cf-harness.capability-snapshot"
	TypeReadOutput        = "cf-harness.read-skill-resource-output"
	TypeRunOutput         = "cf-harness.run-skill-script-output"
	TypeLoadOutput        = "skillsd.load-skill-output"
	TypeRunManifest       = "cf-harness.loom-run-manifest"
	TypeProfileConfig     = "cf-harness.subagent-profile-config"
	TypeInvocationContext = "cf-harness.cfc-invocation-context"
	TypeTextSummary       = "cf-harness.redacted-text-summary"
	TypeSequenceSummary   = "cf-harness.redacted-sequence-summary"
	TypeEnvSummary        = "cf-harness.env-summary"
	TypeCallRecords       = "skillsd.call-records"
	TypePromptSlot        = "https://commonfabric.org/cfc/atom/PromptSlotBound"
	TypeInfluence         = "https://commonfabric.org/cfc/atom/PromptSlotInfluence"
)

// EventRow describes the Row of events of one kind.
type EventRow struct {
	Kind     provenance.Kind
	Type     reflect.Type
	Required bool // present in every such event
}

// EventRows returns the table of rows. Other kinds have no row, or any object.
func EventRows() (rows []EventRow) {
	// Rows of questions may be any object.
	types := map[provenance.Form]reflect.Type{
		provenance.FormSession:    reflect.TypeFor[provenance.SessionInfo](),
		provenance.FormActivation: reflect.TypeFor[Activation](),
		provenance.FormRead:       reflect.TypeFor[ResourceRead](),
		provenance.FormRequest:    reflect.TypeFor[ScriptRequest](),
		provenance.FormRun:        reflect.TypeFor[ScriptExecution](),
		provenance.FormPolicy:     reflect.TypeFor[PolicyEvent](),
		provenance.FormUndo:       reflect.TypeFor[Undone](),
		provenance.FormRemoval:    reflect.TypeFor[provenance.OutputsRemoved](),
	}
	for _, kind := range provenance.Kinds() {
		facts := kind.Facts()
		if typ := types[facts.Form]; typ != nil {
			rows = append(rows, EventRow{kind, typ, facts.NeedsRow})
		}
	}
	return rows
}
