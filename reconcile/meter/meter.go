// Package meter counts what one dispatcher does, and prints it in the Prometheus text format: numbers about its passes,
// its platforms and its store, and never a label that grows with the number of works or jobs. It is a value: it
// keeps a set of its own, knows nothing of the loop that feeds it, and decides nothing.
//
// Counters are of this process, so that they add up over the dispatchers of a store; gauges are what its last pass saw
// of the store, so they are equal on all of them and must not be added.
package meter

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Pass is what one pass of the loop did and saw.
type Pass struct {
	Took   time.Duration
	Failed bool // nothing was decided; what follows is empty then, and the gauges keep their values
	// Works by state, one of States; another word counts as "unknown".
	States    map[string]int
	Launches  []Launch
	WriteOffs int            // leases that were revoked as silent
	Stops     int            // leases that were ended for good
	Moves     int            // leases that were ended for a better rung
	Releases  map[string]int // answers of platforms, by one of Settlements
	Releasing int            // dispatches that a platform is still asked to end
	Orphans   int
	Refused   int // guards that keep the desired commit from being followed
	Errors    int // what failed for single works
	Platforms []Platform
	Started   []Work // works whose launch this process has asked for in this pass
	Held      []Work // works whose lease is held
}

// Launch is one order that was carried out, or tried.
type Launch struct {
	Platform string
	Outcome  string // one of Outcomes
	Retries  int64  // that it counts as spent since the launch before
}

// Work is a dispatch of a work. Neither becomes a label.
type Work struct {
	ID       string
	Dispatch int64
	Platform string
}

// Platform is how a platform stands.
type Platform struct {
	Name   string
	Parked time.Duration
	Closed bool
	Series int
	Live   int
}

// maxPlatforms bounds the label "platform": what a configuration has beyond it is counted as "other".
const maxPlatforms = 200

// maxWaiting bounds how many launches are remembered for headway_capture_seconds.
const maxWaiting = 100_000

// Meter is the numbers of one process. Its methods may be called from any goroutine.
type Meter struct {
	set *metrics.Set

	mu        sync.Mutex
	platforms map[string]bool
	lastPass  time.Time
	waiting   map[string]launched // by work
}

type launched struct {
	dispatch int64
	platform string
	at       time.Time
}

// New returns the numbers of a dispatcher with this name and version: its counters are zero, and what nobody has looked at
// yet is not printed, since it is not zero.
func New(id, version string) *Meter {
	m := &Meter{set: metrics.NewSet(), platforms: map[string]bool{}, waiting: map[string]launched{}}
	m.gauge("headway_dispatcher_info", 1, "id", id, "version", version)
	for _, r := range Results {
		m.add("headway_passes_total", 0, "result", r)
	}
	m.histogram("headway_pass_seconds")
	m.set.NewGauge("headway_pass_age_seconds", m.age)
	for _, s := range Settlements {
		m.add("headway_releases_total", 0, "settlement", s)
	}
	for _, op := range Ops {
		m.add("headway_store_requests_total", 0, "op", op)
		m.add("headway_store_errors_total", 0, "op", op)
		m.histogram("headway_store_seconds", "op", op)
	}
	for _, o := range Deliveries {
		m.add("headway_notifications_total", 0, "outcome", o)
	}
	for _, name := range []string{"headway_write_offs_total", "headway_stops_total", "headway_moves_total", "headway_errors_total", "headway_retries_spent_total"} {
		m.add(name, 0)
	}
	return m
}

// age is how long ago the newest pass ended; since the start when there was none.
func (m *Meter) age() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastPass.IsZero() {
		m.lastPass = time.Now()
	}
	return time.Since(m.lastPass).Seconds()
}

// Passed counts one pass.
func (m *Meter) Passed(p Pass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastPass = time.Now()
	m.histogram("headway_pass_seconds").Update(p.Took.Seconds())
	m.gauge("headway_store_up", number(!p.Failed))
	if p.Failed {
		m.add("headway_passes_total", 1, "result", "failed")
		return
	}
	m.add("headway_passes_total", 1, "result", "ok")
	m.add("headway_write_offs_total", p.WriteOffs)
	m.add("headway_stops_total", p.Stops)
	m.add("headway_moves_total", p.Moves)
	m.add("headway_errors_total", p.Errors)
	for s, n := range p.Releases {
		m.add("headway_releases_total", n, "settlement", among(s, Settlements, "pending"))
	}
	counts := map[string]int{}
	for s, n := range p.States {
		counts[among(s, States, "unknown")] += n
	}
	for _, s := range States {
		m.gauge("headway_jobs", float64(counts[s]), "state", s)
	}
	m.gauge("headway_releases_pending", float64(p.Releasing))
	m.gauge("headway_orphans", float64(p.Orphans))
	m.gauge("headway_refusals", float64(p.Refused))
	m.known(p.Platforms)
	for _, l := range p.Launches {
		m.add("headway_launches_total", 1, "platform", m.label(l.Platform), "outcome", among(l.Outcome, Outcomes, "failed"))
		m.add("headway_retries_spent_total", int(max(l.Retries, 0)))
	}
	m.captures(p)
}

