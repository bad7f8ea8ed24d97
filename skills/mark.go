package skills

import "time"

// mark tells whether a file was touched since it was read, without reading it.
type mark struct {
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	inode, dev   uint64
	known        bool // the system gives all of the above
	settled      bool // it had not been touched for a while when it was read
}

// settleTime is how long a file must not have been touched for its times to vouch for its bytes:
// two changes within the resolution of a clock look alike.
const settleTime = 2 * time.Second

// readAt says when the file was read.
func (m mark) readAt(now time.Time) mark {
	m.settled = now.UnixNano()-max(m.mtime, m.ctime) >= int64(settleTime)
	return m
}

// vouches reports that a file that has the mark now has the bytes it had when m was made, as far as its
// times tell: a store through a shared mapping that was written through before need not change them.
func (m mark) vouches(now mark) bool {
	now.settled = m.settled
	return m == now && m.known && m.settled
}
