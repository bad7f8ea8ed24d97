package cfharness

import (
	"encoding/json"

	"github.com/skillsd/skillsd/provenance"
)

// CallRecords is what one call recorded, for a client that keeps the same files itself. Rows are as the
// caller may see them: for a remote one, they have sandbox paths in place of host paths.
type CallRecords struct {
	Type         string                `json:"type"`
	Version      int                   `json:"version"`
	RunID        string                `json:"runId"`
	File         string                `json:"file,omitempty"`   // the view that Record is a row of
	Record       json.RawMessage       `json:"record,omitempty"` // row of File
	PolicyEvents List[json.RawMessage] `json:"policyEvents"`     // each a [PolicyEvent]
	Decision     json.RawMessage       `json:"decision,omitempty"`
	Invocation   json.RawMessage       `json:"cfcInvocationContext,omitempty"`
	EventIDs     List[string]          `json:"eventIds"` // see [Event.ID]
}

// NewCallRecords returns the records of a call from its events, in order. project returns a row of
// the named view as the caller may see it.
//
// Errors: the errors of project.
func NewCallRecords(
	run string, events []*provenance.Event,
	project func(view string, row json.RawMessage) (json.RawMessage, error),
) (*CallRecords, error) {
	c := &CallRecords{Type: TypeCallRecords, Version: 1, RunID: run}
	for _, e := range events {
		c.EventIDs = append(c.EventIDs, e.ID())
		if len(e.Decision) > 0 {
			c.Decision = e.Decision
		}
		if len(e.Invocation) > 0 {
			c.Invocation = e.Invocation
		}
		view := e.Kind.View()
		switch {
		case len(e.Row) == 0:
		case e.Kind == provenance.KindPolicyDenied, e.Kind == provenance.KindPolicyWarned:
			c.PolicyEvents = append(c.PolicyEvents, e.Row)
		case view != "":
			row, err := project(view, e.Row)
			if err != nil {
				return nil, err
			}
			c.File, c.Record = view, row
		}
	}
	return c, nil
}
