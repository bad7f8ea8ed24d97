package page

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/httpauth"
)

const (
	// loginLife is how long a login is valid. A revoked role is accepted for as long.
	loginLife = time.Hour

	// flowLife is how long a user may take to log in at the provider.
	flowLife = 10 * time.Minute
)

// signIn redirects a browser to the provider.
func (p *Page) signIn(w http.ResponseWriter, r *http.Request) {
	address, flow, err := p.OIDC.Login.Begin(r.Context())
	if err != nil {
		p.loginFailed(w, r, http.StatusBadGateway, "unavailable", err)
		return
	}
	// The provider's redirect comes from another site, and a browser would leave out a strict cookie.
	p.access.setCookie(w, p.access.flow, flow, flowLife, http.SameSiteLaxMode)
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// signedIn handles the redirect back from the provider.
func (p *Page) signedIn(w http.ResponseWriter, r *http.Request) {
	flow := ""
	if cookie, err := r.Cookie(p.access.flow); err == nil {
		flow = cookie.Value
	}
	// A flow is for one attempt, whatever its result is.
	p.access.setCookie(w, p.access.flow, "", -1, http.SameSiteLaxMode)
	principal, claims, err := p.OIDC.Login.Finish(r.Context(), flow, r.URL.Query())
	switch {
	case httpauth.Unavailable(err):
		p.loginFailed(w, r, http.StatusBadGateway, "unavailable", err)
		return
	case err != nil:
		p.loginFailed(w, r, http.StatusForbidden, "login", err)
		return
	}
	roles := words(claims[p.OIDC.Claim])
	v := viewer{principal: principal, operator: slices.Contains(roles, p.OIDC.Operator)}
	if !v.operator && !slices.Contains(roles, p.OIDC.Viewer) {
		p.loginFailed(w, r, http.StatusForbidden, "role", fmt.Errorf(
			"%s has none of the roles %q and %q in %s", principal, p.OIDC.Operator, p.OIDC.Viewer,
			p.OIDC.Claim))
		return
	}
	v.expires = p.Now().Add(loginLife)
	if err := p.access.enter(w, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// A redirect would be attributed to the provider, so the browser would leave out the SameSite cookie.
	render(w, http.StatusOK, &view{Title: "Signed in", Data: entered{}})
}

func (p *Page) loginFailed(w http.ResponseWriter, r *http.Request, status int, said string, err error) {
	p.Log.InfoContext(r.Context(), "nobody was let into the page", slog.Int("status", status), tint.Err(err))
	render(w, status, p.loginView(said))
}

// signOut logs the viewer of a request out.
func (p *Page) signOut(w http.ResponseWriter, r *http.Request) {
	p.access.leave(viewerOf(r.Context()))
	p.access.setCookie(w, p.access.cookie, "", -1, http.SameSiteStrictMode)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// words returns the strings of a claim: one, or a list.
func words(claim any) (list []string) {
	switch value := claim.(type) {
	case string:
		return []string{value}
	case []any:
		for _, item := range value {
			if word, ok := item.(string); ok {
				list = append(list, word)
			}
		}
	}
	return list
}
