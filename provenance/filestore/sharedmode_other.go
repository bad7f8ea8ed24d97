//go:build !windows

package filestore

// sharedMode keeps a file that several sessions have from being changed in place.
const sharedMode = 0o400
