package reconcile

import (
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
)

// PlatformState is how a platform stood at the end of a pass.
type PlatformState struct {
	Name   string
	Parked time.Duration // how long it is left alone from now on; 0: it takes launches
	Closed bool          // until a person looks: its answers made no sense
	Class  string        // of the newest failure of its series; "": all is well
	Series int           // failures in a row
	Spell  string        // names the series, for every dispatcher of the store; "": none
	Why    string        // one sentence, safe to print
	Live   int           // launches that run there or are on their way
}

// platformStates lists the platforms by name.
func platformStates(ps map[string]*platform) []PlatformState {
	var out []PlatformState
	for _, name := range slices.Sorted(maps.Keys(ps)) {
		pl := ps[name]
		out = append(out, PlatformState{Name: name, Parked: pl.rest, Closed: pl.park.Fatal && pl.park.Config == configDigest(pl.conf),
			Class: shown(pl.park.Class, 60), Series: max(pl.park.Series, 0), Spell: shown(pl.park.Spell, 64), Why: shown(pl.park.Text, 300), Live: pl.live})
	}
	return out
}

// releasing counts the dispatches that a platform is still asked to end.
func (r *Reconciler) releasing() int {
	n := 0
	for _, q := range r.asks {
		if !q.over {
			n++
		}
	}
	return n
}

// spent is how many retries the claim of a launch counts more than the claim before it: what was spent since, as the
// dispatcher that claimed counted it.
func (o *order) spent() int64 {
	if o.a.Kind != Launch || !o.known {
		return 0
	}
	n := o.launch.Claim.Spent
	if d, ok := o.history.newest(); ok {
		n -= d.Spent
	}
	return max(n, 0)
}

// accounted closes the account of a pass.
func (p *pass) accounted() {
	rep := p.report
	rep.Verbs = p.r.requests.verbs().less(p.start)
	rep.Requests = rep.Verbs.sum()
	p.r.c.Log.Debug("pass", "took", time.Since(p.began), "works", len(p.targets), "gets", rep.Verbs.Gets, "lists", rep.Verbs.Lists, "puts", rep.Verbs.Puts)
}

// standingOf is a work's state as one word and one sentence.
func standingOf(a Action, s *sight, w plan.Digest) Standing {
	out := Standing{State: plan.StateUnknown, Reason: a.Reason}
	if s != nil {
		o := s.observed(w)
		out.State, out.Attempt, out.Dispatch, out.Platform = o.State, o.Attempt, o.Dispatch, o.Platform
	}
	if a.Kind == Fail {
		out.State = plan.StateFailed
	}
	if a.Kind == Fail || a.Kind == Blocked {
		out.Final = a.Kind
	}
	return out
}
