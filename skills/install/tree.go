package install

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// treeKind is a tree whose files Access returns by digest. No user gives it, and no lock file has it.
type treeKind struct{ plain }

func (treeKind) check(Origin) error { return errors.New("kind: is not in a lock file") }

func (treeKind) hint(*FetchError) string {
	return "publish them again, where they are installed: `skillsd publish`"
}

// fetch reads the files of a tree by their digests.
func (treeKind) fetch(
	ctx context.Context, p *Plan, f *fetched, access Access,
) (root skills.Root, err error) {
	p.i.progress("fetching", 0, 0)
	dir, err := p.sourceDir(f, KindTree)
	if err != nil {
		return root, err
	}
	into, err := p.i.root.OpenRoot(dir)
	if err != nil {
		return root, err
	}
	defer into.Close()
	left := int64(maxArtifacts)
	at := slices.IndexFunc(access.lock.Skills,
		func(e *Entry) bool { return e.Tree.String() == f.origin.Source })
	for _, file := range access.lock.Skills[at].Files {
		data, err := access.Files(ctx, file.Digest)
		if err != nil {
			return root, &FetchError{file.Path + " of the published skills", err, KindTree}
		}
		left -= int64(len(data))
		if left < 0 {
			return root, refuse("publish it in parts", "the skill has more than %d bytes", maxArtifacts)
		}
		if err := into.MkdirAll(path.Dir(file.Path), 0o700); err != nil {
			return root, err
		}
		if err := into.WriteFile(filepath.FromSlash(file.Path), data, 0o600); err != nil {
			return root, err
		}
	}
	return f.ownRoot(p.i.path(dir))
}
