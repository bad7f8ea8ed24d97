package filestore

import (
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// fold is the session that the events of a record make, and what its views say besides their rows.
type fold struct {
	provenance.Tally
	cfharness.Heads
}

// Add folds the next event. After an error the fold is as before: Heads takes every event that a Tally takes.
func (f *fold) Add(e *provenance.Event) error {
	if err := f.Tally.Add(e); err != nil {
		return err
	}
	return f.Heads.Add(e)
}
