package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// ActivateRequest asks for the instructions of a skill.
type ActivateRequest struct {
	Call  Call
	Skill string // path or unique name
	Force bool   // send the instructions although the session has them
	// Source is recorded; empty is provenance.SourceModel. A user's own choice also opens a skill that
	// hides itself from models.
	Source provenance.Source
}

// Loaded is an activated skill with its instructions.
type Loaded struct {
	Skill      *skills.Skill
	Index      *skills.Index
	Handle     string
	Until      time.Time
	Known      bool   // the session was sent this tree's instructions before; Body is empty
	Body       []byte // SKILL.md after the frontmatter
	BodyOffset int64  // where Body starts in SKILL.md
	Size       int64  // of SKILL.md
	Rescanned  bool   // the skill had changed on disk and was read anew
	Output     LoadOutput
}

// LoadOutput is the machine-readable result of an activation. The reference has no such tool; the
// keys are those of its activation record that name no host path.
type LoadOutput struct {
	Type             string               `json:"type"`
	OutputID         string               `json:"outputId"`
	Skill            string               `json:"skill"`
	Name             string               `json:"name"`
	Status           string               `json:"status"`
	CFCPromptRole    string               `json:"cfcPromptRole"`
	SandboxSkillPath string               `json:"sandboxSkillPath"`
	SandboxSkillDir  string               `json:"sandboxSkillDir"`
	Digest           digest.Digest        `json:"digest"`
	TreeDigest       digest.Digest        `json:"treeDigest"`
	Activation       string               `json:"activation"`
	ExpiresAt        provenance.Timestamp `json:"expiresAt"`
}

// Activate loads a skill into the session: look up, decide, read and verify, pin, record, answer.
//
// Errors: *Denied, *Error.
func (s *Session) Activate(ctx context.Context, r ActivateRequest) (*Loaded, error) {
	req := s.newRequest(r.Call, policy.Read)
	req.summary.Skill = new(clip(r.Skill))
	sk, err := s.lookup(r.Skill)
	if err != nil && r.Source == provenance.SourceUser {
		sk, err = s.cfg.Registry.Snapshot().Lookup(r.Skill)
	}
	if err != nil {
		return nil, s.plain(s.lookupError(err))
	}
	req.skill = sk
	grant, denial := s.decide(req, policy.Request{})
	if denial != nil {
		return nil, s.deny(ctx, req, denial)
	}
	loaded, err := s.read(ctx, sk)
	if err != nil {
		return nil, s.plain(readError(err, sk.File))
	}
	fresh, index := loaded.Skill, loaded.Index
	a, handle, until := s.activate(fresh, index)
	loaded.Handle, loaded.Until = handle, until
	loaded.Known = s.wasShown(a) && !r.Force
	if err := s.append(ctx, s.activationEvent(req, loaded, grant, cmp.Or(r.Source, provenance.SourceModel))); err != nil {
		return nil, err
	}
	if loaded.Known {
		loaded.Body = nil
	}
	if ctx.Err() == nil {
		s.markShown(a)
	}
	loaded.Output = LoadOutput{
		Type: "skillsd.load-skill-output", OutputID: s.outputID(r.Call.Method), Skill: fresh.Path, Name: fresh.Name(), Status: "loaded",
		CFCPromptRole: provenance.PromptRoleContext, SandboxSkillPath: sandboxPath(fresh, fresh.File), SandboxSkillDir: sandboxPath(fresh, ""),
		Digest: fresh.Digest, TreeDigest: index.TreeDigest, Activation: handle, ExpiresAt: provenance.Stamp(until),
	}
	return loaded, nil
}

