package ring

import (
	"context"
	"errors"
	"slices"
)

// Empty takes down what a ring serves and loads nothing in its place: clients are kept off it first, their requests end, and then
// exactly what exists is unloaded. keep are the digests of releases that stay. p is the plan at hand, for nodes that no
// record names. It may be called again and again, and goes on where an earlier process died. The error is Halt, LeaseOver, or
// a store's or an engine's; only Recover and Release load anything afterwards, so whoever emptied a ring must not ask for them.
func (l *Loader) Empty(ctx context.Context, p *Plan, keep ...string) error {
	r, err := l.look(ctx)
	if err != nil {
		return err
	}
	if len(r.loads) == 0 {
		return r.orphans(ctx, p)
	}
	if !r.holds(keep) {
		return nil
	}
	if r.lease, err = takeLease(ctx, l.Records, r.highest(), l.By); err != nil {
		return err
	}
	defer r.lease.leave(context.WithoutCancel(ctx))
	now, err := l.look(ctx) // whoever had the lease may have gone on until it was taken
	if err != nil {
		return err
	}
	r.every, r.loads, r.all = now.every, now.loads, now.all
	for k := range r.loads {
		if i := &r.loads[k]; !slices.Contains(keep, i.Intent.Release) {
			if err := r.takeDown(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// holds says whether there is an open load of another release than these.
func (r *run) holds(keep []string) bool {
	return slices.ContainsFunc(r.loads, func(l Load) bool { return !slices.Contains(keep, l.Intent.Release) })
}

// takeDown ends one open load, whatever it had come to.
func (r *run) takeDown(ctx context.Context, l *Load) error {
	if !l.Ledger.Sent {
		found := find(&l.Intent, r.survey(ctx, &l.Intent), r.others(&l.Intent))
		if count(found)[Missing] == len(found) {
			return r.abandon(ctx, l, errors.New("the ring is taken down"))
		}
		for _, st := range nodes(found, Loaded, Broken, Loading) {
			if err := r.tell(ctx, l, LoadEvent{Op: OpSent, Command: "load", Node: st.Node, Detail: "a command left before its event was written"}); err != nil {
				return err
			}
		}
	}
	return r.clearOut(ctx, l)
}
