package deploylane

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-run/headway/runners"
)

// TestTwoRunsOfThePinnedWorkAreCompared: where lane.yaml asks for it the retraining runs once more, as a work that differs in its
// replica alone; equal bytes are worded as what they show on these machines, other bytes end the release with the files' names.
func TestTwoRunsOfThePinnedWorkAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		spoil         bool
		refused       bool
		launches      int
		stage, reason string
	}{
		"the same bytes": {false, false, 3, Release, "the same bytes twice, on machines that are not known to be of one class"},
		"other bytes":    {true, true, 2, Retrain, "digits ran twice (works "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				m := g.conf.Models["digits"]
				m.Twice = true
				g.conf.Models["digits"] = m
				g.place.odd = func(l runners.Launch) (bool, error) {
					if l.Spec.Replica == 0 || !c.spoil {
						return false, nil
					}
					return true, work(t.Context(), g.own, l.Spec, l.Dispatch, g.place.machine, map[string]float64{"val_accuracy": 0.9511})
				}
				g.tagged("v1.0.0", 1)
				s := g.settle(g.lane, "v1.0.0")
				if s.Refused != c.refused || s.Stage != c.stage || len(g.place.launched) != c.launches {
					t.Fatalf("%+v, %d launches", s, len(g.place.launched))
				}
				rec := s.Chain[1].Record
				if !strings.Contains(rec.Reason, c.reason) || rec.Again == nil || rec.Again.Shows.Identical == c.spoil {
					t.Errorf("%q, %+v", rec.Reason, rec.Again)
				}
				if c.spoil && (rec.Code != "NotRepeated" || !strings.Contains(rec.Reason, "1 of 2 files differ (metrics.json)")) {
					t.Errorf("%s %q", rec.Code, rec.Reason)
				}
				one, two := g.place.launched[0].Spec, g.place.launched[1].Spec
				two.Replica, two.Work, two.Identity = one.Replica, one.Work, one.Identity
				if one.Work == g.place.launched[1].Work || string(Ordered{Spec: two}.spec().Identity) != string(one.Identity) {
					t.Errorf("%+v, %+v", one, g.place.launched[1].Spec)
				}
			})
		})
	}
}
