package world

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/repo"
	"github.com/headway-run/headway/runners"
)

// errNoCommit: the clone at hand has no such commit.
var errNoCommit = errors.New("no such commit")

// dispatcher is one headway watch: a process that is started again whenever it has died, and then knows nothing.
type dispatcher struct {
	w  *World
	id int
	n  int // lives so far
	l  *life

	over bool // it is not started again
}

// stop takes it away for good. The scheduler calls it.
func (d *dispatcher) stop() {
	d.over = true
	if d.l != nil {
		d.w.end(d.l)
	}
}

// start begins a new life. The scheduler calls it.
func (d *dispatcher) start() {
	w := d.w
	if d.over {
		return
	}
	ctx, kill := context.WithCancel(w.ctx)
	d.n++
	if d.n > 1 {
		w.fired(Restart)
	}
	l := w.newLife(aDispatcher, fmt.Sprintf("dispatcher %d.%d", d.id+1, d.n), kill)
	l.dies = func() { w.after(w.jitter(w.s.restart), d.start) }
	d.l = l
	w.note(l, "starts")
	w.running.Go(func() { d.run(ctx, l) })
}

// run is the loop of headway watch.
func (d *dispatcher) run(ctx context.Context, l *life) {
	w := d.w
	rec, err := reconcile.New(w.config(l))
	if err != nil {
		panic(err) // all that it needs is given above
	}
	defer rec.Wait()
	var at *commit
	for ctx.Err() == nil {
		head, fresh := d.poll(ctx, l)
		switch {
		case head == nil:
		case head.unusable:
			fresh = false
		default:
			at = head
		}
		next := w.s.interval
		if at != nil {
			if rep, err := w.pass(ctx, rec, at, fresh, nil); err == nil {
				next = min(next, max(rep.Next, 100*time.Millisecond))
				w.post(func() { w.reported(l, rep) })
			}
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
		}
	}
}

// poll asks where the branch is. nil: no answer.
func (d *dispatcher) poll(ctx context.Context, l *life) (head *commit, fresh bool) {
	w := d.w
	look := func(r *request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if head = w.git.head; r.stale {
			head = w.git.before
		}
	}
	if err := l.ask(ctx, &request{op: "git", key: "branch", call: true, apply: look}); err != nil {
		return nil, false
	}
	return head, true
}

// pass is one pass over a commit, with what its message and its history say of it; for all there is to do, or for a launch
// that a person asks for.
func (w *World) pass(ctx context.Context, rec *reconcile.Reconciler, at *commit, fresh bool, demand *reconcile.Demand) (*reconcile.Report, error) {
	want := &reconcile.Desired{Plan: at.plan(), Commit: at.hash, Fresh: fresh, Complete: true, Demand: demand}
	accepted, err := rec.Accepted(ctx, want.Plan.Config.Name)
	if err != nil {
		return nil, err
	}
	t := repo.ParseTrailers(at.message)
	want.AllowStops, want.AllowEmpty = t.AllowStops, t.AllowEmpty
	if accepted != nil && accepted.Commit != at.hash {
		switch w.git.relate(accepted.Commit, at.hash) {
		case repo.Behind:
			want.Refusals = append(want.Refusals, reconcile.Refusal{Code: "WentBack", Whole: true, Text: "the branch went back"})
		case repo.Diverged:
			want.Refusals = append(want.Refusals, reconcile.Refusal{Code: "HistoryRewritten", Whole: true, Text: "history was rewritten"})
		case repo.Same, repo.Ahead:
		}
	}
	return rec.Pass(ctx, want)
}

// reported counts what a pass did. The scheduler calls it.
func (w *World) reported(l *life, rep *reconcile.Report) {
	for i := range rep.Actions {
		a := &rep.Actions[i]
		w.weighs(l, a)
		if s := w.works[string(a.Work)]; s != nil {
			s.said = fmt.Sprintf("%s, %s (%s, %v)", a.Kind, a.Reason, l.name, a.Until)
		}
		if a.Done {
			w.stats.Reached["did "+string(a.Kind)]++
		}
		if a.Kind == reconcile.Fail {
			w.stats.Reached["gave a work up"]++
			if s := w.works[string(a.Work)]; s != nil {
				s.failed = a.Reason
			}
		}
		if f, ok := errors.AsType[*runners.Failure](a.Err); ok {
			w.stats.Reached["failure "+string(f.Class)]++
		}
	}
	for _, r := range rep.Refusals {
		w.stats.Reached["refused "+r.Code]++
	}
	if len(rep.Errors) > 0 {
		w.stats.Reached["a pass with errors"]++
	}
}

// post makes something happen on the scheduler's goroutine, at the next point where nobody else moves.
func (w *World) post(do func()) {
	w.mu.Lock()
	w.posted = append(w.posted, do)
	w.mu.Unlock()
	w.ring()
}
