package policy

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// AllSources stands for every source in [Trust.Required].
const AllSources = "all"

// Trust says whose signatures count for installed skills. The zero value asks for none and trusts nobody.
type Trust struct {
	Signers []TrustedSigner
	// Required are the beginnings of sources from which no skill is installed unless one of Signers signed
	// it: "https://example.com/skills" is the beginning of itself, with ".git" or without, and of what
	// follows it after a "/". Neither the scheme nor capital letters make another source, nor does a
	// spelling that leads to the same place; another name of a host does.
	Required []string
}

// TrustedSigner is somebody whose signature counts.
type TrustedSigner struct {
	Name   string // that the operator gave
	Signer string // as the lock file has it
	Tier   skills.Tier
	// Sources are the beginnings of the sources for which the signature counts; empty: for all.
	Sources []string
}

// Admit decides whether a skill may be installed from a source, and how far it is trusted: as the first
// signer of the list that fits, or least if nobody fits. signed reports whether a signer is known to have
// signed it; it is nil if nobody is.
func (t Trust) Admit(source string, signed func(signer string) bool) (skills.Tier, error) {
	for _, s := range t.Signers {
		if signed != nil && signed(s.Signer) &&
			(len(s.Sources) == 0 || begins(source, s.Sources, strings.Clone)) {
			return s.Tier, nil
		}
	}
	tier := skills.LeastTrusted()
	switch {
	case !slices.Contains(t.Required, AllSources) && !begins(source, t.Required, strings.ToLower):
		return tier, nil
	case signed == nil:
		return tier, fmt.Errorf("the configuration wants a signature of what comes from %s (trust.required)",
			Clip(source))
	}
	return tier, fmt.Errorf("who signed it is not trusted for %s (trust.signers)", Clip(source))
}

// begins reports whether one of several texts is the beginning of a source, both as they are when folded.
func begins(source string, beginnings []string, fold func(string) string) bool {
	source = fold(place(source))
	return slices.ContainsFunc(beginnings, func(beginning string) bool {
		if beginning == "" {
			return false
		}
		beginning = strings.TrimSuffix(fold(place(beginning)), ".git")
		rest, ok := strings.CutPrefix(source, beginning)
		rest = strings.TrimPrefix(rest, ".git")
		return ok && (rest == "" || rest[0] == '/')
	})
}

// place returns where a source leads, without the spellings that lead there too: host and path of a URL or of
// git's USER@HOST:PATH, or the path of a directory.
func place(source string) string {
	u, err := url.Parse(source)
	user, rest, isGit := strings.Cut(source, "@")
	host, dir, isHost := strings.Cut(rest, ":")
	switch {
	case err == nil && u.Opaque != "":
		return source // a program
	case err == nil && u.Scheme != "":
		host, dir = u.Host, u.Path
		usual := map[string]string{"https": ":443", "http": ":80", "ssh": ":22"}[u.Scheme]
		host = strings.TrimSuffix(host, usual)
	case isGit && isHost && !strings.ContainsAny(user+host, "/:"):
	default:
		host, dir = "", source
	}
	return strings.TrimSuffix(strings.ToLower(host)+path.Clean("/"+dir), "/")
}
