package wire

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// identityLife is how long the id of a protocol session that is not open stays valid after it was issued.
	identityLife = 7 * 24 * time.Hour

	// maxIdentity is the maximum size in bytes of the client data in an id: an id is a header of every
	// request.
	maxIdentity = 1 << 10

	// maxDeleted is how many ids of sessions that their clients ended are remembered.
	maxDeleted = 10_000
)

// identities issues the ids of protocol sessions. An id contains what the client declared in initialize, and
// a MAC for one principal. A session that was idle for long, or was opened before the server started, can
// therefore be reopened: some clients never send initialize again.
type identities struct{ key []byte }

// identity is the content of an id.
type identity struct {
	Random  string          `json:"r"`
	At      int64           `json:"t"` // in seconds
	Version string          `json:"v,omitempty"`
	Name    string          `json:"n,omitempty"`
	Release string          `json:"w,omitempty"`
	Can     json.RawMessage `json:"c,omitempty"` // capabilities
}

// newIdentities returns the issuer of ids for a key; without a key it generates one.
func newIdentities(key []byte) identities {
	if len(key) == 0 {
		key = []byte(rand.Text())
	}
	return identities{key}
}

// mark returns the MAC of an id for a principal.
func (i identities) mark(principal, text string) string {
	code := hmac.New(sha256.New, i.key)
	code.Write([]byte(text + "\x00" + principal))
	return base64.RawURLEncoding.EncodeToString(code.Sum(nil))
}

// give issues the id of a new session of a principal.
func (i identities) give(principal string, client known) string {
	says := identity{Random: rand.Text(), At: time.Now().Unix(), Version: client.version,
		Name: client.info.Name, Release: client.info.Version}
	says.Can, _ = json.Marshal(client.capabilities)
	raw, err := json.Marshal(says)
	// The fields that may be long decide nothing.
	if len(raw) > maxIdentity {
		client.capabilities.Experimental, client.capabilities.Extensions = nil, nil
		says.Can, _ = json.Marshal(client.capabilities)
		raw, err = json.Marshal(says)
	}
	if err != nil || len(raw) > maxIdentity {
		// The description is too long; it is lost if the session is reopened.
		raw, _ = json.Marshal(identity{Random: says.Random, At: says.At, Version: says.Version})
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	return text + "." + i.mark(principal, text)
}

// textOf returns the encoded content of an id, if the id was issued to that principal.
func (i identities) textOf(id, principal string) (text string, ok bool) {
	text, mark, _ := strings.Cut(id, ".")
	return text, hmac.Equal([]byte(mark), []byte(i.mark(principal, text)))
}

// read decodes the client data of an id, if it was issued to that principal within identityLife.
func (i identities) read(id, principal string) (client known, ok bool) {
	text, ok := i.textOf(id, principal)
	if !ok {
		return client, false
	}
	var says identity
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &says) != nil ||
		time.Since(time.Unix(says.At, 0)) > identityLife {
		return client, false
	}
	client.version = says.Version
	client.info.Name, client.info.Version = says.Name, says.Release
	if says.Can != nil && json.Unmarshal(says.Can, &client.capabilities) != nil {
		client.capabilities = mcp.ClientCapabilities{}
	}
	return client, true
}

// session returns the session with that id for a request or stream of a principal, or nil; the caller must
// call leave on the table. A closed session is reopened, unless its client ended it.
func (h *HTTP) session(ctx context.Context, id, principal string) *httpSession {
	if s := h.sessions.enter(id, principal); s != nil {
		return s
	}
	client, ok := h.sessions.ids.read(id, principal)
	if !ok {
		return nil
	}
	s := h.newSession(ctx, principal, int(8*h.opts.MaxBody))
	s.id = id
	s.known.Store(&client)
	h.audience.add(s.announcer)
	if !h.sessions.add(s) {
		s.end(ErrDisconnected)
		h.audience.remove(s.announcer)
	}
	// Another request may have reopened the session first, or its client may have ended it.
	return h.sessions.enter(id, principal)
}

// alone is Alone for the principal of the exchange.
func (ex *exchange) alone() bool {
	return ex.h.sessions.room.Held(ex.principal)+ex.h.listens.Held(ex.principal) <= 1
}

// Alone reports whether the principal of a request over HTTP has at most one open protocol session or
// subscription. All its requests without a session may then be treated as one conversation. It returns false
// outside of such a request.
func Alone(ctx context.Context) bool {
	c := callOf(ctx)
	return c != nil && c.alone != nil && c.alone()
}
