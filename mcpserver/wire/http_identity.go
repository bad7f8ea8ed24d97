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
	// identityLife is how long the id of a protocol session that is not open is accepted after it was given.
	identityLife = 7 * 24 * time.Hour

	// maxIdentity is the most bytes of what an id says of its client: an id is a header of every request.
	maxIdentity = 1 << 10

	// maxDeleted is how many ids of sessions that their clients ended are remembered.
	maxDeleted = 10_000
)

// identities makes the ids of protocol sessions. An id has in it what initialize said of the client, and a
// mark that only the holder of the key can make, for one principal. So a session that was idle for long, or
// was opened before the server started, can be opened again: some clients never send initialize again.
type identities struct{ key []byte }

// identity is what an id says.
type identity struct {
	Random  string          `json:"r"`
	At      int64           `json:"t"` // in seconds
	Version string          `json:"v,omitempty"`
	Name    string          `json:"n,omitempty"`
	Release string          `json:"w,omitempty"`
	Can     json.RawMessage `json:"c,omitempty"` // capabilities
}

// newIdentities returns the maker of ids for a key; without one it takes one of its own.
func newIdentities(key []byte) identities {
	if len(key) == 0 {
		key = []byte(rand.Text())
	}
	return identities{key}
}

// mark is the code of an id for a principal.
func (i identities) mark(principal, text string) string {
	code := hmac.New(sha256.New, i.key)
	code.Write([]byte(text + "\x00" + principal))
	return base64.RawURLEncoding.EncodeToString(code.Sum(nil))
}

// give returns the id of a new session of a principal.
func (i identities) give(principal string, client known) string {
	says := identity{Random: rand.Text(), At: time.Now().Unix(), Version: client.version,
		Name: client.info.Name, Release: client.info.Version}
	says.Can, _ = json.Marshal(client.capabilities)
	raw, err := json.Marshal(says)
	if len(raw) > maxIdentity { // what may be long decides nothing
		client.capabilities.Experimental, client.capabilities.Extensions = nil, nil
		says.Can, _ = json.Marshal(client.capabilities)
		raw, err = json.Marshal(says)
	}
	if err != nil || len(raw) > maxIdentity {
		// A client with a long description is not known any more when its session is opened again.
		raw, _ = json.Marshal(identity{Random: says.Random, At: says.At, Version: says.Version})
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	return text + "." + i.mark(principal, text)
}

// textOf returns what an id is made of, if it was given to that principal.
func (i identities) textOf(id, principal string) (text string, ok bool) {
	text, mark, _ := strings.Cut(id, ".")
	return text, hmac.Equal([]byte(mark), []byte(i.mark(principal, text)))
}

// read returns what an id says of the client, if it was given to that principal within identityLife.
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

// session returns the session of that id for a request or stream of a principal, or nil; the table's leave
// must follow. One that is not open any more is opened again, unless its client ended it.
func (h *HTTP) session(ctx context.Context, id, principal string) *httpSession {
	if s := h.sessions.enter(id, principal); s != nil {
		return s
	}
	client, ok := h.sessions.ids.read(id, principal)
	if !ok {
		return nil
	}
	s := h.newSession(ctx, principal, int(8*h.opts.MaxBody))
	s.id, s.known = id, client
	h.audience.add(s.announcer)
	if !h.sessions.add(s) {
		s.end(ErrDisconnected)
		h.audience.remove(s.announcer)
	}
	return h.sessions.enter(id, principal)
}

// Alone reports whether the principal of a request over HTTP has at most one protocol session or
// subscription open: all that comes without a session may then be taken for one conversation. It is false
// outside of such a request.
func Alone(ctx context.Context) bool {
	s := callSessionOf(ctx)
	return s != nil && s.alone != nil && s.alone()
}
