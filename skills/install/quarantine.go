package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/compare"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/policy"
)

// Assessment is the verdict on the content of a skill when it arrived. The zero Assessment belongs to clean
// content, or to content that was installed before contents were assessed.
type Assessment struct {
	Verdict policy.Verdict `json:"verdict,omitempty" yaml:"verdict,omitempty"` // empty for clean
	Why     string         `json:"why,omitempty" yaml:"why,omitempty"`         // the reasons, in one line
	// Accepted is the tree that a user accepted. It does not apply to any other tree.
	Accepted digest.Digest `json:"accepted,omitempty" yaml:"accepted,omitempty"`
}

// clears reports whether a tree may be served.
func (a *Assessment) clears(tree digest.Digest) bool {
	return a.Verdict == "" || a.Verdict == policy.Look && a.Accepted == tree
}

// check returns an error if the assessment is not valid.
func (a *Assessment) check() error {
	if a.Verdict != "" && a.Verdict != policy.Look && a.Verdict != policy.Refuse {
		return errors.New("verdict: is neither look nor refuse")
	}
	if a.Accepted != "" && a.Accepted.Validate() != nil {
		return errors.New("accepted: is not the digest of a tree")
	}
	return nil
}

// Served reports whether the skill is in a directory that is served.
func (e *Entry) Served() bool { return e.Enabled && !e.Quarantined() }

// Quarantined reports whether the skill is installed but not served, because its content was not accepted.
func (e *Entry) Quarantined() bool { return !e.Assessment.clears(e.Tree) }

// foreign returns an entry of a lock file from another machine with the assessment that this machine has of
// its content. An acceptance in the file is valid only if trusted.
func (e *Entry) foreign(here *Entry, trusted bool) *Entry {
	changed := *e
	known := Assessment{}
	// The file could call any content clean, so only a verdict of this machine is kept.
	if here != nil && here.Tree == e.Tree {
		known = here.Assessment
	}
	if trusted && e.Accepted == e.Tree {
		known.Accepted = e.Tree
	}
	changed.Assessment = known
	if e.Previous != nil {
		previous := *e.Previous
		// obtainAll assesses it again.
		previous.Assessment = Assessment{}
		changed.Previous = &previous
	}
	return &changed
}

// AcceptError is the reason why a skill cannot be accepted.
type AcceptError struct{ Why string }

func (e *AcceptError) Error() string { return e.Why }

// Accept serves quarantined skills. The map may give the tree that the user looked at for each name; a skill
// with another tree is refused.
//
// Errors: *MissingError, *AcceptError.
func (i *Installer) Accept(trees map[string]digest.Digest) (*Plan, error) {
	return i.edit(slices.Collect(maps.Keys(trees)), func(e *Entry) (*Entry, error) {
		switch want := trees[e.Name]; {
		case e.Verdict == policy.Refuse:
			return nil, &AcceptError{"is refused: " + e.Why}
		// The content may have changed after the user looked at it.
		case want != "" && want != e.Tree:
			return nil, &AcceptError{fmt.Sprintf("has the digest %s, not %s", e.Tree, want)}
		case e.Accepted == e.Tree:
			return e, nil
		case !e.Quarantined():
			return nil, &AcceptError{"is served already; an update that waits is shown by: skillsd update " +
				e.Name}
		}
		changed := *e
		changed.Accepted = e.Tree
		return &changed, nil
	})
}

// Waiting returns the changes with content that was not accepted. After Apply such content is not served: it
// is in quarantine, or, if a version of the skill is served, that version stays.
func (p *Plan) Waiting() (waiting []*Change) {
	for n := range p.Changes {
		if c := &p.Changes[n]; c.NewContent() && c.After.Quarantined() {
			waiting = append(waiting, c)
		}
	}
	return waiting
}

// Accept accepts the content of a change of the plan.
func (p *Plan) Accept(c *Change) { c.After.Accepted = c.After.Tree }

// KeepsServed reports whether Apply skips a change, because its content is not accepted and another version
// is served.
func (c *Change) KeepsServed() bool {
	return c.NewContent() && c.After.Quarantined() && c.Before != nil && c.Before.Served()
}

