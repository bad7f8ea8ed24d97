// Package page is the operator's page: what agents did, what was refused, and what may run, as HTML and as
// JSON, over the records of a provenance.Reader. It changes nothing but that a viewer can approve a
// call that waits for their word, and takes all text in a record for hostile.
package page

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/provenance"
)

//go:embed static
var assets embed.FS

// Options are what a page shows.
type Options struct {
	Records provenance.Reader
	Place   string // of the records, for an empty page
	State   string // directory of stored trees, for what models were shown

	// Printed returns what a command of skillsd prints with --json.
	Printed func(ctx context.Context, words ...string) ([]byte, error)
	// Show gives the operator a link.
	Show func(link string)
	// Live returns what a running server knows of the moment; nil without one.
	Live func(context.Context) (serve.Live, error)
	// Members returns what takes part in the cluster of the server; nil without one.
	Members func(context.Context) (*cluster.Members, error)

	Updates bool          // ask the sources of installed skills what an update would bring
	AskLife time.Duration // for which a user may answer a question

	// Words has the calls that wait for a user's word; nil for none. User is who opened the link, as the
	// system names them.
	Words *approval.Elsewhere
	User  string

	OIDC *serve.Login // nil for a link
	Log  *slog.Logger // of logins that failed; nil discards

	Now func() time.Time // nil is time.Now
}

// Page serves the screens. It is safe for concurrent use.
type Page struct {
	Options
	access access
	routes []string // the patterns of all, for tests

	lists    lists
	folds    folds
	verdicts verdicts
	machine  machine
	updates  updates
	streams  streams
}

// New returns a page that answers at a host and port. Its first link is in [Page.Link].
//
// Errors: the error of the system's random source.
func New(o Options, addr string) (*Page, error) {
	p := &Page{Options: o}
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if err := p.access.start(addr, &p.Options); err != nil {
		return nil, err
	}
	return p, nil
}

// Close waits until nothing is computed in the background. Records may be closed then.
func (p *Page) Close() { p.verdicts.close() }

// Handler returns the handler of all routes.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		p.routes = append(p.routes, pattern)
		mux.HandleFunc(pattern, h)
	}
	both := func(path, name string, data func(r *http.Request) (any, error)) {
		handle("GET "+path, p.screen(name, data))
		handle("GET "+path+".json", p.document(data))
	}
	handle("GET /static/{name}", p.static)
	handle("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	handle("GET /login", p.loginForm)
	if p.OIDC == nil {
		handle("POST /login", p.login)
	} else {
		handle("GET /login/start", p.signIn)
		handle("GET "+serve.LoginCallback, p.signedIn)
	}
	handle("POST /logout", p.signOut)
	handle("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/sessions", http.StatusSeeOther)
	})
	both("/sessions", "sessions", p.sessions)
	handle("GET /sessions/{id}", p.screen("session", p.session))
	handle("GET /sessions/{id}/session.json", p.document(p.session))
	handle("GET /sessions/{id}/replay", p.screen("replay", p.replay))
	handle("GET /sessions/{id}/replay.jsonl", p.raw(p.replayLines))
	handle("GET /sessions/{id}/events/{seq}", p.screen("event", p.event))
	handle("GET /sessions/{id}/events/{seq}/line.json", p.raw(p.eventLine))
	handle("GET /sessions/{id}/outputs/{name}", p.raw(p.output))
	both("/refusals", "refusals", p.refusals)
	both("/approvals", "approvals", p.approvals)
	handle("POST /approvals/{code}", p.approve)
	both("/allowed", "allowed", operators(p.allowed))
	both("/skills", "skills", operators(p.skills))
	both("/skill", "skill", operators(p.skill))
	both("/health", "health", p.health)
	handle("GET /live", p.changes)
	return p.access.guard(mux)
}

// operators lets only operators see what shows this machine.
func operators(data func(r *http.Request) (any, error)) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if !viewerOf(r.Context()).operator {
			return nil, errOperators
		}
		return data(r)
	}
}

// view is a screen with what it shows.
type view struct {
	Title, Nav string
	JSON       string // where the same is as JSON
	State      string // changes with what is shown, as live connections say
	Unread     string // why the records, which a screen does not need, cannot be read; empty if they can
	Viewer     viewer
	Now        time.Time
	Query      map[string]string // the filters as they were given
	Data       any
}

// navRow is a link to a screen.
type navRow struct {
	Path, Title string
	Here        bool
}

