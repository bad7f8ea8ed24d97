package serve

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// Words about an installed skill whose files are not those that were installed. To allow such a script would
// allow what somebody wrote into it.
const (
	TamperedText = "files of its skill were changed where it is installed, and not by an update"
	TamperedHint = "skillsd sync brings back what was installed; what changed: skillsd doctor"
)

// Tampered reports whether the files of an installed skill, or of a skill that lies in one, differ from the
// lock file. It is false for skills of other roots.
func Tampered(ctx context.Context, sk *skills.Skill, lock *install.Lock, state string) bool {
	below, err := filepath.Rel(filepath.Dir(install.RootDir(state, 0)), sk.Root.Dir)
	if err != nil || !filepath.IsLocal(below) {
		return false
	}
	e, inside := lock.Holding(sk.Path)
	if e == nil {
		return false
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return false
	}
	if inside == "" {
		return index.TreeDigest != e.Tree
	}
	// The lock file has the files of a nested skill with the files of the enclosing one.
	var installed []store.File
	for _, f := range e.Files {
		if name, below := strings.CutPrefix(f.Path, inside+"/"); below {
			f.Path = name
			installed = append(installed, f)
		}
	}
	return !slices.EqualFunc(index.Files, installed, func(now, then store.File) bool {
		return now.Path == then.Path && now.Digest == then.Digest
	})
}
