package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// List prices of S3 (us-east-1, standard), in USD for one request.
const (
	priceWrite = 0.005 / 1000  // PUT, LIST
	priceRead  = 0.0004 / 1000 // GET
)

// figure prints one line: what, how much, and the target.
func figure(what, got, target string) { fmt.Printf("  %-58s %-28s %s\n", what, got, target) }

func beside(ok bool, target string) string {
	if ok {
		return "target " + target
	}
	return "target " + target + "  MISSED"
}

// held measures a watch over jobs that all hold their leases.
func held(ctx context.Context, o options, s server, dir string) error {
	base, err := baseline(ctx, o, s, dir)
	if err != nil {
		return err
	}
	p, err := newProject(ctx, o, s, dir, "held")
	if err != nil {
		return err
	}
	if err := p.plans(ctx, o.jobs, perFile); err != nil {
		return err
	}
	jobs, err := p.works()
	if err != nil {
		return err
	}
	b, err := s.open(ctx, "held")
	if err != nil {
		return err
	}
	begin := time.Now()
	l, err := capture(ctx, b, jobs, o.lease)
	if err != nil {
		return fmt.Errorf("capture the leases: %w", err)
	}
	fmt.Printf("%d jobs hold leases of %v (captured in %v), renewed by thirds by the worker's own code\n", len(jobs), o.lease, time.Since(begin).Round(time.Second))
	loadCtx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { l.renew(loadCtx); close(done) }()
	defer func() { end(); <-done }()
	return watched(ctx, p, l, base, func() error { return floor(ctx, b, jobs) })
}

// watched starts the watch over held leases and prints its figures, beside those of the store alone.
func watched(ctx context.Context, p *project, l *load, base int64, alone func() error) error {
	o := p.o
	w, err := p.start(ctx, "held")
	if err != nil {
		return err
	}
	defer w.cmd.Process.Kill()
	if err := w.until(ctx, 5*time.Minute, "the third pass", func() bool { return len(w.passes) >= 3 }); err != nil {
		return err
	}
	w.mu.Lock()
	first, from := w.passes[0], len(w.passes)
	w.mu.Unlock()
	writes, begin := l.writes.Load(), time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.measure):
	}
	minutes := time.Since(begin).Minutes()
	writes = l.writes.Load() - writes
	now, most, err := w.memory()
	if err != nil {
		return err
	}
	w.mu.Lock()
	passes, wrong := slices.Clone(w.passes[from:]), slices.Clone(w.errors)
	w.mu.Unlock()
	if len(passes) == 0 {
		return fmt.Errorf("no pass ended within %v", o.measure)
	}
	report(passes, first, minutes)
	if err := alone(); err != nil {
		return err
	}
	perJob := float64(now-base) / float64(o.jobs)
	figure("resident memory of headway watch", fmt.Sprintf("%.0f MB, at most %.0f MB", mb(now), mb(most)), beside(most < 200e6, "200 MB"))
	figure(fmt.Sprintf("  above that of one job (%.0f MB), for each job", mb(base)), fmt.Sprintf("%.1f KB", perJob/1e3), beside(perJob < 10e3 || o.jobs < 10_000, "10 KB, of 10,000 and more"))
	figure("the workers' own renewals", fmt.Sprintf("%.0f a minute", float64(writes)/minutes), fmt.Sprintf("%.2f USD a day", float64(writes)/minutes*1440*priceWrite))
	if n := l.lost.Load(); n > 0 || len(wrong) > 0 {
		return fmt.Errorf("%d leases were lost, %d warnings were logged: %.300s", n, len(wrong), fmt.Sprint(wrong))
	}
	if err := statuses(ctx, p); err != nil {
		return err
	}
	return w.stop()
}

func mb(n int64) float64 { return float64(n) / 1e6 }

