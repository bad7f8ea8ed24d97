package page

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/sessions"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/story"
)

const (
	preview   = 4 << 10  // of an output, in bytes
	maxReplay = 1 << 20  // of the texts shown to a model, in bytes
	maxFolded = 60_000   // events with cached timelines
	maxRead   = 64 << 20 // of an output, in bytes
)

// Session is the content of /sessions/ID/session.json.
type Session struct {
	Summary
	Mode          string   `json:"cfcEnforcementMode,omitempty"`
	ClientSession string   `json:"clientSession,omitempty"` // the client's own id, not verified
	Profile       string   `json:"profile,omitempty"`
	Children      []string `json:"children"`        // ids of sessions with this one as their parent
	Fault         string   `json:"fault,omitempty"` // why the rest of the record is unreadable
	Snapshots     []Step   `json:"snapshots"`
	Bad           int      `json:"bad"` // calls that failed or were refused; ?only=bad shows only these
	Paging
	Blocks []Block `json:"blocks"`
}

// folds caches timelines until the heads of their sessions change.
type folds struct {
	mu     sync.Mutex // held while a record is read
	kept   map[string]*timeline
	events uint64
}

// timeline returns the timeline of a session.
func (p *Page) timeline(ctx context.Context, s *provenance.Session) *timeline {
	f := &p.folds
	f.mu.Lock()
	defer f.mu.Unlock()
	// A record that could not be read to its end is read again: the reason may have been a canceled request.
	if t := f.kept[s.ID]; t != nil && t.head.Hash == s.Head.Hash && t.fault == "" {
		return t
	}
	t := group(p.Records.Events(ctx, provenance.Query{Session: s.ID}))
	if f.kept == nil || f.events > maxFolded {
		// Memory is limited by events, because one session may have most of them.
		f.kept, f.events = map[string]*timeline{}, 0
	}
	f.kept[s.ID] = t
	f.events += t.head.Seq
	return t
}

// session returns one session with a page of its timeline.
func (p *Page) session(r *http.Request) (any, error) {
	ctx := r.Context()
	s, err := p.find(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	all, _, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	t := p.timeline(ctx, s)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	verdict := p.verdict(s)
	out := &Session{Summary: p.withSkills(ctx, []provenance.Session{*s})[0], Mode: t.info.Mode,
		ClientSession: t.info.ClientSession, Profile: t.info.Profile, Fault: t.fault,
		Children: append([]string{}, related(all, s.ID)...), Snapshots: append([]Step{}, t.snapshots...),
		Blocks: []Block{}}
	out.Verdict, out.Head = &verdict, t.head
	q := r.URL.Query()
	t.turnTo(q)
	chosen := slices.DeleteFunc(slices.Clone(t.blocks), func(b *Block) bool { return b.Class != "bad" })
	out.Bad = len(chosen)
	if q.Get("only") != "bad" {
		chosen = t.blocks
	}
	blocks, paging := pageOf(q, chosen, maxRows)
	out.Paging = paging
	for _, b := range blocks {
		// The timeline is cached and shared, so the texts are added to a copy.
		shown := *b
		shown.Outputs = slices.Clone(b.Outputs)
		for i := range shown.Outputs {
			p.begin(ctx, s.ID, &shown.Outputs[i])
		}
		out.Blocks = append(out.Blocks, shown)
	}
	p.undone(ctx, all, s.ID, out.Blocks)
	p.addTexts(ctx, s.ID, out.Blocks)
	return out, nil
}

// turnTo makes a link to an event one to the page of the timeline with it.
func (t *timeline) turnTo(q url.Values) {
	seq, err := strconv.ParseUint(q.Get("at"), 10, 64)
	if err != nil {
		return
	}
	for i, b := range t.blocks {
		if b.First() <= seq {
			q.Set("from", strconv.Itoa(i-i%maxRows))
		}
	}
	q.Del("at")
}

// addTexts adds the instructions and files that a session was shown to the blocks of a page.
func (p *Page) addTexts(ctx context.Context, id string, blocks []Block) {
	read := map[uint64]*Block{} // by the events that showed them
	var last uint64
	for i := range blocks {
		if b := &blocks[i]; b.Class == "good" && (b.Kind == "load" || b.Kind == "read") {
			last = b.First()
			read[last] = b
		}
	}
	if len(read) > 0 {
		p.shown(ctx, provenance.Query{Session: id, From: blocks[0].First(), Kinds: []provenance.Kind{
			provenance.KindSkillActivated, provenance.KindResourceRead}}, read, last)
	}
}

// undone adds to the runs of a session when their changes were undone.
func (p *Page) undone(ctx context.Context, all []provenance.Session, id string, blocks []Block) {
	for i := range all {
		if all[i].Parent != id || !strings.HasPrefix(all[i].Client, "skillsd-undo ") {
			continue
		}
		// `skillsd undo` writes a session of its own.
		query := provenance.Query{Session: all[i].ID,
			Kinds: []provenance.Kind{provenance.KindWorkspaceUndone}}
		for e, err := range p.Records.Events(ctx, query) {
			if err != nil {
				break // the page of that session shows the error
			}
			row := story.StepOf(e).Undone
			for n := range blocks {
				u := blocks[n].Undo
				if row != nil && u != nil && row.OutputID == u.OutputID &&
					(u.Undone == nil || u.Undone.Before(e.Time)) {
					changed := *u
					changed.Undone, changed.Session = &e.Time, e.Session
					blocks[n].Undo = &changed
				}
			}
		}
	}
}

// begin reads the beginning of an output.
func (p *Page) begin(ctx context.Context, id string, o *Output) {
	o.ID, o.Gone = "o-"+o.Name, "this output is not kept"
	file, err := p.Records.Stored(ctx, id, provenance.OutputsDir+"/"+o.Name)
	if err != nil {
		return
	}
	defer file.Close()
	if text, err := io.ReadAll(io.LimitReader(file, preview+1)); err == nil {
		o.Gone = ""
		o.begins(text)
	}
}

// begins keeps the beginning of a text, in whole characters.
func (o *Output) begins(text []byte) {
	cut := min(len(text), preview)
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut--
	}
	o.Text, o.More = string(text[:cut]), max(0, o.Bytes-int64(cut))
}

