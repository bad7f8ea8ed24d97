// Package telemetry converts recorded events to OpenTelemetry metrics, and to attributes of the span that is
// active when they are recorded.
//
// Every number except the size of the catalogue and the scans is a fold of provenance events: [Count] wraps a
// store with [Counters], and only events accepted by the store are included. So the totals of a process equal
// the counts in the session.json files that it wrote, and folding the same events again gives the same
// numbers.
//
// # Labels
//
// Label values are skill paths, sources, outcomes and codes, never text of a skill, an argument or output. A
// failed call may name any skill, so its skill becomes a label only if it is served or was shown before. At
// most [MaxSkills] skills and [MaxCodes] codes have their own series; later ones share the value [Other], as
// do values longer than [MaxLabel] bytes.
//
// # Metrics
//
//	skillsd.activations          skill, source   instructions that were shown
//	skillsd.activation_failures  skill, code     requests for a skill that were refused or failed
//	skillsd.resource_reads       skill           files that were shown
//	skillsd.script_runs          skill, outcome  scripts that started
//	skillsd.script_failures      skill, code     scripts that did not start, were stopped or exited nonzero
//	skillsd.denials              code            calls that policy refused
//	skillsd.script                               histogram, seconds that a script ran
//	skillsd.sessions                             open sessions
//	skillsd.snapshot_skills                      skills that are served
//	skillsd.rescan                               histogram of one bucket, seconds that a scan took
//	mcp.server.session.duration                  histogram, seconds that a session was open
//
// Counts start at zero with the process and are not restored from earlier sessions.
package telemetry

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
)

// Scope is the name of the meter and the tracer of this program.
const Scope = "github.com/skillsd/skillsd"

// Limits of label values.
const (
	MaxSkills = 1000
	MaxCodes  = 100
	MaxLabel  = 256 // bytes
)

// Other is the shared label value of all values without their own series.
const Other = "other"

// Counters are the totals of all added events. They are safe for concurrent use; create them with New.
type Counters struct {
	serves func(path string) bool

	activations, activationFailures, reads, runs, runFailures, denials metric.Int64Counter
	scripts, sessionTimes                                              metric.Float64Histogram

	mu       sync.Mutex // guards the fields below
	skills   map[string]bool
	codes    map[string]bool
	sessions map[string]time.Time // start of each open session
}

// New creates the instruments in a meter of the provider. With a nil provider nothing is counted, and events
// only appear in spans. skills returns the number of served skills, serves reports whether a path is served:
// both must be safe for concurrent use.
func New(provider metric.MeterProvider, skills func() int, serves func(path string) bool) *Counters {
	c := &Counters{
		serves: serves, skills: map[string]bool{}, codes: map[string]bool{}, sessions: map[string]time.Time{},
	}
	if provider == nil {
		provider = noop.NewMeterProvider()
	}
	meter := provider.Meter(Scope)
	// Errors concern only the name, the unit or the bounds, which are constants.
	counter := func(name, description string) metric.Int64Counter {
		made, _ := meter.Int64Counter(name, metric.WithDescription(description))
		return made
	}
	histogram := func(name, description string, bounds ...float64) metric.Float64Histogram {
		made, _ := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(bounds...))
		return made
	}
	gauge := func(name, description string, value func() int) {
		read := func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(value()))
			return nil
		}
		meter.Int64ObservableGauge(name, metric.WithDescription(description), metric.WithInt64Callback(read))
	}
	c.activations = counter("skillsd.activations", "Skills whose instructions were shown.")
	c.activationFailures = counter("skillsd.activation_failures",
		"Requests for a skill that were refused or failed.")
	c.reads = counter("skillsd.resource_reads", "Files of skills that were shown.")
	c.runs = counter("skillsd.script_runs", "Scripts that started, by how they ended.")
	c.runFailures = counter("skillsd.script_failures",
		"Scripts that did not start, were stopped, or exited with a status other than 0.")
	c.denials = counter("skillsd.denials", "Calls that policy refused.")
	c.scripts = histogram("skillsd.script", "How long scripts that started took.",
		.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)
	// These bounds come from the semantic conventions for MCP.
	c.sessionTimes = histogram("mcp.server.session.duration", "How long sessions that ended were open.",
		.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300)
	gauge("skillsd.sessions", "Sessions that are open.", func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.sessions)
	})
	gauge("skillsd.snapshot_skills", "Skills that are served.", skills)
	return c
}

// Store is a provenance.Store that counts accepted events.
type Store struct {
	provenance.Store
	counters *Counters
}

// Count returns a store that appends to inner and adds the events that inner accepted to c.
func Count(inner provenance.Store, c *Counters) *Store { return &Store{inner, c} }

// Append implements provenance.Store.
func (s *Store) Append(ctx context.Context, e *provenance.Event) error {
	if err := s.Store.Append(ctx, e); err != nil {
		return err
	}
	s.counters.Add(ctx, e)
	return nil
}

// Recall implements cfharness.Recaller by recalling from the inner store.
func (s *Store) Recall(ctx context.Context, session string) (*cfharness.Recollection, error) {
	return cfharness.Recall(ctx, s.Store, session)
}

