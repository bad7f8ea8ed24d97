package session

import (
	"encoding/json"
	"sync"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Recorder collects the events that one call adds to the record of its session. The zero value is ready. It
// is safe for concurrent use.
type Recorder struct {
	// Brief leaves out everything but the ids of the session, and these too if it has the id asked for.
	Brief bool

	mu        sync.Mutex
	session   *Session // nil if nothing was recorded and the session has the id asked for
	requested string   // the id asked for, if the session has another
	events    []*provenance.Event
}

// opened sets the session of a call that requested another session id.
func (r *Recorder) opened(s *Session, requested string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.requested = s, requested
}

// note adds a recorded event.
func (r *Recorder) note(s *Session, e *provenance.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = s
	r.events = append(r.events, e)
}

// Records returns the collected events in the caller's view: with sandbox paths instead of host paths for a
// remote caller, and without the digests of withheld output. It returns nil if no event was recorded and the
// session has the id that the call requested, if it requested one.
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
	viewer := r.session.viewer(remote)
	records, err := cfharness.NewCallRecords(r.session.id, r.events,
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
