package cfharness

import (
	"reflect"

	"github.com/skillsd/skillsd/provenance"
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
		form, required := kind.Form()
		if typ := types[form]; typ != nil {
			rows = append(rows, EventRow{kind, typ, required})
		}
	}
	return rows
}
