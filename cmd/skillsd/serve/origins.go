package serve

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// origins looks up the sources of skills in the lock file of installed skills, which may change at any time.
// It is safe for concurrent use.
type origins struct {
	state    string // directory
	registry *skills.Registry

	mu   sync.Mutex
	info fs.FileInfo // of the lock file that was read; nil before the first read
	lock *install.Lock
}

// of returns the source of a skill with the given digest of its tree. It is nil if the source of exactly
// these files is unknown: they may have been edited since they were installed.
func (o *origins) of(ctx context.Context, sk *skills.Skill, tree digest.Digest) *cfharness.SkillOrigin {
	if sk.Root.FS != nil {
		origin := &cfharness.SkillOrigin{Kind: "archive", Source: cmp.Or(sk.Root.Origin, sk.Root.Dir)}
		if sk.Dir != "." {
			origin.Path = sk.Dir
		}
		return origin
	}
	if !install.IsRoot(o.state, sk.Root.Dir) {
		return nil
	}
	e, inside := o.current().Holding(sk.Path)
	if e == nil {
		return nil
	}
	if inside != "" {
		// The lock file has the digest of the enclosing skill.
		whole := o.registry.Snapshot().Skill(e.Name)
		if whole == nil || whole.Root.Dir != sk.Root.Dir {
			return nil
		}
		index, err := whole.Index(ctx)
		if err != nil {
			return nil
		}
		tree = index.TreeDigest
	}
	// A record must not name a source for bytes that did not come from there.
	if e.Tree != tree {
		return nil
	}
	origin := report.OriginOf(e)
	origin.Path = strings.Trim(origin.Path+"/"+inside, "/")
	return origin
}

// current returns the lock file as it is now; it is empty if it cannot be read.
func (o *origins) current() *install.Lock {
	o.mu.Lock()
	defer o.mu.Unlock()
	file := install.LockFile(o.state)
	info, err := os.Stat(file)
	if err != nil {
		return &install.Lock{}
	}
	if o.info != nil && os.SameFile(o.info, info) && o.info.ModTime().Equal(info.ModTime()) &&
		o.info.Size() == info.Size() {
		return o.lock
	}
	// A lock file that cannot be read must not leave the facts of an earlier one.
	o.info = nil
	lock, err := install.ReadLock(file)
	if err != nil {
		return &install.Lock{}
	}
	o.info, o.lock = info, lock
	return lock
}

// installed returns the installed skills as of now.
func (o *origins) installed() install.Installed { return o.current().In(o.state) }

// tampered reports whether the files of a skill on disk are not those that were installed.
func (o *origins) tampered(ctx context.Context, sk *skills.Skill) bool {
	return o.installed().Tampered(ctx, sk)
}
