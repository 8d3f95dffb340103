package world

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// stakes is what a seed draws of money, speed and rules: what makes a job halt, move, or stay off a platform.
type stakes struct {
	cards   bool // platforms have cards, jobs ask for them, and the store knows what earlier jobs got out of both
	taught  int  // observations of earlier jobs for each job and platform
	team    int  // how many of the jobs with the label may run at once; 0: any number
	reopens []time.Duration
	demands []time.Duration
}

// The two kinds of card: what a platform is said to have, the id of it, and its rated FLOP/s in fp16.
const (
	slowCard, slowID, slowPeak = "T4", "nvidia-t4", 65e12
	fastCard, fastID, fastPeak = "RTX_4090", "nvidia-rtx-4090", 165.2e12
)

// drawStakes draws from a source of its own, after places and jobs and before anything that depends on how much there is to
// do.
func (s *setup) drawStakes(r *rand.Rand) {
	for i := range s.places {
		p := &s.places[i]
		p.price = pickOf(r, 0, 0.2, 1, 3)
		if r.IntN(12) == 0 {
			p.renews = time.Duration(2 + r.IntN(4))
		}
	}
	if r.IntN(16) == 0 && !s.large {
		s.drawLadder(r)
	}
	if r.IntN(5) == 0 {
		s.team = 1 + r.IntN(2)
	}
	limited, ruled := r.IntN(8) == 0, r.IntN(8) == 0
	for i := range s.jobs {
		j := &s.jobs[i]
		j.team = s.team > 0 && r.IntN(4) > 0
		ideal := time.Duration(j.steps) * s.step
		if limited && r.IntN(3) > 0 {
			j.wall = max(time.Duration(float64(ideal)*(0.2+2*r.Float64())), time.Second)
		}
		if limited && r.IntN(2) == 0 {
			j.paid = max(ideal.Hours()*(0.1+r.Float64()), 0.0001)
		}
		if ruled {
			j.then = pickOf(r, record.ThenStop, record.ThenExclude)
		}
	}
	for i := range s.places {
		if p := &s.places[i]; p.renews > 0 { // the share is enough for a start and any job's first milestone: less is never used
			p.share = 2 * (p.model.Start + p.model.Upload + s.lease)
			for _, j := range s.jobs {
				p.share = max(p.share, 2*(p.model.Start+p.model.Upload+time.Duration(max(j.every, 7))*p.model.Step))
			}
			p.renews *= p.share
		}
	}
	if ruled {
		p := &s.places[r.IntN(len(s.places))]
		p.script = append(p.script, sim.Fault{Op: sim.OpWorker, Effect: sim.Fail, From: 1 + r.IntN(3), Step: int64(r.IntN(4))})
	}
}

// drawLadder makes the world one where the ladder has something to weigh: the first platform is several times as fast, has
// little room and is used up for a while, and how fast both are is known.
func (s *setup) drawLadder(r *rand.Rand) {
	s.cards, s.taught = true, pickOf(r, 3, 3, 3, 24)
	for len(s.places) < 2 {
		s.places = append(s.places, drawPlace(r, s, len(s.places)))
	}
	for i := range s.places {
		p := &s.places[i]
		p.card, p.model.GPU = slowCard, slowID
		p.slots = max(p.slots, len(s.jobs))
		if i == 0 {
			p.card, p.model.GPU, p.model.Step = fastCard, fastID, s.step/4
			p.slots, p.capacity = 1, 1
			p.model.Start = min(p.model.Start, 2*s.step)
			lease := max(time.Duration(s.k*float64(p.model.Step)), s.floor) // that its workers promise
			// It renews at the first step behind a third of it, and a milestone may come just before.
			p.model.Upload = min(p.model.Upload, max(lease-lease/3-2*p.model.Step-lease/8-4*s.latency, 0))
			if r.IntN(2) == 0 {
				p.script = []sim.Fault{{Op: sim.OpLaunch, Effect: sim.Quota, From: 1, For: max(time.Duration(12+r.IntN(12))*s.step, 30*time.Second)}}
			}
		}
	}
	for i := range s.jobs {
		j := &s.jobs[i]
		j.card, j.every, j.steps = true, int64(1+r.IntN(3)), int64(10+r.IntN(30))
		if r.IntN(4) > 0 {
			j.on = nil
			for _, p := range s.places {
				j.on = append(j.on, p.name)
			}
		}
	}
}

// drawPersons draws when a person opens a platform again, or asks for a launch.
func (s *setup) drawPersons(r *rand.Rand) {
	some := func(most int) (out []time.Duration) {
		for range r.IntN(most + 1) {
			out = append(out, time.Duration(r.Int64N(int64(s.storm))))
		}
		return out
	}
	if r.IntN(2) == 0 {
		s.demands = some(2)
	}
	if r.IntN(3) == 0 {
		s.reopens = some(3)
	}
}

