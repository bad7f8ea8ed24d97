// Package approval manages questions to users about scripts, and their answers. A question shows the
// facts that are approved and is bound to exactly one call; its answer is valid once; the number of questions
// is bounded.
//
// If a user chooses a prompt of a skill, that loads the skill in their name but approves no script, since
// nothing bounds the turn that the prompt began. A call of Claude Code names the use of a tool but never the
// turn, so the approval would hold for everything that the model reads and calls later. Codex, whose calls
// name their turn, offers its user no prompts.
package approval

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

const (
	// MaxDeclined is how often a user declines a script before they are asked no more, for Pause: a
	// model must not wear them down.
	MaxDeclined = 3

	// Pause is the time for which a user is not asked about a script after MaxDeclined refusals.
	Pause = time.Hour

	// Least is the shortest time in which a user can read a question and refuse it, if the form is returned
	// unchanged. A faster answer comes from the client itself: Claude Code cancels without a terminal, as
	// does Codex, and clients that may not ask decline. Such answers come within some 10 ms, from a busy or a
	// remote machine within 2 s. Names and capabilities do not distinguish these clients. A user who answers
	// faster is only asked again.
	Least = 3 * time.Second

	// Quickest is the shortest time in which a user can accept a form that is returned unchanged. It is
	// shorter than Least, since a user who knows the question presses two keys at once.
	Quickest = 500 * time.Millisecond

	// MaxPending is the most open questions about a script.
	MaxPending = 3

	// Clocks is the most by which the clocks of servers with one key may differ.
	Clocks = time.Minute
)

// Key is what an approval for the rest of a session covers: one script of one tree, with any arguments.
type Key struct {
	Skill, Path string
	Tree        digest.Digest
	// Project is the directory that its runs see, and whether they can change it. What was declined is
	// declined for every project.
	Project string `json:"-"`
}

// State is what a question is bound to.
type State struct {
	Tool      string        `json:"tool"`
	Skill     string        `json:"skill"`
	Path      string        `json:"path"`
	Tree      digest.Digest `json:"tree"`
	Call      digest.Digest `json:"call"` // of arguments, directory, input and time; see [Approver.Digest]
	ID        string        `json:"id"`   // of the call, in events; see provenance.Event
	Principal string        `json:"principal"`
	Session   string        `json:"session"`
	Asked     int64         `json:"asked"`   // Unix milliseconds
	Expires   int64         `json:"expires"` // Unix seconds
	Nonce     string        `json:"nonce"`
}

// script returns what finds a script of a principal in a ledger.
func (k Key) script(principal string) Script {
	raw, err := json.Marshal([]any{principal, k})
	if err != nil {
		panic("approval: key does not marshal: " + err.Error())
	}
	return sha256.Sum256(raw)
}

func (s *State) script() Script {
	return Key{Skill: s.Skill, Path: s.Path, Tree: s.Tree}.script(s.Principal)
}

// Approver makes and checks the tokens of questions. It is safe for concurrent use.
type Approver struct {
	key    []byte
	ledger Ledger

	mu      sync.Mutex
	pending map[string]Pending // what this process asked and has no answer to, by nonce, until it expires
}

// Pending is a question without an answer.
type Pending struct {
	State
	Form Form

	until time.Time
}

// New returns an Approver whose tokens no other one accepts.
func New() *Approver {
	key := make([]byte, sha256.Size)
	rand.Read(key)
	return NewShared(key, newMemory())
}

// NewShared returns an Approver that shares its tokens with all Approvers of the same key and ledger.
func NewShared(key []byte, ledger Ledger) *Approver {
	return &Approver{key: key, ledger: ledger, pending: map[string]Pending{}}
}

// Digest returns the keyed digest of a call. It is recorded, where a plain digest would confirm a guess.
func (a *Approver) Digest(call []byte) digest.Digest {
	return digest.NewDigestFromBytes(digest.SHA256, a.mac(call))
}

func (a *Approver) mac(raw []byte) []byte {
	mac := hmac.New(sha256.New, a.key)
	mac.Write(raw)
	return mac.Sum(nil)
}