// shown adds to blocks the beginnings of the texts that their events showed the model, up to event last.
func (p *Page) shown(ctx context.Context, query provenance.Query, blocks map[uint64]*Block, last uint64) {
	for text, err := range sessions.Shown(ctx, p.Records, query, p.State) {
		if err != nil || text.Seq > last {
			return // the page of the timeline reports why the record is incomplete
		}
		b := blocks[text.Seq]
		if b == nil {
			continue
		}
		o := Output{ID: "s-" + strconv.FormatUint(text.Seq, 10), Label: "shown to the model",
			Bytes: int64(text.Bytes), Gone: text.Missing}
		o.begins(text.Content())
		b.Outputs = append(b.Outputs, o)
	}
}

// Event is one event as recorded.
type Event struct {
	Session string
	Event   *provenance.Event
	Line    string
	Pretty  string
}

// recorded returns the event that a request names, and its line.
func (p *Page) recorded(r *http.Request) (e *provenance.Event, line []byte, err error) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return nil, nil, missing("an event has a number")
	}
	s, err := p.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, nil, err
	}
	query := provenance.Query{Session: s.ID, From: seq}
	for e, err := range p.Records.Events(r.Context(), query) {
		if err != nil {
			return nil, nil, err
		}
		if e.Seq == seq {
			line, err := provenance.EncodeLine(e)
			return e, line, err
		}
		break
	}
	return nil, nil, missing("the session has no event of this number")
}

func (p *Page) event(r *http.Request) (any, error) {
	e, line, err := p.recorded(r)
	if err != nil {
		return nil, err
	}
	return &Event{Session: e.Session, Event: e, Line: string(line), Pretty: indent(line)}, nil
}

// eventLine answers with the line of an event as recorded.
func (p *Page) eventLine(w http.ResponseWriter, r *http.Request) error {
	_, line, err := p.recorded(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(line) // the browser may have disconnected
	return nil
}

// output answers with a whole kept output, as a download.
func (p *Page) output(w http.ResponseWriter, r *http.Request) error {
	s, err := p.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	file, err := p.Records.Stored(r.Context(), s.ID, provenance.OutputsDir+"/"+r.PathValue("name"))
	if err != nil {
		return err
	}
	defer file.Close()
	// An output is written by a script, and a browser that showed it as HTML would run it with the page's
	// origin.
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="output.txt"`)
	_, _ = io.Copy(w, io.LimitReader(file, maxRead)) // as above
	return nil
}

// Replay is what a model was shown, in order.
type Replay struct {
	Session string
	Text    string
	Cut     bool
	Missing string // what could not be found
}

func (p *Page) replay(r *http.Request) (any, error) {
	s, err := p.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	to := &limited{to: &text, left: maxReplay}
	out := &Replay{Session: s.ID}
	if err := sessions.Replay(r.Context(), to, p.Records, s.ID, p.State, false); err != nil {
		out.Missing = err.Error()
	}
	out.Text, out.Cut = text.String(), to.over
	return out, nil
}

func (p *Page) replayLines(w http.ResponseWriter, r *http.Request) error {
	s, err := p.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jsonl")
	// The line of a text that cannot be found has the reason.
	_ = sessions.Replay(r.Context(), w, p.Records, s.ID, p.State, true)
	return nil
}

func indent(line []byte) string {
	var out bytes.Buffer
	if err := jsonIndent(&out, report.QuietJSON(line)); err != nil {
		return string(line)
	}
	return out.String()
}
