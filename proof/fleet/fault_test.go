package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/proof/fleet"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/agent"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// Asked to leave, the loop makes a last milestone at the step where it is, and the place is free.
func TestNoticeYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := open(t, fleet.Config{}, sim.Config{Model: sim.Model{Step: time.Second, Notice: 30 * time.Second}}, "")
		defer y.r.Close()
		s := spec(1)
		y.launch(s)
		time.Sleep(7 * time.Second) // two of them until the capture
		if a, err := y.d.Release(t.Context(), y.r, s.Work, 1); err != nil || a.Settlement != runners.Closed {
			t.Fatal(a, err)
		}
		r := y.witness(s.Work)
		if r.State != witness.Yielded || r.Resume == nil || r.Resume.Step < 4 || r.Resume.Step%3 == 0 {
			t.Errorf("%s, resume %+v", r.State, r.Resume)
		}
		if truth := y.r.Truth(); truth[0].End != "yielded" {
			t.Errorf("%+v", truth)
		}
		y.launch(s)
		time.Sleep(time.Hour)
		y.finished(s.Work)
	})
}

// A loop that hangs inside a step renews nothing: its lease runs out, whatever else of the agent lives on. Written
// off, the agent learns of it from the witness and kills the program, and its machine is free.
func TestHangIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := open(t, fleet.Config{}, sim.Config{Model: sim.Model{Step: time.Second}}, "worker 1 hang 6")
		defer y.r.Close()
		s := spec(1)
		y.launch(s)
		time.Sleep(20 * time.Second)
		last := y.witness(s.Work)
		time.Sleep(10 * last.Lease.Length())
		if r := y.witness(s.Work); r.Rev != last.Rev || r.State != witness.Held || r.Progress.Step != 4 {
			t.Errorf("renewed by a loop that hangs: revision %d after %d, %s at step %d", r.Rev, last.Rev, r.State, r.Progress.Step)
		}
		y.writeOff(s.Work)
		y.launch(s)
		time.Sleep(time.Hour)
		y.finished(s.Work)
		if truth := y.r.Truth(); truth[0].End != "deposed" || truth[0].Step != 5 || truth[1].End != "finished" {
			t.Errorf("%+v", truth)
		}
	})
}

// What a side thread renews is no evidence: the same hang is never found.
func TestSideThreadHidesAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := open(t, fleet.Config{SideThread: true}, sim.Config{Model: sim.Model{Step: time.Second}}, "worker 1 hang 6")
		defer y.r.Close()
		s := spec(1)
		y.launch(s)
		time.Sleep(time.Minute)
		for range 24 {
			last := y.witness(s.Work)
			time.Sleep(last.Lease.Length())
			if r := y.witness(s.Work); r.Rev == last.Rev {
				t.Fatalf("not renewed within a lease of %g s: %+v", r.Lease.Seconds, r)
			}
		}
		y.writeOff(s.Work)
		y.launch(s)
		time.Sleep(time.Hour)
		y.finished(s.Work)
	})
	synctest.Test(t, func(t *testing.T) { // and without a hang the work is done as ever
		y := open(t, fleet.Config{SideThread: true, PhaseEvery: 2, PhaseFor: time.Minute}, sim.Config{}, "")
		defer y.r.Close()
		s := spec(2)
		y.launch(s)
		time.Sleep(time.Hour)
		y.finished(s.Work)
	})
}

func TestOtherFaults(t *testing.T) {
	for _, tc := range []struct {
		script string
		end    string // for Truth
		state  witness.State
		class  string // of end.json; empty: none
		text   string
	}{
		{"worker 1 fail 5", "user_code: the program exited with code 1: ValueError: loss is not a number at step 5", witness.Yielded, "user_code",
			"ValueError: loss is not a number at step 5"},
		{"worker 1 mute", "", "", "", ""},
		{"worker 1 slow 1m", "finished", witness.Finished, "finished", ""},
		{"worker 1 slow 5m", "finished", witness.Finished, "finished", ""}, // longer than what covers the start
	} {
		synctest.Test(t, func(t *testing.T) {
			y := open(t, fleet.Config{}, sim.Config{}, tc.script)
			defer y.r.Close()
			s := spec(1)
			y.launch(s)
			time.Sleep(time.Hour)
			if got := y.r.Truth()[0].End; got != tc.end {
				t.Errorf("%s: ended as %q, want %q", tc.script, got, tc.end)
			}
			seen, err := witness.Read(t.Context(), y.b, s.Work)
			if seen.Record.State != tc.state || (err != nil) != (tc.state == "") {
				t.Errorf("%s: witness %q, %v", tc.script, seen.Record.State, err)
			}
			var e record.End
			if tc.class != "" {
				read(y, record.EndKey(s.Work, 1), &e)
			}
			if e.Class != tc.class || e.Error != tc.text {
				t.Errorf("%s: end %+v", tc.script, e)
			}
		})
	}
}

