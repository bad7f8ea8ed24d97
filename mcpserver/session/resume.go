package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
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
	if err := ses.recordStart(ctx, provenance.KindSessionResumed); err != nil {
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
	ses.id, ses.child, ses.started = id, past.Child, true
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

// remember adds a session that is about to end to the index of earlier sessions.
func (s *Session) remember() {
	p := &earlier.Session{ID: s.id, Keys: map[earlier.Key]bool{}, Raised: s.raised}
	if s.clientID != "" {
		key := earlier.ClientKey(s.principal.Name, s.profile, s.parentName, s.clientID)
		p.Keys[key] = true
		s.earlier.AddName(key, s.id)
	}
	s.mu.Lock()
	for sum, until := range s.handles {
		p.Keys[earlier.HandleKey(s.principal.Name, sum)] = true
		if until.After(p.Until) {
			p.Until = until
		}
	}
	s.mu.Unlock()
	s.earlier.Add(p)
}

// restoreHandle restores the skills that were active under the handle of a call, if the session that gave out
// the handle has ended and the handle is valid for the call. It restores them in ses, unless other calls
// share ses or ses has another profile or parent: then in a session that only the handle finds. It returns
// the session, or nil if nothing is restored.
//
// Errors: *Error if there are too many sessions.
func (s *Sessions) restoreHandle(ctx context.Context, ses *Session, call Call) (*Session, error) {
	if s.cfg.Peers != nil {
		// Another server continues the session itself.
		return nil, nil
	}
	sum := earlier.Sum(call.Handle)
	p := s.earlier.By(ctx, earlier.HandleKey(call.Principal.Name, sum))
	switch {
	case p == nil, !call.admits(p.Profile, p.ParentName):
		return nil, nil
	case call.Named != "" &&
		!p.Keys[earlier.ClientKey(call.Principal.Name, call.Profile, policy.Clip(call.Parent),
			policy.Clip(call.Named))]:
		return nil, nil
	// Callers without the handle must gain nothing from it.
	case ses.keyed != nil && ses.keyed.shared, ses.profile != p.Profile, ses.parentName != p.ParentName:
		var err error
		call.Profile, call.Parent = p.Profile, p.ParentName
		ses, err = s.enter(ctx, call, &keyedState{key: call.key("restored", p.ID)}, p)
		if err != nil {
			return nil, fault.Internal(err)
		}
	}
	ses.restore(ctx, p)
	if !ses.ownsSum(sum) {
		return nil, nil
	}
	return ses, nil
}

// resumeClient restores, before the first call of a session is served, the skills that were active in the
// client's earlier session of the same id. A child session inherits nothing, neither from its parent nor from
// another child of it.
func (s *Session) resumeClient(ctx context.Context, call Call) {
	if call.lasting() == "" || call.Parent != "" || s.cfg.Peers != nil {
		return
	}
	key := earlier.ClientKey(call.Principal.Name, call.Profile, "", policy.Clip(call.lasting()))
	if p := s.earlier.By(ctx, key); p != nil {
		s.restore(ctx, p)
	}
}

// restore activates the skills that were active in an earlier session, if they have not expired and their
// files are the same. It records them in this session, and the earlier session as the parent.
func (s *Session) restore(ctx context.Context, p *earlier.Session) {
	// A session is restored once, so a canceled call must not skip a part of it.
	ctx = context.WithoutCancel(ctx)
	s.closing.RLock()
	defer s.closing.RUnlock()
	s.sequence.Lock()
	defer s.sequence.Unlock()
	if s.restored[p.ID] || p.ID == s.id {
		return
	}
	s.restored[p.ID] = true
	// The mode first: no restored skill may be used in a more permissive mode.
	s.raise(s.rules.Load(), p.Mode)
	// Only session.started names the parent, so a session that has begun keeps the parent that it recorded.
	if !s.started && s.parent == "" {
		s.parent = p.ID
	}
	for _, row := range p.Activations {
		if err := s.restoreActivation(ctx, p.ID, row); err != nil {
			s.cfg.Logger.WarnContext(ctx, "activation not restored", slog.String("session", p.ID),
				slog.String("skill", row.Skillsd.Path), tint.Err(err))
		}
	}
}

// restoreActivation is restore for one activation. s.sequence is held.
func (s *Session) restoreActivation(ctx context.Context, from string, row cfharness.Activation) error {
	sum, ok := earlier.SumOf(row, s.cfg.Now())
	if !ok {
		return nil
	}
	if s.ended.Load() {
		return fault.OfRecord(errEnded)
	}
	sk, index, err := s.served(ctx, row)
	if err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return fault.OfRecord(err)
	}
	x := *row.Skillsd
	e := &provenance.Event{
		Kind: provenance.KindDriftDetected, Skill: x.Path, Want: x.TreeDigest.String(),
		Detail: "not restored from " + from + ": the skill is not the one that was loaded",
	}
	if sk != nil {
		e.Got = index.TreeDigest.String()
	}
	same := sk != nil && index.TreeDigest == x.TreeDigest
	if same {
		// The turn belongs to the call that loaded the skill in the earlier session.
		x.TaskID = ""
		row.RunID, row.ActivatedAt, row.Skillsd = s.id, provenance.Stamp(s.cfg.Now()), &x
		e = &provenance.Event{
			Kind: provenance.KindSkillActivated, Skill: x.Path, Path: sk.File, Got: e.Got,
			Detail: string(row.Source) + ", restored from " + from, Row: encode(row),
		}
	}
	// The record comes first: every active skill has an event.
	if err := s.write(ctx, e); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The handle stays valid even if its skill is not restored: the error is then that the skill is not
	// loaded.
	s.handles[sum] = x.ExpiresAt.Time
	if same {
		s.active[x.Path] = &activation{skill: sk, index: index}
	}
	return nil
}

// served returns the present version of the skill of a recorded activation, with its index; both are nil if
// the skill was removed.
//
// Errors: the errors of reading the skill.
func (s *Session) served(
	ctx context.Context, row cfharness.Activation,
) (*skills.Skill, *skills.Index, error) {
	sk := s.Visible(s.principal, s.profile).Skill(row.Skillsd.Path)
	if sk == nil {
		return nil, nil, nil
	}
	index, err := sk.Index(ctx)
	return sk, index, err
}
