package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Script is a hash of a principal and a [Key]. Refusals and questions are counted for it: they outlast a
// session, which a model can open anew.
type Script [sha256.Size]byte

// Asked is what a user of a principal was asked and refused about a script.
type Asked struct {
	Declined int                  `json:"declined,omitempty"`
	Last     time.Time            `json:"last,omitzero"`  // refusal
	Open     map[string]time.Time `json:"open,omitempty"` // when questions without an answer expire, by nonce
}

// Ledger is what approvers with one key have in common. It is safe for concurrent use. An error means that
// nothing may be asked or approved.
type Ledger interface {
	// Change calls change with what is known of a script, whose Open is never nil, and keeps what it makes of
	// it for Pause at least. It may call it again, if somebody else changed the same.
	Change(ctx context.Context, of Script, now time.Time, change func(*Asked)) error
}

// maxCounted bounds the scripts of principals whose refusals and questions are counted.
const maxCounted = 10_000

// memory is the Ledger of one process.
type memory struct {
	mu    sync.Mutex
	asked map[Script]*Asked
}

// NewMemory returns a Ledger that is empty when the process starts, and has no errors.
func NewMemory() Ledger {
	return &memory{asked: map[Script]*Asked{}}
}

// Change implements Ledger. If too many scripts are counted, it forgets those that nobody declined within
// Pause and no question is open about; if there are too many of the others, all.
func (m *memory) Change(_ context.Context, of Script, now time.Time, change func(*Asked)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked[of] == nil {
		if len(m.asked) >= maxCounted {
			maps.DeleteFunc(m.asked, func(_ Script, a *Asked) bool {
				maps.DeleteFunc(a.Open, func(_ string, until time.Time) bool { return now.After(until) })
				return now.Sub(a.Last) > Pause && len(a.Open) == 0
			})
		}
		if len(m.asked) >= maxCounted {
			clear(m.asked)
		}
		m.asked[of] = &Asked{Open: map[string]time.Time{}}
	}
	change(m.asked[of])
	return nil
}

// Cells are values that processes have in common, each for a time: Change calls change with the value of a
// key, nil for none, and makes what it returns the value, unless that is nil. It calls it again if somebody
// else changed the value meanwhile.
type Cells interface {
	Change(ctx context.Context, key string, life time.Duration, change func(value []byte) []byte) error
}

// NewLedger returns a Ledger of all processes that have some cells in common.
func NewLedger(cells Cells) Ledger { return shared{cells} }

type shared struct{ cells Cells }

// Change implements Ledger.
func (s shared) Change(ctx context.Context, of Script, now time.Time, change func(*Asked)) error {
	var wrong error
	key := "script " + hex.EncodeToString(of[:])
	err := s.cells.Change(ctx, key, Pause+time.Minute, func(was []byte) []byte {
		asked := Asked{}
		if was != nil {
			wrong = json.Unmarshal(was, &asked)
			if wrong != nil {
				return nil
			}
		}
		if asked.Open == nil {
			asked.Open = map[string]time.Time{}
		}
		change(&asked)
		made, err := json.Marshal(asked)
		wrong = err
		if err != nil || string(made) == string(was) || was == nil && string(made) == "{}" {
			return nil
		}
		return made
	})
	if err != nil {
		return err
	}
	if wrong != nil {
		err = fmt.Errorf("what was asked about a script cannot be read: %w", wrong)
	}
	return err
}
