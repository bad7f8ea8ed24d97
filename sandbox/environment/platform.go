package environment

import (
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Platform returns what native modules that are made here are for.
func Platform() string {
	libc := "glibc"
	if found, _ := filepath.Glob("/lib/ld-musl-*"); len(found) > 0 {
		libc = "musl"
	}
	if runtime.GOOS != "linux" {
		libc = "system"
	}
	return runtime.GOOS + "-" + runtime.GOARCH + "-" + libc
}

// Fits reports whether this machine can run what an environment has: its own C library matters unless the
// environment has a root file system with another.
func Fits(e *Locked) bool {
	here := Platform()
	if e.Root != nil || e.Base != nil {
		return strings.HasPrefix(e.Platform, here[:strings.LastIndexByte(here, '-')+1])
	}
	return e.Platform == here
}

// Minor returns the minor version of an interpreter, such as "3.11".
func Minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// Variant returns what the derived files of an environment are for: the Python of a machine, by its path,
// version and digest, and how this version of the program derives them. It is empty without Python.
func (e *Locked) Variant(path, version, sum string) digest.Digest {
	if e.Python == nil {
		return ""
	}
	return digest.FromString(strings.Join([]string{"1", path, version, sum}, "\n"))
}
