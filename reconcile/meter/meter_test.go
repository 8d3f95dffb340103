package meter_test

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/buckettest"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// page prints the metrics, as series → value.
func page(t *testing.T, m *meter.Meter) map[string]string {
	t.Helper()
	var b strings.Builder
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		out[line[:i]] = line[i+1:]
	}
	return out
}

func TestConformance(t *testing.T) {
	m := meter.New("d", "dev")
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return m.Bucket(mem.New(), nil) })
}

func TestStoreRequestsAreCounted(t *testing.T) {
	m, answers := meter.New("d", "dev"), 0
	b := m.Bucket(mem.New(), func() { answers++ })
	_, _ = b.Put(t.Context(), "k", strings.NewReader("1"), bucket.IfAbsent())
	_, _ = b.Put(t.Context(), "k", strings.NewReader("2"), bucket.IfAbsent()) // refused: an answer, no error
	_, _ = b.Get(t.Context(), "absent", bucket.Range{})
	_, _ = b.List(t.Context(), "", "", 0)
	_ = b.Delete(t.Context(), "k")
	away := faulty.New(mem.New(), 1, faulty.Rule{Op: "get", Code: bucket.Unknown})
	_, _ = m.Bucket(away, nil).Get(t.Context(), "k", bucket.Range{})
	got := page(t, m)
	for series, want := range map[string]string{
		`headway_store_requests_total{op="put"}`: "2", `headway_store_requests_total{op="get"}`: "2", `headway_store_requests_total{op="list"}`: "1",
		`headway_store_requests_total{op="delete"}`: "1", `headway_store_errors_total{op="put"}`: "0", `headway_store_errors_total{op="get"}`: "1",
		`headway_store_seconds_count{op="put"}`: "2",
	} {
		if got[series] != want {
			t.Errorf("%s is %q, want %s", series, got[series], want)
		}
	}
	if answers != 5 {
		t.Errorf("%d answers were told of, want 5", answers)
	}
}

func TestPassesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter.New(`a"b\`, "dev")
		work := func(n int64) []meter.Work { return []meter.Work{{ID: "w", Dispatch: n, Platform: "p"}} }
		ps := []meter.Platform{{Name: "p", Parked: time.Minute, Series: 2, Live: 3}, {Name: "q", Closed: true}}
		m.Passed(meter.Pass{Took: time.Second, States: map[string]int{plan.StateHeld: 2, "nonsense": 1}, Platforms: ps, Started: work(1), WriteOffs: 1, Moves: 2,
			Launches: []meter.Launch{{Platform: "p", Outcome: "launched", Retries: 2}, {Platform: "gone", Outcome: "odd"}}, Releases: map[string]int{"closed": 1}, Releasing: 4, Orphans: 5})
		time.Sleep(40 * time.Second)
		m.Passed(meter.Pass{States: map[string]int{plan.StateHeld: 1}, Held: work(1), Platforms: ps[:1]})
		m.Passed(meter.Pass{Held: work(1), Platforms: ps[:1]}) // the same lease again is no other capture
		m.Passed(meter.Pass{Failed: true})
		time.Sleep(7 * time.Second)
		got := page(t, m)
		for series, want := range map[string]string{
			`headway_dispatcher_info{id="a\"b\\",version="dev"}`: "1",
			`headway_passes_total{result="ok"}`:                  "3", `headway_passes_total{result="failed"}`: "1", `headway_pass_seconds_count`: "4",
			`headway_jobs{state="held"}`: "0", `headway_jobs{state="unknown"}`: "0", `headway_store_up`: "0",
			`headway_launches_total{platform="p",outcome="launched"}`: "1", `headway_launches_total{platform="other",outcome="failed"}`: "1",
			`headway_retries_spent_total`: "2", `headway_write_offs_total`: "1", `headway_moves_total`: "2", `headway_releases_total{settlement="closed"}`: "1",
			`headway_capture_seconds_count{platform="p"}`: "1", `headway_capture_seconds_sum{platform="p"}`: "40", `headway_platform_parked_seconds{platform="p"}`: "60",
			`headway_platform_closed{platform="q"}`: "", `headway_pass_age_seconds`: "7",
		} {
			if got[series] != want {
				t.Errorf("%s is %q, want %q", series, got[series], want)
			}
		}
	})
}

// TestCardinality: 10,000 works make no more series than one.
func TestCardinality(t *testing.T) {
	count := func(works int) int {
		m := meter.New("d", "dev")
		p := meter.Pass{States: map[string]int{plan.StateHeld: works}, Platforms: []meter.Platform{{Name: "p"}}}
		for i := range works {
			w := meter.Work{ID: fmt.Sprint("work-", i), Dispatch: int64(i), Platform: fmt.Sprint("unknown-", i)}
			p.Held, p.Started = append(p.Held, w), append(p.Started, w)
			p.Launches = append(p.Launches, meter.Launch{Platform: w.Platform, Outcome: w.ID})
		}
		m.Passed(p)
		return len(page(t, m))
	}
	if one, many := count(1), count(10_000); one != many {
		t.Errorf("%d series with one work, %d with 10,000", one, many)
	}
}

// everything makes every metric appear at least once.
func everything() *meter.Meter {
	m := meter.New("d", "dev")
	m.Passed(meter.Pass{Platforms: []meter.Platform{{Name: "p"}}})
	m.Repository(true)
	return m
}

// What nobody has looked at yet is not printed as 0: neither before the first pass, nor while the store has been away from the start.
func TestWhatIsNotKnownIsNotZero(t *testing.T) {
	m := meter.New("d", "dev")
	gauges := func() (out []string) {
		for series := range page(t, m) {
			if i := slices.IndexFunc(meter.Table(), func(x meter.Metric) bool { return x.Name == strings.SplitN(series, "{", 2)[0] }); i >= 0 && meter.Table()[i].Type == meter.Gauge {
				out = append(out, meter.Table()[i].Name)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	own := []string{"headway_dispatcher_info", "headway_pass_age_seconds"}
	if diff := cmp.Diff(own, gauges()); diff != "" {
		t.Errorf("before the first pass (-want +printed):\n%s", diff)
	}
	m.Passed(meter.Pass{Failed: true})
	if diff := cmp.Diff(append(own, "headway_store_up"), gauges()); diff != "" {
		t.Errorf("the store is away (-want +printed):\n%s", diff)
	}
	m.Passed(meter.Pass{})
	if got := page(t, m); got["headway_orphans"] != "0" || got[`headway_jobs{state="held"}`] != "0" || got["headway_store_up"] != "1" {
		t.Errorf("after a pass that saw nothing: %v", got)
	}
}

// TestTheTableIsWhatIsPrinted: each metric of the table is printed with its labels, its type and its help, and no other.
func TestTheTableIsWhatIsPrinted(t *testing.T) {
	type row struct{ Type, Labels, Help string }
	want := map[string]row{}
	for _, x := range meter.Table() {
		slices.Sort(x.Labels)
		want[x.Name] = row{x.Type, strings.Join(x.Labels, ","), x.Help}
	}
	var b strings.Builder
	_, _ = everything().WriteTo(&b)
	got := map[string]row{}
	help := ""
	label := regexp.MustCompile(`(\w+)="`)
	for line := range strings.Lines(b.String()) {
		w := strings.Fields(line)
		switch {
		case w[1] == "HELP":
			help = strings.TrimSpace(strings.SplitN(line, " ", 4)[3])
		case w[1] == "TYPE":
			got[w[2]] = row{Type: w[3], Help: help}
		default:
			name := regexp.MustCompile(`^\w+`).FindString(line)
			if _, ok := got[name]; !ok {
				name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			}
			labels := map[string]bool{}
			for _, m := range label.FindAllStringSubmatch(line, -1) {
				labels[m[1]] = m[1] != "le"
			}
			maps.DeleteFunc(labels, func(_ string, keep bool) bool { return !keep })
			r := got[name]
			r.Labels = strings.Join(slices.Sorted(maps.Keys(labels)), ",")
			got[name] = r
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-table +printed):\n%s", diff)
	}
	if _, err := everything().WriteTo(full{}); err == nil {
		t.Error("a page that could not be written is no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