// hold moves the changes that Apply skips to Held.
func (p *Plan) hold() {
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool {
		if !c.KeepsServed() {
			return false
		}
		p.Held = append(p.Held, c)
		return true
	})
}

// cleared returns the last version of a skill that was served without a finding, or accepted: the current one
// or the earlier one. It returns nil if there is none. The entry may be nil.
func (e *Entry) cleared() *Version {
	switch {
	case e == nil:
		return nil
	case !e.Quarantined():
		return e.version()
	case e.Previous != nil && e.Previous.clears(e.Previous.Tree):
		return e.Previous
	}
	return nil
}

// before returns the last version of an installed skill that was cleared before a tree, or nil. The entry may
// be nil.
func (e *Entry) before(tree digest.Digest) *Version {
	if e == nil || e.Tree != tree {
		return e.cleared()
	}
	if e.Previous == nil || !e.Previous.clears(e.Previous.Tree) {
		return nil
	}
	return e.Previous
}

// judged returns the scan in which the version is that the new content of a change is compared with.
func (p *Plan) judged(c *Change) *skills.Snapshot {
	// Findings of a version that waits were accepted by no user, so they count again in the next one.
	if c.Before != nil && c.Before.Quarantined() {
		return p.base
	}
	return p.Old
}

// assess assesses the new contents of the plan, which are in New, compared with the last versions that were
// cleared.
//
// Errors: errors of ctx; system errors.
func (p *Plan) assess(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	for n := range p.Changes {
		if c := &p.Changes[n]; c.NewContent() {
			group.Go(func() error {
				found, err := assessment(ctx, c.Name, p.judged(c), p.New)
				found.Accepted = c.After.Accepted
				c.After.Assessment = found
				return errors.Join(err, p.same(ctx, c))
			})
		}
	}
	return group.Wait()
}

// same returns an error if the staged files of a skill differ from the stored ones.
func (p *Plan) same(ctx context.Context, c *Change) error {
	sk := p.New.Skill(c.Name)
	if sk == nil {
		return nil
	}
	// It reads no file again, since the assessment read every byte.
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	if index.TreeDigest != c.After.Tree {
		return fmt.Errorf("%s changed while it was installed: it has the digest %s, not %s",
			c.Name, index.TreeDigest, c.After.Tree)
	}
	return nil
}

// assessment assesses the skill with a name and the skills nested in it.
func assessment(ctx context.Context, name string, was, is *skills.Snapshot) (Assessment, error) {
	all := policy.Arrival{First: was == nil || was.Skill(name) == nil}
	differences, err := compare.Skills(ctx, name, was, is)
	if err != nil {
		return Assessment{}, err
	}
	for _, d := range differences {
		all.Signals = append(all.Signals, Weigh(ctx, d.Is.Skill, d.Is.Index, d.Signals)...)
		all.Scripts = append(all.Scripts, d.Scripts...)
		all.Hosts = append(all.Hosts, d.Hosts...)
		all.Tools = append(all.Tools, d.ToolsAdded...)
		all.Unsearched = all.Unsearched || d.Unsearched
	}
	verdict, why := all.Assess()
	if verdict == policy.Clean {
		return Assessment{}, nil
	}
	const most = 10
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("%s%d more", policy.ConcernMore, more))
	}
	return Assessment{Verdict: verdict, Why: strings.Join(why, "; ")}, nil
}

// Weigh returns the signals of a skill with the severity that they have for a verdict: a signal in a sample,
// such as a fixture of a scanner, is only worth knowing unless another text of the skill names the file. An
// instruction that is split over files names them.
func Weigh(ctx context.Context, sk *skills.Skill, index *skills.Index, signals []skills.Diagnostic,
) []skills.Diagnostic {
	weighed := slices.Clone(signals)
	for n, d := range weighed {
		isSignal := d.Severity == skills.Warning && d.Code != skills.CodeSecretFile
		if isSignal && skills.IsSample(d.Path) && !isNamed(ctx, sk, index, d.Path) {
			weighed[n].Severity = skills.Info
		}
	}
	return weighed
}

