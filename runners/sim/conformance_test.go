package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/runnertest"
	"github.com/headway-run/headway/runners/sim"
)

func TestConformance(t *testing.T) {
	runnertest.Run(t, runnertest.Platform{Bubble: true, Open: func(t *testing.T) runnertest.Setup {
		b := mem.New()
		r, err := sim.New(sim.Config{Platform: "sim", Slots: 3, Capacity: 4, Bucket: b, Model: sim.Model{Step: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return runnertest.Setup{Runner: r, Bucket: b, Store: "mem:", Platform: "sim", Slots: 3,
			Says: r.Says, Sentences: sim.Sentences(), Expires: true, Truth: func() []string { return truth(r) }, Cards: func() map[string][]string { return cards(r) }}
	}})
}

// The same platform behind a wire that is cut after the first launch.
func TestConformanceWithFaults(t *testing.T) {
	runnertest.Run(t, runnertest.Platform{Bubble: true, Open: func(t *testing.T) runnertest.Setup {
		b := mem.New()
		r, err := sim.New(sim.Config{Platform: "sim", Slots: 4, Capacity: 2, Bucket: b, Kinds: []string{"train"},
			Model: sim.Model{Step: time.Hour, Notice: time.Minute}, UntilReleased: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return runnertest.Setup{Runner: r, Bucket: b, Store: "mem:", Platform: "sim", Slots: 4,
			Truth: func() []string { return truth(r) },
			Cards: func() map[string][]string { return cards(r) },
			Cut:   func() { r.Cut(true) },
			Says:  r.Says, Sentences: sim.Sentences(), Expires: true,
			Broken: func(l *runners.Launch) { l.Spec.Kind = "seance" },
			Reopen: func() runners.Runner { return r },
		}
	}})
}

func truth(r *sim.Runner) []string {
	var out []string
	for _, in := range r.Truth() {
		if in.Live {
			out = append(out, fmt.Sprintf("%s %d", in.Work, in.Dispatch))
		}
	}
	slices.Sort(out)
	return out
}

// cards says on which cards of which machine each live worker is.
func cards(r *sim.Runner) map[string][]string {
	out := map[string][]string{}
	for _, in := range r.Truth() {
		for _, c := range in.Cards {
			if who := fmt.Sprintf("%s %d", in.Work, in.Dispatch); in.Live {
				out[who] = append(out[who], fmt.Sprintf("%d/%d", in.Machine, c))
			}
		}
	}
	return out
}
