package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Denied is a recorded refusal by policy. Object is shown to the client. Unless the call requested records,
// its Detail is in words for a user, and it has no event ID.
type Denied struct {
	Object   cfharness.ObservationDenied
	Operator string // the operator's remedy; not shown to clients
}

func (d *Denied) Error() string { return d.Object.Detail }

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
	if mode != 0 {
		s.raised.Raise(mode)
	}
	return rules.Policy.Mode(policy.Mode(s.raised.Load()))
}

// record is append for an event that the caller is shown if it asked for records.
func (s *Session) record(ctx context.Context, r *request, e *provenance.Event) error {
	if err := s.append(ctx, r, e); err != nil {
		return err
	}
	if r.call.Records != nil {
		r.call.Records.note(s, e)
	}
	return nil
}

// append records an event of a call, after the first events of the session if they are missing. The call
// waits for it to be on the disk.
//
// Errors: *Error.
func (s *Session) append(ctx context.Context, r *request, e *provenance.Event) error {
	// A record is written even if its client disconnects.
	ctx = context.WithoutCancel(ctx)
	e.Call = r.id
	if err := s.lockStarted(ctx); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	return s.write(ctx, e)
}

// lockStarted makes sure that the record of the session has been started. If it has, the session does not end
// before the caller unlocks s.closing, which is then read-locked.
//
// Errors: *Error; nothing is locked then.
func (s *Session) lockStarted(ctx context.Context) error {
	s.closing.RLock()
	if s.ended.Load() {
		s.closing.RUnlock()
		return fault.OfRecord(errEnded)
	}
	s.sequence.Lock()
	err := s.start(ctx)
	s.sequence.Unlock()
	if err != nil {
		s.closing.RUnlock()
		return fault.OfRecord(err)
	}
	return nil
}

// ensureStarted makes sure that the record of the session has been started.
//
// Errors: *Error.
func (s *Session) ensureStarted(ctx context.Context) error {
	err := s.lockStarted(context.WithoutCancel(ctx))
	if err == nil {
		s.closing.RUnlock()
	}
	return err
}

// start writes the first events of the session, each once: the start with its policy, and the preloaded
// skills. If writing fails, the next call continues. The snapshots of the registry and of the machine follow
// in the background. After the rules were replaced, start writes the new policy. s.sequence is held.
func (s *Session) start(ctx context.Context) error {
	// recordInBackground is the last step of a start, so all other steps have succeeded.
	if s.awaited.Load() != nil {
		if s.under == s.rules.Load().number {
			return nil
		}
		// The session continues under the new policy, which the event names.
		return s.recordStart(ctx, provenance.KindSessionResumed)
	}
	if !s.started {
		s.initial = s.startsWith()
		if err := s.recordStart(ctx, provenance.KindSessionStarted); err != nil {
			return err
		}
	}
	for ; len(s.initial) > 0; s.initial = s.initial[1:] {
		if err := s.preloadSkill(ctx, s.initial[0]); err != nil {
			return err
		}
	}
	s.recordInBackground()
	return nil
}

// write adds an event to the record, without declared secrets. Apart from append, only the functions that
// begin, continue and end the record call it.
//
// Errors: *Error.
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

