//go:build !linux

package skills

import "io/fs"

// markOf leaves out what it would take to vouch for bytes, so that every check reads them.
func markOf(info fs.FileInfo) mark { return mark{size: info.Size(), mtime: info.ModTime().UnixNano()} }
