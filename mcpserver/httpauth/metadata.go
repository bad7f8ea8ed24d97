package httpauth

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strings"
)

const wellKnown = "/.well-known/oauth-protected-resource"

// ServeHTTP answers requests for the RFC 9728 metadata of the endpoint, at the well-known path with and
// without the endpoint's own path after it, and all others with 404. Without an issuer there is no metadata.
func (a *Authenticator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := a.resourceOf(r)
	if a.jwt == nil || r.URL.Path != wellKnown && r.URL.Path != path.Join(wellKnown, resource.Path) {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(struct {
		Resource      string   `json:"resource"`
		Name          string   `json:"resource_name"`
		Servers       []string `json:"authorization_servers"`
		Scopes        []string `json:"scopes_supported,omitempty"`
		BearerMethods []string `json:"bearer_methods_supported"`
	}{resource.String(), "skillsd", []string{a.jwt.cfg.Issuer}, a.jwt.cfg.Scopes, []string{"header"}})
}

// resourceOf returns the URL of the endpoint for the sender of r. The Host header was checked before.
func (a *Authenticator) resourceOf(r *http.Request) *url.URL {
	if a.resource != nil {
		return a.resource
	}
	u := &url.URL{Scheme: "http", Host: r.Host, Path: cmp.Or(a.cfg.Path, "/mcp")}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u
}

func (a *Authenticator) metadataURL(r *http.Request) string {
	u := *a.resourceOf(r)
	u.Path = strings.TrimSuffix(path.Join(wellKnown, u.Path), "/")
	u.RawPath, u.RawQuery = "", ""
	return u.String()
}
