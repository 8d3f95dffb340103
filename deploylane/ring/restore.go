package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// Recover finishes or takes back what an earlier process left, in the order of the generations, and loads again what
// was cut short: the release itself, or the one that it was to replace when it was the release that failed. p is the
// plan at hand, for nodes that no record names. It may be called at any time: a ring that
// serves is asked whether it does, and left alone.
func (l *Loader) Recover(ctx context.Context, p *Plan) (Outcome, error) {
	r, err := l.look(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer func() {
		if r.lease != nil {
			r.lease.leave(context.WithoutCancel(ctx))
		}
	}()
	if len(r.loads) == 0 {
		return r.refill(ctx, p)
	}
	if old, err := r.serving(); err == nil && old != nil {
		found := find(&old.Intent, r.survey(ctx, &old.Intent), nil)
		if Decide(Situation{Intent: &old.Intent, Ledger: old.Ledger, Found: found}).Do == DoNothing && r.proven(ctx, old) == nil {
			return Outcome{Serving: old.Intent.Generation, Release: old.Intent.Release}, nil
		}
	}
	if r.lease, err = takeLease(ctx, l.Records, r.highest(), l.By); err != nil {
		return Outcome{}, err
	}
	now, err := l.look(ctx) // whoever had the lease may have gone on until it was taken
	if err != nil {
		return Outcome{}, err
	}
	r.every, r.loads, r.all = now.every, now.loads, now.all
	return r.settle(ctx)
}

// proven asks a ring that is said to serve, as its canary did.
func (r *run) proven(ctx context.Context, l *Load) error {
	p, err := ReadPlan("the record of a load", []byte(l.Intent.Plan))
	if err != nil {
		return err
	}
	if r.lease == nil {
		return r.canary(ctx, p, l.Intent.Prompts, l.Intent.route(), &l.Intent)
	}
	var failed error
	if err := r.lease.during(ctx, "canary", func(ctx context.Context) {
		failed = r.canary(ctx, p, l.Intent.Prompts, l.Intent.route(), &l.Intent)
	}); err != nil {
		return err
	}
	return failed
}

// refill loads again what an earlier process took back and did not live to replace.
func (r *run) refill(ctx context.Context, p *Plan) (Outcome, error) {
	if err := r.orphans(ctx, p); err != nil || len(r.every) == 0 {
		return Outcome{Why: "there is no load"}, err
	}
	last := &r.every[len(r.every)-1]
	was := last
	if last.Ledger.Failed && !last.Ledger.Served {
		was = r.before(last)
	}
	if was == nil {
		return Outcome{Why: fmt.Sprintf("generation %d failed, and replaced nothing", last.Intent.Generation)}, nil
	}
	out, err := r.reload(ctx, was.Intent, fmt.Sprintf("generation %d is gone, and nothing took its place", last.Intent.Generation), last.Intent.Overrides)
	out.RolledBack = out.Serving != 0 && was != last
	return out, err
}

func (r *run) highest() uint64 {
	g := uint64(1)
	for _, x := range r.all {
		g = max(g, x.Generation)
	}
	return g
}

// settle drives every open load to its end.
func (r *run) settle(ctx context.Context) (Outcome, error) {
	var again *Load // the newest one that is to be loaded again
	why := ""
	for k := range r.loads {
		l := &r.loads[k]
		p, err := ReadPlan("the record of a load", []byte(l.Intent.Plan))
		if err != nil {
			return Outcome{}, Halt{r.Records.Ring, l.Intent.Generation, err.Error()}
		}
		served := l.Ledger.Serving
		if err = r.drive(ctx, p, l.Intent.Prompts, l); err == nil && served && l.Ledger.Serving {
			failed := r.proven(ctx, l)
			if over, is := errors.AsType[LeaseOver](failed); is {
				return Outcome{Why: why}, over
			}
			if failed != nil { // agents say that all is well while a stage is frozen
				err = r.tell(ctx, l, LoadEvent{Op: OpCanary, Detail: "it served, and then: " + failed.Error()})
				if err == nil {
					err = r.drive(ctx, p, l.Intent.Prompts, l)
				}
			}
		}
		back, taken := errors.AsType[TakenBack](err)
		switch {
		case taken:
			why = back.Error()
			if again = l; !back.Again {
				again = r.before(l)
			}
		case err != nil:
			return Outcome{Why: why}, err
		}
	}
	serves := slices.IndexFunc(r.loads, func(l Load) bool { return l.Ledger.Serving && l.Ledger.Closed == "" })
	if serves >= 0 {
		i := r.loads[serves].Intent
		return Outcome{Serving: i.Generation, Release: i.Release, Why: why}, nil
	}
	if again == nil {
		return Outcome{Why: why}, nil
	}
	was, newest := again.Intent, r.loads[len(r.loads)-1].Intent
	r.loads = nil
	out, err := r.reload(ctx, was, why, newest.Overrides)
	out.RolledBack = out.Serving != 0 && was.Generation != newest.Generation
	return out, err
}

// before is the load that l was to replace: its release served.
func (r *run) before(l *Load) *Load {
	if l.Intent.Replaces == 0 {
		return nil
	}
	for k := range r.every {
		if r.every[k].Intent.Generation == l.Intent.Replaces {
			return &r.every[k]
		}
	}
	return nil
}

// orphans refuses nodes of the plan that no open record names.
func (r *run) orphans(ctx context.Context, p *Plan) error {
	i := &Intent{}
	for _, s := range p.Stages {
		i.Stages = append(i.Stages, IntentStage{Node: s.Node, Host: s.Host, Agent: p.Host(s.Host).Agent})
	}
	d := Decide(Situation{Found: find(i, r.survey(ctx, i), nil)})
	if d.Do == DoAdopt {
		return Halt{p.Ring, 0, d.Why + "; both records are lost: adopt its generation"}
	}
	return nil
}

// Adopt makes a record for nodes whose records are both lost: a person vouches for their generation and release, which
// is kept with the name. Recover then treats them as a load whose commands were sent.
func (l *Loader) Adopt(ctx context.Context, rel Release, generation uint64) error {
	p, err := ReadPlan(rel.PlanFile, rel.Plan)
	if err != nil {
		return err
	}
	r, err := l.look(ctx)
	if err != nil {
		return err
	}
	for _, x := range r.all {
		if x.Generation == generation {
			return fmt.Errorf("generation %d has a record, %s: recover it", generation, x.Where)
		}
	}
	i := &Intent{Schema: 1, Why: "adopted: both records were lost, and " + l.By + " vouches for it; " + whyKept, Model: l.Records.Model, Ring: p.Ring, Release: rel.Digest, Weights: rel.Weights,
		Plan: string(rel.Plan), PlanDigest: p.Digest, Prompts: rel.Prompts, Generation: generation, Engine: p.Engine.Release, By: l.By, Nonce: record.Nonce(), At: time.Now().UTC().Format(time.RFC3339)}
	for _, s := range p.Stages {
		i.Stages = append(i.Stages, IntentStage{Node: s.Node, Host: s.Host, Agent: p.Host(s.Host).Agent})
	}
	found := find(i, r.survey(ctx, i), nil)
	if is := count(found); is[Stranger]+is[Unclear]+is[Unseen] > 0 || is[Missing] == len(found) {
		return Halt{p.Ring, generation, "it cannot be adopted: " + list(found, Stranger, Unclear, Unseen, Missing)}
	}
	if r.lease, err = takeLease(ctx, l.Records, max(generation, r.highest()), l.By); err != nil {
		return err
	}
	defer r.lease.leave(context.WithoutCancel(ctx))
	if err := localKeep(l.Dir, i, (*os.File).Sync); err != nil {
		return err
	}
	if err := l.Records.create(ctx, l.Records.IntentKey(generation), i); err != nil {
		return err
	}
	load := &Load{Intent: *i}
	for _, st := range i.Stages {
		if err := r.tell(ctx, load, LoadEvent{Op: OpSent, Command: "load", Node: st.Node, Detail: "adopted by " + l.By}); err != nil {
			return err
		}
	}
	return nil
}
