package environment

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/pattern"
)

// LockName is the name of the lock file, next to the configuration.
const LockName = "environments.lock.json"

const (
	lockVersion = 1
	// MaxLock is the size of the largest lock file that is read, in bytes.
	MaxLock = 16 << 20
)

// Lock lists the packages of environments. It has no dates: equal environments give equal bytes.
type Lock struct {
	Version      int                `json:"version"`
	Environments map[string]*Locked `json:"environments"`
}

// Locked is one environment.
type Locked struct {
	Platform string        `json:"platform"` // of its native modules, such as "linux-amd64-glibc"
	Python   *LockedPython `json:"python,omitempty"`
	Node     *LockedNode   `json:"node,omitempty"`
	Root     *LockedRoot   `json:"root,omitempty"` // without packages
	Base     *LockedBase   `json:"base,omitempty"` // with packages
	Digest   digest.Digest `json:"digest"`         // of its manifest
	Files    int           `json:"files"`
	Bytes    int64         `json:"bytes"`
}

// LockedPython are wheels.
type LockedPython struct {
	For      string    `json:"for"`      // minor version, such as "3.11"
	Asked    []string  `json:"asked"`    // requirements, sorted
	Packages []Package `json:"packages"` // by name
}

// LockedNode are packages of npm.
type LockedNode struct {
	Asked    []string  `json:"asked"`    // NAME@RANGE, sorted
	Packages []Package `json:"packages"` // by place
}

// Package is a file that skillsd fetches and unpacks.
type Package struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Path    string            `json:"path,omitempty"` // of npm: its path in the environment
	URL     string            `json:"url"`
	SHA256  string            `json:"sha256,omitempty"` // of wheels
	SHA512  string            `json:"sha512,omitempty"` // of npm
	Size    int64             `json:"size"`             // in bytes; 0 if unknown
	Bin     map[string]string `json:"bin,omitempty"`    // of npm
	By      []string          `json:"by,omitempty"`     // packages that need it; empty if the user named it
}

// Packages returns all packages of the environment. e may be nil.
func (e *Locked) Packages() (all []Package) {
	if e != nil && e.Python != nil {
		all = append(all, e.Python.Packages...)
	}
	if e != nil && e.Node != nil {
		all = append(all, e.Node.Packages...)
	}
	return all
}

// Sum returns the algorithm and the hexadecimal digits of the digest of the package's file.
func (p *Package) Sum() (algorithm, sum string) {
	if p.SHA512 != "" {
		return "sha512", p.SHA512
	}
	return "sha256", p.SHA256
}

// LockError is the reason why a lock file is not used.
type LockError struct{ Reason string }

func (e *LockError) Error() string { return LockName + " is not usable: " + e.Reason }

// ParseLock reads a lock file. It accepts only the bytes that [Lock.Bytes] writes, so that no two readers
// read it differently.
//
// Errors: *LockError.
func ParseLock(data []byte) (*Lock, error) {
	refuse := func(format string, args ...any) (*Lock, error) {
		return nil, &LockError{fmt.Sprintf(format, args...)}
	}
	if len(data) > MaxLock {
		return refuse("it has more than %d bytes", MaxLock)
	}
	l := &Lock{}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(l); err != nil {
		return refuse("%v", err)
	}
	if l.Version != lockVersion {
		return refuse("its version is %d; this program reads %d", l.Version, lockVersion)
	}
	for name, e := range l.Environments {
		if err := e.check(name); err != nil {
			return refuse("environment %q: %v", name, err)
		}
	}
	if !bytes.Equal(l.Bytes(), data) {
		return refuse("it is not in the form that skillsd writes; `skillsd env add` and `skillsd env " +
			"update` write it")
	}
	return l, nil
}

// Bytes returns the lock file. Equal locks give equal bytes.
func (l *Lock) Bytes() []byte {
	out := Lock{Version: lockVersion, Environments: map[string]*Locked{}}
	for name, e := range l.Environments {
		sorted := *e
		if e.Python != nil {
			p := *e.Python
			p.Asked, p.Packages = sortedAsked(p.Asked), sortedPackages(p.Packages)
			sorted.Python = &p
		}
		if e.Root != nil {
			r := *e.Root
			r.Programs = slices.SortedFunc(slices.Values(r.Programs),
				func(x, y Program) int { return strings.Compare(x.Name, y.Name) })
			sorted.Root = &r
		}
		if e.Node != nil {
			n := *e.Node
			n.Asked, n.Packages = sortedAsked(n.Asked), sortedPackages(n.Packages)
			sorted.Node = &n
		}
		out.Environments[name] = &sorted
	}
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	w.SetIndent("", "  ")
	if err := w.Encode(out); err != nil {
		// Strings, numbers and maps always have a JSON form.
		panic(err)
	}
	return b.Bytes()
}

func sortedAsked(asked []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append([]string{}, asked...))))
}

func sortedPackages(packages []Package) []Package {
	sorted := append([]Package{}, packages...)
	for i := range sorted {
		sorted[i].By = slices.Clone(sorted[i].By)
		slices.Sort(sorted[i].By)
	}
	slices.SortFunc(sorted, func(x, y Package) int {
		return cmp.Or(strings.Compare(x.Path, y.Path), strings.Compare(x.Name, y.Name))
	})
	return sorted
}

