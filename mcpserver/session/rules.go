package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// Rules is the part of a [Config] that can be replaced while the server runs.
type Rules struct {
	Policy          *policy.Policy
	Secret          func(name string) (string, error)
	ClientWorkspace func(dir ClientDir) (sandbox.Workspace, error)
	Environments    *packages.Environments
	Limits          sandbox.Limits
	Facts           snapshot.Facts
}

// inForce has the rules of one configuration. They stay the same for the whole of a request, except for a
// run that waited for a slot.
type inForce struct {
	Rules
	number    int      // number of earlier replacements
	changed   string   // the difference to the rules before, in words
	secrets   []string // names of the secrets that entries have or had
	snapshots *snapshotCache

	trees map[string]digest.Digest // of allowlisted skills when they were pinned, by path
	pins  map[string]pin           // by SKILL:scripts/PATH
}

// pin has the digests that an allowlist entry found when it was pinned, at the start or later. An entry
// without a digest approves only these. file is empty if the script did not exist.
type pin struct{ tree, file digest.Digest }

// newRules returns rules in which no entry is pinned yet. earlier are the names of the secrets that entries
// had before.
func newRules(rules Rules, earlier []string) *inForce {
	secrets := slices.Clone(earlier)
	for _, entry := range rules.Policy.Entries() {
		secrets = append(secrets, entry.Secrets...)
	}
	slices.Sort(secrets)
	return &inForce{Rules: rules, secrets: slices.Compact(secrets), snapshots: newSnapshotCache(rules.Facts),
		trees: map[string]digest.Digest{}, pins: map[string]pin{}}
}

// Policy returns the policy that is in force now.
func (s *Sessions) Policy() *policy.Policy { return s.rules.Load().Policy }

// Replacements returns the number of times that the rules were replaced.
func (s *Sessions) Replacements() int { return s.rules.Load().number }

// Replace puts new rules in force for the requests that begin from now on; changed is the difference in
// words. An entry that did not change keeps the files to which it was pinned. Approvals for the rest of a
// session are deleted if their entry changed. The record of each session gets the new policy before its next
// event.
//
// Errors: the errors of [Sessions.CheckEntries]; nothing is replaced then.
func (s *Sessions) Replace(ctx context.Context, rules Rules, changed string) error {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if err := s.checkEntries(ctx, &rules); err != nil {
		return err
	}
	old := s.rules.Load()
	is := newRules(rules, old.secrets)
	is.number, is.changed = old.number+1, changed
	same := map[string]bool{} // entries that did not change
	alike := likewise(old.Policy, rules.Policy)
	for _, entry := range rules.Policy.Entries() {
		name := entry.Skill + ":" + entry.Path
		if !reflect.DeepEqual(find(old.Policy, entry), find(rules.Policy, entry)) {
			continue
		}
		same[name] = true
		if noted, ok := old.pins[name]; ok {
			is.pins[name] = noted
		}
		if tree, ok := old.trees[entry.Skill]; ok && entry.Pin == "" {
			is.trees[entry.Skill] = tree
		}
	}
	// An entry without a digest approves the files from when it was read, not later ones.
	s.pinAll(ctx, is, func(entry policy.Entry) bool {
		return entry.Pin != "" || !same[entry.Skill+":"+entry.Path]
	})
	s.rules.Store(is)
	// An approval that is given after this belongs to the rules before, and keepApproval refuses it by their
	// number.
	s.forgetApproved(func(key approval.Key) bool { return !alike || !same[key.Skill+":"+key.Path] })
	return nil
}

// likewise reports whether two policies are equal apart from their entries.
func likewise(a, b *policy.Policy) bool {
	x, y := a.Config(), b.Config()
	x.Allowlist, y.Allowlist = policy.Allowlist{}, policy.Allowlist{}
	return reflect.DeepEqual(x, y)
}

// find returns the entries for the script of an entry.
func find(p *policy.Policy, entry policy.Entry) []policy.Entry {
	allowlist := p.Config().Allowlist
	return allowlist.Find(entry.Skill, entry.Path)
}

// PinAdded pins the files of entries with a digest that did not exist before. It is called after the
// catalogue has changed.
func (s *Sessions) PinAdded(ctx context.Context) {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	is := *s.rules.Load()
	trees, pins := is.trees, is.pins
	// Requests that are being served read the present maps without a lock.
	is.trees, is.pins = maps.Clone(trees), maps.Clone(pins)
	s.pinAll(ctx, &is, func(entry policy.Entry) bool { return entry.Pin != "" })
	if !maps.Equal(is.trees, trees) || !maps.Equal(is.pins, pins) {
		s.rules.Store(&is)
	}
}

