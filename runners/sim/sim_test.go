package sim_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
	"pgregory.net/rapid"
)

const work = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"

func launch(n int64) runners.Launch {
	return runners.Launch{Work: work, Dispatch: n, Job: "digits", Store: "mem:",
		Spec: record.Spec{Protocol: record.Protocol, Work: work, Kind: "train", Argv: []string{"train"}},
		Claim: record.Claim{Protocol: record.Protocol, Work: work, Dispatch: n, Nonce: record.Nonce(), Platform: "sim",
			Runner: "sim", Dispatcher: "test", Terms: record.Terms{FLOPsPerStep: 1e9}}}
}

// begin starts one platform and a dispatcher on one store.
func begin(t *testing.T, c sim.Config, script string) (*sim.Runner, runners.Dispatcher) {
	t.Helper()
	faults, err := sim.ParseScript(script)
	if err != nil {
		t.Fatal(err)
	}
	c.Platform, c.Script = "sim", faults
	if c.Bucket == nil {
		c.Bucket = mem.New()
	}
	if c.Slots == 0 {
		c.Slots = 8
	}
	r, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r, runners.Dispatcher{Bucket: c.Bucket}
}

// result reads what the witness of the finished work names.
func result(t *testing.T, b bucket.Bucket) (s sim.State, seen witness.Seen) {
	t.Helper()
	seen, err := witness.Read(t.Context(), b, work)
	if err != nil {
		t.Fatal(err)
	}
	if seen.Record.State != witness.Finished {
		t.Fatalf("the witness is %s at step %d", seen.Record.State, seen.Record.Progress.Step)
	}
	o, err := b.Get(t.Context(), record.ResultPrefix(work, seen.Record.Finished.Attempt)+sim.StateFile, bucket.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	body, err := io.ReadAll(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatal(err)
	}
	return s, seen
}

func TestOneLaunchFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := begin(t, sim.Config{Price: 3600}, "")
		defer r.Close()
		out := d.Launch(t.Context(), r, []runners.Launch{launch(1)})
		if out[0].Err != nil || out[0].Noted != nil {
			t.Fatal(out[0])
		}
		time.Sleep(time.Minute)
		s, seen := result(t, d.Bucket)
		if diff := cmp.Diff(sim.Expect(work, 100), s); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if seen.Record.Attempt != 1 || seen.Record.Resume.Step != 90 || seen.Record.Progress.Work != 100e9 {
			t.Errorf("witness: %+v", seen.Record)
		}
		// 2 s until the capture and 100 steps of 0.1 s, at 3600 an hour.
		if m := r.Meter(); m.Paid != 12*time.Second || m.Cost != 12 || m.Live != 0 {
			t.Errorf("meter: %+v", m)
		}
		status, err := d.Status(t.Context(), work)
		if err != nil || status.Phase != runners.PhaseFinished || status.Attempts[0].End.Class != "finished" {
			t.Errorf("status: %+v, %v", status, err)
		}
	})
}

// A worker that dies or hangs in the middle is written off, and the next attempt goes on from its last milestone:
// whatever the step, the result is that of a run which nobody disturbed.
func TestKilledInTheMiddle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		step := rapid.Int64Range(0, 99).Draw(rt, "step")
		effect := rapid.SampledFrom([]sim.Effect{sim.Die, sim.Hang}).Draw(rt, "effect")
		if step == 0 {
			effect = sim.Die
		}
		synctest.Test(t, func(t *testing.T) {
			f := sim.Fault{Op: sim.OpWorker, From: 1, Effect: effect, Step: step}
			r, d := begin(t, sim.Config{}, f.String())
			defer r.Close()
			d.Launch(t.Context(), r, []runners.Launch{launch(1)})
			time.Sleep(time.Hour)
			_, err := d.Revoke(t.Context(), work, "silent for an hour", runners.RevokeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if a, err := d.Release(t.Context(), r, work, 1); err != nil || a.Settlement != runners.Closed {
				t.Fatal(a, err)
			}
			d.Launch(t.Context(), r, []runners.Launch{launch(2)})
			time.Sleep(time.Hour)
			s, seen := result(t, d.Bucket)
			if s != sim.Expect(work, 100) {
				t.Errorf("%s at %d: the result is not that of one unbroken run", effect, step)
			}
			truth := r.Truth()
			if truth[0].Step != max(step-1, 0) || truth[1].Step != 100 || seen.Record.Dispatch != 2 {
				t.Errorf("truth: %+v", truth)
			}
			if m := r.Meter(); m.Fired[effect] != 1 || m.Live != 0 {
				t.Errorf("meter: %+v", m)
			}
		})
	})
}

func TestNotFinishedAreTold(t *testing.T) {
	for _, tc := range []struct {
		script string
		notice time.Duration
		phase  runners.Phase
		end    string
		class  string // of end.json; empty: none
	}{
		{"worker 1 mute", 0, runners.PhaseStarting, "", ""},
		{"worker 1 fail 42", 0, runners.PhaseFree, "failed", "user_code"},
		{"worker 1 slow 1h", time.Second, runners.PhaseRunning, "", ""},
		{"launch 1 late 10h", 0, runners.PhaseStarting, "", ""},
		{"launch 1 no_start", 0, runners.PhaseStarting, "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, d := begin(t, sim.Config{Model: sim.Model{Notice: tc.notice}}, tc.script)
			defer r.Close()
			if out := d.Launch(t.Context(), r, []runners.Launch{launch(1)}); out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			time.Sleep(90 * time.Minute)
			s, err := d.Status(t.Context(), work)
			if err != nil || s.Phase != tc.phase {
				t.Errorf("%s: phase %q, %v", tc.script, s.Phase, err)
			}
			if tc.class != "" && (len(s.Attempts) != 1 || s.Attempts[0].End == nil || s.Attempts[0].End.Class != tc.class) {
				t.Errorf("%s: attempts %+v", tc.script, s.Attempts)
			}
			if truth := r.Truth(); len(truth) > 0 && truth[0].End != tc.end {
				t.Errorf("%s: %+v", tc.script, truth)
			}
		})
	}
}

