package install

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/source/discovery"
)

func TestReadAddress(t *testing.T) {
	for text, want := range map[string]address{
		"o/r":                                 {source: "https://github.com/o/r", short: true, repo: true},
		"o/r@pdf":                             {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"pdf"}},
		"o/r@feature/x":                       {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"feature/x"}},
		"o/r@pdf@1.0":                         {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"pdf@1.0"}},
		"o/r@日本語":                             {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"日本語"}},
		"o/r@pdf,docx!":                       {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"pdf,docx!"}},
		"example.com/@o/r":                    {source: "https://example.com/@o/r", short: true},
		"github.com/o/r/tree/a@1/b":           {source: "https://github.com/o/r", short: true, repo: true, rest: []string{"a@1", "b"}},
		"https://github.com/o/r@pdf":          {source: "https://github.com/o/r", repo: true, skills: []string{"pdf"}},
		"o/r.":                                {source: "https://github.com/o/r", short: true, repo: true},
		"https://github.com/o/r/issues/1.":    {source: "https://github.com/o/r/issues/1", short: true, other: "a page about a repository"},
		"https://github.com/o/r),":            {source: "https://github.com/o/r", short: true, repo: true},
		"https://github.com/o/r/tree/main/a.": {source: "https://github.com/o/r", short: true, repo: true, rest: []string{"main", "a"}},
		"o/r#v1":                              {source: "https://github.com/o/r", short: true, repo: true, ref: "v1"},
		"o/r/skills/pdf":                      {source: "https://github.com/o/r", short: true, repo: true, dir: "skills/pdf"},
		"o/r/.claude/x/":                      {source: "https://github.com/o/r", short: true, repo: true, dir: ".claude/x"},
		"o/r/a@pdf":                           {source: "https://github.com/o/r", short: true, repo: true, dir: "a", skills: []string{"pdf"}},
		"gh:o/r/a/SKILL.md":                   {source: "https://github.com/o/r", short: true, repo: true, dir: "a"},
		"github.com/o/r/x/y":                  {source: "https://github.com/o/r/x/y", short: true},
		"github:o/r":                          {source: "https://github.com/o/r", short: true, repo: true},
		"gh:o/r@pdf":                          {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"pdf"}},
		"gitlab:g/sub/r":                      {source: "https://gitlab.com/g/sub/r", short: true, repo: true},
		"github.com/o/r":                      {source: "https://github.com/o/r", short: true, repo: true},
		"github.com/o/r/":                     {source: "https://github.com/o/r", short: true, repo: true},
		"example.com":                         {source: "https://example.com", short: true},
		"example.com:8443/x":                  {source: "https://example.com:8443/x", short: true},
		"https://example.com/":                {source: "https://example.com"},
		"git+https://h.org/r":                 {source: "https://h.org/r"},
		"https://github.com/o/r?tab=readme-ov-file#install": {source: "https://github.com/o/r", repo: true},
		"https://github.com/o/r/tree/main/skills/pdf": {source: "https://github.com/o/r", short: true, repo: true,
			rest: []string{"main", "skills", "pdf"}},
		"https://github.com/o/r/blob/main/skills/pdf/SKILL.md?plain=1": {source: "https://github.com/o/r",
			short: true, repo: true, file: true, rest: []string{"main", "skills", "pdf", "SKILL.md"}},
		"https://raw.githubusercontent.com/o/r/refs/heads/main/a/SKILL.md": {source: "https://github.com/o/r",
			short: true, repo: true, file: true, rest: []string{"main", "a", "SKILL.md"}},
		"https://gitlab.com/g/s/r/-/tree/feature/x/libs?ref_type=heads": {source: "https://gitlab.com/g/s/r.git",
			short: true, repo: true, rest: []string{"feature", "x", "libs"}},
		"https://codeberg.org/o/r/src/branch/main/a": {source: "https://codeberg.org/o/r", short: true, repo: true,
			rest: []string{"main", "a"}},
		"https://bitbucket.org/o/r/src/main/a/": {source: "https://bitbucket.org/o/r", short: true, repo: true,
			rest: []string{"main", "a"}},
		"https://github.com/o/r/issues/1": {source: "https://github.com/o/r/issues/1", other: "a page about a repository"},
		"https://github.com/o/r/pull/3/files": {source: "https://github.com/o/r/pull/3/files",
			other: "a page about a repository"},
		"https://github.com/o":            {source: "https://github.com/o", other: "the page of an account"},
		"https://skills.sh/o/r/pdf":       {source: "https://github.com/o/r", short: true, repo: true, skills: []string{"pdf"}},
		"skills.sh/o/r":                   {source: "https://github.com/o/r", short: true, repo: true},
		"https://github.com/o/r/tree/":    {source: "https://github.com/o/r", short: true, repo: true},
		"https://github.com/o/r/releases": {source: "https://github.com/o/r", short: true, repo: true},
		"https://github.com/o/r/releases/tag/v1": {source: "https://github.com/o/r", short: true, repo: true,
			tag: true, rest: []string{"v1"}},
		"https://github.com/o/r/releases/tag/pdf%2Fv1": {source: "https://github.com/o/r", short: true, repo: true,
			tag: true, rest: []string{"pdf", "v1"}},
		"https://github.com/o/r/commit/0123456789abcdef#diff-0a": {source: "https://github.com/o/r", short: true, repo: true,
			rest: []string{"0123456789abcdef"}},
		"https://github.com/o/r/releases#v1":    {source: "https://github.com/o/r", short: true, repo: true},
		"https://raw.githubusercontent.com/o/r": {source: "https://raw.githubusercontent.com/o/r"},
		"https://skills.sh/o":                   {source: "https://skills.sh/o"},
		"https://github.com/o/r/commit/0123456789abcdef": {source: "https://github.com/o/r", short: true, repo: true,
			rest: []string{"0123456789abcdef"}},
		"https://github.com/o/r.git":        {source: "https://github.com/o/r.git", repo: true},
		"https://h.org/group/sub/src/r.git": {source: "https://h.org/group/sub/src/r.git", repo: true},
	} {
		got, ok := readAddress(text)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %+v, %t, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", ".", "./o/r", "../o", "/o/r", "a/b/../c", "a/b//c", "skills", "x.zip", "git@github.com:o/r.git",
		"ssh://git@h/o/r", "oci://ghcr.io/o/r:1", "mcp+https://h/mcp", "mcp+stdio:./x", "https://u:p@h/o/r",
		"https://", "gh:@o/r", "a/b/..", ".,", "C:/skills", `C:\skills`, "o/r/../x"} {
		if got, ok := readAddress(text); ok {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

// An address is read without a fault, and its parts are parts of it or of a host that it names.
func FuzzReadAddress(f *testing.F) {
	for _, text := range []string{"o/r@x#y", "https://h/a/b/-/tree/c?d", "gh:o/r", "https://h/o/r/src/branch/m/x.md", "a.b/-/tree"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := readAddress(text)
		if !ok {
			return
		}
		if !isWeb(a.source) || strings.Contains(a.source, "@") && a.repo {
			t.Errorf("%q has the source %q", text, a.source)
		}
		if len(a.rest) > 0 {
			a.refAndPath([]string{strings.Join(a.rest, "/"), "main"})
		}
	})
}

// forge serves a repository at /o/r, with and without .git, and a page for each of its views.
func forge(t *testing.T, r *repo) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rest, ok := strings.CutPrefix(req.URL.Path, "/o/r")
		rest = strings.TrimPrefix(rest, ".git")
		switch {
		case ok && (rest == "/info/refs" || rest == "/git-upload-pack"):
			req.URL.Path = "/pack.git" + rest
			r.handler.ServeHTTP(w, req)
		case ok:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Write([]byte("<!doctype html>"))
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestInstallPage(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"skills/a/SKILL.md": skillText("a"), "skills/b/SKILL.md": skillText("b"),
		"skills/b/scripts/lib/x.py": "x\n"})
	r.run("branch", "feature")
	r.run("checkout", "--quiet", "-b", "feature-x/y")
	r.commit(map[string]string{"libs/c/SKILL.md": skillText("c")})
	site := forge(t, r)
	for page, want := range map[string]Origin{
		"/o/r/tree/main/skills/a":                         {Ref: "main", Subdir: "skills/a", Path: "skills/a"},
		"/o/r/blob/main/skills/b/SKILL.md":                {Ref: "main", Subdir: "skills/b", Path: "skills/b"},
		"/o/r/blob/main/skills/b/scripts/lib/x.py#L3":     {Ref: "main", Subdir: "skills/b", Path: "skills/b"},
		"/o/r/tree/main/skills/b/scripts":                 {Ref: "main", Subdir: "skills/b", Path: "skills/b"},
		"/o/r/tree/main/skills/b/SKILL.md":                {Ref: "main", Subdir: "skills/b", Path: "skills/b"},
		"/o/r/-/tree/feature-x/y/libs/c?ref_type=heads":   {Ref: "feature-x/y", Subdir: "libs/c", Path: "libs/c"},
		"/o/r/src/branch/feature-x/y/libs":                {Ref: "feature-x/y", Subdir: "libs", Path: "libs/c"},
		"/o/r/raw/refs/heads/feature-x/y/libs/c/SKILL.md": {Ref: "feature-x/y", Subdir: "libs/c", Path: "libs/c"},
	} {
		m := newMachine(t).withGit(r)
		m.install(Request{Source: site + page})
		all := m.open().Lock().Skills
		if len(all) != 1 {
			t.Errorf("%s installs %d skills", page, len(all))
			continue
		}
		want.Kind, want.Source, want.Commit = KindGit, site+"/o/r", all[0].Origin.Commit
		if strings.Contains(page, "/-/") {
			want.Source += ".git"
		}
		if all[0].Origin != want {
			t.Errorf("%s comes from %+v, want %+v", page, all[0].Origin, want)
		}
	}
	i := newMachine(t).withGit(r).open()
	fetches := 0
	i.SetStep(func(name string) error {
		if name == "fetch" {
			fetches++
		}
		return nil
	})
	if err := apply(t.Context(), i, Request{Source: site + "/o/r/blob/main/SKILL.md"}); err == nil || fetches != 1 {
		t.Errorf("a page without its file: %v after %d fetches", err, fetches)
	}
	for page, want := range map[string]string{
		"/o/r/tree/gone/skills":          `no branch and no tag "gone"`,
		"/o/r/blob/main/SKILL.md":        `the source has no file "SKILL.md"`,
		"/o/r/blob/main/skills/SKILL.md": `the source has no file "skills/SKILL.md"`,
		"/nothing":                       "neither a git repository nor a site",
		"/o/r/wiki":                      "a web page",
	} {
		if err := apply(t.Context(), i, Request{Source: site + page}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", page, err, want)
		}
	}
	tag := address{source: site + "/o/r", rest: []string{"nope", "v9"}, tag: true}
	if _, err := i.newPlan(func(p *Plan) error {
		return p.separate(t.Context(), &tag, &Request{Source: tag.source})
	}); err == nil || !strings.Contains(err.Error(), `has no tag "nope/v9"`) {
		t.Errorf("error for a tag that is gone = %v", err)
	}
	// Names choose among the skills; all of the wrong ones are named before anything is changed.
	if err := apply(t.Context(), i, Request{Source: site + "/o/r/tree/main", Skills: []string{"a", "nope"}}); err == nil ||
		!strings.Contains(err.Error(), `no skill "nope"`) {
		t.Errorf("error for a wrong name = %v", err)
	}
	if err := apply(t.Context(), i, Request{Source: site + "/o/r/tree/main", Skills: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	if got := names(i.Lock()); !slices.Equal(got, []string{"b"}) {
		t.Errorf("installed %q", got)
	}
}

// A name behind a repository is that of a skill, or else of a branch or a tag, or of nothing.
func TestInstallNamedRef(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"skills/a/SKILL.md": skillText("a"), "skills/v1/SKILL.md": skillText("v1")})
	r.run("tag", "v1")
	r.run("checkout", "--quiet", "-b", "feature/x")
	r.commit(map[string]string{"skills/v1/SKILL.md": skillText("v1") + "More.\n"})
	r.run("rm", "--quiet", "-r", "skills/v1")
	r.commit(map[string]string{"skills/b/SKILL.md": skillText("b")})
	r.run("rm", "--quiet", "-r", "skills/a")
	r.run("commit", "--quiet", "-m", "x")
	r.run("checkout", "--quiet", "main")
	for name, want := range map[string]string{"feature/x": "b at feature/x", "v1": "v1 at ", "a": "a at ",
		"b,a": `no skill "b,a"`, "feature/../x": `no skill "feature/../x"`} {
		i := newMachine(t).withGit(r).open()
		got := ""
		err := apply(t.Context(), i, Request{Source: r.url, Skills: []string{name}, orRef: name})
		if err != nil {
			got = err.Error()
		}
		for _, e := range i.Lock().Skills {
			got += e.Name + " at " + e.Origin.Ref
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// The address of a site leads to its index, of both versions, and to a SKILL.md alone.
func TestInstallSite(t *testing.T) {
	s := newServer(t)
	m := newMachine(t)
	s.put(discovery.OldPath, []byte(`{"skills":[{"name":"one","description":"x","files":["SKILL.md","references/a.md"]},
		{"name":"two","description":"x","files":["SKILL.md","../../secret"]}]}`))
	s.put("/.well-known/skills/one/SKILL.md", []byte(skillText("one")))
	s.put("/.well-known/skills/one/references/a.md", []byte("a"))
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: s.URL, Skills: []string{"one"}}); err != nil {
		t.Fatal(err)
	}
	e := i.Lock().Find("one")
	if e == nil || e.Origin.Source != s.URL+discovery.OldPath || e.Origin.Digest != e.Tree || len(e.Files) != 2 {
		t.Fatalf("entry = %+v", e)
	}
	if err := apply(t.Context(), i, Request{Source: s.URL, Skills: []string{"two"}}); err == nil ||
		!strings.Contains(err.Error(), "no path in a skill") {
		t.Errorf("error for a path out of the skill = %v", err)
	}
	if err := apply(t.Context(), i, Request{Source: s.URL, Skills: []string{"nope"}}); err == nil ||
		!strings.Contains(err.Error(), `the index has no skill "nope"`) {
		t.Errorf("error for a name that the index lacks = %v", err)
	}
	// A version without digests is compared when its files are here.
	s.put("/.well-known/skills/one/references/a.md", []byte("b"))
	updateAll(t, i)
	if now := i.Lock().Find("one"); now.Tree == e.Tree || now.Origin.Digest != now.Tree {
		t.Errorf("entry after the update = %+v", now)
	}
	s.put("/three/SKILL.md", []byte(skillText("three")))
	if err := apply(t.Context(), i, Request{Source: s.URL + "/three/SKILL.md"}); err != nil {
		t.Fatal(err)
	}
	if e := i.Lock().Find("three"); e == nil || e.Origin.Kind != KindURL || e.Origin.Path != "." {
		t.Errorf("entry = %+v", e)
	}
	verified(t, i)
}

// A branch that is gone is told from a server that does not answer, and the default branch is followed.
func TestUpdateBranchGone(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"skills/a/SKILL.md": skillText("a")})
	m := newMachine(t).withGit(r)
	m.install(Request{Source: r.url, Ref: "main"})
	r.run("branch", "-m", "main", "trunk")
	r.commit(map[string]string{"skills/a/SKILL.md": skillText("a") + "More.\n"})
	i := m.open()
	plan, err := i.Update(t.Context(), nil, Moves{}, Access{})
	if err != nil || len(plan.Refused) != 1 || !strings.Contains(plan.Refused[0].Reason, "the branch or tag main is gone; the default branch is trunk") {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	if err := plan.Close(); err != nil {
		t.Fatal(err)
	}
	plan, err = i.Update(t.Context(), nil, Moves{Follow: true}, Access{})
	if err := carryOut(t.Context(), plan, err); err != nil || len(plan.Refused) > 0 {
		t.Fatalf("plan = %+v, %v", plan, err)
	}
	e := i.Lock().Find("a")
	if e.Origin.Ref != "trunk" || e.Previous == nil || e.Previous.Origin == nil || e.Previous.Origin.Ref != "main" {
		t.Errorf("entry = %+v", e)
	}
	verified(t, i)
}
