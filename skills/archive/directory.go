package archive

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
)

// Signatures and sizes of the parts of a zip archive, from its specification (APPNOTE.TXT 4.3).
const (
	localSignature     = 0x04034b50
	directorySignature = 0x02014b50
	endSignature       = 0x06054b50
	end64Signature     = 0x07064b50 // of the locator of the ZIP64 end

	localSize     = 30
	recordSize    = 46
	endSize       = 22
	end64Size     = 20
	maxComment    = 1<<16 - 1
	maxSize32     = 1<<32 - 1
	unicodeHeader = 0x7075 // an extra field with another name
)

var le = binary.LittleEndian

// Flags of an entry.
const (
	flagEncrypted  = 1 << 0
	flagDescriptor = 1 << 3 // sizes and checksum follow the data
	flagPatch      = 1 << 5
	flagStrong     = 1 << 6
	flagMasked     = 1 << 13

	// comparedFlags must be equal in the directory and before the data.
	comparedFlags = flagEncrypted | flagDescriptor | flagPatch | flagStrong | flagMasked
)

// record holds the fields of a directory record that archive/zip does not return.
type record struct {
	name   string
	offset uint64 // of its header
	limit  uint64 // where the directory begins
}

// readDirectory finds the directory of an archive, and the offsets of its entries. It reads at most
// maxDirectory bytes and the end record.
func readDirectory(r io.ReaderAt, size int64, found *Error) ([]record, error) {
	if size > maxArchive {
		found.addLarge("", "has more than %d bytes", maxArchive)
		return nil, nil
	}
	longest := min(size, end64Size+endSize+maxComment)
	tail, err := readAt(r, size-longest, longest)
	if err != nil {
		return nil, err
	}
	at := findEnd(tail)
	if at < 0 {
		found.add("", "has no end record")
		return nil, nil
	}
	end := tail[at:]
	count, length, offset := int(le.Uint16(end[10:])), int64(le.Uint32(end[12:])), int64(le.Uint32(end[16:]))
	start := size - int64(len(end))
	switch {
	case len(end) != endSize+int(le.Uint16(end[20:])):
		found.add("", "continues after its end")
	case at >= end64Size && le.Uint32(tail[at-end64Size:]) == end64Signature:
		found.add("", "is a ZIP64 archive")
	case le.Uint32(end[4:]) != 0 || le.Uint16(end[8:]) != le.Uint16(end[10:]):
		found.add("", "is one of several volumes")
	// Bytes before or between the parts are where another archive could hide, which other programs would
	// read.
	case offset+length != start:
		found.add("", "has bytes that belong to no part, or too few")
	case count > maxEntries:
		found.addLarge("", "has more than %d entries", maxEntries)
	case length > maxDirectory:
		found.addLarge("", "has a directory of more than %d bytes", maxDirectory)
	default:
		directory, err := readAt(r, offset, length)
		if err != nil {
			return nil, err
		}
		return splitDirectory(directory, count, uint64(offset), found), nil
	}
	return nil, nil
}

// findEnd returns the offset of the end record: the last one that fits, as in archive/zip; or a negative
// number.
func findEnd(tail []byte) int {
	for at := len(tail) - endSize; at >= 0; at-- {
		if le.Uint32(tail[at:]) == endSignature && at+endSize+int(le.Uint16(tail[at+20:])) <= len(tail) {
			return at
		}
	}
	return -1
}

// splitDirectory returns the records of a directory, which must fill it.
func splitDirectory(b []byte, count int, limit uint64, found *Error) []record {
	records := make([]record, 0, min(count, len(b)/recordSize))
	for len(b) >= recordSize && le.Uint32(b) == directorySignature {
		n, extra, comment := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
		if len(b) < recordSize+n+extra+comment {
			break
		}
		name := string(b[recordSize : recordSize+n])
		if differentName(b[recordSize+n:recordSize+n+extra], name) {
			found.add(name, "has another name in an extra field")
		}
		if le.Uint16(b[34:]) != 0 {
			found.add(name, "is in another volume")
		}
		records = append(records, record{name: name, offset: uint64(le.Uint32(b[42:])), limit: limit})
		b = b[recordSize+n+extra+comment:]
	}
	if len(b) > 0 || len(records) != count {
		found.add("", "has a directory with other than the %d records it should have", count)
	}
	return records
}

// differentName reports whether an extra field has a Unicode name (APPNOTE.TXT 4.6.9), which other programs
// would use, that differs from the name.
func differentName(extra []byte, name string) bool {
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		extra = extra[4:]
		if n > len(extra) {
			return false
		}
		if field := extra[:n]; id == unicodeHeader && n >= 5 && string(field[5:]) != name {
			return true
		}
		extra = extra[n:]
	}
	return false
}

// checkHeader compares the header before a file's data with the directory, and returns the span of both.
func checkHeader(r io.ReaderAt, f *zip.File, rec *record, found *Error) (span, error) {
	at := span{name: f.Name, start: rec.offset, end: rec.offset + localSize}
	if at.end > rec.limit {
		found.add(f.Name, "lies outside of the archive")
		return at, nil
	}
	header, err := readAt(r, int64(rec.offset), localSize)
	if err != nil {
		return at, err
	}
	if le.Uint32(header) != localSignature {
		found.add(f.Name, "has no header before its data")
		return at, nil
	}
	length := int64(le.Uint16(header[26:])) + int64(le.Uint16(header[28:]))
	at.end += uint64(length)
	// The first comparison keeps the sum from overflowing.
	if f.CompressedSize64 > maxArchive || at.end+f.CompressedSize64 > rec.limit {
		found.add(f.Name, "lies outside of the archive")
		return at, nil
	}
	rest, err := readAt(r, int64(rec.offset)+localSize, length)
	if err != nil {
		return at, err
	}
	at.end += f.CompressedSize64
	name, extra := rest[:le.Uint16(header[26:])], rest[le.Uint16(header[26:]):]
	switch flags := le.Uint16(header[6:]); {
	case !bytes.Equal(name, []byte(f.Name)), differentName(extra, f.Name):
		found.add(f.Name, "has another name before its data")
	// Programs that read a stream see only the header before the data, programs with a directory only the
	// record.
	case le.Uint16(header[8:]) != f.Method, (flags^f.Flags)&comparedFlags != 0:
		found.add(f.Name, "has another method or other flags before its data")
	// With a descriptor the sizes follow the data, and the header may have zeros.
	case flags&flagDescriptor == 0 && !sameSizes(header, f):
		found.add(f.Name, "has other sizes or another checksum before its data")
	}
	return at, nil
}

// sameSizes compares checksum and sizes; a size of 4 GiB less one byte refers to a size in an extra field.
func sameSizes(header []byte, f *zip.File) bool {
	same := func(short uint32, size uint64) bool { return short == maxSize32 || uint64(short) == size }
	return le.Uint32(header[14:]) == f.CRC32 &&
		same(le.Uint32(header[18:]), f.CompressedSize64) && same(le.Uint32(header[22:]), f.UncompressedSize64)
}

// readAt returns the n bytes at an offset.
func readAt(r io.ReaderAt, offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(io.NewSectionReader(r, offset, n), b)
	return b, err
}