// keepShown stores bytes before they are shown, so that the digest in the record can be resolved.
//
// Errors: *Error.
func (s *Session) keepShown(ctx context.Context, data []byte) (digest.Digest, error) {
	ctx = context.WithoutCancel(ctx)
	if err := s.lockStarted(ctx); err != nil {
		return "", err
	}
	defer s.closing.RUnlock()
	d, err := s.cfg.Records.Keep(ctx, s.id, data)
	if err != nil {
		s.broken.Store(true)
		return d, fault.OfRecord(err)
	}
	return d, nil
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

// recordWarning waits for the record of a run's request, and records the denial that the policy turned into a
// warning, if the grant has one.
//
// Errors: *Error.
func (s *Session) recordWarning(ctx context.Context, r *run) error {
	if err := r.recorded(); err != nil || r.grant.Warning == "" {
		return err
	}
	row := encode(cfharness.PolicyEvent{
		Type: cfharness.TypePolicyEvent, Severity: cfharness.SeverityWarning, Mode: r.mode.String(),
		ToolID: r.call.Method, Detail: r.grant.Warning, At: provenance.Stamp(s.cfg.Now()),
		ToolCallID: r.call.ToolCallID, PromptSlot: r.slot, ToolInputSummary: &r.summary,
	})
	return s.record(ctx, r.request, &provenance.Event{
		Kind: provenance.KindPolicyWarned, Skill: r.script.skill.Path, Path: r.script.path,
		Detail: string(r.grant.WouldBe) + ": " + r.grant.Warning, Row: row,
	})
}

// encode marshals a record, whose types always marshal.
func encode(v any) json.RawMessage {
	raw, err := provenance.Encode(v)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return raw
}

// initialSkill is a skill that is active when a session starts.
type initialSkill struct {
	skill  *skills.Skill
	rule   string // of the decision
	source cfharness.Source
}

// startsWith returns the skills that are active when the session starts and that it may see: the skills that
// the operator preloads, unless the session is a child, and the skills that its profile activates.
func (s *Session) startsWith() (all []initialSkill) {
	visible := s.Visible(s.principal, s.profile)
	for _, sk := range s.preload {
		if !s.child && visible.Skill(sk.Path) != nil {
			all = append(all, initialSkill{sk, "operator_preload", cfharness.SourcePreload})
		}
	}
	source := cfharness.SourcePreload
	if s.child || s.profile != "" {
		source = cfharness.SourceInherited
	}
	for _, path := range s.rules.Load().Policy.Activates(s.principal, s.profile, s.child) {
		sk := visible.Skill(path)
		preloaded := func(initial initialSkill) bool { return initial.skill == sk }
		if sk != nil && !slices.ContainsFunc(all, preloaded) {
			all = append(all, initialSkill{sk, "profile_activate", source})
		}
	}
	return all
}

// recordStart writes the event that the session started or was resumed, after the policy snapshot and the run
// manifest that the event names.
func (s *Session) recordStart(ctx context.Context, kind provenance.Kind) error {
	is := s.rules.Load()
	mode, c := is.Policy.Mode(policy.Mode(s.raised.Load())), s.describe(ctx, is)
	info := provenance.SessionInfo{Server: provenance.Server{Version: s.cfg.Version, Protocol: s.protocol},
		Mode: mode.String(), ClientSession: s.clientID, Profile: s.profile,
		Child: s.child, Guessed: s.isGuessed(), ParentSession: s.parentName, RequestedRunID: s.wanted,
		KeepsShown: is.Facts.KeepsShown, PolicySnapshotPath: provenance.PolicySnapshotFile}
	start := snapshot.Start{ID: s.id, At: s.cfg.Now(), Mode: mode, Principal: s.principal, Profile: s.profile,
		Manifest: s.manifest}
	for _, initial := range s.startsWith() {
		start.Loaded = append(start.Loaded, snapshot.Loaded(ctx, initial.skill, initial.source))
	}
	compact := encode(c.source.PolicyOf(c.policy, start))
	var err error
	info.PolicySnapshotDigest, err = cfharness.CompactDigest(compact)
	if err != nil {
		return err
	}
	e := &provenance.Event{Kind: kind, Detail: "mode " + info.Mode, Row: encode(info)}
	if kind == provenance.KindSessionStarted && s.clientID != "" {
		e.Detail += ", session of the client: " + strconv.Quote(s.clientID)
	}
	if kind == provenance.KindSessionResumed && s.started && is.number != s.under {
		e.Detail += ", configuration changed: " + policy.Clip(is.changed)
	}
	if info.Guessed {
		e.Detail += ", of calls that name no session"
	}
	snapshot, err := s.cfg.Records.Put(ctx, s.id, provenance.PolicySnapshotFile, pretty(compact))
	if err != nil {
		return err
	}
	e.Files = append(e.Files, snapshot)
	if s.manifest != nil {
		text := s.Secrets().Bytes(pretty(s.manifest.Raw))
		manifest, err := s.cfg.Records.Put(ctx, s.id, provenance.RunManifestFile, text)
		if err != nil {
			return err
		}
		e.Files = append(e.Files, manifest)
	}
	err = s.write(ctx, e)
	if err != nil {
		return err
	}
	s.started, s.under = true, is.number
	return nil
}

// recordInBackground records the snapshots of the registry and of the machine while the session serves calls:
// hashing and probing take long. The registry is limited to what the session may see.
func (s *Session) recordInBackground() {
	files := map[string]chan struct{}{provenance.RegistryFile: make(chan struct{}),
		provenance.CapabilitiesFile: make(chan struct{})}
	// In a session that is continued, the outcome of a late run may have done this already.
	if !s.awaited.CompareAndSwap(nil, &files) {
		return
	}
	for name, put := range map[string]func(ctx context.Context, name string) (provenance.File, error){
		provenance.RegistryFile: func(ctx context.Context, name string) (provenance.File, error) {
			// The client can read the registry.
			return s.registry.Put(ctx, s.patient, s.cfg.Records, s.id, s.cfg.Registry.Snapshot(),
				s.Visible(s.principal, s.profile), &s.rules.Load().Facts)
		},
		provenance.CapabilitiesFile: func(ctx context.Context, name string) (provenance.File, error) {
			data, err := s.describeMachine(s.patient)
			if err != nil {
				return provenance.File{}, err
			}
			return s.cfg.Records.Put(ctx, s.id, name, data)
		},
	} {
		s.background.Go(func() {
			defer close(files[name])
			// The values of a call's context would stay in memory as long as the goroutine.
			ctx := context.Background()
			file, err := put(ctx, name)
			if err == nil {
				err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot,
					Got: file.Digest.String(), Detail: name, Files: []provenance.File{file}})
			}
			level := slog.LevelWarn
			// The server ended before the snapshots were complete, which is no fault.
			if s.patient.Err() != nil {
				level = slog.LevelDebug
			}
			if err != nil {
				s.cfg.Logger.Log(ctx, level, "snapshot not recorded", slog.String("file", name),
					slog.String("session", s.id), tint.Err(err))
			}
		})
	}
}

