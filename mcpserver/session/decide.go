package session

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// decide asks the policy about a request for a skill, nil for none. facts holds what only the caller
// knows.
//
// Errors: the errors of [policy.Policy.Decide].
func (s *Session) decide(r *request, sk *skills.Skill, facts policy.Request) (policy.Grant, error) {
	facts.Tool, facts.Class, facts.Mode = r.call.Method, r.class, r.mode
	facts.Slot, facts.Principal = r.call.Slot, r.call.Principal
	facts.Profiles = []string{s.profile, r.call.Profile}
	if sk != nil {
		facts.Skill, facts.Tier = sk.Path, sk.Root.Tier
		facts.SkillName = cmp.Or(sk.Frontmatter.Name, sk.Name())
		facts.AllowedTools = sk.Frontmatter.AllowedTools
		facts.AllowedToolsDeclared = sk.Frontmatter.AllowedToolsDeclared
	}
	return s.cfg.Policy.Decide(facts)
}

// excludes returns the refusal of a name that a narrowed call cannot see, whether or not there is such
// a skill, which a refusal must not reveal; nil if err is another one.
func (s *Session) excludes(r *request, name string, err error) *policy.Denial {
	missing, ok := errors.AsType[*skills.NotFoundError](err)
	if !ok || !s.narrows(r.call) {
		return nil
	}
	nearest := ""
	if len(missing.Nearest) > 0 && s.cfg.NamesInErrors {
		nearest = "use one of: " + strings.Join(missing.Nearest, ", ") + "; "
	}
	return r.denial(skillExcluded, clip(name), "", "{name}", quote(name), "{nearest}", nearest)
}

// PermitRequest asks whether facts of the catalogue other than the content of files may be shown, such as
// a list.
type PermitRequest struct {
	Call  Call
	Skill *skills.Skill // optional: the one skill it is about
	Path  string        // optional: the file or directory of it
}

// Permit decides about a read of the catalogue. What is allowed is not recorded: it activates
// nothing and shows no content. A denial is.
//
// Errors: *Denied, *Error.
func (s *Session) Permit(ctx context.Context, in PermitRequest) error {
	r := s.newRequest(in.Call, policy.Read)
	if in.Skill != nil {
		r.summary.Skill = &in.Skill.Path
	}
	if in.Path != "" {
		r.summary.Path = new(clip(in.Path))
	}
	if _, err := s.decide(r, in.Skill, policy.Request{}); err != nil {
		return s.deny(ctx, r, policy.DenialOf(err))
	}
	return nil
}

// Runnable returns what RunScript would refuse a script of a skill with if it were called like this
// now, or nil: the rules are asked with the same facts, and neither a question to the user nor the
// record is made. Whether its files have changed on disk since, or an interpreter or the sandbox is
// missing, only a run finds out. in.Skill is not used.
func (s *Session) Runnable(sk *skills.Skill, in RunRequest) *policy.Denial {
	f := s.loaded(sk, in.Path)
	_, err := s.decide(s.newRequest(in.Call, policy.SideEffect), f.skill, s.runFacts(&in, f))
	if err == nil {
		return nil
	}
	_, asks := errors.AsType[*policy.ApprovalRequired](err)
	if asks && f.file != nil && in.CanAsk && !s.tired(in.Call, f) {
		return nil
	}
	return policy.DenialOf(err)
}

// maxNarrowed bounds the narrowed snapshots that are kept; the names of profiles that are given with
// calls come from clients.
const maxNarrowed = 64

// narrowed caches the part of a snapshot that each narrowing leaves. It is safe for concurrent use.
type narrowed struct {
	mu     sync.Mutex
	of     *skills.Snapshot // what the parts are of
	byName map[string]*skills.Snapshot
}

// Visible returns the part of the current snapshot that a principal may see. The profiles, which a call or
// its session names, narrow it further. As long as the snapshot is current, equal parts are the same pointer.
func (s *Sessions) Visible(principal policy.Principal, profiles ...string) *skills.Snapshot {
	snapshot := s.cfg.Registry.Snapshot()
	paths, all := s.cfg.Policy.Visible(principal, profiles)
	if all {
		return snapshot
	}
	key := strings.Join(paths, "\x00")
	n := &s.narrow
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of != snapshot || len(n.byName) >= maxNarrowed {
		n.of, n.byName = snapshot, map[string]*skills.Snapshot{}
	}
	if n.byName[key] == nil {
		n.byName[key] = snapshot.Only(paths)
	}
	return n.byName[key]
}

// visible returns what a call of the session may see.
func (s *Session) visible(call Call) *skills.Snapshot {
	return s.Visible(call.Principal, s.profile, call.Profile)
}

// narrows reports whether a call sees less than there is.
func (s *Session) narrows(call Call) bool {
	_, all := s.cfg.Policy.Visible(call.Principal, []string{s.profile, call.Profile})
	return !all
}
