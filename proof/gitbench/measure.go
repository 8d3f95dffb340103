package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
)

// spent is time on the clock and on processors, of this process or of the children that were waited for.
type spent struct{ wall, cpu time.Duration }

func timed(who int, f func() error) (spent, error) {
	before, start := cpu(who), time.Now()
	err := f()
	return spent{time.Since(start), cpu(who) - before}, err
}

func cpu(who int) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// series gathers the measurements of one thing.
type series []spent

func (s series) wall() time.Duration {
	var out []time.Duration
	for _, m := range s {
		out = append(out, m.wall)
	}
	return median(out)
}

func (s series) cpu() time.Duration {
	var out []time.Duration
	for _, m := range s {
		out = append(out, m.cpu)
	}
	return median(out)
}

func beside(what string, ours, theirs series, target string) {
	fmt.Printf("%s: %s beside %s of git, ratio %.2f (target: %s); processor time %s beside %s, ratio %.2f\n", what, ms(ours.wall()), ms(theirs.wall()),
		float64(ours.wall())/float64(theirs.wall()), target, ms(ours.cpu()), ms(theirs.cpu()), float64(ours.cpu())/float64(theirs.cpu()))
}

// polls holds a look that finds nothing new against git ls-remote of the branch.
func polls(ctx context.Context, c config, dir string, _ *origin, url string) error {
	r, err := repo.Open(repo.Options{Remote: url, Branch: "main", Cache: filepath.Join(dir, "cache")})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.Head(ctx); err != nil {
		return err
	}
	var ours, theirs series
	for range 4*c.rounds + 1 {
		s, err := timed(syscall.RUSAGE_SELF, func() error {
			if o, ok := r.Poll(ctx).(repo.Unchanged); !ok {
				return fmt.Errorf("a quiet poll answered %T", o)
			}
			return nil
		})
		if err != nil {
			return err
		}
		ours = append(ours, s)
		if s, err = timed(syscall.RUSAGE_CHILDREN, func() error { return run(ctx, "", "git", "ls-remote", url, "refs/heads/main") }); err != nil {
			return err
		}
		theirs = append(theirs, s)
	}
	beside("a look that finds nothing new, beside git ls-remote", ours, theirs, "at most 1.2")
	got := r.Counters()
	fmt.Printf("  %d looks made %d fetches after the first\n", got.Polls-1, got.Fetches-1)
	return nil
}

// follower is what watch does with a commit, without its words.
type follower struct {
	r     *repo.Repo
	rec   *reconcile.Reconciler
	plans plan.Cache
	cpu   struct{ fetch, read, act, pass series }
	gate  *gate
}

// gate is a platform that does nothing but say when it was first asked to launch.
type gate struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration // processor time of this process until then
}

func (g *gate) Launch(_ context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() {
		g.at, g.used = time.Now(), cpu(syscall.RUSAGE_SELF)
	}
	out := make([]runners.Receipt, len(jobs))
	for i := range out {
		out[i] = runners.Receipt{Handle: []byte(`{}`), Text: "noted"}
	}
	return out, nil
}

func (g *gate) Release(context.Context, json.RawMessage) (runners.Release, error) {
	return runners.Release{Settlement: runners.Closed, Text: "it never ran"}, nil
}
func (g *gate) JobKinds() []string { return nil }
func (g *gate) Capacity() int      { return 1 }

// asked is what passed until a launch was asked for, since an earlier moment.
func (g *gate) asked(since time.Time, used time.Duration) (spent, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ok := !g.at.IsZero()
	s := spent{g.at.Sub(since), g.used - used}
	g.at = time.Time{}
	return s, ok
}

