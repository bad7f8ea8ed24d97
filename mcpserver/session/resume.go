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
// the first call. The skills that the session had loaded are active again, its numbering continues, and its
// mode applies unless the configured mode is stricter. Approvals and the allowlist of the record are ignored.
//
// If skills differ from the loaded versions, Resume records that and fails. With reload, it activates the
// present versions instead, and their instructions are sent again. It also activates the skills to
// preload that the session had not loaded.
//
// Errors: *DriftedError, provenance.ErrNotFound, provenance.ErrUnavailable if another process has
// the session.
func (s *Sessions) Resume(ctx context.Context, id string, principal policy.Principal, reload bool) error {
	past, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	if past.Principal != principal.Name {
		return errNotLocal
	}
	ses, err := s.recalled(Call{Principal: principal}, id, past)
	if err != nil {
		return err
	}
	if err := ses.begin(ctx, provenance.KindSessionResumed); err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	drifts, err := ses.resumeActivations(ctx, past, reload)
	if err != nil {
		return err
	}
	if len(drifts) > 0 && !reload {
		err := ses.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded,
			Detail: "not resumed: skills differ"})
		return errors.Join(&earlier.DriftedError{Drifts: drifts}, err)
	}
	if err := ses.settleUnfinished(ctx, past); err != nil {
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

// recalled returns a session that continues a record, for a call of its principal. It records nothing.
func (s *Sessions) recalled(call Call, id string, past *cfharness.Recollection) (*Session, error) {
	call.ClientSession, call.Profile, call.Parent = past.ClientSession, past.Profile, past.ParentSession
	ses, err := s.newSession(call, past.Parent)
	if err != nil {
		return nil, err
	}
	ses.id, ses.child, ses.began = id, past.Child, true
	// The numbers are parts of ids and file names, which must not occur twice in one record.
	ses.outputs = past.Outputs
	for _, output := range past.OutputIDs[:min(len(past.OutputIDs), maxTaken)] {
		ses.taken[output] = true
	}
	ses.decisions.Store(past.Decisions)
	ses.invocations.Store(past.Invocations)
	ses.raised.Raise(earlier.Strictest(past.Modes))
	// This session is the client's earlier one: the first call must not restore another.
	ses.first.Do(func() {})
	return ses, nil
}

// resumeActivations activates the skills that the session had loaded and that have not changed. It records
// and returns the changed ones; with reload, it activates their present versions.
func (s *Session) resumeActivations(
	ctx context.Context, past *cfharness.Recollection, reload bool,
) ([]earlier.Drift, error) {
	var drifts []earlier.Drift
	for i, row := range past.Activations {
		if row.Skillsd == nil {
			continue
		}
		path := row.Skillsd.Path
		// A skill that was loaded again has more than one handle, and the client may use any of them.
		if sum, ok := earlier.SumOf(row, s.cfg.Now()); ok {
			s.handles[sum] = row.Skillsd.ExpiresAt.Time
		}
		// The last activation of a skill has the version that the model was shown last.
		again := func(a cfharness.Activation) bool { return a.Skillsd != nil && a.Skillsd.Path == path }
		if slices.ContainsFunc(past.Activations[i+1:], again) {
			continue
		}
		sk, index, err := s.served(ctx, row)
		if err != nil {
			// A skill that cannot be read is treated like a skill that was removed.
			sk = nil
		}
		if sk != nil && index.TreeDigest == row.Skillsd.TreeDigest {
			s.active[path] = &activation{skill: sk, index: index, shown: past.Sent[path]}
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