// perStep is the work of one step, such that a step of the world's length is 0.3 of what the slow card is rated for.
func (s *setup) perStep() int64 {
	if !s.cards {
		return 1000
	}
	return int64(0.3 * slowPeak * s.step.Seconds())
}

// more is what a plan's entry says of all this.
func (j *job) more(perStep int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "    work: {flops_per_step: %d, steps: %d}\n", perStep, j.steps)
	limits := fmt.Sprintf("retries: %d", j.retries)
	if j.wall > 0 {
		limits += fmt.Sprintf(", wall: %dms", j.wall.Milliseconds())
	}
	if j.paid > 0 {
		limits += ", paid: " + strconv.FormatFloat(j.paid, 'f', 6, 64) + " USD"
	}
	fmt.Fprintf(&b, "    limits: {%s}\n", limits)
	if j.card {
		fmt.Fprintf(&b, "    gpu: {any: [%s, %s], dtype: fp16}\n", slowCard, fastCard)
	}
	if j.team {
		b.WriteString("    labels: {team: a}\n")
	}
	if j.then != "" {
		fmt.Fprintf(&b, "    policy: [{log: \"loss is not a number\", then: %s}]\n", j.then)
	}
	return b.String()
}

// lift takes a job's limits on time and money away: somebody who reads why it stands still wants it done.
func (j *job) lift() { j.wall, j.paid = 0, 0 }

// more is what headway.yaml says of a platform.
func (p *placeDraw) more() string {
	out := ""
	if p.price > 0 {
		out += fmt.Sprintf(", price: %g USD/h", p.price)
	}
	if p.card != "" {
		out += ", gpu: [" + p.card + "]"
	}
	return out
}

// teach leaves in the store what earlier jobs of the same names got out of the platforms.
func (w *World) teach() {
	for _, j := range w.s.jobs {
		for _, p := range w.s.places {
			for i := range w.s.taught {
				w.taughtBy(j, p, i)
			}
		}
	}
}

func (w *World) taughtBy(j job, p placeDraw, i int) {
	peak := slowPeak
	if p.model.GPU == fastID {
		peak = fastPeak
	}
	steps, start := 100.0, p.model.Start.Seconds()
	kept := steps * p.model.Step.Seconds()
	at := w.begin.UTC()
	o := record.Observation{Protocol: record.Protocol, Platform: p.name, GPU: p.model.GPU, Mode: "fp16", GPUs: 1, Peak: peak, Family: j.name,
		Work: record.Hash(fmt.Append(nil, j.name, p.name, i)), Dispatch: 1, Attempt: 1, Class: "finished", Runner: "sim", Captured: true, CaptureS: start + 0.001,
		StartS: start, FirstStepS: 0.001, PaidS: start + 0.001 + kept, StepKeptS: kept, WorkKept: steps * float64(w.s.perStep()), Time: at.Format(time.RFC3339)}
	body, err := record.Encode(o)
	key := record.ObservationKey(o, at)
	if err == nil {
		_, err = w.store.mem.Put(w.ctx, key, bytes.NewReader(body), bucket.IfAbsent())
	}
	if err != nil {
		w.breaks("harness", "teach %s: %v", key, err)
	}
	w.take(history.Entry{At: w.now(), Actor: "earlier jobs", Op: history.Put, Key: key, Body: body, Cond: bucket.IfAbsent()})
}

// ruled notes what the account of an end says of a job's policies: what they stop need not finish any more, nor what they
// keep off every platform. Nor need a program that failed twice at the same step with the same words, but for their numbers.
func (w *World) ruled(work string, body []byte) {
	var end record.End
	s := w.works[work]
	if s == nil || record.Decode(body, record.MaxRecord, &end) != nil {
		return
	}
	if end.Class == "user_code" && (end.Policy == nil || end.Policy.Then != record.ThenExclude) {
		words := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, end.Error)
		how := fmt.Sprint(end.Step, " ", words)
		if s.failures[how] {
			s.stopped = true
			w.stats.Reached["a program failed twice in the same way"]++
		}
		if s.failures == nil {
			s.failures = map[string]bool{}
		}
		s.failures[how] = true
	}
	if end.Policy == nil {
		return
	}
	w.stats.Reached["a policy matched: "+end.Policy.Then]++
	if end.Policy.Then == record.ThenStop {
		s.stopped = true
		return
	}
	for _, p := range w.places {
		for _, in := range p.sim.Truth() {
			if in.Work == work && in.Attempt == end.Attempt && !slices.Contains(s.off, p.d.name) {
				s.off = append(s.off, p.d.name)
			}
		}
	}
}

// barredEverywhere: its policies stop it, or keep it off each platform that it names.
func (s *workState) barredEverywhere(on []string) bool {
	return s.stopped || !slices.ContainsFunc(on, func(p string) bool { return !slices.Contains(s.off, p) })
}