// Begin records a question that is open until a time, and completes its state. It returns false if MaxPending
// questions about the script are open.
//
// Errors: ErrUnknown.
func (a *Approver) Begin(
	ctx context.Context, state *State, form Form, until, now time.Time,
) (asked bool, err error) {
	state.Asked, state.Expires, state.Nonce = now.UnixMilli(), until.Unix(), rand.Text()
	err = a.ledger.Change(ctx, state.script(), now, func(of *Asked) {
		// As long as there is room, the clock of another server must not close questions.
		if len(of.Open) >= MaxPending {
			maps.DeleteFunc(of.Open, func(_ string, until time.Time) bool { return now.After(until) })
		}
		asked = len(of.Open) < MaxPending
		if asked {
			of.Open[state.Nonce] = until
		}
	})
	if !asked || err != nil {
		return false, unknown(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.pending, func(_ string, p Pending) bool { return now.After(p.until) })
	if len(a.pending) >= maxCounted {
		// Answers are checked against the ledger, so they stay valid.
		clear(a.pending)
	}
	a.pending[state.Nonce] = Pending{*state, form, until}
	return true, nil
}

// Pending returns the questions of this process that may be answered now, the oldest first.
func (a *Approver) Pending(now time.Time) (list []Pending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, asked := range a.pending {
		if now.Before(asked.until) {
			list = append(list, asked)
		}
	}
	slices.SortFunc(list, func(a, b Pending) int { return cmp.Compare(a.Asked, b.Asked) })
	return list
}

// Withdraw forgets a question that was not asked. One that cannot be forgotten expires.
func (a *Approver) Withdraw(ctx context.Context, state *State, now time.Time) {
	_, _ = a.close(ctx, state, now)
}

// close ends a question, and reports whether it was open.
func (a *Approver) close(ctx context.Context, state *State, now time.Time) (open bool, err error) {
	a.mu.Lock()
	delete(a.pending, state.Nonce)
	a.mu.Unlock()
	// A call that was cancelled withdraws its question.
	err = a.ledger.Change(context.WithoutCancel(ctx), state.script(), now, func(of *Asked) {
		_, open = of.Open[state.Nonce]
		delete(of.Open, state.Nonce)
	})
	return open && err == nil, err
}

// Seal returns the token of a question.
func (a *Approver) Seal(state *State) string {
	raw, err := json.Marshal(state)
	if err != nil {
		panic("approval: state does not marshal: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(append(a.mac(raw), raw...))
}

// Reasons why an answer is invalid.
var (
	ErrForged   = errors.New("it does not belong to a question of this server")
	ErrForeign  = errors.New("it was given for another call")
	ErrReplayed = errors.New("it was used before, or its question is not open any more")
	ErrExpired  = errors.New("it came too late")
	ErrEarly    = errors.New("it was asked later than now: the clocks of the servers differ")
	ErrUnasked  = errors.New("it allows more than was asked")
	ErrEdited   = errors.New("it changes a text of the question")
	ErrNoChoice = errors.New("it has none of the decisions that the form offers")
)

// ErrUnknown means that a ledger could not be read or changed, so that nothing may be asked or approved.
var ErrUnknown = errors.New("what was asked and answered before is not known at the moment")

func unknown(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// state returns what a token was made for.
//
// Errors: ErrForged.
func (a *Approver) state(token string) (got State, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], a.mac(raw[sha256.Size:])) ||
		json.Unmarshal(raw[sha256.Size:], &got) != nil {
		return State{}, ErrForged
	}
	return got, nil
}

// IDOf returns the id of the call that a question of a session was asked about, or "" for a token that was
// not made for the session.
func (a *Approver) IDOf(token, session string) string {
	got, err := a.state(token)
	if err != nil || got.Session != session {
		return ""
	}
	return got.ID
}

// Open checks a token against the state of the call with which it came, and closes its question, whatever the
// answer is: that an answer is valid once does not depend on a clock. It returns the age of the question. The
// age is at least [Least] if the clock of the server that asked is ahead, so that a refusal is valid.
//
// Errors: ErrForged, ErrReplayed, ErrExpired, ErrEarly, ErrForeign, ErrUnknown.
func (a *Approver) Open(
	ctx context.Context, token string, want State, now time.Time,
) (age time.Duration, err error) {
	got, err := a.state(token)
	if err != nil {
		return 0, err
	}
	age = now.Sub(time.UnixMilli(got.Asked))
	switch {
	case !now.Before(time.Unix(got.Expires, 0)):
		return 0, ErrExpired
	case age < -Clocks:
		return 0, ErrEarly
	case age < 0:
		age = Least
	}
	// Closed before it is compared: a token is not good for a second guess at the call.
	open, err := a.close(ctx, &got, now)
	switch {
	case err != nil:
		return 0, unknown(err)
	case !open:
		return 0, ErrReplayed
	}
	want.Asked, want.Expires, want.Nonce = got.Asked, got.Expires, got.Nonce
	if got != want {
		return 0, ErrForeign
	}
	return age, nil
}

// Refused adds a refusal of a script by the user of a principal to the count.
//
// Errors: ErrUnknown.
func (a *Approver) Refused(ctx context.Context, principal string, key Key, now time.Time) error {
	return unknown(a.ledger.Change(ctx, key.script(principal), now, func(of *Asked) {
		of.Declined, of.Last = of.Declined+1, now
	}))
}

// Willing records that the user of a principal approved a script: it resets the count of refusals.
//
// Errors: ErrUnknown.
func (a *Approver) Willing(ctx context.Context, principal string, key Key, now time.Time) error {
	return unknown(a.ledger.Change(ctx, key.script(principal), now, func(of *Asked) { of.Declined = 0 }))
}

// Tired reports whether the user of a principal has declined a script too often to be asked now. If that is
// not known, it reports false, and Begin fails.
func (a *Approver) Tired(ctx context.Context, principal string, key Key, now time.Time) (tired bool) {
	err := a.ledger.Change(ctx, key.script(principal), now, func(of *Asked) {
		if now.Sub(of.Last) > Pause {
			of.Declined = 0
		}
		tired = of.Declined >= MaxDeclined
	})
	return tired && err == nil
}
