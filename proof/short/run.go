package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/sim"
)

// config is what is asked for.
type config struct {
	jobs, places, machine int
	alike                 bool // each job takes one place
}

// units is what a job of a class takes.
func (c config) units(k class) int {
	if c.alike {
		return 1
	}
	return k.units
}

// class is one sort of job of the mix.
type class struct {
	name     string
	percent  int
	runtime  time.Duration
	priority int
	units    int // of quota there, cards of a machine here
}

// mix is the one of Kueue's scheduler performance test (baseline): a table of values.
var mix = []class{
	{"large", 10, time.Second, 200, 20},
	{"medium", 20, 500 * time.Millisecond, 100, 5},
	{"small", 70, 200 * time.Millisecond, 50, 1},
}

// step is the simulated step; runtimes are multiples of it.
const step = 100 * time.Millisecond

// jobs makes them, spread over the names so that no class is first by its name.
func (c config) plan() *plan.Plan {
	p := &plan.Plan{Files: []string{"plans/short.yaml"}, Config: plan.Config{Name: "short", Guard: plan.Guard{Prune: 0.2},
		Platforms: map[string]plan.Platform{"here": {Name: "here", Runner: "sim", Slots: c.places / c.machine}}}}
	for i := range c.jobs {
		k := classOf(i)
		j := plan.Job{Name: fmt.Sprintf("job-%05d", i), Group: k.name, Kind: "train", Argv: []string{"train"}, Run: "train", Seed: int64(i), Generation: 1,
			On: []string{"here"}, GPU: plan.GPU{Count: c.units(k)}, Priority: k.priority, OnDelete: plan.Drain, Limits: plan.Limits{Retries: 5},
			FLOPs: flops.Work{Steps: int64(k.runtime / step)}, Milestones: plan.Milestones{Steps: 1000}}
		j.Work = j.Digest()
		p.Jobs = append(p.Jobs, j)
	}
	return p
}

func classOf(i int) class {
	at := (i * 37) % 100 // every hundred in a row has the mix
	for _, k := range mix {
		if at -= k.percent; at < 0 {
			return k
		}
	}
	return mix[len(mix)-1]
}

// clock is the platform, and when it was asked for each job.
type clock struct {
	*sim.Runner
	mu    sync.Mutex
	began time.Time
	asked map[string]time.Duration // work → since the begin
	twice int
}

func (c *clock) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	c.mu.Lock()
	for _, j := range jobs {
		if _, known := c.asked[j.Work]; known {
			c.twice++
		}
		c.asked[j.Work] = time.Since(c.began)
	}
	c.mu.Unlock()
	return c.Runner.Launch(ctx, jobs)
}

// result is what was measured.
type result struct {
	finished, twice      int
	wall, passing, cpu   time.Duration
	worked               time.Duration // sum over jobs, by the platform's own account, times the units of each
	passes               int
	longest              time.Duration
	requests             int64
	firstCall, allCalled time.Duration
	waited               map[string]time.Duration // class → mean time from the commit to the call
	want                 int
}

func run(ctx context.Context, c config, b bucket.Bucket) (*result, error) {
	s, err := sim.New(sim.Config{Platform: "here", Slots: c.places / c.machine, Capacity: c.machine, Bucket: b, Model: sim.Model{Start: time.Millisecond, Step: step}})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	p := c.plan()
	at := &clock{Runner: s, asked: map[string]time.Duration{}, began: time.Now()}
	r, err := reconcile.New(reconcile.Config{Bucket: b, StoreURL: "mem:", Runners: map[string]runners.Runner{"here": at}, ID: "short"})
	if err != nil {
		return nil, err
	}
	d := &reconcile.Desired{Plan: p, Commit: "short", Fresh: true, Complete: true, AllowStops: -1}
	out := &result{want: c.jobs, waited: map[string]time.Duration{}}
	before := cpu()
	for out.finished < c.jobs {
		began := time.Now()
		rep, err := r.Pass(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("%d of %d jobs finished: %w", out.finished, c.jobs, err)
		}
		took := time.Since(began)
		out.passes, out.passing, out.longest, out.requests = out.passes+1, out.passing+took, max(out.longest, took), out.requests+rep.Requests
		if out.finished, err = standing(rep); err != nil {
			return nil, err
		}
		if out.finished < c.jobs {
			select {
			case <-ctx.Done():
			case <-time.After(max(rep.Next, 100*time.Millisecond)): // as headway watch does
			}
		}
	}
	out.wall, out.cpu = time.Since(at.began), cpu()-before
	for _, in := range s.Truth() {
		out.worked += in.Worked * time.Duration(max(len(in.Cards), 1))
	}
	out.calls(at, p)
	return out, nil
}

// standing counts what is finished; a job that has failed will never be.
func standing(rep *reconcile.Report) (n int, err error) {
	for w, s := range rep.States {
		switch s.State {
		case plan.StateFinished:
			n++
		case plan.StateFailed:
			return n, fmt.Errorf("work %s: %s", w.Short(), s.Reason)
		}
	}
	return n, nil
}

func (r *result) calls(at *clock, p *plan.Plan) {
	counts := map[string]time.Duration{}
	var all []time.Duration
	for i := range p.Jobs {
		j := &p.Jobs[i]
		t := at.asked[string(j.Work)]
		r.waited[j.Group] += t
		counts[j.Group]++
		all = append(all, t)
	}
	for k, n := range counts {
		r.waited[k] /= n
	}
	r.twice, r.firstCall, r.allCalled = at.twice, slices.Min(all), slices.Max(all)
}

// cpu is the processor time of this process: dispatcher, simulated workers and an in-process store together.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// broken says what makes the figures worthless.
func (r *result) broken() error {
	var why []string
	if r.finished != r.want {
		why = append(why, fmt.Sprintf("%d of %d jobs finished", r.finished, r.want))
	}
	if r.twice > 0 {
		why = append(why, fmt.Sprintf("%d launches of a work that had been launched, though nothing failed", r.twice))
	}
	if len(why) > 0 {
		return fmt.Errorf("%s", strings.Join(why, "; "))
	}
	return nil
}