// awaitedFile returns a channel that is closed when a file that is written in the background is done; nil for
// other files, and before the session has started.
func (s *Session) awaitedFile(name string) <-chan struct{} {
	files := s.awaited.Load()
	if files == nil {
		return nil
	}
	return (*files)[name]
}

// preloadSkill activates a skill with which the session starts; its instructions have not been sent yet. A
// skill that cannot be read is recorded as a failed load.
func (s *Session) preloadSkill(ctx context.Context, initial initialSkill) error {
	sk := initial.skill
	fresh, index, err := s.current(ctx, sk)
	// The next call tries the start again when files may have been closed. A failed load would stay in the
	// record.
	if fault.OutOfFiles(err) {
		return fmt.Errorf("preload %s: %w", sk.Path, err)
	}
	if err != nil {
		// The skill may have changed after the server started.
		s.cfg.Logger.WarnContext(ctx, "skill not preloaded", slog.String("skill", sk.Path),
			slog.String("session", s.id), tint.Err(err))
		return s.write(ctx, loadFailure(sk.Path, readError(err, sk, sk.File)))
	}
	return s.reactivate(ctx, fresh, index, initial.rule, initial.source)
}

// snapshotCache has the parts of snapshots that all sessions of a server share.
type snapshotCache struct {
	once    sync.Once
	source  *snapshot.Source
	policy  *cfharness.PolicySnapshot
	binding json.RawMessage // the operator's binding in the form of rows, or nil

	probing      chan struct{} // a semaphore with one token
	capabilities []byte        // nil before the first probe; guarded by probing
}

