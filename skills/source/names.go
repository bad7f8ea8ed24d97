package source

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

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

// names finds names that would be one file, here or on another system.
type names struct {
	seen map[string]*named // by their folded form
}

// named is a path of an archive: an entry, or a directory that is implied.
type named struct {
	name  string
	dir   bool
	entry bool
}

// add adds an entry and returns what is wrong with its name, "" for nothing.
func (n *names) add(name string, dir bool) string {
	problem, _ := n.enter(name, dir, true)
	for problem == "" {
		at := strings.LastIndexByte(name, '/')
		if at < 0 {
			break
		}
		name = name[:at]
		var known bool
		if problem, known = n.enter(name, true, false); known {
			break
		}
	}
	return problem
}

// enter adds a path. known says that the directories above it have been added.
func (n *names) enter(name string, dir, entry bool) (problem string, known bool) {
	key := fold(name)
	other := n.seen[key]
	switch {
	case other == nil:
		n.seen[key] = &named{name, dir, entry}
		return "", false
	case other.name != name:
		return "has a name that differs from another only in case or Unicode form", true
	case other.dir != dir:
		return "is both a file and a directory", true
	case other.entry && entry:
		return "is a duplicate", true
	}
	other.entry = other.entry || entry
	return "", true
}

// fold maps names to one form if some file system takes them for the same.
func fold(name string) string {
	ascii := true
	for i := range len(name) {
		ascii = ascii && name[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(name)
	}
	return norm.NFC.String(strings.Map(foldRune, norm.NFD.String(name)))
}

// foldRune returns the least of the characters that differ only in case.
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}
