package install

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// stage is the directory of one command's work, below install/ of the state directory.
type stage struct {
	i   *Installer
	dir string // relative to the state directory

	mu  sync.Mutex
	new []digest.Digest // trees that were not in the store before
}

func (i *Installer) newStage() (*stage, error) {
	s := &stage{i: i, dir: workDir + "/" + stagePrefix + rand.Text()}
	for _, dir := range []string{s.dir, s.dir + "/place", s.dir + "/old"} {
		if err := i.root.Mkdir(dir, 0o700); err != nil {
			return nil, errors.Join(err, i.root.RemoveAll(s.dir))
		}
	}
	return s, nil
}

// path returns a directory of the stage on this machine.
func (s *stage) path(name string) string { return s.i.path(s.dir + "/" + name) }

// placed returns where a skill is made ready, relative to the state directory.
func (s *stage) placed(name string) string { return s.dir + "/place/" + name }

// add stores a skill and makes it ready under a name. It returns the diagnostics about files of the
// source that are not installed.
//
// Errors: of [skills.Skill.Stage]; one for a skill with more files than it may have.
func (s *stage) add(
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
	tree, err := s.store(ctx, sk, index)
	if err != nil {
		return nil, nil, err
	}
	if err := s.place(ctx, name, tree); err != nil {
		return nil, nil, err
	}
	installedAt := s.i.cfg.Now().UTC().Truncate(time.Second)
	return &Version{Tree: tree.Digest, InstalledAt: installedAt, Files: lockRows(tree.Files)}, left, nil
}

// scan reads the skills of a directory of the stage as they will be served.
func (s *stage) scan(ctx context.Context, name string) (*skills.Snapshot, error) {
	root := skills.Root{Dir: s.path(name), Tier: skills.LeastTrusted()}
	return skills.Scan(ctx, []skills.Root{root},
		&skills.ScanOptions{MaxDirs: maxSourceDirs, StrictRoots: true})
}

// store stores a skill, and remembers a tree that was not there before.
func (s *stage) store(ctx context.Context, sk *skills.Skill, index *skills.Index) (*store.Tree, error) {
	if err := s.i.before("store " + sk.Path); err != nil {
		return nil, err
	}
	// abandon may remove only trees that this command adds: installed skills can use all others.
	_, err := os.Lstat(filepath.Join(s.i.cfg.Trees.Dir(), index.TreeDigest.Encoded()))
	if errors.Is(err, fs.ErrNotExist) {
		s.mu.Lock()
		s.new = append(s.new, index.TreeDigest)
		s.mu.Unlock()
	}
	return sk.Stage(ctx, s.i.cfg.Trees)
}

// place makes a stored tree ready under a name.
func (s *stage) place(ctx context.Context, name string, tree *store.Tree) error {
	if err := s.i.before("place " + name); err != nil {
		return err
	}
	if err := tree.Copy(ctx, s.i.root, s.placed(name)); err != nil {
		return fmt.Errorf("place %s: %w", name, err)
	}
	return nil
}