// maxNaming is the maximum size of a text that is searched for the name of a file, in bytes.
const maxNaming = 1 << 20

// namingTexts returns SKILL.md and the other texts of a skill that may name files and are no samples.
func namingTexts(sk *skills.Skill, index *skills.Index) []string {
	texts := []string{sk.File}
	for _, r := range index.Resources {
		if r.Text && r.Size <= maxNaming && !skills.IsSample(r.Path) {
			texts = append(texts, r.Path)
		}
	}
	return texts
}

// isNamed reports whether SKILL.md, or another text of the skill that is not a sample, contains the name of a
// file: with its directory if many files have the same name.
func isNamed(ctx context.Context, sk *skills.Skill, index *skills.Index, file string) bool {
	name := path.Base(file)
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	if stem == "skill" || stem == "readme" || stem == "index" || stem == "main" {
		name = path.Join(path.Base(path.Dir(file)), name)
	}
	return slices.ContainsFunc(namingTexts(sk, index), func(text string) bool {
		content, err := sk.Read(ctx, text, maxNaming)
		// A text that cannot be read may contain the name.
		return err != nil || strings.Contains(string(content.Data), name) || followsAll(content.Data, file)
	})
}

// followed matches an order to follow all files of a directory, with its name somewhere within.
var followed = pattern.New(`(?i)\b(?:read|load|open|study|process|go through|take)\b[^.!?\n]{0,40}\b(?:all` +
	`|every\w*|` +
	`each|any)\b([^.!?\n]{0,90})\b(?:follow|obey|execute|carry out|comply|do what)\b`)

// followsAll reports whether a text has such an order for a directory that a file is in.
func followsAll(text []byte, file string) bool {
	dirs := strings.Split(path.Dir(file), "/")
	for _, m := range followed().FindAllSubmatch(text, -1) {
		isWord := func(r rune) bool {
			return r == '-' || r == '_' || unicode.IsLetter(r) ||
				unicode.IsDigit(r)
		}
		words := strings.FieldsFunc(string(m[1]), func(r rune) bool { return !isWord(r) })
		if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(dirs, word) }) {
			return true
		}
	}
	return false
}

// assessEarlier assesses the earlier versions that a lock file from another machine brought.
//
// Errors: errors of ctx; system errors.
func (p *Plan) assessEarlier(ctx context.Context) error {
	earlier, err := p.scan(ctx, "earlier")
	if err != nil {
		return err
	}
	for _, c := range p.Changes {
		if c.Before != nil || c.After.Previous == nil {
			continue
		}
		c.After.Previous.Assessment, err = assessment(ctx, c.Name, nil, earlier)
		if err != nil {
			return err
		}
	}
	return nil
}

// AssessAll assesses all contents of the lock file of a Sync that the store has, including served ones. It
// returns a row for each content that is neither clean nor accepted, sorted by Name.
//
// Errors: errors of ctx; system errors.
func (p *Plan) AssessAll(ctx context.Context, s Sync) (rows []Change, err error) {
	entries := s.wanted(p.i.lock).Skills
	for _, e := range entries {
		// The comparison with the lock file reports trees that the store lost.
		err := p.copyStored(ctx, "place", e.Name, e.Tree)
		if base := p.i.lock.like(e.Name).before(e.Tree); err == nil && base != nil {
			err = p.copyStored(ctx, "before", e.Name, base.Tree)
		}
		if err != nil {
			return nil, err
		}
	}
	p.New, err = p.scan(ctx, "place")
	if err != nil {
		return nil, err
	}
	p.Old, err = p.scan(ctx, "before")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		found := e.Assessment
		if found.Verdict == "" {
			found, err = assessment(ctx, e.Name, p.Old, p.New)
			if err != nil {
				return nil, err
			}
		}
		if found.Verdict != "" && (e.Accepted != e.Tree || found.Verdict == policy.Refuse) {
			rows = append(rows, Change{Name: e.Name, Before: e, After: e, What: "it was not accepted",
				Verdict: found.Verdict, Why: found.Why, lockOnly: true})
		}
	}
	return rows, nil
}
