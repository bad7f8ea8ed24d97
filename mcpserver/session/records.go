package session

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Recorder collects what one call leaves in the record of its session. The zero value is ready. It is
// safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	session *Session
	events  []*provenance.Event
}

// note adds a recorded event. A nil Recorder notes nothing.
func (r *Recorder) note(s *Session, e *provenance.Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = s
	r.events = append(r.events, e)
}

// Records returns what was collected as a caller may see it; a remote one has sandbox paths in place
// of host paths, and nobody the digests of output that was withheld. It is nil when the call left
// nothing.
//
// Errors: that of a row which is none.
func (r *Recorder) Records(remote bool) (*cfharness.CallRecords, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == nil {
		return nil, nil
	}
	return cfharness.NewCallRecords(r.session.id, r.events, func(view string, row json.RawMessage) (json.RawMessage, error) {
		seen, err := r.session.projectRow(view, row, remote)
		if err != nil || seen == nil {
			return row, err
		}
		return seen, nil
	})
}

// record appends an event that belongs to a call.
//
// Errors: as append.
func (s *Session) record(ctx context.Context, r *request, e *provenance.Event) error {
	if err := s.append(ctx, e); err != nil {
		return err
	}
	r.call.Records.note(s, e)
	return nil
}

// loadFailed records an attempt to load a skill that ended in a plain error, and returns it. Nothing
// was shown, so there is no row; the policy's decision stands when there was one.
func (s *Session) loadFailed(ctx context.Context, r *request, skill string, failure *Error) error {
	// An event this short may fit where none of a call that shows something does.
	if s.broken.Load() {
		return recordError(failure)
	}
	e := loadFailure(cmp.Or(r.skillPath(), clip(skill)), failure)
	if r.grant != nil {
		e.Decision = s.granted(r, *r.grant)
	}
	if err := s.record(ctx, r, e); err != nil {
		return err
	}
	return failure
}

// loadFailure is the record of a skill that was not loaded.
func loadFailure(skill string, failure *Error) *provenance.Event {
	return &provenance.Event{Kind: provenance.KindSkillActivated, Skill: skill, Detail: provenance.LoadError(string(failure.Code))}
}
