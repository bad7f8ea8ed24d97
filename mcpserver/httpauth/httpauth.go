// Package httpauth authenticates HTTP requests with bearer tokens, whose hashes are in a file, and with JSON
// Web Tokens of one issuer. It authenticates browsers by a login at that issuer (OpenID Connect).
//
// Guarantees:
//   - a request is accepted only with a token that a principal has now: the token file is read again when it
//     changes, and while it cannot be read no request is accepted;
//   - tokens are compared as hashes, in constant time;
//   - a JWT is accepted only if it is signed with a pinned asymmetric algorithm by a key that the issuer
//     publishes, has the issuer and an accepted audience, and has not expired;
//   - a browser is logged in by a code that the issuer gave to it in the same flow, and by an ID token for
//     this client;
//   - principals of the two sources are never the same: a name from a JWT begins with "jwt:";
//   - refusals follow RFC 6750 and do not repeat the token; RFC 9728 metadata names the issuer.
//
// It does not decide what a principal may do, keeps no sessions and issues no tokens. It does not ask the
// issuer whether a JWT was revoked: a revoked token is accepted until it expires. A key that the issuer
// withdrew is accepted for at most 5 more minutes, or 15 while the issuer cannot be reached, and not after
// [Authenticator.Reload].
package httpauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/skills/policy"
)

// maxToken is the maximum length in bytes of a bearer token.
const maxToken = 16 << 10

// Config is the configuration of an Authenticator. At least one of TokenFile and JWT is required.
type Config struct {
	// TokenFile is the path of a file of lines "principal: sha256-of-token-in-hex".
	TokenFile string
	// Trust rejects a token file by its FileInfo, for example because others can write it. It is called for
	// each request, even if the file did not change; while it rejects the file, no request is accepted. Nil
	// rejects none.
	Trust func(info fs.FileInfo) error
	// JWT verifies JSON Web Tokens; nil accepts none.
	JWT *JWTConfig
	// Principals sets, by name, whether the evidence of a principal about prompt slots is trusted, and its
	// profile. It grants no access; a principal that is missing here has neither.
	Principals map[string]policy.Principal
	// Resource is the public URL of the endpoint. Empty means the URL of each request, with the scheme of its
	// connection.
	Resource string
	// Path is the path of the endpoint if Resource is empty; "" means "/mcp".
	Path string
	// Logger gets the reasons of refusals, without tokens. Nil discards them.
	Logger *slog.Logger
}

// Authenticator authenticates requests. Its methods are safe for concurrent use.
type Authenticator struct {
	cfg      Config
	tokens   *file[tokenSet] // nil without a token file
	jwt      *verifier       // nil without an issuer
	resource *url.URL        // nil if it depends on the request
}

var (
	errNoToken      = errors.New("no token")
	errEmpty        = errors.New("empty token")
	errMalformed    = errors.New("malformed Authorization header")
	errUnknownToken = errors.New("unknown token")
	errScope        = errors.New("token lacks a required scope")
	errUnavailable  = errors.New("authentication is unavailable")
)

// New reads the token file, and the keys if they are in a file.
//
// Errors: a file that cannot be read or parsed, an incomplete JWTConfig, a Resource that is not an
// absolute http or https URL, neither a token file nor an issuer.
func New(cfg Config) (*Authenticator, error) {
	a := &Authenticator{cfg: cfg}
	// The caller may change its map while requests read it.
	a.cfg.Principals = maps.Clone(cfg.Principals)
	a.cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.TokenFile == "" && cfg.JWT == nil {
		return nil, errors.New("neither a token file nor an issuer of tokens")
	}
	if cfg.TokenFile != "" {
		a.tokens = &file[tokenSet]{
			path: cfg.TokenFile, most: maxTokenFile, parse: parseTokens, trust: cfg.Trust,
		}
		if _, err := a.tokens.current(); err != nil {
			return nil, fmt.Errorf("token file: %w", err)
		}
	}
	if cfg.JWT != nil {
		var err error
		a.jwt, err = newVerifier(*cfg.JWT)
		if err != nil {
			return nil, err
		}
	}
	if cfg.Resource != "" {
		u, err := url.Parse(cfg.Resource)
		// A resource identifier has no fragment (RFC 9728, section 1.2).
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Fragment != "" {
			return nil, fmt.Errorf("resource %q is not an absolute URL", cfg.Resource)
		}
		a.resource = u
	}
	return a, nil
}

