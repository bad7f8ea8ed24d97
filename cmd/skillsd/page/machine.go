package page

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// freshMachine is how old what is known of this machine may be: finding it out reads every skill.
const freshMachine = 15 * time.Second

// machine keeps what commands said about this machine for a while.
type machine struct {
	one  sync.Mutex // held while a command runs
	kept map[string]said
}

type said struct {
	at   time.Time
	text []byte
}

// ask decodes into rows what a command prints with --json, and returns when it did.
func (p *Page) ask(ctx context.Context, rows any, words ...string) (time.Time, error) {
	m := &p.machine
	m.one.Lock()
	defer m.one.Unlock()
	now := p.Now()
	known, ok := m.kept[words[0]]
	if !ok || now.Sub(known.at) >= freshMachine {
		text, err := p.Printed(ctx, words...)
		if err != nil {
			return now, err
		}
		if known = (said{now, text}); m.kept == nil {
			m.kept = map[string]said{}
		}
		m.kept[words[0]] = known
	}
	return known.at, json.Unmarshal(known.text, rows)
}

// Allowed is what /allowed.json has: the rows of `skillsd allow --list --json`.
type Allowed struct {
	At      time.Time `json:"at"`
	Entries []Entry   `json:"entries"`
	Paging
}

// Entry is an entry of the allowlist.
type Entry struct {
	Script  string `json:"script"`
	State   string `json:"state"` // allowed, unpinned, changed, missing, unsupported or unreleased
	Detail  string `json:"detail,omitempty"`
	Target  string `json:"target,omitempty"`
	Program string `json:"program,omitempty"`
}

func (p *Page) allowed(r *http.Request) (any, error) {
	out := &Allowed{Entries: []Entry{}}
	at, err := p.ask(r.Context(), &out.Entries, "allow", "--list", "--json")
	out.At = at
	out.Entries, out.Paging = pageOf(r.URL.Query(), out.Entries, maxRows)
	return out, err
}

// Skills is what /skills.json has: of the rows of `skillsd list --json`, what the screen shows.
type Skills struct {
	At     time.Time `json:"at"`
	Skills []Skill   `json:"skills"`
	Paging
}

// Skill is a skill with why it is, or is not, served.
type Skill struct {
	Path        string       `json:"path"`
	Description string       `json:"description"`
	Tier        string       `json:"tier"`
	Root        string       `json:"root"`
	Origin      string       `json:"origin,omitempty"`
	State       string       `json:"state"`
	Reasons     []string     `json:"reasons"`
	TreeDigest  string       `json:"treeDigest"`
	Scripts     []Script     `json:"scripts"`
	Diagnostics []Diagnostic `json:"diagnostics"`
}

// Script is a script of a skill.
type Script struct {
	Path    string `json:"path"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"` // why it may not run
}

// Diagnostic is what was found wrong with a skill.
type Diagnostic struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Fix      string `json:"fix,omitempty"`
}

func (p *Page) skills(r *http.Request) (any, error) {
	out := &Skills{Skills: []Skill{}}
	at, err := p.ask(r.Context(), &out.Skills, "list", "--json")
	out.At = at
	out.Skills, out.Paging = pageOf(r.URL.Query(), out.Skills, maxRows)
	return out, err
}

// Health is what /health.json has: the lines of `skillsd doctor --json`, the worst first.
type Health struct {
	At     time.Time `json:"at"`
	Checks []Check   `json:"checks"`
	Server *Live     `json:"server,omitempty"` // with serve --page
	Paging
}

// Check is one line of the doctor.
type Check struct {
	Verdict string `json:"verdict"` // ok, warn or fail
	Area    string `json:"area"`
	Fact    string `json:"fact"`
	Hint    string `json:"hint,omitempty"`
}

func (p *Page) health(r *http.Request) (any, error) {
	out := &Health{Checks: []Check{}}
	at, err := p.ask(r.Context(), &out.Checks, "doctor", "--json")
	out.At = at
	rank := map[string]int{"fail": 0, "warn": 1, "ok": 2}
	slices.SortStableFunc(out.Checks, func(a, b Check) int { return rank[a.Verdict] - rank[b.Verdict] })
	out.Checks, out.Paging = pageOf(r.URL.Query(), out.Checks, maxRows)
	if err == nil {
		out.Server, err = p.live(r.Context())
	}
	return out, err
}
