package content

import "time"

// Settling is the coarsest resolution of a file system's times. A file that changed less than that before it
// was hashed may change again without a new time.
const Settling = 100 * time.Millisecond

// Mark is the part of a file's stat that changes with its content, and with the names in a directory. The
// zero value is of no file. A mark from before a boot proves nothing: a crash may have lost writes.
type Mark struct {
	Mode  uint32
	Inode uint64
	Size  int64
	Mtime int64 // in nanoseconds since 1970
	Ctime int64
}

// settled returns m, or a zero mark if it is too young to be trusted.
func settled(m Mark) Mark {
	if time.Since(time.Unix(0, m.Ctime)) > Settling {
		return m
	}
	return Mark{}
}
