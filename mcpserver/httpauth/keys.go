package httpauth

import (
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

	keysFresh  = 15 * time.Minute // after which keys of a URL are fetched again
	keysWait   = time.Minute      // between two fetches, whatever keys tokens name
	keysExpire = 24 * time.Hour   // after which keys that could not be fetched again are not used
	fetchLimit = 10 * time.Second
)

// keySource holds the public keys of an issuer. Safe for concurrent use.
type keySource struct {
	url    string
	file   *file[[]jose.JSONWebKey] // instead of url
	client *http.Client
	now    func() time.Time

	flight singleflight.Group // of fetches

	mu      sync.Mutex // guards the fields below
	keys    []jose.JSONWebKey
	fetched time.Time // when keys came
	tried   time.Time // when the last attempt began
	last    error
}

// newKeySource returns the keys at a URL, which is not asked yet, or in a file.
func newKeySource(place string, now func() time.Time) (*keySource, error) {
	s := &keySource{now: now}
	if !strings.Contains(place, "://") {
		s.file = &file[[]jose.JSONWebKey]{path: place, most: maxKeySet, parse: parseKeys}
		_, err := s.file.current()
		return s, err
	}
	u, err := url.Parse(place)
	if err != nil || !safeKeyURL(u) {
		return nil, fmt.Errorf("keys at %q: not an https URL, nor http of a loopback host", place)
	}
	s.url = place
	s.client = &http.Client{
		Timeout: fetchLimit,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 || !safeKeyURL(r.URL) {
				return errors.New("redirected to a place that keys are not taken from")
			}
			return nil
		},
	}
	return s, nil
}

// safeKeyURL reports whether keys of a URL cannot be replaced on their way.
func safeKeyURL(u *url.URL) bool {
	if u.Host == "" || u.User != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" || u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// find returns the keys that may have signed a token with that key id, which may be empty, and
// algorithm. If an id is not known the keys are fetched again, as the issuer may have changed them, but
// not more often than keysWait allows.
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
		// The fetch is everyone's and does not end with the request that began it.
		fetched := s.flight.DoChan("", func() (any, error) {
			s.fetch(context.WithoutCancel(ctx))
			return nil, nil
		})
		if len(found) > 0 && age <= keysExpire {
			return found, nil // keys that are not fresh are good until others have come
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

// match returns the keys of an id and an algorithm.
func match(keys []jose.JSONWebKey, id, algorithm string) (found []jose.JSONWebKey) {
	for _, key := range keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key)
		}
	}
	return found
}

// fetch fetches the keys unless that was tried a short time ago.
func (s *keySource) fetch(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.tried) <= keysWait {
		return
	}
	s.tried = s.now()
	s.mu.Unlock()
	keys, err := s.download(ctx)
	s.mu.Lock()
	s.last = err
	if err == nil {
		s.keys, s.fetched = keys, s.now()
	}
}

func (s *keySource) download(ctx context.Context) ([]jose.JSONWebKey, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", s.url, response.Status)
	}
	data, err := fsys.ReadAll(response.Body, maxKeySet)
	if err != nil {
		return nil, err
	}
	return parseKeys(data)
}

// parseKeys returns the public signature keys of a JWK set. It leaves out keys of other kinds and keys it
// cannot read, because a set may hold kinds that this version does not know.
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
