package httpauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// LoginConfig describes a client of an OpenID provider. Issuer, Client and Redirect are required.
type LoginConfig struct {
	Issuer     string // https URL, or http of a loopback host
	Keys       string // as in JWTConfig
	Algorithms []string

	Client   string   // the client id at the provider
	Secret   string   // the client secret; empty for a public client
	Redirect string   // URL to which the provider redirects browsers
	Scopes   []string // requested besides openid

	now func() time.Time
}

// Login authenticates users by the authorization code flow of OpenID Connect, with PKCE. Its methods are safe
// for concurrent use.
type Login struct {
	cfg      LoginConfig
	verifier *verifier
	client   *http.Client // exchanges codes

	mu    sync.Mutex // held while the discovery document is fetched; guards the fields below
	found provider
	asked time.Time
	last  error // error of the last fetch
}

// NewLogin returns a Login; it does not contact the provider yet.
//
// Errors: an incomplete or unusable configuration.
func NewLogin(cfg LoginConfig) (*Login, error) {
	if cfg.Client == "" || !safeKeyURL(cfg.Issuer) || !safeKeyURL(cfg.Redirect) {
		return nil, errors.New("logins need the id of a client, and for the issuer and for this server an " +
			"https URL, or http of a loopback host")
	}
	v, err := newVerifier(JWTConfig{Issuer: cfg.Issuer, Audiences: []string{cfg.Client}, Keys: cfg.Keys,
		Algorithms: cfg.Algorithms, now: cfg.now})
	if err != nil {
		return nil, err
	}
	// Redirects are refused: the code and the secret may go to the configured endpoint only.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Timeout: fetchLimit, CheckRedirect: refuse}
	return &Login{cfg: cfg, verifier: v, client: client}, nil
}

// Begin returns the URL of the provider's login page, and the state of the flow for Finish, which the same
// browser must send back: it is a secret of that browser, not of the server.
//
// Errors: the errors of reading the discovery document of the issuer.
func (l *Login) Begin(ctx context.Context) (address, flow string, err error) {
	client, err := l.oauth(ctx)
	if err != nil {
		return "", "", err
	}
	state, nonce, verifier := oauth2.GenerateVerifier(), oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	address = client.AuthCodeURL(state, oauth2.SetAuthURLParam("nonce", nonce),
		oauth2.S256ChallengeOption(verifier))
	return address, strings.Join([]string{state, nonce, verifier}, "."), nil
}

// Finish takes the query of the provider's redirect, and returns the principal, the same as for a JWT of the
// same issuer and subject, with the claims of the ID token.
//
// Errors: the query belongs to another flow, is a refusal, or has a code that the provider does not accept;
// an ID token that the issuer did not issue for this client and flow.
func (l *Login) Finish(ctx context.Context, flow string, answer url.Values) (
	principal string, claims map[string]any, err error,
) {
	parts := strings.Split(flow, ".")
	// GenerateVerifier returns 43 characters. An empty state would equal the state of an answer without one.
	if len(parts) != 3 || len(parts[0]) < 43 || !equal(answer.Get("state"), parts[0]) {
		return "", nil, errors.New("the answer belongs to another login")
	}
	if refused := answer.Get("error"); refused != "" {
		return "", nil, fmt.Errorf("the issuer refused: %.100q", refused)
	}
	client, err := l.oauth(ctx)
	if err != nil {
		return "", nil, err
	}
	token, err := client.Exchange(context.WithValue(ctx, oauth2.HTTPClient, l.client), answer.Get("code"),
		oauth2.VerifierOption(parts[2]))
	if err != nil {
		return "", nil, fmt.Errorf("the code: %w", err)
	}
	text, _ := token.Extra("id_token").(string)
	if len(text) > maxToken {
		return "", nil, fmt.Errorf("an ID token of %d bytes", len(text))
	}
	principal, claims, err = l.verifier.verify(ctx, text)
	if err != nil {
		return "", nil, fmt.Errorf("the ID token: %w", err)
	}
	nonce, _ := claims["nonce"].(string)
	party, named := claims["azp"]
	several, _ := claims["aud"].([]any)
	switch {
	case !equal(nonce, parts[1]):
		return "", nil, errors.New("the ID token belongs to another login")
	// OpenID Connect Core, section 3.1.3.7, requires both.
	case (named || len(several) > 1) && party != l.cfg.Client:
		return "", nil, errors.New("the ID token was issued to another client")
	}
	return principal, claims, nil
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// oauth returns the client with the endpoints of the provider, which are fetched again after a while.
func (l *Login) oauth(ctx context.Context) (*oauth2.Config, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := l.verifier.cfg.now().Sub(l.asked)
	if l.asked.IsZero() || age > keysFresh || l.last != nil && age > keysWait {
		// All requests share the result, so the end of this one does not cancel the fetch.
		l.found, l.last = l.verifier.keys.discover(context.WithoutCancel(ctx))
		if l.last == nil && (!safeKeyURL(l.found.Authorization) || !safeKeyURL(l.found.Token)) {
			l.last = errors.New("its discovery document names no endpoints for logins that are https URLs")
		}
		l.asked = l.verifier.cfg.now()
	}
	if l.last != nil {
		return nil, fmt.Errorf("%w: the issuer: %w", errUnavailable, l.last)
	}
	// Every provider supports this method of RFC 6749, unless its document lists others only.
	style, ways := oauth2.AuthStyleInHeader, l.found.Ways
	if l.cfg.Secret == "" || len(ways) > 0 && !slices.Contains(ways, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: l.cfg.Client, ClientSecret: l.cfg.Secret, RedirectURL: l.cfg.Redirect,
		Scopes: append([]string{"openid"}, l.cfg.Scopes...), Endpoint: oauth2.Endpoint{
			AuthURL: l.found.Authorization, TokenURL: l.found.Token, AuthStyle: style}}, nil
}

// Unavailable reports whether a login failed because the provider could not be reached.
func Unavailable(err error) bool { return errors.Is(err, errUnavailable) }
