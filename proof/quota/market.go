package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/runners/record"
)

// The month: 31 days from Sunday, 1 March 2026, 00:00 UTC, in minutes. What stands here is a model of such platforms, in
// round numbers; no figure of it was measured.
const (
	minutes       = 31 * 24 * 60
	saturday      = 6 * 24 * 60 // of the first reset
	week          = 7 * 24 * 60
	quotaMinutes  = 30 * 60 // a week, of sessions that run side by side
	session       = 12 * 60 // longest
	creditsAMonth = 60.0
	milestone     = 20 // minutes between two
)

// place is one platform.
type place struct {
	name    string
	rate    float64 // FLOP/s that a steady minute keeps
	start   int     // minutes from a launch to the first steady step
	slots   int
	price   record.Price
	session int     // a launch ends after so many minutes; 0: never
	mtbf    float64 // minutes until it is taken away, on average; 0: never
	left    float64 // minutes of its quota; of the credits, at their price
	counted bool    // left counts

	running int
	queue   int // tasks that wait for it, of those that were asked in this minute
	wanted  int // tasks that leave for it at their next milestone
	series  int // "no slots" in a row
	until   int // parked
}

func places() []*place {
	return []*place{
		{name: "quota", rate: 3e13, start: 8, slots: 2, price: record.Price{PerHour: 1, Unit: ladder.QuotaUnit}, session: session, left: quotaMinutes, counted: true},
		{name: "credits", rate: 2.5e13, start: 3, slots: 3, price: record.Price{PerHour: 1.2, Unit: "credits"}, left: creditsAMonth / 1.2 * 60, counted: true},
		{name: "spot", rate: 5e13, start: 15, slots: 12, mtbf: 5 * 60, price: record.Price{Unit: "USD"}},
	}
}

// market is what befalls all policies alike: hour by hour the spot price and how many machines there are.
type market struct {
	price []float64
	room  []int
}

func newMarket(seed uint64) market {
	r := rand.New(rand.NewPCG(seed, 1))
	m := market{}
	p, room := 0.40, 6.0
	for range minutes/60 + 1 {
		p = min(max(p*math.Exp(0.08*r.NormFloat64())+0.02*(0.40-p), 0.15), 1.20)
		room = min(max(room+1.2*r.NormFloat64()+0.1*(6-room), 0), 12)
		m.price, m.room = append(m.price, p), append(m.room, int(room))
	}
	return m
}

// task is one job of the mix.
type task struct {
	id      int
	arrives int
	flops   float64 // in all
	kept    float64
	fresh   float64 // since the last milestone
	on      *place
	began   int     // minute of its launch
	dies    int     // minute at which its place is taken away
	wants   *place  // a better place, for which it leaves at its next milestone
	starts  int     // launches so far
	ended   int     // -1: not yet
	lost    float64 // minutes of starts and lost steps
}

// newTasks is a seeded mix: every four days or so somebody commits a sweep of one to eight jobs of like size, most of a few
// hours each on the quota's card and some of days.
func newTasks(seed uint64) []*task {
	r := rand.New(rand.NewPCG(seed, 2))
	var out []*task
	for at := 0.0; ; {
		if at += r.ExpFloat64() * 96 * 60; at >= minutes-3*24*60 {
			return out
		}
		hours := min(5*math.Exp(0.9*r.NormFloat64()), 60)
		for range 1 + r.IntN(8) {
			out = append(out, &task{id: len(out), arrives: int(at), flops: hours * (0.8 + 0.4*r.Float64()) * 3600 * 3e13, ended: -1})
		}
	}
}

// lifetime is how long the n-th launch of a task lasts on a place that is taken away; a function of both alone, so that it
// is the same whatever else a policy did.
func lifetime(seed uint64, t *task, p *place) int {
	if p.mtbf == 0 {
		return math.MaxInt
	}
	r := rand.New(rand.NewPCG(seed, uint64(1000+1000*t.id+t.starts)))
	return max(int(r.ExpFloat64()*p.mtbf), 1)
}

func span(minutes float64) time.Duration { return time.Duration(minutes * float64(time.Minute)) }
