//go:build !linux

package watch

// maxDirs is the most directories that are watched. One costs 64 KiB on Windows, and a descriptor
// for each of its files where kqueue is used.
const maxDirs = 1_000
