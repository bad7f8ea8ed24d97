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

// CodeLife is how long a code finds its call, and from the approval on how long the call may be made.
const CodeLife = 10 * time.Minute

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

// Codes keeps the calls that wait for a user's approval outside of their client, at a terminal or on the
// operator's page. A code finds one call, and an approval lets exactly this call run, once. It is safe for
// concurrent use by all processes that have its cells in common.
type Codes struct {
	cells Cells

	mu      sync.Mutex
	offered map[string][]time.Time // when calls began to wait here, by principal
}

// NewCodes returns the codes in cells.
func NewCodes(cells Cells) *Codes {
	return &Codes{cells: cells, offered: map[string][]time.Time{}}
}

// maxOffered bounds the calls of one principal that begin to wait within CodeLife: the cells have room for a
// thousand calls of all.
const maxOffered = 50

// mayOffer reports whether another call of a principal may wait, and notes it.
func (c *Codes) mayOffer(principal string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	recent := slices.DeleteFunc(c.offered[principal],
		func(at time.Time) bool { return now.Sub(at) >= CodeLife })
	if len(recent) >= maxOffered {
		return false
	}
	c.offered[principal] = append(recent, now)
	return true
}

// change calls change with the call that has a digest, or with the zero value if there is no such call.
//
// Errors: ErrUnknown.
func (c *Codes) change(ctx context.Context, call string, change func(*Waiting)) error {
	var wrong error
	err := c.cells.Change(ctx, "call "+call, 2*CodeLife, func(was []byte) []byte {
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
func (c *Codes) Offer(
	ctx context.Context, call digest.Digest, w Waiting, now time.Time,
) (code string, err error) {
	err = c.change(ctx, string(call), func(known *Waiting) {
		if known.open(now) && known.By == "" {
			code, w.Code, w.Expires = known.Code, known.Code, now.Add(CodeLife)
			*known = w
		}
	})
	if err != nil {
		return code, unknown(err)
	}
	// The code must find the call as long as the call waits.
	if code != "" {
		err := c.cells.Change(ctx, "code "+code, 2*CodeLife, func([]byte) []byte { return []byte(call) })
		return code, unknown(err)
	}
	if !c.mayOffer(w.Principal, now) {
		return "", fmt.Errorf("%w: too many calls of this principal wait", ErrUnknown)
	}
	// The alphabet has no digits that look like letters.
	made := rand.Text()[:8]
	made = made[:4] + "-" + made[4:]
	// A code that finds nothing yet does no harm.
	err = c.cells.Change(ctx, "code "+made, 2*CodeLife, func([]byte) []byte { return []byte(call) })
	if err != nil {
		return "", unknown(err)
	}
	err = c.change(ctx, string(call), func(known *Waiting) {
		w.Code, w.Expires, w.By = made, now.Add(CodeLife), ""
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
func (c *Codes) byCode(
	ctx context.Context, code string, now time.Time, change func(*Waiting),
) (w Waiting, err error) {
	call := ""
	err = c.cells.Change(ctx, "code "+canonicalCode(code), 2*CodeLife, func(was []byte) []byte {
		call = string(was)
		return nil
	})
	if err != nil {
		return w, unknown(err)
	}
	found := false
	if call != "" {
		err = c.change(ctx, call, func(known *Waiting) {
			found = known.open(now) && known.Code == canonicalCode(code) && known.By == ""
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
func (c *Codes) Find(ctx context.Context, code string, now time.Time) (Waiting, error) {
	return c.byCode(ctx, code, now, func(*Waiting) {})
}

// Approve lets the call that waits with a code run once; by names the user and the place of the approval.
//
// Errors: ErrNoCall, ErrUnknown.
func (c *Codes) Approve(ctx context.Context, code, by string, now time.Time) error {
	if by == "" {
		return fmt.Errorf("%w: no approver is named", ErrUnknown)
	}
	_, err := c.byCode(ctx, code, now, func(w *Waiting) { w.By, w.Expires = by, now.Add(CodeLife) })
	return err
}

// Take uses up the approval of a call, and returns who gave it, or "" if there is no approval.
//
// Errors: ErrUnknown.
func (c *Codes) Take(ctx context.Context, call digest.Digest, now time.Time) (by string, err error) {
	err = c.change(ctx, string(call), func(w *Waiting) {
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

// canonicalCode returns the canonical form of a code that a user typed.
func canonicalCode(typed string) string {
	// The alphabet of rand.Text has no 0, 1 and 8.
	letters := strings.NewReplacer("-", "", " ", "", "0", "O", "1", "I", "8", "B").
		Replace(strings.ToUpper(typed))
	if len(letters) != 8 {
		return letters
	}
	return letters[:4] + "-" + letters[4:]
}
