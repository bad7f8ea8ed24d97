package page

import (
	"net/http"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// Day counts the calls that began on a day, in UTC.
type Day struct {
	Date    string `json:"date"`
	Runs    int    `json:"runs"`
	Failed  int    `json:"failed"` // of the runs
	Refused int    `json:"refused"`
	Asked   int    `json:"asked"` // the user

	Number int `json:"-"` // from 0
	Most   int `json:"-"` // runs or refusals of any of the days
}

// The size of a chart. A day has two bars.
const (
	chartHeight = 60
	dayWidth    = 40
)

// Height returns the height of the bar of a count.
func (d Day) Height(count int) int { return count * chartHeight / max(d.Most, 1) }

// Top returns the top of the bar of a count.
func (d Day) Top(count int) int { return chartHeight - d.Height(count) }

// Left returns the left side of the first bar.
func (d Day) Left() int { return d.Number * dayWidth }

// Right returns the left side of the second bar.
func (d Day) Right() int { return d.Left() + dayWidth*9/20 }

// days counts calls by day.
func (p *Page) days(r *http.Request) ([]Day, error) {
	list, days, _, err := p.calls(r, func(*provenance.Session) bool { return true },
		func(_ *provenance.Session, b *Block) bool {
			return b.Kind == "run" || b.Outcome == refused
		})
	days = min(days, 31)
	out, at := make([]Day, days), map[string]int{}
	for i := range out {
		out[i].Date = p.Now().UTC().AddDate(0, 0, i-days+1).Format(time.DateOnly)
		out[i].Number, at[out[i].Date] = i, i
	}
	most := 0
	for i := range list {
		c := &list[i]
		n, ok := at[c.Start().UTC().Format(time.DateOnly)]
		if !ok {
			continue
		}
		d := &out[n]
		switch {
		case c.Outcome == refused:
			d.Refused++
		case c.Backend != "":
			d.Runs++
			if c.Class == "bad" {
				d.Failed++
			}
		}
		if c.asked() {
			d.Asked++
		}
		most = max(most, d.Runs, d.Refused)
	}
	for i := range out {
		out[i].Most = most
	}
	return out, err
}