func newSnapshotCache(facts snapshot.Facts) *snapshotCache {
	return &snapshotCache{binding: snapshot.PublicSlot(facts), probing: make(chan struct{}, 1)}
}

// describe returns the snapshot cache of some rules, which it fills at the first call. It is called after
// Start.
func (s *Sessions) describe(ctx context.Context, is *inForce) *snapshotCache {
	c := is.snapshots
	c.once.Do(func() {
		cfg := &s.cfg
		c.source = &snapshot.Source{
			Registry: cfg.Registry, Policies: is.Policy, Facts: is.Facts, Limits: is.Limits,
			Workspace:       cfg.Workspace,
			ClientWorkspace: is.ClientWorkspace != nil, Runner: cfg.Runner, Interpreter: cfg.Interpreter,
			Preload: s.preload, Pins: is.trees,
		}
		c.policy = c.source.Policy(ctx)
	})
	return c
}

// describeMachine returns capabilities.json, which is the same for all sessions of a server; its time is the
// start of the first session.
//
// Errors: the errors of ctx, which also ends the wait for another session that is probing.
func (s *Sessions) describeMachine(ctx context.Context) ([]byte, error) {
	is := s.rules.Load()
	c := is.snapshots
	select {
	case c.probing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.probing }()
	if c.capabilities == nil {
		found, err := s.describe(ctx, is).source.Capabilities(ctx, s.cfg.Now())
		if err != nil {
			return nil, err
		}
		c.capabilities = pretty(encode(found))
	}
	return c.capabilities, nil
}

// capabilitiesPatience is how long the record of a run waits for capabilities.json: the output of a script
// must not wait for a host program that hangs.
const capabilitiesPatience = 2 * time.Second

// pretty formats JSON in the style of a session's files.
func pretty(raw json.RawMessage) []byte {
	data, err := provenance.EncodePretty(raw)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return data
}

// end records the end of the session, once and only if its record has begun, and waits for the events that
// are still being recorded. No other event is recorded afterwards. end can be called again if it failed.
func (s *Session) end(ctx context.Context) error {
	s.runs.Lock()
	defer s.runs.Unlock()
	// An event after the end would reopen the session in the record, and no second end would follow.
	s.closing.Lock()
	s.ended.Store(true)
	s.closing.Unlock()
	s.close()
	if s.endRecorded {
		return nil
	}
	s.sequence.Lock()
	started := s.started
	s.sequence.Unlock()
	if !started {
		return nil
	}
	// The snapshots of the registry and of the machine must come before the end in the chain.
	s.background.Wait()
	err := s.recordEnd(ctx)
	// Another server continues the session.
	if errors.Is(err, provenance.ErrLost) {
		s.cfg.Records.Release(s.id)
		err = nil
	}
	s.endRecorded = err == nil
	return err
}

// recordEnd records the end of a session, after the outcomes of its runs.
func (s *Session) recordEnd(ctx context.Context) error {
	if err := s.flushPending(ctx); err != nil {
		return err
	}
	return s.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"})
}

// reopen continues the record of a session that rested. It does not reopen a session that has ended for good.
//
// Errors: the record cannot be written; provenance.ErrNotFound if it was deleted.
func (s *Session) reopen(ctx context.Context) error {
	if s.keyed == nil {
		return nil
	}
	open, deleted := s.table.state(s)
	switch {
	case deleted:
		return provenance.ErrNotFound
	case !open:
		return nil
	}
	// The function end holds this lock until the end is recorded.
	s.runs.Lock()
	defer s.runs.Unlock()
	if !s.ended.Load() {
		// Another call has reopened the session.
		return nil
	}
	if s.endRecorded {
		s.sequence.Lock()
		err := s.recordStart(context.WithoutCancel(ctx), provenance.KindSessionResumed)
		s.sequence.Unlock()
		if err != nil {
			return err
		}
		s.endRecorded = false
	}
	s.closing.Lock()
	defer s.closing.Unlock()
	s.ended.Store(false)
	return nil
}

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
