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

// Plan is a computed change of an installation, which can be shown before Apply carries it out. Apply or
// Close ends it.
type Plan struct {
	// Changes are the skills of the plan, sorted by Name. They include skills that an update finds unchanged.
	Changes []Change
	// Refused are the skills that are not installed or not changed, sorted by Path.
	Refused []Refusal
	// LeftOut are the skills of a source that do not load, or that policy.Arrival refuses, of a request for
	// all of them; sorted by Path. They are facts about the source, and no failure.
	LeftOut []Refusal
	// Held are the changes that Apply skipped: the new content must be accepted first, and the served version
	// stays.
	Held []Change
	// Old and New are scans of the skills as installed before and as served after the plan; the paths are
	// their names. A version that the store lost is missing in Old.
	Old, New *skills.Snapshot
	Notes    []string // about the sources
	// Lacking is the number of required skills that the source does not contain.
	Lacking int

	// base has the last cleared versions of the skills whose versions before wait.
	base *skills.Snapshot

	i *Installer
	// prepare stages the skills if computing the plan did not; may be nil.
	prepare func(ctx context.Context) error
	dir     string // staging directory, relative to the state directory; empty once ended

	indexes map[string]*discovery.Index // by URL
	tags    map[Origin]digest.Digest    // digests of registry tags, by Source and Ref
	servers map[string]*listing         // MCP servers, by Source
	present []candidate                 // requested skills that are installed already
	whole   bool                        // what cannot be installed is left out
	there   int                         // skills of a request for all that are installed already
	lost    []*vanished                 // of an update

	elsewhere []*contents // of the skills that it stores

	batch *store.Batch // the trees that it stores and the copies to serve
}

// Change is one skill before and after a plan. `skillsd sync --json` prints it.
type Change struct {
	Name   string `json:"name"`
	Before *Entry `json:"-"` // nil: not installed
	After  *Entry `json:"-"` // nil: removed

	// Set by Sync: how the installed skill differs from the lock file.
	What string `json:"what"`
	// Set by AssessAll: look or refuse, and the reasons.
	Verdict policy.Verdict `json:"verdict,omitempty"`
	Why     string         `json:"why,omitempty"`
	// Earlier is set if a Sync concerns only the version that Rollback returns to.
	Earlier bool `json:"earlier,omitempty"`
	// Lost is the reason why the earlier version cannot be fetched again, and Dropped is set if it was
	// dropped. Apply sets both.
	Lost    string `json:"lost,omitempty"`
	Dropped bool   `json:"dropped,omitempty"`

	// Left are the diagnostics for files of the source that are not installed.
	Left []skills.Diagnostic `json:"-"`

	lockOnly bool // only the lock file changes
}

// NewContent reports whether the plan changes the files of the skill.
func (c *Change) NewContent() bool {
	return c.After != nil && (c.Before == nil || c.Before.Tree != c.After.Tree)
}

// Moves reports whether the new version comes from another path or branch of the source than the installed
// one, so that only an update that follows the skill finds it.
func (c *Change) Moves() bool {
	return c.Before != nil && c.After != nil && c.Before.Origin.Source == c.After.Origin.Source &&
		(c.Before.Origin.Path != c.After.Origin.Path || c.Before.Origin.Ref != c.After.Origin.Ref)
}

// Refusal is a skill that a plan does not install or change.
type Refusal struct {
	Name   string `json:"-"`    // of the installed skill, if any
	Before *Entry `json:"-"`    // the entry of that skill
	Path   string `json:"path"` // in the source
	Reason string `json:"reason"`
}

// leave refuses a skill because of its own content, or leaves it out of all.
func (p *Plan) leave(r Refusal) {
	if p.whole {
		p.LeftOut = append(p.LeftOut, r)
		return
	}
	p.Refused = append(p.Refused, r)
}

// sortRefusals sorts the skills that are not installed.
func (p *Plan) sortRefusals() {
	byPath := func(a, b Refusal) int { return strings.Compare(a.Path, b.Path) }
	slices.SortStableFunc(p.Refused, byPath)
	slices.SortStableFunc(p.LeftOut, byPath)
}

