package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// drawn makes a pass over works of all sorts on two platforms that are more or less full.
func drawn(t *rapid.T, runner *sim.Runner) *pass {
	some := func(of int, name string) bool { return rapid.IntRange(0, of).Draw(t, name) == 0 }
	price := func(name string) *record.Price {
		if some(1, name) {
			return nil
		}
		return &record.Price{PerHour: float64(rapid.IntRange(0, 2).Draw(t, name+" of")), Unit: "USD"}
	}
	p := &pass{r: &Reconciler{book: &goodput.Book{}, leaves: map[plan.Digest]time.Time{}, hurdles: map[plan.Digest]*hurdle{}, asks: map[askKey]*ask{}, climbs: map[plan.Digest]*Climb{}, ranking: ranking{sorts: map[*plan.Job]sorted{}}},
		d: &Desired{Plan: &plan.Plan{}}, byWork: map[plan.Digest]*target{}, world: &World{works: map[plan.Digest]*sight{}},
		groups: map[string]int{"g": 1}, memo: map[plan.Digest]string{}, platforms: map[string]*platform{}}
	for _, name := range []string{"a", "b"} {
		pl := &platform{conf: plan.Platform{Name: name, Runner: "sim", Slots: rapid.IntRange(0, 4).Draw(t, "slots"), MaxPrice: plan.Money{Amount: float64(rapid.IntRange(0, 1).Draw(t, "max")), Unit: "USD"}},
			runner: runner, sorts: p.r.ranking.sorts, capacity: rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "capacity"), live: rapid.IntRange(0, 3).Draw(t, "live"), batch: rapid.SampledFrom([]int{0, 30, 32}).Draw(t, "batch"),
			flying: rapid.IntRange(0, 1).Draw(t, "flying"), asked: map[string]int{}, price: price("price")}
		if some(3, "parked") {
			pl.park, pl.rest = park{Series: 1, Class: "no_slots", Text: "full up", ParkS: 60}, 40*time.Second
		}
		p.platforms[name] = pl
	}
	if some(5, "bounded labels") {
		p.d.Plan.Config.Parallel = map[string]int{"k=v": 1}
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "works") {
		j := &plan.Job{Name: fmt.Sprint("j", i), Group: "g", Kind: rapid.SampledFrom([]string{"train", "train", "seance"}).Draw(t, "kind"), Work: plan.Digest(fmt.Sprintf("%064d", i)),
			On: rapid.SampledFrom([][]string{{"a"}, {"a"}, {"b"}, {"a", "b"}, {"c"}}).Draw(t, "on"), Suspend: some(9, "suspended"), Labels: map[string]string{"k": "v"},
			GPU: plan.GPU{Count: rapid.SampledFrom([]int{0, 1, 2, 9}).Draw(t, "cards")}, Env: rapid.SampledFrom([]map[string]string{nil, nil, {"A": "1"}}).Draw(t, "env")}
		tg := &target{work: j.Work, name: j.Name, asked: asked{job: j}}
		s := &sight{lease: Lease{State: leaseAbsent}}
		switch rapid.IntRange(0, 14).Draw(t, "twist") {
		case 0:
			j.Inputs = []plan.Input{{Job: "in", Work: "in"}}
		case 1:
			j.Limits.Parallel = 1
		case 2:
			j.Limits.Price = plan.Money{Amount: 1, Unit: "USD"}
		case 3:
			tg.unready = "secret s is not known here"
		case 4:
			p.r.hurdles[j.Work] = &hurdle{text: "no code", next: time.Now().Add(time.Hour), passing: true}
		case 5:
			tg.wish, tg.stays = Frozen, staysError
		case 6:
			s.lease = Lease{State: witness.Finished}
		case 7:
			s.lease = Lease{State: leaseUnknown, Text: "no answer"}
		case 8:
			s.history = History{Last: 1, Dispatches: []Dispatch{{N: 1, Platform: j.On[0], Answered: true, Class: "rejected", Age: time.Hour, Window: time.Minute}}}
		case 9:
			p.d.Demand = &Demand{Works: []plan.Digest{j.Work}}
		}
		p.targets, p.byWork[j.Work], p.world.works[j.Work] = append(p.targets, tg), tg, s
	}
	return p
}

// What is decided for a work by the decision for one that is alike is what Decide says of its own facts, whatever came before
// it in the round.
func TestOneDecisionServesThoseThatAreAlike(t *testing.T) {
	runner, err := sim.New(sim.Config{Platform: "a", Slots: 1, Bucket: mem.New(), Kinds: []string{"train"}})
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	served := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t, runner)
		for _, tg := range p.targets {
			want := Decide(p.facts(tg))
			if a, ok := p.waits(tg); ok {
				served++
				a.Until, want.Until = a.Until.Round(time.Minute), want.Until.Round(time.Minute) // parks go on while this runs
				if diff := cmp.Diff(want, a); diff != "" {
					t.Fatalf("%s (-decided by its own facts +served):\n%s", tg.name, diff)
				}
			}
			p.decide(tg)
		}
	})
	if served == 0 {
		t.Error("no decision served another work")
	}
}
