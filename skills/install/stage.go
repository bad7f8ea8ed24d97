package install

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
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
func (s *stage) path(name string) string {
	return filepath.Join(s.i.cfg.State, filepath.FromSlash(s.dir), name)
}

// placed returns where a skill is made ready, relative to the state directory.
func (s *stage) placed(name string) string { return s.dir + "/place/" + name }

// old returns where a skill goes that is replaced.
func (s *stage) old(name string) string { return s.dir + "/old/" + name }

// remove removes the stage.
func (s *stage) remove() error { return s.i.root.RemoveAll(s.dir) }

// abandon removes the stage and the trees that were stored for it.
func (s *stage) abandon() error {
	err := s.remove()
	for _, tree := range s.new {
		err = errors.Join(err, s.i.cfg.Trees.Remove(tree))
	}
	s.new = nil
	return err
}

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
	if err := s.i.before("place " + name); err != nil {
		return nil, nil, err
	}
	if err := s.copy(ctx, tree, s.placed(name)); err != nil {
		return nil, nil, fmt.Errorf("place %s: %w", name, err)
	}
	installedAt := s.i.cfg.Now().UTC().Truncate(time.Second)
	return &Version{Tree: tree.Digest, InstalledAt: installedAt, Files: lockRows(tree.Files)}, left, nil
}

// scan reads the skills of the stage as they will be served.
func (s *stage) scan(ctx context.Context) (*skills.Snapshot, error) { return s.scanDir(ctx, "place") }

func (s *stage) scanDir(ctx context.Context, name string) (*skills.Snapshot, error) {
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

// rescue stores a skill again from its place, if every byte there is what was installed.
func (s *stage) rescue(ctx context.Context, e *Entry) error {
	if problems, err := s.i.verifyPlaced(ctx, e); err != nil || len(problems) > 0 || !e.Enabled {
		return errors.Join(err, errNotInPlace)
	}
	place := filepath.Join(s.i.cfg.State, filepath.FromSlash(placeOf(e.Tier, e.Name)))
	snapshot, err := skills.Scan(ctx, []skills.Root{{Dir: place, Tier: e.Tier}},
		&skills.ScanOptions{StrictRoots: true})
	if err != nil {
		return err
	}
	sk, err := (&fetched{origin: Origin{Path: "."}, snapshot: snapshot}).find(".")
	if err != nil {
		return err
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	// The files may have changed between verifyPlaced and the scan.
	if index.TreeDigest != e.Tree {
		return errNotInPlace
	}
	_, err = s.store(ctx, sk, index)
	return err
}

// errNotInPlace is a skill whose place does not hold what was installed.
var errNotInPlace = errors.New("the place of the skill does not hold what was installed")

// place makes a stored tree ready under a name.
//
// Errors: store.ErrNotFound, *store.CorruptError.
func (s *stage) place(ctx context.Context, name string, want digest.Digest) error {
	tree, err := s.i.cfg.Trees.Tree(ctx, want)
	if err != nil {
		return err
	}
	if err := s.copy(ctx, tree, s.placed(name)); err != nil {
		return fmt.Errorf("place %s: %w", name, err)
	}
	return nil
}

// copy writes a stored tree into a directory of the stage, durable and with every digest checked.
func (s *stage) copy(ctx context.Context, tree *store.Tree, top string) error {
	from, err := os.OpenRoot(filepath.Join(s.i.cfg.Trees.Dir(), tree.Digest.Encoded()))
	if err != nil {
		return err
	}
	defer from.Close()
	if err := s.i.root.Mkdir(top, 0o755); err != nil {
		return err
	}
	to, err := s.i.root.OpenRoot(top)
	if err != nil {
		return err
	}
	defer to.Close()
	dirs := map[string]bool{".": true}
	for _, file := range tree.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		for dir := path.Dir(file.Path); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
		if err := to.MkdirAll(path.Dir(file.Path), 0o755); err != nil {
			return err
		}
		if err := copyFile(from, to, file); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	// After a crash, a synced file is there only if its directories were synced too.
	for dir := range dirs {
		if err := fsys.SyncDir(to, dir); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file that must have its digest. The copy is read-only, and executable if the stored
// file is.
func copyFile(from, to *os.Root, file store.File) (err error) {
	in, info, err := fsys.OpenIn(from, file.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(file.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	// One byte more than the size shows that the file has grown.
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(in, file.Size+1))
	if err != nil {
		return err
	}
	if n != file.Size || digest.NewDigest(digest.SHA256, sum) != file.Digest {
		got := digest.NewDigest(digest.SHA256, sum)
		return &store.ContentError{Path: file.Path, Want: file.Digest, Got: got}
	}
	if err := out.Chmod(0o444 | info.Mode()&0o111); err != nil {
		return err
	}
	return out.Sync()
}
