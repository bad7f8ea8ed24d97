package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// lfsMark begins a file whose content is kept elsewhere.
const lfsMark = "version https://git-lfs.github.com/spec/v1"

// checkout writes the files of a commit into an empty directory. What a tree of skills cannot have is
// left out and told: submodules, links that lead out of the repository, names no path can have.
func (r *repository) checkout(ctx context.Context, commit, subdir string, into *os.Root, progress func(done, total int)) (notes []string, err error) {
	objects, err := r.list(ctx, commit, subdir)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, &SourceError{Reason: fmt.Sprintf("the repository has no directory %q", subdir), Hint: "look at it, and name one with --subdir"}
	}
	c := &checkout{into: into, made: map[string]bool{".": true}}
	files, err := c.choose(objects)
	if err != nil {
		return nil, err
	}
	done := 0
	err = r.contents(ctx, files, func(o object, content io.Reader) error {
		done++
		progress(done, len(files))
		return c.write(o, content)
	})
	return c.told(), err
}

// checkout is a commit on its way to a directory.
type checkout struct {
	into *os.Root
	made map[string]bool
	left map[string][]string // paths that were left out, by reason
}

func (c *checkout) leave(reason, path string) {
	if c.left == nil {
		c.left = map[string][]string{}
	}
	c.left[reason] = append(c.left[reason], path)
}

// The reasons why something of a repository is not as it is there.
const (
	reasonSubmodule = "submodules are left out"
	reasonName      = "names that no path of a skill can have are left out"
	reasonLink      = "links that lead out of the repository are left out"
	reasonLarge     = "files of more than 64 MiB are left out"
	reasonLFS       = "files kept by Git LFS are installed as the pointers they are"
)

// told is one line for each reason.
func (c *checkout) told() []string {
	var notes []string
	for _, reason := range []string{reasonSubmodule, reasonName, reasonLink, reasonLarge, reasonLFS} {
		if paths := c.left[reason]; len(paths) > 0 {
			first := fmt.Sprintf("%q", clip(paths[0]))
			if len(paths) > 1 {
				first = fmt.Sprintf("%s and %d more", first, len(paths)-1)
			}
			notes = append(notes, reason+": "+first)
		}
	}
	return notes
}

// choose returns what is written, in the order of the tree.
func (c *checkout) choose(objects []object) ([]object, error) {
	files := objects[:0:0]
	total := int64(0)
	for _, o := range objects {
		clean, err := skills.CleanPath(o.path)
		switch {
		case o.mode == "160000":
			c.leave(reasonSubmodule, o.path)
		case err != nil || clean != o.path || len(o.path) > maxGitPath || hidden(o.path):
			c.leave(reasonName, o.path)
		case o.size > maxGitFile, o.mode == "120000" && o.size > maxGitPath:
			c.leave(reasonLarge, o.path)
		case o.mode != "100644" && o.mode != "100755" && o.mode != "100664" && o.mode != "120000":
			return nil, fmt.Errorf("%q has the mode %s", clip(o.path), clip(o.mode))
		default:
			if total += o.size; total > maxGitTotal {
				return nil, &SourceError{Reason: fmt.Sprintf("the files have more than %d bytes", int64(maxGitTotal)), Hint: "name a part of the repository with --subdir"}
			}
			files = append(files, o)
		}
	}
	return files, nil
}

// hidden reports a path with a segment .git, in any case, which no repository may have.
func hidden(p string) bool {
	for segment := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(segment, ".git") {
			return true
		}
	}
	return false
}

// write writes a file or a link.
func (c *checkout) write(o object, content io.Reader) error {
	if dir := path.Dir(o.path); !c.made[dir] {
		if err := c.into.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		c.made[dir] = true
	}
	if o.mode == "120000" {
		target, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return c.link(o.path, string(target))
	}
	mode := fs.FileMode(0o600)
	if o.mode == "100755" {
		mode = 0o700
	}
	file, err := c.into.OpenFile(o.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		// Two names of the tree are one file here.
		c.leave(reasonName, o.path)
		return nil
	} else if err != nil {
		return err
	}
	head := make([]byte, len(lfsMark))
	n, err := io.ReadFull(content, head)
	if err == nil && string(head) == lfsMark {
		c.leave(reasonLFS, o.path)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	if err == nil {
		_, err = io.Copy(file, io.MultiReader(bytes.NewReader(head[:n]), content))
	}
	return errors.Join(err, file.Close())
}

// link writes a link that stays inside, by its text. That it does so in fact is looked after where it
// is followed.
func (c *checkout) link(name, target string) error {
	to := path.Join(path.Dir(name), target)
	if target == "" || path.IsAbs(target) || strings.ContainsAny(target, "\\\x00") || to == ".." || strings.HasPrefix(to, "../") {
		c.leave(reasonLink, name)
		return nil
	}
	err := c.into.Symlink(target, name)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, errors.ErrUnsupported) {
		c.leave(reasonName, name)
		return nil
	}
	return err
}
