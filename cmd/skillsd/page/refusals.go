package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/provenance"
)

func jsonIndent(out *bytes.Buffer, line []byte) error { return json.Indent(out, line, "", "  ") }

const (
	maxSessionsRead = 300 // whose records a screen reads
	maxRows         = 200 // on one screen
	defaultDays     = 7
)

// Call is a block with its session.
type Call struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Client    string `json:"client,omitempty"`
	Block
}

// Group is the number of calls with a common property.
type Group struct {
	Name  string    `json:"name"`
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
	// Operator is how the operator can change the newest one.
	Operator string `json:"operator,omitempty"`
}

// Refusals is the content of /refusals.json.
type Refusals struct {
	Days    int     `json:"days"`
	By      string  `json:"by"` // code, skill or principal
	Groups  []Group `json:"groups"`
	Calls   []Call  `json:"calls"`   // newest first; with only=NAME, of one group
	Total   int     `json:"total"`   // refusals of all groups; a call may have several
	Partial bool    `json:"partial"` // older sessions of these days were not read
	Paging
}

// Approvals is the content of /approvals.json.
type Approvals struct {
	Days int    `json:"days"`
	Open []Call `json:"open"` // calls in open sessions that the user may still answer
	// Waiting are refused calls that the viewer can approve here, or with `skillsd approve`.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Questions are the questions as shown to the users; with serve --page.
	Questions []Question `json:"questions,omitempty"`
	Settled   []Call     `json:"answered"` // newest first
	Partial   bool       `json:"partial"`
	Paging               // of the settled calls
}

// calls returns the blocks of recent sessions that choose selects, newest first.
func (p *Page) calls(
	r *http.Request, needs func(*provenance.Session) bool, choose func(*provenance.Session, *Block) bool,
) (list []Call, days int, partial bool, err error) {
	days, _ = strconv.Atoi(r.URL.Query().Get("days"))
	// Without a maximum the number of days could overflow a Duration.
	if days < 1 || days > 3650 {
		days = defaultDays
	}
	ctx := r.Context()
	since := p.Now().Add(-time.Duration(days) * day)
	read := 0
	for s, err := range p.Records.Sessions(ctx, since) {
		if err != nil && s.ID == "" {
			return nil, days, false, err
		}
		if !viewerOf(ctx).sees(s.Principal) || !needs(&s) {
			continue
		}
		read++
		// Each session is read from the disk or the cluster for this screen.
		if read > maxSessionsRead {
			partial = true
			break
		}
		list = append(list, p.callsOf(ctx, &s, since, choose)...)
	}
	slices.SortStableFunc(list, func(a, b Call) int { return b.Start().Compare(a.Start()) })
	return list, days, partial, ctx.Err()
}

func (p *Page) callsOf(
	ctx context.Context, s *provenance.Session, since time.Time,
	choose func(*provenance.Session, *Block) bool,
) (list []Call) {
	for _, b := range p.timeline(ctx, s).blocks {
		// A session that was written recently may have older calls.
		if !b.Start().Before(since) && choose(s, b) {
			list = append(list, Call{Session: s.ID, Principal: s.Principal, Client: s.Client, Block: *b})
		}
	}
	return list
}

func (p *Page) refusals(r *http.Request) (any, error) {
	list, days, partial, err := p.calls(r,
		func(s *provenance.Session) bool { return s.Counts.Denials > 0 },
		func(_ *provenance.Session, b *Block) bool { return b.Denials > 0 })
	if err != nil {
		return nil, err
	}
	by := r.URL.Query().Get("by")
	key := func(c *Call) string { return c.Code }
	switch by {
	case "skill":
		key = func(c *Call) string { return c.Skill }
	case "principal":
		key = func(c *Call) string { return c.Principal }
	default:
		by = "code"
	}
	out := &Refusals{Days: days, By: by, Groups: []Group{}, Calls: []Call{}, Partial: partial}
	at := map[string]int{}
	for i := range list {
		c := &list[i]
		name := key(c)
		n, ok := at[name]
		if !ok {
			n = len(out.Groups)
			at[name] = n
			out.Groups = append(out.Groups, Group{Name: name, Last: c.Start(),
				// The list is sorted, so the first call of a group is its newest.
				Operator: cmp.Or(c.Operator, c.Remedy)})
		}
		out.Groups[n].Count += c.Denials
		out.Total += c.Denials
	}
	slices.SortStableFunc(out.Groups, func(a, b Group) int { return b.Count - a.Count })
	if only := r.URL.Query().Get("only"); only != "" {
		list = slices.DeleteFunc(list, func(c Call) bool { return key(&c) != only })
	}
	list, out.Paging = pageOf(r.URL.Query(), list, maxRows)
	out.Calls = append(out.Calls, list...)
	out.Groups = out.Groups[:min(len(out.Groups), maxRows)]
	return out, nil
}

func (p *Page) approvals(r *http.Request) (any, error) {
	open, codes := map[string]bool{}, []string{}
	list, days, partial, err := p.calls(r,
		func(s *provenance.Session) bool { return s.State != provenance.StateDamaged },
		func(s *provenance.Session, b *Block) bool {
			open[s.ID] = s.State == provenance.StateOpen
			// Each code is looked up, so codes that must have expired are left out.
			recent := p.Now().Sub(b.Start()) < approval.CodeLife
			if b.approvalCode != "" && recent && !slices.Contains(codes, b.approvalCode) {
				codes = append(codes, b.approvalCode)
			}
			return b.asked
		})
	if err != nil {
		return nil, err
	}
	waiting, err := p.waiting(r, codes)
	if err != nil {
		return nil, err
	}
	out := &Approvals{Days: days, Open: []Call{}, Settled: []Call{}, Partial: partial, Waiting: waiting}
	list = slices.DeleteFunc(list, func(c Call) bool {
		waits := open[c.Session] && c.open(p.Now(), p.AskLife)
		if waits && len(out.Open) < maxRows {
			out.Open = append(out.Open, c)
		}
		return waits
	})
	live, err := p.live(r.Context())
	if err != nil {
		return nil, err
	}
	if live != nil {
		out.Questions = live.questions
	}
	list, out.Paging = pageOf(r.URL.Query(), list, maxRows)
	out.Settled = append(out.Settled, list...)
	return out, nil
}
