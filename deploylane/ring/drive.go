package ring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// tell writes the next event of a load.
func (r *run) tell(ctx context.Context, l *Load, e LoadEvent) error {
	e.Schema, e.Generation, e.Number = 1, l.Intent.Generation, len(l.Events)+1
	e.By, e.Nonce, e.At, e.Detail = r.By, record.Nonce(), time.Now().UTC().Format(time.RFC3339), clip(e.Detail)
	if err := r.Records.create(ctx, r.Records.EventKey(e.Generation, e.Number), e); err != nil {
		return fmt.Errorf("generation %d: %w", e.Generation, err)
	}
	l.Events = append(l.Events, e)
	l.Ledger = Fold(l.Events)
	return nil
}

// abandon closes a load of which no command left, and says why. Whoever has lost the lease writes nothing.
func (r *run) abandon(ctx context.Context, l *Load, why error) error {
	if _, over := errors.AsType[LeaseOver](why); over && r.lease != nil || l.Ledger.Sent {
		return nil
	}
	return r.tell(ctx, l, LoadEvent{Op: OpAbandoned, Detail: why.Error()})
}

// stop leaves everything as it is, and says so in the record.
func (r *run) stop(ctx context.Context, l *Load, why string) error {
	err := r.tell(ctx, l, LoadEvent{Op: OpStopped, Detail: why})
	return errors.Join(Halt{r.Records.Ring, l.Intent.Generation, why}, err)
}

// survey looks at the agents of a load, which may be another plan's than the one at hand.
func (r *run) survey(ctx context.Context, i *Intent) *Survey {
	p := &Plan{}
	for _, s := range i.Stages {
		if p.Host(s.Host) == nil {
			p.Hosts = append(p.Hosts, Host{Name: s.Host, Agent: s.Agent})
		}
	}
	return TakeSurvey(ctx, r.Engine, p, nil)
}

// others are the generations of the other open loads.
func (r *run) others(i *Intent) map[uint64]bool {
	out := map[uint64]bool{}
	for _, l := range r.loads {
		if l.Intent.Generation != i.Generation {
			out[l.Intent.Generation] = true
		}
	}
	return out
}

// clearOut takes the load that served out of the catalog, lets its requests end, and unloads exactly what exists of it.
func (r *run) clearOut(ctx context.Context, old *Load) error {
	p, err := ReadPlan("the record of a load", []byte(old.Intent.Plan))
	if err != nil {
		return err
	}
	if err := r.clear(ctx, p, old); err != nil {
		return err
	}
	if err := r.wait(ctx, "drain", p.Catalog.Drain); err != nil {
		return err
	}
	s := r.survey(ctx, &old.Intent)
	found := find(&old.Intent, s, r.others(&old.Intent))
	if is := count(found); is[Unclear]+is[Stranger]+is[Unseen]+is[Loading] > 0 {
		return r.stop(ctx, old, "the load that served is not as its record says: "+list(found, Unclear, Stranger, Unseen, Loading))
	}
	return r.unload(ctx, p, old, nodes(found, Loaded, Broken))
}

// clear says to clients that the ring is not to be used, before anything of it goes. The event comes first: a load that
// may have lost its entry is no longer one that serves.
func (r *run) clear(ctx context.Context, p *Plan, l *Load) error {
	if err := r.lease.hold(ctx, "clear"); err != nil {
		return err
	}
	if !l.Ledger.Cleared {
		if err := r.tell(ctx, l, LoadEvent{Op: OpCleared}); err != nil {
			return err
		}
	}
	if err := r.Catalog.Clear(ctx, p.Catalog.Name, p.Ring); err != nil { // asked for again: a switch may have come after
		return fmt.Errorf("the catalog could not be cleared, so nothing was unloaded: %w", err)
	}
	return nil
}

