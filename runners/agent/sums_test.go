package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners/record"
)

// manifest reads one.
func (w *world) manifest(key string) (m record.Manifest) {
	w.Helper()
	if err := json.Unmarshal([]byte(w.text(key)), &m); err != nil {
		w.Fatalf("%s: %v", key, err)
	}
	return m
}

// trained is a program of one loop: the first step takes 20 s, the others one; every step waits a tenth of a second for data, a
// snapshot takes two to write, and after step 30 it evaluates for ten.
func trained(last int64, die bool) func(ctx context.Context, p Program) int {
	return func(ctx context.Context, p Program) int {
		r, err := joined(p)
		if err != nil {
			return 4
		}
		path := filepath.Join(p.Dir, "state")
		for n := range r.Steps(0, last) {
			end := r.Waiting()
			time.Sleep(100 * time.Millisecond)
			end()
			time.Sleep(time.Second)
			if n == 1 {
				time.Sleep(19 * time.Second)
			}
			if r.MilestoneDue() {
				time.Sleep(2 * time.Second)
				if errors.Join(os.WriteFile(path, []byte{byte(n)}, 0o600), r.Milestone(path, n, true)) != nil {
					return 5
				}
			}
			if n == 30 {
				over, err := r.Phase("eval", 10*time.Second)
				time.Sleep(10 * time.Second)
				if errors.Join(err, over()) != nil {
					return 6
				}
			}
		}
		if die {
			_ = r.Close(errors.New("ValueError: no"))
			return 1
		}
		return code(r.Finish(map[string]float64{"sum": 1}), r.Close(nil))
	}
}

// near compares seconds.
func near(want, got *record.Sums) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }))
}

// The account until each snapshot is in its manifest; the whole one in the result's and in end.json.
func TestTheAccountTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.MilestoneSteps, w.terms.FLOPsPerStep = 20, 5
		if exit := w.inside(t.Context(), &Inside{Program: trained(50, false)}); exit.Code != CodeFinished {
			t.Fatalf("%+v", exit)
		}
		at20 := record.Sums{Steps: 20, Work: 100, WarmS: 20.1, StepS: 19, WaitS: 1.9, SaveS: 2, Wait: record.WaitSplit, Median: 1,
			Ratios: record.Histogram{Done: map[int]int64{8: 19}}}
		if d := near(&at20, w.manifest(record.MilestoneManifestKey(w.work, 1, 1)).Sums); d != "" {
			t.Errorf("milestone 1: %s", d)
		}
		all := at20
		all.Steps, all.Work, all.StepS, all.WaitS, all.SaveS, all.EvalS = 50, 250, 49, 4.9, 4, 10
		all.Snapshots = 2
		all.Ratios = record.Histogram{Done: map[int]int64{8: 49}}
		if d := near(&all, w.manifest(record.ResultManifestKey(w.work, 1)).Sums); d != "" {
			t.Errorf("result: %s", d)
		}
		end := w.end(1)
		if d := near(&all, end.Sums); d != "" {
			t.Errorf("end: %s", d)
		}
		if booked := all.WarmS + all.StepS + all.WaitS + all.SaveS + all.EvalS; end.RanS < booked || end.RanS > booked+1 {
			t.Errorf("ran for %v s, booked %v", end.RanS, booked)
		}
	})
}

// A failed attempt accounts for all of its steps; what was kept of them is in the last milestone's manifest.
func TestAFailedAttemptTellsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.MilestoneSteps = 20
		if exit := w.inside(t.Context(), &Inside{Program: trained(35, true)}); exit.Code != CodeUserCode {
			t.Fatalf("%+v", exit)
		}
		if s := w.end(1).Sums; s.Steps != 35 || s.EvalS != 10 || w.manifest(record.MilestoneManifestKey(w.work, 1, 1)).Sums.Steps != 20 {
			t.Errorf("%+v", s)
		}
	})
}

// Given writes of the lease that fail for ten minutes. Then the worker asks again with bounded pauses inside its lease,
// the attempt goes on, and what the loop stood waiting for is no step's time (cases/jobs.md, D15).
func TestAnOutageIsOverheadAndNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.MilestoneSteps, w.terms.LeaseFloorS = 0, 720
		o := &outage{Bucket: w.b}
		w.claim(1)
		exit := Run(t.Context(), Config{Bucket: o, Work: w.work, Dispatch: 1, Scratch: w.scratch, Environ: []string{"MY_SECRET=correct horse"},
			Inside: &Inside{Program: func(ctx context.Context, p Program) int {
				r, err := joined(p)
				if err != nil {
					return 4
				}
				for n := range r.Steps(0, 1000) {
					time.Sleep(time.Second)
					if n == 300 {
						o.off.Store(true)
						time.AfterFunc(10*time.Minute, func() { o.off.Store(false) })
					}
				}
				return code(r.Err(), r.Finish(map[string]float64{"sum": 1}), r.Close(nil))
			}}})
		if exit.Code != CodeFinished {
			t.Fatalf("%+v", exit)
		}
		e := w.end(1)
		if s := e.Sums; s.Steps != 1000 || s.StepS > 999.1 || e.RanS < 1030 {
			t.Errorf("ran for %v s: %+v", e.RanS, s)
		}
		if n := o.fired.Load(); n < 10 || n > 600 {
			t.Errorf("the store was asked %d times in ten minutes", n)
		}
	})
}

// Of a watched program the steps that its files' names say are known, and no ratios; the manifest of each file has the time
// until it. A worker that was lost leaves that and nothing else.
func TestAWatchedProgramsAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.WatchPath, w.terms.WatchIntervalS, w.terms.FLOPsPerStep = "ckpt-*.pt", 60, 3
		w.claim(1)
		life, lose := context.WithCancel(t.Context())
		o := &outage{Bucket: w.b}
		go func() { time.Sleep(220 * time.Second); o.off.Store(true); lose() }()
		Run(life, Config{Bucket: o, Work: w.work, Dispatch: 1, Scratch: w.scratch, Environ: []string{"MY_SECRET=correct horse"}, Inside: &Inside{Life: life,
			Program: func(ctx context.Context, p Program) int {
				for n := 100; ctx.Err() == nil; n += 100 {
					time.Sleep(time.Minute)
					if os.WriteFile(filepath.Join(p.Dir, fmt.Sprintf("ckpt-%06d.pt", n)), []byte{1}, 0o600) != nil {
						return 5
					}
				}
				return 0
			}}})
		p := w.witness().Record.Resume
		if p == nil || p.Step != 300 {
			t.Fatalf("pointer %+v, want step 300", p)
		}
		s := w.manifest(p.Manifest).Sums
		if s.Steps != 300 || s.Work != 900 || s.WarmS < 60 || s.WarmS > 75 || s.StepS < 110 || s.StepS > 130 || len(s.Ratios.Done) != 0 || s.Median != 0 || s.SaveS != 0 {
			t.Errorf("%+v", s)
		}
		if e := w.end(1); e.Sums != nil || e.Class != "" {
			t.Errorf("a lost worker left %+v", e)
		}
	})
}
