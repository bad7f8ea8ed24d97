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

	"github.com/skillsd/skillsd/skills/packed"
	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Limits of the file of a cache.
const (
	maxRecords   = 1 << 20
	maxCacheFile = 512 << 20 // bytes
)

// Cache remembers from one process to the next what directories list, what SKILL.md files say, and the
// indexes of skills, by what changes whenever one of them does: device, inode, size, modification and
// change time, since the kernel was started. It spares the reading of what has not been touched. It is
// a hint only: bytes are verified whenever they are served. Some of what it knows is read all the
// same, and if it says something else, all of it is discarded. Its methods are safe for concurrent use.
//
// The file has a line with the program that wrote it, the kernel's boot and the digest of the rest, and a
// record for each directory and file: its kind, its mark, the length of its value and the value. A damaged
// file is noticed, and what another version of the program found by other rules does not count. A value is
// decoded when it is looked for: a process that serves one of ten thousand skills must not decode the
// others.
type Cache struct {
	file   string
	sample func() bool // nil: one in sampleOne

	lied  atomic.Bool // a sample was another one, and the scan has not begun again
	wrong atomic.Bool // nothing of the file may be in the one that replaces it
	fresh atomic.Bool // something was read that was not known

	saving sync.Mutex
	once   sync.Once
	known  atomic.Pointer[[]string] // records in the order of their keys; nil: none, or released
}

// keySize is how many bytes of a record are its key: the kind and the five numbers of a mark.
const keySize = 1 + 5*8

// key identifies the state of a file or directory.
func (m mark) key(kind recordKind) []byte {
	key := append(make([]byte, 0, keySize), byte(kind))
	for _, n := range []uint64{m.dev, m.inode, uint64(m.size), uint64(m.mtime), uint64(m.ctime)} {
		key = binary.BigEndian.AppendUint64(key, n)
	}
	return key
}

// place returns a mark by which a directory is found whatever is in it now.
func (m mark) place() mark {
	return mark{dev: m.dev, inode: m.inode, known: m.known, settled: m.settled}
}

// NewCache returns the cache that is kept in a file. The file is read when something is first looked
// for; one that is missing or damaged is an empty cache.
func NewCache(file string) *Cache { return &Cache{file: file} }

// File returns where the cache is kept.
func (c *Cache) File() string { return c.file }

// Rebuild makes the cache an empty one, which Save writes in the place of the file. It must be called
// before the cache is used.
func (c *Cache) Rebuild() { c.once.Do(func() { c.wrong.Store(true) }) }

// value returns what is known of something that has a mark now.
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
	u := packed.Reader{Rest: known[at][keySize:]}
	return u.Text(), true
}

// empty reports whether nothing is known, so that no mark is worth its system call.
func (c *Cache) empty() bool {
	return c == nil || len(c.load()) == 0
}

// readAnew notes that something was read that was not known.
func (c *Cache) readAnew() {
	if c != nil {
		c.fresh.Store(true)
	}
}

// distrust discards all that is known.
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

// read returns the bytes of the file, none if it cannot be read, or somebody else can write it: what it says
// is shown to whoever allows a script.
func (c *Cache) read() []byte {
	data, _ := fsys.ReadFile(c.file, maxCacheFile, fsys.Exposed)
	return data
}

// header returns the first line of a cache with those records.
func header(records []byte) []byte {
	return fmt.Appendf(nil, "{\"program\":%q,\"boot\":%q,\"sha256\":\"%x\"}\n",
		program(), fsys.BootID(), sha256.Sum256(records))
}

// program identifies the file of this program.
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

