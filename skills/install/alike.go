package install

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// Limits of a likeness, so that a hostile source costs seconds: of the parts of all its skills, and of the
// skills that the parts of all vanished ones lead to.
const (
	maxParts = 4_000_000
	maxSteps = 4_000_000_000
)

// errTooMuch reports that a likeness is at its limits.
var errTooMuch = errors.New("too much to compare")

// likeness finds the skill that has most bytes in common with another one: in equal files, whatever their
// names are, and in equal lines of the two SKILL.md, in any order. The share of two skills is what they have
// in common of the larger one, from 0 to 1.
//
// A skill is a set of parts: its other files by their digests, and its lines, where the second of two equal
// lines is another part. The parts that the same skills have are one class. So skills that are made from one
// template cost one step for each pair of them, however long the template is.
type likeness struct {
	seed  maphash.Seed // nothing in a source can be made to have the hash of another part
	sizes []int64
	parts [][]uint64 // of each skill
	total int
	steps int

	class   map[uint64]int32 // of a part; nil until the first search
	holders [][]int32        // the skills with the parts of a class

	// Reused by each search.
	weights map[int32]int64
	common  []int64
}

func newLikeness() *likeness { return &likeness{seed: maphash.MakeSeed()} }

// lines calls yield with each line of a text as a part.
func (l *likeness) lines(text []byte, yield func(part uint64, size int64)) {
	type line struct {
		hash  uint64
		count int
	}
	seen := map[uint64]int{}
	for text := range bytes.Lines(text) {
		hash := maphash.Bytes(l.seed, text)
		seen[hash]++
		yield(maphash.Comparable(l.seed, line{hash, seen[hash]}), int64(len(text)))
	}
}

// file returns a file as a part.
func (l *likeness) file(sum digest.Digest) uint64 { return maphash.String(l.seed, sum.String()) }

// addSkill adds a skill of a source, by number.
func (l *likeness) addSkill(ctx context.Context, c *contents) error {
	text, err := c.skill.Read(ctx, c.skill.File, skills.MaxSkillFile)
	if err != nil {
		return err
	}
	l.add(c.files(), text.Data)
	return nil
}

func (l *likeness) add(files []store.File, text []byte) {
	var parts []uint64
	size, seen := int64(0), map[digest.Digest]bool{}
	for _, f := range files {
		size += f.Size
		// A second copy of a file is not common to both.
		if !seen[f.Digest] {
			seen[f.Digest] = true
			parts = append(parts, l.file(f.Digest))
		}
	}
	l.sizes = append(l.sizes, size)
	l.total += len(parts) + bytes.Count(text, []byte("\n")) + 1
	if l.total <= maxParts {
		l.lines(text, func(part uint64, _ int64) { parts = append(parts, part) })
	}
	l.parts = append(l.parts, parts)
}

// classify makes the classes. The skills with a part are hashed in their order, so two parts have one hash if
// the same skills have them.
func (l *likeness) classify() {
	type step struct {
		before uint64
		skill  int
	}
	hashes := map[uint64]uint64{}
	for n, parts := range l.parts {
		for _, part := range parts {
			hashes[part] = maphash.Comparable(l.seed, step{hashes[part], n})
		}
	}
	l.class, l.weights = make(map[uint64]int32, len(hashes)), map[int32]int64{}
	l.common = make([]int64, len(l.parts))
	classes := map[uint64]int32{}
	for n, parts := range l.parts {
		for _, part := range parts {
			class, ok := classes[hashes[part]]
			if !ok {
				class = int32(len(classes))
				classes[hashes[part]] = class
				l.holders = append(l.holders, nil)
			}
			l.class[part] = class
			holders := l.holders[class]
			if len(holders) == 0 || holders[len(holders)-1] != int32(n) {
				l.holders[class] = append(holders, int32(n))
			}
		}
	}
	l.parts = nil
}

// near is the skill that is most like another one.
type near struct {
	at         int     // its number
	best, next float64 // its share, and that of the next one
}

// nearest returns the skill that is most like a stored one.
//
// Errors: errTooMuch; the errors of [store.Tree.ReadFile].
func (l *likeness) nearest(was *store.Tree) (near, error) {
	if l.total > maxParts {
		return near{}, errTooMuch
	}
	if l.class == nil {
		l.classify()
	}
	clear(l.weights)
	size, seen := int64(0), map[digest.Digest]bool{}
	weigh := func(part uint64, size int64) {
		if class, ok := l.class[part]; ok {
			l.weights[class] += size
		}
	}
	for _, f := range was.Files {
		size += f.Size
		if strings.Contains(f.Path, "/") || !isSkillFile(f.Path) {
			if !seen[f.Digest] {
				weigh(l.file(f.Digest), f.Size)
			}
			seen[f.Digest] = true
			continue
		}
		text, err := was.ReadFile(f.Path)
		if err != nil {
			return near{}, err
		}
		l.lines(text, weigh)
	}
	clear(l.common)
	for class, weight := range l.weights {
		l.steps += len(l.holders[class])
		if l.steps > maxSteps {
			return near{}, errTooMuch
		}
		for _, n := range l.holders[class] {
			l.common[n] += weight
		}
	}
	var found near
	for n, common := range l.common {
		share := float64(common) / float64(max(size, l.sizes[n], 1))
		if share <= found.best {
			found.next = max(found.next, share)
			continue
		}
		found = near{n, share, found.best}
	}
	return found, nil
}
