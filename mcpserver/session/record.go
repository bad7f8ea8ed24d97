package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// Denied is a recorded refusal by policy. Object is shown to the client. Unless the call requested records,
// its Detail is in words for a user, and it has no event ID.
type Denied struct {
	Object   cfharness.ObservationDenied
	Operator string // the operator's remedy; not shown to clients
}

func (d *Denied) Error() string { return d.Object.Detail }

// append records e in the session. Declared secrets are removed from it.
func (s *Session) append(ctx context.Context, e *provenance.Event) error {
	return s.recording(ctx, func(ctx context.Context) error { return s.write(ctx, e) })
}

// recording calls f, which writes records, once the session has started. The session does not end before f
// returns.
func (s *Session) recording(ctx context.Context, f func(ctx context.Context) error) error {
	// A record is written even if its client disconnects.
	ctx = context.WithoutCancel(ctx)
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.ended.Load() {
		return fault.OfRecord(errEnded)
	}
	s.sequence.Lock()
	err := s.start(ctx)
	s.sequence.Unlock()
	if err != nil {
		return fault.OfRecord(err)
	}
	return f(ctx)
}

// begun makes sure that the record of the session has begun.
func (s *Session) begun(ctx context.Context) error {
	return s.recording(ctx, func(context.Context) error { return nil })
}

// record is append for an event that belongs to a call.
func (s *Session) record(ctx context.Context, r *request, e *provenance.Event) error {
	e.Call = r.id
	if err := s.append(ctx, e); err != nil {
		return err
	}
	r.call.Records.Note(s.recorded(), e)
	return nil
}

func (s *Session) write(ctx context.Context, e *provenance.Event) error {
	e.Session, e.Principal, e.Client = s.id, s.principal.Name, s.client
	if e.Kind == provenance.KindSessionStarted {
		e.Parent = s.parent
	}
	// A call chose these texts. Digests and the id of the session stay exact, since they are compared.
	if secrets := s.Secrets(); secrets != nil {
		for _, text := range []*string{&e.Client, &e.Skill, &e.Path, &e.Detail} {
			*text = secrets.Text(*text)
		}
		e.Row, e.Decision, e.Invocation = secrets.JSON(e.Row), secrets.JSON(e.Decision),
			secrets.JSON(e.Invocation)
	}
	err := s.cfg.Records.Append(ctx, e)
	_, full := errors.AsType[*provenance.FullError](err)
	// A full quota has its own error, and the session works again when there is room.
	s.broken.Store(err != nil && !full)
	if errors.Is(err, provenance.ErrLost) {
		// In a goroutine, since table.mu is acquired before the locks of the session.
		s.table.recording.Go(func() { s.table.lose(s) })
	}
	if err != nil {
		return fault.OfRecord(err)
	}
	return nil
}

// deny records a denial and returns the *Denied for the client.
func (s *Session) deny(ctx context.Context, r *request, denial *policy.Denial) error {
	if s.unheeded.Load() {
		later := *denial
		later.Remedy += "; the configuration was changed, has a fault, and does not count before that is " +
			"corrected: the user sees it with `skillsd doctor`"
		later.Operator += "; the configuration was changed and has a fault: see `skillsd doctor`"
		denial = &later
	}
	object := s.object(denial)
	at := provenance.Stamp(s.cfg.Now())
	row := encode(cfharness.PolicyEvent{
		Type: cfharness.TypePolicyEvent, Severity: cfharness.SeverityDenied, Mode: r.mode.String(),
		ToolID: r.call.Method, Detail: denial.Detail, At: at, ToolCallID: r.call.ToolCallID,
		PromptSlot: r.slot, ToolInputSummary: &r.summary, ObservationDenied: object,
	})
	e := &provenance.Event{
		Kind: provenance.KindPolicyDenied, Skill: denial.Skill, Path: denial.Path,
		Detail: string(denial.Code) + ": " + denial.Detail, Row: row,
		Decision: s.decision(r, at, provenance.DecisionDenied, denial.RuleID, denial.Detail,
			&cfharness.DecisionExtension{
				Code: string(denial.Code), Reason: string(denial.Reason), RuleID: denial.RuleID,
				Skill: denial.Skill, Path: denial.Path, OutputID: r.output,
				Runtime: r.runtime, FileFacts: r.facts, Operator: s.Secrets().Text(denial.Operator),
			}),
	}
	if err := s.record(ctx, r, e); err != nil {
		return err
	}
	s.cfg.Logger.InfoContext(ctx, "denied", slog.String("method", r.call.Method),
		slog.String("skill", denial.Skill), slog.String("session", s.id),
		slog.String("code", string(denial.Code)), slog.String("path", denial.Path),
		slog.String("remedy", denial.Operator))
	// A program gets the detail of the record; a model gets words for its user.
	if r.call.Records != nil {
		object.EventID = e.ID()
	} else {
		object.Detail = s.Secrets().Text(cmp.Or(denial.Plain, denial.Detail))
	}
	return &Denied{Object: *object, Operator: denial.Operator}
}

