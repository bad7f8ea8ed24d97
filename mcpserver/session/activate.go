package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
	"github.com/skillsd/skillsd/skills/policy"
)

// ActivateRequest asks for the instructions of a skill.
type ActivateRequest struct {
	Call  Call
	Skill string // path or unique name
	Force bool   // send the instructions even if the conversation got them a moment ago
	// Source is recorded; empty means cfharness.SourceModel. A user can also load a skill that is hidden
	// from models.
	Source cfharness.Source
	// Invalid, if not nil, is why the arguments were rejected. The attempt is recorded, and nothing is
	// loaded.
	Invalid *Error
}

// Loaded is an activated skill with its instructions.
type Loaded struct {
	Skill      *skills.Skill
	Index      *skills.Index
	Handle     string
	Until      time.Time
	Sent       bool   // the session got this tree's instructions before
	Omitted    bool   // the conversation got them a moment ago; Body is empty
	Body       []byte // SKILL.md after the frontmatter
	BodyOffset int64  // where Body starts in SKILL.md
	Size       int64  // of SKILL.md
	Unnamed    bool   // only the handle connects later calls with this one; see Call.unnamed
	Output     cfharness.LoadOutput

	file     []byte // SKILL.md; Body is its end
	recorded bool   // a recorded row of this activation has the handle and the source
}

// justSent is the time for which instructions are not sent again to a conversation that the client names. A
// conversation without a name may be a new one, and a conversation may lose the instructions when the client
// compacts it later.
const justSent = time.Minute

// Activate loads a skill into the session: look up, decide, read and verify, pin, store the shown text,
// record, answer.
//
// Errors: *Denied, *Error.
func (s *Session) Activate(ctx context.Context, in ActivateRequest) (*Loaded, error) {
	r := s.newRequest(in.Call, policy.Read)
	named := policy.Clip(in.Skill)
	r.summary.Skill = &named
	if in.Invalid != nil {
		return nil, s.notLoaded(ctx, r, named, policy.Grant{}, in.Invalid)
	}
	source := cmp.Or(in.Source, in.Call.Source, cfharness.SourceModel)
	sk, err := s.lookup(r, in.Skill, source == cfharness.SourceUser)
	if err != nil {
		return nil, s.notLoaded(ctx, r, named, policy.Grant{}, err)
	}
	grant, err := s.decide(r, sk, policy.Request{})
	if err != nil {
		return nil, s.notLoaded(ctx, r, sk.Path, policy.Grant{}, err)
	}
	loaded, err := s.readLoaded(ctx, r, sk, source == cfharness.SourceUser)
	if err != nil {
		return nil, s.notLoaded(ctx, r, sk.Path, grant, err)
	}
	a, before := s.activate(loaded, source)
	if err := s.publish(ctx, loaded); err != nil {
		return nil, err
	}
	loaded.Unnamed = in.Call.unnamed()
	// In a guessed session, the instructions may have been sent to another conversation.
	loaded.Sent = before.shown && !s.isGuessed()
	loaded.Omitted = loaded.Sent && !in.Force && s.sentJustNow(&before, in.Call.Conversation)
	// The text is stored before the event that names it: Verify reports a record whose shown texts are
	// missing.
	if loaded.Omitted {
		loaded.Body = nil
	} else if _, err := s.keepShown(ctx, loaded.file); err != nil {
		return nil, err
	}
	event := s.activationEvent(ctx, r, loaded, grant, source)
	if err := s.record(ctx, r, event); err != nil {
		return nil, err
	}
	// Only a recorded load counts as sent: after a failure the next call must get the instructions again.
	if ctx.Err() == nil { // the answer to a canceled call does not arrive
		s.noteShown(a, loaded, in.Call.Conversation)
	}
	loaded.Output = s.loadOutput(loaded, s.outputID(in.Call))
	if in.Call.Records != nil {
		loaded.describe()
	}
	return loaded, nil
}