// unload sends an UNLOAD to each node that exists, hears every one out, and waits until all of them are absent.
func (r *run) unload(ctx context.Context, p *Plan, l *Load, exist []IntentStage) error {
	const tries = 3 // one that is busy rejects it
	for try := 0; len(exist) > 0; try++ {
		s := r.survey(ctx, &l.Intent)
		var cs []Command
		for _, st := range exist {
			c, err := l.Intent.Unload(st)
			if err != nil {
				return err
			}
			look, _ := s.look("", st.Host)
			if wrong := CheckCommand(p, &l.Intent, c, look); len(wrong) > 0 {
				return r.stop(ctx, l, wrong[0].String())
			}
			cs = append(cs, c)
		}
		if _, err := r.command(ctx, l, "unload", cs, r.Times.Unload, r.Engine.Unload); err != nil {
			return err
		}
		found := find(&l.Intent, r.survey(ctx, &l.Intent), r.others(&l.Intent))
		if is := count(found); is[Missing] == len(found) {
			break
		} else if is[Unclear]+is[Stranger]+is[Unseen] > 0 || try == tries-1 {
			return r.stop(ctx, l, "an UNLOAD did not leave everything absent: "+list(found, Unclear, Stranger, Unseen, Loaded, Broken, Loading))
		}
		exist = nodes(found, Loaded, Broken, Loading)
		if err := r.wait(ctx, "unload", r.Times.Poll); err != nil {
			return err
		}
	}
	return r.tell(ctx, l, LoadEvent{Op: OpGone})
}

