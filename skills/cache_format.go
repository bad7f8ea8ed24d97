package skills

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/script"
)

// cachedFacts are what many files have in common, beside their digests.
type cachedFacts struct {
	Ext     string             `json:"ext"` // in lower case
	Self    bool               `json:"self,omitempty"`
	Text    bool               `json:"text,omitempty"`
	MIME    string             `json:"mime,omitempty"`
	Script  bool               `json:"script,omitempty"`
	Shebang string             `json:"shebang,omitempty"`
	Signals []cachedDiagnostic `json:"signals,omitempty"`
}

// cachedDiagnostic is one of the file that has it, so without a path.
type cachedDiagnostic struct {
	Severity int    `json:"severity"`
	Code     Code   `json:"code"`
	Detail   string `json:"detail"`
	Line     int    `json:"line"`
}

// cached is a record.
type cached struct {
	cachedFacts
	mark   mark
	digest digest.Digest
}

// digests are the records of a cache, in the form in which they are stored.
type digests struct {
	facts   []cachedFacts
	records []byte // of recordSize each, in byte order
}

const (
	cacheMagic   = "skillsd digests 1\n"
	markSize     = 5 * 8 // device, inode, size, modification and change time
	recordSize   = markSize + sha256.Size + 4
	maxRecords   = 1 << 20
	maxFacts     = 16 << 20 // bytes
	maxCacheFile = len(cacheMagic) + 8 + maxFacts + maxRecords*recordSize + sha256.Size
)

var errDamaged = errors.New("the cache of digests is damaged")

// parseDigests reads what appendDigests writes. It shares data.
func parseDigests(data []byte) (digests, error) {
	rest, ok := bytes.CutPrefix(data, []byte(cacheMagic))
	if !ok || len(rest) < 8+sha256.Size {
		return digests{}, errDamaged
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return digests{}, errDamaged
	}
	return parseRecords(rest[:len(rest)-sha256.Size])
}

// parseRecords reads the number of bytes of the facts and that of records, and both.
func parseRecords(data []byte) (d digests, err error) {
	if len(data) < 8 {
		return digests{}, errDamaged
	}
	facts, records := binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])
	data = data[8:]
	if facts > maxFacts || records > maxRecords || uint64(len(data)) != uint64(facts)+uint64(records)*recordSize {
		return digests{}, errDamaged
	}
	if err := json.Unmarshal(data[:facts], &d.facts); err != nil {
		return digests{}, errDamaged
	}
	d.records = data[facts:]
	for i := range int(records) {
		r := d.record(i)
		if i > 0 && bytes.Compare(d.record(i - 1)[:markSize], r[:markSize]) >= 0 || int(binary.BigEndian.Uint32(r[recordSize-4:])) >= len(d.facts) {
			return digests{}, errDamaged
		}
	}
	return d, nil
}

func appendDigests(out []byte, d digests) ([]byte, error) {
	facts, err := json.Marshal(d.facts)
	if err != nil {
		return nil, err
	}
	if len(facts) > maxFacts {
		return nil, fmt.Errorf("%d bytes of facts are more than %d", len(facts), maxFacts)
	}
	start := len(out)
	out = append(out, cacheMagic...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(facts)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(d.records)/recordSize))
	out = append(append(out, facts...), d.records...)
	sum := sha256.Sum256(out[start:])
	return append(out, sum[:]...), nil
}

func (d *digests) record(i int) []byte { return d.records[i*recordSize : (i+1)*recordSize] }

func appendMark(out []byte, m mark) []byte {
	for _, n := range []uint64{m.dev, m.inode, uint64(m.size), uint64(m.mtime), uint64(m.ctime)} {
		out = binary.BigEndian.AppendUint64(out, n)
	}
	return out
}