// readLoaded reads a skill that the policy allowed. If an edit replaced the skill, readLoaded looks it up
// again.
//
// Errors: *policy.Denial, *Error.
func (s *Session) readLoaded(ctx context.Context, r *request, sk *skills.Skill, user bool) (*Loaded, error) {
	loaded, err := s.read(ctx, sk)
	if err != nil {
		// The error of the catalogue has the reason why an edited skill is not served any more.
		if _, missing := s.visible(r.call).Lookup(sk.Path); missing != nil && !sk.Gone() {
			return nil, s.lookupError(r.call, missing)
		}
		return nil, readError(err, sk, sk.File)
	}
	// The edit may have hidden the skill, or it may require a program that is missing here.
	if loaded.Skill != sk {
		if _, err := s.lookup(r, loaded.Skill.Path, user); err != nil {
			return nil, err
		}
	}
	return loaded, nil
}

// sentJustNow reports whether a conversation that the client names got the instructions within justSent.
func (s *Session) sentJustNow(a *activation, conversation string) bool {
	return conversation != "" && a.shownTo == conversation && s.cfg.Now().Sub(a.shownAt) < justSent
}

// noteShown sets in an activation that its instructions were sent to a conversation.
func (s *Session) noteShown(a *activation, l *Loaded, conversation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.shown = true
	if !l.Omitted {
		a.shownAt, a.shownTo = s.cfg.Now(), conversation
	}
}

// loadOutput returns the reference implementation's output object of a load.
func (s *Session) loadOutput(l *Loaded, output string) cfharness.LoadOutput {
	return cfharness.LoadOutput{
		Type: cfharness.TypeLoadOutput, OutputID: output,
		Skill: l.Skill.Path, Name: l.Skill.Name(), Status: "loaded",
		CFCPromptRole:    cfharness.PromptRoleContext,
		SandboxSkillPath: snapshot.SandboxPath(l.Skill, l.Skill.File),
		SandboxSkillDir:  snapshot.SandboxPath(l.Skill, ""),
		Digest:           l.Skill.Digest, TreeDigest: l.Index.TreeDigest,
		Activation: l.Handle, ExpiresAt: provenance.Stamp(l.Until),
	}
}

// describe adds to the output of a load the text and the files from which a program builds the model's
// context itself. If they do not fit into a message, the program finds them in the skill's resources and in
// skill-registry.json.
func (l *Loaded) describe() {
	if text := string(l.file); !l.Omitted && fitsMessage(text) {
		l.Output.Content = &text
	}
	if resources := snapshot.Resources(l.Skill, l.Index); fitsMessage(resources) {
		l.Output.Resources = resources
	}
}

// notLoaded records why a skill was not loaded, and returns the error for the caller. The event has no row,
// since nothing was shown. It has the policy's decision if there was one.
func (s *Session) notLoaded(
	ctx context.Context, r *request, skill string, grant policy.Grant, err error,
) error {
	failure, ok := errors.AsType[*Error](err)
	if !ok {
		return s.deny(ctx, r, policy.DenialOf(err))
	}
	// On a full disk this short event may still fit, although the records of other calls do not. The answer
	// must not depend on the size of the event.
	if s.broken.Load() {
		return fault.OfRecord(failure)
	}
	e := loadFailure(skill, failure)
	if grant.Decision != "" {
		e.Decision = s.granted(r, grant)
	}
	if err := s.record(ctx, r, e); err != nil {
		return err
	}
	return failure
}

// loadFailure returns the record of a skill that was not loaded.
func loadFailure(skill string, failure *Error) *provenance.Event {
	return &provenance.Event{Kind: provenance.KindSkillActivated, Skill: skill,
		Detail: provenance.LoadError(string(failure.Code))}
}

// rereads is how often a skill is read again if it changes while it is read.
const rereads = 3

// read returns the present version of a skill on disk and its instructions. A skill that changed since the
// scan is scanned again, so that the new text is sent with its new digest.
func (s *Session) read(ctx context.Context, sk *skills.Skill) (*Loaded, error) {
	for attempt := 0; ; attempt++ {
		fresh, index, err := s.current(ctx, sk)
		if err != nil {
			return nil, err
		}
		content, err := fresh.Read(ctx, fresh.File, skills.MaxSkillFile)
		switch {
		case err == nil && content.Matches:
			body := frontmatter.BodyOffset(content.Data)
			return &Loaded{Skill: fresh, Index: index, Size: fresh.Size, file: content.Data,
				Body: content.Data[body:], BodyOffset: body}, nil
		// The file changed between the scan and the read.
		case err == nil:
			err = &skills.DriftError{Want: fresh.Digest, Got: content.Digest, Path: fresh.File}
		}
		if _, drift := errors.AsType[*skills.DriftError](err); !drift || attempt == rereads {
			return nil, err
		}
		sk = fresh
	}
}

