package policy

import (
	"fmt"
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
	// follows it after a "/".
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
		if signed != nil && signed(s.Signer) && (len(s.Sources) == 0 || begins(source, s.Sources)) {
			return s.Tier, nil
		}
	}
	tier := skills.LeastTrusted()
	switch {
	case !slices.Contains(t.Required, AllSources) && !begins(source, t.Required):
		return tier, nil
	case signed == nil:
		return tier, fmt.Errorf("the configuration wants a signature of what comes from %s (trust.required)",
			Clip(source))
	}
	return tier, fmt.Errorf("who signed it is not trusted for %s (trust.signers)", Clip(source))
}

// begins reports whether one of several texts is the beginning of a source.
func begins(source string, beginnings []string) bool {
	return slices.ContainsFunc(beginnings, func(beginning string) bool {
		rest, ok := strings.CutPrefix(source, strings.TrimSuffix(strings.TrimSuffix(beginning, "/"), ".git"))
		rest = strings.TrimPrefix(rest, ".git")
		return ok && beginning != "" && (rest == "" || rest[0] == '/')
	})
}
