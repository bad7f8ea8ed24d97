package install

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

var (
	commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// validRef is stricter than git: a ref is an argument, and part of a refspec.
	validRef  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./@+-]*$`)
	sshSource = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*)@([A-Za-z0-9][A-Za-z0-9.-]*):([^:/-][^:]*)$`)
)

// SourceError is a source that is not installed from, with what to do about it.
type SourceError struct{ Reason, Hint string }

func (e *SourceError) Error() string { return e.Reason }

// checkRef accepts branches, tags, full names of refs and commits; empty is the default branch.
func checkRef(ref string) error {
	if ref != "" && (len(ref) > 255 || !validRef.MatchString(ref) || strings.Contains(ref, "..") || strings.Contains(ref, "@{")) {
		return &SourceError{Reason: fmt.Sprintf("%q is no name of a branch, a tag or a commit", clip(ref))}
	}
	return nil
}

// IsURL reports whether a source is meant for git: whatever is no path of this machine.
func IsURL(source string) bool {
	return strings.Contains(source, "://") || strings.Contains(source, "::") || sshSource.MatchString(source)
}

// parseURL returns the protocol of a git source. Plain http and git, which anyone on the way can
// change, are for this machine only unless insecure is set.
//
// Errors: *SourceError.
func parseURL(source string, insecure bool) (protocol string, err error) {
	refuse := func(hint, format string, args ...any) (string, error) {
		return "", &SourceError{Reason: fmt.Sprintf(format, args...), Hint: hint}
	}
	const hint = "use an https:// or ssh:// URL, a zip archive or a directory"
	if strings.HasPrefix(source, "-") || len(source) > 2048 || strings.ContainsFunc(source, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '\\' }) {
		return refuse(hint, "%q is no URL", clip(source))
	}
	if m := sshSource.FindStringSubmatch(source); m != nil {
		return "ssh", nil
	}
	if strings.Contains(source, "::") && !strings.Contains(source, "://[") {
		return refuse(hint, "remote helpers such as ext:: are not used: %q", clip(source))
	}
	at, err := url.Parse(source)
	if err != nil {
		return refuse(hint, "%q is no URL", clip(source))
	}
	if at.Host == "" || strings.HasPrefix(at.Hostname(), "-") || at.RawQuery != "" || at.Fragment != "" {
		return refuse(hint, "%q names no host, or has a query or a fragment", redact(at))
	}
	if _, secret := at.User.Password(); secret || at.User != nil && at.Scheme != "ssh" {
		return refuse("leave them out; git asks nobody, and the lock file would keep them", "the URL of %s holds credentials", at.Host)
	}
	if user := at.User.Username(); strings.HasPrefix(user, "-") {
		return refuse(hint, "%q is no user", clip(user))
	}
	switch at.Scheme {
	case "https", "ssh":
		return at.Scheme, nil
	case "http", "git":
		if insecure || loopback(at.Hostname()) {
			return at.Scheme, nil
		}
		return refuse("use https://, or give --insecure-transport when the way there is trusted", "whoever is on the way can change what comes over %s://", at.Scheme)
	}
	return refuse(hint, "the protocol %s: is not used", clip(at.Scheme))
}

// redact is a URL fit to be shown.
func redact(at *url.URL) string { return clip(at.Redacted()) }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// baseName is the name of a repository, as its URL has it.
func baseName(source string) string {
	name := strings.TrimRight(source, "/")
	name = name[strings.LastIndexAny(name, "/:")+1:]
	return strings.TrimSuffix(name, ".git")
}

// ErrNoGit is the error of a git source without git.
var ErrNoGit = errors.New("git is not on PATH")

// FetchError is a git source that could not be fetched: for what git said, or what was fetched is.
type FetchError struct {
	Source string // a URL without credentials
	Err    error
}

func (e *FetchError) Error() string { return "fetch " + e.Source + ": " + e.Err.Error() }

func (e *FetchError) Unwrap() error { return e.Err }
