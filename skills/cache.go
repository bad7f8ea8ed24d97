package skills

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Limits of the file of a cache.
const (
	maxRecords   = 1 << 20
	maxCacheFile = 512 << 20 // bytes
)

// Cache remembers the digests of files from one process to the next, by what changes whenever a
// file does: device, inode, size, modification and change time. It spares the reading of files that
// have not been touched; it is a hint only, bytes are verified whenever they are served. Its methods
// are safe for concurrent use.
//
// The file has a line of JSON for each file it knows, after a line with the format and the digest of
// all others, so that a damaged file is noticed. A line is decoded when its file is looked for: a
// process that serves one of ten thousand skills must not decode the others.
type Cache struct {
	file string

	mu     sync.Mutex
	loaded bool     // guarded by mu, as is known
	known  [][]byte // lines in the order of their keys
}

// record is what is known of a file, without its name.
type record struct {
	Mark    string        `json:"mark"` // see mark.key; it must come first
	Digest  digest.Digest `json:"digest"`
	Ext     string        `json:"ext,omitempty"`  // of the name, in lower case
	Self    bool          `json:"self,omitempty"` // it is a skill file
	Text    bool          `json:"text,omitempty"`
	MIME    string        `json:"mime,omitempty"`
	Script  bool          `json:"script,omitempty"`
	Shebang string        `json:"shebang,omitempty"`
	Signals []Diagnostic  `json:"signals,omitempty"` // without a path
}

// key identifies the state of a file.
func (m mark) key() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", m.dev, m.inode, m.size, m.mtime, m.ctime)
}

// NewCache returns the cache that is kept in a file. The file is read when a digest is first looked
// for; one that is missing or damaged is an empty cache.
func NewCache(file string) *Cache { return &Cache{file: file} }

