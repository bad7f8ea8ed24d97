package page

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
)

const (
	pageOfSessions = 50
	freshList      = time.Second // how long a list of sessions is cached
	day            = 24 * time.Hour
)

// Sessions is the content of /sessions.json.
type Sessions struct {
	Counts    Counts    `json:"counts"`
	Sessions  []Summary `json:"sessions"` // newest first
	Directory string    `json:"place"`    // of the records, for operators
	Paging              // of the sessions that match the filters

	States []string `json:"-"`
}

// Paging is the position of a page in a list.
type Paging struct {
	Of   int `json:"of"`   // rows of the list
	From int `json:"from"` // index of the first row of the page
	To   int `json:"to"`   // index after the last row of the page

	Before, After, Last string `json:"-"` // queries of the other pages, empty without one
}

// pageOf returns the rows of a list that a query asks for, at most size.
func pageOf[T any](q url.Values, list []T, size int) ([]T, Paging) {
	from, _ := strconv.Atoi(q.Get("from"))
	p := Paging{Of: len(list), From: min(max(from, 0), len(list))}
	p.To = min(p.From+size, p.Of)
	if p.From > 0 {
		p.Before = with(q, "from", strconv.Itoa(max(0, p.From-size)))
	}
	if p.To < p.Of {
		p.After = with(q, "from", strconv.Itoa(p.To))
		p.Last = with(q, "from", strconv.Itoa((p.Of-1)/size*size))
	}
	return list[p.From:p.To], p
}

// Counts cover the sessions that a client used in the last 24 hours.
type Counts struct {
	Open     int `json:"open"`   // now, regardless of their last use
	Asking   int `json:"asking"` // questions that users may still answer
	Sessions int `json:"sessions"`
	Runs     int `json:"runs"`
	Denials  int `json:"denials"`
	Faults   int `json:"faults"` // sessions that crashed or are damaged, at any time
}

// Summary is a session in a list.
type Summary struct {
	provenance.Session
	Skills  []string `json:"skills"`
	Verdict *Verdict `json:"verify,omitempty"` // absent until requested
	Worst   *Worst   `json:"worst,omitempty"`  // absent until then, and if nothing is wrong
}

// lists caches the list of sessions briefly, and the skills of sessions until their heads change.
type lists struct {
	mu     sync.Mutex // held while a list is read, so that several viewers share one read
	at     time.Time
	all    []provenance.Session
	recent map[string]bool // sessions written in the last 24 hours
	skills map[string]loaded
}

type loaded struct {
	head  string
	names []string
}

// list returns the sessions that the viewer may see, newest first, and which of them were used in the last
// day.
//
// Errors: the error of listing.
func (p *Page) list(ctx context.Context) ([]provenance.Session, map[string]bool, error) {
	all, recent, err := p.listAll(ctx)
	v := viewerOf(ctx)
	if v.operator || err != nil {
		return all, recent, err
	}
	// The list is cached for all viewers.
	return slices.DeleteFunc(slices.Clone(all),
		func(s provenance.Session) bool { return !v.sees(s.Principal) }), recent, nil
}

func (p *Page) listAll(ctx context.Context) ([]provenance.Session, map[string]bool, error) {
	l := &p.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	now := p.Now()
	// The clock may have been set back.
	if l.all != nil && now.Sub(l.at) < freshList && !now.Before(l.at) {
		return l.all, l.recent, nil
	}
	all, err := provenance.ListSessions(ctx, p.Records)
	if err != nil {
		return nil, nil, err
	}
	recent := map[string]bool{}
	for s, err := range p.Records.Sessions(ctx, now.Add(-day)) {
		// An error with an ID is about one damaged session, which is listed as such.
		if err != nil && s.ID == "" {
			return nil, nil, err
		}
		recent[s.ID] = true
	}
	if all == nil {
		all = []provenance.Session{}
	}
	l.at, l.all, l.recent = now, all, recent
	return all, recent, nil
}