// Add folds a recorded event into the totals and adds it to the active span, if any. Events of other kinds
// change no total, and neither does a malformed row.
func (c *Counters) Add(ctx context.Context, e *provenance.Event) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("skillsd.session", e.Session))
	s := story.StepOf(e)
	switch s.Action {
	case story.Opened:
		c.mu.Lock()
		// The clone does not keep the whole event in memory.
		c.sessions[strings.Clone(e.Session)] = e.Time
		c.mu.Unlock()
	case story.Ended:
		// A session that another process started is unknown here.
		c.mu.Lock()
		start, open := c.sessions[e.Session]
		delete(c.sessions, e.Session)
		c.mu.Unlock()
		if open {
			c.sessionTimes.Record(ctx, e.Time.Sub(start).Seconds())
		}
	case story.Loaded, story.Read, story.Ran, story.Refused:
		if s.Malformed == nil {
			c.addCall(ctx, s)
		}
	}
}

// addCall folds the end of a call.
func (c *Counters) addCall(ctx context.Context, e *story.Step) {
	code, failed := e.Code(), e.Failed()
	// serves may take locks of the registry, so it is called before the lock.
	known := !failed || c.serves(e.Skill)
	describe(trace.SpanFromContext(ctx), e, known)

	c.mu.Lock()
	defer c.mu.Unlock()
	skill := attribute.String("skill", Other)
	if known || c.skills[e.Skill] {
		skill = attribute.String("skill", bounded(c.skills, e.Skill, MaxSkills))
	}
	switch {
	case e.Action == story.Refused:
		c.addRefusal(ctx, e, skill, code)
	case e.Action == story.Loaded && failed:
		add(ctx, c.activationFailures, skill, c.code(code))
	case e.Action == story.Loaded:
		add(ctx, c.activations, skill, c.label("source", sourceOf(e)))
	case e.Action == story.Ran && failed:
		add(ctx, c.runFailures, skill, c.code(code))
	case e.Action == story.Ran:
		c.addRun(ctx, e, skill)
	case e.Action == story.Read && !failed:
		add(ctx, c.reads, skill)
	}
}

// describe adds the skill of a call to its span, if that skill is known, and the outcome of a run.
func describe(span trace.Span, e *story.Step, known bool) {
	if e.Skill != "" && known {
		// The conventions use the name, which may be ambiguous; the path is not.
		span.SetAttributes(attribute.String("skillsd.skill", e.Skill),
			attribute.String("gen_ai.skill.name", path.Base(e.Skill)))
	}
	if outcome := e.Facts().Outcome; outcome != "" {
		span.SetAttributes(attribute.String("skillsd.outcome", string(outcome)))
	}
}

// sourceOf returns the source of an activation. If the instructions were sent before, the event has no row.
func sourceOf(e *story.Step) string {
	if e.Activation != nil && e.Activation.Source != "" {
		return string(e.Activation.Source)
	}
	source, _, _ := strings.Cut(e.Detail, ",")
	return source
}

// addRefusal folds a refused call. The caller holds mu.
func (c *Counters) addRefusal(ctx context.Context, e *story.Step, skill attribute.KeyValue, code string) {
	add(ctx, c.denials, c.code(code))
	if e.Policy != nil && (e.Policy.ToolID == "load_skill" || e.Policy.ToolID == "prompts/get") {
		add(ctx, c.activationFailures, skill, c.code(code))
	}
}

// addRun folds the end of a script that started. The caller holds mu.
func (c *Counters) addRun(ctx context.Context, e *story.Step, skill attribute.KeyValue) {
	facts := e.Facts()
	add(ctx, c.runs, skill, c.label("outcome", string(facts.Outcome)))
	switch {
	case facts.Outcome != cfharness.OutcomeExited:
		add(ctx, c.runFailures, skill, c.code(string(facts.Outcome)))
	case e.Run.ExitCode != nil && *e.Run.ExitCode != 0:
		add(ctx, c.runFailures, skill, c.code("exit_nonzero"))
	}
	c.scripts.Record(ctx, float64(max(facts.DurationMS, 0))/1000)
}

func add(ctx context.Context, counter metric.Int64Counter, labels ...attribute.KeyValue) {
	counter.Add(ctx, 1, metric.WithAttributes(labels...))
}

// code returns the label of a code. The caller holds mu.
func (c *Counters) code(word string) attribute.KeyValue { return c.label("code", word) }

// label returns a label with one of a limited set of words. The caller holds mu.
func (c *Counters) label(name, word string) attribute.KeyValue {
	return attribute.String(name, bounded(c.codes, word, MaxCodes))
}

// bounded returns value if it has a series of its own in known, or can get one of at most most; else Other.
func bounded(known map[string]bool, value string, most int) string {
	if known[value] {
		return value
	}
	if value == "" || len(known) >= most || len(value) > MaxLabel || !utf8.ValidString(value) {
		return Other
	}
	// The clone does not keep the whole event in memory.
	value = strings.Clone(value)
	known[value] = true
	return value
}

// Rescans produces the metric skillsd.rescan from a function that returns the number of scans and their total
// time. A registry keeps only these totals, so the histogram has one bucket.
type Rescans func() (n int, took time.Duration)

// Produce implements the Producer interface of the metrics SDK.
func (r Rescans) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	n, took := r()
	count := uint64(max(n, 0))
	scans := metricdata.Metrics{
		Name: "skillsd.rescan", Description: "Scans of the skill roots, the first one included.", Unit: "s",
		Data: metricdata.Histogram[float64]{
			Temporality: metricdata.CumulativeTemporality,
			DataPoints: []metricdata.HistogramDataPoint[float64]{{
				Time: time.Now(), Count: count, Sum: took.Seconds(), BucketCounts: []uint64{count},
			}},
		},
	}
	scope := instrumentation.Scope{Name: Scope}
	return []metricdata.ScopeMetrics{{Scope: scope, Metrics: []metricdata.Metrics{scans}}}, nil
}
