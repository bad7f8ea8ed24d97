package install

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/source/web"
)

var (
	commitID = pattern.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// validRef is stricter than git, since a ref becomes an argument and part of a refspec.
	validRef = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_./@+-]*$`)
	// sshSource is the short form of an ssh URL: user@host:path.
	sshSource = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^:/-][^:]*$`)
)

// scpPort is the short form of an ssh URL with what its user meant as a port: git reads it as a directory.
var scpPort = pattern.New(`^([^/@]+@[^/:]+):([0-9]{1,5})/(.*)$`)

// SourceError is the reason why nothing is installed from a source, with a hint for the user.
type SourceError struct{ Reason, Hint string }

func (e *SourceError) Error() string { return e.Reason }

func refuse(hint, format string, args ...any) error {
	return &SourceError{Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// checkRef accepts branches, tags, full names of refs and commits; an empty ref is the default branch.
func checkRef(ref string) error {
	valid := len(ref) <= 255 && validRef().MatchString(ref) && !strings.Contains(ref, "..") &&
		!strings.Contains(ref, "@{")
	if ref != "" && !valid {
		return &SourceError{Reason: fmt.Sprintf("%q is not a name of a branch, a tag or a commit", clip(ref))}
	}
	return nil
}

// isURL reports whether a source is meant for git and cannot be a path on this machine.
func isURL(source string) bool {
	return strings.Contains(source, "://") || strings.Contains(source, "::") ||
		sshSource().MatchString(source)
}

// hintURL is the advice for a source that git may not be given.
const hintURL = "use an https:// or ssh:// URL, a zip archive or a directory"

// isOdd reports whether no address of a source has a character.
func isOdd(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '\\' }

// parseURL returns the protocol of a git source. Plain http and git can be changed by anyone on the network,
// so they are accepted only for this machine unless insecure is set.
func parseURL(source string, insecure bool) (protocol string, err error) {
	// git would parse a source that begins with a hyphen as an option.
	if strings.HasPrefix(source, "-") || len(source) > 2048 || strings.ContainsFunc(source, isOdd) {
		return "", refuse(hintURL, "%q is not a URL", clip(source))
	}
	if sshSource().MatchString(source) {
		return "ssh", nil
	}
	at, err := url.Parse(source)
	switch {
	case strings.Contains(source, "::") && !strings.Contains(source, "://["):
		return "", refuse(hintURL, "remote helpers such as ext:: are not used: %q", clip(source))
	case err != nil:
		return "", refuse(hintURL, "%q is not a URL", clip(source))
	case strings.HasPrefix(source, "file:///") && at.RawQuery == "" && at.Fragment == "":
		return "file", nil // a mirror on this machine; git reads file:/x as path /x on the host "file"
	// ssh would read a host that begins with a hyphen as an option (CVE-2017-1000117).
	case at.Host == "" || strings.HasPrefix(at.Hostname(), "-") || at.RawQuery != "" || at.Fragment != "":
		return "", refuse(hintURL, "%q names no host, or has a query or a fragment", clip(at.Redacted()))
	}
	if err := checkRemote(at, insecure); err != nil {
		return "", err
	}
	return at.Scheme, nil
}

// checkRemote returns why git may not fetch from the URL of a host, or nil.
func checkRemote(at *url.URL, insecure bool) error {
	_, secret := at.User.Password()
	isCleartext := at.Scheme == "http" || at.Scheme == "git"
	switch {
	case secret || at.User != nil && at.Scheme != "ssh":
		return refuse("leave them out: git does not prompt for them, and the lock file would store them",
			"the URL of %s holds credentials", at.Host)
	// git passes USER@HOST to ssh as one argument, which would be an option too.
	case strings.HasPrefix(at.User.Username(), "-"):
		return refuse(hintURL, "%q is not a user", clip(at.User.Username()))
	case isCleartext && !insecure && !web.IsProtected(at):
		return refuse("use https://, or give --insecure-transport if you trust the network",
			"anyone on the network can change what comes over %s://", at.Scheme)
	case !isCleartext && at.Scheme != "https" && at.Scheme != "ssh":
		return refuse(hintURL, "the protocol %s: is not used", clip(at.Scheme))
	}
	return nil
}

// baseName returns the name of a repository from its URL.
func baseName(source string) string {
	name := strings.TrimRight(source, "/")
	name = name[strings.LastIndexAny(name, "/:")+1:]
	return strings.TrimSuffix(name, ".git")
}

// errNoGit is the error for a git source if git is not installed.
var errNoGit = errors.New("git is not on PATH")

// FetchError reports a source on another machine that could not be fetched, or was rejected after the fetch.
type FetchError struct {
	Source string // a URL without credentials
	Err    error
	Kind   Kind
}

func (e *FetchError) Error() string { return "fetch " + e.Source + ": " + e.Err.Error() }

func (e *FetchError) Unwrap() error { return e.Err }
