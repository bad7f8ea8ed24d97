package archive

import (
	"errors"
	"path"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills"
)

// Limits of a name.
const (
	maxDepth = 64   // segments
	maxPath  = 2048 // bytes, in a system
	maxLink  = 1024 // bytes of a link's text
)

// CheckName returns why a file of an archive may not have a name, or nil. The name of a directory comes
// without its slash.
func CheckName(name string) error {
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

// CheckSystemName is [CheckName] for a file of a whole system, see [Rules].System.
func CheckSystemName(name string) error {
	if strings.Count(name, "/") >= maxDepth || len(name) > maxPath {
		return errors.New("path is too deep or too long")
	}
	for s := range strings.SplitSeq(name, "/") {
		if s == "" || s == "." || s == ".." || strings.ContainsRune(s, 0) {
			return errors.New("it is not a path below the top")
		}
	}
	return nil
}

// LeadsOut reports whether a link with a name leads out of the archive by its text, or might on another
// system: an absolute text does, and one with a backslash, which separates directories on Windows. It is also
// true for an empty text and for one of more than 1,024 bytes.
func LeadsOut(name, target string) bool {
	to := path.Join(path.Dir(name), target)
	return target == "" || len(target) > maxLink || path.IsAbs(target) ||
		strings.ContainsAny(target, "\\\x00") || to == ".." || strings.HasPrefix(to, "../")
}

// names finds names that would be one file, here or on another system. Its keys are in folded form.
type names map[string]*named

// named is a path of an archive.
type named struct {
	name  string
	dir   bool
	entry bool // not only a directory that is implied
}

// add adds an entry and returns why its name is refused, or "".
func (n names) add(name string, dir bool) string {
	for entry := true; name != "."; name, dir, entry = path.Dir(name), true, false {
		// Some file systems take names with one folded form for the same.
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
		return "" // the directories above it are added already
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
