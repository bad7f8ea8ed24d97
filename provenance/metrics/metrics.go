// Package metrics counts what a store records and writes it as Prometheus text.
//
// Every number but those of the catalogue is a fold over provenance events: [Count] puts [Counters]
// in front of a store, and what the store accepted is counted, nothing else. So the totals of a
// process equal the counts of the session.json files it wrote, and the same events folded again give
// the same numbers.
//
// Label values are skill paths, sources, outcomes and codes: no text of a skill, no argument and no
// output. A call that failed may have named anything, so its skill is a label only when it is served or
// was shown before. At most [MaxSkills] skills and [MaxCodes] codes have series of their own, later
// ones share the value [Other]; a value longer than [MaxLabel] bytes is Other at once.
//
// The text format is written here and not by the client library of Prometheus: linking that one runs
// its default registry, procfs and protobuf in every start of the binary, and the sandbox starts the
// binary again for each script. What the format has beyond counters, gauges and one histogram is not
// offered. Counts start at zero with the process and are not restored from earlier sessions, as
// Prometheus expects of counters.
//
//	counters := metrics.New(nil)
//	records := metrics.Count(store, counters) // give this one to the sessions
//	counters.WriteTo(w)
package metrics

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Bounds of label values.
const (
	MaxSkills = 1000
	MaxCodes  = 100
	MaxLabel  = 256 // bytes
)

// Other is the label value of what has none of its own.
const Other = "other"

// Options are what is known beside events. The functions are called on every [Counters.WriteTo], or
// in Add for Serves, and must be safe for concurrent use.
type Options struct {
	// Skills returns how many skills the current snapshot serves. Nil leaves the metric out.
	Skills func() int
	// Serves reports whether a skill path is served now. Nil means that none is.
	Serves func(path string) bool
	// Scans returns how many scans of the roots were done and how long they took together. Nil
	// leaves the metric out.
	Scans func() (n int, took time.Duration)
}

// Counters are the totals of the events that were added. They are safe for concurrent use; make one
// with New.
type Counters struct {
	opts Options

	mu       sync.Mutex // guards what follows
	skills   map[string]bool
	codes    map[string]bool
	sessions map[string]bool // open ones

	activations, activationFailures, reads, runs, runFailures, denials vector
	seconds                                                            histogram
}

// New returns Counters at zero. Nil opts are the zero Options.
func New(opts *Options) *Counters {
	if opts == nil {
		opts = &Options{}
	}
	return &Counters{opts: *opts, skills: map[string]bool{}, codes: map[string]bool{}, sessions: map[string]bool{}}
}

// Store is a provenance.Store whose accepted events are counted.
type Store struct {
	provenance.Store
	counters *Counters
}

// Count returns a store that appends to inner and adds to c what inner accepted.
func Count(inner provenance.Store, c *Counters) *Store {
	return &Store{inner, c}
}

// Append implements provenance.Store.
func (s *Store) Append(ctx context.Context, e *provenance.Event) error {
	if err := s.Store.Append(ctx, e); err != nil {
		return err
	}
	s.counters.Add(e)
	return nil
}

// The tools and methods whose refusal is an activation that failed.
const (
	toolLoad     = "load_skill"
	methodPrompt = "prompts/get"
)

// exitNonzero is the code of a script that ended by itself with another status than 0.
const exitNonzero = "exit_nonzero"

// Add folds a recorded event into the totals. Kinds that nothing is counted of change nothing, and so
// does a row that is not of the kind's form.
func (c *Counters) Add(e *provenance.Event) {
	switch e.Kind {
	case provenance.KindSessionStarted, provenance.KindSessionResumed:
		c.mu.Lock()
		c.sessions[e.Session] = true
		c.mu.Unlock()
	case provenance.KindSessionEnded:
		c.mu.Lock()
		delete(c.sessions, e.Session)
		c.mu.Unlock()
	case provenance.KindSkillActivated:
		c.activated(e)
	case provenance.KindResourceRead:
		if text(member(e.Row, "status")) != string(cfharness.StatusError) {
			c.mu.Lock()
			c.reads.add(c.skill(e.Skill), "")
			c.mu.Unlock()
		}
	case provenance.KindScriptExecuted:
		c.executed(e)
	case provenance.KindPolicyDenied:
		c.denied(e)
	}
}

func (c *Counters) activated(e *provenance.Event) {
	if code := e.ErrorCode(); code != "" {
		served := c.serves(e)
		c.mu.Lock()
		c.activationFailures.add(c.named(e, served), c.code(code))
		c.mu.Unlock()
		return
	}
	source := text(member(e.Row, "source"))
	if source == "" {
		// Instructions that were sent before make no row.
		source, _, _ = strings.Cut(e.Detail, ",")
	}
	c.mu.Lock()
	c.activations.add(c.skill(e.Skill), c.code(source))
	c.mu.Unlock()
}

func (c *Counters) executed(e *provenance.Event) {
	var status, exit, failed, ours []byte
	for name, rest := range members(e.Row) {
		switch string(name) {
		case "status":
			status = value(rest)
		case "exitCode":
			exit = value(rest)
		case "error":
			failed = rest
		case "skillsd":
			ours = rest
		}
		if ours != nil {
			break // it is the last one
		}
	}
	if text(status) == string(cfharness.StatusError) {
		code, served := text(member(failed, "code")), c.serves(e)
		c.mu.Lock()
		c.runFailures.add(c.named(e, served), c.code(code))
		c.mu.Unlock()
		return
	}
	outcome := text(member(ours, "outcome"))
	failure := outcome
	if outcome == string(cfharness.OutcomeExited) {
		failure = ""
		if exit != nil && string(exit) != "0" {
			failure = exitNonzero
		}
	}
	milliseconds := integer(member(ours, "durationMs"))
	c.mu.Lock()
	defer c.mu.Unlock()
	skill := c.skill(e.Skill)
	c.runs.add(skill, c.code(outcome))
	if failure != "" {
		c.runFailures.add(skill, c.code(failure))
	}
	c.seconds.add(milliseconds)
}

func (c *Counters) denied(e *provenance.Event) {
	var code, tool string
	for name, rest := range members(e.Row) {
		switch string(name) {
		case "toolId":
			tool = text(value(rest))
		case "observationDenied":
			code = text(member(rest, "code"))
		}
		if code != "" && tool != "" {
			break
		}
	}
	served := c.serves(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	code = c.code(code)
	c.denials.add(code, "")
	if tool == toolLoad || tool == methodPrompt {
		c.activationFailures.add(c.named(e, served), code)
	}
}

// serves asks whether the skill of an event is served, before the lock is taken.
func (c *Counters) serves(e *provenance.Event) bool {
	return c.opts.Serves != nil && c.opts.Serves(e.Skill)
}

// named is the label value of the skill that a call named which failed. The caller holds the lock, here,
// in skill and in code.
func (c *Counters) named(e *provenance.Event, served bool) string {
	if !served && !c.skills[e.Skill] {
		return Other
	}
	return c.skill(e.Skill)
}

// skill is the label value of a skill path.
func (c *Counters) skill(path string) string { return bounded(c.skills, path, MaxSkills) }

// code is the label value of a source, an outcome or a code.
func (c *Counters) code(word string) string { return bounded(c.codes, word, MaxCodes) }

func bounded(known map[string]bool, value string, most int) string {
	if known[value] {
		return value
	}
	if value == "" || len(known) >= most || len(value) > MaxLabel || !utf8.ValidString(value) {
		return Other
	}
	value = strings.Clone(value) // the event it is part of must not live as long
	known[value] = true
	return value
}
