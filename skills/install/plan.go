package install

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Plan is a change of an installation. Installing, updating, synchronizing, removing, enabling,
// disabling and rolling back compute one, which can be shown before it is carried out. Apply or Close
// ends it.
type Plan struct {
	// Changes are the skills that the plan is about, in byte order of Name. Those that an update leaves
	// as they are belong to it.
	Changes []Change
	// Refused are the skills that are not installed, or stay as they are, in byte order of Path.
	Refused []Refusal
	// Held are the changes that Apply did not make: the content waits to be accepted, and the version that is
	// served stays.
	Held []Change
	// Old and New have the skills of an installation or update as they were installed and as they will
	// be served; paths are names. A version that the store has lost is not in Old.
	Old, New *skills.Snapshot
	Notes    []string // on the sources

	i *Installer
	// prepare makes the skills ready if that was not done to compute the plan; may be nil.
	prepare func(ctx context.Context) error
	dir     string // of its work, relative to the state directory; empty when it ended

	indexes map[string]*discovery.Index // by their URLs
	tags    map[Origin]digest.Digest    // what tags of registries name, by Source and Ref
	servers map[string]*listing         // MCP servers, by Source

	batch *store.Batch // of the trees that it stores, and of the copies to be served
}

// Change is one skill before and after a plan. `skillsd sync --json` prints it.
type Change struct {
	Name   string `json:"name"`
	Before *Entry `json:"-"` // nil: it is not installed
	After  *Entry `json:"-"` // nil: it is removed

	// Set by Sync: how the installed skill differs from the lock file.
	What string `json:"what"`
	// Set by AssessAll: look or refuse, and the reasons.
	Verdict policy.Verdict `json:"verdict,omitempty"`
	Why     string         `json:"why,omitempty"`
	// Earlier says that a Sync concerns only the version that a rollback goes back to.
	Earlier bool `json:"earlier,omitempty"`
	// Lost is why the earlier version cannot be fetched again, and Dropped that it was forgotten. Apply
	// sets both.
	Lost    string `json:"lost,omitempty"`
	Dropped bool   `json:"dropped,omitempty"`

	// Left are the diagnostics about files of the source that are not installed.
	Left []skills.Diagnostic `json:"-"`

	lockOnly bool // no file of the skill changes
}

// NewContent reports whether the skill has other files after the plan.
func (c *Change) NewContent() bool {
	return c.After != nil && (c.Before == nil || c.Before.Tree != c.After.Tree)
}

// Refusal is a skill that a plan does not install or change.
type Refusal struct {
	Name   string `json:"-"`    // of an installed skill
	Before *Entry `json:"-"`    // that skill
	Path   string `json:"path"` // in the source
	Reason string `json:"reason"`
}

func compareRefusals(a, b Refusal) int { return strings.Compare(a.Path, b.Path) }

