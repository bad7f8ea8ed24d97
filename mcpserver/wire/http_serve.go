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
	"github.com/mark3labs/mcp-go/server"
)

const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second // of header and body together
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
	sweepEvery     = time.Minute
)

// Serve answers the connections of listener until ctx ends; it closes listener. Contexts of
// [KillAtEOF] and all streams end at once then, other calls may go on for Drain. Serve returns
// nil after that, or the error of a listener that failed. It must be called once.
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
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
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

// shutdown lets calls finish and ends those that do not.
func (h *HTTP) shutdown(s *http.Server) {
	// Streams never finish by themselves, and scripts must not outlive their clients.
	h.endInput()
	limit, cancel := context.WithTimeout(context.Background(), h.opts.Drain)
	defer cancel()
	if s.Shutdown(limit) == nil {
		return
	}
	h.abort(ErrDisconnected)
	grace, cancel := context.WithTimeout(context.Background(), h.opts.Drain/graceFraction)
	defer cancel()
	if s.Shutdown(grace) != nil {
		s.Close()
	}
}

// end forgets what the handler holds.
func (h *HTTP) end() {
	h.endInput()
	h.sessions.end(func(*httpSession) bool { return true })
	h.abort(ErrDisconnected)
	h.dispatcher.Server.UnregisterSession(context.Background(), h.broadcast.id)
	h.broadcast.broadcast.close()
}

// get opens the stream on which a session of the older revisions gets notifications of changes.
func (h *HTTP) get(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.enter(w, r, principal)
	if s == nil {
		return
	}
	defer h.sessions.leave(s)
	if !acceptsEvents(r.Header.Values("Accept")) {
		plainText(w, http.StatusNotAcceptable, "Accept must name text/event-stream")
		return
	}
	if !h.streams.take(principal, 1) {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many streams")
		return
	}
	defer h.streams.leave(principal, 1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	for _, end := range []context.Context{h.hangUp, s.base} {
		defer context.AfterFunc(end, cancel)()
	}
	defer s.takeStream(cancel)()
	out := newLineWriter(newHTTPStream(w, r, h.opts.WriteTimeout))
	defer out.retire()
	out.write([]byte(": open"))
	defer keepAlive(out, h.opts.KeepAlive).Stop()
	s.announcer.open() // what was kept since the last stream comes first
	s.announcer.run(ctx.Done(), out, out.notify)
}

// delete ends a session of the older revisions.
func (h *HTTP) delete(w http.ResponseWriter, r *http.Request, principal string) {
	if s := h.enter(w, r, principal); s != nil {
		defer h.sessions.leave(s)
		h.sessions.forget(s)
		w.WriteHeader(http.StatusNoContent)
	}
}

// enter returns the session a GET or DELETE names, which must be left, or answers and returns
// nil. 2026-07-28 has no such requests.
func (h *HTTP) enter(w http.ResponseWriter, r *http.Request, principal string) *httpSession {
	version, id := r.Header.Get(mcp.HeaderProtocolVersion), r.Header.Get(server.HeaderKeySessionID)
	switch {
	case mcp.IsModernProtocol(version):
		refuseVerb(w, http.MethodPost)
		return nil
	case version != "" && !mcp.IsValidProtocolVersion(version):
		plainText(w, http.StatusBadRequest, "unsupported protocol version")
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

func (h *HTTP) sessionEnded(s *httpSession) {
	s.end(ErrDisconnected)
	h.audience.remove(s.announcer)
	if h.opts.SessionEnded != nil {
		h.opts.SessionEnded(s.id)
	}
}
