package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/proof/chaos/schedule"
)

var terms = schedule.Terms{Trainings: []string{"a", "b", "c"}, Steps: 300, Lease: 15 * time.Second, Watchers: 2, Disk: true}

// The same seed and number give the same schedule; others give another.
func TestSeed(t *testing.T) {
	if diff := cmp.Diff(schedule.Make(3, 7, terms), schedule.Make(3, 7, terms)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(schedule.Make(3, 7, terms), schedule.Make(4, 7, terms)) || cmp.Equal(schedule.Make(3, 7, terms), schedule.Make(3, 8, terms)) {
		t.Error("another seed or round has the same schedule")
	}
}

// Every kind comes up in any four rounds in a row, and what is drawn can be carried out.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, first := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 1_000_000).Draw(t, "first")
		seen := map[schedule.Kind]bool{}
		for n := first; n < first+4; n++ {
			for _, chain := range schedule.Make(seed, n, terms).Chains {
				for _, e := range chain {
					seen[e.Kind] = true
					check(t, e)
				}
			}
		}
		for _, k := range schedule.Kinds {
			if !seen[k] {
				t.Errorf("no %s in rounds %d to %d", k, first, first+3)
			}
		}
	})
}

func check(t *rapid.T, e schedule.Event) {
	traffic := e.Kind == schedule.Cut || e.Kind == schedule.Delay
	switch {
	case traffic != (e.Fault != ""), traffic && (e.Share <= 0 || e.Share > 1 || e.For <= 0):
		t.Errorf("%s: %+v", e, e)
	case e.Kind == schedule.Delay && e.Slow <= 0:
		t.Errorf("%s takes no time", e)
	case e.Kind == schedule.Pause && e.Job != "" && e.For <= terms.Lease:
		t.Errorf("%s is shorter than the lease", e)
	case e.Job != "" && (e.Steps >= terms.Steps || e.Steps < 0 || e.Victim == ""):
		t.Errorf("%s meets nobody", e)
	case e.Only && e.Job == "":
		t.Errorf("%s: of whom?", e)
	case e.Which >= terms.Watchers:
		t.Errorf("%s: there are %d watchers", e, terms.Watchers)
	case strings.Contains(e.String(), "%!"):
		t.Errorf("%q", e.String())
	}
}

// Without a disk of its own no disk is filled.
func TestNoDisk(t *testing.T) {
	bare := terms
	bare.Disk = false
	for n := range 200 {
		for _, chain := range schedule.Make(1, n, bare).Chains {
			for _, e := range chain {
				if e.Kind == schedule.Disk {
					t.Fatalf("round %d: %s", n, e)
				}
			}
		}
	}
}
