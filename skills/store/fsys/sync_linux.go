package fsys

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// wholes are the file systems for which syncing the whole file system is known to be as good as syncing its
// files. Others, such as most of FUSE, pass the bytes on and may lose them.
var wholes = []int64{
	unix.EXT4_SUPER_MAGIC, // also ext2 and ext3
	unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
	unix.TMPFS_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

// SyncWhole syncs the file systems of directories, and reports whether it did: it does nothing unless that is
// as good as syncing the files. It also waits for the writes of other programs.
//
// Errors: system errors.
func SyncWhole(dirs []*os.File) (done bool, err error) {
	devices := map[uint64]*os.File{}
	for _, dir := range dirs {
		var at unix.Stat_t
		var of unix.Statfs_t
		if err := unix.Fstatfs(int(dir.Fd()), &of); err != nil {
			return false, err
		}
		if !slices.Contains(wholes, int64(of.Type)) {
			return false, nil
		}
		if err := unix.Fstat(int(dir.Fd()), &at); err != nil {
			return false, err
		}
		// One call for each file system is enough.
		devices[uint64(at.Dev)] = dir
	}
	for _, dir := range devices {
		if err := unix.Syncfs(int(dir.Fd())); err != nil {
			return false, &os.PathError{Op: "syncfs", Path: dir.Name(), Err: err}
		}
	}
	return true, nil
}