// find returns what is known of a file that has a mark now. name decides what kind of file it is; self
// means that it is a skill file.
func (c *Cache) find(now mark, name string, self bool) (*record, bool) {
	if c == nil || !now.known {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	at, ok := slices.BinarySearchFunc(c.known, now.key(), func(line []byte, key string) int {
		return strings.Compare(string(keyOf(line)), key)
	})
	if !ok {
		return nil, false
	}
	line, found := c.known[at], &record{}
	// A file may have several names, and its facts depend on the name.
	if json.Unmarshal(line, found) != nil || found.Self != self || found.Ext != extension(name) ||
		found.Script != (kindOf(name) == KindScript) {
		return nil, false
	}
	return found, true
}

func extension(name string) string { return strings.ToLower(path.Ext(name)) }

// load reads the file once. c.mu is held.
func (c *Cache) load() {
	if !c.loaded {
		c.loaded, c.known = true, splitRecords(c.read())
	}
}

// read returns the bytes of the file, none if it cannot be read.
func (c *Cache) read() []byte {
	data, _ := fsys.ReadFile(c.file, maxCacheFile, nil)
	return data
}

// header returns the first line of a cache with those records.
func header(lines []byte) []byte {
	return fmt.Appendf(nil, "{\"format\":\"skillsd digests 3\",\"sha256\":\"%x\"}\n", sha256.Sum256(lines))
}

// splitRecords returns the lines of a cache; nil if it is damaged, or of another format.
func splitRecords(data []byte) [][]byte {
	first, lines, _ := bytes.Cut(data, []byte("\n"))
	if string(first)+"\n" != string(header(lines)) {
		return nil
	}
	return slices.AppendSeq([][]byte{}, bytes.Lines(lines))
}

// joinRecords returns a cache of lines.
func joinRecords(known [][]byte) []byte {
	lines := bytes.Join(known, nil)
	return append(header(lines), lines...)
}

// keyOf returns the key of a line's mark.
func keyOf(line []byte) []byte {
	rest, _ := bytes.CutPrefix(line, []byte(`{"mark":"`))
	key, _, _ := bytes.Cut(rest, []byte(`"`))
	return key
}

// Save stores the facts in the indexes of a snapshot's skills and replaces the file, unless it has just
// these already. For skills without an index, the facts in the file are kept. If all skills have an
// index, the memory of the cache is released.
//
// Errors: errors of the file system.
func (c *Cache) Save(s *Snapshot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	known := map[string][]byte{}
	complete := true
	for _, sk := range s.scanned {
		index := sk.lastIndex()
		complete = complete && (index != nil || sk.broken)
		if index != nil && index.whole {
			addRecords(known, sk.File, index)
		}
	}
	if complete {
		c.known = nil
	}
	for _, line := range c.known {
		if key := string(keyOf(line)); known[key] == nil {
			known[key] = line
		}
	}
	sorted := make([][]byte, 0, len(known))
	for _, key := range slices.Sorted(maps.Keys(known)) {
		sorted = append(sorted, known[key])
	}
	data := joinRecords(sorted[:min(len(sorted), maxRecords)])
	if bytes.Equal(c.read(), data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return err
	}
	return fsys.WriteFile(c.file, data, 0o600)
}

// addRecords adds the files of a skill whose bytes their marks vouch for. Of the names of one file the
// first counts.
func addRecords(known map[string][]byte, self string, index *Index) {
	for i := range index.Files {
		file, m := &index.Files[i], index.marks[i]
		key := m.key()
		if !m.known || !m.settled || known[key] != nil {
			continue
		}
		r := &record{Mark: key, Digest: file.Digest, Ext: extension(file.Path), Self: file.Path == self,
			Script: kindOf(file.Path) == KindScript}
		if resource := index.Resource(file.Path); resource != nil {
			r.Text, r.MIME = resource.Text, resource.MIMEType
			if info := resource.Script; info != nil {
				r.Shebang = info.Shebang
				// A first line that is cut or has more than its shebang says is looked at again.
				if !reflect.DeepEqual(script.Inspect(file.Path, r.head(), info.Executable), *info) {
					continue
				}
			}
		}
		for _, d := range index.signalsOf(file.Path) {
			d.Path = ""
			r.Signals = append(r.Signals, d)
		}
		if line, err := json.Marshal(r); err == nil {
			known[key] = append(line, '\n')
		}
	}
}

// resource returns the record as a file of a skill.
func (r *record) resource(name string, info fs.FileInfo) Resource {
	found := Resource{Path: name, Kind: kindOf(name), Size: info.Size(), Digest: r.Digest, Text: r.Text,
		MIMEType: r.MIME}
	if r.Script {
		facts := script.Inspect(name, r.head(), info.Mode()&0o111 != 0)
		found.Script = &facts
	}
	return found
}

// head returns bytes from which script.Inspect learns the same as from the start of the file.
func (r *record) head() []byte {
	if r.Shebang == "" {
		return nil
	}
	return []byte("#!" + r.Shebang + "\n")
}

func (r *record) signals(name string) []Diagnostic {
	for i := range r.Signals {
		r.Signals[i].Path = name
	}
	return r.Signals
}

// reuse adds a file to the index without opening it, if the skill's earlier index or the cache knows its
// bytes, and reports whether it did.
func (in *indexer) reuse(name string) bool {
	s := in.skill
	if in.hint == nil && s.opts.Cache == nil {
		return false
	}
	info, err := in.tree.stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > min(in.budget, MaxFile) {
		return false
	}
	// Near the limit of the search a file may be searched in part only, which its signals do not show.
	if info.Size() > int64(in.unseen) && in.unseen < signal.MaxFile {
		return false
	}
	now := markOf(info)
	if hint := in.hint; hint != nil {
		if at := hint.at(name); at >= 0 && hint.marks[at].vouches(now) {
			in.take(*hint.Resource(name), info, hint.marks[at], hint.signalsOf(name))
			return true
		}
	}
	known, ok := s.opts.Cache.find(now, name, false)
	if ok {
		now.settled = true // only such marks are stored
		in.take(known.resource(name, info), info, now, known.signals(name))
	}
	return ok
}

// take adds a file to the index.
func (in *indexer) take(r Resource, info fs.FileInfo, m mark, found []Diagnostic) {
	x := in.index
	x.Resources, x.marks = append(x.Resources, r), append(x.marks, m)
	executable := info.Mode()&0o111 != 0
	x.Files = append(x.Files, store.File{Path: r.Path, Size: r.Size, Digest: r.Digest,
		Executable: executable})
	in.budget -= r.Size
	if r.Text {
		in.sawSignals(r.Size, found)
	}
}

// reuseSelf is reuse for the skill file, whose digest the scan has.
func (in *indexer) reuseSelf() bool {
	s := in.skill
	if s.Size > int64(in.unseen) {
		return false
	}
	if hint := in.hint; hint != nil {
		if at := hint.at(s.File); at >= 0 && hint.Files[at].Digest == s.Digest {
			in.sawSignals(s.Size, hint.signalsOf(s.File))
			return true
		}
	}
	known, ok := s.opts.Cache.find(s.mark, s.File, true)
	if !ok || known.Digest != s.Digest {
		return false
	}
	in.sawSignals(s.Size, known.signals(s.File))
	return true
}

// sawSignals counts a text as searched.
func (in *indexer) sawSignals(size int64, found []Diagnostic) {
	in.unseen -= int(min(size, int64(in.unseen), signal.MaxFile))
	in.found = append(in.found, found...)
}

// at returns the place of a path in Files, or -1.
func (x *Index) at(path string) int {
	byPath := func(f store.File, path string) int { return strings.Compare(f.Path, path) }
	at, ok := slices.BinarySearchFunc(x.Files, path, byPath)
	if !ok {
		return -1
	}
	return at
}

// signalsOf returns the signals of one file.
func (x *Index) signalsOf(path string) (found []Diagnostic) {
	for _, d := range x.Diagnostics[len(x.Diagnostics)-x.signals:] {
		if d.Path == path {
			found = append(found, d)
		}
	}
	return found
}
