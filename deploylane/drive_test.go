package deploylane

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// TestDecideIsSafe: nothing is launched that is held, finished, stopped, unknown or on its way, nor beyond what it was given.
func TestDecideIsSafe(t *testing.T) {
	phases := []runners.Phase{runners.PhaseUnknown, runners.PhaseFresh, runners.PhaseStarting, runners.PhaseRunning, runners.PhaseFree, runners.PhaseStopped, runners.PhaseFinished}
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{Phase: rapid.SampledFrom(phases).Draw(t, "phase"), Last: rapid.Int64Range(0, 120).Draw(t, "last"), Failed: rapid.IntRange(0, 5).Draw(t, "failed"),
			Most: rapid.IntRange(1, 4).Draw(t, "most"), Refused: rapid.SampledFrom([]string{"", "driver"}).Draw(t, "refused"),
			Silent: rapid.Bool().Draw(t, "silent"), Late: rapid.Bool().Draw(t, "late")}
		do, why, _ := Decide(f)
		again, _, _ := Decide(f)
		free := f.Phase == runners.PhaseFresh || f.Phase == runners.PhaseFree || f.Phase == runners.PhaseStarting && f.Late
		switch {
		case do != again:
			t.Fatal("not pure")
		case do == doLaunch && (!free || f.Failed >= f.Most || f.Last >= maxTries || f.Refused != ""):
			t.Fatalf("%+v is launched", f)
		case do == doWriteOff && (f.Phase != runners.PhaseRunning || !f.Silent):
			t.Fatalf("%+v is written off", f)
		case do == doDone != (f.Phase == runners.PhaseFinished):
			t.Fatalf("%+v: %s", f, do)
		case do == doStop && why == "":
			t.Fatalf("%+v ends without a reason", f)
		}
	})
}

// TestASilentWorkerIsReplaced: a worker that took the lease and was never heard of again is written off once its lease has passed,
// released, and followed by another one.
func TestASilentWorkerIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.place.odd = func(l runners.Launch) (bool, error) {
			if l.Spec.Deploy || l.Dispatch > 1 {
				return false, nil
			}
			h, err := witness.Capture(t.Context(), g.own, witness.CaptureRequest{Work: l.Work, Dispatch: l.Dispatch, Lease: witness.LeaseFor(0, time.Second, 10*time.Minute)})
			if err == nil {
				h.Open(t.Context(), record.Open{Platform: "pinned", Fingerprint: g.place.machine})
			}
			return true, err
		}
		g.tagged("v1.0.0", 1)
		began := time.Now()
		s := g.patient("v1.0.0")
		if !s.Done || s.Refused || s.Chain[1].Record.Run.Attempt != 2 || len(g.place.launched) != 3 || g.place.released == 0 {
			t.Fatalf("%+v, %d launches, %d released", s, len(g.place.launched), g.place.released)
		}
		if took := time.Since(began); took < 10*time.Minute || took > 13*time.Minute {
			t.Errorf("it took %s, the lease was 10m", took)
		}
	})
}

// patient goes on for hours.
func (g *rig) patient(version string) Standing {
	g.t.Helper()
	for range 5000 {
		all, trouble := g.pass(g.lane)
		if len(trouble) > 0 {
			g.t.Fatal(trouble)
		}
		if s := all[len(all)-1]; s.Version == version && (s.Done || s.After == 0) {
			return s
		}
		<-time.After(all[len(all)-1].After)
	}
	g.t.Fatal("it never settles")
	return Standing{}
}

// TestFailuresEnd: what fails again and again ends the release with the last reason, after as many tries as it was given; a
// platform without room costs nothing.
func TestFailuresEnd(t *testing.T) {
	for name, c := range map[string]struct {
		odd      func(g *rig, l runners.Launch) (bool, error)
		launches int
		text     string
	}{
		"refused by the platform": {func(*rig, runners.Launch) (bool, error) {
			return false, &runners.Failure{Class: runners.Rejected, Err: errors.New("no such image")}
		}, 2, "2 tries failed, 2 are allowed; the last one: "},
		"no worker ever comes": {func(*rig, runners.Launch) (bool, error) { return true, nil }, 2, "no worker took the lease"},
		"the program fails": {func(g *rig, l runners.Launch) (bool, error) {
			h, err := witness.Capture(g.t.Context(), g.own, witness.CaptureRequest{Work: l.Work, Dispatch: l.Dispatch, Lease: witness.LeaseFor(0, time.Second, time.Minute)})
			if err != nil {
				return true, err
			}
			h.Open(g.t.Context(), record.Open{Platform: "pinned", Fingerprint: g.place.machine})
			h.Yield(g.t.Context(), "user_code: loss is nan")
			return true, nil
		}, 2, "2 tries failed"},
		"no room for a while": {func(g *rig, _ runners.Launch) (bool, error) {
			if len(g.place.launched) < 8 {
				return false, &runners.Failure{Class: runners.NoSlots, Err: errors.New("full")}
			}
			return false, nil
		}, 9, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.place.odd = func(l runners.Launch) (bool, error) { return c.odd(g, l) }
				g.tagged("v1.0.0", 1)
				s := g.patient("v1.0.0")
				if len(g.place.launched) != c.launches || s.Refused != (c.text != "") || !strings.Contains(s.Text, c.text) {
					t.Errorf("%+v, %d launches", s, len(g.place.launched))
				}
			})
		})
	}
}
