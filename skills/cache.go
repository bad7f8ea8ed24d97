package skills

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Limits of the cache file.
const (
	maxRecords   = 1 << 20
	maxCacheFile = 512 << 20 // bytes
)

// Cache keeps facts about directories, SKILL.md files and indexes across processes. A fact is valid as long
// as device, inode, size, modification time and change time of the file are the same, on the same boot. So
// untouched files are not read again. It is only a hint: bytes are verified whenever they are served. A
// random sample of its facts is read anyway, and if one differs, the whole cache is discarded. Its methods
// are safe for concurrent use.
//
// The file begins with a line with the program that wrote it, the boot ID of the kernel and the digest of the
// rest. A record for each directory and file follows: its kind, its mark, the length of its value and the
// value. A damaged file is discarded, and so are the records of another version of the program, whose rules
// may differ. A value is decoded only when it is looked up: a process that serves one of ten thousand skills
// must not decode the others.
//
// The form is binary because a start reads all of it. With a line of JSON for each record, a start with
// 10,000 skills took 6 to 8 times as long for its facts, and still twice as long if only the values were
// JSON; the file was larger by a third.
type Cache struct {
	file   string
	sample func() bool // nil: true once in sampleOne calls

	lied  atomic.Bool // a sample differed, and the scan has not restarted yet
	wrong atomic.Bool // Save must not copy records from the file
	fresh atomic.Bool // a fact was read that the file lacks

	saving sync.Mutex
	once   sync.Once
	known  atomic.Pointer[[]string] // records sorted by key; nil: empty or released
}

// keySize is the size of a record's key in bytes: the kind and the five numbers of a mark.
const keySize = 1 + 5*8

// key returns the key for the state of a file or directory.
func (m mark) key(kind recordKind) []byte {
	key := append(make([]byte, 0, keySize), byte(kind))
	for _, n := range []uint64{m.dev, m.inode, uint64(m.size), uint64(m.mtime), uint64(m.ctime)} {
		key = binary.BigEndian.AppendUint64(key, n)
	}
	return key
}

// identity returns a mark that identifies a directory regardless of its content.
func (m mark) identity() mark {
	return mark{dev: m.dev, inode: m.inode, known: m.known, settled: m.settled}
}

// NewCache returns the cache in a file. The file is read at the first lookup; a missing or damaged file is an
// empty cache.
func NewCache(file string) *Cache { return &Cache{file: file} }

// File returns the path of the cache file.
func (c *Cache) File() string { return c.file }

// Rebuild empties the cache; Save then replaces the file. It must be called before the cache is used.
func (c *Cache) Rebuild() { c.once.Do(func() { c.wrong.Store(true) }) }

// value returns the cached value for a mark.
func (c *Cache) value(kind recordKind, now mark) (string, bool) {
	if c == nil || !now.known {
		return "", false
	}
	known := c.load()
	at, ok := slices.BinarySearchFunc(known, string(now.key(kind)), func(record, key string) int {
		return strings.Compare(record[:keySize], key)
	})
	if !ok {
		return "", false
	}
	u := packedReader{Rest: known[at][keySize:]}
	return u.Text(), true
}

// empty reports whether the cache has no records, so that the stat for a mark would be wasted.
func (c *Cache) empty() bool {
	return c == nil || len(c.load()) == 0
}

// readAnew notes a fact that the cache did not have, so that Save writes the file.
func (c *Cache) readAnew() {
	if c != nil {
		c.fresh.Store(true)
	}
}

// distrust discards all records.
func (c *Cache) distrust() {
	c.known.Store(nil)
	c.wrong.Store(true)
	c.lied.Store(true)
	c.fresh.Store(true)
}

// load returns the records. It reads the file once.
func (c *Cache) load() []string {
	c.once.Do(func() {
		known := splitRecords(c.read())
		c.known.Store(&known)
	})
	if known := c.known.Load(); known != nil {
		return *known
	}
	return nil
}

// read returns the content of the file. It is empty if the file cannot be read, or if another user can write
// it: cached facts are shown to the user who allows a script.
func (c *Cache) read() []byte {
	data, _ := fsys.ReadFile(c.file, maxCacheFile, fsys.Exposed)
	return data
}

