package approval

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// WordLife is how long a code finds its call, and from the approval on how long the call may be made.
const WordLife = 10 * time.Minute

// ErrNoCall is the error of a code that finds no call.
var ErrNoCall = errors.New("no call waits with this code: it was used, or ten minutes have passed")

// Waiting is a call that was refused because its client did not ask the user, who may approve it elsewhere.
type Waiting struct {
	Code      string        `json:"code,omitempty"`
	Principal string        `json:"principal,omitempty"`
	Session   string        `json:"session,omitempty"` // in which it was refused
	Client    string        `json:"client,omitempty"`
	Script    digest.Digest `json:"script,omitempty"`
	Tree      digest.Digest `json:"tree,omitempty"`
	Text      string        `json:"text,omitempty"` // the question, as [Facts.Form] writes it
	Expires   time.Time     `json:"expires,omitzero"`
	By        string        `json:"by,omitempty"` // who approved it, and where; empty until then
}

// open reports whether a user may still approve the call or, if it is approved, the client may make it.
func (w *Waiting) open(now time.Time) bool { return w.Code != "" && now.Before(w.Expires) }

// Elsewhere keeps the calls that wait for a user's word at another place than their client: a terminal or a
// page. A code finds one call, and an approval lets exactly this call run, once. It is safe for concurrent
// use by all processes that have its cells in common.
type Elsewhere struct {
	cells Cells

	mu      sync.Mutex
	offered map[string][]time.Time // when calls began to wait here, by principal
}

// NewElsewhere returns an Elsewhere of cells.
func NewElsewhere(cells Cells) *Elsewhere {
	return &Elsewhere{cells: cells, offered: map[string][]time.Time{}}
}

// maxOffered bounds the calls of one principal that begin to wait within WordLife: the cells have room for a
// thousand calls of all.
const maxOffered = 50

// mayOffer reports whether another call of a principal may wait, and notes it.
func (e *Elsewhere) mayOffer(principal string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	recent := slices.DeleteFunc(e.offered[principal],
		func(at time.Time) bool { return now.Sub(at) >= WordLife })
	if len(recent) >= maxOffered {
		return false
	}
	e.offered[principal] = append(recent, now)
	return true
}

// change calls change with the call that has a digest, or with the zero value if there is no such call.
//
// Errors: ErrUnknown.
func (e *Elsewhere) change(ctx context.Context, call string, change func(*Waiting)) error {
	var wrong error
	err := e.cells.Change(ctx, "call "+call, 2*WordLife, func(was []byte) []byte {
		var w Waiting
		if was != nil {
			wrong = json.Unmarshal(was, &w)
			if wrong != nil {
				return nil
			}
		}
		before := w
		change(&w)
		if w == before {
			return nil
		}
		made, err := json.Marshal(w)
		wrong = err
		return made
	})
	return unknown(errors.Join(err, wrong))
}

// Offer notes that a call waits, and returns the code that finds it: the one that it has already, or a new
// one.
//
// Errors: ErrUnknown.
func (e *Elsewhere) Offer(
	ctx context.Context, call digest.Digest, w Waiting, now time.Time,
) (code string, err error) {
	err = e.change(ctx, string(call), func(known *Waiting) {
		if known.open(now) && known.By == "" {
			code, w.Code, w.Expires = known.Code, known.Code, now.Add(WordLife)
			*known = w
		}
	})
	if err == nil && code != "" { // it is to be found as long as the call waits
		err = e.cells.Change(ctx, "code "+code, 2*WordLife, func([]byte) []byte { return []byte(call) })
	}
	if err != nil || code != "" {
		return code, unknown(err)
	}
	if !e.mayOffer(w.Principal, now) {
		return "", fmt.Errorf("%w: too many calls of this principal wait", ErrUnknown)
	}
	made := rand.Text()[:8] // letters, and digits that look like none of them
	made = made[:4] + "-" + made[4:]
	// A code that finds nothing yet does no harm.
	err = e.cells.Change(ctx, "code "+made, 2*WordLife, func([]byte) []byte { return []byte(call) })
	if err != nil {
		return "", unknown(err)
	}
	err = e.change(ctx, string(call), func(known *Waiting) {
		w.Code, w.Expires, w.By = made, now.Add(WordLife), ""
		if known.open(now) && known.By == "" {
			w.Code = known.Code
		}
		*known, code = w, w.Code
	})
	return code, err
}

// byCode changes the call that a code finds. change is called for one that may still be approved.
//
// Errors: ErrNoCall, ErrUnknown.
func (e *Elsewhere) byCode(
	ctx context.Context, code string, now time.Time, change func(*Waiting),
) (w Waiting, err error) {
	call := ""
	err = e.cells.Change(ctx, "code "+Code(code), 2*WordLife, func(was []byte) []byte {
		call = string(was)
		return nil
	})
	if err != nil {
		return w, unknown(err)
	}
	found := false
	if call != "" {
		err = e.change(ctx, call, func(known *Waiting) {
			found = known.open(now) && known.Code == Code(code) && known.By == ""
			if found {
				w = *known
				change(known)
			}
		})
	}
	if err != nil {
		return w, err
	}
	if !found {
		err = ErrNoCall
	}
	return w, err
}

// Find returns the call that waits with a code.
//
// Errors: ErrNoCall, ErrUnknown.
func (e *Elsewhere) Find(ctx context.Context, code string, now time.Time) (Waiting, error) {
	return e.byCode(ctx, code, now, func(*Waiting) {})
}

// Approve lets the call that waits with a code run once; by names the user and the place of the approval.
//
// Errors: ErrNoCall, ErrUnknown.
func (e *Elsewhere) Approve(ctx context.Context, code, by string, now time.Time) error {
	if by == "" {
		return fmt.Errorf("%w: nobody is named who approves", ErrUnknown)
	}
	_, err := e.byCode(ctx, code, now, func(w *Waiting) { w.By, w.Expires = by, now.Add(WordLife) })
	return err
}

// Take uses up the approval of a call, and returns who gave it, or "" if there is no approval.
//
// Errors: ErrUnknown.
func (e *Elsewhere) Take(ctx context.Context, call digest.Digest, now time.Time) (by string, err error) {
	err = e.change(ctx, string(call), func(w *Waiting) {
		by = ""
		if w.open(now) && w.By != "" {
			by, *w = w.By, Waiting{}
		}
	})
	if err != nil {
		return "", err
	}
	return by, nil
}

// Code returns the canonical form of a code that a user typed.
func Code(typed string) string {
	letters := strings.NewReplacer("-", "", " ", "", "0", "O", "1", "I", "8", "B").
		Replace(strings.ToUpper(typed))
	if len(letters) != 8 {
		return letters
	}
	return letters[:4] + "-" + letters[4:]
}
