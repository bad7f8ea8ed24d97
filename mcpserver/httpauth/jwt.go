package httpauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// maxCandidates is the maximum number of keys tried for a token without a key id.
const maxCandidates = 8

// JWTConfig describes the accepted JSON Web Tokens.
type JWTConfig struct {
	// Issuer must be the token's iss.
	Issuer string
	// Audiences: the token's aud must contain one of them.
	Audiences []string
	// Keys is the JWK set of the issuer: an https URL (http for loopback hosts) or the path of a file. Empty:
	// the URL in the issuer's discovery document; the issuer must be such a URL then.
	Keys string
	// Algorithms are the accepted signature algorithms, by default RS256, ES256 and EdDSA. Symmetric
	// algorithms are never accepted.
	Algorithms []string
	// Leeway is the tolerated clock difference; 0 means 60 s.
	Leeway time.Duration
	// Claim names the principal; empty means "sub".
	Claim string
	// Scopes must all be in the token's scope or scp.
	Scopes []string

	now func() time.Time
}

var asymmetric = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// verifier checks JWTs of one issuer. Safe for concurrent use.
type verifier struct {
	cfg        JWTConfig
	algorithms []jose.SignatureAlgorithm
	keys       *keySource
}

func newVerifier(cfg JWTConfig) (*verifier, error) {
	if cfg.Issuer == "" || len(cfg.Audiences) == 0 {
		return nil, errors.New("tokens of an issuer need issuer and audience")
	}
	if slices.Contains(cfg.Audiences, "") {
		return nil, errors.New("an audience is empty")
	}
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = []string{string(jose.RS256), string(jose.ES256), string(jose.EdDSA)}
	}
	cfg.Leeway = cmp.Or(cfg.Leeway, time.Minute)
	cfg.Claim = cmp.Or(cfg.Claim, "sub")
	if cfg.now == nil {
		cfg.now = time.Now
	}
	v := &verifier{cfg: cfg}
	for _, name := range cfg.Algorithms {
		if !slices.Contains(asymmetric, jose.SignatureAlgorithm(name)) {
			return nil, fmt.Errorf("signature algorithm %q is not one of %v", name, asymmetric)
		}
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
	}
	var err error
	v.keys, err = newKeySource(cfg.Issuer, cfg.Keys, cfg.now)
	return v, err
}

// verify returns the principal of a token, and all its claims.
func (v *verifier) verify(ctx context.Context, text string) (string, map[string]any, error) {
	parsed, err := jwt.ParseSigned(text, v.algorithms)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errUnknownToken, err)
	}
	if len(parsed.Headers) != 1 {
		return "", nil, fmt.Errorf("%w: %d signatures", errUnknownToken, len(parsed.Headers))
	}
	header := parsed.Headers[0]
	keys, err := v.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return "", nil, err
	}
	// Without a key id any key may fit; the bound limits the cost of a request.
	for _, key := range keys[:min(len(keys), maxCandidates)] {
		var standard jwt.Claims
		var all map[string]any
		if parsed.Claims(key, &standard, &all) == nil {
			name, err := v.check(standard, all)
			return name, all, err
		}
	}
	return "", nil, fmt.Errorf("%w: no key of the issuer fits the signature", errUnknownToken)
}

// check compares the claims of a token with a valid signature with the configuration.
func (v *verifier) check(standard jwt.Claims, all map[string]any) (string, error) {
	// The library accepts a token without an expiry, which could never be revoked.
	if standard.Expiry == nil {
		return "", fmt.Errorf("%w: it never expires", errUnknownToken)
	}
	expected := jwt.Expected{Issuer: v.cfg.Issuer, AnyAudience: v.cfg.Audiences, Time: v.cfg.now()}
	if err := standard.ValidateWithLeeway(expected, v.cfg.Leeway); err != nil {
		return "", fmt.Errorf("%w: %w", errUnknownToken, err)
	}
	name, _ := all[v.cfg.Claim].(string)
	odd := func(c rune) bool { return !unicode.IsPrint(c) }
	plain := utf8.ValidString(name) && !strings.ContainsFunc(name, odd)
	if name == "" || len(name) > maxPrincipal || !plain {
		return "", fmt.Errorf("%w: claim %s names no principal", errUnknownToken, v.cfg.Claim)
	}
	granted := scopes(all)
	for _, scope := range v.cfg.Scopes {
		if !slices.Contains(granted, scope) {
			return "", fmt.Errorf("%w: %s", errScope, scope)
		}
	}
	return jwtPrefix + name, nil
}

// scopes returns the scopes of a token: the words of scope (RFC 8693), or of scp, which some issuers write as
// a list.
func scopes(all map[string]any) []string {
	var list []string
	for _, claim := range []string{"scope", "scp"} {
		switch value := all[claim].(type) {
		case string:
			list = append(list, strings.Fields(value)...)
		case []any:
			for _, item := range value {
				if word, ok := item.(string); ok {
					list = append(list, word)
				}
			}
		}
	}
	return list
}
