package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// path returns a directory of the plan's work on this machine.
func (p *Plan) path(name string) string { return p.i.path(p.dir + "/" + name) }

// placed returns where a skill is made ready, relative to the state directory.
func (p *Plan) placed(name string) string { return p.dir + "/place/" + name }

// ready stores a skill and makes it ready under a name. It returns the diagnostics about files of the
// source that are not installed.
//
// Errors: of [skills.Skill.Stage]; one for a skill with more files than it may have.
func (p *Plan) ready(
	ctx context.Context, sk *skills.Skill, name string,
) (v *Version, left []skills.Diagnostic, err error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, nil, err
	}
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
	tree, err := p.store(ctx, sk, index)
	if err != nil {
		return nil, nil, err
	}
	if err := p.place(ctx, name, tree); err != nil {
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

// store stores a skill, and remembers a tree that was not there before.
func (p *Plan) store(ctx context.Context, sk *skills.Skill, index *skills.Index) (*store.Tree, error) {
	if err := p.i.before("store " + sk.Path); err != nil {
		return nil, err
	}
	// Close may remove only trees that this command adds: installed skills can use all others.
	_, err := os.Lstat(filepath.Join(p.i.cfg.Trees.Dir(), index.TreeDigest.Encoded()))
	if errors.Is(err, fs.ErrNotExist) {
		p.mu.Lock()
		p.stored = append(p.stored, index.TreeDigest)
		p.mu.Unlock()
	}
	return sk.Stage(ctx, p.i.cfg.Trees)
}

// place makes a stored tree ready under a name.
func (p *Plan) place(ctx context.Context, name string, tree *store.Tree) error {
	if err := p.i.before("place " + name); err != nil {
		return err
	}
	if err := tree.Copy(ctx, p.i.root, p.placed(name)); err != nil {
		return fmt.Errorf("place %s: %w", name, err)
	}
	return nil
}

// placeStored makes the tree of an entry ready.
//
// Errors: store.ErrNotFound, *store.CorruptError.
func (p *Plan) placeStored(ctx context.Context, e *Entry) error {
	tree, err := p.i.cfg.Trees.Tree(ctx, e.Tree)
	if err != nil {
		return err
	}
	return p.place(ctx, e.Name, tree)
}
