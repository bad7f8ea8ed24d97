package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
)

// Request is what to install.
type Request struct {
	Source string // a URL for git, a zip archive or a directory
	Ref    string // of git: a branch, a tag or a commit; empty: the default branch
	Subdir string // the part of the source to look in; empty: all of it
	Name   string // of the skill, when it is one; empty: as it is called there
	Tier   skills.Tier
	All    bool // all skills of the source; otherwise there must be one
	// KeepGoing installs what can be installed when a part cannot.
	KeepGoing bool
	// Insecure takes http and git URLs of other machines.
	Insecure bool
}

// Refusal is a skill of a source that is not installed.
type Refusal struct {
	Path   string `json:"path"` // in the source
	Reason string `json:"reason"`
}

// RefusedError says that skills of a source cannot be installed, and so none is.
type RefusedError struct {
	Refused []Refusal // at least one
	Others  int       // how many could be
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%q: %s", clip(e.Refused[0].Path), e.Refused[0].Reason)
	if more := len(e.Refused) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// SeveralError says that a source has several skills where one was expected.
type SeveralError struct{ Paths []string }

func (e *SeveralError) Error() string {
	shown := e.Paths[:min(len(e.Paths), 10)]
	text := fmt.Sprintf("the source has %d skills: %s", len(e.Paths), strings.Join(shown, ", "))
	if len(shown) < len(e.Paths) {
		text += ", …"
	}
	return text
}

// Plan is an installation that is ready: stored, in the stage, and checked. Apply or Close ends it.
type Plan struct {
	Entries []*Entry // in byte order of Name
	// Snapshot has the skills as they will be served; paths are names.
	Snapshot *skills.Snapshot
	// Left are, by name, the diagnostics about files of a skill that are not installed.
	Left    map[string][]skills.Diagnostic
	Refused []Refusal // with KeepGoing
	Notes   []string  // of the source

	stage *stage
	done  bool
}

// Plan fetches a source and makes its skills ready.
//
// Errors: *SourceError, *FetchError, *SeveralError, *RefusedError; *source.ArchiveError; those of ctx
// and of the system. Nothing remains then.
func (i *Installer) Plan(ctx context.Context, req Request) (p *Plan, err error) {
	origin, err := resolve(req.Source, req.Ref, req.Insecure)
	if err != nil {
		return nil, err
	}
	if origin.Path, err = cleanSubdir(req.Subdir); err != nil {
		return nil, err
	}
	if origin.Path != "." {
		origin.Subdir = origin.Path
	}
	if req.Name != "" {
		if err := CheckName(req.Name); err != nil {
			return nil, &SourceError{Reason: "--name: " + err.Error()}
		}
	}
	stage, err := i.newStage()
	if err != nil {
		return nil, err
	}
	p = &Plan{stage: stage, Left: map[string][]skills.Diagnostic{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	from, err := stage.fetch(ctx, origin, req.Insecure)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	p.Notes = from.notes
	chosen, err := i.choose(from, req, p)
	if err != nil {
		return p, err
	}
	if err := p.ready(ctx, from, chosen, req); err != nil {
		return p, err
	}
	return p, p.check(ctx, req)
}

func cleanSubdir(dir string) (string, error) {
	if dir == "" || dir == "." {
		return ".", nil
	}
	clean, err := skills.CleanPath(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return "", &SourceError{Reason: "--subdir: " + err.Error()}
	}
	return clean, nil
}

// choose returns the skills to install, by their names.
func (i *Installer) choose(from *fetched, req Request, p *Plan) (map[string]candidate, error) {
	all := from.candidates()
	loadable := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.skill == nil })
	var refused []Refusal
	for _, c := range all {
		if c.skill == nil {
			refused = append(refused, Refusal{c.path, "does not load: " + c.err})
		}
	}
	switch {
	case len(all) == 0:
		return nil, &SourceError{Reason: "the source has no skill: no SKILL.md was found", Hint: "look at it, and name the directory with --subdir"}
	case len(loadable) > 1 && !req.All:
		several := &SeveralError{}
		for _, c := range loadable {
			several.Paths = append(several.Paths, c.path)
		}
		return nil, several
	case len(loadable) > 1 && req.Name != "":
		return nil, &SourceError{Reason: fmt.Sprintf("--name is for one skill, and the source has %d", len(loadable)), Hint: "leave it out, or name one skill with --subdir"}
	case len(loadable) == 1 && !req.All && len(refused) > 0:
		for _, r := range refused {
			p.Notes = append(p.Notes, fmt.Sprintf("%q %s", clip(r.Path), r.Reason))
		}
		refused = nil
	}
	chosen := map[string]candidate{}
	taken := map[string]string{}
	for _, c := range loadable {
		name, err := req.Name, error(nil)
		if name == "" {
			name, err = from.name(c)
		}
		if err == nil {
			err = i.free(name, c, from, req, taken)
		}
		if err != nil {
			refused = append(refused, Refusal{c.path, err.Error()})
			continue
		}
		taken[strings.ToLower(name)] = c.path
		chosen[name] = c
	}
	slices.SortStableFunc(refused, func(a, b Refusal) int { return cmp.Compare(a.Path, b.Path) })
	if len(refused) > 0 && (!req.KeepGoing || len(chosen) == 0) {
		return nil, &RefusedError{Refused: refused, Others: len(chosen)}
	}
	p.Refused = refused
	return chosen, nil
}

// free returns why a name cannot be given to a skill, with both places and what resolves it.
func (i *Installer) free(name string, c candidate, from *fetched, req Request, taken map[string]string) error {
	if other, ok := taken[strings.ToLower(name)]; ok {
		return fmt.Errorf("the name %s is that of %q in the same source; install one with --subdir and --name", name, clip(other))
	}
	if e := i.lock.clash(name); e != nil {
		if e.Origin.Source == from.origin.Source && e.Origin.Path == c.path {
			return fmt.Errorf("%s is installed from there already; see `skillsd update %s`", e.Name, e.Name)
		}
		return fmt.Errorf("the name %s is that of the skill installed from %s (%s); choose another with --name", e.Name, e.Origin.Source, e.Origin.Path)
	}
	for _, tier := range tiers() {
		if _, err := i.root.Lstat(placeOf(tier, name)); err == nil {
			return fmt.Errorf("%s exists and is not in the lock file; remove it, or choose another name with --name", path.Join(installedDir, tier.String(), name))
		}
	}
	return i.taken([]string{name}, nil)
}

// parallel is how many skills are stored side by side: most of it is waiting for the disk.
func parallel() int { return 4 * runtime.GOMAXPROCS(0) }

// ready stores the skills and puts them into the stage.
func (p *Plan) ready(ctx context.Context, from *fetched, chosen map[string]candidate, req Request) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	var mu sync.Mutex
	for name, c := range chosen {
		group.Go(func() error {
			left, err := leftOut(ctx, c.skill)
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			version, err := p.stage.add(ctx, c.skill, name)
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			origin := from.origin
			origin.Path = c.path
			entry := &Entry{Name: name, Tier: req.Tier, Enabled: true, Origin: origin, Tree: version.Tree, Files: version.Files, InstalledAt: version.InstalledAt}
			mu.Lock()
			defer mu.Unlock()
			p.Entries = append(p.Entries, entry)
			if len(left) > 0 {
				p.Left[name] = left
			}
			p.stage.i.progress("skills stored", len(p.Entries), len(chosen))
			return nil
		})
	}
	err := group.Wait()
	slices.SortFunc(p.Entries, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	return err
}

// leftOut are the diagnostics about files that a skill has in its source and not where it is installed.
//
// Errors: the files are more than a skill may have: which are left out would be chance.
func leftOut(ctx context.Context, sk *skills.Skill) ([]skills.Diagnostic, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	var left []skills.Diagnostic
	for _, d := range index.Diagnostics {
		switch d.Code {
		case skills.CodeResourceCount:
			return nil, fmt.Errorf("%s: %s", d.Code, d.Detail)
		case skills.CodeUnreadableResource, skills.CodeResourceOutside, skills.CodeResourceSize, skills.CodeInvalidPath, skills.CodeMaxDepth, skills.CodeUnreadableDir:
			left = append(left, d)
		}
	}
	return left, nil
}

// check scans the stage: what is put in place must load, as what was stored, and take no path of
// another.
func (p *Plan) check(ctx context.Context, req Request) (err error) {
	if p.Snapshot, err = p.stage.scan(ctx); err != nil {
		return err
	}
	if refused := p.refuse(); len(refused) > 0 {
		if !req.KeepGoing || len(p.Entries) == 0 {
			return &RefusedError{Refused: refused, Others: len(p.Entries)}
		}
		p.Refused = append(p.Refused, refused...)
		slices.SortStableFunc(p.Refused, func(a, b Refusal) int { return cmp.Compare(a.Path, b.Path) })
		for name := range p.Left {
			if !slices.ContainsFunc(p.Entries, func(e *Entry) bool { return e.Name == name }) {
				delete(p.Left, name)
			}
		}
		if p.Snapshot, err = p.stage.scan(ctx); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	for _, e := range p.Entries {
		group.Go(func() error {
			sk := p.Snapshot.Skill(e.Name)
			if sk == nil {
				return fmt.Errorf("%s: does not load where it is installed", e.Name)
			}
			index, err := sk.Index(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			if index.TreeDigest != e.Tree {
				return fmt.Errorf("%s: is not what was stored", e.Name)
			}
			return nil
		})
	}
	return group.Wait()
}

// Apply puts the skills in place and writes the lock file. When it fails nothing remains.
func (p *Plan) Apply(ctx context.Context) error {
	changes := make([]change, len(p.Entries))
	for n, e := range p.Entries {
		changes[n] = change{after: e}
	}
	if err := p.stage.commit(ctx, changes); err != nil {
		return errors.Join(err, p.Close())
	}
	p.done = true
	return nil
}

// Close drops a plan that was not applied.
func (p *Plan) Close() error {
	if p.done {
		return nil
	}
	p.done = true
	return p.stage.abandon()
}
