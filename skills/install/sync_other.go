//go:build !unix

package install

// canSyncDirs says that directories cannot be written to disk here.
const canSyncDirs = false
