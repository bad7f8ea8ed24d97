package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// errNotLocal means that the session belongs to another principal than the user of this process.
var errNotLocal = errors.New("the session belongs to another principal")

// Resume continues a recorded session as the session of the process. It is called after Start and before
// the first call. What the session loaded is active again, its numbering continues, and its mode holds
// unless the configured one is stricter. Neither approvals nor the allowlist are taken from the record.
//
// Skills that differ from what was loaded are recorded, and the session is not resumed; with reload
// they are activated anew, and their instructions are sent again. Skills to preload that the session
// had not loaded are activated.
//
// Errors: *DriftedError, provenance.ErrNotFound, provenance.ErrUnavailable if another process has
// the session.
func (s *Sessions) Resume(ctx context.Context, id string, principal policy.Principal, reload bool) error {
	was, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	if was.Principal != principal.Name {
		return errNotLocal
	}
	ses, err := s.recalled(Call{Principal: principal}, id, was)
	if err != nil {
		return err
	}
	if err := ses.begin(ctx, provenance.KindSessionResumed); err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	drifts, err := ses.resumeActivations(ctx, was, reload)
	if err != nil {
		return err
	}
	if len(drifts) > 0 && !reload {
		err := ses.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded,
			Detail: "not resumed: skills differ"})
		return errors.Join(&earlier.DriftedError{Drifts: drifts}, err)
	}
	if err := ses.settleUnfinished(ctx, was); err != nil {
		return err
	}
	for _, initial := range ses.startsWith() {
		if ses.activated(initial.skill.Path) != nil {
			continue
		}
		if err := ses.preloadSkill(ctx, initial); err != nil {
			return fmt.Errorf("resume %s: %w", id, err)
		}
	}
	ses.recordInBackground()
	s.table.setCurrent(ses)
	return nil
}

// recalled returns a session to continue a record in, for a call of its principal. Nothing is recorded yet.
func (s *Sessions) recalled(call Call, id string, was *cfharness.Recollection) (*Session, error) {
	call.ClientSession, call.Profile, call.Parent = was.ClientSession, was.Profile, was.ParentSession
	ses, err := s.newSession(call, was.Parent)
	if err != nil {
		return nil, err
	}
	ses.id, ses.child, ses.began = id, was.Child, true
	// The numbers are parts of ids and file names, which must not occur twice in one record.
	ses.outputs = was.Outputs
	for _, output := range was.OutputIDs[:min(len(was.OutputIDs), maxTaken)] {
		ses.taken[output] = true
	}
	ses.decisions.Store(was.Decisions)
	ses.invocations.Store(was.Invocations)
	ses.raised.Raise(earlier.Strictest(was.Modes))
	// The client's earlier session is this one: the first call has no other to restore.
	ses.first.Do(func() {})
	return ses, nil
}

// resumeActivations makes active again what the session had loaded and has not changed, records what has,
// and with reload activates that as it is now.
func (s *Session) resumeActivations(
	ctx context.Context, was *cfharness.Recollection, reload bool,
) ([]earlier.Drift, error) {
	var drifts []earlier.Drift
	for i, row := range was.Activations {
		if row.Skillsd == nil {
			continue
		}
		path := row.Skillsd.Path
		// A skill that was loaded again has more than one handle, and the client may use any of them.
		if sum, ok := earlier.SumOf(row, s.cfg.Now()); ok {
			s.handles[sum] = row.Skillsd.ExpiresAt.Time
		}
		again := func(a cfharness.Activation) bool { return a.Skillsd != nil && a.Skillsd.Path == path }
		if slices.ContainsFunc(was.Activations[i+1:], again) {
			continue
		}
		sk, index, err := s.served(ctx, row)
		if err != nil {
			sk = nil // as good as gone
		}
		if sk != nil && index.TreeDigest == row.Skillsd.TreeDigest {
			s.active[path] = &activation{skill: sk, index: index, shown: was.Sent[path]}
			continue
		}
		drift := earlier.DriftOf(ctx, s.cfg.Records, s.id, row, s.cfg.Registry.Snapshot(), sk, index)
		drifts = append(drifts, drift)
		err = s.write(ctx, &provenance.Event{
			Kind: provenance.KindDriftDetected, Skill: path, Path: drift.File, Detail: drift.Code,
			Want: drift.Want.String(), Got: drift.Got.String(),
		})
		if err != nil {
			return nil, err
		}
		if reload && sk != nil {
			err = s.reactivate(ctx, sk, index, cfharness.RuleResumeReload, row.Source)
		}
		if err != nil {
			return nil, err
		}
	}
	return drifts, nil
}
