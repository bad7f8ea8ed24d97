package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// lfsMark begins a Git LFS pointer file.
const lfsMark = "version https://git-lfs.github.com/spec/v1"

// The modes of objects in a tree of git.
const (
	modeFile      = "100644"
	modeGroup     = "100664" // in old repositories
	modeProgram   = "100755"
	modeLink      = "120000"
	modeSubmodule = "160000"
)

// object is an entry of the tree of a commit.
type object struct {
	mode, id, path string
	size           int64
}

// checkout writes the files of a commit to a directory.
//
// It reads objects with cat-file. `git archive` would need fewer lines here, but it applies the attributes of
// the repository to the bytes that it writes, so the result would depend on a list of attributes to override,
// which a later git may extend. A symbolic link, a large file or an odd name would also make the rules of
// archives refuse the whole source; here such a file is left out with a note.
type checkout struct {
	repo *repository
	into *os.Root
	left map[string][]string // paths that were left out, by reason
}

// checkout writes the files of a commit, or of a directory of it, into an empty directory. Submodules, links
// out of the repository and names that a skill cannot have are left out with a note. rest are the other files
// of the commit.
func (r *repository) checkout(
	ctx context.Context, commit, subdir string, into *os.Root, progress func(done, total int),
) (c *checkout, rest []object, err error) {
	c = &checkout{repo: r, into: into, left: map[string][]string{}}
	files, rest, err := c.list(ctx, commit, subdir)
	if err != nil {
		return nil, nil, err
	}
	return c, rest, c.contents(ctx, files, progress)
}

// notes describes the files that were left out.
func (c *checkout) notes() (notes []string) {
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

// The reasons why a file is left out or changed, as shown in notes.
const (
	reasonSubmodule = "submodules are left out"
	reasonName      = "files with names that a skill cannot have are left out"
	reasonLink      = "links that lead out of the repository are left out"
	reasonLarge     = "files of more than 64 MiB are left out"
	reasonLFS       = "files in Git LFS are installed as pointer files"
)

func (c *checkout) leave(reason, path string) { c.left[reason] = append(c.left[reason], path) }

// list returns the files and links of a commit below a directory, in the order of the tree, and the rest of
// its files. A repository that is too large to be listed as a whole has no rest.
func (c *checkout) list(ctx context.Context, commit, subdir string) (files, rest []object, err error) {
	out, err := c.repo.listTree(ctx, commit, subdir)
	if err != nil {
		return nil, nil, err
	}
	total, isThere := int64(0), subdir == "." && len(out) > 0
	for row := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if row == "" {
			continue
		}
		o, reason, err := parseObject(row)
		if err != nil {
			return nil, nil, err
		}
		isInside := subdir == "." || strings.HasPrefix(o.path, subdir+"/")
		isThere = isThere || isInside
		switch {
		case !isInside && reason == "" && len(rest) < maxGitFiles:
			rest = append(rest, o)
		case !isInside:
		case reason != "":
			c.leave(reason, o.path)
		default:
			files = append(files, o)
			total += o.size
		}
		if total > maxGitTotal || len(files) > maxGitFiles {
			return nil, nil, refuse("name a part of it with --subdir",
				"the repository has more than %d files or %d bytes of them", maxGitFiles, int64(maxGitTotal))
		}
	}
	if !isThere {
		return nil, nil, noDirectory(subdir, pathsIn(rest))
	}
	return files, rest, nil
}

// listTree returns the rows of ls-tree for a commit, separated by NUL: all of them, or if these are too many,
// only those below a directory.
func (r *repository) listTree(ctx context.Context, commit, subdir string) ([]byte, error) {
	// Mode, type, id and size add less than 100 bytes to the path in a row.
	const most = maxGitFiles * (maxGitPath + 100)
	// -z keeps git from quoting unusual names.
	args := []string{"ls-tree", "-r", "-l", "-z", "--full-tree", commit}
	out, err := r.output(ctx, most, args...)
	// A repository that is too large to be listed as a whole may have a part that is not.
	if _, isLong := errors.AsType[*fsys.TooLongError](err); isLong && subdir != "." {
		return r.output(ctx, most, append(args, "--", subdir+"/")...)
	}
	return out, err
}

// pathsIn yields the paths of objects.
func pathsIn(objects []object) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, o := range objects {
			if !yield(o.path) {
				return
			}
		}
	}
}

// parseObject parses a row of ls-tree. reason is why the file is left out, or "".
func parseObject(row string) (o object, reason string, err error) {
	// git allows no segment .git in a commit, but a forged one would turn the directory into a repository.
	// File systems that ignore case take .GIT for it (CVE-2014-9390).
	isGit := func(segment string) bool { return strings.EqualFold(segment, ".git") }
	facts, name, ok := strings.Cut(row, "\t")
	o.path = name
	n, _ := fmt.Sscanf(facts, "%s %s %s %d", &o.mode, new(string), &o.id, &o.size)
	clean, failed := skills.CleanPath(name)
	switch {
	case !ok || n < 3 || n == 3 && o.mode != modeSubmodule || o.size < 0:
		return o, "", errors.New("git ls-tree: cannot parse a row")
	case o.mode == modeSubmodule: // has no size
		return o, reasonSubmodule, nil
	case failed != nil || clean != name || len(name) > maxGitPath,
		slices.ContainsFunc(strings.Split(name, "/"), isGit):
		return o, reasonName, nil
	case o.size > maxGitFile, o.mode == modeLink && o.size > maxGitPath:
		return o, reasonLarge, nil
	case !slices.Contains([]string{modeFile, modeGroup, modeProgram, modeLink}, o.mode):
		return o, "", fmt.Errorf("%q has the mode %s", clip(name), clip(o.mode))
	}
	return o, "", nil
}

// content writes one answer of cat-file: a line "ID blob SIZE", the bytes and a line feed.
func (c *checkout) content(out *bufio.Reader, o object) error {
	head, err := out.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("git cat-file: %w", err)
	}
	// cat-file answers "missing" for an object that the repository lacks.
	if want := fmt.Sprintf("%s blob %d\n", o.id, o.size); string(head) != want {
		return fmt.Errorf("git cat-file: %q instead of a file", clip(strings.TrimSpace(string(head))))
	}
	if mark, _ := out.Peek(int(min(o.size, int64(len(lfsMark))))); string(mark) == lfsMark {
		c.leave(reasonLFS, o.path)
	}
	content := &io.LimitedReader{R: out, N: o.size}
	if err := c.write(o, content); err != nil {
		return fmt.Errorf("%s: %w", clip(o.path), err)
	}
	// write does not read an object that it leaves out, so the rest is skipped here.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	if end, err := out.ReadByte(); err != nil || end != '\n' || content.N != 0 {
		return errors.New("git cat-file: an object that ends too early")
	}
	return nil
}

// write writes a file or a link.
func (c *checkout) write(o object, content io.Reader) error {
	if err := c.into.MkdirAll(path.Dir(o.path), 0o700); err != nil {
		return err
	}
	if o.mode == modeLink {
		target, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return c.link(o.path, string(target))
	}
	mode := fs.FileMode(0o600)
	if o.mode == modeProgram {
		mode = 0o700
	}
	file, err := c.into.OpenFile(o.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		// Two names of the tree are one file on this file system.
		c.leave(reasonName, o.path)
		return nil
	} else if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// link writes a symbolic link unless its target leads out of the repository as text. The path that it
// resolves to is checked when the link is followed.
func (c *checkout) link(name, target string) error {
	if archive.LeadsOut(name, target) {
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
