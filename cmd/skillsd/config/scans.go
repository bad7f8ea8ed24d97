package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxCaches is the number of sets of roots with a saved cache.
const maxCaches = 8

// RegisterCache adds --no-cache to a command that scans with a cache.
func (o *RootOptions) RegisterCache(flags *pflag.FlagSet) {
	flags.BoolVar(&o.NoCache, "no-cache", false,
		"read all skills again, without the cache of earlier scans")
}

// Cache returns the cache of earlier scans of the same roots. It returns nil if the state directory does not
// exist; reading does not create it.
func (o *RootOptions) Cache(p *Process, roots []skills.Root) *skills.Cache {
	state, err := p.StateDir()
	if err != nil || !IsDir(state) {
		return nil
	}
	sum := sha256.New()
	for _, root := range roots {
		if root.Awaited {
			continue // commands that read skills once do not have these flags
		}
		// A NUL cannot be part of a path, so two lists of roots have the same hash only if they are equal.
		fmt.Fprintf(sum, "%s\x00", root.Dir)
	}
	cache := skills.NewCache(filepath.Join(state, "scans", fmt.Sprintf("%x", sum.Sum(nil)[:8])))
	if o.NoCache {
		cache.Rebuild()
	}
	return cache
}

// SaveScan saves the result of a scan for the next scan of the same roots. It deletes the oldest caches above
// maxCaches.
//
// Errors: errors of the file system.
func SaveScan(cache *skills.Cache, snapshot *skills.Snapshot) error {
	written, err := cache.Save(snapshot)
	if !written || err != nil {
		return err
	}
	return prune(filepath.Dir(cache.File()))
}

// prune removes the oldest files of a directory with one file per set of roots.
func prune(dir string) error {
	entries, err := os.ReadDir(dir)
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
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// LastCatalogue is the file with the names and descriptions that the last scan of these roots found with
// these options. Unlike a cache it stays valid after a restart of the system and for another version of the
// program: only names and descriptions are used from it, and only until the scan is done.
type LastCatalogue struct {
	file, key string
	roots     []skills.Root
	options   *skills.ScanOptions
}

// maxCatalogue is the maximum size of the file in bytes.
const maxCatalogue = 64 << 20

// LastCatalogue returns the catalogue of the last scan; nil if the state directory does not exist.
func (o *RootOptions) LastCatalogue(
	p *Process, roots []skills.Root, options *skills.ScanOptions,
) *LastCatalogue {
	state, err := p.StateDir()
	if err != nil || !IsDir(state) || o.NoCache {
		return nil
	}
	where, how := sha256.New(), sha256.New()
	for _, root := range roots {
		fmt.Fprintf(where, "%s\x00", root.Dir)
		fmt.Fprintf(how, "%q %q %s\n", root.Dir, root.Prefix, root.Tier)
	}
	// The key includes the options, so that a skill that was withheld since does not appear in a list.
	fmt.Fprintf(how, "%q %q %t %t %q %q %q %d %d %d %d\n", options.Platform, options.AllowRoots,
		options.StrictSkills, options.AllowShadow, options.Disabled, options.Pinned, options.NameOnly,
		options.MaxDepth, options.MaxDirs, options.MaxFiles, options.MaxTree)
	return &LastCatalogue{filepath.Join(state, "catalogues", fmt.Sprintf("%x", where.Sum(nil)[:8])),
		fmt.Sprintf("%x", how.Sum(nil)), roots, options}
}

// catalogueFile is the content of the file.
type catalogueFile struct {
	Key    string           `json:"key"` // hash of the roots and options
	Skills []skills.Outline `json:"skills"`
}

// Save replaces the file, unless it has these skills already.
//
// Errors: errors of the file system.
func (c *LastCatalogue) Save(snapshot *skills.Snapshot) error {
	data, err := json.Marshal(catalogueFile{c.key, snapshot.Outline()})
	if err != nil || len(data) > maxCatalogue {
		return err
	}
	// A server saves after each scan, and most scans find nothing new.
	if was, err := fsys.ReadFile(c.file, maxCatalogue, fsys.Exposed); err == nil && bytes.Equal(was, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return err
	}
	// A crash loses at most this cache, which is not worth a sync of the disk at each scan.
	if err := fsys.WriteUnsynced(c.file, data, 0o600); err != nil {
		return err
	}
	return prune(filepath.Dir(c.file))
}

// Read returns the content of the file as a snapshot without files. It returns nil if the file is missing, is
// of other roots or options, or can be written by another user.
func (c *LastCatalogue) Read() *skills.Snapshot {
	var was catalogueFile
	data, err := fsys.ReadFile(c.file, maxCatalogue, fsys.Exposed)
	if err != nil || json.Unmarshal(data, &was) != nil || was.Key != c.key {
		return nil
	}
	return skills.Outlined(slices.Clone(c.roots), was.Skills, c.options)
}

// scanned is a scan to be saved.
type scanned struct {
	cache    *skills.Cache
	snapshot *skills.Snapshot
}

// KeepScans saves the results of the command's scans, and the digests that it computed since. If the state
// directory cannot be written, the next command is slower, but this one does not fail.
func (p *Process) KeepScans() {
	for _, s := range p.scans {
		_ = SaveScan(s.cache, s.snapshot)
	}
}
