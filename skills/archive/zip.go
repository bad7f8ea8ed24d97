package archive

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Limits of an archive, in bytes unless noted.
const (
	maxArchive   = 1 << 30
	maxDirectory = 16 << 20
	maxEntries   = 50_000
	maxRatio     = 200     // of an entry or a tar archive that becomes larger than its free size
	freeSize     = 1 << 20 // of an entry of a zip archive, and of a skill in a tar archive
	maxZip       = 4 << 30 // all entries of a zip archive
)

// Zip reads the directory of a zip archive of size bytes and checks it against the rules of the package.
// Memory is bounded by the directory and, for each open file, the window of one decompressor.
//
// Errors: *Error; errors of r.
func Zip(r io.ReaderAt, size int64) (*zip.Reader, error) { return readZip(r, size, false) }

// ZipWithLinks is Zip for an archive whose files are a skill, or skills. It may have symbolic links whose
// text does not lead out of it, as a tar archive may; their texts are read too.
//
// Errors: *Error; errors of r.
func ZipWithLinks(r io.ReaderAt, size int64) (*zip.Reader, error) { return readZip(r, size, true) }

func readZip(r io.ReaderAt, size int64, links bool) (*zip.Reader, error) {
	var found Error
	records, err := readDirectory(r, size, &found)
	if err != nil {
		return nil, err
	}
	if err := found.failure(); err != nil {
		return nil, err
	}
	reader, err := zip.NewReader(r, size)
	// Names are checked below, with all problems at once; the library would stop here for the first.
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		found.add("", "cannot be read: %v", err)
		return nil, found.failure()
	}
	if len(reader.File) != len(records) {
		found.add("", "has a directory that can be read in two ways")
		return nil, found.failure()
	}
	err = checkEntries(r, reader.File, records, links, &found)
	if err != nil {
		return nil, err
	}
	if err := found.failure(); err != nil {
		return reader, err
	}
	err = checkLinks(reader.File, &found)
	if err != nil {
		return nil, err
	}
	return reader, found.failure()
}

// checkEntries checks the entries of an archive, whose directory has these records.
//
// Errors: errors of r.
func checkEntries(r io.ReaderAt, files []*zip.File, records []record, links bool, found *Error) error {
	known := make(names, len(records))
	spans := make([]span, 0, len(records))
	total := uint64(0)
	for i, f := range files {
		if records[i].name != f.Name {
			found.add(f.Name, "has a name that can be read in two ways")
			continue
		}
		checkEntry(f, known, links, found)
		// The minimum keeps the sum from overflowing.
		total += min(f.UncompressedSize64, maxZip+1)
		if total > maxZip {
			found.addLarge(f.Name, "is past the %d bytes that all files together may have", int64(maxZip))
			break
		}
		at, err := checkHeader(r, f, &records[i], found)
		if err != nil {
			return err
		}
		spans = append(spans, at)
	}
	checkSpans(spans, found)
	return nil
}

// checkLinks reads the texts of links.
//
// Errors: *Error if a text is damaged; system errors of the archive.
func checkLinks(files []*zip.File, found *Error) error {
	for _, f := range files {
		if f.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		err := Content(f, func(text io.Reader) error {
			target, err := io.ReadAll(io.LimitReader(text, maxLink+1))
			if err == nil && LeadsOut(f.Name, string(target)) {
				found.add(f.Name, "is a link that leads out of the archive")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkEntry checks the directory's record of an entry.
func checkEntry(f *zip.File, known names, links bool, found *Error) {
	name, dir := strings.CutSuffix(f.Name, "/")
	if err := CheckName(name); err != nil {
		found.add(f.Name, "is refused: %v", err)
	} else if problem := known.add(name, dir); problem != "" {
		found.add(f.Name, "%s", problem)
	}
	checkKind(f, dir, links, found)
	checkData(f, found)
}

// checkKind checks what an entry is; dir is set if its name ends in a slash.
func checkKind(f *zip.File, dir, links bool, found *Error) {
	switch mode := f.Mode().Type(); {
	case links && !dir && mode == fs.ModeSymlink && f.UncompressedSize64 <= maxLink:
	case links && !dir && mode == fs.ModeSymlink:
		found.add(f.Name, "is a link with a target of more than %d bytes", maxLink)
	case dir && mode != fs.ModeDir, !dir && mode != 0:
		found.add(f.Name, "is neither a regular file nor a directory")
	case dir && f.UncompressedSize64 > 0:
		found.add(f.Name, "is a directory with content")
	}
}

// checkData checks how the content of an entry is packed.
func checkData(f *zip.File, found *Error) {
	if f.Flags&(flagEncrypted|flagStrong|flagMasked) != 0 {
		found.add(f.Name, "is encrypted")
	}
	if f.Flags&flagPatch != 0 || f.Method != zip.Store && f.Method != zip.Deflate {
		found.add(f.Name, "is compressed with method %d; only 0 and 8 are read", f.Method)
	}
	switch {
	case f.CRC32 == 0 && f.UncompressedSize64 > 0:
		// Package archive/zip does not verify a checksum of 0. Content with that checksum is rare enough to
		// refuse.
		found.add(f.Name, "has no checksum")
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		found.add(f.Name, "is stored with another size than it has")
	case f.UncompressedSize64 > freeSize && f.UncompressedSize64/maxRatio > f.CompressedSize64:
		found.addLarge(f.Name, "grows more than %d-fold", maxRatio)
	}
}

// span is the part of an archive with an entry's header and data.
type span struct {
	name       string
	start, end uint64
}

// checkSpans finds entries that share bytes: a small archive could have much content.
func checkSpans(spans []span, found *Error) {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			found.add(spans[i].name, "overlaps another entry")
		}
	}
}

// Content calls use with the content of a file of a zip archive. The content is verified when use reads its
// end.
//
// Errors: *Error if the content is damaged; system errors of the archive; errors of use.
func Content(f *zip.File, use func(io.Reader) error) error {
	file, err := f.Open()
	if err != nil {
		return badContent(f, err)
	}
	defer file.Close()
	content := &faulty{r: file}
	err = use(content)
	if content.err != nil {
		return badContent(f, content.err)
	}
	return err
}

func badContent(f *zip.File, err error) error {
	if _, system := errors.AsType[*fs.PathError](err); system {
		return err
	}
	return &Error{Problems: []Problem{{f.Name, fmt.Sprintf("cannot be read: %v", err)}}}
}
