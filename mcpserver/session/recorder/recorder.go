// Package recorder collects what single calls leave in the records of their sessions.
package recorder

import (
	"encoding/json"
	"sync"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Session is whose records a Recorder has.
type Session struct {
	ID     string
	Viewer func(remote bool) *cfharness.Viewer // of what a caller may see
}

// Recorder collects what one call leaves in the record of its session. The zero value is ready. It is
// safe for concurrent use.
type Recorder struct {
	// Brief leaves out everything but the ids of the session, and these too if it has the id asked for.
	Brief bool

	mu        sync.Mutex
	session   *Session // nil if nothing was recorded and the session has the id asked for
	requested string   // the id asked for, if the session has another
	events    []*provenance.Event
}

// Opened notes which session a call belongs to that asked for one with another id. A nil Recorder notes
// nothing.
func (r *Recorder) Opened(s *Session, requested string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.requested = s, requested
}

// Note adds a recorded event. A nil Recorder notes nothing.
func (r *Recorder) Note(s *Session, e *provenance.Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = s
	r.events = append(r.events, e)
}

// Records returns what was collected as a caller may see it: with sandbox paths in place of host paths for
// a remote caller, and without the digests of output that was withheld. It is nil if nothing was recorded and
// the session has the id that the call asked for, if it asked for one.
//
// Errors: the error of a row that cannot be read.
func (r *Recorder) Records(remote bool) (*cfharness.CallRecords, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == nil {
		return nil, nil
	}
	if r.Brief {
		if r.requested == "" {
			return nil, nil
		}
		r.events = nil
	}
	viewer := r.session.Viewer(remote)
	records, err := cfharness.NewCallRecords(r.session.ID, r.events,
		func(view string, row json.RawMessage) (json.RawMessage, error) {
			seen, err := viewer.Row(view, row)
			if err != nil || seen == nil {
				return row, err
			}
			return seen, nil
		})
	if records != nil {
		records.RequestedRunID = r.requested
	}
	return records, err
}
