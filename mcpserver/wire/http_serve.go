package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second // for header and body together
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
	sweepEvery     = time.Minute
)

// Serve answers the connections of listener until ctx ends; it closes listener. Contexts of [KillAtEOF] and
// all streams then end at once; other calls may continue for Drain. Serve returns nil after that, or the
// error of a listener that failed. It must be called once.
func (h *HTTP) Serve(ctx context.Context, listener net.Listener) error {
	defer h.end()
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      h.opts.WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(h.dispatcher.logger().Handler(), slog.LevelDebug),
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				h.conns.Add(conn)
			case http.StateActive, http.StateIdle:
				h.conns.SetIdle(conn, state == http.StateIdle)
			case http.StateClosed, http.StateHijacked:
				h.conns.Remove(conn)
			}
		},
		ConnContext: h.conns.Context,
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(h.conns.Listener(listener, h.hangUp.Done())) }()
	sweep := time.NewTicker(min(sweepEvery, h.opts.SessionIdle))
	defer sweep.Stop()
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve: %w", errors.Join(err, s.Close()))
		case <-sweep.C:
			before := time.Now().Add(-h.opts.SessionIdle)
			h.sessions.end(func(s *httpSession) bool { return s.unused(before) })
		case <-ctx.Done():
			h.shutdown(s)
			<-failed
			return nil
		}
	}
}

// shutdown lets calls finish and ends those that take too long.
func (h *HTTP) shutdown(s *http.Server) {
	// Streams never finish by themselves, and scripts must not outlive their clients.
	h.endInput()
	limit, cancel := context.WithTimeout(context.Background(), h.opts.Drain)
	defer cancel()
	if h.drained(limit, s) {
		return
	}
	h.abort(ErrDisconnected)
	grace, cancel := context.WithTimeout(context.Background(), h.opts.Drain/graceFraction)
	defer cancel()
	if !h.drained(grace, s) {
		s.Close()
	}
}

// drained waits until all requests, including forwarded ones, have ended. It returns false if ctx ends first.
func (h *HTTP) drained(ctx context.Context, s *http.Server) bool {
	forwarded := make(chan struct{})
	go func() {
		h.forwards.Lock()
		defer h.forwards.Unlock()
		close(forwarded)
	}()
	if s.Shutdown(ctx) != nil {
		return false
	}
	select {
	case <-forwarded:
		return true
	case <-ctx.Done():
		return false
	}
}

// end releases the resources of the handler.
func (h *HTTP) end() {
	h.endInput()
	h.sessions.end(func(*httpSession) bool { return true })
	h.abort(ErrDisconnected)
	h.leaves()
}

// get opens the GET stream with notifications of a session of the older revisions.
func (h *HTTP) get(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.enter(w, r, principal)
	if s == nil {
		return
	}
	defer h.leave(s)
	if !acceptsEvents(r.Header.Values("Accept")) {
		plainText(w, http.StatusNotAcceptable, notEvents)
		return
	}
	slot := h.streams.Take(principal, 1)
	if slot == nil {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many streams")
		return
	}
	defer slot.Release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	for _, end := range []context.Context{h.hangUp, s.base} {
		defer context.AfterFunc(end, cancel)()
	}
	defer s.takeStream(cancel)()
	out := newLineWriter(newHTTPStream(w, r, h.opts.WriteTimeout))
	defer out.retire()
	// This comment sends the headers, by which the client learns that the stream is open.
	out.write([]byte(": open"))
	defer keepAlive(out, h.opts.KeepAlive).Stop()
	// The changes that were queued since the last stream come first.
	s.announcer.open()
	s.announcer.run(ctx.Done(), out, out.notify)
}

// delete ends a session of the older revisions.
func (h *HTTP) delete(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.enter(w, r, principal)
	if s == nil {
		return
	}
	defer h.leave(s)
	if h.opts.Spread == nil {
		h.forget(s.id, principal)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	place := h.maySpread(w, principal)
	if place == nil {
		return
	}
	defer place.Release()
	h.forget(s.id, principal)
	if r.ProtoMajor == 1 {
		// The next request on the connection would wait for the other servers.
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(http.StatusNoContent)
	// The client needs nothing more.
	http.NewResponseController(w).Flush()
	// The request is answered already, so an error changes nothing.
	_ = h.opts.Spread(r, nil)
}

// forget ends a session for its client, even if it is open at other servers only.
func (h *HTTP) forget(id, principal string) {
	if _, genuine := h.sessions.ids.textOf(id, principal); !genuine {
		return
	}
	h.sessions.forget(id)
	if h.opts.Spread != nil && h.opts.SessionEnded != nil {
		h.opts.SessionEnded(id)
	}
}

// enter returns the session that a GET or DELETE names; the caller must leave it. Otherwise it answers and
// returns nil. 2026-07-28 has no such requests.
func (h *HTTP) enter(w http.ResponseWriter, r *http.Request, principal string) *httpSession {
	version, id := r.Header.Get(mcp.HeaderProtocolVersion), r.Header.Get(HeaderSession)
	switch {
	case mcp.IsModernProtocol(version):
		refuseVerb(w, http.MethodPost)
		return nil
	case refusesVersion(w, version):
		return nil
	case id == "" && r.Method == http.MethodGet:
		refuseVerb(w, "POST, DELETE")
		return nil
	case id == "":
		plainText(w, http.StatusBadRequest, "Mcp-Session-Id is missing")
		return nil
	}
	s := h.session(r.Context(), id, principal)
	if s == nil {
		plainText(w, http.StatusNotFound, "Invalid session ID")
	}
	return s
}

// leave ends the use of a session. SessionEnded is called again after the last call of a session that its
// client ended.
func (h *HTTP) leave(s *httpSession) {
	// The last call may have opened or restored something after the end.
	if h.sessions.leave(s) && h.opts.SessionEnded != nil {
		h.opts.SessionEnded(s.id)
	}
}

func (h *HTTP) sessionEnded(s *httpSession) {
	s.end(ErrDisconnected)
	h.audience.remove(s.announcer)
	if h.opts.Spread == nil && h.opts.SessionEnded != nil {
		h.opts.SessionEnded(s.id)
	}
}
