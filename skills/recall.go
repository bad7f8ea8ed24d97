package skills

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store"
)

// recall adds a file to the index without opening it, when the skill's earlier index or the cache
// knows what its bytes are, and reports whether it did.
func (in *indexer) recall(name string) bool {
	s := in.skill
	if in.hint == nil && s.limits.cache == nil {
		return false
	}
	info, err := in.tree.stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > min(in.budget, MaxFile) || info.Size() > int64(in.unseen) && in.unseen < signal.MaxFile {
		return false
	}
	known, ok := in.lookUp(name, info)
	if !ok {
		return false
	}
	x, r := in.index, known.resource
	x.Resources = append(x.Resources, r)
	x.Files = append(x.Files, store.File{Path: r.Path, Size: r.Size, Digest: r.Digest, Executable: info.Mode()&0o111 != 0})
	x.marks = append(x.marks, known.mark)
	in.budget -= r.Size
	if r.Text {
		in.sawSignals(r.Size, known.signals)
	}
	return true
}

// recallSelf is recall for the skill file, whose digest the scan has.
func (in *indexer) recallSelf() bool {
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
	known, ok := s.limits.cache.find(s.mark, s.File, true)
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

// recalled is what is known of a file.
type recalled struct {
	resource Resource
	mark     mark
	signals  []Diagnostic
}

func (in *indexer) lookUp(name string, info fs.FileInfo) (recalled, bool) {
	now := markOf(info)
	if hint := in.hint; hint != nil {
		if at := hint.at(name); at >= 0 && hint.marks[at].vouches(now) {
			return recalled{*hint.Resource(name), hint.marks[at], hint.signalsOf(name)}, true
		}
	}
	known, ok := in.skill.limits.cache.find(now, name, false)
	if !ok {
		return recalled{}, false
	}
	now.settled = true // only such marks are stored
	return recalled{known.resource(name, info), now, known.signals(name)}, true
}

// at returns the place of a path in Files, -1 when it is not there.
func (x *Index) at(path string) int {
	at, ok := slices.BinarySearchFunc(x.Files, path, func(f store.File, path string) int { return strings.Compare(f.Path, path) })
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
