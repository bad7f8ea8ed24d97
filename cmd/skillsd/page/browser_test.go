package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/e2e/browser"
	"github.com/skillsd/skillsd/mcpserver/httpauth/oidctest"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// TestMain ends the browser of the tests, if they started one.
func TestMain(m *testing.M) {
	code := m.Run()
	if stop != nil {
		stop()
	}
	os.Exit(code)
}

// stop ends the shared browser; nil if there is none.
var stop func()

// shared is the browser of all tests: to start one takes as long as most of them, and each tab has its own cookies.
var shared = sync.OnceValues(func() (*browser.Browser, error) {
	dir, err := os.MkdirTemp("", "page-test-")
	if err != nil {
		return nil, err
	}
	b, err := browser.Start(context.Background(), browser.Find(), dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		b.Close()
		os.RemoveAll(dir)
	}
	return b, nil
})

// chromium returns the browser of all tests, or skips.
func chromium(t *testing.T) *browser.Browser {
	t.Helper()
	if browser.Find() == "" {
		t.Skip("missing capability: a Chromium (Debian: chromium-headless-shell)")
	}
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tab is a page of a browser whose steps end the test if they fail.
type tab struct {
	*browser.Tab
	t *testing.T
}

func newTab(t *testing.T, b *browser.Browser) *tab {
	t.Helper()
	opened, err := b.Tab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return &tab{opened, t}
}

func (b *tab) open(url string) {
	b.t.Helper()
	if err := b.Open(url); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what an expression in the page is.
func eval[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	if err := b.Eval(expression, &value); err != nil {
		b.t.Fatal(err)
	}
	return value
}

// until waits until an expression in the page is true, whatever page that is by then.
func (b *tab) until(expression string) {
	b.t.Helper()
	for b.t.Context().Err() == nil {
		// A page that is left while it is asked answers with an error.
		if got := false; b.Eval(`new Promise(r => setTimeout(() => r(!!(`+expression+`)), 20))`, &got) == nil && got {
			return
		}
	}
	b.t.Fatalf("never true: %s", expression)
}

// resize gives the open page a width and a height, and the colours that the user prefers.
func (b *tab) resize(width, height int, dark bool) {
	b.t.Helper()
	if err := b.Screen(width, height, dark); err != nil {
		b.t.Fatal(err)
	}
	b.until(fmt.Sprintf(`innerWidth === %d && matchMedia("(prefers-color-scheme: dark)").matches === %v`, width, dark))
}

// login opens the link of a page, whose script sends the key in it.
func (b *tab) login(s *site) {
	b.t.Helper()
	b.open(s.link)
	b.until(`location.pathname === "/sessions" && document.readyState === "complete"`)
}

// verified waits until the list of sessions says that a record is verified.
func (b *tab) verified(id string) {
	b.t.Helper()
	b.until(`[...document.querySelectorAll("tbody tr")].some(r => r.textContent.includes("verified") &&
		!r.textContent.includes("being") && r.querySelector("a[href='/sessions/` + id + `']"))`)
}

// quiet wants nothing said on the console, and no report of a broken policy.
func (b *tab) quiet(where string) {
	b.t.Helper()
	for _, problem := range b.Problems() {
		b.t.Errorf("%s: the console says %s", where, problem)
	}
}

// shape is an expression: the title, and the elements without those in which foreign text is shown.
const shape = `JSON.stringify([document.title, [...document.querySelectorAll("*")]
	.filter(e => !e.matches(".mark, .copy, .copy *, bdi, #state *")).map(e => e.tagName + "." + e.className)])`

// TestBrowserHostileText wants each screen the same in a browser whatever a record says, and silence.
func TestBrowserHostileText(t *testing.T) {
	t.Parallel()
	b := chromium(t)
	var tabs [2]*tab
	var sites [2]*site
	for i, text := range []string{"plain", hostile} {
		sites[i], tabs[i] = open(t, corpus(t, t.TempDir(), "ses_a", text)), newTab(t, b)
		tabs[i].login(sites[i])
		tabs[i].verified("ses_a")
	}
	for _, path := range routes("ses_a") {
		var shapes [2]string
		for i, tab := range tabs {
			tab.Problems()
			tab.open(sites[i].base + path)
			shapes[i] = eval[string](tab, shape)
			tab.quiet(path)
			// What is folded in must be as inert.
			eval[any](tab, `document.querySelectorAll("details").forEach(d => d.open = true)`)
		}
		if shapes[0] != shapes[1] {
			t.Errorf("%s differs with hostile text:\n%s\n%s", path, shapes[0], shapes[1])
		}
	}
	if n := eval[int](tabs[1], `document.cookie.length`); n != 0 {
		t.Error("scripts of the page can read its cookie")
	}
}

// TestBrowserWidths wants no screen wider than the window.
func TestBrowserWidths(t *testing.T) {
	t.Parallel()
	s, tab := open(t, corpus(t, t.TempDir(), "ses_a", hostile+strings.Repeat("x", 3000))), newTab(t, chromium(t))
	tab.login(s)
	for _, path := range routes("ses_a") {
		tab.open(s.base + path)
		for _, width := range []int{320, 800, 1280} {
			tab.resize(width, 700, width == 800)
			got := eval[[2]int](tab, `[document.documentElement.scrollWidth, document.documentElement.scrollHeight -
				Math.ceil(document.querySelector("main").getBoundingClientRect().bottom + scrollY)]`)
			if got[0] > width {
				t.Errorf("%s is %d pixels wide in a window of %d", path, got[0], width)
			}
			if fits := 700; got[1] > fits {
				t.Errorf("%s has %d empty pixels below its end", path, got[1])
			}
		}
	}
}

// TestBrowserBadges wants no word of a badge broken, in the widths of a screen and of a phone.
func TestBrowserBadges(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, state := range []string{"allowed", "unpinned", "changed", "missing", "unsupported", "unreleased"} {
		rows = append(rows, fmt.Sprintf(`{"script":"plain:plain","state":%q,"target":"host",
			"program":"/usr/local/bin/an-interpreter-with-a-long-name","detail":"a tool; `+"`skillsd allow a`"+`",
			"pin":"sha256:095d3d3efaaa72dc060c8b8814ed14bac3cbb6c523dad1a6d42bd2d8548fa245",
			"network":["name-of-a-host.internal.example.org:8443"],"env":["A_LONG_NAME_OF_A_VARIABLE"]}`, state))
	}
	s := open(t, corpus(t, t.TempDir(), "ses_a", "plain"), func(o *page.Options, _ string) {
		printed := o.Printed
		o.Printed = func(ctx context.Context, words ...string) ([]byte, error) {
			if words[0] == "allow" {
				return []byte("[" + strings.Join(rows, ",") + "]"), nil
			}
			return printed(ctx, words...)
		}
	})
	tab := newTab(t, chromium(t))
	tab.login(s)
	tab.open(s.base + "/allowed")
	if n := eval[int](tab, `document.querySelectorAll("td .tag").length`); n != 2*len(rows) {
		t.Fatalf("%d badges, want a state and a last run in each of %d rows", n, len(rows))
	}
	for _, path := range routes("ses_a") {
		tab.open(s.base + path)
		for _, width := range []int{320, 900, 1000, 1280, 1600} {
			tab.resize(width, 700, false)
			for _, word := range eval[[]string](tab, brokenWords) {
				t.Errorf("%s breaks the badge %q in a window of %d pixels", path, word, width)
			}
		}
	}
}

// brokenWords is an expression: the words of badges that are on more than one line.
const brokenWords = `[...document.querySelectorAll(".tag")].flatMap(badge => {
	const texts = document.createTreeWalker(badge, NodeFilter.SHOW_TEXT), broken = [];
	while (texts.nextNode()) {
		for (const word of texts.currentNode.data.matchAll(/[^\s-]+/g)) {
			const range = document.createRange();
			range.setStart(texts.currentNode, word.index);
			range.setEnd(texts.currentNode, word.index + word[0].length);
			if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) broken.push(word[0]);
		}
	}
	return broken;
})`

// TestBrowserLive wants what is recorded shown without a reload, with what the viewer opened still open.
func TestBrowserLive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	corpus(t, dir, "ses_a", "plain")
	s, b := open(t, dir), chromium(t)
	list, one := newTab(t, b), newTab(t, b)
	list.login(s)
	s.jar = nil
	cookies := struct{ Cookies []map[string]any }{}
	if err := list.Call("Network.getCookies", struct{}{}, &cookies); err != nil {
		t.Fatal(err)
	}
	for _, c := range cookies.Cookies {
		if err := one.Call("Network.setCookie", map[string]any{"name": c["name"], "value": c["value"],
			"url": s.base}, nil); err != nil {
			t.Fatal(err)
		}
	}
	list.until(`document.getElementById("state").textContent === "live"`)

	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	add := func(kind provenance.Kind, detail string) {
		t.Helper()
		e := &provenance.Event{Session: "ses_b", Kind: kind, Principal: "bob", Client: "c", Detail: detail}
		if kind == provenance.KindSessionStarted {
			e.Row = []byte(`{"server":{"version":"1","protocol":"x"}}`)
		}
		if err := store.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	add(provenance.KindSessionStarted, "")
	list.until(`document.querySelector("tbody a[href='/sessions/ses_b']")`)
	one.open(s.base + "/sessions/ses_b")
	one.until(`document.getElementById("state").textContent === "live"`)
	one.until(`document.querySelectorAll(".timeline > li").length === 1`)
	eval[any](one, `window.kept = true`)
	add(provenance.KindDriftDetected, "a file")
	one.until(`document.querySelectorAll(".timeline > li").length === 2`)
	one.until(`document.querySelector(".facts").textContent.includes("verified to event 2")`)
	if !eval[bool](one, `window.kept === true`) {
		t.Error("the page was loaded again instead of brought up to date")
	}
	list.quiet("the list")
	one.quiet("the session")
}

// TestBrowserKeyboard wants everything reached and used by keys alone, in the order in which it is read.
func TestBrowserKeyboard(t *testing.T) {
	t.Parallel()
	s, tab := open(t, corpus(t, t.TempDir(), "ses_a", "plain")), newTab(t, chromium(t))
	tab.login(s)
	press := func(keys ...string) {
		t.Helper()
		if err := tab.Press(keys...); err != nil {
			t.Fatal(err)
		}
	}
	// walk tabs through the page, and returns what had the focus.
	walk := func() (list []string) {
		for range 200 {
			press("Tab")
			got := eval[string](tab, `(() => { const e = document.activeElement; if (e === document.body) return "";
				const shown = getComputedStyle(e).outlineStyle !== "none";
				return (shown ? "" : "NO OUTLINE ") + e.tagName + " " + (e.getAttribute("href") || e.name || e.textContent.slice(0, 20)); })()`)
			if got == "" || len(list) > 0 && got == list[0] {
				return list
			}
			list = append(list, got)
		}
		return list
	}
	for _, path := range routes("ses_a") {
		tab.open(s.base + path)
		eval[any](tab, `document.activeElement.blur()`)
		want := eval[int](tab, `document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']").length`)
		hidden := eval[int](tab, `document.querySelectorAll("details:not([open]) > :not(summary) a[href], details:not([open]) > :not(summary) button, details:not([open]) > [tabindex='0']").length`)
		got := walk()
		if len(got) != want-hidden {
			t.Errorf("%s: keys reach %d of %d controls: %q", path, len(got), want-hidden, got)
		}
		for i, one := range got {
			if strings.HasPrefix(one, "NO OUTLINE") {
				t.Errorf("%s: stop %d shows no focus: %s", path, i, one)
			}
		}
		if len(got) > 0 && got[0] != "A #main" {
			t.Errorf("%s: the first stop is %q, want the link to the content", path, got[0])
		}
	}
	tab.open(s.base + "/sessions/ses_a")
	for eval[string](tab, `document.activeElement.tagName`) != "SUMMARY" {
		press("Tab")
	}
	press("Enter")
	if !eval[bool](tab, `document.activeElement.parentElement.open`) {
		t.Error("Enter does not open an output")
	}
}

// TestBrowserFilters wants the list as a viewer's form asks for it, and back as it was.
func TestBrowserFilters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	corpus(t, dir, "ses_a", "plain")
	long(t, dir, "ses_b", 3)
	s, tab := open(t, dir), newTab(t, chromium(t))
	tab.login(s)
	rows := `[...document.querySelectorAll("tbody [data-label=Session] a")].map(a => a.getAttribute("href").slice(10)).sort().join(" ")`
	for _, test := range []struct{ name, value, want string }{
		{"principal", "LOC", "ses_b"}, {"principal", "pla", "ses_a"}, {"client", "plain", "ses_a"},
		{"skill", "pdf", ""}, {"skill", "plain", "ses_a"}, {"state", "ended", "ses_a"},
		{"state", "crashed", "ses_b"}, {"denied", "", "ses_a"},
	} {
		tab.open(s.base + "/sessions")
		if got := eval[string](tab, rows); got != "ses_a ses_b" {
			t.Fatalf("without a filter: %q", got)
		}
		eval[any](tab, fmt.Sprintf(`(() => { const e = document.querySelector("[name=%s]");
			if (e.type === "checkbox") e.checked = true; else e.value = %q; })()`, test.name, test.value))
		eval[any](tab, `void setTimeout(() => document.querySelector("#filters button").click())`)
		if err := tab.Loaded(); err != nil {
			t.Fatal(err)
		}
		if got := eval[string](tab, rows); got != test.want {
			t.Errorf("%s=%s: %q, want %q", test.name, test.value, got, test.want)
		}
		eval[any](tab, `void setTimeout(() => history.back())`)
		tab.until(`location.search === "" && document.readyState === "complete"`)
	}
	tab.quiet("filters")
}

// TestBrowserLong wants a session of 10,000 events painted soon, in pages.
func TestBrowserLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	long(t, dir, "ses_long", 10_000)
	s, tab := open(t, dir), newTab(t, chromium(t))
	tab.login(s)
	tab.open(s.base + "/sessions/ses_long")
	painted := `new Promise(done => new PerformanceObserver(l => done(Math.round(l.getEntries()[0].startTime)))
		.observe({type: "paint", buffered: true}))`
	t.Logf("painted first after %d ms, read for the first time", eval[int](tab, painted))
	if n := eval[int](tab, `document.querySelectorAll(".timeline > li").length`); n != 200 {
		t.Errorf("the first page has %d calls, want 200", n)
	}
	eval[any](tab, `void setTimeout(() =>
		[...document.querySelectorAll(".pages a")].find(a => a.textContent === "Last").click())`)
	if err := tab.Loaded(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the last page painted first after %d ms", eval[int](tab, painted))
	if !eval[bool](tab, `!!document.getElementById("e10000")`) {
		t.Error("the last page lacks event 10000")
	}
	tab.quiet("a long session")
}

// TestBrowserLogin wants one browser in, once, and no other site.
func TestBrowserLogin(t *testing.T) {
	t.Parallel()
	s, b := open(t, corpus(t, t.TempDir(), "ses_a", "plain")), chromium(t)
	first := newTab(t, b)
	first.login(s)
	if eval[bool](first, `location.href.includes("#") || history.length > 3`) {
		t.Error("the key stays in the address")
	}
	second := newTab(t, b)
	second.open(s.link)
	second.until(`document.querySelector("[role=alert]")`)
	if got := eval[string](second, `document.body.textContent`); !strings.Contains(got, "This link was used") {
		t.Errorf("the second use says %q", got)
	}
	second.open(s.base + "/sessions")
	if got := eval[string](second, `location.pathname`); got != "/login" {
		t.Errorf("without the cookie /sessions is %s", got)
	}
	// Another site on this machine asks, in the browser of the viewer.
	_, port, _ := strings.Cut(strings.TrimPrefix(s.base, "http://"), ":")
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	first.open(strings.Replace(foreign.URL, "127.0.0.1", "localhost", 1))
	if got := eval[string](first, `fetch("`+s.base+`/sessions.json", {credentials: "include"})
		.then(() => "read", () => "refused")`); got != "refused" {
		t.Errorf("another site's request is %s", got)
	}
	first.Problems() // the browser says that it refused it
	first.open("http://localhost:" + port + "/sessions")
	if got := eval[string](first, `location.pathname`); got != "/login" {
		t.Errorf("the cookie opens another name: %s", got)
	}
}

// TestBrowserSignIn wants a browser in by a provider, which is another site to it, and out again.
func TestBrowserSignIn(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	provider.LogIn(map[string]any{"sub": "olga", "roles": "ops"})
	// The provider is on 127.0.0.1: a browser takes that and localhost for two sites.
	s := open(t, corpus(t, t.TempDir(), "ses_a", "plain"), oidc(provider, "http", "localhost"))
	tab := newTab(t, chromium(t))
	tab.open(s.link)
	tab.until(`location.pathname === "/login" && document.readyState === "complete"`)
	eval[any](tab, `void setTimeout(() => document.querySelector("a.button").click())`)
	tab.until(`location.pathname === "/sessions" && document.readyState === "complete"`)
	if got := eval[string](tab, `document.querySelector("header form").textContent`); !strings.Contains(got, "olga") {
		t.Errorf("the header says %q, want who looks", got)
	}
	eval[any](tab, `void setTimeout(() => document.querySelector("header button").click())`)
	tab.until(`location.pathname === "/login" && document.readyState === "complete"`)
}

// TestBrowserAxe wants no finding of axe-core on any screen, in light and dark.
func TestBrowserAxe(t *testing.T) {
	t.Parallel()
	b := chromium(t)
	axe := axeSource(t)
	s, first := open(t, corpus(t, t.TempDir(), "ses_a", hostile)), newTab(t, b)
	first.login(s)
	paths := []string{s.base + "/login", s.base + "/sessions/nope", s.base + "/sessions?state=open"}
	for _, path := range routes("ses_a") {
		paths = append(paths, s.base+path)
	}
	// A provider that does not answer has the login say so.
	provider := oidctest.New(t)
	signIn := open(t, t.TempDir(), oidc(provider, "http"))
	provider.Close()
	paths = append(paths, signIn.base+"/login", signIn.base+"/login/start", signIn.base+"/login/callback?code=x")
	empty := open(t, t.TempDir())
	second := newTab(t, b)
	second.login(empty)
	audit := func(tab *tab, address string) {
		t.Helper()
		tab.resize(1280, 900, false)
		tab.open(address)
		eval[any](tab, `document.querySelectorAll("details").forEach(d => d.open = true)`)
		eval[any](tab, axe+"\n;undefined")
		for _, dark := range []bool{false, true} {
			tab.resize(1280, 900, dark)
			// Only the contrasts are others in the dark.
			rules := map[bool]string{true: `, runOnly: {type: "rule", values: ["color-contrast"]}`}[dark]
			for _, found := range eval[[]string](tab, `axe.run(document, {resultTypes: ["violations"]`+rules+`}).then(r =>
				r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes[0].html.slice(0, 300) + " " +
				v.nodes[0].failureSummary))`) {
				t.Errorf("%s, dark %v: %s", address, dark, found)
			}
		}
	}
	for _, address := range paths {
		audit(first, address)
	}
	for _, path := range []string{"/sessions", "/refusals", "/approvals", "/login"} { // without records
		audit(second, empty.base+path)
	}
}

// axeSource returns axe-core, which npm fetches once into the cache of this user, or skips.
func axeSource(t *testing.T) string {
	t.Helper()
	const version = "4.14.1"
	cache, err := os.UserCacheDir()
	npm, missing := exec.LookPath("npm")
	if err != nil || missing != nil {
		t.Skip("missing capability: npm, which fetches axe-core")
	}
	dir := filepath.Join(cache, "skillsd-test", "axe-core-"+version)
	file := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(file); err != nil {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, npm, "install", "--ignore-scripts", "--no-fund", "--no-audit",
			"--no-save", "--prefix", dir, "axe-core@"+version).CombinedOutput()
		if err != nil {
			t.Skipf("missing capability: axe-core %s from npm: %v: %.300s", version, err, out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