// current returns the present version of sk on disk, with its index.
func (s *Session) current(ctx context.Context, sk *skills.Skill) (*skills.Skill, *skills.Index, error) {
	for attempt := 0; ; attempt++ {
		index, err := verified(ctx, sk)
		if err == nil {
			return sk, index, nil
		}
		if attempt == rereads {
			return nil, nil, err
		}
		differs := err
		sk, err = s.cfg.Registry.RescanSkill(ctx, sk)
		if err != nil {
			return nil, nil, fmt.Errorf("%w (after %v)", err, differs)
		}
	}
}

// verified returns the index of sk if its files on disk have not changed.
func verified(ctx context.Context, sk *skills.Skill) (*skills.Index, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	if err := sk.Verify(ctx); err != nil {
		return nil, err
	}
	return index, nil
}

// reactivate activates a skill without a call and records that. The instructions are not sent.
func (s *Session) reactivate(
	ctx context.Context, sk *skills.Skill, index *skills.Index, rule string, source cfharness.Source,
) error {
	r := s.newRequest(Call{Method: "load_skill", Principal: s.principal}, policy.Read)
	loaded := &Loaded{Skill: sk, Index: index}
	s.activate(loaded, source)
	grant := policy.Grant{Decision: policy.Allowed, RuleID: rule}
	return s.write(ctx, s.activationEvent(ctx, r, loaded, grant, source))
}

// activationEvent returns the event of an activation. It has no row if the instructions were sent before and
// an earlier row has the same handle and source.
func (s *Session) activationEvent(
	ctx context.Context, r *request, l *Loaded, grant policy.Grant, source cfharness.Source,
) *provenance.Event {
	e := &provenance.Event{
		Kind: provenance.KindSkillActivated, Skill: l.Skill.Path, Path: l.Skill.File,
		Got: l.Index.TreeDigest.String(), Detail: string(source), Decision: s.granted(r, grant),
	}
	if l.Sent {
		e.Detail += ", instructions sent before"
	}
	if l.Sent && l.recorded {
		return e
	}
	// Validation shows these codes only to those who ask for it. The operator of a running server learns from
	// the log and the record that a model has read such a text.
	var suspicious []string
	for _, code := range l.Index.Suspicious() {
		suspicious = append(suspicious, string(code))
	}
	if len(suspicious) > 0 {
		s.cfg.Logger.Warn("a skill with suspicious text was loaded", slog.String("skill", l.Skill.Path),
			slog.String("codes", strings.Join(suspicious, ", ")), slog.String("session", s.id))
	}
	e.Row = encode(cfharness.Activation{
		Name: l.Skill.Name(), Source: source, RunID: s.id,
		SkillPath: snapshot.HostPath(l.Skill, l.Skill.File), SkillDir: snapshot.HostPath(l.Skill, ""),
		SandboxSkillPath: snapshot.SandboxPath(l.Skill, l.Skill.File),
		SandboxSkillDir:  snapshot.SandboxPath(l.Skill, ""),
		Digest:           l.Skill.Digest, ActivatedAt: provenance.Stamp(s.cfg.Now()),
		CFCPromptRole: cfharness.PromptRoleContext,
		Skillsd: &cfharness.ActivationExtension{
			Path: l.Skill.Path, TreeDigest: l.Index.TreeDigest, TaskID: r.call.Turn,
			// After an update, the lock file no longer leads from this digest to the source of the skill.
			Origin:       s.rules.Load().Facts.OriginOf(ctx, l.Skill, l.Index.TreeDigest),
			HandleDigest: digest.FromString(l.Handle), ExpiresAt: new(provenance.Stamp(l.Until)),
			Repeated: l.Sent, Sent: r.call.Source != "", Suspicious: suspicious,
		},
	})
	return e
}
