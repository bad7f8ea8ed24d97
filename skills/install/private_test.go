package install

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const gitToken = "s3cret-token"

// private makes a repository ask for the token as a password.
func (r *repo) private() (stop func()) {
	at, _ := url.Parse(r.url)
	open := r.handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, password, _ := req.BasicAuth(); password != gitToken {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, req)
	}))
	r.url = server.URL + at.Path
	return server.Close
}

// logged makes git write its arguments into a file.
func (m *machine) logged(r *repo) (log string) {
	dir := m.t.TempDir()
	log = filepath.Join(dir, "log")
	wrapper := filepath.Join(dir, "git")
	text := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>" + log + "\nexec " + r.git + " \"$@\"\n"
	if err := os.WriteFile(wrapper, []byte(text), 0o700); err != nil {
		m.t.Fatal(err)
	}
	m.git = Git{Path: wrapper, Env: []string{"PATH=" + os.Getenv("PATH")}}
	return log
}

// A token reaches the host that it is for. It is in no argument, in no lock file and in no error.
func TestPrivateGit(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a")})
	defer r.private()()
	at, _ := url.Parse(r.url)
	m := newMachine(t)
	log := m.logged(r)
	i := m.open()
	for name, access := range map[string]Access{"none": {}, "wrong": {Tokens: map[string]string{at.Host: "wrong-" + gitToken}},
		"of another": {Tokens: map[string]string{"example.com": gitToken}}, "no helper": {Credentials: true}} {
		err := apply(t.Context(), i, Request{Source: r.url, Access: access})
		if err == nil || strings.Contains(err.Error(), gitToken) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	with := Access{Tokens: map[string]string{at.Host: gitToken}}
	if err := apply(t.Context(), i, Request{Source: r.url, Access: with}); err != nil {
		t.Fatal(err)
	}
	if plan, err := i.Update(t.Context(), nil, Moves{}, with); err != nil || len(plan.Refused) > 0 || plan.Close() != nil {
		t.Errorf("update = %+v, %v", plan, err)
	}
	// Another host that the source redirects to is not given it.
	var got bytes.Buffer
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got.WriteString(req.Header.Get("Authorization"))
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other.URL+req.URL.String(), http.StatusFound)
	}))
	defer named.Close()
	there, _ := url.Parse(named.URL)
	err := apply(t.Context(), i, Request{Source: named.URL + "/x.git", Name: "x",
		Access: Access{Insecure: true, Tokens: map[string]string{there.Host: gitToken}}})
	if err == nil || got.Len() > 0 {
		t.Errorf("another host got %q: %v", &got, err)
	}
	for _, file := range []string{log, LockFile(m.state)} {
		if text, err := os.ReadFile(file); err != nil || bytes.Contains(text, []byte(gitToken)) || len(text) == 0 {
			t.Errorf("%s: the token is in it, or %v", file, err)
		}
	}
}

// The credential helper of the user is asked if that was requested, and only for the host of the source.
func TestUserCredentials(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a")})
	defer r.private()()
	at, _ := url.Parse(r.url)
	home := t.TempDir()
	write(t, home, map[string]string{".gitconfig": "[credential]\n\thelper = store\n[core]\n\tsshCommand = false\n",
		".git-credentials": "http://user:" + gitToken + "@" + at.Host + "\n"})
	m := newMachine(t).withGit(r)
	m.git.User = []string{"HOME=" + home}
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: r.url}); err == nil {
		t.Error("the helper was asked without a request")
	}
	if err := apply(t.Context(), i, Request{Source: r.url, Access: Access{Credentials: true}}); err != nil {
		t.Error(err)
	}
}

// A host of a lock file is no setting of git.
func TestHostIsNoSetting(t *testing.T) {
	r := &repository{git: Git{Path: "/nowhere"}}
	for _, source := range []string{"https://x.helper=!id/a", "https://a=b/c", "https://a;b/c", "ssh://git@h/x", "git@h:x"} {
		err := r.logIn(t.Context(), source, Access{Credentials: true})
		if err != nil || len(r.login)+len(r.env) > 0 {
			t.Errorf("%s: settings %q, %v", source, r.login, err)
		}
	}
	if got := (Access{Tokens: map[string]string{"h": "x"}}).token(&url.URL{Scheme: "http", Host: "h"}); got != "" {
		t.Error("a token would go over plain http")
	}
}

// A mirror on this machine is a repository as any other.
func TestFileMirror(t *testing.T) {
	r := newRepo(t)
	commit := r.commit(map[string]string{"a/SKILL.md": skillText("a")})
	m := newMachine(t).withGit(r)
	m.install(Request{Source: "file://" + filepath.ToSlash(r.dir)})
	i := m.open()
	if e := i.Lock().Find("a"); e == nil || e.Origin.Commit != commit {
		t.Errorf("entry = %+v", e)
	}
	other := newMachine(t).withGit(r).open()
	if _, err := synced(t.Context(), other, Sync{Lock: i.Lock()}); err != nil {
		t.Error(err)
	}
}

// The authorities that the user's own git trusts are trusted: by the environment, and by the configuration.
func TestGitAuthorities(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a")})
	server := httptest.NewTLSServer(r.handler)
	t.Cleanup(server.Close)
	home := t.TempDir()
	authority := filepath.Join(home, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, block, 0o600); err != nil {
		t.Fatal(err)
	}
	configured := "[http \"" + server.URL + "\"]\n\tsslCAInfo = " + authority + "\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(configured), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		env, user []string
		fails     bool
	}{
		"none":           {fails: true},
		"GIT_SSL_CAINFO": {env: []string{"GIT_SSL_CAINFO=" + authority}},
		"SSL_CERT_FILE":  {env: []string{"SSL_CERT_FILE=" + authority}},
		"configuration":  {user: []string{"HOME=" + home}},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t).withGit(r)
			m.git.Env, m.git.User = append(m.git.Env, test.env...), test.user
			err := apply(t.Context(), m.open(), Request{Source: server.URL + "/pack.git"})
			if (err != nil) != test.fails {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// TestGitHints: what git prints leads to the cause, and to what can be done about it.
func TestGitHints(t *testing.T) {
	const check = "check that the address and the ref are right"
	for text, want := range map[string][2]string{
		"could not read Username for 'https://github.com': terminal prompts disabled": {
			"does not exist, or it is private", "--credentials"},
		"Authentication failed for 'https://h/x'":                                           {"failed", "check the token"},
		"unable to access 'https://h/x': server certificate verification failed. CAfile: x": {"certificate", "GIT_SSL_CAINFO"},
		"unable to access 'https://h/x': SSL certificate problem: self-signed certificate":  {"certificate", "GIT_SSL_CAINFO"},
		"unable to access 'https://h/x': gnutls_handshake() failed: Error in the pull function.": {
			"handshake", "GIT_SSL_CAINFO"},
		"unable to access 'https://h/x': Could not resolve host: h":          {"host: h", "check the network"},
		"aborting due to possible repository corruption on the remote side.": {"corruption", "the repository is damaged"},
		"unable to read 8190d3068de996428b5c1161b9ab47b373bb65ff":            {"read", "the repository is damaged"},
		"couldn't find remote ref nope":                                      {"ref nope", check},
		"repository 'https://h' not found":                                   {"not found", check},
	} {
		err := gitError("https://h/x", errors.New("git fetch: "+text))
		failed, ok := errors.AsType[*FetchError](err)
		if !ok || !strings.Contains(err.Error(), want[0]) || !strings.Contains(failed.Hint(), want[1]) {
			t.Errorf("%s: %v, %+v", text, err, failed)
		}
	}
}
