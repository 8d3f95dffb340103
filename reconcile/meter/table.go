package meter

import (
	"slices"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
)

// Types of a metric, as Prometheus calls them.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Metric is one row of the page of metrics.
type Metric struct {
	Name   string
	Type   string
	Labels []string
	Help   string
}

// What labels may say. (Tables of values.)
var (
	Results     = []string{"ok", "failed"}
	Ops         = []string{"get", "put", "list", "delete"}
	Settlements = []string{runners.Pending.String(), runners.Bounded.String(), runners.Closed.String()}
	Deliveries  = []string{"sent", "failed", "dropped"}
	States      = []string{plan.StateAbsent, plan.StateClaimed, plan.StateHeld, plan.StateYielded, plan.StateRevoked, plan.StateFinished, plan.StateFailed, plan.StateUnknown}
	// Outcomes of a launch: launched, the classes of a platform's refusal, withheld (what it rested on had changed: nobody was
	// asked), failed (the store or the code kept it from being asked).
	Outcomes = []string{"launched", "withheld", "failed", string(runners.NoSlots), string(runners.QuotaExhausted), string(runners.SpawnedElsewhere),
		string(runners.Unreachable), string(runners.Rejected), string(runners.ProtocolError)}
)

// bounds of the histograms, seconds. (Table of values.)
var bounds = map[string][]float64{
	"headway_pass_seconds":    {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
	"headway_store_seconds":   {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60},
	"headway_capture_seconds": {1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600},
}

// table lists every metric there is, by name. (Table of values.)
var table = []Metric{
	{"headway_capture_seconds", Histogram, []string{"platform"}, "From a launch of this dispatcher to the pass that first saw its worker hold the lease."},
	{"headway_dispatcher_info", Gauge, []string{"id", "version"}, "Always 1: which dispatcher this is."},
	{"headway_errors_total", Counter, nil, "What failed for single works in passes that went on; the next pass tries again."},
	{"headway_jobs", Gauge, []string{"state"}, "Works that the plan in force names, by state."},
	{"headway_launches_total", Counter, []string{"platform", "outcome"}, "Launches that this dispatcher carried out or tried, by what came of them."},
	{"headway_moves_total", Counter, nil, "Leases that were ended behind a milestone, so that their work goes on on a better rung."},
	{"headway_notifications_total", Counter, []string{"outcome"}, "Events of notifications, by what became of them."},
	{"headway_orphans", Gauge, nil, "Instances that platforms run for us and nothing in the store explains."},
	{"headway_pass_age_seconds", Gauge, nil, "Since the newest pass ended."},
	{"headway_pass_seconds", Histogram, nil, "How long passes took."},
	{"headway_passes_total", Counter, []string{"result"}, "Passes over the plan; failed: the store could not be read, so nothing was decided."},
	{"headway_platform_closed", Gauge, []string{"platform"}, "1: its answers made no sense, nothing is launched there until a person looks."},
	{"headway_platform_failures", Gauge, []string{"platform"}, "Failures in a row."},
	{"headway_platform_live", Gauge, []string{"platform"}, "Launches that run there or are on their way."},
	{"headway_platform_parked_seconds", Gauge, []string{"platform"}, "How long it is still left alone; 0: it takes launches."},
	{"headway_refusals", Gauge, nil, "Guards that keep the newest commit from being followed."},
	{"headway_releases_pending", Gauge, nil, "Dispatches that a platform is still asked to end."},
	{"headway_releases_total", Counter, []string{"settlement"}, "Answers of platforms to the question whether a dispatch has ended."},
	{"headway_repository_up", Gauge, nil, "1: the repository could be read when it was asked last."},
	{"headway_retries_spent_total", Counter, nil, "Retries that launches of this dispatcher counted as spent since the launch before."},
	{"headway_stops_total", Counter, nil, "Leases that were ended for good: their work left the plan, or crossed a limit."},
	{"headway_store_errors_total", Counter, []string{"op"}, "Requests that the store did not answer as it should; absent keys and lost conditions are answers."},
	{"headway_store_requests_total", Counter, []string{"op"}, "Requests to the store."},
	{"headway_store_seconds", Histogram, []string{"op"}, "How long requests to the store took."},
	{"headway_store_up", Gauge, nil, "1: the last pass could read the store."},
	{"headway_write_offs_total", Counter, nil, "Leases that were revoked because their holder was silent for longer than it had promised."},
}

// Table lists every metric there is, by name.
func Table() []Metric {
	out := slices.Clone(table)
	for i := range out {
		out[i].Labels = slices.Clone(out[i].Labels)
	}
	return out
}
