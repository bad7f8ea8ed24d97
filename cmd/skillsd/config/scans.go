package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
)

// maxCaches is how many sets of roots keep what was found in them.
const maxCaches = 8

// RegisterCache adds --no-cache to a command that scans with a cache.
func (o *RootOptions) RegisterCache(flags *pflag.FlagSet) {
	flags.BoolVar(&o.NoCache, "no-cache", false,
		"read all skills, whatever is known of them from earlier scans")
}

// Cache returns what earlier scans of the same roots found, nil if there is no state directory yet: reading
// makes none.
func (o *RootOptions) Cache(p *Process, roots []skills.Root) *skills.Cache {
	state, err := p.StateDir()
	if err != nil || !IsDir(state) {
		return nil
	}
	sum := sha256.New()
	for _, root := range roots {
		fmt.Fprintf(sum, "%s\x00", root.Dir)
	}
	cache := skills.NewCache(filepath.Join(state, "scans", fmt.Sprintf("%x", sum.Sum(nil)[:8])))
	if o.NoCache {
		cache.Rebuild()
	}
	return cache
}

// SaveScan keeps what a scan found for the next one of the same roots. Of the roots that were not scanned for
// longest, nothing is kept.
//
// Errors: errors of the file system.
func SaveScan(cache *skills.Cache, snapshot *skills.Snapshot) error {
	written, err := cache.Save(snapshot)
	if !written || err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Dir(cache.File()))
	if err != nil || len(entries) <= maxCaches {
		return err
	}
	age := func(e fs.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(age(b), age(a)) })
	for _, e := range entries[maxCaches:] {
		if err := os.Remove(filepath.Join(filepath.Dir(cache.File()), e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// scanned is a scan to be kept.
type scanned struct {
	cache    *skills.Cache
	snapshot *skills.Snapshot
}

// KeepScans keeps what the command's scans found, and the digests of what it read since. A state directory
// that cannot be written costs the next command time, and does not fail this one.
func (p *Process) KeepScans() {
	for _, s := range p.scans {
		_ = SaveScan(s.cache, s.snapshot)
	}
}
