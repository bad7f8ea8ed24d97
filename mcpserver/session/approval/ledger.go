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

// Ledger is the state that approvers with one key share. It is safe for concurrent use. If it returns an
// error, no question may be asked and no answer accepted.
type Ledger interface {
	// Change calls change with the state of a script, whose Open is never nil, and stores the changed state
	// for at least Pause. It calls change again if another process changed the state meanwhile.
	Change(ctx context.Context, of Script, now time.Time, change func(*Asked)) error
}

// maxCounted is the most scripts, by principal, for which refusals and questions are counted.
const maxCounted = 10_000

// memory is the Ledger of one process.
type memory struct {
	mu    sync.Mutex
	asked map[Script]*Asked
}

// newMemory returns a Ledger that is empty when the process starts, and has no errors.
func newMemory() Ledger {
	return &memory{asked: map[Script]*Asked{}}
}

// Change implements Ledger. If there are too many scripts, it deletes the ones that were not declined within
// Pause and have no open question; if too many are left, it deletes all.
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

// Cells are values that processes share, each for a limited time. Change calls change with the value of a
// key, or nil, and stores the value that it returns, unless that is nil. It calls change again if another
// process changed the value meanwhile.
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
