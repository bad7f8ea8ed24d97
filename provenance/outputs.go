package provenance

import (
	"encoding/json"
	"fmt"
	"strings"
)

// TypeOutputsRemoved is the type of an OutputsRemoved.
const TypeOutputsRemoved = "skillsd.outputs-removed"

// OutputsRemoved is the row of an outputs.removed event: kept streams that were deleted, the oldest
// first, to make space for later ones. They are then no longer part of the session.
type OutputsRemoved struct {
	Type  string     `json:"type"`
	Files List[File] `json:"files"`
}

// Removed returns the files that an outputs.removed event deletes; other kinds delete none.
//
// Errors: ErrInvalid if the row does not have its form, or names a file that is not an output.
func (e *Event) Removed() ([]File, error) {
	if e.Kind != KindOutputsRemoved {
		return nil, nil
	}
	var row OutputsRemoved
	if err := json.Unmarshal(e.Row, &row); err != nil {
		return nil, fmt.Errorf("%w: row of %s: %v", ErrInvalid, e.Kind, err)
	}
	for _, f := range row.Files {
		if CheckFileName(f.Name) != nil || !strings.HasPrefix(f.Name, OutputsDir+"/") {
			return nil, fmt.Errorf("%w: %s names %.60q", ErrInvalid, e.Kind, f.Name)
		}
	}
	return row.Files, nil
}
