package witness

import (
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// Sight is one successful look at one object: by LIST or by GET, of a witness or of a claim.
type Sight struct {
	Version  bucket.Version
	Modified time.Time     // the store's stamp of the object
	Date     time.Time     // the store's clock at the same answer; zero: the store has none
	Now      time.Time     // the observer's own time.Now at the answer; only its monotonic part is used
	Promise  time.Duration // how long the object may stay unchanged: the witness's lease, or a claim's capture window
}

// Silence is the judgement on one object. Suspect is no verdict yet: get the object itself once more, feed that
// sight, ask the [Brake], and then revoke exactly that version.
type Silence struct {
	Suspect bool
	Age     time.Duration // for how long the object is known not to have changed
	Limit   time.Duration // the promise after clamping: Suspect is Age ≥ Limit
}

// Observer judges silence by the rule of the README: its own monotonic time between successful sights of an unchanged
// version, seeded at the first sight from the store's own two stamps, with grace after it was blind. Where it has looked
// before and nothing was held (Idle), the stamps add at most the time since then and half a limit: what begins under its
// eyes is not suspected at first sight, whatever the stamps say. It reads no clock. The zero value of each knob is usable.
// One goroutine uses it; what it holds is lost with the process, and the seeding makes up for that.
type Observer struct {
	Poll  time.Duration // usual time between two sights of one object
	Floor time.Duration // a shorter promise is raised to this
	Max   time.Duration // a longer promise is cut to this; 0: none is

	keys map[string]*watched
}

// watched is what is remembered of one object.
type watched struct {
	version bucket.Version
	since   time.Time // own time from which on the version counts as unchanged
	last    time.Time // own time of the last successful sight
	idle    bool      // at which nobody held it
}

// See takes one successful sight of key and judges. A failed look is not a sight: it is not fed.
func (o *Observer) See(key string, s Sight) Silence {
	limit := max(s.Promise, o.Floor)
	if o.Max > 0 {
		limit = min(limit, o.Max)
	}
	w, known := o.keys[key]
	switch {
	case !known:
		w = &watched{version: s.Version, since: s.Now.Add(-ageByStore(s, limit))}
		if o.keys == nil {
			o.keys = map[string]*watched{}
		}
		o.keys[key] = w
	case w.idle:
		seed := min(ageByStore(s, limit), max(s.Now.Sub(w.last), 0), limit/2)
		*w = watched{version: s.Version, since: s.Now.Add(-seed)}
	case w.version != s.Version:
		w.version, w.since = s.Version, s.Now
	case s.Now.Sub(w.last) > max(3*o.Poll, limit/2):
		// Blind for long: half the limit must pass again before anybody is suspected.
		if grace := s.Now.Add(-limit / 2); w.since.Before(grace) {
			w.since = grace
		}
	}
	w.last = s.Now
	age := max(s.Now.Sub(w.since), 0)
	return Silence{Suspect: age >= limit, Age: age, Limit: limit}
}

// ageByStore is the object's age in the store's own clock, 0 … limit; absurd stamps give 0, which is to wait in full.
func ageByStore(s Sight, limit time.Duration) time.Duration {
	if s.Date.IsZero() || s.Modified.IsZero() {
		return 0
	}
	return min(max(s.Date.Sub(s.Modified), 0), limit)
}

// Idle takes one successful look at key that found nothing to judge: no object, or one that nobody holds. It is remembered
// until Forget.
func (o *Observer) Idle(key string, now time.Time) {
	if o.keys == nil {
		o.keys = map[string]*watched{}
	}
	w := o.keys[key]
	if w == nil {
		w = &watched{}
		o.keys[key] = w
	}
	*w = watched{last: now, idle: true}
}

// Forget drops what is known of an object that is not watched any more.
func (o *Observer) Forget(key string) { delete(o.keys, key) }

// Watching is the number of objects that are remembered.
func (o *Observer) Watching() int { return len(o.keys) }

// Pass is what one round of looking found.
type Pass struct {
	Now      time.Time     // own monotonic time
	Held     int           // leases that are held
	Suspects []string      // those that would be written off
	Limit    time.Duration // longest limit among the suspects
	Errors   bool          // the store answered an error since the pass before
}

// Brake holds back write-offs that look like an outage of the store rather than the death of workers: more than
// max(2, 20 %) of the held leases in one pass, or errors of the store within the last limit. Then all are looked at
// again after a quarter of the limit, without an error; who is still silent then may be written off.
type Brake struct {
	lastError time.Time       // zero: none was seen
	since     time.Time       // when it went on; zero: it is off
	held      map[string]bool // suspects at that moment
}

// Shares of the mass brake (s3.md gives them): a pass that stays at or below both goes through.
const (
	brakeCount = 2
	brakeShare = 0.20
)

// Allow answers which suspects may be written off now. A wait above zero says that some were held back, and after how
// long they should all be looked at again.
func (b *Brake) Allow(p Pass) (off []string, wait time.Duration) {
	if p.Errors {
		b.lastError = p.Now
	}
	again := p.Limit / 4
	many := float64(len(p.Suspects)) > max(brakeCount, brakeShare*float64(p.Held))
	shaky := !b.lastError.IsZero() && p.Now.Sub(b.lastError) < p.Limit
	switch {
	case len(p.Suspects) == 0:
		b.since, b.held = time.Time{}, nil
		return nil, 0
	case !many && !shaky:
		b.since, b.held = time.Time{}, nil
		return p.Suspects, 0
	case b.since.IsZero() || p.Errors:
		b.engage(p)
		return nil, again
	}
	if past := p.Now.Sub(b.since); past < again {
		return nil, again - past
	}
	for _, key := range p.Suspects {
		if b.held[key] {
			off = append(off, key)
		}
	}
	if len(off) < len(p.Suspects) {
		b.engage(p) // those that came to it since are looked at again as well
		return off, again
	}
	b.since, b.held = time.Time{}, nil
	return off, 0
}

func (b *Brake) engage(p Pass) {
	b.since, b.held = p.Now, make(map[string]bool, len(p.Suspects))
	for _, key := range p.Suspects {
		b.held[key] = true
	}
}
