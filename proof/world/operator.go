package world

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// verb is one thing that a person does, with the product's own verbs. Each is a process of its own.
func (w *World) verb() {
	w.operator++
	n := w.operator
	rng := rand.New(rand.NewPCG(w.cfg.Seed, 100+uint64(n)))
	names := slices.Sorted(maps.Keys(w.works))
	work := names[rng.IntN(len(names))]
	if w.s.deletes && n == 1 {
		w.deleteWitness(work)
		return
	}
	ctx, kill := context.WithTimeout(w.ctx, 2*time.Minute)
	l := w.newLife(anOperator, fmt.Sprintf("operator %d", n), kill)
	kind := rng.IntN(4)
	number, p := int64(1+rng.IntN(4)), w.places[rng.IntN(len(w.places))]
	w.running.Go(func() {
		d := runners.Dispatcher{Bucket: w.mutant.As(l)}
		switch kind {
		case 0:
			got, err := d.Revoke(ctx, work, "a person takes it over", runners.RevokeOptions{})
			w.post(func() { w.said(l, "revoke", work, got, err) })
		case 1, 2:
			got, err := d.Revoke(ctx, work, "a person stops it", runners.RevokeOptions{Stop: true})
			w.post(func() { w.said(l, "stop", work, got, err) })
		case 3:
			got, err := d.Release(ctx, p.reach(l), work, number)
			w.post(func() {
				w.stats.Reached["operator: release"]++
				w.note(l, "release %.12s dispatch %d: %v %v", work, number, got, err)
			})
		}
		w.post(func() { w.end(l) })
	})
}

// said notes the answer of a revoke or a stop. What was acknowledged binds from here on.
func (w *World) said(l *life, verb, work string, got runners.Revoked, err error) {
	w.note(l, "%s %.12s: %v %v", verb, work, got.Text, err)
	if l.dead || err != nil {
		return
	}
	w.stats.Reached["operator: "+verb]++
	if verb == "stop" && got.Answer == witness.Ended && got.Seen.Record.Stopped() {
		w.judge.Stopped(work, got.Seen.Record.Floor)
	}
}

// deleteWitness is a person who removes what must never be removed.
func (w *World) deleteWitness(work string) {
	key := record.WitnessKey(work)
	s := w.works[work]
	if s == nil || s.state == "" {
		return
	}
	w.fired(PersonDel)
	s.deleted = true
	if err := w.store.mem.Delete(w.ctx, key); err != nil {
		w.breaks("harness", "delete %s: %v", key, err)
	}
	w.take(history.Entry{At: w.now(), Op: history.Delete, Key: key, Text: "by hand"})
}

// byHand is the same person, who looks at a platform by hand and ends there what no program can know of: on a platform that
// can't list, a launch whose answer was lost; whatever belongs to a work whose witness was deleted; and a machine that its
// platform said would end by itself, and did not (the product believes such an answer, and does not look again).
func (w *World) byHand() {
	for _, p := range w.places {
		for _, in := range p.sim.Truth() {
			s := w.works[in.Work]
			lost := !p.d.can && !w.openReceipt(in.Work, in.Dispatch) && !(s.state == witness.Held && s.dispatch == in.Dispatch)
			if !in.Live || !lost && !s.deleted && !w.overdue(in.Work, in.Dispatch) {
				continue
			}
			w.stats.Reached["a person ended a machine by hand"]++
			w.note(nil, "a person ends instance %d of %s by hand", in.ID, p.d.name)
			w.running.Go(func() { _, _ = p.endNow(w.ctx, in.ID) })
		}
	}
}

// endNow asks the platform itself, in a browser as it were, to end an instance. Its script may refuse, say nothing or
// blow up: whoever asked comes again.
func (p *place) endNow(ctx context.Context, instance int) (said runners.Release, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the platform's page broke: %v", broken)
		}
	}()
	return p.sim.Release(ctx, fmt.Appendf(nil, `{"instance":%d}`, instance))
}

// patience is how long a person waits for a platform.
const patience = time.Minute

// endOrphans is the same person, who asks what runs and nothing explains, and ends it as the answer says: the loop waits for a
// second look, and leaves alone what may be somebody else's.
func (w *World) endOrphans() {
	live := 0
	for _, p := range w.places {
		live += p.sim.Meter().Live
	}
	if live == 0 {
		return
	}
	w.operator++
	ctx, kill := context.WithTimeout(w.ctx, 5*time.Minute)
	l := w.newLife(anOperator, fmt.Sprintf("person on call %d", w.operator), kill)
	at := map[string]*place{}
	c := reconcile.Config{Bucket: w.mutant.As(l), ID: l.name, Runners: map[string]runners.Runner{}}
	for _, p := range w.places {
		at[p.d.name], c.Runners[p.d.name] = p, p.reach(l)
	}
	platforms := w.git.head.plan().Config.Platforms
	w.running.Go(func() {
		rec, err := reconcile.New(c)
		if err != nil {
			panic(err) // all that it needs is given above
		}
		orphans, _ := rec.Orphans(ctx, platforms)
		d := runners.Dispatcher{Bucket: c.Bucket}
		for _, o := range orphans {
			_, err := d.Release(ctx, at[o.Platform].reach(l), string(o.Work), o.Dispatch)
			w.post(func() {
				w.stats.Reached["a person ended an orphan"]++
				w.stats.Reached["an orphan was named"]++
				w.note(l, "releases %.12s dispatch %d on %s, since %s: %v", o.Work, o.Dispatch, o.Platform, o.Why, err)
			})
		}
		w.post(func() { w.end(l) })
	})
}

// overdue: the platform has said until when it would end by itself, and that is over.
func (w *World) overdue(work string, n int64) bool {
	d := runners.Dispatcher{Bucket: w.mutant.As(w.store.mem)}
	list, err := d.ReadClaims(w.ctx, work, n-1, 1)
	if err != nil || len(list) == 0 || list[0].N != n || list[0].Release == nil || list[0].Release.Settlement != runners.Bounded.String() {
		return false
	}
	until, err := time.Parse(time.RFC3339, list[0].Release.Until)
	return err == nil && time.Now().After(until)
}
