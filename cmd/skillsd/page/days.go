package page

import (
	"net/http"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// Day has the numbers of calls that started on a day, in UTC.
type Day struct {
	Date    string `json:"date"`
	Runs    int    `json:"runs"`
	Failed  int    `json:"failed"` // runs that failed
	Refused int    `json:"refused"`
	Asked   int    `json:"asked"` // calls that asked the user

	Number int `json:"-"` // index from 0
	Most   int `json:"-"` // largest bar of all days
}

// The size of a chart, with room for a number above a bar and below a day.
const (
	chartHeight = 60
	chartLabel  = 16
	dayWidth    = 48
	barWidth    = 14
)

// bar is a bar of a chart. Y is its top.
type bar struct {
	X, Y, Height, Count int
	Class               string
}

// Left returns the x coordinate of the first bar.
func (d Day) Left() int { return d.Number * dayWidth }

// Name returns the day of the month.
func (d Day) Name() string { return d.Date[len("2006-01-"):] }

// Bars returns the bars of successful runs, failed runs, and refusals.
func (d Day) Bars() []bar {
	list := []bar{{Count: d.Runs - d.Failed, Class: "fill"}, {Count: d.Failed, Class: "wait"},
		{Count: d.Refused, Class: "refused"}}
	for i := range list {
		b := &list[i]
		b.Height = b.Count * chartHeight / max(d.Most, 1)
		b.X, b.Y = d.Left()+i*barWidth, chartLabel+chartHeight-b.Height
	}
	return list
}

// days returns the numbers of calls by day.
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
		// A run without a backend did not start.
		case c.Backend != "":
			d.Runs++
			if c.Class == "bad" {
				d.Failed++
			}
		}
		if c.asked {
			d.Asked++
		}
		most = max(most, d.Runs-d.Failed, d.Failed, d.Refused)
	}
	for i := range out {
		out[i].Most = most
	}
	return out, err
}
