package main

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// TestPageSchemas wants the JSON of each screen as its schema says, over a session with a run, a refusal and
// a question.
func TestPageSchemas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []provenance.Event{
		{Kind: provenance.KindSessionStarted, Row: []byte(`{"server":{"version":"1","protocol":"x"}}`)},
		{Kind: provenance.KindRegistrySnapshot, Detail: "registry"},
		{Kind: provenance.KindScriptRequested, Row: []byte(`{"outputId":"ses_a:r:1"}`)},
		{Kind: provenance.KindApprovalAsked, Row: []byte(`{"outputId":"ses_a:r:1","args":["x"]}`)},
		{Kind: provenance.KindScriptExecuted, Row: []byte(`{"outputId":"ses_a:r:2","status":"executed"}`)},
		{Kind: provenance.KindPolicyDenied, Row: []byte(`{"observationDenied":{"code":"c","detail":"d","remedy":"r"}}`)},
	} {
		e.Session, e.Principal, e.Client, e.Skill, e.Path = "ses_a", "local", "c", "pdf", "scripts/a.sh"
		if err := store.Append(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	records, err := filestore.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	server := httptest.NewUnstartedServer(nil)
	home := t.TempDir()
	skill := filepath.Join(home, ".agents", "skills", "pdf")
	if err := os.MkdirAll(skill, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "---\nname: pdf\ndescription: Reads files. Use for files.\n---\n"
	if err := os.WriteFile(filepath.Join(skill, "SKILL.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{Process: config.Process{Env: func(name string) (string, bool) {
		if name == "HOME" || name == "USERPROFILE" {
			return home, true
		}
		return "", false
	}}}
	shown, err := page.New(page.Options{Records: records, Printed: a.printed}, server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	server.Config.Handler = shown.Handler()
	server.Start()
	defer server.Close()
	client := server.Client()
	client.Jar, _ = cookiejar.New(nil)
	_, token, _ := strings.Cut(shown.Link(), "#")
	answer, err := client.PostForm(server.URL+"/login", url.Values{"token": {token}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	for _, o := range outputs() {
		if o.page == "" {
			continue
		}
		answer, err := client.Get(server.URL + strings.NewReplacer("{id}", "ses_a", "{path}", "pdf").Replace(o.page))
		if err != nil {
			t.Fatal(err)
		}
		var got any
		err = json.NewDecoder(answer.Body).Decode(&got)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s = %d, %v: %v", o.page, answer.StatusCode, err, got)
			continue
		}
		s, err := outputSchema(o.name())
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := s.Resolve(&jsonschema.ResolveOptions{})
		if err != nil {
			t.Fatalf("%s: %v", o.name(), err)
		}
		if err := resolved.Validate(got); err != nil {
			t.Errorf("%s is not as its schema says: %v", o.page, err)
		}
	}
}
