package store

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// untouched reports whether every file and directory of a verified tree is unchanged by its stat data. The
// times of a directory change with its entries, so directories are not listed.
func (t *Tree) untouched() bool {
	top, err := t.Open()
	if err != nil {
		return false
	}
	defer top.Close()
	// Resolving every path from the store's root would cost four times as much. Directories come before their
	// entries: a link that replaced one is found before it is followed.
	for _, m := range t.members {
		var now unix.Stat_t
		was, ok := m.info.Sys().(*syscall.Stat_t)
		if !ok || !m.settled || unix.Fstatat(int(top.Fd()), m.path, &now, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return false
		}
		if now.Mode != was.Mode || now.Ino != was.Ino || now.Size != was.Size ||
			now.Mtim.Nano() != was.Mtim.Nano() || now.Ctim.Nano() != was.Ctim.Nano() {
			return false
		}
	}
	return true
}
