package world

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
)

// person makes a process of somebody who uses a verb that needs the reconciler; do runs beside the scheduler.
func (w *World) person(what string, do func(ctx context.Context, l *life, rec *reconcile.Reconciler, at *commit, rng *rand.Rand)) {
	w.operator++
	n := w.operator
	ctx, kill := context.WithTimeout(w.ctx, 5*time.Minute)
	l := w.newLife(anOperator, fmt.Sprintf("operator %d %s", n, what), kill)
	at, rng := w.git.head, rand.New(rand.NewPCG(w.cfg.Seed, 200+uint64(n)))
	w.running.Go(func() {
		rec, err := reconcile.New(w.config(l))
		if err != nil {
			panic(err) // all that it needs is given
		}
		do(ctx, l, rec, at, rng)
		rec.Wait()
		w.post(func() { w.end(l) })
	})
}

// reopen is headway reopen on one platform.
func (w *World) reopen() {
	w.person("reopens", func(ctx context.Context, l *life, rec *reconcile.Reconciler, at *commit, rng *rand.Rand) {
		conf := at.plan().Config.Platforms
		names := slices.Sorted(maps.Keys(conf))
		if len(names) == 0 {
			return
		}
		was, err := rec.Reopen(ctx, conf[names[rng.IntN(len(names))]])
		w.post(func() {
			w.note(l, "reopens %s: %v", was.Name, err)
			if err == nil && (was.Closed || was.Series > 0) {
				w.stats.Reached["operator: reopen"]++
			}
		})
	})
}

// demand is headway launch on one job.
func (w *World) demand() {
	w.person("launches", func(ctx context.Context, l *life, rec *reconcile.Reconciler, at *commit, rng *rand.Rand) {
		jobs := at.plan().Jobs
		if len(jobs) == 0 || at.unusable {
			return
		}
		j := &jobs[rng.IntN(len(jobs))]
		d := reconcile.Demand{Works: []plan.Digest{j.Work}}
		if rng.IntN(2) == 0 {
			d.Platform = j.On[rng.IntN(len(j.On))]
		}
		rep, err := w.pass(ctx, rec, at, true, &d)
		w.post(func() {
			w.note(l, "asks for a launch of %.12s: %v", j.Work, err)
			if err != nil {
				return
			}
			w.reported(l, rep)
			for _, a := range rep.Actions {
				if a.Kind == reconcile.Launch && a.Done && a.Work == j.Work {
					w.stats.Reached["operator: launch"]++
				}
			}
		})
	})
}

// config is what every process with a reconciler has.
func (w *World) config(l *life) reconcile.Config {
	c := reconcile.Config{Bucket: w.mutant.As(l), StoreURL: "mem:", Runners: map[string]runners.Runner{}, ID: l.name, LeaseFloor: w.s.floor,
		Load: func(_ context.Context, hash string) (*plan.Plan, error) {
			if at := w.git.find(hash); at != nil {
				return at.plan(), nil
			}
			return nil, errNoCommit
		}}
	for _, p := range w.places {
		c.Runners[p.d.name] = p.reach(l)
	}
	return c
}

// weighs counts what limits and the ladder did to a work, and sometimes takes the dispatcher away in the middle of it. The
// scheduler calls it.
func (w *World) weighs(l *life, a *reconcile.Action) {
	draining := strings.HasPrefix(a.Reason, "limits.") && strings.Contains(a.Reason, "stops after its next milestone")
	leaving := strings.Contains(a.Reason, "it leaves for ")
	switch {
	case a.Kind == reconcile.Stop && a.Done && strings.HasPrefix(a.Reason, "limits."):
		name, _, _ := strings.Cut(a.Reason, ":")
		w.stats.Reached["halted: "+name]++
	case draining:
		w.stats.Reached["a limit drains"]++
	case leaving:
		w.stats.Reached["a work leaves for a better rung"]++
	case a.Kind == reconcile.Wait && strings.HasPrefix(a.Reason, "limits.parallel"):
		w.stats.Reached["waits for limits.parallel"]++
	}
	if w.healed || l.role != aDispatcher || l.dead || !draining && !leaving || w.rng.IntN(3) > 0 {
		return
	}
	if draining {
		w.fired(CrashDraining)
	} else {
		w.fired(CrashLeaving)
	}
	w.crash(l)
}

// wrote looks at what a dispatcher has just made of a lease: a move or a halt, in the middle of which it may die, before it
// has heard that it is done.
func (w *World) wrote(by *life, reason string) {
	f := CrashMoving
	switch {
	case strings.HasPrefix(reason, "moves up the ladder"):
	case strings.HasPrefix(reason, "limits."):
		f = CrashHalting
	default:
		return
	}
	if w.healed || by.role != aDispatcher || by.dead || w.rng.IntN(2) > 0 {
		return
	}
	w.fired(f)
	w.crash(by)
}
