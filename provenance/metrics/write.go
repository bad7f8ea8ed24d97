package metrics

import (
	"bytes"
	"cmp"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// ContentType is the media type of what [Counters.WriteTo] writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// vector is a counter for each pair of label values; one that has a single label leaves the second
// value empty. The zero vector is ready.
type vector struct {
	values map[[2]string]uint64
}

func (v *vector) add(first, second string) {
	if v.values == nil {
		v.values = map[[2]string]uint64{}
	}
	v.values[[2]string{first, second}]++
}

// bounds are the upper bounds of the buckets of durations, in milliseconds.
var bounds = [...]uint64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000}

// histogram counts durations. The zero histogram is ready.
type histogram struct {
	buckets [len(bounds)]uint64 // of durations up to the bound and above the one before
	n, sum  uint64              // of all; milliseconds
}

func (h *histogram) add(milliseconds uint64) {
	h.n++
	h.sum += milliseconds
	for i, bound := range bounds {
		if milliseconds <= bound {
			h.buckets[i]++
			return
		}
	}
}

// WriteTo writes all metrics in the text format of Prometheus, sorted, so that equal totals are equal
// bytes. Nothing is locked while w is written to.
//
// Errors: those of w.
func (c *Counters) WriteTo(w io.Writer) (int64, error) {
	var out page
	c.mu.Lock()
	out.vector("skillsd_activations_total", "Skills whose instructions were shown.", &c.activations, "skill", "source")
	out.vector("skillsd_activation_failures_total", "Requests for a skill that were refused or failed.", &c.activationFailures, "skill", "code")
	out.vector("skillsd_resource_reads_total", "Files of skills that were shown.", &c.reads, "skill")
	out.vector("skillsd_script_runs_total", "Scripts that started, by how they ended.", &c.runs, "skill", "outcome")
	out.vector("skillsd_script_failures_total", "Scripts that did not start, did not end by themselves or ended with another status than 0.", &c.runFailures, "skill", "code")
	out.vector("skillsd_denials_total", "Calls that policy refused.", &c.denials, "code")
	out.histogram("skillsd_script_seconds", "How long scripts that started took.", &c.seconds)
	out.metric("skillsd_sessions", "gauge", "Sessions that are open.", strconv.Itoa(len(c.sessions)))
	c.mu.Unlock()
	if c.opts.Skills != nil {
		out.metric("skillsd_snapshot_skills", "gauge", "Skills that are served.", strconv.Itoa(c.opts.Skills()))
	}
	if c.opts.Scans != nil {
		n, took := c.opts.Scans()
		out.head("skillsd_rescan_seconds", "summary", "Scans of the skill roots, the first one included.")
		out.line("skillsd_rescan_seconds_sum", decimal(took.Seconds()))
		out.line("skillsd_rescan_seconds_count", strconv.Itoa(n))
	}
	out.metric("go_goroutines", "gauge", "Goroutines that exist.", strconv.Itoa(runtime.NumGoroutine()))
	if resident := residentBytes(); resident > 0 {
		out.metric("process_resident_memory_bytes", "gauge", "Resident memory of the server, without running scripts.", strconv.FormatInt(resident, 10))
	}
	return out.WriteTo(w)
}

// page is a text in the making.
type page struct{ bytes.Buffer }

func (p *page) head(name, kind, help string) {
	p.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

func (p *page) line(name, value string) { p.WriteString(name + " " + value + "\n") }

func (p *page) metric(name, kind, help, value string) {
	p.head(name, kind, help)
	p.line(name, value)
}

func (p *page) vector(name, help string, v *vector, labels ...string) {
	p.head(name, "counter", help)
	keys := make([][2]string, 0, len(v.values))
	for key := range v.values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1])) })
	for _, key := range keys {
		p.WriteString(name)
		for i, label := range labels {
			p.WriteByte("{,"[i])
			p.WriteString(label + `="` + escape(key[i]) + `"`)
		}
		p.line("}", strconv.FormatUint(v.values[key], 10))
	}
}

func (p *page) histogram(name, help string, h *histogram) {
	p.head(name, "histogram", help)
	var total uint64
	for i, bound := range bounds {
		total += h.buckets[i]
		p.line(name+`_bucket{le="`+seconds(bound)+`"}`, strconv.FormatUint(total, 10))
	}
	p.line(name+`_bucket{le="+Inf"}`, strconv.FormatUint(h.n, 10))
	p.line(name+"_sum", seconds(h.sum))
	p.line(name+"_count", strconv.FormatUint(h.n, 10))
}

func seconds(milliseconds uint64) string { return decimal(float64(milliseconds) / 1000) }

func decimal(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value)
}