// splitRecords returns the records of a cache; nil if it is damaged, of another program, or from before the
// kernel was started: what other systems did to the disk since need not have left marks.
func splitRecords(data []byte) []string {
	first, records, _ := bytes.Cut(data, []byte("\n"))
	if string(first)+"\n" != string(header(records)) {
		return nil
	}
	known, u := make([]string, 0, len(records)/256), packed.Reader{Rest: string(records)}
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

// joinRecords returns a cache of records.
func joinRecords(known []string) []byte {
	first := header(nil) // as long as that of any records
	data := append(first, strings.Join(known, "")...)
	copy(data, header(data[len(first):]))
	return data
}

// newRecord returns a record; an empty text if the mark will not vouch for the value, or there is none.
func newRecord(kind recordKind, m mark, value []byte) string {
	if !m.known || !m.settled || value == nil {
		return ""
	}
	record := append(make(packed.Writer, 0, keySize+binary.MaxVarintLen64+len(value)), m.key(kind)...)
	record.Number(len(value))
	return string(append(record, value...))
}

// Save stores the facts of a snapshot, and of its skills' indexes, and replaces the file, unless it has just
// these already. For skills without an index, what the file knows of their files is kept. If all skills
// have an index, the memory of the cache is released. It reports whether the file was written.
//
// Errors: errors of the file system.
func (c *Cache) Save(s *Snapshot) (written bool, err error) {
	if !c.fresh.Swap(false) {
		return false, nil // all of it came from the file
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	if c.lied.Load() {
		s = &Snapshot{} // what was indexed since may be as wrong as what was found out
	}
	pending := func(sk *Skill) bool { return !sk.broken && sk.indexed() == nil }
	complete := !slices.ContainsFunc(s.scanned, pending)
	known := make([]string, 2*len(s.scanned)) // of each skill its own record, and that of its index
	_ = parallel(context.Background(), len(s.scanned), func() func(int) {
		return func(i int) {
			if sk := s.scanned[i]; !sk.broken {
				known[2*i] = newRecord(ofSkill, sk.mark, sk.pack())
				if listed := sk.state.listed.Load(); listed != nil {
					known[2*i+1] = newRecord(ofIndex, listed.dirs[0].mark.place(), sk.packIndex(sk.indexed()))
				}
			}
		}
	})
	there := map[string]bool{} // keys of the indexes of directories that are still there
	for _, listings := range s.listings {
		for i := range listings {
			known = append(known, newRecord(ofListing, listings[i].mark, listings[i].pack()))
			if !complete {
				there[string(listings[i].mark.place().key(ofIndex))] = true
			}
		}
	}
	known = slices.DeleteFunc(known, func(record string) bool { return record == "" })
	was := c.read()
	if complete {
		c.known.Store(nil)
	} else if !c.wrong.Load() {
		for _, record := range splitRecords(was) {
			if there[record[:keySize]] {
				known = append(known, record)
			}
		}
	}
	byKey := func(a, b string) int { return strings.Compare(a[:keySize], b[:keySize]) }
	slices.SortStableFunc(known, byKey) // the first counts: of a file with several names, and before what was
	known = slices.CompactFunc(known, func(a, b string) bool { return byKey(a, b) == 0 })
	data := joinRecords(known[:min(len(known), maxRecords)])
	if bytes.Equal(was, data) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return false, err
	}
	// After a crash of the system it is not believed, whatever it has.
	return true, fsys.WriteUnsynced(c.file, data, 0o600)
}

// Release releases the memory of the cache of the scan: a skill that has no index yet is read when one is
// asked for.
func (s *Snapshot) Release() {
	if c := s.opts.Cache; c != nil {
		c.known.Store(nil)
	}
}

// reuse adds a file to the index without opening it, if the skill's earlier index knows its bytes, and
// reports whether it did.
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
	// Near the limit of the search a file may be searched in part only, which its signals do not show.
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

// believed reports whether a sample of the files of an index that is kept have the bytes that it says.
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

// differs reports whether a file that has a mark has other bytes than a cache says.
func differs(t tree, name string, known mark, want digest.Digest) bool {
	file, info, err := openFile(t, name)
	if err != nil {
		return false
	}
	defer file.Close()
	// A byte more shows that a file grows. With a larger limit the buffer is larger than most files.
	sum, err := digest.FromReader(io.LimitReader(file, min(info.Size()+1, MaxFile)))
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

// reuseSelf is reuse for the skill file, whose digest the scan has.
func (in *indexer) reuseSelf() bool {
	s := in.skill
	at := in.hint.at(s.File)
	if at < 0 || in.hint.Files[at].Digest != s.Digest || s.Size > int64(in.unseen) {
		return false
	}
	in.sawSignals(s.Size, in.hint.signalsOf(s.File))
	return true
}

// sawSignals counts a text as searched.
func (in *indexer) sawSignals(size int64, found []Diagnostic) {
	in.unseen -= int(min(size, int64(in.unseen), signal.MaxFile))
	in.found = append(in.found, found...)
}

// at returns the place of a path in Files, or -1; of no index too.
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

// signalsOf returns the signals of one file.
func (x *Index) signalsOf(path string) (found []Diagnostic) {
	for _, d := range x.Diagnostics[len(x.Diagnostics)-x.signals:] {
		if d.Path == path {
			found = append(found, d)
		}
	}
	return found
}
