package signed

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// identityPrefix starts a signer that is an identity: the issuer, a space and the identity follow.
const identityPrefix = "sigstore:"

// maxIdentity is the longest issuer and the longest identity, in bytes.
const maxIdentity = 2048

// Identity returns the signer with an identity at an issuer, such as a mail address or the URL of a workflow.
// A "*" in an identity matches any text without "/" and "@".
func Identity(issuer, identity string) (Signer, error) {
	s := Signer(identityPrefix + issuer + " " + identity)
	return s, s.Check()
}

// identity returns the parts of a signer that is an identity.
func (s Signer) identity() (issuer, identity string, ok bool) {
	rest, ok := strings.CutPrefix(string(s), identityPrefix)
	issuer, identity, _ = strings.Cut(rest, " ")
	return issuer, identity, ok
}

// IsIdentity reports whether a signer is an identity, which a [Verifier] verifies.
func (s Signer) IsIdentity() bool {
	_, _, ok := s.identity()
	return ok
}

// As returns the signer with an identity at the issuer of s. If s is not an identity, or identity is empty,
// it returns s.
func (s Signer) As(identity string) Signer {
	if issuer, _, ok := s.identity(); ok && identity != "" {
		return Signer(identityPrefix + issuer + " " + identity)
	}
	return s
}

// Covers reports whether the pattern of s matches the other signer.
func (s Signer) Covers(other Signer) bool {
	issuer, pattern, ok := s.identity()
	otherIssuer, identity, otherOK := other.identity()
	if !ok || !otherOK {
		return s == other && s != ""
	}
	return issuer == otherIssuer && matches(pattern, identity)
}

// matches reports whether a pattern matches the whole of an identity.
func matches(pattern, identity string) bool {
	// A "*" that matched "/" or "@" would cover the repositories and mail domains of others.
	text := `\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `[^/@]*`) + `\z`
	expression, err := regexp.Compile(text)
	return err == nil && expression.MatchString(identity)
}

func checkIdentity(issuer, identity string) error {
	at, err := url.Parse(issuer)
	switch {
	case err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" || !visible(issuer):
		return errors.New("is not of an issuer, which is a URL such as https://accounts.google.com")
	case !visible(identity):
		return errors.New("is not an identity of printable ASCII without spaces")
	case strings.Trim(identity, "*/@") == "":
		return errors.New("matches every identity of the issuer")
	}
	return nil
}

// visible reports whether a part of an identity is printable ASCII, so that it is what it looks like.
func visible(text string) bool {
	hidden := func(r rune) bool { return r <= ' ' || r > '~' }
	return text != "" && len(text) <= maxIdentity && !strings.ContainsFunc(text, hidden)
}