// newPlan returns a plan that compute fills.
func (i *Installer) newPlan(compute func(p *Plan) error) (*Plan, error) {
	p := &Plan{i: i, dir: workDir + "/" + stagePrefix + rand.Text(), batch: i.cfg.Trees.Batch(i.root)}
	err := error(nil)
	for _, dir := range []string{"place", "old", "before", "earlier"} {
		err = errors.Join(err, i.root.MkdirAll(p.dir+"/"+dir, 0o700))
	}
	if err == nil {
		err = compute(p)
	}
	p.disconnect()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Apply puts the skills in place and writes the lock file. If it fails, nothing is changed.
//
// Errors: of preparing the skills, as the method that computed the plan lists them; errors of ctx;
// system errors.
func (p *Plan) Apply(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Prepare(ctx); err != nil {
		return err
	}
	p.hold()
	// Trees that were stored again are kept by the commit, also if no skill moves.
	idle := !p.batch.Stored()
	for _, c := range p.Changes {
		idle = idle && c.lockOnly && c.After == c.Before
		if c.After == nil || !c.After.Enabled || c.lockOnly {
			continue
		}
		if _, err := p.i.admit(c.After.Origin); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if idle {
		return nil
	}
	return p.commit(ctx)
}

// Prepare makes the skills ready and assesses them if that was not done to compute the plan, and makes them
// durable. Apply does it too.
//
// Errors: the errors of Apply.
func (p *Plan) Prepare(ctx context.Context) error {
	prepare := p.prepare
	p.prepare = nil
	if prepare != nil {
		if err := prepare(ctx); err != nil {
			return err
		}
	}
	return p.batch.Commit(ctx)
}

// Close drops a plan that was not applied, with the trees that were stored for it.
func (p *Plan) Close() error {
	if p.dir == "" {
		return nil
	}
	err := p.i.root.RemoveAll(p.dir)
	p.dir = ""
	p.disconnect()
	// Installed skills can use any tree that was there before.
	return errors.Join(err, p.batch.Close())
}

// disconnect ends the sessions with MCP servers. What a server does at its end is of no interest.
func (p *Plan) disconnect() {
	for _, l := range p.servers {
		if l.server != nil {
			_ = l.server.Close()
		}
		if l.end != nil {
			l.end(nil)
		}
	}
	p.servers = nil
}

// parallel is how many skills are stored at the same time. Most of it is waiting for the disk, which makes
// the files of all that wait durable together.
func parallel() int { return max(32, 4*runtime.GOMAXPROCS(0)) }

// judge checks and assesses what was made ready while that becomes durable, which is waiting for the disk.
// What may not be installed, or is never served, becomes a refusal.
func (p *Plan) judge(ctx context.Context) error {
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return p.batch.Sync(within) })
	group.Go(func() error {
		if err := p.check(within); err != nil {
			return err
		}
		if err := p.scanOld(within); err != nil {
			return err
		}
		return p.assess(within)
	})
	err := group.Wait()
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool {
		refused := c.NewContent() && c.After.Verdict == policy.Refuse
		if refused {
			p.Refused = append(p.Refused, Refusal{c.Name, c.Before, c.After.Origin.Path, c.After.Why})
		}
		return refused
	})
	slices.SortStableFunc(p.Refused, compareRefusals)
	return err
}

// check scans what was made ready as it will be served: a skill that does not load or takes a path of
// another one becomes a refusal.
func (p *Plan) check(ctx context.Context) (err error) {
	p.New, err = p.scan(ctx, "place")
	if err != nil {
		return err
	}
	paths := pathsByName(p.New)
	all, failed := len(p.Changes), error(nil)
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool {
		_, err := p.i.admit(c.After.Origin)
		if c.lockOnly && err == nil {
			return false
		}
		if err == nil {
			err = p.i.taken(ctx, c.Before, paths[c.Name])
		}
		if err == nil && p.New.Skill(c.Name) == nil {
			err = errors.New("does not load where it is installed")
		}
		if err != nil {
			p.Refused = append(p.Refused, Refusal{c.Name, c.Before, c.After.Origin.Path, err.Error()})
			failed = errors.Join(failed, p.batch.Drop(p.placed(c.Name)))
		}
		return err != nil
	})
	slices.SortStableFunc(p.Refused, compareRefusals)
	// The first scan still has the skills that were removed since.
	if failed == nil && len(p.Changes) < all {
		p.New, failed = p.scan(ctx, "place")
	}
	return failed
}

// pathsByName returns the paths of skills by the name of the installed skill that they lie in, or are.
func pathsByName(snapshot *skills.Snapshot) map[string][]string {
	paths := map[string][]string{}
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Withheld) {
		name, _, _ := strings.Cut(sk.Path, "/")
		paths[name] = append(paths[name], sk.Path)
	}
	return paths
}

// taken returns why a skill cannot have paths: the first that another skill has, with its place. A
// skill keeps the paths that it has before.
func (i *Installer) taken(ctx context.Context, before *Entry, paths []string) error {
	if i.cfg.Taken == nil {
		return nil
	}
	for _, at := range paths {
		if place := i.cfg.Taken(at); place != "" && (before == nil || !i.serves(ctx, before, at)) {
			return fmt.Errorf("the path %s is that of the skill in %s; choose another with --name", at, place)
		}
	}
	return nil
}

