package page_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver/httpauth/oidctest"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// A call that waits is approved by a form of the viewer's own page, in their name, once, and only by whoever sees
// the principal.
func TestApprove(t *testing.T) {
	t.Parallel()
	words, dir := serve.Codes(t.TempDir()), t.TempDir()
	calls := map[string]digest.Digest{"jwt:alice": digest.FromString("a"), "jwt:bobby": digest.FromString("b")}
	codes := map[string]string{}
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jwt:alice", "jwt:bobby"} {
		codes[name], err = words.Offer(t.Context(), calls[name], approval.Waiting{Principal: name, Session: "ses_" + name[4:],
			Text: "Run it for " + hostile + name + "?"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		row, err := json.Marshal(cfharness.PolicyEvent{ObservationDenied: &cfharness.ObservationDenied{Code: "approval_required",
			ApprovalCode: codes[name]}})
		if err == nil {
			err = store.Append(t.Context(), &provenance.Event{Session: "ses_" + name[4:], Kind: provenance.KindSessionStarted, Principal: name})
		}
		if err == nil {
			err = store.Append(t.Context(), &provenance.Event{Session: "ses_" + name[4:], Kind: provenance.KindPolicyDenied, Principal: name,
				Call: "c", Detail: "approval_required", Row: row})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	with := func(o *page.Options, _ string) { o.Codes, o.User = words, "me" }
	provider := oidctest.New(t)
	team := open(t, dir, oidc(provider, "http"), with)
	provider.LogIn(map[string]any{"sub": "alice", "roles": "staff"})
	alice := &site{t: t, base: team.base, client: team.client}
	if answer, text := alice.signIn(); answer.StatusCode != http.StatusOK {
		t.Fatalf("alice is not let in: %s", text)
	}
	own := open(t, dir, with)
	stranger := &site{t: t, base: own.base, client: own.client}
	if !own.login() {
		t.Fatal("the link does not open the page")
	}
	shown := alice.get("/approvals")
	if !strings.Contains(shown, codes["jwt:alice"]) || strings.Contains(shown, codes["jwt:bobby"]) || strings.Contains(shown, "<img") {
		t.Errorf("alice sees %s", shown)
	}
	word := func(s *site) string {
		found := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(s.get("/approvals"))
		if found == nil {
			t.Fatal("there is no form")
		}
		return found[1]
	}
	post := func(s *site, name, form string, header http.Header) int {
		t.Helper()
		answer, _ := s.ask(http.MethodPost, "/approvals/"+codes[name], header, url.Values{"form": {form}})
		return answer.StatusCode
	}
	for name, tt := range map[string]struct {
		s          *site
		name, form string
		header     http.Header
		want       int
	}{
		"no word":                 {alice, "jwt:alice", "", nil, http.StatusForbidden},
		"the word of another one": {alice, "jwt:alice", word(own), nil, http.StatusForbidden},
		"another site":            {alice, "jwt:alice", word(alice), http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		"another site's form":     {alice, "jwt:alice", word(alice), http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		"another's call":          {alice, "jwt:bobby", word(alice), nil, http.StatusNotFound},
		"nobody":                  {stranger, "jwt:alice", word(own), nil, http.StatusUnauthorized},
	} {
		if got := post(tt.s, tt.name, tt.form, tt.header); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if answer, _ := alice.ask(http.MethodGet, "/approvals/"+codes["jwt:alice"], nil, nil); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET = %d", answer.StatusCode)
	}
	for name, call := range calls {
		if by, err := words.Take(t.Context(), call, time.Now()); by != "" || err != nil {
			t.Errorf("the call of %s is approved by %q, %v", name, by, err)
		}
	}
	for name, by := range map[string]string{"jwt:alice": "alice on the page", "jwt:bobby": "me on the page"} {
		s := map[string]*site{"jwt:alice": alice, "jwt:bobby": own}[name]
		form := word(s)
		if got := post(s, name, form, nil); got != http.StatusSeeOther {
			t.Errorf("%s: %d", name, got)
		}
		if got := post(s, name, form, nil); got != http.StatusNotFound {
			t.Errorf("%s, again: %d", name, got)
		}
		if got, err := words.Take(t.Context(), calls[name], time.Now()); got != by || err != nil {
			t.Errorf("approved by %q, %v, want %q", got, err, by)
		}
	}
}