// header returns the first line of a cache with these records.
func header(records []byte) []byte {
	return fmt.Appendf(nil, "{\"program\":%q,\"boot\":%q,\"sha256\":\"%x\"}\n",
		program(), fsys.BootID(), sha256.Sum256(records))
}

// program identifies the executable of this process.
var program = sync.OnceValue(func() string {
	file, err := os.Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(file)
	if err != nil {
		return file
	}
	return fmt.Sprintf("%s %d %d", file, info.Size(), info.ModTime().UnixNano())
})

// splitRecords returns the records of a cache, or nil if it is damaged, was written by another program or
// before this boot: changes made by another system in between may have left the marks as they were.
func splitRecords(data []byte) []string {
	first, records, _ := bytes.Cut(data, []byte("\n"))
	if string(first)+"\n" != string(header(records)) {
		return nil
	}
	known, u := make([]string, 0, len(records)/256), packedReader{Rest: string(records)}
	for !u.End() {
		rest := u.Rest
		_, _ = u.Fixed(keySize), u.Text()
		if u.Bad {
			return nil
		}
		known = append(known, rest[:len(rest)-len(u.Rest)])
	}
	return known
}

// joinRecords returns the content of a cache file with these records.
func joinRecords(known []string) []byte {
	first := header(nil) // every header has this length
	data := append(first, strings.Join(known, "")...)
	copy(data, header(data[len(first):]))
	return data
}

// newRecord returns a record, or "" if value is nil or the mark cannot vouch for it.
func newRecord(kind recordKind, m mark, value []byte) string {
	if !m.known || !m.settled || value == nil {
		return ""
	}
	record := append(make(packedWriter, 0, keySize+binary.MaxVarintLen64+len(value)), m.key(kind)...)
	record.Number(len(value))
	return string(append(record, value...))
}

// Save writes the facts of a snapshot and of the indexes of its skills to the file, if they changed. For
// skills without an index, records in the file about their files are kept. If all skills have an index, the
// memory of the cache is released. It reports whether the file was written.
//
// Errors: errors of the file system.
func (c *Cache) Save(s *Snapshot) (written bool, err error) {
	// The flag is taken before the facts are gathered, so that a fact read meanwhile causes another Save.
	if !c.fresh.Swap(false) {
		return false, nil // all facts came from the file
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	if c.lied.Load() {
		s = &Snapshot{} // indexes made since may contain wrong facts too
	}
	pending := func(sk *Skill) bool { return !sk.broken && sk.indexed() == nil }
	complete := !slices.ContainsFunc(s.scanned, pending)
	known := make([]string, 2*len(s.scanned)) // two records for each skill: itself and its index
	_ = parallel(context.Background(), len(s.scanned), func() func(int) {
		return func(i int) {
			// A broken skill is read at each scan, since its error has no record.
			if sk := s.scanned[i]; !sk.broken {
				known[2*i] = newRecord(ofSkill, sk.mark, sk.pack())
				if listed := sk.state.listed.Load(); listed != nil {
					// The key ignores times and size of the directory: a changed directory still finds the
					// record, whose files are compared one by one.
					known[2*i+1] = newRecord(ofIndex, listed.dirs[0].mark.identity(),
						sk.packIndex(sk.indexed()))
				}
			}
		}
	})
	there := map[string]bool{} // index keys of the directories that still exist
	for _, listings := range s.listings {
		for i := range listings {
			known = append(known, newRecord(ofListing, listings[i].mark, listings[i].pack()))
			if !complete {
				there[string(listings[i].mark.identity().key(ofIndex))] = true
			}
		}
	}
	known = slices.DeleteFunc(known, func(record string) bool { return record == "" })
	was := c.read()
	if complete {
		c.known.Store(nil)
	} else if !c.wrong.Load() {
		// Records of directories that are gone would otherwise stay for ever.
		for _, record := range splitRecords(was) {
			if there[record[:keySize]] {
				known = append(known, record)
			}
		}
	}
	byKey := func(a, b string) int { return strings.Compare(a[:keySize], b[:keySize]) }
	// The first wins: among several names of a file, and over the old file.
	slices.SortStableFunc(known, byKey)
	known = slices.CompactFunc(known, func(a, b string) bool { return byKey(a, b) == 0 })
	data := joinRecords(known[:min(len(known), maxRecords)])
	if bytes.Equal(was, data) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return false, err
	}
	// No fsync: after a crash of the system, the boot ID differs and the file is ignored.
	return true, fsys.WriteUnsynced(c.file, data, 0o600)
}

