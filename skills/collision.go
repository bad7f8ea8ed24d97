package skills

import (
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills/store"
)

// foldPath maps paths to one text that some file system takes for the same name: it ignores case, and
// whether a letter with an accent is one character or two.
func foldPath(path string) string {
	if isPlain(path) {
		return path
	}
	return norm.NFC.String(strings.ToLower(strings.ToUpper(norm.NFKD.String(path))))
}

// isPlain reports a path that folds to itself, as most do.
func isPlain(path string) bool {
	for i := range len(path) {
		if c := path[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// collisions calls report for every path that folds to the same text as one before it, with the first
// such one. The paths are unique.
func collisions(n int, path func(int) string, report func(path, first string)) {
	odd := 0
	for i := range n {
		if !isPlain(path(i)) {
			odd++
		}
	}
	if odd == 0 || n < 2 {
		return
	}
	first := make(map[string]string, n)
	for i := range n {
		at := path(i)
		f := foldPath(at)
		if other, ok := first[f]; ok {
			report(at, other)
			continue
		}
		first[f] = at
	}
}

// maxNameNotes bounds the diagnostics about the names of the files of one skill.
const maxNameNotes = 20

// fileNames returns the diagnostics about names of files that another system cannot tell apart, or
// cannot hold.
func fileNames(files []store.File) (notes []Diagnostic) {
	at := func(i int) string { return files[i].Path }
	collisions(len(files), at, func(path, first string) {
		if len(notes) < maxNameNotes {
			notes = append(notes, diagnose(Warning, CodeNameCollision, path, "%q differs only by case or by the form of a letter; some systems keep one of the two", first))
		}
	})
	for i := range files {
		if len(notes) < maxNameNotes && anyReserved(files[i].Path) {
			notes = append(notes, diagnose(Info, CodeUnportableName, files[i].Path, "Windows has no file of this name"))
		}
	}
	return notes
}

// skillNames returns the diagnostics about paths of skills that are hard to tell apart.
func skillNames(all []*Skill) (notes []Diagnostic) {
	at := func(i int) string { return all[i].Path }
	collisions(len(all), at, func(path, first string) {
		notes = append(notes, diagnose(Warning, CodeNameCollision, path, "%q differs only by case or by the form of a letter; both are served", first))
	})
	return notes
}

func anyReserved(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if reserved(name) {
			return true
		}
	}
	return false
}

// reserved reports a name that Windows gives to a device or cannot hold.
func reserved(name string) bool {
	if last := name[len(name)-1]; last == '.' || last == ' ' || strings.ContainsAny(name, `<>:"|?*`) {
		return true
	}
	stem, _, _ := strings.Cut(name, ".")
	if stem = strings.TrimRight(stem, " "); len(stem) != 3 && len(stem) != 4 {
		return false
	}
	switch stem = strings.ToUpper(stem); stem {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(stem) == 4 && (stem[:3] == "COM" || stem[:3] == "LPT") && '1' <= stem[3] && stem[3] <= '9'
}