// withSkills adds to sessions the skills they loaded.
func (p *Page) withSkills(ctx context.Context, list []provenance.Session) []Summary {
	l := &p.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.skills) > 50_000 || l.skills == nil {
		l.skills = map[string]loaded{}
	}
	rows := make([]Summary, len(list))
	for i, s := range list {
		known, ok := l.skills[s.ID]
		if !ok || known.head != s.Head.Hash {
			row := report.SessionRows(ctx, p.Records, list[i:i+1])[0]
			known = loaded{s.Head.Hash, append([]string{}, row.Skills...)}
			l.skills[s.ID] = known
		}
		rows[i] = Summary{Session: s, Skills: known.names, Verdict: p.verdicts.known(s.ID)}
		if s.State == provenance.StateOpen {
			rows[i].Worst = p.timeline(ctx, &s).worst()
		} else if rows[i].Verdict != nil {
			rows[i].Worst = rows[i].Verdict.worst
		}
	}
	return rows
}

// sessions returns the sessions that a request asks for.
func (p *Page) sessions(r *http.Request) (any, error) {
	all, recent, err := p.list(r.Context())
	if err != nil {
		return nil, err
	}
	out := &Sessions{Sessions: []Summary{}, States: []string{"open", "ended", "crashed", "damaged", faulty}}
	if viewerOf(r.Context()).operator {
		out.Directory = p.Directory
	}
	p.count(r.Context(), &out.Counts, all, recent)
	q := r.URL.Query()
	chosen := p.selected(r.Context(), all, q)
	chosen, out.Paging = pageOf(q, chosen, pageOfSessions)
	for i := range chosen {
		if chosen[i].State != provenance.StateOpen { // open sessions change and would be verified repeatedly
			p.verdict(&chosen[i])
		}
	}
	out.Sessions = append(out.Sessions, p.withSkills(r.Context(), chosen)...)
	return out, nil
}

// count counts all sessions, and the runs and refusals of recent ones.
func (p *Page) count(
	ctx context.Context, counts *Counts, all []provenance.Session, recent map[string]bool,
) {
	for i, s := range all {
		switch s.State {
		case provenance.StateOpen:
			counts.Open++
			for _, b := range p.timeline(ctx, &all[i]).blocks {
				if b.open(p.Now(), p.AskLife) {
					counts.Asking++
				}
			}
		case provenance.StateCrashed, provenance.StateDamaged:
			counts.Faults++
		}
		if recent[s.ID] {
			counts.Sessions++
			counts.Runs += s.Counts.Runs
			counts.Denials += s.Counts.Denials
		}
	}
}

// selected returns the sessions that the filters of a request leave.
func (p *Page) selected(
	ctx context.Context, all []provenance.Session, q url.Values,
) []provenance.Session {
	has := func(text, part string) bool {
		return part == "" || strings.Contains(strings.ToLower(text), strings.ToLower(part))
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(s provenance.Session) bool {
		return !has(s.Principal, q.Get("principal")) || !has(s.Client, q.Get("client")) ||
			!inState(&s, q.Get("state")) ||
			q.Get("denied") != "" && s.Counts.Denials == 0
	})
	skill := q.Get("skill")
	if skill == "" {
		return chosen
	}
	// This filter is last, because the record of each session that is left has to be read for it.
	loads := map[string]bool{}
	for _, row := range p.withSkills(ctx, chosen) {
		loads[row.ID] = slices.ContainsFunc(row.Skills,
			func(name string) bool { return has(name, skill) })
	}
	return slices.DeleteFunc(chosen, func(s provenance.Session) bool { return !loads[s.ID] })
}

// faulty selects crashed and damaged sessions.
const faulty = "crashed or damaged"

func inState(s *provenance.Session, state string) bool {
	return state == "" || state == string(s.State) ||
		state == faulty && (s.State == provenance.StateCrashed || s.State == provenance.StateDamaged)
}

// with returns a query with one value changed.
func with(q url.Values, key, value string) string {
	next := url.Values{}
	for k, v := range q {
		if k != key {
			next[k] = v
		}
	}
	next.Set(key, value)
	return "?" + next.Encode()
}

// find returns a session that the viewer may see.
//
// Errors: missing.
func (p *Page) find(ctx context.Context, id string) (*provenance.Session, error) {
	all, _, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s provenance.Session) bool { return s.ID == id })
	if i < 0 {
		return nil, missing("there is no session of this id; `skillsd session list` names those there are")
	}
	return &all[i], nil
}

// related returns the sessions with another one as their parent, oldest first.
func related(all []provenance.Session, id string) (ids []string) {
	for _, s := range slices.Backward(all) {
		if s.Parent == id {
			ids = append(ids, s.ID)
		}
	}
	return ids
}
