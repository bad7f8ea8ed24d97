package page

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance"
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
	serve.AllowRow
	Last *LastRun `json:"lastRun,omitempty"` // of the last seven days
}

// LastRun is a run of a script.
type LastRun struct {
	Session string    `json:"session"`
	Seq     uint64    `json:"seq"` // of its first event
	Time    time.Time `json:"time"`
	Outcome string    `json:"outcome"`
	Class   string    `json:"-"`
}

// Grants says what a run of an entry gets besides the files of its skill.
func (e *Entry) Grants() (list []string) {
	add := func(what string, names ...string) {
		if len(names) > 0 && names[0] != "" {
			list = append(list, what+" "+strings.Join(names, ", "))
		}
	}
	add("workspace", e.Workspace)
	add("network", e.Network...)
	add("variables", e.Env...)
	add("secrets", e.Secrets...)
	add("packages", e.Environment)
	add("asks:", string(e.Approve))
	add("output:", string(e.Release))
	return list
}

func (p *Page) allowed(r *http.Request) (any, error) {
	if !viewerOf(r.Context()).operator {
		return nil, errOperators
	}
	out := &Allowed{Entries: []Entry{}}
	at, err := p.ask(r.Context(), &out.Entries, "allow", "--list", "--json")
	out.At = at
	out.Entries, out.Paging = pageOf(r.URL.Query(), out.Entries, maxRows)
	if err != nil {
		return out, err
	}
	runs, _, _, err := p.calls(r, func(s *provenance.Session) bool { return s.Counts.Runs > 0 },
		func(_ *provenance.Session, b *Block) bool { return b.Kind == "run" && b.Backend != "" })
	last := map[string]*LastRun{}
	for _, c := range slices.Backward(runs) {
		last[c.Skill+":"+c.Path] = &LastRun{c.Session, c.First(), c.Start(), c.Outcome, c.Class}
	}
	for i := range out.Entries {
		out.Entries[i].Last = last[out.Entries[i].Script]
	}
	return out, err
}

// Skills is what /skills.json has: of the rows of `skillsd list --json`, what the screen shows.
type Skills struct {
	At     time.Time `json:"at"`
	Skills []Skill   `json:"skills"`
	Update *Updates  `json:"updates,omitempty"` // with skillsd page --updates
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
	if !viewerOf(r.Context()).operator {
		return nil, errOperators
	}
	out := &Skills{Skills: []Skill{}}
	at, err := p.ask(r.Context(), &out.Skills, "list", "--json")
	out.At = at
	out.Update = p.updates.known()
	out.Skills, out.Paging = pageOf(r.URL.Query(), out.Skills, maxRows)
	return out, err
}

// Health is what /health.json has: the lines of `skillsd doctor --json`, the worst first.
type Health struct {
	At     time.Time `json:"at"`
	Checks []Check   `json:"checks"`           // none if the viewer is not an operator
	Server *Live     `json:"server,omitempty"` // with serve --page
	Days   []Day     `json:"days"`             // the oldest first
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
	out := &Health{At: p.Now(), Checks: []Check{}}
	var err error
	if viewerOf(r.Context()).operator {
		out.At, err = p.ask(r.Context(), &out.Checks, "doctor", "--json")
	}
	rank := map[string]int{"fail": 0, "warn": 1, "ok": 2}
	slices.SortStableFunc(out.Checks, func(a, b Check) int { return rank[a.Verdict] - rank[b.Verdict] })
	out.Checks, out.Paging = pageOf(r.URL.Query(), out.Checks, maxRows)
	if err == nil {
		out.Server, err = p.live(r.Context())
	}
	if err == nil {
		out.Days, err = p.days(r)
	}
	return out, err
}