var (
	environmentName = pattern.New(`^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$`)
	pythonVersion   = pattern.New(`^3\.[0-9]{1,3}$`)
	platformName    = pattern.New(`^[a-z0-9_]+(?:-[a-z0-9_.]+){1,3}$`)
	distribution    = pattern.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
	npmName         = pattern.New(`^(?:@[a-z0-9~-][a-z0-9._~-]{0,99}/)?` +
		`[A-Za-z0-9~_-][A-Za-z0-9._~-]{0,212}$`)
	packageVersion = pattern.New(`^[A-Za-z0-9][A-Za-z0-9.!+_-]{0,127}$`)
)

// ValidName reports whether a name is valid for an environment: lower-case letters, digits and single
// hyphens.
func ValidName(name string) bool { return environmentName().MatchString(name) }

func (e *Locked) check(name string) error {
	switch {
	case !ValidName(name):
		return errors.New("its name is not of small letters, digits and hyphens")
	case e == nil || e.Python == nil && e.Node == nil && e.Root == nil:
		return errors.New("it has no packages of any kind")
	case e.Root != nil && (e.Python != nil || e.Node != nil || e.Base != nil):
		return errors.New("it has a root file system, and packages besides")
	case e.Base != nil && (!ValidName(e.Base.Name) || e.Base.Digest.Validate() != nil):
		return errors.New("it does not name the root file system that it is for")
	case !platformName().MatchString(e.Platform):
		return fmt.Errorf("platform %q is not one", e.Platform)
	case e.Digest.Validate() != nil || e.Digest.Algorithm() != digest.SHA256:
		return errors.New("its digest is not of sha256")
	case e.Files < 0 || e.Bytes < 0:
		return errors.New("its size is negative")
	}
	if e.Root != nil {
		return e.Root.check()
	}
	return e.checkPackages()
}

func (e *Locked) checkPackages() error {
	wheels := 0
	if p := e.Python; p != nil {
		wheels = len(p.Packages)
		if !pythonVersion().MatchString(p.For) {
			return fmt.Errorf("%q is not a minor version of Python 3", p.For)
		}
	}
	// Names of distributions and paths below node_modules never collide.
	seen := map[string]bool{}
	for i, p := range e.Packages() {
		if err := p.check(i >= wheels, seen); err != nil {
			return err
		}
	}
	return nil
}

// check returns why a package cannot be fetched and unpacked, or nil. seen holds the packages before it.
func (p *Package) check(npm bool, seen map[string]bool) error {
	name, key, algorithm, digits := distribution(), CanonicalName(p.Name), "sha256", 64
	if npm {
		name, key, algorithm, digits = npmName(), p.Path, "sha512", 128
	}
	got, sum := p.Sum()
	_, notHex := hex.DecodeString(sum)
	switch {
	case !name.MatchString(p.Name):
		return fmt.Errorf("%q is not the name of a package", p.Name)
	case !packageVersion().MatchString(p.Version):
		return fmt.Errorf("package %s: %q is not a version", p.Name, p.Version)
	case seen[key]:
		return fmt.Errorf("package %s is a duplicate", p.Name)
	case got != algorithm || len(sum) != digits || notHex != nil || strings.ToLower(sum) != sum:
		return fmt.Errorf("package %s has no %s", p.Name, algorithm)
	case p.Size < 0 || p.Size > maxArchive:
		return fmt.Errorf("package %s has %d bytes, the most is %d", p.Name, p.Size, maxArchive)
	case p.SHA256 != "" && p.SHA512 != "", !npm && (p.Path != "" || p.Bin != nil), npm && !nodePath(p.Path):
		return fmt.Errorf("package %s is not of one kind", p.Name)
	}
	seen[key] = true
	for _, program := range slices.Sorted(maps.Keys(p.Bin)) {
		if archive.CheckName(program) != nil || archive.CheckName(path.Clean(p.Bin[program])) != nil {
			return fmt.Errorf("package %s has a program outside of it", p.Name)
		}
	}
	return p.checkURL()
}

// nodePath reports whether a path is valid for a package of npm.
func nodePath(at string) bool {
	rest, ok := strings.CutPrefix(at, "node_modules/")
	if !ok || len(at) > 1024 {
		return false
	}
	for name := range strings.SplitSeq(rest, "/node_modules/") {
		if !npmName().MatchString(name) {
			return false
		}
	}
	return true
}

// checkURL returns an error for a URL without a host, or with a secret.
func (p *Package) checkURL() error {
	u, err := url.Parse(p.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("package %s has no URL to fetch it from", p.Name)
	case u.User != nil || u.Fragment != "":
		return fmt.Errorf("package %s: its URL has a user or a fragment", p.Name)
	}
	return nil
}

// Unpack unpacks the packages of an environment into a manifest. open returns the file of a package, after
// it compared the digest with the lock.
//
// Errors: *UnsafeError; errors of open and of the blobs.
func (e *Locked) Unpack(blobs Blobs, open func(*Package) (Archive, int64, error)) (Manifest, []Note, error) {
	python := ""
	if e.Python != nil {
		python = e.Python.For
	}
	b := NewBuild(blobs, python)
	for _, p := range e.Packages() {
		file, size, err := open(&p)
		if err != nil {
			return nil, nil, err
		}
		if p.Path == "" {
			err = b.Wheel(p.Name, p.Version, file, size)
		} else {
			err = b.Tarball(NodePackage{Path: p.Path, Name: p.Name, Bin: p.Bin}, file, size)
		}
		_ = file.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	return b.Manifest(), b.Notes(), nil
}

// Archive is the file of a package.
type Archive interface {
	io.Reader
	io.ReaderAt
	io.Closer
}

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
