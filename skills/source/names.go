package source

import (
	"errors"
	"path"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills"
)

// maxDepth is how many segments a name may have.
const maxDepth = 64

// checkName returns why a file of an archive may not have a name. The name of a directory comes without
// its slash.
func checkName(name string) error {
	clean, err := skills.CleanPath(name)
	switch {
	case err != nil:
		return err
	case clean != name:
		return errors.New("path must not have empty or . segments")
	case strings.Count(name, "/") >= maxDepth:
		return errors.New("path is too deep")
	}
	return nil
}

// names finds names that would be one file, here or on another system. Its keys are in their folded form.
type names map[string]*named

// named is a path of an archive.
type named struct {
	name  string
	dir   bool
	entry bool // it is not only a directory that is implied
}

// add adds an entry and returns what is wrong with its name, "" for nothing.
func (n names) add(name string, dir bool) string {
	for entry := true; name != "."; name, dir, entry = path.Dir(name), true, false {
		// Some file system takes names of one folded form for the same.
		key := norm.NFC.String(strings.Map(foldRune, norm.NFD.String(name)))
		other := n[key]
		switch {
		case other == nil:
			n[key] = &named{name, dir, entry}
			continue
		case other.name != name:
			return "has a name that differs from another only in case or Unicode form"
		case other.dir != dir:
			return "is both a file and a directory"
		case other.entry && entry:
			return "is a duplicate"
		}
		other.entry = other.entry || entry
		return "" // the directories above it have been added
	}
	return ""
}

// foldRune returns the least of the characters that differ only in case.
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}