// newPlan returns a plan that compute fills.
func (i *Installer) newPlan(compute func(p *Plan) error) (*Plan, error) {
	p := &Plan{i: i, dir: workDir + "/" + stagePrefix + rand.Text(), batch: i.cfg.Trees.Batch(i.root),
		indexes: map[string]*discovery.Index{}, tags: map[Origin]digest.Digest{},
		servers: map[string]*listing{}}
	for _, dir := range []string{"place", "old", "before", "base", "earlier"} {
		if err := i.root.MkdirAll(p.dir+"/"+dir, 0o700); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	err := compute(p)
	p.disconnect()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Apply moves the skills into place and writes the lock file. If it fails, nothing is changed.
//
// Errors: the errors of Prepare; errors of ctx; system errors.
func (p *Plan) Apply(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Prepare(ctx); err != nil {
		return err
	}
	p.hold()
	// A tree that was stored again must be kept by a commit, even if no skill moves.
	idle := !p.batch.Stored()
	for _, c := range p.Changes {
		idle = idle && c.lockOnly && c.After == c.Before
		if c.After == nil || !c.After.Enabled || c.lockOnly {
			continue
		}
		// Sync, enable and rollback come here without judge, and the configuration must refuse alike.
		if _, err := p.i.admit(c.After.Origin); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if idle {
		return nil
	}
	return p.commit(ctx)
}

// Prepare stages and assesses the skills if computing the plan did not, and syncs them to disk. Apply calls
// it too.
//
// Errors: as listed for the method that computed the plan; errors of ctx; system errors.
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

// Close discards a plan that was not applied, and the trees that were stored for it.
func (p *Plan) Close() error {
	if p.dir == "" {
		return nil
	}
	err := p.i.root.RemoveAll(p.dir)
	p.dir = ""
	p.disconnect()
	// Trees that were in the store before stay, since installed skills may use them.
	return errors.Join(err, p.batch.Close())
}

// disconnect ends the sessions with MCP servers. Their errors do not matter anymore.
func (p *Plan) disconnect() {
	for _, l := range p.servers {
		if l.server != nil {
			_ = l.server.Close()
		}
		if l.end != nil {
			l.end(nil)
		}
	}
	clear(p.servers)
}

// parallel returns how many skills are stored concurrently. Most of them wait for the disk, and one sync
// serves all that wait.
func parallel() int { return max(32, 4*runtime.GOMAXPROCS(0)) }

// judge checks and assesses the staged skills while they are synced to disk. A skill that may not be
// installed, or would never be served, becomes a refusal.
func (p *Plan) judge(ctx context.Context) error {
	group, within := errgroup.WithContext(ctx)
	// The sync takes most of the time, and the disk works while the skills are assessed.
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
			p.leave(Refusal{c.Name, c.Before, c.After.Origin.Path, c.After.Why})
		}
		return refused
	})
	p.sortRefusals()
	return err
}

// check scans the staged skills as they will be served. A skill that does not load, or uses the path of
// another skill, becomes a refusal.
func (p *Plan) check(ctx context.Context) (err error) {
	p.New, err = p.scan(ctx, "place")
	if err != nil {
		return err
	}
	paths := p.pathsByName()
	all, failed := len(p.Changes), error(nil)
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool {
		err := p.checkChange(ctx, c, paths[c.Name])
		if err != nil {
			p.Refused = append(p.Refused, Refusal{c.Name, c.Before, c.After.Origin.Path, err.Error()})
			failed = errors.Join(failed, p.batch.Drop(p.stagedDir(c.Name)))
		}
		return err != nil
	})
	// The scan above still includes the skills that were dropped since.
	if failed == nil && len(p.Changes) < all {
		p.New, failed = p.scan(ctx, "place")
	}
	return failed
}

