package skills

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// ValidateDir applies the strict rules to a directory, whose name is the last element of its absolute
// path. Only a regular file of at most MaxSkillFile bytes is read, or one in the directory that a
// link there names; anything else breaks V3, as does the end of ctx.
func ValidateDir(ctx context.Context, dir string) []frontmatter.Violation {
	broken := func(rule, message, fix string) []frontmatter.Violation {
		return []frontmatter.Violation{{Rule: rule, Message: message, Fix: fix}}
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return broken("V1", "Path does not exist: "+frontmatter.Shown(dir), "name an existing directory")
	}
	switch info, err := os.Stat(absolute); {
	case errors.Is(err, fs.ErrNotExist):
		return broken("V1", "Path does not exist: "+frontmatter.Shown(dir), "name an existing directory")
	case err != nil:
		return broken("V1", "Path cannot be read: "+frontmatter.Shown(dir), "allow this user to read it")
	case !info.IsDir():
		return broken("V2", "Not a directory: "+frontmatter.Shown(dir), "name the directory that holds SKILL.md")
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return broken("V3", "The directory cannot be read", "allow this user to read it")
	}
	t := osTree{root}
	defer t.close()
	for _, name := range []string{upperFile, lowerFile} {
		if err := ctx.Err(); err != nil {
			return broken("V3", fmt.Sprintf("%s was not read: %v", name, err), "try again")
		}
		data, _, err := readTree(t, name, MaxSkillFile, nil)
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case errors.Is(err, ErrTooLarge):
			return broken("V3", fmt.Sprintf("%s has more than %d bytes", name, MaxSkillFile), "move parts of it into files it refers to")
		case err != nil:
			return broken("V3", fmt.Sprintf("%s cannot be read: %v", name, err), "make it a regular file of this directory")
		}
		return frontmatter.Validate(filepath.Base(absolute), name, data)
	}
	return frontmatter.MissingFile()
}