// object returns the object that shows a denial to the client, without declared secrets.
func (s *Session) object(denial *policy.Denial) *cfharness.ObservationDenied {
	secrets := s.Secrets()
	return &cfharness.ObservationDenied{
		Type: cfharness.TypeObservationDenied, Reason: string(denial.Reason),
		Detail: secrets.Text(denial.Detail), Code: string(denial.Code), Skill: secrets.Text(denial.Skill),
		Path: secrets.Text(denial.Path), Remedy: secrets.Text(denial.Remedy), RuleID: denial.RuleID,
		ApprovalCode: denial.ApprovalCode,
	}
}

// decision returns the row of policy-trace.json for one call.
func (s *Session) decision(
	r *request, at provenance.Timestamp, outcome, rule, detail string, x *cfharness.DecisionExtension,
) json.RawMessage {
	n := int(s.decisions.Add(1))
	row := cfharness.PolicyDecision{
		Type: cfharness.TypePolicyDecision, Sequence: n, RunID: s.id, At: at, ToolActivitySequence: n,
		ToolCallID: r.call.ToolCallID, ToolID: r.call.Method, EffectClass: r.class.String(),
		Mode: r.mode.String(), Decision: outcome, ReasonCodes: provenance.List[string]{rule}, Detail: detail,
		PromptSlot: r.slot, ToolInputSummary: &r.summary,
		SubagentProfile: cmp.Or(
			r.call.Profile, s.profile, r.call.Principal.Profile, r.rules.Policy.Config().Profile),
		Skillsd: x,
	}
	return encode(row)
}

// granted returns the row of policy-trace.json for an allowed or warned call.
func (s *Session) granted(r *request, grant policy.Grant) json.RawMessage {
	var x *cfharness.DecisionExtension
	if grant.Evidence != "" || grant.WouldBe != "" {
		x = &cfharness.DecisionExtension{Evidence: grant.Evidence, WouldBe: string(grant.WouldBe)}
	}
	return s.decision(r, provenance.Stamp(s.cfg.Now()), string(grant.Decision), grant.RuleID, "", x)
}

// warn records a denial that the policy turned into a warning, if the grant has one.
func (s *Session) warn(ctx context.Context, r *request, skill, path string, grant policy.Grant) error {
	if grant.Warning == "" {
		return nil
	}
	row := encode(cfharness.PolicyEvent{
		Type: cfharness.TypePolicyEvent, Severity: cfharness.SeverityWarning, Mode: r.mode.String(),
		ToolID: r.call.Method, Detail: grant.Warning, At: provenance.Stamp(s.cfg.Now()),
		ToolCallID: r.call.ToolCallID, PromptSlot: r.slot, ToolInputSummary: &r.summary,
	})
	return s.record(ctx, r, &provenance.Event{
		Kind: provenance.KindPolicyWarned, Skill: skill, Path: path,
		Detail: string(grant.WouldBe) + ": " + grant.Warning, Row: row,
	})
}

// request has the facts that all records of one call share.
type request struct {
	call    Call
	class   policy.Class
	rules   *inForce // that apply to the call
	mode    policy.Mode
	summary cfharness.ToolInputSummary
	slot    json.RawMessage // the binding that applies: the call's own, else the one of the process
	output  string          // output id, or "" if the call has no output
	id      string          // of a run, in all its events; a run with an answer has the id of its question

	// Set for the script of a run if the files of its skill have changed.
	runtime string
	facts   cfharness.FileFacts
}

func (s *Session) newRequest(call Call, class policy.Class) *request {
	is := s.rules.Load()
	r := &request{call: call, class: class, rules: is, mode: s.raise(is, call.Mode),
		slot:    is.snapshots.binding,
		summary: cfharness.ToolInputSummary{Type: cfharness.TypeToolInputSummary, ToolID: call.Method}}
	if call.Slot != nil {
		r.slot = call.Slot.Raw
	}
	return r
}

// raise returns the mode of a call. A client that raises the mode raises it for the rest of the session,
// unless several clients share the session.
func (s *Session) raise(rules *inForce, mode policy.Mode) policy.Mode {
	if s.keyed != nil && s.keyed.shared {
		return rules.Policy.Mode(mode)
	}
	return rules.Policy.Mode(s.raised.Raise(mode))
}

// encode marshals a record, whose types always marshal.
func encode(v any) json.RawMessage {
	raw, err := provenance.Encode(v)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return raw
}

// recorded returns the session in the form that recorders use.
func (s *Session) recorded() *recordedSession { return &recordedSession{ID: s.id, Viewer: s.viewer} }
