package policy

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// allSources is the word for every source in Trust.Required.
const allSources = "all"

// Trust lists the signers that are trusted for installed skills. The zero value requires no signature and
// trusts no signer.
type Trust struct {
	Signers []TrustedSigner
	// Required are prefixes of sources that need a signature by one of Signers. "https://example.com/skills"
	// matches itself, with or without ".git", and sources that continue with "/". Scheme, case and other
	// spellings of the same path are ignored; another name of a host is another source. "all" matches every
	// source.
	Required []string
}

// TrustedSigner is a signer whose signatures are trusted.
type TrustedSigner struct {
	Name   string // given by the operator
	Signer string // in the form of the lock file
	Tier   skills.Tier
	// Sources are prefixes of the sources for which the signature is valid; empty: all.
	Sources []string
}

// Admit decides whether a skill from a source may be installed, and returns the tier of the first matching
// signer of the list, or the least trusted tier. signed reports whether a signer has signed it, and is nil if
// it is unsigned.
func (t Trust) Admit(source string, signed func(signer string) bool) (skills.Tier, error) {
	for _, s := range t.Signers {
		// Where a signature is valid, case matters: another spelling may be another repository on the same
		// host.
		if signed != nil && signed(s.Signer) &&
			(len(s.Sources) == 0 || begins(source, s.Sources, strings.Clone)) {
			return s.Tier, nil
		}
	}
	tier := skills.LeastTrusted()
	switch {
	// Where a signature is required, case does not matter: //TEAM led to the same repository without a
	// signature.
	case !slices.Contains(t.Required, allSources) && !begins(source, t.Required, strings.ToLower):
		return tier, nil
	case signed == nil:
		return tier, fmt.Errorf("the configuration requires a signature for skills from %s (trust.required)",
			Clip(source))
	}
	return tier, fmt.Errorf("its signer is not trusted for %s (trust.signers)", Clip(source))
}

// begins reports whether one of several prefixes matches a source, with both normalized and folded.
func begins(source string, beginnings []string, fold func(string) string) bool {
	source = fold(normalized(source))
	return slices.ContainsFunc(beginnings, func(beginning string) bool {
		// An empty prefix would match every source.
		if beginning == "" {
			return false
		}
		beginning = strings.TrimSuffix(fold(normalized(beginning)), ".git")
		rest, ok := strings.CutPrefix(source, beginning)
		// Hosts serve a repository with and without ".git", so one spelling must not avoid the rule for the
		// other.
		rest = strings.TrimPrefix(rest, ".git")
		// Otherwise https://example.com/team would cover https://example.com/team-of-others.
		return ok && (rest == "" || rest[0] == '/')
	})
}

// normalized returns a source in a form in which spellings of the same location are equal: host and path of
// a URL or of git's USER@HOST:PATH, or the path of a directory.
func normalized(source string) string {
	u, err := url.Parse(source)
	user, rest, isGit := strings.Cut(source, "@")
	host, dir, isHost := strings.Cut(rest, ":")
	switch {
	case err == nil && u.Opaque != "":
		return source // an mcp+stdio: program
	case err == nil && u.Scheme != "":
		host, dir = u.Host, u.Path
		// The usual port of a scheme leads to the same server.
		usual := map[string]string{"https": ":443", "http": ":80", "ssh": ":22"}[u.Scheme]
		host = strings.TrimSuffix(host, usual)
	case isGit && isHost && !strings.ContainsAny(user+host, "/:"):
	default:
		host, dir = "", source
	}
	return strings.TrimSuffix(strings.ToLower(host)+path.Clean("/"+dir), "/")
}
