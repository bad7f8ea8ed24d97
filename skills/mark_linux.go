package skills

import (
	"io/fs"
	"syscall"
)

func markOf(info fs.FileInfo) mark {
	m := mark{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		m.ctime, m.inode, m.dev, m.known = stat.Ctim.Nano(), stat.Ino, uint64(stat.Dev), true
	}
	return m
}
