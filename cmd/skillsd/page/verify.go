package page

import (
	"context"
	"errors"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
)

// Verdict is the result of the last verification of a record.
type Verdict struct {
	State   string   `json:"state"`             // being verified, verified or differs
	Head    uint64   `json:"head"`              // number of the last verified event
	Problem string   `json:"problem,omitempty"` // first difference
	Notes   []string `json:"notes,omitempty"`

	worst *Worst // up to that event
}

// The states of a verdict.
const (
	checking = "being verified"
	verified = "verified"
	differs  = "differs"
)

// verdicts verifies records in the background, one at a time, and caches the results by their heads.
type verdicts struct {
	one  sync.Mutex // held while a record is verified
	wait sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	closed bool
	found  map[string]Verdict
	busy   map[string]bool
	hashes map[string]string // of the verified heads
}

const maxVerdicts = 10_000

// known returns the last verdict about a session, nil without one.
func (v *verdicts) known(id string) *Verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	if found, ok := v.found[id]; ok {
		return &found
	}
	if v.busy[id] {
		return &Verdict{State: checking}
	}
	return nil
}

// verdict returns the verdict about a session, and starts a verification if the record has changed since.
func (p *Page) verdict(s *provenance.Session) Verdict {
	v := &p.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.found == nil || len(v.found) > maxVerdicts {
		v.found, v.hashes = map[string]Verdict{}, map[string]string{}
	}
	if v.busy == nil {
		v.busy = map[string]bool{}
	}
	found, ok := v.found[s.ID]
	if !ok {
		found = Verdict{State: checking}
	}
	if ok && v.hashes[s.ID] == s.Head.Hash || v.busy[s.ID] || v.closed {
		return found
	}
	v.busy[s.ID] = true
	of := *s
	// Verification reads every byte of a record, so the request does not wait for it.
	v.wait.Go(func() { p.verify(&of) })
	return found
}

func (p *Page) verify(s *provenance.Session) {
	v := &p.verdicts
	v.one.Lock()
	defer v.one.Unlock()
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed {
		return
	}
	// The result serves later requests as well, so the end of this request does not cancel it.
	ctx, head := context.Background(), s.Head
	found, err := p.Records.Verify(ctx, s.ID)
	if errors.Is(err, provenance.ErrSilent) { // the record was not read
		v.mu.Lock()
		delete(v.busy, s.ID)
		v.mu.Unlock()
		return
	}
	verdict := Verdict{State: differs, Head: head.Seq, worst: p.timeline(ctx, s).worst()}
	switch wrong, _ := errors.AsType[*provenance.VerifyError](err); {
	case wrong != nil:
		verdict.Problem = wrong.Error()
	case err != nil:
		verdict.Problem = "it cannot be verified: " + err.Error()
	default:
		verdict.State, verdict.Head = verified, found.Session.Head.Seq
		verdict.Notes, head = report.VerifyNotes(found), found.Session.Head
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found[s.ID], v.hashes[s.ID] = verdict, head.Hash
	delete(v.busy, s.ID)
}

// close waits for a running verification and starts no other.
func (v *verdicts) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.wait.Wait()
}