// lookup finds a skill by path or unique name. A skill that hides itself from models is not there
// for one, unless the session has it already. One that is gone from the catalogue stays with the
// sessions that loaded it.
func (s *Session) lookup(name string) (*skills.Skill, error) {
	snapshot := s.cfg.Registry.Snapshot()
	sk, err := snapshot.Lookup(name)
	if err != nil {
		if a := s.activatedAs(name); a != nil {
			return a.skill, nil
		}
		return nil, err
	}
	if sk.Hidden() && s.activated(sk.Path) == nil {
		return nil, snapshot.NotFound(name)
	}
	return sk, nil
}

// rereads is how often a skill that changes while it is read is read again.
const rereads = 3

// read returns a skill and its instructions as they are on disk now, all of one version: a skill that
// changed since the scan is read anew, so that its new text goes out under its new digest.
func (s *Session) read(ctx context.Context, sk *skills.Skill) (*Loaded, error) {
	loaded := &Loaded{}
	for attempt := 0; ; attempt++ {
		fresh, index, err := s.current(ctx, sk)
		if err != nil {
			return nil, err
		}
		loaded.Skill, loaded.Index, loaded.Size = fresh, index, fresh.Size
		loaded.Rescanned = loaded.Rescanned || fresh != sk
		loaded.Body, loaded.BodyOffset, err = s.body(ctx, fresh)
		if _, drift := errors.AsType[*skills.DriftError](err); !drift || attempt == rereads {
			return loaded, err
		}
		sk = fresh
	}
}

// current returns sk with its index as they are on disk now.
func (s *Session) current(ctx context.Context, sk *skills.Skill) (*skills.Skill, *skills.Index, error) {
	for attempt := 0; ; attempt++ {
		index, err := sk.Index(ctx)
		if err == nil {
			err = sk.Verify(ctx)
		}
		if err == nil {
			return sk, index, nil
		}
		if attempt == rereads {
			return nil, nil, err
		}
		fresh, rescanErr := s.cfg.Registry.RescanSkill(ctx, sk)
		if rescanErr != nil {
			return nil, nil, fmt.Errorf("%w (after %v)", rescanErr, err)
		}
		sk = fresh
	}
}

// body reads the instructions of a skill, verified against its digest.
func (s *Session) body(ctx context.Context, sk *skills.Skill) (body []byte, offset int64, err error) {
	content, err := sk.Read(ctx, sk.File, skills.MaxSkillFile)
	if err != nil {
		return nil, 0, err
	}
	if !content.Matches {
		return nil, 0, &skills.DriftError{Want: sk.Digest, Got: content.Digest, Path: sk.File}
	}
	offset = skills.BodyOffset(content.Data)
	return content.Data[offset:], offset, nil
}

// activationEvent is the record of an activation. Instructions that were sent before and are not
// sent again make no row.
func (s *Session) activationEvent(r *request, l *Loaded, grant policy.Grant, source provenance.Source) *provenance.Event {
	e := &provenance.Event{
		Kind: provenance.KindSkillActivated, Skill: l.Skill.Path, Path: l.Skill.File, Got: l.Index.TreeDigest.String(),
		Detail: string(source), Decision: s.granted(r, grant),
	}
	if l.Known {
		e.Detail += ", instructions sent before"
		return e
	}
	e.Row = encode(provenance.Activation{
		Name: l.Skill.Name(), Source: source, RunID: s.id,
		SkillPath: hostPath(l.Skill, l.Skill.File), SkillDir: hostPath(l.Skill, ""),
		SandboxSkillPath: sandboxPath(l.Skill, l.Skill.File), SandboxSkillDir: sandboxPath(l.Skill, ""),
		Digest: l.Skill.Digest, ActivatedAt: provenance.Stamp(s.cfg.Now()), CFCPromptRole: provenance.PromptRoleContext,
		Skillsd: &provenance.ActivationExtension{
			Path: l.Skill.Path, TreeDigest: l.Index.TreeDigest, TaskID: r.call.Turn, HandleDigest: digest.FromString(l.Handle), ExpiresAt: new(provenance.Stamp(l.Until)),
		},
	})
	return e
}