// Links returns the links to the screens of a viewer.
func (v view) Links() []navRow {
	rows := []navRow{{"/sessions", "Sessions", false}, {"/refusals", "Refusals", false},
		{"/approvals", "Approvals", false}}
	if v.Viewer.operator {
		rows = append(rows, navRow{"/allowed", "What may run", false}, navRow{"/skills", "Skills", false})
	}
	rows = append(rows, navRow{"/health", "Health", false})
	for i := range rows {
		rows[i].Here = rows[i].Path == "/"+v.Nav
	}
	return rows
}

// stateClass returns how a state of a session is painted.
func stateClass(state provenance.State) string {
	switch state {
	case provenance.StateOpen:
		return "good"
	case provenance.StateEnded:
		return "plain"
	}
	return "bad"
}

// missing is the error of what is not there; its text may be shown.
type missing string

func (m missing) Error() string { return string(m) }

// screen answers with HTML.
func (p *Page) screen(name string, data func(r *http.Request) (any, error)) http.HandlerFunc {
	titles := map[string][2]string{
		"sessions": {"Sessions", "sessions"}, "session": {"Session", "sessions"},
		"event": {"Event", "sessions"}, "replay": {"What the model was shown", "sessions"},
		"refusals": {"Refusals", "refusals"}, "approvals": {"Approvals", "approvals"},
		"allowed": {"What may run", "allowed"}, "skills": {"Skills", "skills"}, "skill": {"Skill", "skills"},
		"health": {"Health", "health"},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		state, unread := p.changed(r, r.PathValue("id")) // before what it is about
		found, err := data(r)
		status := http.StatusOK
		ending := map[string]string{"session": "/session.json", "replay": ".jsonl", "event": "/line.json"}
		same := *r.URL
		same.Path += cmp.Or(ending[name], ".json")
		v := view{Title: titles[name][0], Nav: titles[name][1], JSON: same.RequestURI(), State: state,
			Viewer: viewerOf(r.Context()), Now: p.Now(), Query: map[string]string{}, Data: found}
		for key, values := range r.URL.Query() {
			v.Query[key] = values[0]
		}
		if unread != nil {
			_, v.Unread = p.fault(r, unread)
		}
		if err != nil {
			status, v.Data = p.fault(r, err)
			v.JSON, v.Unread = "", ""
			p.render(w, status, &v)
			return
		}
		p.render(w, status, &v)
	}
}

func (p *Page) render(w http.ResponseWriter, status int, v *view) {
	screen := v.node()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = screen.Render(w) // a browser that left is no fault
}

// document answers with the JSON of what a screen shows.
func (p *Page) document(data func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := data(r)
		status := http.StatusOK
		if err != nil {
			var text string
			status, text = p.fault(r, err)
			found = map[string]string{"error": text}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(found)
	}
}

// raw answers with bytes, or says why not.
func (p *Page) raw(answer func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := answer(w, r); err != nil {
			status, text := p.fault(r, err)
			http.Error(w, text, status)
		}
	}
}

// fault returns the status and the text of an answer instead of what was asked for.
func (p *Page) fault(r *http.Request, err error) (status int, text string) {
	gone, ok := errors.AsType[missing](err)
	switch {
	case ok:
		return http.StatusNotFound, string(gone)
	case errors.Is(err, approval.ErrNoCall):
		return http.StatusNotFound, approval.ErrNoCall.Error()
	case errors.Is(err, errOperators):
		return http.StatusForbidden, err.Error()
	case errors.Is(err, provenance.ErrNotFound), errors.Is(err, provenance.ErrInvalid):
		return http.StatusNotFound, "this is not kept"
	}
	p.Log.WarnContext(r.Context(), "a screen cannot be shown", slog.String("path", r.URL.Path), tint.Err(err))
	if viewerOf(r.Context()).operator {
		return http.StatusInternalServerError, err.Error()
	}
	// It may name places of this machine.
	return http.StatusInternalServerError, "this cannot be read; the log of skillsd says why"
}

// static answers with an embedded file.
func (p *Page) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	// The tables of the system may say something else.
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
	w.Header().Set("Content-Type", kinds[path.Ext(name)])
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, assets, "static/"+name)
}

// limited writes at most left bytes, and remembers that there were more.
type limited struct {
	to   io.Writer
	left int
	over bool
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	l.over = l.over || n < len(b)
	if _, err := l.to.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
