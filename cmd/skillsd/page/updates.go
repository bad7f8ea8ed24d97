package page

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// lookUpdates is how often sources are asked what an update would bring.
const lookUpdates = time.Hour

// Updates is what an update of the installed skills would bring: the rows of `skillsd update --preview
// --json` that are not unchanged.
type Updates struct {
	At    time.Time       `json:"at"` // when the sources were asked
	Error string          `json:"error,omitempty"`
	Rows  []report.Update `json:"rows"`
}

// updates keeps what the sources said last.
type updates struct {
	mu   sync.Mutex
	last *Updates // nil if they were not asked
}

// Look asks the sources of installed skills what an update would bring. No request does that: it fetches.
func (p *Page) Look(ctx context.Context) {
	found := &Updates{At: p.Now(), Rows: []report.Update{}}
	var rows []report.Update
	text, err := p.Printed(ctx, "update", "--preview", "--json")
	if err == nil {
		err = json.Unmarshal(text, &rows)
	}
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

// known returns what the sources said last, nil if they were not asked.
func (u *updates) known() *Updates {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}
