package install

import (
	"context"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Kind is the kind of a source.
type Kind string

// The kinds of sources.
const (
	KindGit       Kind = "git"
	KindZip       Kind = "zip"
	KindTar       Kind = "tar" // an archive on this machine, plain or compressed by gzip
	KindDirectory Kind = "directory"
	KindURL       Kind = "url"   // an archive of a web server
	KindIndex     Kind = "index" // the skills that a web server publishes
	KindOCI       Kind = "oci"   // an artifact, an image or a collection of a registry
	KindMCP       Kind = "mcp"   // the skills that another MCP server serves
	// KindTree is a tree whose files [Access] returns by digest. It never occurs in a lock file.
	KindTree Kind = "tree"
)

// sourceKind is everything that differs between the kinds of sources. Each kind is one file of this package.
type sourceKind interface {
	// resolve returns the origin of a source that a user gave; ok is false if it is not of this kind.
	resolve(given, ref string, insecure bool) (origin Origin, ok bool, err error)
	// check returns an error if an origin in a lock file is not valid.
	check(o Origin) error
	// fetch fetches the source of f.origin and returns the root to scan. It sets the commit or the digest of
	// the origin, and f.close if it needs to be released.
	fetch(ctx context.Context, p *Plan, f *fetched, access Access) (skills.Root, error)
	// unchanged reports whether the source still publishes the installed version. It is false if only a fetch
	// can show that.
	unchanged(ctx context.Context, p *Plan, e *Entry, access Access) bool
	// single reports whether each skill of the source is fetched by itself.
	single() bool
	// hint returns the advice for an error of fetch; "" if the error of the system has its own.
	hint(e *FetchError) string
}

// kinds holds the implementations. It is set by init, since they refer to it.
var kinds map[Kind]sourceKind

func init() {
	kinds = map[Kind]sourceKind{KindGit: gitKind{}, KindZip: zipKind{}, KindTar: tarKind{},
		KindDirectory: directoryKind{},
		KindURL:       urlKind{}, KindIndex: indexKind{}, KindOCI: ociKind{}, KindMCP: mcpKind{},
		KindTree: treeKind{}}
}

// kindNames returns the kinds that a lock file may have, sorted.
func kindNames() (names []string) {
	for kind := range kinds {
		if kind != KindTree {
			names = append(names, string(kind))
		}
	}
	slices.Sort(names)
	return names
}

// resolved is the order in which a source is taken for one of a kind: a later kind accepts what looks like an
// earlier one.
var resolved = []Kind{KindOCI, KindMCP, KindIndex, KindURL, KindGit, KindDirectory}

// resolve returns the origin for a source given by the user.
func resolve(given, ref string, insecure bool) (Origin, error) {
	for _, kind := range resolved {
		origin, ok, err := kinds[kind].resolve(given, ref, insecure)
		if ok || err != nil {
			return origin, err
		}
	}
	return Origin{}, refuse("give a directory, a file that ends in "+strings.Join(archiveEnds, ", ")+
		", or a URL", "%q is neither a directory nor an archive", given)
}

// isWeb reports whether a source is a URL of a web server.
func isWeb(given string) bool {
	lower := strings.ToLower(given)
	return strings.HasPrefix(lower, "https://") || strings.HasPrefix(lower, "http://")
}

// plain is the part of a kind of source that most have in common.
type plain struct{}

func (plain) resolve(string, string, bool) (Origin, bool, error) { return Origin{}, false, nil }

func (plain) unchanged(context.Context, *Plan, *Entry, Access) bool { return false }

func (plain) single() bool { return false }

func (plain) hint(*FetchError) string {
	// A command to copy would fetch what an index, or the lock file of another machine, may have named.
	return "check that the address is right, and that its server gives the file to everybody"
}

// Hint returns the advice for the error; "" if the error of the system has its own.
func (e *FetchError) Hint() string { return kinds[e.Kind].hint(e) }