// find returns the record of a mark.
func (d *digests) find(m mark) (*cached, bool) {
	var buf [markSize]byte
	key := appendMark(buf[:0], m)
	low, high := 0, len(d.records)/recordSize
	for low < high {
		middle := (low + high) / 2
		r := d.record(middle)
		switch bytes.Compare(r[:markSize], key) {
		case 0:
			m.known, m.settled = true, true
			return &cached{d.facts[binary.BigEndian.Uint32(r[recordSize-4:])], m, digest.NewDigestFromBytes(digest.SHA256, r[markSize:markSize+sha256.Size])}, true
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	return nil, false
}

// digestsBuilder collects records.
type digestsBuilder struct {
	facts   []cachedFacts
	places  map[string]uint32 // of facts, by their JSON
	size    int               // of facts, in bytes of JSON
	records [][]byte
	seen    map[mark]bool
}

func newDigestsBuilder() *digestsBuilder {
	return &digestsBuilder{facts: []cachedFacts{}, places: map[string]uint32{}, seen: map[mark]bool{}}
}

// addIndex adds the files of a skill whose bytes their marks vouch for.
func (b *digestsBuilder) addIndex(self string, index *Index) {
	for i := range index.Files {
		file, m := &index.Files[i], index.marks[i]
		if !m.known || !m.settled {
			continue
		}
		facts, ok := factsOf(index, file.Path, self)
		if !ok {
			continue
		}
		sum, err := hex.DecodeString(file.Digest.Encoded())
		if err == nil && file.Digest.Algorithm() == digest.SHA256 {
			b.add(m, sum, facts)
		}
	}
}

// factsOf returns what is to be remembered of a file; false when that would not tell all of it.
func factsOf(index *Index, path, self string) (cachedFacts, bool) {
	facts := cachedFacts{Ext: extension(path), Self: path == self, Script: kindOf(path) == KindScript}
	if r := index.Resource(path); r != nil {
		facts.Text, facts.MIME = r.Text, r.MIMEType
		if r.Script != nil {
			facts.Shebang = r.Script.Shebang
			again := script.Inspect(path, facts.head(), r.Script.Executable)
			if again.Shebang != r.Script.Shebang || again.Runtime != r.Script.Runtime || again.Problem != r.Script.Problem || !slices.Equal(again.Flags, r.Script.Flags) {
				return facts, false
			}
		}
	}
	for _, d := range index.signalsOf(path) {
		facts.Signals = append(facts.Signals, cachedDiagnostic{int(d.Severity), d.Code, d.Detail, d.Line})
	}
	return facts, true
}

// add adds a record, unless there is one of the mark or there are too many.
func (b *digestsBuilder) add(m mark, sum []byte, facts cachedFacts) {
	m.known, m.settled = true, true
	text, err := json.Marshal(facts)
	if err != nil || b.seen[m] || len(b.records) == maxRecords {
		return
	}
	at, ok := b.places[string(text)]
	if !ok {
		if b.size += len(text) + len(","); b.size > maxFacts-len("[]") {
			return
		}
		at = uint32(len(b.facts))
		b.facts, b.places[string(text)] = append(b.facts, facts), at
	}
	b.seen[m] = true
	b.records = append(b.records, binary.BigEndian.AppendUint32(append(appendMark(make([]byte, 0, recordSize), m), sum...), at))
}

// addAll adds the records of another collection.
func (b *digestsBuilder) addAll(d *digests) {
	for i := range len(d.records) / recordSize {
		r := d.record(i)
		b.add(parseMark(r), r[markSize:markSize+sha256.Size], d.facts[binary.BigEndian.Uint32(r[recordSize-4:])])
	}
}

func parseMark(r []byte) mark {
	n := func(i int) uint64 { return binary.BigEndian.Uint64(r[8*i:]) }
	return mark{dev: n(0), inode: n(1), size: int64(n(2)), mtime: int64(n(3)), ctime: int64(n(4))}
}

// digests returns what was added, in an order that does not depend on that of the additions.
func (b *digestsBuilder) digests() digests {
	d := digests{facts: make([]cachedFacts, 0, len(b.facts))}
	order := make([]uint32, len(b.facts))
	for at, text := range slices.Sorted(maps.Keys(b.places)) {
		order[b.places[text]] = uint32(at)
		d.facts = append(d.facts, b.facts[b.places[text]])
	}
	for _, r := range b.records {
		place := r[recordSize-4:]
		binary.BigEndian.PutUint32(place, order[binary.BigEndian.Uint32(place)])
	}
	slices.SortFunc(b.records, func(x, y []byte) int { return bytes.Compare(x[:markSize], y[:markSize]) })
	d.records = bytes.Join(b.records, nil)
	return d
}
