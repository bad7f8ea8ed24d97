package install

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Limits of the files that stand in place of links, for a source.
const (
	maxTargets     = 20_000
	maxTargetBytes = 256 << 20
)

// takeTargets replaces the links in skills that lead to files elsewhere in the repository by these files, so
// that they are checked, hashed and installed with the skill. Links within a skill stay: a scan follows them.
// The directory belongs to this plan alone, and its os.Root follows no link out of it.
func (c *checkout) takeTargets(files []object) (notes []string, err error) {
	t := targets{into: c.into, files: maxTargets, bytes: maxTargetBytes}
	inSkill := map[string]bool{} // directories with a skill file
	for _, o := range files {
		if isSkillFile(o.path) {
			inSkill[path.Dir(o.path)] = true
		}
	}
	first, taken := "", 0
	for _, o := range files {
		if o.mode != modeLink || isSkillFile(o.path) {
			continue
		}
		skill := path.Dir(o.path)
		for !inSkill[skill] && skill != "." {
			skill = path.Dir(skill)
		}
		text, err := c.into.Readlink(o.path)
		if !inSkill[skill] || err != nil {
			continue // left out before, or the scan decides
		}
		to := path.Join(path.Dir(o.path), text)
		// A directory that contains the link would contain itself.
		if skill == "." || to == "." || strings.HasPrefix(to, skill+"/") ||
			strings.HasPrefix(o.path, to+"/") {
			continue
		}
		replaced, err := t.replace(o.path)
		if err != nil {
			return nil, err
		}
		if replaced {
			taken++
			if first == "" {
				first = o.path
			}
		}
	}
	if taken > 0 {
		notes = append(notes, fmt.Sprintf("links of skills to other files of the repository are taken as "+
			"these files: %d, such as %q", taken, clip(first)))
	}
	return notes, nil
}

// targets copies the targets of links.
type targets struct {
	into  *os.Root
	files int // that may still be copied
	bytes int64
}

// replace replaces a link by the file or the directory that it leads to, and reports whether it did.
func (t *targets) replace(link string) (bool, error) {
	info, err := t.into.Stat(link)
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return false, nil // a link to nothing, or out of the repository
	}
	staged := ".target-" + rand.Text() // no file of the repository has this name
	if err := t.copy(link, staged, info, 0); err != nil {
		return false, err
	}
	if err := t.into.Remove(link); err != nil {
		return false, err
	}
	return true, t.into.Rename(staged, link)
}

// copy copies a file or a directory. Links to files in it are followed, links to directories are left out:
// they could lead back.
func (t *targets) copy(from, to string, info fs.FileInfo, depth int) error {
	const maxDepth = 32
	if !info.IsDir() {
		return t.copyFile(from, to, info)
	}
	if err := t.into.Mkdir(to, 0o700); err != nil || depth == maxDepth {
		return err
	}
	dir, err := t.into.Open(from)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		at := path.Join(from, e.Name())
		info, err := t.into.Stat(at)
		if err != nil || info.IsDir() && !e.IsDir() || !info.IsDir() && !info.Mode().IsRegular() {
			continue
		}
		if err := t.copy(at, path.Join(to, e.Name()), info, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (t *targets) copyFile(from, to string, info fs.FileInfo) error {
	t.files--
	t.bytes -= info.Size()
	if t.files < 0 || t.bytes < 0 {
		return refuse("name a part of it with --subdir",
			"the links in its skills lead to more than %d files or %d bytes",
			maxTargets, int64(maxTargetBytes))
	}
	in, err := t.into.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := t.into.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, info.Size()))
	return errors.Join(err, out.Close())
}
