// Package page is the operator's page: what agents did, what was refused, and what may run, as HTML and JSON,
// from the records of a provenance.Reader. It changes nothing, except that a viewer can approve a waiting
// call. It treats all text in a record as hostile.
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

// Options are the sources of a page.
type Options struct {
	Records   provenance.Reader
	Directory string // of the records, for an empty page
	State     string // directory of stored trees, for texts shown to models

	// Printed returns the --json output of a skillsd command.
	Printed func(ctx context.Context, words ...string) ([]byte, error)
	// Show shows a link to the operator.
	Show func(link string)
	// Live returns the current state of a running server; nil without one.
	Live func(context.Context) (serve.Live, error)
	// Members returns the participants of the server's cluster; nil without one.
	Members func(context.Context) (*cluster.Members, error)

	Updates bool          // check the sources of installed skills for updates
	AskLife time.Duration // how long a user may answer a question

	// Codes holds the calls that wait for the user's decision; nil without any. The user who opens the link
	// has the name User.
	Codes *approval.Codes
	User  string

	OIDC *serve.Login // nil: access by a link
	Log  *slog.Logger // of failed logins; nil discards

	Now func() time.Time // nil means time.Now
}

// Page serves the screens. It is safe for concurrent use.
type Page struct {
	Options
	access access
	routes []string // patterns of all routes, for tests

	lists    lists
	folds    folds
	verdicts verdicts
	machine  machine
	updates  updates
	streams  streams
}

// New returns a page for a host and port. Its first link is returned by [Page.Link].
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

// Close waits for work in the background. Records may be closed after it.
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
	handle("GET /static/{name}", static)
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

// operators restricts data about this machine to operators.
func operators(data func(r *http.Request) (any, error)) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if !viewerOf(r.Context()).operator {
			return nil, errOperators
		}
		return data(r)
	}
}

// view is a screen with its data.
type view struct {
	Title, Nav string
	JSON       string // URL of the same data as JSON
	State      string // changes with the data, as sent by live connections
	Unread     string // why the records cannot be read, on a screen that does not need them; else empty
	Viewer     viewer
	Now        time.Time
	Query      map[string]string // the filters as given
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

// stateClass returns the CSS class of a session state.
func stateClass(state provenance.State) string {
	switch state {
	case provenance.StateOpen:
		return "good"
	case provenance.StateEnded:
		return "plain"
	}
	return "bad"
}

// missing is the error for missing data; its text may be shown.
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
		state, unread := p.changed(r, r.PathValue("id")) // before the data, so that no change is missed
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
			// The message is the error itself, and the same data as JSON would be the same error.
			v.JSON, v.Unread = "", ""
			render(w, status, &v)
			return
		}
		render(w, status, &v)
	}
}

func render(w http.ResponseWriter, status int, v *view) {
	screen := v.node()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = screen.Render(w) // the browser may have disconnected
}

// document answers with the data of a screen as JSON.
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

// raw answers with bytes, or with an error.
func (p *Page) raw(answer func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := answer(w, r); err != nil {
			status, text := p.fault(r, err)
			http.Error(w, text, status)
		}
	}
}

// fault returns the status and the text of an error answer.
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
	// The error may contain paths of this machine.
	return http.StatusInternalServerError, "this cannot be read; the log of skillsd says why"
}

// static answers with an embedded file.
func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	// The MIME tables of the system may differ.
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
	w.Header().Set("Content-Type", kinds[path.Ext(name)])
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, assets, "static/"+name)
}

// limited writes at most left bytes, and records whether there were more.
type limited struct {
	to   io.Writer
	left int
	over bool
}

func (l *limited) Write(b []byte) (int, error) {
	// The writer takes the rest too, so that the replay goes on and finds missing texts.
	n := min(len(b), l.left)
	l.left -= n
	l.over = l.over || n < len(b)
	if _, err := l.to.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
