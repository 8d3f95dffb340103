package world

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// Whatever a platform's script has for a person who ends a machine by hand: he gets an answer, in time, and alive.
func TestEndNowSurvivesAnyScript(t *testing.T) {
	for _, effect := range []sim.Effect{sim.Delay, sim.Hang, sim.Drop, sim.Lost, sim.Reject, sim.Foreign, sim.Garbage, sim.Panic, sim.NotYet, sim.Bound} {
		t.Run(string(effect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted(t, sim.Fault{Op: sim.OpRelease, Effect: effect, From: 1, For: hours(effect)})
				began := time.Now()
				_, _ = p.endNow(t.Context(), 1)
				if took := time.Since(began); took > patience {
					t.Errorf("it took %v", took)
				}
				if n := p.sim.Meter().Fired[effect]; n != 1 {
					t.Errorf("struck %d times", n)
				}
				if got, err := p.endNow(t.Context(), 1); err != nil || got.Settlement != runners.Closed {
					t.Error("the second time:", got, err)
				}
			})
		})
	}
}

// However a script treats lists: who asks on gets the truth.
func TestListsInTheEnd(t *testing.T) {
	for _, effect := range []sim.Effect{sim.Delay, sim.Hang, sim.Drop, sim.Foreign, sim.Panic, sim.Hide} {
		t.Run(string(effect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := scripted(t, sim.Fault{Op: sim.OpList, Effect: effect, From: 3, To: 9, For: hours(effect)})
				if err := p.lists(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := p.sim.Meter().Fired[effect]; n != 7 {
					t.Errorf("struck %d times", n)
				}
				if got, err := p.sim.Running(t.Context()); err != nil || len(got) != 1 {
					t.Error(got, err)
				}
			})
		})
	}
}

func hours(e sim.Effect) time.Duration {
	if e == sim.Delay || e == sim.Bound {
		return 3 * time.Hour
	}
	return 0
}

// scripted is a platform with one machine on it.
func scripted(t *testing.T, f sim.Fault) *place {
	script := []sim.Fault{f}
	r, err := sim.New(sim.Config{Platform: "p", Slots: 1, Bucket: mem.New(), Script: script, UntilReleased: true, Model: sim.Model{Step: time.Hour, Steps: 1000, Milestone: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	spec := record.Spec{Protocol: record.Protocol, Kind: "train", Argv: []string{"train"}}
	spec.Identity = record.Identity(spec)
	spec.Work = record.Hash(spec.Identity)
	l := runners.Launch{Work: spec.Work, Dispatch: 1, Job: "j", Store: "mem:", Spec: spec,
		Claim: record.Claim{Protocol: record.Protocol, Work: spec.Work, Dispatch: 1, Nonce: record.Nonce(), Platform: "p", Runner: "sim"}}
	if _, err := r.Launch(t.Context(), []runners.Launch{l}); err != nil {
		t.Fatal(err)
	}
	return &place{d: placeDraw{name: "p", can: true, script: script}, sim: r}
}
