package page

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// lookUpdates is the interval of checks for updates.
const lookUpdates = time.Hour

// Updates are the available updates of installed skills: the rows of `skillsd update --preview --json` with
// changes.
type Updates struct {
	At    time.Time       `json:"at"` // time of the check
	Error string          `json:"error,omitempty"`
	Rows  []report.Update `json:"rows"`
}

// updates caches the result of the last check.
type updates struct {
	mu   sync.Mutex
	last *Updates // nil before the first check
}

// Look checks the sources of installed skills for updates. Requests never do that, because it fetches.
func (p *Page) Look(ctx context.Context) {
	found := &Updates{At: p.Now(), Rows: []report.Update{}}
	var rows []report.Update
	err := p.read(ctx, &rows, "update", "--preview", "--json")
	// The server is stopping, and the canceled check would show as a failed one.
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		found.Error = err.Error()
	}
	for _, row := range rows {
		if row.State != "unchanged" {
			found.Rows = append(found.Rows, row)
		}
	}
	p.updates.mu.Lock()
	defer p.updates.mu.Unlock()
	p.updates.last = found
}

// read decodes what a command of skillsd prints.
func (p *Page) read(ctx context.Context, rows any, words ...string) error {
	text, err := p.Printed(ctx, words...)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, rows)
}

// known returns the result of the last check, nil without one.
func (u *updates) known() *Updates {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}
