package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// freshMachine is how long data about this machine is cached: collecting it reads every skill.
const freshMachine = 15 * time.Second

// machine caches the output of commands about this machine.
type machine struct {
	one  sync.Mutex // held while a command runs
	kept map[string]said
}

type said struct {
	at   time.Time
	text []byte
}

// ask decodes the --json output of a command into rows, and returns the time of the output.
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
		known = (said{now, text})
		if m.kept == nil {
			m.kept = map[string]said{}
		}
		m.kept[words[0]] = known
	}
	return known.at, json.Unmarshal(known.text, rows)
}

// Allowed is the content of /allowed.json: the rows of `skillsd allow --list --json`.
type Allowed struct {
	At      time.Time      `json:"at"`
	Entries []Entry        `json:"entries"`
	Checks  []doctor.Check `json:"checks"` // what prevents entries from running, from the doctor
	Paging
}

// Entry is an entry of the allowlist.
type Entry struct {
	serve.AllowRow
	Last *LastRun `json:"lastRun,omitempty"` // in the last seven days
}

// LastRun is a run of a script.
type LastRun struct {
	Session string    `json:"session"`
	Seq     uint64    `json:"seq"` // of its first event
	Time    time.Time `json:"time"`
	Outcome string    `json:"outcome"`
	Class   string    `json:"-"`
}

// Grants lists what a run of an entry may use besides the files of its skill.
func (e *Entry) Grants() (list []string) {
	add := func(what string, names ...string) {
		if len(names) > 0 && names[0] != "" {
			list = append(list, what+" "+strings.Join(names, ", "))
		}
	}
	add("project directory:", e.Workspace)
	list = append(list, e.Given...)
	add("network", e.Network...)
	add("variables", e.Env...)
	add("secrets", e.Secrets...)
	add("packages", e.Environment)
	add("asks:", string(e.Ask))
	add("output:", string(e.Release))
	return list
}

func (p *Page) allowed(r *http.Request) (any, error) {
	out := &Allowed{Entries: []Entry{}, Checks: []doctor.Check{}}
	at, err := p.ask(r.Context(), &out.Entries, "allow", "--list", "--json")
	if err != nil {
		return nil, err
	}
	_, err = p.ask(r.Context(), &out.Checks, "doctor", "--json")
	if err != nil {
		return nil, err
	}
	out.Checks = slices.DeleteFunc(out.Checks,
		func(c doctor.Check) bool { return c.Script == "" || c.Verdict == doctor.OK })
	out.At = at
	out.Entries, out.Paging = pageOf(r.URL.Query(), out.Entries, maxRows)
	runs, _, _, err := p.calls(r, func(s *provenance.Session) bool { return s.Counts.Runs > 0 },
		func(_ *provenance.Session, b *Block) bool { return b.Kind == "run" && b.Backend != "" })
	last := map[string]*LastRun{}
	// The newest is last, so it replaces earlier runs of the same script.
	for _, c := range slices.Backward(runs) {
		last[c.Skill+":"+c.Path] = &LastRun{c.Session, c.First(), c.Start(), c.Outcome, c.Class}
	}
	for i := range out.Entries {
		out.Entries[i].Last = last[out.Entries[i].Script]
	}
	return out, err
}

// Skills is the content of /skills.json: the rows of `skillsd list --json`.
type Skills struct {
	At     time.Time         `json:"at"`
	Skills []report.SkillRow `json:"skills"`
	Update *Updates          `json:"updates,omitempty"` // with skillsd page --updates
	Paging
}

func (p *Page) skills(r *http.Request) (any, error) {
	out := &Skills{Skills: []report.SkillRow{}, Update: p.updates.known()}
	var err error
	out.At, err = p.ask(r.Context(), &out.Skills, "list", "--json")
	out.Skills, out.Paging = pageOf(r.URL.Query(), out.Skills, maxRows)
	return out, err
}

// Skill is the content of /skill.json: a skill with the current texts of its files.
type Skill struct {
	report.SkillRow
	Files []File `json:"files"`
}

// File is a file of a skill.
type File struct {
	Path    string        `json:"path"`
	Bytes   int64         `json:"bytes"`
	Digest  digest.Digest `json:"digest"`
	Text    string        `json:"text"`
	Missing string        `json:"missing,omitempty"` // why the text is missing
}

// maxTexts is the maximum size of the texts of a skill on a screen, in bytes.
const maxTexts = 1 << 20

