package environment

import (
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Platform returns the platform of native modules for this machine, such as "linux-amd64-glibc".
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

// Fits reports whether this machine can run an environment. The C library is compared only for an
// environment without a root file system.
func Fits(e *Locked) bool {
	here := Platform()
	if e.Root != nil || e.Base != nil {
		return strings.HasPrefix(e.Platform, here[:strings.LastIndexByte(here, '-')+1])
	}
	return e.Platform == here
}

// Minor returns the minor version in a version of an interpreter, such as "3.11".
func Minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// Variant identifies the derived files of an environment: by the path, version and digest of the machine's
// Python, and by the version of the derivation in this program. It is empty without Python.
func (e *Locked) Variant(path, version, sum string) digest.Digest {
	if e.Python == nil {
		return ""
	}
	return digest.FromString(strings.Join([]string{"1", path, version, sum}, "\n"))
}
