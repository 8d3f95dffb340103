package sim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/sim"
)

// Every fault of a launch: what the dispatcher is told, what really runs then, and that in the end nothing does,
// whatever was lost, doubled or hidden on the way. Nothing is called closed before.
func TestNothingStaysThatWasStarted(t *testing.T) {
	for _, tc := range []struct {
		script string
		class  runners.Class // of the launch; empty: it succeeded
		runs   int           // instances after the launch
	}{
		{"", "", 1},
		{"launch 1 delay 5m", "", 1},
		{"launch 1 drop", runners.Unreachable, 0},
		{"launch 1 lost", runners.Unreachable, 1},
		{"launch 1 hang", runners.Unreachable, 0},
		{"launch 1 twice", "", 2},
		{"launch 1 late 3h", "", 1},
		{"launch 1 no_start", "", 0},
		{"launch 1 no_slots", runners.NoSlots, 0},
		{"launch 1 quota 2h", runners.QuotaExhausted, 0},
		{"launch 1 kept", runners.NoSlots, 1},
		{"worker 1 restart 0", "", 1},
		{"launch 1 reject", runners.Rejected, 0},
		{"launch 1 foreign", runners.ProtocolError, 0},
		{"launch 1 garbage", runners.ProtocolError, 1},
		{"launch 1 nil_handle", runners.ProtocolError, 1},
		{"launch 1 panic", runners.ProtocolError, 0},
		{"launch 1 lost; list 1..3 drop", runners.Unreachable, 1},
		{"launch 1 lost; list 1..3 hide", runners.Unreachable, 1},
		{"launch 1 twice; release 2 drop", "", 2},
		{"release 1..2 not_yet", "", 1},
		{"release 1 lost", "", 1},
		{"release 1..3 panic; list 2 panic", "", 1},
		{"release 1 bounded 9h", "", 1},
		{"release 1 garbage", "", 1},
		{"release 1 hang", "", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, d := begin(t, sim.Config{Model: sim.Model{Step: time.Hour}, UntilReleased: true}, tc.script)
			defer r.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			out := d.Launch(ctx, r, []runners.Launch{launch(1)})
			if f, _ := errors.AsType[*runners.Failure](out[0].Err); (tc.class != "") != (out[0].Err != nil) || f != nil && f.Class != tc.class {
				t.Errorf("%q: launch: %v", tc.script, out[0].Err)
			}
			if m := r.Meter(); m.Live != tc.runs {
				t.Errorf("%q: %d instances run after the launch", tc.script, m.Live)
			}
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				a, err := d.Release(ctx, r, work, 1)
				cancel()
				if live := r.Meter().Live; a.Settlement == runners.Closed && live > 0 {
					t.Errorf("%q: called closed while %d instances run: %+v, %v", tc.script, live, a, err)
				}
				time.Sleep(time.Minute)
			}
			m := r.Meter()
			if m.Live != 0 {
				t.Errorf("%q: %d instances run in the end", tc.script, m.Live)
			}
			faults, err := sim.ParseScript(tc.script)
			for _, f := range faults {
				if err != nil || m.Fired[f.Effect] == 0 {
					t.Errorf("%q: %s never struck: %+v", tc.script, f, m)
				}
			}
		})
	}
}

func TestQuotaSaysUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := begin(t, sim.Config{}, "launch 1 quota 2h")
		defer r.Close()
		out := d.Launch(t.Context(), r, []runners.Launch{launch(1)})
		f, ok := errors.AsType[*runners.Failure](out[0].Err)
		if !ok || !f.Until.Equal(time.Now().Add(2*time.Hour)) || f.Hint == "" || f.Raw == "" {
			t.Errorf("%+v", out[0].Err)
		}
	})
}

func TestOptions(t *testing.T) {
	c, err := sim.Config{}.With(map[string]string{"script": "launch 1 lost; worker 1 die 3", "step": "10ms", "steps": "7", "milestone": "2",
		"notice": "30s", "until_released": "true", "capacity": "2"})
	if err != nil || c.Capacity != 2 || len(c.Script) != 2 || !c.UntilReleased ||
		c.Model != (sim.Model{Step: 10 * time.Millisecond, Steps: 7, Milestone: 2, Notice: 30 * time.Second}) {
		t.Errorf("%+v, %v", c, err)
	}
	for k, v := range map[string]string{"scipt": "x", "script": "launch 1 explode", "step": "fast", "steps": "0", "capacity": "0", "price": "0.4", "until_released": "maybe"} {
		if _, err := (sim.Config{}).With(map[string]string{k: v}); err == nil {
			t.Errorf("%s: %s was accepted", k, v)
		}
	}
}