// A second worker of a dispatch, and one whose dispatch is below the floor, touch nothing.
func TestNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := open(t, fleet.Config{}, sim.Config{}, "launch 1 twice")
		defer y.r.Close()
		s := spec(1)
		y.launch(s)
		time.Sleep(time.Hour)
		y.finished(s.Work)
		ends := map[string]int{}
		for _, in := range y.r.Truth() {
			ends[in.End]++
		}
		if ends["finished"] != 1 || ends["nothing_to_do"] != 1 || len(y.exits) != 2 {
			t.Errorf("%v, %+v", ends, y.exits)
		}
		for _, e := range y.exits {
			if e.Code != agent.CodeFinished && e.Code != agent.CodeNothingToDo {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A platform that runs the command of a dead worker once more (S11 of the platforms' fault script): while the first one's lease
// is held the second leaves at once, and once it is written off the second is an attempt of its own, with a prefix of its own.
func TestRestartedContainer(t *testing.T) {
	for script, want := range map[string]struct {
		end     string
		attempt int64
	}{"worker 1 restart 5": {"nothing_to_do", 1}, "worker 1 restart 0": {"finished", 1}, "worker 1 restart 1000": {"nothing_to_do", 1}} {
		synctest.Test(t, func(t *testing.T) {
			y := open(t, fleet.Config{}, sim.Config{Model: sim.Model{Step: time.Second}}, script)
			defer y.r.Close()
			s := spec(1)
			y.launch(s)
			time.Sleep(time.Hour)
			if in := y.r.Truth()[0]; in.End != want.end || y.witness(s.Work).Attempt != want.attempt || y.r.Meter().Fired[sim.Restart] != 1 {
				t.Errorf("%s: %+v, %+v", script, in, y.witness(s.Work))
			}
			if y.witness(s.Work).State == witness.Held {
				y.writeOff(s.Work)
				y.launch(s)
				time.Sleep(time.Hour)
			}
			y.finished(s.Work)
		})
	}
	synctest.Test(t, func(t *testing.T) { // written off before the command runs again
		y := open(t, fleet.Config{}, sim.Config{Model: sim.Model{Step: time.Second, Start: 10 * time.Second}}, "worker 1 restart 5")
		defer y.r.Close()
		s := spec(1)
		y.launch(s)
		time.Sleep(18 * time.Second)
		y.writeOff(s.Work)
		time.Sleep(time.Hour)
		if in := y.r.Truth()[0]; in.End != "finished" || in.Attempt != 2 {
			t.Errorf("%+v", in)
		}
		y.finished(s.Work)
	})
}

// A machine that is lost while the store does not answer leaves at once, and nothing of it reaches the store later.
func TestKillIsFinal(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 2 * time.Second, 2500 * time.Millisecond, 4 * time.Second, 11 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRecorder(1, time.Second)
			y := open(t, fleet.Config{}, sim.Config{Bucket: r, Model: sim.Model{Step: time.Second}}, "")
			s := spec(1)
			y.launch(s)
			time.Sleep(after)
			began := time.Now()
			y.r.Close()
			n := r.count()
			if took := time.Since(began); took > 0 {
				t.Errorf("killed after %s, it took %s to go", after, took)
			}
			time.Sleep(time.Hour)
			if r.count() != n {
				t.Errorf("killed after %s, it sent %d requests more", after, r.count()-n)
			}
		})
	}
}