// report prints what the passes took and asked for.
func report(passes []passed, first passed, minutes float64) {
	var took []time.Duration
	var gets, lists, puts float64
	for _, p := range passes {
		took = append(took, p.took)
		gets, lists, puts = gets+float64(p.gets), lists+float64(p.lists), puts+float64(p.puts)
	}
	p50, p99 := centile(took, 50), centile(took, 99)
	figure("first pass: every lease and its claim are read", fmt.Sprintf("%v, %d requests", first.took.Round(time.Millisecond), first.gets+first.lists+first.puts), "")
	figure(fmt.Sprintf("a pass, p50 and p99 of %d", len(took)), fmt.Sprintf("%v, %v", p50.Round(time.Millisecond), p99.Round(time.Millisecond)), beside(p99 < 5*time.Second, "5 s, the interval"))
	cost := (puts+lists)*priceWrite + gets*priceRead
	figure("store requests of the watch", fmt.Sprintf("%.0f GET, %.0f LIST, %.0f PUT a minute", gets/minutes, lists/minutes, puts/minutes), fmt.Sprintf("%.2f USD a day", cost/minutes*1440))
}

// statuses times a fresh headway status.
func statuses(ctx context.Context, p *project) error {
	var all []time.Duration
	var asked int64
	var own time.Duration
	for range 5 {
		took, cpu, n, requests, err := p.status(ctx)
		if err != nil {
			return err
		}
		if n != p.o.jobs {
			return fmt.Errorf("headway status shows %d held jobs of %d", n, p.o.jobs)
		}
		all, asked, own = append(all, took), requests, cpu
	}
	var bare []time.Duration
	for range 5 {
		begin := time.Now()
		if out, err := p.headway(ctx, "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("headway --version: %w: %s", err, out)
		}
		bare = append(bare, time.Since(begin))
	}
	slices.Sort(all)
	figure(fmt.Sprintf("headway status of %d jobs, a fresh process, median of 5", p.o.jobs), fmt.Sprintf("%v, %v of it its own CPU, %d requests", all[2].Round(time.Millisecond), own.Round(time.Millisecond), asked), beside(all[2] < 500*time.Millisecond, "500 ms"))
	figure("  headway --version, which does nothing, on this machine now", centile(bare, 50).Round(time.Millisecond).String(), "")
	return nil
}

// baseline is the resident memory of a watch over one suspended job.
func baseline(ctx context.Context, o options, s server, dir string) (int64, error) {
	p, err := newProject(ctx, o, s, dir, "base")
	if err != nil {
		return 0, err
	}
	w, err := p.start(ctx, "base")
	if err != nil {
		return 0, err
	}
	defer w.cmd.Process.Kill()
	if err := w.until(ctx, time.Minute, "the third pass", func() bool { return len(w.passes) >= 3 }); err != nil {
		return 0, err
	}
	now, _, err := w.memory()
	if err != nil {
		return 0, err
	}
	return now, w.stop()
}

// committed measures many plans in one commit: from the moment when the watch took it until the first launch was done,
// and until all were.
func committed(ctx context.Context, o options, s server, dir string) error {
	p, err := newProject(ctx, o, s, dir, "committed")
	if err != nil {
		return err
	}
	w, err := p.start(ctx, "committed")
	if err != nil {
		return err
	}
	defer w.cmd.Process.Kill()
	if err := w.until(ctx, time.Minute, "the first pass", func() bool { return len(w.passes) >= 1 }); err != nil {
		return err
	}
	if err := p.plans(ctx, o.plans, 1); err != nil {
		return err
	}
	commit := time.Now()
	if err := w.until(ctx, time.Minute, "the commit to be taken", func() bool { return len(w.taken) >= 2 }); err != nil {
		return err
	}
	if err := w.until(ctx, 5*time.Minute, "all launches", func() bool { return len(w.launch) >= o.plans }); err != nil {
		return err
	}
	_, most, err := w.memory()
	if err != nil {
		return err
	}
	w.mu.Lock()
	taken, launches, answered := w.taken[1], slices.Clone(w.launch), w.answered
	w.mu.Unlock()
	first, last := answered.Sub(taken), launches[o.plans-1].Sub(taken)
	fmt.Printf("%d plans in one commit, one file each, on the simulated platform inside headway watch\n", o.plans)
	figure("from the commit until headway watch had read it", taken.Sub(commit).Round(time.Millisecond).String(), "it looks every 5 s")
	figure("  from there to the first launch that was answered", first.Round(time.Millisecond).String(), beside(first < time.Second, "1 s"))
	figure("  from there to the last one: all are claimed", last.Round(time.Millisecond).String(), beside(last < 30*time.Second, "30 s"))
	figure("resident memory at most, with the simulated workers", fmt.Sprintf("%.0f MB", mb(most)), beside(most < 150e6, "150 MB"))
	return w.stop()
}
