package reconcile

import (
	"strings"
	"time"
)

// turnShare is which part of the places that are taken has to be free again, by the rate at which they became free last,
// for another look to be worth its requests.
const turnShare = 16

// turnover paces the looks while works wait for places that are all taken. Nothing tells a dispatcher that a place has
// become free but a look, and short jobs would leave places empty for most of a lease's third. It keeps the pace alone.
type turnover struct {
	looked time.Time
	every  time.Duration
}

// next is when to look again because works wait for places, given how many places this pass has filled; 0: none waits.
// Where nothing became free it looks half as often as before, down to once in nextBusy.
func (t *turnover) next(now time.Time, taken, filled int, cost time.Duration) time.Duration {
	since := now.Sub(t.looked)
	t.looked = now
	if taken == 0 {
		t.every = 0
		return 0
	}
	switch {
	case t.every == 0:
		t.every = nextSoon
	case filled == 0:
		t.every *= 2
	default:
		t.every = since * time.Duration(max(taken/turnShare, 1)) / time.Duration(filled)
	}
	t.every = min(max(t.every, nextSoon, cost/4), nextBusy) // looking is not all that there is to do
	return t.every
}

// waiting is how many places are taken of those that works wait for in this pass, and how many of them it has filled.
func (p *pass) waiting() (taken, filled int) {
	waits := false
	for _, t := range p.targets {
		waits = waits || t.last.Kind == Wait && (strings.Contains(t.last.Reason, takenText) || strings.Contains(t.last.Reason, takenTexts))
	}
	if !waits {
		return 0, 0
	}
	for _, pl := range p.platforms {
		if pl.conf.Slots > 0 && pl.live >= pl.conf.Slots {
			taken += pl.live
		}
	}
	for _, a := range p.report.Actions {
		if a.Kind == Launch && a.Done {
			filled++
		}
	}
	return taken, filled
}

// later: it waits for a launch, and no platform of its ladder has a place left in this round. To decide it is put off to the
// round in which there is one, or nothing to do: with thousands that wait, deciding them all in each round is most of a pass.
func (p *pass) later(t *target) bool {
	if t.job == nil || t.last.Kind != Wait {
		return false
	}
	for _, name := range t.job.On {
		if pl := p.platforms[name]; pl != nil && pl.full(t.job) == "" {
			return false
		}
	}
	return true
}
