package session

import (
	"encoding/json"
	"sync"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// recordedSession is the session of a Recorder's events.
type recordedSession struct {
	ID     string
	Viewer func(remote bool) *cfharness.Viewer // a caller's view of the records
}

// Recorder collects the events that one call adds to the record of its session. The zero value is ready. It
// is safe for concurrent use.
type Recorder struct {
	// Brief leaves out everything but the ids of the session, and these too if it has the id asked for.
	Brief bool

	mu        sync.Mutex
	session   *recordedSession // nil if nothing was recorded and the session has the id asked for
	requested string           // the id asked for, if the session has another
	events    []*provenance.Event
}

// Opened sets the session of a call that requested another session id. On a nil Recorder it has no effect.
func (r *Recorder) Opened(s *recordedSession, requested string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.requested = s, requested
}

// Note adds a recorded event. On a nil Recorder it has no effect.
func (r *Recorder) Note(s *recordedSession, e *provenance.Event) {
	if r == nil {
		return
	}
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