// Release releases the memory of the scan's cache. A skill without an index is then read when its index is
// requested.
func (s *Snapshot) Release() {
	if c := s.opts.Cache; c != nil {
		c.known.Store(nil)
	}
}

// reuse adds a file to the index without opening it, if the earlier index has its bytes, and reports whether
// it did.
func (in *indexer) reuse(name string) bool {
	hint := in.hint
	at := hint.at(name)
	if at < 0 {
		return false
	}
	info, err := in.tree.stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > min(in.budget, MaxFile) {
		return false
	}
	// Close to the limit, a file may have been searched only in part, which its signals do not show.
	if info.Size() > int64(in.unseen) && in.unseen < signal.MaxFile {
		return false
	}
	now := markOf(info)
	if !hint.marks[at].vouches(now) {
		return false
	}
	if cache := in.skill.opts.Cache; in.kept && cache.sampled() &&
		differs(in.tree, name, hint.marks[at], hint.Files[at].Digest) {
		cache.distrust()
		in.hint = nil
		return false
	}
	in.take(*hint.Resource(name), info, hint.marks[at], hint.signalsOf(name))
	return true
}

// believed reports whether a random sample of the files in a cached index still have the indexed bytes.
func (s *Skill) believed(t tree, x *Index) bool {
	cache := s.opts.Cache
	for i := range x.Files {
		if cache.sampled() && differs(t, x.Files[i].Path, x.marks[i], x.Files[i].Digest) {
			cache.distrust()
			return false
		}
	}
	return true
}

// differs reports whether a file with an unchanged mark has another digest than want, so that the cache is
// wrong.
func differs(t tree, name string, known mark, want digest.Digest) bool {
	file, info, err := openFile(t, name)
	if err != nil {
		return false
	}
	defer file.Close()
	// One byte more detects a file that grows. A larger limit would make the buffer larger than most files.
	sum, err := digest.FromReader(io.LimitReader(file, min(info.Size()+1, MaxFile)))
	// If the file changed since the mark was made, the cache is outdated and not wrong.
	return err == nil && known.vouches(markOf(info)) && sum != want
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

// reuseSelf is reuse for the skill file, whose digest is known from the scan.
func (in *indexer) reuseSelf() bool {
	s := in.skill
	at := in.hint.at(s.File)
	// If the budget cuts a file, the known signals are only in its beginning.
	if at < 0 || in.hint.Files[at].Digest != s.Digest || s.Size > int64(in.unseen) {
		return false
	}
	in.sawSignals(s.Size, in.hint.signalsOf(s.File))
	return true
}

// sawSignals subtracts a text from the search budget and adds its signals.
func (in *indexer) sawSignals(size int64, found []Diagnostic) {
	in.unseen -= int(min(size, int64(in.unseen), signal.MaxFile))
	in.found = append(in.found, found...)
}

// at returns the position of a path in Files, or -1. x may be nil.
func (x *Index) at(path string) int {
	if x == nil {
		return -1
	}
	byPath := func(f store.File, path string) int { return strings.Compare(f.Path, path) }
	at, ok := slices.BinarySearchFunc(x.Files, path, byPath)
	if !ok {
		return -1
	}
	return at
}

// signalsOf returns the signals in one file.
func (x *Index) signalsOf(path string) (found []Diagnostic) {
	for _, d := range x.Diagnostics[len(x.Diagnostics)-x.signals:] {
		if d.Path == path {
			found = append(found, d)
		}
	}
	return found
}