// known brings the series of the configured platforms up to date: new ones begin at zero, those that are gone are no
// longer printed, their counters excepted.
func (m *Meter) known(ps []Platform) {
	now := map[string]bool{}
	for i, p := range ps {
		if i >= maxPlatforms {
			break
		}
		now[p.Name] = true
		m.gauge("headway_platform_parked_seconds", p.Parked.Seconds(), "platform", p.Name)
		m.gauge("headway_platform_closed", number(p.Closed), "platform", p.Name)
		m.gauge("headway_platform_failures", float64(p.Series), "platform", p.Name)
		m.gauge("headway_platform_live", float64(p.Live), "platform", p.Name)
		m.add("headway_launches_total", 0, "platform", p.Name, "outcome", "launched")
		m.histogram("headway_capture_seconds", "platform", p.Name)
	}
	for name := range m.platforms {
		if !now[name] {
			for _, g := range []string{"headway_platform_parked_seconds", "headway_platform_closed", "headway_platform_failures", "headway_platform_live"} {
				m.set.UnregisterMetric(series(g, "platform", name))
			}
		}
	}
	m.platforms = now
}

// label bounds the label "platform" to what is configured.
func (m *Meter) label(platform string) string {
	if m.platforms[platform] {
		return platform
	}
	return "other"
}

// captures measures, by this process' monotonic clock, from the end of the pass that launched to the end of the one
// that first saw the lease held by that dispatch.
func (m *Meter) captures(p Pass) {
	now := time.Now()
	for _, w := range p.Held {
		if l, ok := m.waiting[w.ID]; ok && w.Dispatch >= l.dispatch {
			if w.Dispatch == l.dispatch {
				m.histogram("headway_capture_seconds", "platform", m.label(l.platform)).Update(now.Sub(l.at).Seconds())
			}
			delete(m.waiting, w.ID)
		}
	}
	for _, w := range p.Started {
		if _, again := m.waiting[w.ID]; again || len(m.waiting) < maxWaiting {
			m.waiting[w.ID] = launched{w.Dispatch, w.Platform, now}
		}
	}
	for id, l := range m.waiting {
		if now.Sub(l.at) > 24*time.Hour {
			delete(m.waiting, id)
		}
	}
}

// Repository says whether the repository answered when it was asked last.
func (m *Meter) Repository(up bool) { m.gauge("headway_repository_up", number(up)) }

// Told counts events of notifications by what became of them: one of Deliveries.
func (m *Meter) Told(outcome string, n int) {
	m.add("headway_notifications_total", n, "outcome", among(outcome, Deliveries, "failed"))
}

// WriteTo prints the page, with a HELP and a TYPE line before each metric.
func (m *Meter) WriteTo(w io.Writer) (int64, error) {
	var raw, page bytes.Buffer
	m.set.WritePrometheus(&raw)
	about := map[string]Metric{}
	for _, t := range Table() {
		about[t.Name] = t
	}
	last := ""
	for line := range strings.Lines(raw.String()) {
		name := family(line, about)
		if name != last {
			last = name
			fmt.Fprintf(&page, "# HELP %s %s\n# TYPE %s %s\n", name, about[name].Help, name, about[name].Type)
		}
		page.WriteString(line)
	}
	return page.WriteTo(w)
}

// family is the metric that a line of the page belongs to.
func family(line string, about map[string]Metric) string {
	name := line[:strings.IndexAny(line, "{ ")]
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, end); ok && about[base].Type == Histogram {
			return base
		}
	}
	return name
}

func (m *Meter) add(name string, n int, labels ...string) {
	m.set.GetOrCreateCounter(series(name, labels...)).Add(max(n, 0))
}

func (m *Meter) gauge(name string, v float64, labels ...string) {
	m.set.GetOrCreateGauge(series(name, labels...), nil).Set(v)
}

func (m *Meter) histogram(name string, labels ...string) *metrics.PrometheusHistogram {
	return m.set.GetOrCreatePrometheusHistogramExt(series(name, labels...), bounds[name])
}

// series is a metric's name with its labels (name, value, …), escaped as the text format wants it.
func series(name string, labels ...string) string {
	if len(labels) == 0 {
		return name
	}
	var s strings.Builder
	for i := 0; i+1 < len(labels); i += 2 {
		v := labels[i+1]
		if strings.ContainsAny(v, "\\\"\n") { // seldom, and a replacer is dear to make
			v = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v)
		}
		fmt.Fprintf(&s, `,%s="%s"`, labels[i], v)
	}
	return name + "{" + s.String()[1:] + "}"
}

func among(word string, known []string, other string) string {
	if slices.Contains(known, word) {
		return word
	}
	return other
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