// A release with notice gives the place back; one without leaves a lease that somebody must judge.
func TestReleaseYieldsWithNotice(t *testing.T) {
	for notice, want := range map[time.Duration]witness.State{time.Minute: witness.Yielded, 0: witness.Held} {
		synctest.Test(t, func(t *testing.T) {
			r, d := begin(t, sim.Config{Model: sim.Model{Notice: notice}}, "")
			defer r.Close()
			d.Launch(t.Context(), r, []runners.Launch{launch(1)})
			time.Sleep(5 * time.Second)
			if a, err := d.Release(t.Context(), r, work, 1); err != nil || a.Settlement != runners.Closed {
				t.Fatal(a, err)
			}
			seen, err := witness.Read(t.Context(), d.Bucket, work)
			if err != nil || seen.Record.State != want {
				t.Errorf("notice %s: %s, %v", notice, seen.Record.State, err)
			}
		})
	}
}

func TestInstancesArePaidUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := begin(t, sim.Config{UntilReleased: true}, "worker 1 die 5")
		defer r.Close()
		d.Launch(t.Context(), r, []runners.Launch{launch(1)})
		time.Sleep(time.Hour)
		if m := r.Meter(); m.Paid != time.Hour || m.Live != 1 {
			t.Errorf("before the release: %+v", m)
		}
		if _, err := d.Release(t.Context(), r, work, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if m := r.Meter(); m.Paid != time.Hour || m.Live != 0 {
			t.Errorf("after the release: %+v", m)
		}
	})
}

func TestParseScript(t *testing.T) {
	got, err := sim.ParseScript("launch 1 lost\n# a comment\nlaunch 2..4 no_slots; launch 5 quota 2h\n\nworker 1 die 300\nlist * drop")
	if err != nil {
		t.Fatal(err)
	}
	want := []sim.Fault{
		{Op: sim.OpLaunch, From: 1, Effect: sim.Lost},
		{Op: sim.OpLaunch, From: 2, To: 4, Effect: sim.NoSlots},
		{Op: sim.OpLaunch, From: 5, Effect: sim.Quota, For: 2 * time.Hour},
		{Op: sim.OpWorker, From: 1, Effect: sim.Die, Step: 300},
		{Op: sim.OpList, Effect: sim.Drop},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"launch", "launch 0 lost", "launch 4..2 lost", "launch x lost", "launch 1 die 3", "lunch 1 lost",
		"launch 1 quota", "launch 1 lost 3s", "launch 1 delay -3s", "worker 1 die -3", "worker 1 die soon", "a b c d e"} {
		if f, err := sim.ParseScript(bad); err == nil {
			t.Errorf("%q was read as %v", bad, f)
		}
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("launch 1 lost; launch 2..4 no_slots; worker * die 3")
	f.Fuzz(func(t *testing.T, text string) {
		faults, err := sim.ParseScript(text)
		if err != nil {
			return
		}
		var lines []string
		for _, x := range faults {
			lines = append(lines, x.String())
		}
		again, err := sim.ParseScript(strings.Join(lines, "\n"))
		if err != nil || !slices.Equal(faults, again) {
			t.Errorf("%v is not what %q reads as: %v, %v", faults, lines, again, err)
		}
	})
}

func TestNewRefusesAStoreThatIsNotThere(t *testing.T) {
	if _, err := sim.New(sim.Config{Platform: "sim"}); err == nil {
		t.Error("no store was accepted")
	}
	if _, err := sim.New(sim.Config{Platform: "sim", Bucket: mem.New(), Script: []sim.Fault{{Op: "worker", Effect: "lost"}}}); err == nil {
		t.Error("an impossible fault was accepted")
	}
}

// What one launch carries shares a machine: it takes one slot and is paid for once, from the launch until the last of its jobs
// is over, whichever goes first and however.
func TestAMachineIsPaidForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := begin(t, sim.Config{Slots: 1, Capacity: 3, Price: 1, Model: sim.Model{Start: time.Minute, Step: time.Minute}}, "worker 3 die 0")
		defer r.Close()
		var orders []runners.Launch
		for i, steps := range []int64{59, 239, 239} {
			l := launch(1)
			l.Work = record.Hash([]byte{byte(i)})
			l.Spec.Work, l.Claim.Work, l.Claim.Terms = l.Work, l.Work, record.Terms{Steps: steps, MilestoneSteps: 1000, LeaseFloorS: 600}
			orders = append(orders, l)
		}
		for _, o := range d.Launch(t.Context(), r, orders) {
			if o.Err != nil || o.Receipt.Jobs != 3 {
				t.Fatal(o)
			}
		}
		time.Sleep(2 * time.Hour) // one has died, one has finished, one is at it
		if m := r.Meter(); m.Busy != 1 || m.Live != 1 || m.Paid != 2*time.Hour || m.Cost != 2 {
			t.Errorf("after two hours: %+v", m)
		}
		time.Sleep(3 * time.Hour)
		if m := r.Meter(); m.Busy != 0 || m.Live != 0 || m.Paid != 4*time.Hour || m.Started != 3 {
			t.Errorf("in the end: %+v", m)
		}
	})
}
