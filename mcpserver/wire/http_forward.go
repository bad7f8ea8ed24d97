package wire

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// Forward makes the server at address answer the request of ctx, instead of the handler's answer. An empty
// address means that this server, to which the request was forwarded, does not have the session; so does any
// address then, because a request is forwarded only once. Nothing may have been sent to the client yet, and
// the handler may be called again. Without [HTTPOptions.Forward] it does nothing.
func Forward(ctx context.Context, address string) {
	if c := callOf(ctx); c != nil {
		if IsForwarded(ctx) {
			address = ""
		}
		c.forward.Store(&address)
	}
}

// forwardPatience is how long the other server is searched for, with forwardPause between attempts;
// cancelPatience is how long the end of a cancelled call may take.
const (
	forwardPatience = 5 * time.Second
	forwardPause    = 20 * time.Millisecond
	cancelPatience  = 2 * time.Second
)

// ErrMisdirected is the error of forwarding a request to a server that does not have its session. Nothing was
// written to the client, and the handler of the request is called again.
var ErrMisdirected = errors.New("the other server does not answer this request")

// ServeForwarded answers a request that another server has forwarded or spread, after that server made all
// checks up to the rate. If this server does not have the session, or is stopping, it answers 421.
func (h *HTTP) ServeForwarded(w http.ResponseWriter, r *http.Request, principal string) {
	// Once the shutdown waits for forwarded requests, TryRLock fails, so that no other one begins.
	lives := h.forwards.TryRLock()
	if lives {
		defer h.forwards.RUnlock()
	}
	lives = lives && h.hangUp.Err() == nil
	switch {
	case lives && r.Method == http.MethodPost:
		h.post(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true)), principal)
	case lives && r.Method == http.MethodDelete:
		h.forget(r.Header.Get(HeaderSession), principal)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMisdirectedRequest)
	}
}

// forwarded sends the request to another server if its handler called Forward. done reports whether the
// request was answered, again whether the handler must be called again.
func (ex *exchange) forwarded() (done, again bool) {
	if ex.h.opts.Forward == nil {
		return false, false
	}
	to := ex.call.forward.Swap(nil)
	if to == nil {
		return false, false
	}
	if ex.owner.calls != nil && !ex.owner.calls.sendAway(ex.call) {
		return false, false
	}
	// The wait for the other server needs no slot here.
	YieldSlot(ex.call.ctx)
	ctx, cancel := context.WithCancel(ex.r.Context())
	defer cancel()
	// Wait a moment after a cancellation, which may reach the other server before the request does.
	defer context.AfterFunc(ex.call.ctx, func() { time.AfterFunc(cancelPatience, cancel) })()
	ex.out.handOver(func() bool {
		done, again = ex.relay(ctx, *to)
		return done
	})
	return done, again
}

// relay has the server at an address answer the request, while nothing else is written. It returns the same
// as forwarded.
func (ex *exchange) relay(ctx context.Context, address string) (done, again bool) {
	switch {
	case ex.stream.begun:
		// This is too late, so the client gets the error of the handler.
		return false, false
	case address == "":
		ex.w.WriteHeader(http.StatusMisdirectedRequest)
		return true, false
	}
	err := ex.h.opts.Forward(ex.w, ex.r.WithContext(ctx), ex.msg.raw, address)
	switch {
	case err == nil:
		return true, false
	case errors.Is(err, ErrMisdirected):
		return false, true
	case errors.Is(context.Cause(ex.call.ctx), ErrCanceled):
		return false, false
	}
	ex.h.dispatcher.logPrivate(ex.call.ctx, ex.msg, err.Error())
	ex.h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, &Error{Code: mcp.INTERNAL_ERROR,
		Message: "the server that has the session did not answer; what it did is not known"})
	return true, false
}

// spread sends the message, which belongs to a call on another server, to the other servers. It returns false
// if it has sent an answer.
func (ex *exchange) spread() bool {
	h := ex.h
	if h.opts.Spread == nil {
		return true
	}
	if IsForwarded(ex.r.Context()) {
		ex.w.WriteHeader(http.StatusMisdirectedRequest)
		return false
	}
	ex.admission.spread = h.maySpread(ex.w, ex.principal)
	if ex.admission.spread == nil {
		return false
	}
	// If there is no room, the message keeps the memory that was reserved for decoding.
	ex.admission.decoded()
	err := h.opts.Spread(ex.r, ex.msg.raw)
	// Clients repeat an answer, but not a cancellation.
	if err != nil && ex.msg.kind == response {
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait,
			"the call may be at a server that does not answer")
		return false
	}
	return true
}

// maySpread acquires a place in spreads, or answers 503 and returns nil.
func (h *HTTP) maySpread(w http.ResponseWriter, principal string) *admit.Claim {
	place := h.spreads.Take(principal, 1)
	if place == nil {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many messages for other servers")
	}
	return place
}
