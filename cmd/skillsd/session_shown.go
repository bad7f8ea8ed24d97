package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
)

// instructions is the SKILL.md of an activation without its frontmatter. What was preloaded, or had
// been shown before, was not shown by it.
func (f *shownFinder) instructions(e *provenance.Event, item replayItem) ([]replayItem, error) {
	row, err := rowOf[cfharness.Activation](e)
	if err != nil || row == nil {
		return nil, err
	}
	if !row.SentBy(e) {
		return nil, nil
	}
	item.What, item.Digest = "instructions", row.Digest.String()
	data, err := f.find(row.Digest, e.Skill, e.Path)
	if err != nil {
		item.Missing = err.Error()
		return []replayItem{item}, nil
	}
	item.Offset = frontmatter.BodyOffset(data)
	item.data = data[item.Offset:]
	item.Bytes = len(item.data)
	return []replayItem{item}, nil
}

// file is a file, or a part of one, that was read. A binary file asked for by its path was named
// and not shown.
func (f *shownFinder) file(e *provenance.Event, item replayItem) ([]replayItem, error) {
	row, err := rowOf[cfharness.ResourceRead](e)
	if err != nil || row == nil {
		return nil, err
	}
	if row.Error != nil {
		item.What, item.data = "error", []byte(row.Error.Code+": "+row.Error.Message+"\n")
		item.Bytes = len(item.data)
		return []replayItem{item}, nil
	}
	x := row.Skillsd
	if x == nil || x.Offset == nil || x.Bytes == nil || *x.Bytes == 0 {
		return nil, nil
	}
	item.What, item.Digest, item.Offset, item.Bytes = "file", row.ObservedDigest.String(), *x.Offset, int(*x.Bytes)
	data, err := f.part(e.Skill, row)
	if err == nil && int64(len(data)) != *x.Bytes {
		err = fmt.Errorf("%d bytes were shown, %d are kept", *x.Bytes, len(data))
	}
	if err != nil {
		item.Missing = err.Error()
		return []replayItem{item}, nil
	}
	item.data = data
	return []replayItem{item}, nil
}

// part is the part of a file that was shown: of its own digest, or cut from the whole.
func (f *shownFinder) part(skill string, row *cfharness.ResourceRead) ([]byte, error) {
	x := row.Skillsd
	if x.Shown != "" {
		if data, err := f.kept(x.Shown); err == nil {
			return data, nil
		}
	}
	whole, err := f.find(row.ObservedDigest, skill, row.Path)
	if err != nil {
		return nil, err
	}
	data, err := slice(whole, *x.Offset, *x.Bytes)
	if err == nil && x.Shown != "" && digest.FromBytes(data) != x.Shown {
		err = fmt.Errorf("the part shown is not %s", x.Shown)
	}
	return data, err
}

func slice(data []byte, offset, n int64) ([]byte, error) {
	if offset < 0 || n < 0 || offset > int64(len(data)) || n > int64(len(data))-offset {
		return nil, errors.New("the part shown lies outside of the file")
	}
	return data[offset : offset+n], nil
}

// streams are the released output of a run, as much of it as was shown.
func (f *shownFinder) streams(e *provenance.Event, base replayItem) ([]replayItem, error) {
	row, err := rowOf[cfharness.ScriptExecution](e)
	if err != nil || row == nil {
		return nil, err
	}
	if row.Error != nil {
		base.What, base.data = "error", []byte(row.Error.Code+": "+row.Error.Message+"\n")
		base.Bytes = len(base.data)
		return []replayItem{base}, nil
	}
	if row.Skillsd == nil {
		return nil, nil
	}
	var items []replayItem
	for _, stream := range []struct {
		name    string
		summary cfharness.StreamSummary
	}{{"stdout", row.Skillsd.Stdout}, {"stderr", row.Skillsd.Stderr}} {
		shown := stream.summary.Shown
		if shown == nil {
			continue
		}
		item := base
		item.What, item.Digest, item.Bytes = stream.name, shown.Digest.String(), int(shown.Bytes)
		if item.data, err = f.kept(shown.Digest); err != nil {
			item.Missing = err.Error()
		} else if head := shown.Head; head != nil && *head >= 0 && *head <= int64(len(item.data)) {
			gap := fmt.Sprintf("\n[%d bytes were not shown]\n", stream.summary.Bytes-shown.Bytes)
			item.data = append(append(item.data[:*head:*head], gap...), item.data[*head:]...)
		}
		items = append(items, item)
	}
	return items, nil
}

// gather opens the stored trees that the skills of the session had when they were activated.
func (f *shownFinder) gather(ctx context.Context, dir, id string) {
	seen := make(map[digest.Digest]bool)
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil || f.stored == nil {
			// Who reads the events again meets the same error.
			return
		}
		if e.Kind != provenance.KindSkillActivated {
			continue
		}
		row, err := rowOf[cfharness.Activation](e)
		if err != nil || row == nil || row.Skillsd == nil || seen[row.Skillsd.TreeDigest] {
			continue
		}
		seen[row.Skillsd.TreeDigest] = true
		if tree, err := f.stored.Tree(ctx, row.Skillsd.TreeDigest); err == nil {
			f.trees[e.Skill] = append(f.trees[e.Skill], tree)
		}
	}
}

// find returns bytes by their digest: kept by the session, or of a tree its skill had.
func (f *shownFinder) find(want digest.Digest, skill, file string) ([]byte, error) {
	data, err := f.kept(want)
	if err == nil {
		return data, nil
	}
	for _, tree := range f.trees[skill] {
		if data, treeErr := tree.ReadFile(file); treeErr == nil && digest.FromBytes(data) == want {
			return data, nil
		}
	}
	return nil, err
}

// kept returns bytes that the session keeps of what was shown.
func (f *shownFinder) kept(want digest.Digest) ([]byte, error) {
	if want.Validate() != nil || want.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("%.80q is no digest", want.String())
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := filepath.FromSlash(provenance.ShownName(want))
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not kept", want)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, err
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, skills.MaxFile+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if digest.FromBytes(data) != want {
		return nil, fmt.Errorf("what is kept as %s has another digest", want)
	}
	return data, nil
}
