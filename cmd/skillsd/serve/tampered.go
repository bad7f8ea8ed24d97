package serve

import (
	"context"
	"path/filepath"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// Words about an installed skill whose files are not those that were installed. To allow such a script would
// allow what somebody wrote into it.
const (
	TamperedText = "files of its skill were changed where it is installed, and not by an update"
	TamperedHint = "skillsd sync brings back what was installed; what changed: skillsd doctor"
)

// Tampered reports whether the files of an installed skill differ from the lock file. It is false for skills
// of other roots.
func Tampered(ctx context.Context, sk *skills.Skill, lock *install.Lock, state string) bool {
	below, err := filepath.Rel(filepath.Dir(install.RootDir(state, 0)), sk.Root.Dir)
	if err != nil || !filepath.IsLocal(below) {
		return false
	}
	e, inside := lock.Holding(sk.Path)
	if e == nil || inside != "" {
		return false
	}
	index, err := sk.Index(ctx)
	return err == nil && index.TreeDigest != e.Tree
}
