//go:build unix

package install

// canSyncDirs says that directories can be written to disk.
const canSyncDirs = true
