// Package approval keeps what a user is asked and answers about scripts: a question shows what is approved,
// it is bound to exactly one call, its answer counts once, and nobody is asked without end.
//
// A prompt of a skill that the user chose loads the skill in their name, and is not their word for its
// scripts: nothing bounds the turn that it began. A call of Claude Code names the use of a tool, never the
// turn, so that the word would hold for whatever the model reads and calls later; and Codex, whose calls
// name their turn, offers its user no prompts.
package approval

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

const (
	// MaxDeclined is how often a user declines a script before they are asked no more, for Pause: a
	// model must not wear them down.
	MaxDeclined = 3

	// Pause is how long a user is not asked about a script that they have declined too often.
	Pause = time.Hour

	// Least is the time below which nobody has read a question and refused it: the client has answered by
	// itself, as Claude Code does without a terminal (cancel) and Codex too, or wherever it may not ask
	// (decline). Theirs come within some 10 ms. The name and the capabilities of a client do not tell, and
	// a person who is mistaken for it is only asked again.
	Least = time.Second

	// MaxPending is how many questions about a script are open at a time.
	MaxPending = 3

	// maxCounted bounds the scripts of principals whose refusals and questions are counted.
	maxCounted = 10_000
)

// Key is what an approval for the rest of a session covers: one script of one tree, with any arguments.
type Key struct {
	Skill, Path string
	Tree        digest.Digest
}

// State is what a question is bound to.
type State struct {
	Tool      string        `json:"tool"`
	Skill     string        `json:"skill"`
	Path      string        `json:"path"`
	Tree      digest.Digest `json:"tree"`
	Call      digest.Digest `json:"call"` // of arguments, directory, input and time; see [Approver.Digest]
	Principal string        `json:"principal"`
	Session   string        `json:"session"`
	Asked     int64         `json:"asked"`   // Unix milliseconds
	Expires   int64         `json:"expires"` // Unix seconds
	Nonce     string        `json:"nonce"`
}

func (s *State) script() script { return script{s.Principal, Key{s.Skill, s.Path, s.Tree}} }

// script is what refusals and questions are counted for: they outlast a session, which a model can open
// anew.
type script struct {
	principal string
	Key
}

// Approver makes and checks the tokens of questions. It is safe for concurrent use.
type Approver struct {
	key [sha256.Size]byte

	mu       sync.Mutex
	used     map[string]time.Time // nonces of answers, until they expire
	declined map[script]refusals
	pending  map[script]map[string]time.Time // nonces of questions without an answer, until they expire
}

// refusals counts how often one principal declined one script, and has the time of the last refusal.
type refusals struct {
	n    int
	last time.Time
}

// New returns an Approver whose tokens no other one accepts.
func New() *Approver {
	a := &Approver{used: map[string]time.Time{}, declined: map[script]refusals{},
		pending: map[script]map[string]time.Time{}}
	rand.Read(a.key[:])
	return a
}

// Digest returns the keyed digest of a call. It is recorded, where a plain digest would confirm a guess.
func (a *Approver) Digest(call []byte) digest.Digest {
	return digest.NewDigestFromBytes(digest.SHA256, a.mac(call))
}

func (a *Approver) mac(raw []byte) []byte {
	mac := hmac.New(sha256.New, a.key[:])
	mac.Write(raw)
	return mac.Sum(nil)
}

// Begin notes a question that is asked until a time, and completes its state. It reports false if as many
// about the script are open as may be.
func (a *Approver) Begin(state *State, until, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) >= maxCounted {
		clear(a.pending)
	}
	open := a.pending[state.script()]
	if open == nil {
		open = make(map[string]time.Time)
		a.pending[state.script()] = open
	}
	for nonce, until := range open {
		if now.After(until) {
			delete(open, nonce)
		}
	}
	if len(open) >= MaxPending {
		return false
	}
	state.Asked, state.Expires, state.Nonce = now.UnixMilli(), until.Unix(), rand.Text()
	open[state.Nonce] = until
	return true
}

// Withdraw forgets a question that was not asked.
func (a *Approver) Withdraw(state *State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending[state.script()], state.Nonce)
}

// Seal returns the token of a question.
func (a *Approver) Seal(state *State) string {
	raw, err := json.Marshal(state)
	if err != nil {
		panic("approval: state does not marshal: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(append(a.mac(raw), raw...))
}

// Why an answer does not count.
var (
	ErrForged   = errors.New("it does not belong to a question of this server")
	ErrForeign  = errors.New("it was given for another call")
	ErrReplayed = errors.New("it was used before")
	ErrExpired  = errors.New("it came too late")
	ErrUnasked  = errors.New("it allows more than was asked")
	ErrEdited   = errors.New("it changes a text of the question")
)

// Open checks a token against the state of the call it comes with and uses it up, whatever the answer is. It
// returns how long ago the question was asked.
//
// Errors: ErrForged, ErrReplayed, ErrExpired, ErrForeign.
func (a *Approver) Open(token string, want State, now time.Time) (age time.Duration, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], a.mac(raw[sha256.Size:])) {
		return 0, ErrForged
	}
	var got State
	if err := json.Unmarshal(raw[sha256.Size:], &got); err != nil {
		return 0, ErrForged
	}
	expires := time.Unix(got.Expires, 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	for nonce, until := range a.used {
		if now.After(until) {
			delete(a.used, nonce)
		}
	}
	if _, replayed := a.used[got.Nonce]; replayed {
		return 0, ErrReplayed
	}
	if !now.Before(expires) {
		return 0, ErrExpired
	}
	// Used up before it is compared: a token is not good for a second guess at the call.
	a.used[got.Nonce] = expires
	for _, open := range a.pending {
		delete(open, got.Nonce)
	}
	want.Asked, want.Expires, want.Nonce = got.Asked, got.Expires, got.Nonce
	if got != want {
		return 0, ErrForeign
	}
	return now.Sub(time.UnixMilli(got.Asked)), nil
}

// Refused counts a refusal of a script by the user of a principal.
func (a *Approver) Refused(principal string, key Key, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.declined) >= maxCounted {
		clear(a.declined)
	}
	k := script{principal, key}
	a.declined[k] = refusals{n: a.declined[k].n + 1, last: now}
}

// Tired reports whether the user of a principal has declined a script too often to be asked now.
func (a *Approver) Tired(principal string, key Key, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := script{principal, key}
	was := a.declined[k]
	if now.Sub(was.last) > Pause {
		delete(a.declined, k)
		return false
	}
	return was.n >= MaxDeclined
}