// serves reports whether a path is that of an installed skill, or of one that is served from within it.
func (i *Installer) serves(ctx context.Context, e *Entry, at string) bool {
	if at == e.Name || !e.Served() {
		return at == e.Name
	}
	root := skills.Root{Dir: i.path(placeOf(e.Tier, e.Name)), Tier: e.Tier}
	snapshot, err := skills.Scan(ctx, []skills.Root{root}, &skills.ScanOptions{StrictRoots: true})
	return err == nil && slices.ContainsFunc(snapshot.Skills,
		func(sk *skills.Skill) bool { return path.Join(e.Name, sk.Dir) == at })
}

// commit makes all changes: the skills that are ready take their places, then the lock file is replaced.
// The names are in the journal meanwhile. If it fails, everything is as it was.
func (p *Plan) commit(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries := map[string]*Entry{}
	for _, c := range p.Changes {
		if c.Before != nil { // its name may differ by case
			entries[c.Before.Name] = nil
		}
		if c.After != nil {
			entries[c.After.Name] = c.After
		}
	}
	if err := p.i.before("journal"); err != nil {
		return err
	}
	const journal = workDir + "/" + journalName
	text := strings.Join(slices.Sorted(maps.Keys(entries)), "\n") + "\n"
	if err := fsys.WriteFileIn(p.i.root, journal, []byte(text), 0o600); err != nil {
		return err
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		// In reverse order, because a rename may use a name that an earlier one has freed.
		for _, step := range slices.Backward(undo) {
			if failed := step(); failed != nil {
				err = errors.Join(err, fmt.Errorf("undo: %w", failed))
				return // the journal stays, for the next command
			}
		}
		err = errors.Join(err, p.i.root.Remove(journal))
	}()
	if err := fsys.SyncDir(p.i.root, workDir); err != nil {
		return err
	}
	for _, c := range p.Changes {
		if c.lockOnly {
			continue
		}
		if err := p.i.before("rename " + c.Name); err != nil {
			return err
		}
		if err := p.move(c, &undo); err != nil {
			return err
		}
	}
	// The lock file must not survive a power failure that undoes the renames, so they are synced first.
	for _, tier := range skills.Tiers() {
		err := fsys.SyncDir(p.i.root, installedDir+"/"+tier.String())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := p.i.before("lock file"); err != nil {
		return err
	}
	lock := p.i.lock.with(entries)
	// Written in workDir, where the next command removes what a crash leaves.
	const written = workDir + "/" + lockName
	err = fsys.WriteFileIn(p.i.root, written, lock.Encode(), 0o600)
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	err = p.i.root.Rename(written, lockName)
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	p.i.lock = lock
	// From here on the change is made. What is left behind is for the next command to remove, which
	// also undoes the change should the lock file of before come back after a power failure.
	p.batch.Keep()
	if fsys.SyncDir(p.i.root, ".") == nil {
		_ = p.i.root.Remove(journal)
		_ = p.i.root.RemoveAll(p.dir)
	}
	p.dir = ""
	return nil
}

// move takes a skill from its place and puts the staged one in its own.
func (p *Plan) move(c Change, undo *[]func() error) error {
	rename := func(from, to string) error {
		err := p.i.root.Rename(from, to)
		if err != nil {
			return err
		}
		*undo = append(*undo, func() error { return p.i.root.Rename(to, from) })
		return err
	}
	was, is := "", ""
	if c.Before != nil {
		was = placeOf(c.Before.Tier, c.Before.Name)
	}
	if c.After != nil {
		// Also where nothing is served yet: who looks for skills learns from the directory that some wait.
		if err := p.i.root.MkdirAll(installedDir+"/"+c.After.Tier.String(), 0o700); err != nil {
			return err
		}
		if c.After.Served() {
			is = placeOf(c.After.Tier, c.After.Name)
		}
	}
	if was != "" && was == is {
		// A server that is reading sees the one or the other, and never neither.
		swap := func() error { return exchange(p.i.path(p.placed(c.Name)), p.i.path(is)) }
		if swap() == nil {
			*undo = append(*undo, swap)
			return nil
		}
	}
	// A disabled skill is not in its place, and a damaged one may be missing.
	if was != "" {
		if err := rename(was, p.dir+"/old/"+c.Before.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if is == "" {
		return nil
	}
	// The installer replaces nothing that is not in the lock file.
	if _, err := p.i.root.Lstat(is); err == nil {
		return fmt.Errorf("%s is in the way", is)
	}
	return rename(p.placed(c.Name), is)
}

// path returns a directory of the plan's work on this machine.
func (p *Plan) path(name string) string { return p.i.path(p.dir + "/" + name) }

// placed returns where a skill is made ready, relative to the state directory.
func (p *Plan) placed(name string) string { return p.dir + "/place/" + name }

// ready stores a skill and makes it ready under a name. own is the directory below the state directory that
// it alone has, if it has one; it is moved away. It returns the diagnostics about files of the source that
// are not installed.
//
// Errors: of [skills.Skill.Stage]; one for a skill with more files than it may have.
func (p *Plan) ready(
	ctx context.Context, sk *skills.Skill, index *skills.Index, name, own string,
) (v *Version, left []skills.Diagnostic, err error) {
	for _, d := range index.Diagnostics {
		switch d.Code {
		case skills.CodeResourceCount:
			// It would be chance which files are left out.
			return nil, nil, fmt.Errorf("%s: %s", d.Code, d.Detail)
		case skills.CodeUnreadableResource, skills.CodeResourceOutside, skills.CodeResourceSize,
			skills.CodeInvalidPath, skills.CodeMaxDepth, skills.CodeUnreadableDir:
			left = append(left, d)
		}
	}
	tree, err := p.store(ctx, sk)
	if err != nil {
		return nil, nil, err
	}
	if err := p.place(ctx, name, tree, own); err != nil {
		return nil, nil, err
	}
	installedAt := time.Now().UTC().Truncate(time.Second)
	return &Version{Tree: tree.Digest, InstalledAt: installedAt, Files: lockFiles(tree.Files)}, left, nil
}

// scan reads the skills of a directory of the plan as they will be served.
func (p *Plan) scan(ctx context.Context, name string) (*skills.Snapshot, error) {
	root := skills.Root{Dir: p.path(name), Tier: skills.LeastTrusted()}
	return skills.Scan(ctx, []skills.Root{root},
		&skills.ScanOptions{MaxDirs: maxSourceDirs, StrictRoots: true})
}

// store stores a skill.
func (p *Plan) store(ctx context.Context, sk *skills.Skill) (*store.Tree, error) {
	if err := p.i.before("store " + sk.Path); err != nil {
		return nil, err
	}
	return sk.Stage(ctx, p.batch)
}

// place makes a stored tree ready under a name, with the files of the directory own if that has just those.
func (p *Plan) place(ctx context.Context, name string, tree *store.Tree, own string) (err error) {
	if err := p.i.before("place " + name); err != nil {
		return err
	}
	taken := false
	if own != "" {
		taken, err = p.batch.Take(ctx, tree, own, p.placed(name))
	}
	if err != nil {
		return fmt.Errorf("place %s: %w", name, err)
	}
	if !taken {
		err = p.batch.Copy(ctx, tree, p.placed(name))
	}
	if err != nil {
		return fmt.Errorf("place %s: %w", name, err)
	}
	return nil
}

// placeStored makes the tree of an entry ready.
func (p *Plan) placeStored(ctx context.Context, e *Entry) error {
	tree, err := p.i.cfg.Trees.Tree(ctx, e.Tree)
	if err != nil {
		return err
	}
	return p.place(ctx, e.Name, tree, "")
}