// Authenticate returns the principal that sent r. If it returns false it has answered: 401 for a missing,
// empty or unknown token, 403 for a token without a required scope, 400 for a malformed header, 503 if it
// cannot decide.
func (a *Authenticator) Authenticate(w http.ResponseWriter, r *http.Request) (policy.Principal, bool) {
	name, err := a.identify(r)
	if err == nil {
		principal := a.cfg.Principals[name]
		principal.Name = name
		return principal, true
	}
	a.refuse(w, r, err)
	return policy.Principal{}, false
}

// Reload fetches the keys of the issuer now, regardless of the last fetch. If it fails, known keys stay valid
// as long as without it. It does nothing without an issuer, or with keys in a file, which is read again when
// it changes.
//
// Errors: keys that cannot be fetched, with the URL.
func (a *Authenticator) Reload(ctx context.Context) error {
	if a.jwt == nil || a.jwt.keys.file != nil {
		return nil
	}
	// An earlier fetch may return older keys; let requests wait for this one.
	flight := &a.jwt.keys.flight
	flight.Forget("")
	_, err, _ := flight.Do("", func() (any, error) { return nil, a.jwt.keys.fetch(ctx, -1) })
	return err
}

func (a *Authenticator) identify(r *http.Request) (string, error) {
	token, err := bearer(r.Header.Values("Authorization"))
	if err != nil {
		return "", err
	}
	if a.tokens != nil {
		set, err := a.tokens.current()
		if err != nil {
			return "", fmt.Errorf("%w: token file: %w", errUnavailable, err)
		}
		// An unknown token may be a JWT; a known token is never passed to the parser.
		if name, ok := set.principal(token); ok {
			return name, nil
		}
	}
	if a.jwt == nil {
		return "", errUnknownToken
	}
	name, _, err := a.jwt.verify(r.Context(), token)
	return name, err
}

// bearer returns the token of the Authorization header; there must be exactly one header.
func bearer(headers []string) (string, error) {
	if len(headers) > 1 {
		return "", errMalformed
	}
	scheme, token, _ := strings.Cut(strings.Join(headers, ""), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		// No other scheme is offered. RFC 6750 requires a bare challenge for a request without this scheme.
		return "", errNoToken
	}
	token = strings.Trim(token, " ")
	// A client whose configuration names an unset variable sends nothing, or the name.
	if token == "" || strings.ContainsAny(token[:1], "$%") {
		return "", errEmpty
	}
	// RFC 6750, section 2.1, allows these characters.
	const plain = letters + "0123456789-._~+/="
	if len(token) > maxToken || strings.Trim(token, plain) != "" {
		return "", errMalformed
	}
	return token, nil
}

// refuse answers a request that is not authenticated.
func (a *Authenticator) refuse(w http.ResponseWriter, r *http.Request, err error) {
	params := []string{`realm="skillsd"`}
	status, advice := http.StatusUnauthorized, ""
	// RFC 6750, section 3.1, assigns a status to each error code.
	switch {
	case errors.Is(err, errUnavailable):
		a.cfg.Logger.ErrorContext(r.Context(), "authentication is unavailable", tint.Err(err))
		w.Header().Set("Retry-After", "5")
		http.Error(w, "authentication is unavailable", http.StatusServiceUnavailable)
		return
	case errors.Is(err, errNoToken):
	case errors.Is(err, errEmpty):
		advice = ": the token is empty; set the variable that the client takes it from, where the " +
			"client is started"
	case errors.Is(err, errMalformed):
		status = http.StatusBadRequest
		params = append(params, `error="invalid_request"`)
	case errors.Is(err, errScope):
		status = http.StatusForbidden
		params = append(params, `error="insufficient_scope"`)
	default:
		params = append(params, `error="invalid_token"`)
	}
	if a.jwt != nil {
		params = append(params, fmt.Sprintf("resource_metadata=%q", a.metadataURL(r)))
		if len(a.jwt.cfg.Scopes) > 0 {
			params = append(params, fmt.Sprintf("scope=%q", strings.Join(a.jwt.cfg.Scopes, " ")))
		}
	}
	if !errors.Is(err, errNoToken) {
		ctx := context.WithoutCancel(r.Context())
		a.cfg.Logger.InfoContext(ctx, "request not authenticated", slog.Int("status", status), tint.Err(err))
	}
	w.Header().Set("WWW-Authenticate", "Bearer "+strings.Join(params, ", "))
	http.Error(w, strings.ToLower(http.StatusText(status))+advice, status)
}
