package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// gitPath is git, which the test needs.
func gitPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git on PATH")
	}
	return path
}

// repo is a repository that is served over HTTP on this machine.
type repo struct {
	t   *testing.T
	dir string // of its files
	git string
	url string

	handler http.Handler
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	r := &repo{t: t, git: gitPath(t), dir: filepath.Join(t.TempDir(), "served", "pack.git")}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.run("init", "--quiet", "--initial-branch=main", ".")
	exec := strings.TrimSpace(r.run("--exec-path"))
	handler := &cgi.Handler{Path: filepath.Join(exec, "git-http-backend"), Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		InheritEnv: []string{"PATH"}, Stderr: io.Discard}
	if _, err := os.Stat(handler.Path); err != nil {
		t.Skip("needs git http-backend")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	r.url, r.handler = server.URL+"/pack.git", handler
	return r
}

// run runs git in the repository.
func (r *repo) run(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(r.git, args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(r.dir), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// commit commits files and returns the commit.
func (r *repo) commit(files map[string]string) string {
	r.t.Helper()
	write(r.t, r.dir, files)
	r.run("add", "--all", "--force", ".")
	r.run("commit", "--quiet", "--allow-empty", "-m", "x")
	return strings.TrimSpace(r.run("rev-parse", "HEAD"))
}

func (m *machine) withGit(r *repo) *machine {
	m.git = Git{Path: r.git, Env: []string{"PATH=" + os.Getenv("PATH")}}
	return m
}

func TestGitRefs(t *testing.T) {
	r := newRepo(t)
	old := r.commit(map[string]string{"skills/a/SKILL.md": skillText("a")})
	r.run("tag", "v1")
	r.run("branch", "side")
	head := r.commit(map[string]string{"skills/a/SKILL.md": skillText("a") + "More.\n"})
	for ref, want := range map[string]string{"": head, "main": head, "v1": old, "refs/tags/v1": old,
		"side": old, old: old} {
		t.Run("ref "+ref, func(t *testing.T) {
			m := newMachine(t).withGit(r)
			m.install(Request{Source: r.url, Ref: ref})
			e := m.open().Lock().Find("a")
			if e == nil || e.Origin != (Origin{Kind: KindGit, Source: r.url, Ref: ref, Commit: want,
				Path: "skills/a"}) {
				t.Errorf("entry = %+v, want commit %s", e, want)
			}
		})
	}
	i := newMachine(t).withGit(r).open()
	for _, ref := range []string{"gone", strings.Repeat("0", 40)} {
		if err := apply(t.Context(), i, Request{Source: r.url, Ref: ref}); err == nil ||
			!strings.Contains(err.Error(), "git fetch: ") {
			t.Errorf("error for the ref %s = %v", ref, err)
		}
	}
	for _, ref := range []string{"--upload-pack=touch x", "-x", "a:b", "+a", "a b", "a..b", "^a", "a@{1}",
		"a*", "a\n"} {
		if err := apply(t.Context(), i, Request{Source: r.url, Ref: ref}); err == nil ||
			!strings.Contains(err.Error(), "is not a name of a branch") {
			t.Errorf("error for the ref %q = %v", ref, err)
		}
	}
}

// TestHostileRepository installs from a repository that tries everything it can: what comes are the
// plain bytes of its files, and nothing runs.
func TestHostileRepository(t *testing.T) {
	r := newRepo(t)
	marker := filepath.Join(t.TempDir(), "ran")
	touch := "#!/bin/sh\ntouch " + marker + "\n"
	pointer := lfsMark + "\noid sha256:" + strings.Repeat("0", 64) + "\nsize 5\n"
	body := "$Id$ $Format:%H$ ä\r\nend\r\n"
	files := map[string]string{
		"a/SKILL.md": skillText("a"), "a/text.md": body, "a/ignored.md": "kept", "a/big.bin": pointer,
		"a/hooks/post-checkout": touch, ".githooks/post-checkout": touch,
		".gitattributes": "a/* filter=evil ident export-subst text eol=crlf\na/text.md " +
			"working-tree-encoding=UTF-16LE\na/ignored.md export-ignore\n*.bin filter=lfs diff=lfs " +
			"merge=lfs -text\n",
		".gitmodules": "[submodule \"x\"]\n\tpath = a/sub\n\turl = -u./payload\n",
		".lfsconfig":  "[lfs]\n\turl = ext::sh -c 'touch " + marker + "'\n",
	}
	// Attributes must not change what is committed either.
	attributes := files[".gitattributes"]
	delete(files, ".gitattributes")
	r.commit(files)
	for name, target := range map[string]string{"a/out": "../../../etc/passwd", "a/abs": "/etc/passwd",
		"a/in.md": "text.md", "a/up.md": "../.gitmodules"} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, r.dir, map[string]string{".gitattributes": attributes})
	r.run("update-index", "--add", "--cacheinfo",
		"160000,"+strings.TrimSpace(r.run("rev-parse", "HEAD"))+",a/sub")
	r.run("add", ".gitattributes", "a/out", "a/abs", "a/in.md", "a/up.md")
	r.run("commit", "--quiet", "-m", "x")
	write(t, r.dir, map[string]string{".git/hooks/post-upload-pack": touch,
		".git/hooks/post-checkout": touch})

	m := newMachine(t).withGit(r)
	i := m.open()
	plan, err := i.Add(t.Context(), Request{Source: r.url, Tier: skills.TierThirdParty})
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{reasonSubmodule, reasonLink, reasonLFS} {
		if !slices.ContainsFunc(plan.Notes, func(
			note string) bool {
			return strings.HasPrefix(note, reason)
		}) {
			t.Errorf("no note %q in %q", reason, plan.Notes)
		}
	}
	if err := plan.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(RootDir(m.state, skills.TierThirdParty), "a")
	for name, want := range map[string]string{"text.md": body, "in.md": body, "ignored.md": "kept",
		"big.bin": pointer, "hooks/post-checkout": touch} {
		if got, err := os.ReadFile(filepath.Join(place, name)); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
	// A link to another file of the repository is taken as that file.
	if info, err := os.Lstat(filepath.Join(place, "up.md")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("up.md = %v, %v", info, err)
	}
	for _, name := range []string{"out", "abs", "sub"} {
		if _, err := os.Lstat(filepath.Join(place, name)); err == nil {
			t.Errorf("%s was installed", name)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("something of the repository was run")
	}
	if info, err := os.Lstat(filepath.Join(place, "in.md")); err != nil || !info.Mode().IsRegular() {
		t.Error("a link was installed as a link")
	}
}

// TestUserConfiguration has a configuration of the user that would run programs and rewrite URLs.
func TestUserConfiguration(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a"), ".gitattributes": "* filter=evil\n"})
	home, marker := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	write(t, home, map[string]string{".gitconfig": fmt.Sprintf(
		"[filter \"evil\"]\n\tsmudge = touch %s\n\trequired = true\n[credential]\n\thelper = \"!touch "+
			"%s\"\n[url \"file:///nowhere\"]\n\tinsteadOf = http://\n", marker, marker)})
	m := newMachine(t)
	m.git = Git{Path: r.git, Env: []string{"PATH=" + os.Getenv("PATH")}}
	t.Setenv("HOME", home)
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, ".gitconfig"))
	m.install(Request{Source: r.url})
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program of the user's configuration was run")
	}
}

// TestBarePath: the path of a repository without a work tree has no skills, and its URL has.
func TestBarePath(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a")})
	bare := filepath.Join(t.TempDir(), "x.git")
	r.run("clone", "--quiet", "--bare", ".", bare)
	m := newMachine(t).withGit(r)
	_, err := m.open().Add(t.Context(), Request{Source: bare})
	refused, ok := errors.AsType[*SourceError](err)
	if !ok || !strings.HasSuffix(refused.Reason, "is a git repository") {
		t.Fatalf("error = %v", err)
	}
	m = newMachine(t).withGit(r)
	m.install(Request{Source: strings.TrimPrefix(refused.Hint, "give ")})
}

func TestResolve(t *testing.T) {
	for source, want := range map[string]string{
		"https://example.com/a/b":                          "",
		"ssh://git@example.com/a/b":                        "",
		"git@example.com:a/b.git":                          "",
		"http://127.0.0.1:8080/a":                          "",
		"git://[::1]/a":                                    "",
		"http://example.com/a":                             "can change what comes over http://",
		"git://example.com/a":                              "can change what comes over git://",
		"file:///srv/a":                                    "",
		"file:///srv/a?x":                                  "names no host",
		"file://localhost/srv/a":                           "the protocol file: is not used",
		"ext::sh -c touch% x":                              "is not a URL",
		"ext::sh":                                          "remote helpers",
		"fd::17":                                           "remote helpers",
		"https::https://example.com":                       "remote helpers",
		"ftp://example.com/a":                              "the protocol ftp: is not used",
		"https://user:secret@example.com/a":                "holds credentials",
		"https://token@example.com/a":                      "holds credentials",
		"https://example.com/a?token=x":                    "has a query",
		"https://-oProxyCommand=x/a":                       "names no host",
		"ssh://-oProxyCommand=x/a":                         "names no host",
		"ssh://-x@example.com/a":                           "is not a user",
		"--upload-pack=touch://x":                          "is not a URL",
		"https://example.com/a\nb":                         "is not a URL",
		"https://":                                         "names no host",
		"git+ssh://example.com/a":                          "the protocol git+ssh: is not used",
		"https://example.com/" + strings.Repeat("a", 3000): "is not a URL",
	} {
		_, err := resolve(source, "", false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: error = %v, want %q", source, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error tells the password: %v", source, err)
		}
		if _, ok := errors.AsType[*SourceError](err); err != nil && !ok {
			t.Errorf("%q: the error is a %T", source, err)
		}
	}
	if origin, err := resolve("HTTPS://Example.com/A", "", false); err != nil ||
		origin.Source != "https://Example.com/A" {
		t.Errorf("origin = %+v, %v", origin, err)
	}
	if isURL("-oProxyCommand=x@host:a") || isURL("C:/skills") || isURL("./a:b") {
		t.Error("a path is taken for a URL")
	}
}
