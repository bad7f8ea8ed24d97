package skills

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Cache remembers the digests of files from one process to the next, by what changes whenever a
// file does: device, inode, size, modification and change time. It spares the reading of files that
// have not been touched; it is a hint only, bytes are verified whenever they are served. Its methods
// are safe for concurrent use.
type Cache struct {
	file string

	mu     sync.Mutex
	loaded bool // guarded by mu, as is known
	known  digests
}

// NewCache returns the cache that is kept in a file. The file is read when a digest is first looked
// for; one that is missing or damaged is an empty cache.
func NewCache(file string) *Cache { return &Cache{file: file} }

// lookUp returns what is known of a file that has a mark now. name tells what it is taken for, self
// that it is a skill file.
func (c *Cache) lookUp(now mark, name string, self bool) (*cached, bool) {
	if c == nil || !now.known {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	found, ok := c.known.find(now)
	if !ok || found.Self != self || found.Ext != extension(name) || found.Script != (kindOf(name) == KindScript) {
		return nil, false
	}
	return found, true
}

func extension(name string) string { return strings.ToLower(path.Ext(name)) }

// load reads the file once. c.mu is held.
func (c *Cache) load() {
	if c.loaded {
		return
	}
	c.loaded = true
	if known, err := parseDigests(c.read()); err == nil {
		c.known = known
	}
}

// read returns the bytes of the file; none when it is no regular file of a fitting size.
func (c *Cache) read() []byte {
	data, err := fsys.ReadFile(c.file, int64(maxCacheFile), nil)
	if err != nil {
		return nil
	}
	return data
}

// resource returns the record as a file of a skill.
func (c *cached) resource(name string, info fs.FileInfo) Resource {
	r := Resource{Path: name, Kind: kindOf(name), Size: c.mark.size, Digest: c.digest, Text: c.Text, MIMEType: c.MIME}
	if c.Script {
		facts := script.Inspect(name, c.head(), info.Mode()&0o111 != 0)
		r.Script = &facts
	}
	return r
}

// head stands for the first bytes of a script.
func (f *cachedFacts) head() []byte {
	if f.Shebang == "" {
		return nil
	}
	return []byte("#!" + f.Shebang + "\n")
}

func (f *cachedFacts) signals(name string) (found []Diagnostic) {
	for _, d := range f.Signals {
		found = append(found, Diagnostic{Severity: Severity(d.Severity), Code: d.Code, Path: name, Detail: d.Detail, Line: d.Line})
	}
	return found
}

// Save stores what the indexes of a snapshot's skills know and replaces the file, unless it holds
// just that. Where skills have no index yet, what the file holds already is kept. It gives the
// memory of the cache back when all have one.
//
// Errors: those of the file system.
func (c *Cache) Save(s *Snapshot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	b := newDigestsBuilder()
	complete := true
	for _, sk := range s.scanned {
		index := sk.lastIndex()
		complete = complete && (index != nil || sk.broken)
		if index != nil && index.whole {
			b.addIndex(sk.File, index)
		}
	}
	if !complete {
		b.addAll(&c.known)
	}
	data, err := appendDigests(nil, b.digests())
	if err != nil {
		return err
	}
	if complete {
		c.known = digests{}
	}
	if bytes.Equal(c.read(), data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return err
	}
	return fsys.WriteFile(c.file, data, 0o600)
}
