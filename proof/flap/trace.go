package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// What befalls the way between a worker, its store, the dispatcher and the platform.
type trouble uint8

const (
	// noAnswer: one question about the worker's status gets no answer; all else is well.
	noAnswer trouble = iota
	// noPlatform: dispatcher and platform, with the machines on it, do not reach each other.
	noPlatform
	// noStore: the dispatcher does not reach the store.
	noStore
	// noWorker: the worker's machine reaches nothing and is reached by nobody. It computes on.
	noWorker
)

// fault is one trouble for a time. noAnswer lasts for one question.
type fault struct {
	what   trouble
	at     time.Duration
	length time.Duration
}

func (f fault) end() time.Duration { return f.at + f.length }

// setting is the worker and the habits of whoever watches it, the same under every policy.
type setting struct {
	healthy   time.Duration // the worker is well for this long
	step      time.Duration
	milestone time.Duration
	start     time.Duration // from a launch to the first new step
	poll      time.Duration // at most between two looks of whoever watches
	timeouts  int
	cuts      int // partitions of 1 to 30 min
}

// usual is the 19 h of skypilot#10155: 25 questions without an answer, and a worker that was never unwell.
func usual() setting {
	return setting{healthy: 19 * time.Hour, step: 12 * time.Second, milestone: 15 * time.Minute, start: 5 * time.Minute,
		poll: 30 * time.Second, timeouts: 25, cuts: 12}
}

// patient is how long after the death the trace goes on. Who has not noticed by then never does.
const patient = 3 * time.Hour

// trace is what happens to one worker. It does not depend on who watches.
type trace struct {
	setting
	faults []fault // by time; they go on after the death
	death  time.Duration
	hung   bool // the loop hangs and the machine answers; else the machine is gone
}

// draw makes the trace of one seed.
func draw(s setting, seed uint64) trace {
	rng := rand.New(rand.NewPCG(seed, 0x666c6170))
	t := trace{setting: s, death: s.healthy + within(rng, time.Hour), hung: rng.IntN(2) == 0}
	all := t.death + patient
	for range s.timeouts {
		t.faults = append(t.faults, fault{what: noAnswer, at: within(rng, s.healthy)})
	}
	for range s.cuts {
		t.faults = append(t.faults, fault{what: noPlatform + trouble(rng.IntN(3)), at: within(rng, all), length: time.Minute + within(rng, 29*time.Minute)})
	}
	slices.SortFunc(t.faults, func(a, b fault) int { return int(a.at - b.at) })
	return t
}

func within(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

// during reports whether a trouble of this kind is on at that time and began at or after from.
func (t trace) during(what trouble, from, at time.Duration) bool {
	for _, f := range t.faults {
		if f.at > at {
			return false
		}
		if f.what == what && f.at >= from && at < f.end() {
			return true
		}
	}
	return false
}

// blips counts the questions without an answer in (after, upTo].
func (t trace) blips(after, upTo time.Duration) int {
	n := 0
	for _, f := range t.faults {
		if f.what == noAnswer && f.at > after && f.at <= upTo {
			n++
		}
	}
	return n
}

// blindness is how much of (from, to] the dispatcher could not read the store, and when that ended last.
func (t trace) blindness(from, to time.Duration) (total, last time.Duration) {
	at := from
	for _, f := range t.faults {
		if f.what != noStore {
			continue
		}
		if begin, end := max(f.at, at), min(f.end(), to); begin < end {
			total += end - begin
			at, last = end, end
		}
	}
	return total, last
}
