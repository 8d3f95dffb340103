package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/process"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

const demoJob = "digits"

// work reads the plan as it is now and returns one job's work.
func (d *demo) work(ctx context.Context, name string) (*plan.Job, error) {
	e := d.env
	e.dir = d.repo
	p, err := readProject(ctx, e, "")
	if err != nil {
		return nil, err
	}
	j, ok := p.plan.Job(name)
	if !ok {
		return nil, fmt.Errorf("the example has no job %q", name)
	}
	return j, nil
}

// until polls the witness of a work until done says so. Not there yet is not an error.
func (d *demo) until(ctx context.Context, work plan.Digest, done func(witness.Record) bool) (witness.Record, error) {
	for {
		seen, err := witness.Read(ctx, d.store, string(work))
		if err == nil && done(seen.Record) {
			return seen.Record, nil
		}
		if err != nil && !errors.Is(err, witness.ErrAbsent) {
			return seen.Record, err
		}
		select {
		case <-ctx.Done():
			return seen.Record, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// train waits for the first run to get somewhere.
func (d *demo) train(ctx context.Context) error {
	j, err := d.work(ctx, demoJob)
	if err != nil {
		return err
	}
	d.chapter("2. The loop sees the commit and a worker trains")
	d.say("headway watch runs beside this, polling the branch. Work %s is claimed, then launched on platform \"here\".", j.Work.Short())
	total := d.total(ctx, j)
	bar := d.bar("training", total)
	r, err := d.until(ctx, j.Work, func(r witness.Record) bool {
		bar.at(r.Progress.Step, milestone(r))
		return r.Resume != nil && r.Progress.Step > r.Resume.Step && r.Progress.Step > total/3
	})
	bar.end()
	if err != nil {
		return err
	}
	d.say("Attempt %d holds the lease; milestone at step %d is in the store and the lease names it.", r.Attempt, r.Resume.Step)
	return nil
}

// total is the number of steps of the whole run, as the plan states it.
func (d *demo) total(_ context.Context, j *plan.Job) int64 {
	if j.FLOPs.Steps > 0 {
		return j.FLOPs.Steps
	}
	var n int64
	_, _ = fmt.Sscan(j.Params["steps"], &n)
	return max(n, 1)
}

func milestone(r witness.Record) int64 {
	if r.Resume == nil {
		return 0
	}
	return r.Resume.Step
}

// kill ends the agent and everything that it started, with SIGKILL, and follows the recovery.
func (d *demo) kill(ctx context.Context) error {
	j, err := d.work(ctx, demoJob)
	if err != nil {
		return err
	}
	seen, err := witness.Read(ctx, d.store, string(j.Work))
	if err != nil {
		return err
	}
	before := seen.Record
	d.chapter("3. The machine vanishes: SIGKILL to the agent and to the program")
	victims, err := process.Find("HEADWAY_WORK=" + string(j.Work))
	if err != nil {
		return err
	}
	if len(victims) == 0 {
		return fmt.Errorf("no process of work %s was found to kill", j.Work.Short())
	}
	died := time.Now()
	for _, v := range victims {
		_ = syscall.Kill(v.PID, syscall.SIGKILL)
	}
	d.say("Killed %s at about step %d. Nobody is told; the lease of %.0f s must run out.", count(len(victims), "process"), before.Progress.Step, before.Lease.Seconds)
	if _, err := d.until(ctx, j.Work, func(r witness.Record) bool { return r.State != witness.Held || r.Attempt > before.Attempt }); err != nil {
		return err
	}
	judged := time.Now()
	next, err := d.until(ctx, j.Work, func(r witness.Record) bool { return r.State == witness.Held && r.Attempt > before.Attempt })
	if err != nil {
		return err
	}
	captured := time.Now()
	resumed := milestone(next)
	first, err := d.until(ctx, j.Work, func(r witness.Record) bool {
		return r.Attempt == next.Attempt && r.Progress.Step > resumed || r.State == witness.Finished
	})
	if err != nil {
		return err
	}
	d.say("  %6.1f s  silence judged, attempt %d written off (lease %.0f s, by the watcher's own clock)", judged.Sub(died).Seconds(), before.Attempt, before.Lease.Seconds)
	d.say("  %6.1f s  claimed, launched, captured: attempt %d", captured.Sub(judged).Seconds(), next.Attempt)
	d.say("  %6.1f s  snapshot downloaded and verified, first new step witnessed", time.Since(captured).Seconds())
	d.say("Attempt %d resumed at step %d, the last milestone that the store acknowledged; lost: the steps after it.", next.Attempt, resumed)
	if resumed < milestone(before) {
		return fmt.Errorf("the resume pointer went back from step %d to %d: this is a defect of headway", milestone(before), resumed)
	}
	_ = first
	return nil
}

// finish waits for the result of the job and of the one that needs it.
func (d *demo) finish(ctx context.Context) error {
	d.chapter("4. It finishes")
	return d.finished(ctx)
}

func (d *demo) finished(ctx context.Context) error {
	j, err := d.work(ctx, demoJob)
	if err != nil {
		return err
	}
	bar := d.bar("training", d.total(ctx, j))
	r, err := d.until(ctx, j.Work, func(r witness.Record) bool {
		bar.at(r.Progress.Step, milestone(r))
		return r.State == witness.Finished
	})
	bar.end()
	if err != nil {
		return err
	}
	d.say("Finished by attempt %d: %s", r.Attempt, d.metrics(ctx, r))
	test, err := d.work(ctx, demoJob+"-backtest")
	if err != nil {
		return err
	}
	r, err = d.until(ctx, test.Work, func(r witness.Record) bool { return r.State == witness.Finished })
	if err != nil {
		return err
	}
	d.say("Then what needed it ran, %s: %s", test.Name, d.metrics(ctx, r))
	return nil
}

// metrics reads metrics.json of a finished work's result; it was written by another process, so it is escaped.
func (d *demo) metrics(ctx context.Context, r witness.Record) string {
	o, err := d.store.Get(ctx, record.ResultPrefix(r.Work, r.Finished.Attempt)+"metrics.json", bucket.Range{})
	if err != nil {
		return "no metrics: " + err.Error()
	}
	defer o.Body.Close()
	b, err := io.ReadAll(io.LimitReader(o.Body, 64<<10))
	var m map[string]any
	if err != nil || json.Unmarshal(b, &m) != nil {
		return "unreadable metrics"
	}
	var out []string
	for k, v := range m {
		out = append(out, fmt.Sprintf("%s %v", k, v))
	}
	return runners.Sanitize([]byte(strings.Join(out, ", ")))
}

// change commits another learning rate and shows the diff that a reviewer would see.
func (d *demo) change(ctx context.Context) error {
	d.chapter("5. A change is committed: another learning rate")
	if err := d.edit("plans/digits.yaml", "lr: 0.05", "lr: 0.1"); err != nil {
		return err
	}
	if err := d.diff(ctx); err != nil {
		return err
	}
	if _, err := commitAll(d.repo, "try a higher learning rate"); err != nil {
		return err
	}
	return d.finished(ctx)
}

// diff runs `headway plan` on the repository and shows its answer.
func (d *demo) diff(ctx context.Context) error {
	e := d.env
	e.dir, e.args = d.repo, []string{"-C", d.repo, "plan"}
	d.say("$ headway plan")
	if code := run(ctx, e); code != exitOK && code != exitChanges {
		return fmt.Errorf("headway plan ended with %d", code)
	}
	return nil
}

// revert goes back to the first plan: the finished work is found again, and no launch follows.
func (d *demo) revert(ctx context.Context) error {
	d.chapter("6. The change is reverted")
	if err := d.edit("plans/digits.yaml", "lr: 0.1", "lr: 0.05"); err != nil {
		return err
	}
	j, err := d.work(ctx, demoJob)
	if err != nil {
		return err
	}
	before, err := runners.LastDispatch(ctx, d.store, string(j.Work), 0)
	if err != nil {
		return err
	}
	if err := d.diff(ctx); err != nil {
		return err
	}
	hash, err := commitAll(d.repo, "revert: back to the first learning rate")
	if err != nil {
		return err
	}
	if err := d.accepted(ctx, hash); err != nil {
		return err
	}
	after, err := runners.LastDispatch(ctx, d.store, string(j.Work), 0)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("work %s was launched again although it is finished: this is a defect of headway", j.Work.Short())
	}
	d.say("The loop accepted %s. Work %s is found finished: launches before %d, after %d. Nothing was trained twice.", hash[:8], j.Work.Short(), before, after)
	return nil
}

// accepted waits until the loop says that a commit is in force.
func (d *demo) accepted(ctx context.Context, hash string) error {
	e := d.env
	e.dir = d.repo
	for {
		p, err := readProject(ctx, e, "")
		if err != nil {
			return err
		}
		r, _, err := p.reader(ctx)
		if err != nil {
			return err
		}
		a, err := r.Accepted(ctx, p.plan.Config.Name)
		if err != nil {
			return err
		}
		if a != nil && a.Commit == hash {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