func (p *Page) skill(r *http.Request) (any, error) {
	var rows []report.SkillRow
	if _, err := p.ask(r.Context(), &rows, "list", "--json"); err != nil {
		return nil, err
	}
	path := r.URL.Query().Get("path")
	i := slices.IndexFunc(rows, func(row report.SkillRow) bool { return row.Path == path })
	if i < 0 {
		return nil, missing("there is no skill of this path; `skillsd list` names those there are")
	}
	out := &Skill{SkillRow: rows[i], Files: []File{}}
	// A link in the skill cannot lead out of its directory.
	root, err := os.OpenRoot(filepath.Dir(out.File))
	if err != nil {
		return nil, missing("the files of this skill are in no directory, or it cannot be read")
	}
	defer root.Close()
	left := int64(maxTexts)
	first := skills.Resource{Path: filepath.Base(out.File), Digest: out.Digest, Text: true}
	for _, res := range append([]skills.Resource{first}, out.Resources...) {
		f := File{Path: res.Path, Bytes: res.Size, Digest: res.Digest}
		f.read(root, res.Text, left)
		// All files together are limited, since a skill may have thousands.
		left -= int64(len(f.Text))
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// read reads the text of a file of at most limit bytes.
func (f *File) read(root *os.Root, isText bool, limit int64) {
	if !isText {
		f.Missing = "it is not text"
		return
	}
	text, err := fsys.ReadFileIn(root, filepath.FromSlash(f.Path), limit)
	_, long := errors.AsType[*fsys.TooLongError](err)
	switch {
	case long:
		f.Missing = "it is too long for this page"
	case err != nil:
		f.Missing = "it cannot be read"
	// The row is older than the file, and the digest next to the text would be wrong.
	case digest.FromBytes(text) != f.Digest:
		f.Missing = "it changed just now"
	default:
		f.Text, f.Bytes = string(text), int64(len(text))
	}
}

// Health is the content of /health.json: the lines of `skillsd doctor --json`, worst first.
type Health struct {
	At      time.Time        `json:"at"`
	Checks  []doctor.Check   `json:"checks"`            // for operators
	Server  *Live            `json:"server,omitempty"`  // with serve --page
	Cluster *cluster.Members `json:"cluster,omitempty"` // with serve --cluster, for operators
	Limits  []config.Row     `json:"limits"`            // of each run, for operators
	Days    []Day            `json:"days"`              // oldest first
	Paging
}

func (p *Page) health(r *http.Request) (any, error) {
	out := &Health{At: p.Now(), Checks: []doctor.Check{}, Limits: []config.Row{}}
	operator := viewerOf(r.Context()).operator
	if operator {
		if err := p.checkHealth(r.Context(), out); err != nil {
			return out, err
		}
	}
	var unread error
	out.Days, unread = p.days(r)
	if unread != nil && operator { // a row as well
		out.Checks = append(out.Checks,
			doctor.Check{Verdict: doctor.Fail, Area: "records", Fact: unread.Error()})
		unread = nil
	}
	out.Limits = slices.DeleteFunc(out.Limits,
		func(row config.Row) bool { return !strings.HasPrefix(row.Key, "limits.") })
	rank := map[string]int{doctor.Fail: 0, doctor.Warn: 1, doctor.OK: 2}
	slices.SortStableFunc(out.Checks,
		func(a, b doctor.Check) int { return rank[a.Verdict] - rank[b.Verdict] })
	out.Checks, out.Paging = pageOf(r.URL.Query(), out.Checks, maxRows)
	var err error
	out.Server, err = p.live(r.Context())
	return out, cmp.Or(err, unread)
}

// checkHealth adds the parts for operators: doctor's checks, the limits of runs and the members of the
// cluster.
func (p *Page) checkHealth(ctx context.Context, out *Health) (err error) {
	out.At, err = p.ask(ctx, &out.Checks, "doctor", "--json")
	if err != nil {
		return err
	}
	if _, err := p.ask(ctx, &out.Limits, "config", "show", "--json"); err != nil {
		return err
	}
	if p.Members == nil {
		return nil
	}
	members, err := p.Members(ctx)
	if err != nil { // a row as well
		out.Checks = append(out.Checks,
			doctor.Check{Verdict: doctor.Fail, Area: "cluster", Fact: err.Error()})
		return nil
	}
	out.Cluster = members
	if members.Pool != "" { // scripts run on workers
		out.Checks = slices.DeleteFunc(out.Checks, func(c doctor.Check) bool { return c.Area == "sandbox" })
	}
	return nil
}