// look polls once and makes the pass over what it finds. It answers what passed until the commit's job was launched.
func (f *follower) look(ctx context.Context, launches bool) (all spent, err error) {
	began, used := time.Now(), cpu(syscall.RUSAGE_SELF)
	var o repo.Outcome
	fetch, _ := timed(syscall.RUSAGE_SELF, func() error { o = f.r.Poll(ctx); return nil })
	moved, ok := o.(repo.Advanced)
	if !ok {
		return all, fmt.Errorf("a poll after a commit answered %T", o)
	}
	var p *plan.Plan
	read, err := timed(syscall.RUSAGE_SELF, func() error {
		tree, err := f.r.Tree(moved.New.Hash)
		if err != nil {
			return err
		}
		var problems []plan.Problem
		if p, problems = f.plans.Load(tree); len(problems) > 0 {
			return fmt.Errorf("the plan has a problem: %s", problems[0].String())
		}
		return nil
	})
	if err != nil {
		return all, err
	}
	then, spentThen := time.Now(), cpu(syscall.RUSAGE_SELF)
	pass, err := timed(syscall.RUSAGE_SELF, func() error {
		report, err := f.rec.Pass(ctx, &reconcile.Desired{Plan: p, Commit: moved.New.Hash, Fresh: true, Complete: true, AllowStops: -1})
		if err == nil && !report.Accepted {
			err = fmt.Errorf("the commit was not accepted: %v", report.Refusals)
		}
		return err
	})
	if err != nil || !launches {
		return all, err
	}
	act, ok := f.gate.asked(then, spentThen)
	if !ok {
		return all, errors.New("the commit's job was not launched")
	}
	f.cpu.fetch, f.cpu.read = append(f.cpu.fetch, fetch), append(f.cpu.read, read)
	f.cpu.act, f.cpu.pass = append(f.cpu.act, act), append(f.cpu.pass, spent{pass.wall - act.wall, pass.cpu - act.cpu})
	return spent{then.Sub(began) + act.wall, spentThen - used + act.cpu}, nil
}

// commits holds one file's commit, from the poll that finds it to the call that launches its job, against git fetch and git
// diff --name-only. Between the two lie the fetch, the read of the plan, its comparison with what is in force, the guards,
// the write of what is in force from now on, a look at the work's lease and records, and its claim.
func commits(ctx context.Context, c config, dir string, o *origin, url string) error {
	r, err := repo.Open(repo.Options{Remote: url, Branch: "main", Cache: filepath.Join(dir, "cache2")})
	if err != nil {
		return err
	}
	defer r.Close()
	f := &follower{r: r, gate: &gate{}}
	if f.rec, err = reconcile.New(reconcile.Config{Bucket: mem.New(), StoreURL: "mem://", ID: "bench", Runners: map[string]runners.Runner{"here": f.gate}}); err != nil {
		return err
	}
	first, err := timed(syscall.RUSAGE_SELF, func() error { _, err := f.look(ctx, false); return err })
	if err != nil {
		return err
	}
	clone := filepath.Join(dir, "clone.git")
	if err := run(ctx, "", "git", "clone", "-q", "--bare", url, clone); err != nil {
		return err
	}
	var ours, theirs series
	defer debug.SetGCPercent(debug.SetGCPercent(60)) // as watch has it while it takes a commit
	for range c.rounds {
		if err := o.one(ctx, true); err != nil {
			return err
		}
		debug.FreeOSMemory() // as watch does between two passes
		s, err := f.look(ctx, true)
		if err != nil {
			return err
		}
		ours = append(ours, s)
		s, err = timed(syscall.RUSAGE_CHILDREN, func() error {
			if err := run(ctx, clone, "git", "fetch", "-q", "origin", "+refs/heads/main:refs/watch/main"); err != nil {
				return err
			}
			return run(ctx, clone, "git", "diff", "--name-only", "main", "refs/watch/main")
		})
		if err != nil {
			return err
		}
		theirs = append(theirs, s)
		if err := run(ctx, clone, "git", "update-ref", "refs/heads/main", "refs/watch/main"); err != nil {
			return err
		}
	}
	beside("a commit of one file, until its job is launched, beside git fetch and git diff --name-only", ours, theirs, "under 1.0")
	fmt.Printf("  of it: fetch %s, read %s, accept and act %s; then the pass over all the others: %s; the first sight of everything: %s\n",
		f.cpu.fetch, f.cpu.read, f.cpu.act, f.cpu.pass, series{first})
	return nil
}

// String is the medians, on the clock and on processors.
func (s series) String() string { return fmt.Sprintf("%s (%s)", ms(s.wall()), ms(s.cpu())) }
