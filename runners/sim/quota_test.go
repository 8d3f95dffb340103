package sim_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// What is left of a quota shrinks by the machine time of its period, refuses launches at nothing, and is whole again at the
// time that it named, less what runs since.
func TestAQuotaIsCountedByThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf, err := sim.Config{Slots: 5}.With(map[string]string{"quota": "3h", "per": "10h", "steps": "1000", "step": "1m", "milestone": "1000"})
		if err != nil {
			t.Fatal(err)
		}
		r, d := begin(t, conf, "")
		defer r.Close()
		began, step := time.Now(), 0
		left := func(want float64, resets time.Duration) {
			t.Helper()
			got, known, err := runners.AskQuota(t.Context(), sim.Quoted{Runner: r}, "sim")
			if diff := cmp.Diff(runners.Quota{Left: want, Whole: 3, Unit: "hours", Resets: began.Add(resets)}, got); diff != "" || !known || err != nil {
				t.Errorf("%d: %v, %v %s", step, known, err, diff)
			}
			step++
		}
		left(3, 10*time.Hour)
		for n := range int64(2) {
			order := launch(1)
			order.Work = record.Hash([]byte{byte(n)})
			order.Spec.Work, order.Claim.Work = order.Work, order.Work
			if out := d.Launch(t.Context(), r, []runners.Launch{order})[0]; out.Err != nil {
				t.Fatal(out.Err)
			}
		}
		<-time.After(time.Hour)
		left(1, 10*time.Hour)
		<-time.After(time.Hour)
		left(0, 10*time.Hour)
		f, ok := errors.AsType[*runners.Failure](d.Launch(t.Context(), r, []runners.Launch{launch(3)})[0].Err)
		if !ok || f.Class != runners.QuotaExhausted || !f.Until.Equal(began.Add(10*time.Hour)) {
			t.Errorf("used up: %+v", f)
		}
		<-time.After(8*time.Hour + 30*time.Minute)
		left(2, 20*time.Hour) // both run for half an hour of the second period
	})
}

func TestAQuotaOfNoSense(t *testing.T) {
	for _, o := range []map[string]string{{"quota": "30"}, {"quota": "-1h"}, {"quota": "0s"}, {"quota": "30h", "per": "0h"}, {"per": "24h"}} {
		if _, err := (sim.Config{}).With(o); err == nil {
			t.Errorf("%v was taken", o)
		}
	}
	conf, err := sim.Config{}.With(map[string]string{"quota": "30h"})
	if err != nil || conf.Quota != 30*time.Hour || conf.Per != 7*24*time.Hour {
		t.Errorf("%+v, %v", conf, err)
	}
	if _, known, _ := runners.AskQuota(t.Context(), &sim.Runner{}, "sim"); known {
		t.Error("a platform without a quota names one")
	}
}
