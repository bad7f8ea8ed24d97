// Package archive reads archives from strangers: how their files reach a directory or a store.
//
// It is the only reader of zip and tar archives. A skill that is downloaded, a wheel, a tarball of npm and
// the layers of an image follow the same rules; a difference is a field of [Rules] with its reason.
//
// An archive that breaks a rule is refused as a whole with an [*Error]: an archive that was forged in one
// place is trusted in none. [Zip] collects all problems of the directory, which it reads before any file. A
// tar archive has no directory, so its first problem ends the reading, and the caller removes the files that
// the archive had before it.
//
// # Rules of names
//
//   - A name is relative, UTF-8, separated by "/", without empty, "." and ".." segments, backslashes,
//     control characters and drives, and at most 64 levels deep. In a tar archive "./" may precede it.
//   - No name is a duplicate, also in another case or Unicode form, and no name is both a file and a
//     directory. Directories may be implied by the files in them.
//
// # Rules of zip archives
//
// Any two programs must read the same files in a zip archive:
//
//   - it is one plain archive: the directory of entries ends the file, except for its comment, has the
//     number of records in its header, and is neither ZIP64 nor one of several volumes;
//   - it has at most 1 GiB, its directory 16 MiB, 50,000 entries of at most 4 GiB together; no entry over
//     1 MiB grows more than 200-fold;
//   - every entry is a regular file or a directory, or with [ZipWithLinks] a symbolic link whose text does
//     not lead out: no devices, FIFOs; not encrypted; stored or deflated; with a checksum;
//   - the header before each file agrees with the directory: name, method, encryption, and, if present,
//     sizes and checksum; the data of no two entries overlap.
//
// Sizes and checksums of the files in it are checked while a file is read: a file that is longer, shorter
// or different ends in an error.
//
// # Rules of tar archives
//
//   - An archive is plain or compressed by gzip. It ends with two blocks of zeros and at most 16 MiB of
//     further zeros: another program might read entries where this one does not.
//   - Every entry is a regular file, a directory, or a symbolic link if [Rules] allows it. Hard links,
//     devices, FIFOs and sparse files are refused, except in a layer.
//   - The number of entries, the bytes of a file, the bytes of all files and the growth are limited by
//     [Rules]. The bytes of a file are compared with the limits before they are read.
//   - Of the mode only the executable bit is kept.
//
// # Layers
//
// The layers of an image are merged in memory, by name ([Image]). A whiteout removes a name of the layers
// below, an opaque whiteout everything in a directory. No name of an archive is looked up in a file system
// before the merge ends.
//
// # Imports
//
// The package is below skills/source and sandbox/environment, which both read archives, and imports from
// this module only the rule of paths in package skills.
package archive
