//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package fsys

import "os"

// Locks reports whether the system has locks that end with their process.
const Locks = false

// LockAlone returns false: no lock ends with its process here, so a process is never known to be alone.
func LockAlone(*os.File) bool { return false }

// ShareLock does nothing: there are no such locks here.
func ShareLock(*os.File) {}
