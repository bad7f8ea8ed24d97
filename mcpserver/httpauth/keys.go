package httpauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	maxKeySet = 1 << 20 // bytes
	maxKeys   = 256

	// These bound how long a key is accepted after its issuer withdrew it.
	keysFresh  = 4 * time.Minute  // age at which keys of a URL are fetched again in the background
	keysStale  = 5 * time.Minute  // age at which requests wait for the fetch
	keysExpire = 15 * time.Minute // age at which keys are dropped if the fetch fails
	keysWait   = 15 * time.Second // minimum between two fetches, whatever keys tokens name
	fetchLimit = 10 * time.Second // for one request
)

// keySource caches the public keys of an issuer. Safe for concurrent use.
type keySource struct {
	issuer string
	url    string                   // empty: the URL in the issuer's discovery document
	file   *file[[]jose.JSONWebKey] // instead of url
	client *http.Client
	now    func() time.Time

	flight singleflight.Group // of fetches

	mu      sync.Mutex // guards the fields below
	keys    []jose.JSONWebKey
	fetched time.Time // start of the fetch that returned keys
	tried   time.Time // start of the last attempt
	last    error     // its error
}

// newKeySource returns the keys at a URL or, if address is empty, at the URL in the issuer's discovery
// document. Nothing is fetched yet. Any other address is the path of a file.
func newKeySource(issuer, address string, now func() time.Time) (*keySource, error) {
	s := &keySource{issuer: issuer, url: address, now: now, client: &http.Client{
		Timeout: fetchLimit,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 || !safeKeyURL(r.URL.String()) {
				return errors.New("redirected to a URL that is not safe for keys")
			}
			return nil
		},
	}}
	if address != "" && !strings.Contains(address, "://") {
		s.file = &file[[]jose.JSONWebKey]{path: address, most: maxKeySet, parse: parseKeys}
		_, err := s.file.current()
		return s, err
	}
	if address := cmp.Or(address, issuer); !safeKeyURL(address) {
		return nil, fmt.Errorf("keys at %q: not an https URL, nor http of a loopback host", address)
	}
	return s, nil
}

// safeKeyURL reports whether the content of a URL is protected on the network.
func safeKeyURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" || u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// find returns the keys that may have signed a token with this algorithm and key id, which may be empty. If
// the id is unknown the keys are fetched again, as the issuer may have changed them, but not more often than
// keysWait allows.
func (s *keySource) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	if s.file != nil {
		keys, err := s.file.current()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return match(keys, id, algorithm), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, age := match(s.keys, id, algorithm), s.now().Sub(s.fetched)
	if len(found) == 0 || age > keysFresh {
		// All requests share the fetch, so it does not end with the request that started it.
		fetched := s.flight.DoChan("", func() (any, error) {
			s.fetch(context.WithoutCancel(ctx), keysWait)
			return nil, nil
		})
		// Do not wait with usable keys: with an issuer that does not answer, every request would wait.
		if len(found) > 0 && (age <= keysStale || s.last != nil && age <= keysExpire) {
			return found, nil
		}
		s.mu.Unlock()
		select {
		case <-fetched:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	if s.fetched.IsZero() || s.now().Sub(s.fetched) > keysExpire {
		return nil, fmt.Errorf("%w: keys of the issuer: %w", errUnavailable, errors.Join(s.last, ctx.Err()))
	}
	return match(s.keys, id, algorithm), nil
}

// match returns the keys with an id and an algorithm.
func match(keys []jose.JSONWebKey, id, algorithm string) (found []jose.JSONWebKey) {
	for _, key := range keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key)
		}
	}
	return found
}

// fetch fetches the keys, unless the last attempt began less than wait ago, and returns the error of the last
// attempt.
func (s *keySource) fetch(ctx context.Context, wait time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.now()
	if began.Sub(s.tried) <= wait {
		return s.last
	}
	s.tried = began
	s.mu.Unlock()
	keys, err := s.download(ctx)
	s.mu.Lock()
	s.last = err
	if err != nil {
		return err
	}
	// A slow fetch must not replace newer keys.
	if !began.Before(s.fetched) {
		s.keys, s.fetched = keys, began
	}
	return err
}

func (s *keySource) download(ctx context.Context) ([]jose.JSONWebKey, error) {
	address := s.url
	if address == "" {
		found, err := s.discover(ctx)
		if err != nil {
			return nil, err
		}
		address = found.Keys
	}
	data, err := s.get(ctx, address)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return keys, nil
}

// provider is the discovery document of an issuer.
type provider struct {
	Issuer        string   `json:"issuer"`
	Keys          string   `json:"jwks_uri"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Ways          []string `json:"token_endpoint_auth_methods_supported"`
}

// discover returns the issuer's discovery document: the one of OpenID, or of RFC 8414. For an issuer without
// a document it returns the customary address of keys.
func (s *keySource) discover(ctx context.Context) (provider, error) {
	u, err := url.Parse(s.issuer)
	if err != nil {
		return provider{}, err
	}
	base := strings.TrimSuffix(s.issuer, "/")
	// oauthex of the MCP SDK reads such documents for clients. It rejects issuers that do not announce PKCE,
	// which a server that only verifies tokens does not need.
	for _, document := range []string{
		base + "/.well-known/openid-configuration",
		u.Scheme + "://" + u.Host + "/.well-known/oauth-authorization-server" +
			strings.TrimSuffix(u.EscapedPath(), "/"),
	} {
		data, err := s.get(ctx, document)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return provider{}, err
		}
		found, err := parseDiscovery(data, s.issuer)
		if err != nil {
			return provider{}, fmt.Errorf("%s: %w", document, err)
		}
		return found, nil
	}
	return provider{Keys: base + "/.well-known/jwks.json"}, nil
}

// parseDiscovery parses the discovery document of an issuer.
func parseDiscovery(data []byte, issuer string) (document provider, err error) {
	if err := json.Unmarshal(data, &document); err != nil {
		return provider{}, fmt.Errorf("discovery document: %w", err)
	}
	// The iss of tokens must equal this name.
	if document.Issuer != issuer {
		return provider{}, fmt.Errorf("it is the discovery document of the issuer %q, not of %q",
			document.Issuer, issuer)
	}
	if !safeKeyURL(document.Keys) {
		return provider{}, fmt.Errorf("its jwks_uri %q is not an https URL, nor http of a loopback host",
			document.Keys)
	}
	return document, nil
}

// errAbsent is returned for a URL without a document.
var errAbsent = errors.New("not found")

// get returns the document at a URL. Its errors name the URL.
func (s *keySource) get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusForbidden:
		// Some file stores answer 403 for a missing file.
		return nil, fmt.Errorf("%s answered %s: %w", address, response.Status, errAbsent)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s", address, response.Status)
	}
	data, err := fsys.ReadAll(response.Body, maxKeySet)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return data, nil
}

// parseKeys returns the public signature keys of a JWK set. It skips other kinds of keys and keys that it
// cannot parse.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("key set of %d keys", len(set.Keys))
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		// A set may hold kinds of keys that this version does not know.
		if key.UnmarshalJSON(raw) != nil || !key.Valid() || !key.IsPublic() {
			continue
		}
		if key.Use == "" || key.Use == "sig" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("key set without a public signature key")
	}
	return keys, nil
}
