package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what befalls a request.
type Fault string

const (
	// Refuse: the connection is reset before anything is read; the store hears nothing.
	Refuse Fault = "refuse"
	// CutRequest: half of the body reaches the store, then both connections break.
	CutRequest Fault = "cut request"
	// CutAnswer: the store does what was asked; half of its answer arrives, then the connection is reset.
	CutAnswer Fault = "cut answer"
	// LoseAnswer: the store does what was asked; nothing of its answer arrives.
	LoseAnswer Fault = "lose answer"
	// Hole: nothing reaches the store and nothing comes back until the rule is lifted; then the connection is reset.
	Hole Fault = "hole"
	// HoleAfter: the store does what was asked; nothing comes back until the rule is lifted, then a reset.
	HoleAfter Fault = "hole after"
	// Slow: Delay passes on the way to the store, and again on the way back.
	Slow Fault = "slow"
	// Error500: the store hears nothing; the answer is 500 InternalError.
	Error500 Fault = "500"
	// Error500After: the store does what was asked; the answer is 500 InternalError all the same.
	Error500After Fault = "500 after"
	// Busy503: the store hears nothing; the answer is 503 SlowDown.
	Busy503 Fault = "503"
	// Late: the connection is reset at once; a write reaches the store Delay later, whoever still lives then.
	Late Fault = "late"
)

// Faults lists all of them: a table of values.
var Faults = []Fault{Refuse, CutRequest, CutAnswer, LoseAnswer, Hole, HoleAfter, Slow, Error500, Error500After, Busy503, Late}

// Request is what a rule may look at.
type Request struct {
	Method string
	Key    string // without bucket and prefix; "" for a listing
	Who    string // as Config.Who says
}

// Write reports whether it may change the store.
func (q Request) Write() bool { return q.Method != "GET" && q.Method != "HEAD" }

// Rule is a fault, whom it befalls, and how often. It is in force from Set to Lift.
type Rule struct {
	Fault Fault
	Match func(Request) bool // nil: everybody
	Share float64            // of the requests that match, 0 to 1; 0: all
	Most  int64              // hits, then it spares all others; 0: no end
	Delay time.Duration      // of Slow and Late

	hits   atomic.Int64
	once   sync.Once
	lifted chan struct{}
	end    time.Time // of a lifted one
}

// Hits is how many requests it has befallen.
func (r *Rule) Hits() int64 { return r.hits.Load() }

// Lift ends the rule; what it holds is reset.
func (r *Rule) Lift() { r.once.Do(func() { r.end = time.Now(); close(r.lifted) }) }

func (r *Rule) over() bool {
	select {
	case <-r.lifted:
		return true
	default:
		return false
	}
}

// Meeting is a request that met a fault, in the history's time: from its arrival to when the rule was lifted and what it
// delayed had come through.
type Meeting struct {
	Request
	From, To time.Duration
}

// meeting is one whose rule may be in force still.
type meeting struct {
	q    Request
	at   time.Time
	rule *Rule
}

// Meetings lists all so far, in the order of their arrival.
func (p *Proxy) Meetings() (out []Meeting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.met {
		end := time.Now()
		if m.rule.over() {
			end = m.rule.end
		}
		out = append(out, Meeting{m.q, m.at.Sub(p.began), end.Add(2 * m.rule.Delay).Sub(p.began)})
	}
	return out
}

// Slowness lists when the proxy itself, on a machine with too much to do, kept connections waiting.
func (p *Proxy) Slowness() []Meeting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.own)
}

// Set puts a rule in force, before those that are.
func (p *Proxy) Set(r *Rule) *Rule {
	r.lifted = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := []*Rule{r}
	for _, old := range p.rules {
		if !old.over() {
			rules = append(rules, old)
		}
	}
	p.rules = rules
	return r
}

// Heal lifts every rule.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		r.Lift()
	}
	p.rules = nil
}

// befalls picks the rule that this request meets, and counts it.
func (p *Proxy) befalls(q Request) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		switch {
		case r.over(), r.Match != nil && !r.Match(q), r.Most > 0 && r.Hits() >= r.Most,
			r.Share > 0 && p.rng.Float64() >= r.Share, r.Fault == Late && !q.Write():
			continue
		}
		r.hits.Add(1)
		p.met = append(p.met, meeting{q, time.Now(), r})
		return r
	}
	return nil
}
