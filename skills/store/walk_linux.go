package store

import "golang.org/x/sys/unix"

// untouched reports whether every file and directory of a checked tree still is the one that was
// checked. The times of a directory change with its names, so none is listed. It opens the tree once:
// resolving every path from the store's root would cost ten times as much.
func (t *Tree) untouched() bool {
	top, err := t.store.root.Open(treeDir(t.Digest))
	if err != nil {
		return false
	}
	defer top.Close()
	info, err := top.Stat()
	if err != nil || !t.dir.same(fingerprintOf(info)) {
		return false
	}
	fd := int(top.Fd())
	// Parents come before their entries: a link that replaced one is found before it is followed.
	for _, d := range t.dirs {
		if !d.mark.unchanged(fd, d.path, unix.S_IFDIR) {
			return false
		}
	}
	for _, f := range t.files {
		if !f.mark.unchanged(fd, f.path, unix.S_IFREG) {
			return false
		}
	}
	return true
}

func (f *fingerprint) unchanged(top int, path string, kind uint32) bool {
	var st unix.Stat_t
	if !f.vouched || !f.settled || unix.Fstatat(top, path, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return st.Mode&unix.S_IFMT == kind && st.Ino == f.inode && st.Size == f.size &&
		st.Mtim.Nano() == f.mtime && st.Ctim.Nano() == f.ctime
}