// pinAll pins the entries for which of returns true and which have no pin yet. s.replacing is held.
func (s *Sessions) pinAll(ctx context.Context, is *inForce, of func(policy.Entry) bool) {
	all := s.cfg.Registry.Snapshot()
	for _, entry := range is.Policy.Entries() {
		_, noted := is.trees[entry.Skill]
		sk := all.Skill(entry.Skill)
		if sk == nil || noted && is.pins[entry.Skill+":"+entry.Path].file != "" || !of(entry) {
			continue
		}
		if err := s.pin(ctx, is, sk, entry); err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowed script cannot be prepared",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
		}
	}
}

// pin sets the tree that an entry approves and stores it: these are the bytes that run later.
func (s *Sessions) pin(ctx context.Context, is *inForce, sk *skills.Skill, entry policy.Entry) error {
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	name := entry.Skill + ":" + entry.Path
	noted, known := is.pins[name]
	if !known {
		noted.tree = index.TreeDigest
	}
	file := index.Resource(entry.Path)
	switch {
	case file == nil:
		s.cfg.Logger.WarnContext(ctx, "allowed script is not there", slog.String("skill", entry.Skill),
			slog.String("path", entry.Path))
	case noted.file == "":
		noted.file = file.Digest
	}
	is.pins[name] = noted
	tree, known := is.trees[sk.Path]
	if !known {
		is.trees[sk.Path] = index.TreeDigest
	}
	if tree != index.TreeDigest {
		_, err = sk.Stage(ctx, s.cfg.Trees)
	}
	return err
}

// forgetApproved deletes the approvals for the rest of a session for which over returns true.
func (s *Sessions) forgetApproved(over func(approval.Key) bool) {
	for _, ses := range s.table.all() {
		ses.mu.Lock()
		maps.DeleteFunc(ses.approved, func(key approval.Key, _ bool) bool { return over(key) })
		ses.mu.Unlock()
	}
}

// Unheeded sets whether the configuration was changed but has a fault, so that the earlier one stays in
// force. While it is set, each refusal mentions it.
func (s *Sessions) Unheeded(faulty bool) { s.unheeded.Store(faulty) }

// decide evaluates the policy for a request about a skill, which may be nil. facts has the fields that the
// request and the skill do not determine.
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
	return r.rules.Policy.Decide(facts)
}

// PermitRequest asks whether facts of the catalogue other than the content of files may be shown, such as
// a list.
type PermitRequest struct {
	Call  Call
	Skill *skills.Skill // optional: the skill that the request is about
	Path  string        // optional: a file or directory of the skill
	Class policy.Class  // the zero value is a read
}

// Permit decides about a call that activates no skill and shows no content. It records denials only.
//
// Errors: *Denied, *Error.
func (s *Session) Permit(ctx context.Context, in PermitRequest) error {
	r := s.newRequest(in.Call, cmp.Or(in.Class, policy.Read))
	if in.Skill != nil {
		r.summary.Skill = &in.Skill.Path
	}
	if in.Path != "" {
		r.summary.Path = new(policy.Clip(in.Path))
	}
	if _, err := s.decide(r, in.Skill, policy.Request{}); err != nil {
		return s.deny(ctx, r, policy.DenialOf(err))
	}
	return nil
}

// Runnable returns the denial that RunScript would return for a script of a skill now, or nil. It evaluates
// the policy with the same facts, but asks no user and records nothing. It does not find out whether files
// have changed on disk, or an interpreter or the sandbox is missing. in.Skill is not used.
func (s *Session) Runnable(ctx context.Context, sk *skills.Skill, in RunRequest) *policy.Denial {
	f := s.loadedScript(sk, in.Path)
	r := s.newRequest(in.Call, policy.SideEffect)
	if script.Outside(in.Path) && !s.allowsOutside(r, f.skill, in.Path) {
		return policy.NewDenial(policy.CodeScriptNotAllowlisted, "", "")
	}
	_, err := s.decide(r, f.skill, s.runFacts(r, &in, f))
	if err == nil {
		return nil
	}
	// A script that the user can approve is runnable.
	_, asks := errors.AsType[*policy.ApprovalRequired](err)
	if asks && f.file != nil && (s.cfg.Codes != nil || in.CanAsk && !s.tired(ctx, in.Call, f)) {
		return nil
	}
	return policy.DenialOf(err)
}