// checkChange returns the reason why a staged change becomes a refusal, or nil. paths are the paths of its
// skills.
func (p *Plan) checkChange(ctx context.Context, c Change, paths []string) error {
	if c.After == nil {
		return nil
	}
	if _, err := p.i.admit(c.After.Origin); err != nil || c.lockOnly {
		return err
	}
	if err := p.i.taken(ctx, c.Before, paths); err != nil {
		return err
	}
	if p.New.Skill(c.Name) == nil {
		return errors.New("does not load where it is installed")
	}
	return nil
}

// pathsByName returns the paths of the staged skills, by the name of the changed skill that contains them.
func (p *Plan) pathsByName() map[string][]string {
	names := map[string]bool{}
	for _, c := range p.Changes {
		names[c.Name] = true
	}
	paths := map[string][]string{}
	for _, sk := range slices.Concat(p.New.Skills, p.New.Withheld) {
		name, rest, _ := strings.Cut(sk.Path, "/")
		if !names[name] { // in a group
			own, _, _ := strings.Cut(rest, "/")
			name += "/" + own
		}
		paths[name] = append(paths[name], sk.Path)
	}
	return paths
}

// taken returns an error if another root already serves one of the paths. Paths that the skill had before are
// allowed.
func (i *Installer) taken(ctx context.Context, before *Entry, paths []string) error {
	if i.cfg.Taken == nil {
		return nil
	}
	for _, at := range paths {
		if user := i.cfg.Taken(at); user != "" && (before == nil || !i.serves(ctx, before, at)) {
			return fmt.Errorf("the path %s is used by the skill in %s; choose another with --name", at, user)
		}
	}
	return nil
}

// serves reports whether a path belongs to an installed skill, or to a skill nested in it that is served.
func (i *Installer) serves(ctx context.Context, e *Entry, at string) bool {
	if at == e.Name || !e.Served() {
		return at == e.Name
	}
	root := skills.Root{Dir: i.path(servedDir(e.Tier, e.Name)), Tier: e.Tier}
	snapshot, err := skills.Scan(ctx, []skills.Root{root}, &skills.ScanOptions{StrictRoots: true})
	return err == nil && slices.ContainsFunc(snapshot.Skills,
		func(sk *skills.Skill) bool { return path.Join(e.Name, sk.Dir) == at })
}

// commit makes all changes: the staged skills move into place, then the lock file is replaced. Meanwhile the
// journal lists their names. If it fails, everything is restored.
func (p *Plan) commit(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries := p.entries()
	if err := p.i.writeJournal(slices.Sorted(maps.Keys(entries))); err != nil {
		return err
	}
	var undo []func() error
	defer func() {
		if err != nil {
			err = errors.Join(err, p.i.rewind(undo))
		}
	}()
	// A power failure must not keep the renames and lose the journal, which undoes them.
	if err := fsys.SyncDir(p.i.root, workDir); err != nil {
		return err
	}
	if err := p.moveAll(&undo); err != nil {
		return err
	}
	lock := p.i.lock.with(entries)
	if err := p.i.writeLock(lock); err != nil {
		return err
	}
	p.i.lock = lock
	p.finish()
	return nil
}

// entries returns the new entries of the lock file by the names that change; nil for a name that it loses.
func (p *Plan) entries() map[string]*Entry {
	entries := map[string]*Entry{}
	for _, c := range p.Changes {
		// The earlier name may differ by case, and would stay as a second entry.
		if c.Before != nil {
			entries[c.Before.Name] = nil
		}
		if c.After != nil {
			entries[c.After.Name] = c.After
		}
	}
	return entries
}

// writeJournal writes the names of the skills that are about to change.
func (i *Installer) writeJournal(names []string) error {
	if err := i.before("journal"); err != nil {
		return err
	}
	return fsys.WriteFileIn(i.root, journal, []byte(strings.Join(names, "\n")+"\n"), 0o600)
}

// rewind takes the steps that undo a commit which failed, the last one first, and removes the journal. If a
// step fails, the journal stays for the next command.
func (i *Installer) rewind(undo []func() error) error {
	// In reverse order, because a rename may use a name that an earlier rename freed.
	for _, step := range slices.Backward(undo) {
		if err := step(); err != nil {
			return fmt.Errorf("undo: %w", err)
		}
	}
	return i.root.Remove(journal)
}

