package source

import (
	"archive/zip"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills"
)

// Limits of an archive, in bytes unless noted.
const (
	maxArchive   = 1 << 30
	maxDirectory = 16 << 20
	maxEntries   = 50_000
	maxRatio     = 200 // of an entry larger than freeSize
	freeSize     = 1 << 20
)

// Check reads the directory of an archive of size bytes and checks it against the rules of the package.
//
// Errors: *ArchiveError; errors of r.
func Check(r io.ReaderAt, size int64) (*zip.Reader, error) {
	var found ArchiveError
	records, err := readDirectory(r, size, &found)
	if err != nil {
		return nil, err
	}
	if err := found.failure(); err != nil {
		return nil, err
	}
	reader, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		found.add("", "cannot be read: %v", err)
		return nil, found.failure()
	}
	if len(reader.File) != len(records) {
		found.add("", "has a directory that can be read in two ways")
		return nil, found.failure()
	}
	known := make(names, len(records))
	spans := make([]span, 0, len(records))
	total := uint64(0)
	for i, f := range reader.File {
		if records[i].name != f.Name {
			found.add(f.Name, "has a name that can be read in two ways")
			continue
		}
		checkEntry(f, known, &found)
		total += min(f.UncompressedSize64, maxTotal+1)
		if total > maxTotal {
			found.add(f.Name, "is past the %d bytes that all files together may have", int64(maxTotal))
			break
		}
		at, err := checkHeader(r, f, &records[i], &found)
		if err != nil {
			return nil, err
		}
		spans = append(spans, at)
	}
	checkSpans(spans, &found)
	return reader, found.failure()
}

// checkEntry checks what the directory says about an entry.
func checkEntry(f *zip.File, known names, found *ArchiveError) {
	name, dir := strings.CutSuffix(f.Name, "/")
	if err := CheckName(name); err != nil {
		found.add(f.Name, "is refused: %v", err)
	} else if problem := known.add(name, dir); problem != "" {
		found.add(f.Name, "%s", problem)
	}
	switch mode := f.Mode().Type(); {
	case dir && mode != fs.ModeDir, !dir && mode != 0:
		found.add(f.Name, "is neither a regular file nor a directory")
	case dir && f.UncompressedSize64 > 0:
		found.add(f.Name, "is a directory with content")
	}
	if f.Flags&(flagEncrypted|flagStrong|flagMasked) != 0 {
		found.add(f.Name, "is encrypted")
	}
	if f.Flags&flagPatch != 0 || f.Method != zip.Store && f.Method != zip.Deflate {
		found.add(f.Name, "is compressed with method %d; only 0 and 8 are read", f.Method)
	}
	switch {
	case f.CRC32 == 0 && f.UncompressedSize64 > 0:
		// Package archive/zip would not check it. Content whose checksum is 0 is rare enough to refuse.
		found.add(f.Name, "has no checksum")
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		found.add(f.Name, "is stored with another size than it has")
	case f.UncompressedSize64 > freeSize && f.UncompressedSize64/maxRatio > f.CompressedSize64:
		found.add(f.Name, "grows more than %d-fold", maxRatio)
	}
}

// span is the part of an archive that an entry takes, its header included.
type span struct {
	name       string
	start, end uint64
}

// checkSpans finds entries that share bytes, so that little data could be read as much.
func checkSpans(spans []span, found *ArchiveError) {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			found.add(spans[i].name, "overlaps another entry")
		}
	}
}

// maxDepth is how many segments a name may have.
const maxDepth = 64

// CheckName returns why a file of an archive may not have a name. The name of a directory comes without
// its slash.
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