// command sends commands to several agents at once and hears every one of them out. What leaves is written down before,
// what comes back after; an answer that never came is NoAnswer in its event, and no error here: the next look decides.
func (r *run) command(ctx context.Context, l *Load, name string, cs []Command, limit time.Duration, send func(context.Context, Command) (Answer, error)) ([]error, error) {
	for _, c := range cs {
		if err := r.tell(ctx, l, LoadEvent{Op: OpSent, Command: name, Node: c.Envelope.Meta.Node}); err != nil {
			return nil, err
		}
	}
	answers, errs := make([]Answer, len(cs)), make([]error, len(cs))
	if err := r.lease.during(ctx, name, func(ctx context.Context) { // renewed last of all before the first byte
		r.hear(ctx, name, cs, limit, send, answers, errs)
	}); err != nil {
		return nil, err
	}
	for k, c := range cs {
		e := LoadEvent{Op: OpAnswer, Command: name, Node: c.Envelope.Meta.Node}
		if errs[k] != nil {
			e.Detail = errs[k].Error()
		} else {
			a := answers[k]
			a.Detail = clip(a.Detail)
			e.Answer = &a
			if a.Status != Succeeded {
				errs[k] = fmt.Errorf("node %s: %s, %s: %s", a.Node, a.Status, a.Resource, a.Detail)
			}
		}
		if err := r.tell(ctx, l, e); err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// hear sends commands at once and waits for every answer.
func (r *run) hear(ctx context.Context, name string, cs []Command, limit time.Duration, send func(context.Context, Command) (Answer, error), answers []Answer, errs []error) {
	var wg sync.WaitGroup
	for k, c := range cs {
		wg.Go(func() {
			within, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			began := time.Now()
			answers[k], errs[k] = send(within, c)
			errs[k] = r.heard(ctx, within, errs[k], c, name, time.Since(began))
			if why := answers[k].wrong(c); errs[k] == nil && why != "" {
				errs[k] = Foreign{From: c.Target.Agent, Why: why}
			}
		})
	}
	wg.Wait()
}

// wait lets time pass, and keeps the lease.
func (r *run) wait(ctx context.Context, phase string, d time.Duration) error {
	var ended error
	if err := r.lease.during(ctx, phase, func(ctx context.Context) { ended = pause(ctx, d) }); err != nil {
		return err
	}
	return ended
}

// heard gives silence its name, with the hop that acknowledged last.
func (r *run) heard(ctx, within context.Context, err error, c Command, what string, after time.Duration) error {
	e := NoAnswer{To: c.Target.Agent, What: what + " of " + c.Envelope.Meta.Node, After: after}
	if err = silence(within, err, e); err != error(e) {
		return err
	}
	if events, err := r.Engine.Events(context.WithoutCancel(ctx), 0); err == nil {
		for _, v := range events {
			if v.Node == c.Envelope.Meta.Node || v.Hop == c.Target.Agent {
				e.Last = fmt.Sprintf("%s (%s)", clip(v.Hop), clip(v.Kind))
			}
		}
	}
	return e
}

// send looks at each LOAD right before its first byte, then sends all of them.
func (r *run) send(ctx context.Context, p *Plan, l *Load) error {
	s := r.survey(ctx, &l.Intent)
	cs, err := p.Loads(l.Intent.Weights, l.Intent.Generation, func(host string) (string, bool) { return s.model(host, l.Intent.Weights.Digest) })
	if err != nil {
		return errors.Join(err, r.abandon(ctx, l, err))
	}
	for k, c := range cs {
		look, _ := s.look("", l.Intent.Stages[k].Host)
		if wrong := CheckCommand(p, &l.Intent, c, look); len(wrong) > 0 {
			err := errors.New(wrong[0].String())
			return errors.Join(err, r.abandon(ctx, l, err))
		}
	}
	_, err = r.command(ctx, l, "load", cs, r.Times.Load, r.Engine.Load)
	return err
}

// drive asks Decide what is next until the load serves (nil), was taken back (TakenBack), or needs a person (Halt).
func (r *run) drive(ctx context.Context, p *Plan, prompts []Prompt, l *Load) error {
	began, heard, why := time.Now(), time.Now(), "" // heard: when every agent answered last
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		found := find(&l.Intent, r.survey(ctx, &l.Intent), r.others(&l.Intent))
		if count(found)[Unseen] == 0 {
			heard = time.Now()
		}
		// An agent that says nothing for as long as an UNLOAD may take is away: a person decides, and nobody waits for it.
		late := time.Since(began) > r.Times.Load || time.Since(heard) > r.Times.Unload
		d := Decide(Situation{Intent: &l.Intent, Ledger: l.Ledger, Found: found, Late: late})
		var err error
		switch d.Do {
		case DoNothing:
			return nil
		case DoStop, DoAdopt, DoStart:
			return errors.Join(r.clear(ctx, p, l), r.stop(ctx, l, d.Why)) // clients are kept off what nobody understands
		case DoWait:
			err = r.wait(ctx, "wait", r.Times.Poll)
		case DoMarkSent:
			for _, st := range d.Nodes {
				err = errors.Join(err, r.tell(ctx, l, LoadEvent{Op: OpSent, Command: "load", Node: st.Node, Detail: d.Why}))
			}
		case DoAbandon:
			if err = r.abandon(ctx, l, errors.New(d.Why)); err == nil {
				return TakenBack{l.Intent.Generation, d.Why, true}
			}
		case DoClose, DoTakeBack:
			why = first(why, refusals(l), d.Why)
			if err = r.clear(ctx, p, l); err == nil {
				err = r.unload(ctx, p, l, d.Nodes)
			}
			if err == nil {
				return TakenBack{l.Intent.Generation, why, !l.Ledger.Failed || l.Ledger.Served}
			}
		case DoCanary:
			var failed error
			if failed, err = r.prove(ctx, p, prompts, l); failed != nil {
				why = bounded(failed.Error())
			}
		}
		if err != nil {
			return err
		}
	}
}

// refusals are the words of the stages that did not load.
func refusals(l *Load) string {
	i := slices.IndexFunc(l.Events, func(e LoadEvent) bool {
		return e.Op == OpCanary || e.Op == OpAnswer && e.Command == "load" && (e.Answer == nil || e.Answer.Status != Succeeded)
	})
	if i < 0 {
		return ""
	}
	e := l.Events[i]
	if e.Answer != nil {
		return fmt.Sprintf("node %s: %s: %s", e.Node, e.Answer.Status, e.Answer.Detail)
	}
	return e.Detail
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// prove runs the canary; only then the catalog names the load. failed: the canary did.
func (r *run) prove(ctx context.Context, p *Plan, prompts []Prompt, l *Load) (failed, err error) {
	c := p.Canary
	route := l.Intent.route()
	if err := r.lease.during(ctx, "canary", func(ctx context.Context) { failed = r.canary(ctx, p, prompts, route, &l.Intent) }); err != nil {
		return nil, err
	}
	if failed != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return failed, r.tell(ctx, l, LoadEvent{Op: OpCanary, Detail: "the canary failed: " + failed.Error()})
	}
	if err := r.lease.hold(ctx, "switch"); err != nil {
		return nil, err
	}
	e := Entry{Catalog: p.Catalog.Name, Ring: p.Ring, Model: r.Records.Model, Release: l.Intent.Release, Route: route, Format: c.Format, Tokens: p.Catalog.Tokens, Output: p.Catalog.Output}
	if err := r.Catalog.Show(ctx, e); err != nil {
		return nil, fmt.Errorf("the ring is loaded and its canary passed, and the catalog could not be switched: %w; recover", err)
	}
	if err := r.tell(ctx, l, LoadEvent{Op: OpSwitched}); err != nil {
		return nil, err
	}
	return nil, r.tell(ctx, l, LoadEvent{Op: OpServing})
}

// route is what clients need.
func (i *Intent) route() Route {
	out := Route{Via: i.Stages[0].Agent, Load: i.Generation}
	for _, s := range i.Stages {
		out.Stages = append(out.Stages, Hop{Agent: s.Agent, Node: s.Node})
	}
	return out
}