// moveAll moves the skills of the plan into place and syncs the directories. It appends how to undo that.
func (p *Plan) moveAll(undo *[]func() error) error {
	for _, c := range p.Changes {
		if c.lockOnly {
			continue
		}
		if err := p.i.before("rename " + c.Name); err != nil {
			return err
		}
		if err := p.move(c, undo); err != nil {
			return err
		}
	}
	// The lock file must not survive a power failure that loses the renames, so they are synced first.
	for _, dir := range p.parents() {
		err := fsys.SyncDir(p.i.root, dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeLock replaces the lock file. It is not synced to its directory yet.
func (i *Installer) writeLock(lock *Lock) error {
	if err := i.before("lock file"); err != nil {
		return err
	}
	// Written in workDir, where the next command removes leftovers of a crash.
	const written = workDir + "/" + lockName
	err := fsys.WriteFileIn(i.root, written, lock.Encode(), 0o600)
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	err = i.root.Rename(written, lockName)
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	return nil
}

// finish removes what a complete change leaves, and ends the plan. The next command removes leftovers; it
// also undoes the change if a power failure brings the earlier lock file back.
func (p *Plan) finish() {
	p.batch.Keep()
	// A group whose last skill is gone has no directory; Remove leaves one that is not empty.
	for _, c := range p.Changes {
		if c.Before != nil && strings.Contains(c.Before.Name, "/") {
			_ = p.i.root.Remove(path.Dir(servedDir(c.Before.Tier, c.Before.Name)))
		}
	}
	if fsys.SyncDir(p.i.root, ".") == nil {
		_ = p.i.root.Remove(journal)
		_ = p.i.root.RemoveAll(p.dir)
	}
	p.dir = ""
}

// parents returns the directories in which the plan renames skills, the innermost first.
func (p *Plan) parents() (dirs []string) {
	for _, c := range p.Changes {
		for _, e := range []*Entry{c.Before, c.After} {
			if e != nil && strings.Contains(e.Name, "/") {
				dirs = append(dirs, path.Dir(servedDir(e.Tier, e.Name)))
			}
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, tier := range skills.Tiers() {
		dirs = append(dirs, installedDir+"/"+tier.String())
	}
	return dirs
}

// move replaces the served directory of a skill with the staged one, and appends how to undo that.
func (p *Plan) move(c Change, undo *[]func() error) error {
	rename := func(from, to string) error {
		err := p.i.root.Rename(from, to)
		if err != nil {
			return err
		}
		*undo = append(*undo, func() error { return p.i.root.Rename(to, from) })
		return nil
	}
	was := ""
	if c.Before != nil {
		was = servedDir(c.Before.Tier, c.Before.Name)
	}
	is, err := p.i.placeFor(c.After)
	if err != nil {
		return err
	}
	if was != "" && was == is {
		// A server that reads meanwhile sees either version, and never a missing directory. A file system
		// that cannot exchange two directories gets the renames below.
		swap := func() error { return exchange(p.i.path(p.stagedDir(c.Name)), p.i.path(is)) }
		if swap() == nil {
			*undo = append(*undo, swap)
			return nil
		}
	}
	// A disabled skill has no directory here, and the directory of a damaged one may be missing.
	if was != "" {
		old, err := p.room("old", c.Before.Name)
		if err != nil {
			return err
		}
		if err := rename(was, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if is == "" {
		return nil
	}
	// A directory that is not in the lock file is never replaced.
	if fsys.ExistsIn(p.i.root, is) {
		return fmt.Errorf("%s is in the way", is)
	}
	return rename(p.stagedDir(c.Name), is)
}

// placeFor returns the served directory of an entry, or "" if it is not served or nil, and makes the
// directories above it.
func (i *Installer) placeFor(e *Entry) (dir string, err error) {
	if e == nil {
		return "", nil
	}
	// The directory is made even if nothing is served yet: scans of it then report skills that wait.
	err = i.root.MkdirAll(installedDir+"/"+e.Tier.String(), 0o700)
	if err != nil || !e.Served() {
		return "", err
	}
	dir = servedDir(e.Tier, e.Name)
	return dir, i.root.MkdirAll(path.Dir(dir), 0o700)
}

// notef adds a note for the user.
func (p *Plan) notef(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// path returns the absolute path of a directory in the staging directory.
func (p *Plan) path(name string) string { return p.i.path(p.dir + "/" + name) }

// room returns the path of a skill in a directory of the plan, relative to the state directory, and makes the
// directory of its group.
func (p *Plan) room(dir, name string) (string, error) {
	at := p.dir + "/" + dir + "/" + name
	return at, p.i.root.MkdirAll(path.Dir(at), 0o700)
}

// stagedDir returns the staged directory of a skill, relative to the state directory.
func (p *Plan) stagedDir(name string) string { return p.dir + "/place/" + name }

// ready stores the contents of a skill and stages them under a name. own is a directory below the state
// directory with the files of this skill alone, or ""; ready may move it. It returns diagnostics for files of
// the source that are not installed.
//
// Errors: the errors of [skills.Skill.Stage]; an error for a skill with too many files.
func (p *Plan) ready(
	ctx context.Context, from *fetched, c *contents, name, own string,
) (v *Version, left []skills.Diagnostic, err error) {
	for _, d := range c.left {
		switch d.Code {
		case skills.CodeResourceCount:
			// The files that are left out would depend on chance.
			detail, _, _ := strings.Cut(d.Detail, "; ")
			return nil, nil, refuse(d.Fix(), "%s: %s", d.Code, detail)
		case skills.CodeUnreadableResource, skills.CodeResourceOutside, skills.CodeResourceSize,
			skills.CodeInvalidPath, skills.CodeMaxDepth, skills.CodeUnreadableDir:
			left = append(left, d)
		}
	}
	tree, err := p.store(ctx, from, c)
	if err != nil {
		return nil, nil, err
	}
	if len(c.more) > 0 {
		// The directory lacks the files from elsewhere in the source.
		own = ""
	}
	if err := p.stage(ctx, name, tree, own); err != nil {
		return nil, nil, err
	}
	installedAt := time.Now().UTC().Truncate(time.Second)
	return &Version{Tree: tree.Digest, InstalledAt: installedAt, Files: lockFiles(tree.Files),
		Taken: c.locked()}, left, nil
}

// scan scans a directory of the plan as it will be served.
func (p *Plan) scan(ctx context.Context, name string) (*skills.Snapshot, error) {
	root := skills.Root{Dir: p.path(name), Tier: skills.LeastTrusted()}
	return skills.Scan(ctx, []skills.Root{root},
		&skills.ScanOptions{MaxDirs: maxSourceDirs, StrictRoots: true})
}

// store stores the contents of a skill.
func (p *Plan) store(ctx context.Context, from *fetched, c *contents) (*store.Tree, error) {
	if err := p.i.before("store " + c.skill.Path); err != nil {
		return nil, err
	}
	return c.stage(ctx, from, p.batch)
}

// stage stages a stored tree under a name. It moves the directory own there if own has exactly these files.
func (p *Plan) stage(ctx context.Context, name string, tree *store.Tree, own string) error {
	if err := p.i.before("stage " + name); err != nil {
		return err
	}
	if _, err := p.room("place", name); err != nil {
		return err
	}
	if own != "" {
		moved, err := p.batch.Take(ctx, tree, own, p.stagedDir(name))
		if err != nil {
			return fmt.Errorf("stage %s: %w", name, err)
		}
		if moved {
			return nil
		}
	}
	if err := p.batch.Copy(ctx, tree, p.stagedDir(name)); err != nil {
		return fmt.Errorf("stage %s: %w", name, err)
	}
	return nil
}

// stageStored stages the tree of an entry from the store.
func (p *Plan) stageStored(ctx context.Context, e *Entry) error {
	tree, err := p.i.cfg.Trees.Tree(ctx, e.Tree)
	if err != nil {
		return err
	}
	return p.stage(ctx, e.Name, tree, "")
}
