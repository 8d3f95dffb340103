package reconcile

import (
	"testing"
	"time"

	"github.com/headway-run/headway/plan"
)

// What a record claims of a time that nobody can have written holds no limit off.
func TestHowLongLimitsHeld(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"2026-05-04T10:00:00Z": 2 * time.Hour, "2026-05-04T12:01:00Z": 0, // two answers of a store may be a minute apart
		"2036-05-04T10:00:00Z": -1, "": -1, "yesterday": -1,
	} {
		held, ok := (&inForce{Limits: map[plan.Digest]string{"w": text}}).limitsHeld("w", now)
		if ok != (want >= 0) || ok && held != want {
			t.Errorf("%q: %v %v, want %v", text, held, ok, want)
		}
	}
	if _, ok := (*inForce)(nil).limitsHeld("w", now); ok {
		t.Error("nothing is in force")
	}
}

// Only what changed of a work that has begun is written down, and it is kept while it stays so.
func TestWhichLimitsAreNoted(t *testing.T) {
	job := func(work, placement string) plan.AcceptedJob {
		return plan.AcceptedJob{Work: plan.Digest(work), Placement: []byte(placement)}
	}
	force := func(jobs ...plan.AcceptedJob) *inForce { return &inForce{plan: plan.Accepted{Jobs: jobs}} }
	begun := func(w plan.Digest) bool { return w != "fresh" }
	one := force(job("same", `{"limits.wall":"1h"}`), job("moved", `{"limits.wall":"1h","on":["a"]}`), job("lower", `{"limits.wall":"9h"}`), job("none", `{"limits.paid":"1 USD"}`))
	two := force(job("same", `{"limits.wall":"1h"}`), job("moved", `{"limits.wall":"1h","on":["b"]}`), job("lower", `{"limits.wall":"1h"}`), job("none", `{}`),
		job("fresh", `{"limits.wall":"1h"}`), job("old", `{"limits.paid":"1 USD"}`))
	first := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	two.noteLimits(one, time.Time{}, begun)
	if len(two.Limits) != 0 {
		t.Errorf("without the store's time: %v", two.Limits)
	}
	two.noteLimits(one, first, begun)
	if len(two.Limits) != 2 || two.Limits["lower"] != "2026-05-04T12:00:00Z" || two.Limits["old"] != two.Limits["lower"] {
		t.Errorf("%v", two.Limits)
	}
	three := force(job("lower", `{"limits.wall":"1h","on":["c"]}`), job("old", `{"limits.paid":"2 USD"}`))
	three.noteLimits(two, first.Add(time.Hour), begun)
	if len(three.Limits) != 2 || three.Limits["lower"] != "2026-05-04T12:00:00Z" || three.Limits["old"] != "2026-05-04T13:00:00Z" {
		t.Errorf("%v", three.Limits)
	}
}
