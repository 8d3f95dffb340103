package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/plan/flops"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// maxSums bounds the manifest that is read for the account in it: one of more files is not worth its bytes.
const maxSums = 1 << 20

// learnt is what a shelf holds for judging attempts.
type learnt struct {
	stamps map[string]*bucket.Object // of records that were read, by key
	own    map[int64]*record.Verdict // of attempts that no claim has judged yet, as this process judged them first
}

// stamp is where the store's stamps of a record go when it is read.
func (s *shelf) stamp(key string) *bucket.Object {
	if s.learnt.stamps == nil {
		s.learnt.stamps = map[string]*bucket.Object{}
	}
	o := s.learnt.stamps[key]
	if o == nil {
		o = &bucket.Object{}
		s.learnt.stamps[key] = o
	}
	return o
}

// verdicts are what claims say of attempts; the first claim that speaks of one is believed. Beside them stands what this
// process found of an attempt that no claim speaks of yet.
func (s *shelf) verdicts() map[int64]*record.Verdict {
	var out map[int64]*record.Verdict
	note := func(a int64, v *record.Verdict) {
		if out == nil {
			out = map[int64]*record.Verdict{}
		}
		if out[a] == nil {
			out[a] = v
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.listed)) {
		if c := s.listed[n].claim; c != nil {
			for i := range c.Judged[:min(len(c.Judged), historyWindow)] {
				note(c.Judged[i].Attempt, &c.Judged[i])
			}
		}
	}
	for a, v := range s.learnt.own {
		note(a, v)
	}
	return out
}

// judge holds the attempt that has just ended against what its platform usually gives, once: what this process has found it
// keeps, and the next claim carries it.
func (r *records) judge(ctx context.Context, w plan.Digest, s *shelf, seen *witness.Seen) error {
	if seen == nil || seen.Record.State == witness.Held || seen.Record.Attempt < 1 {
		return nil
	}
	rec := &seen.Record
	said := s.verdicts()
	if said[rec.Attempt] != nil {
		return nil
	}
	last, ok, err := r.stint(ctx, w, s, seen)
	if err != nil || !ok {
		return err
	}
	var list []goodput.Stint
	for _, a := range slices.Sorted(maps.Keys(said)) {
		if v := said[a]; a < rec.Attempt && a > rec.Attempt-historyWindow && v.Platform == last.Key.Platform {
			list = append(list, stintOf(v))
		}
	}
	out := &record.Verdict{Attempt: rec.Attempt, Platform: last.Key.Platform, GPU: last.Key.GPU, Mode: last.Key.Mode, Family: last.Family, Wait: last.Wait,
		Work: last.Work, StepS: last.StepS, PaidS: last.PaidS, StartS: last.StartS, TailS: last.TailS, Peak: last.Peak, Nothing: last.Nothing, End: last.At, Env: last.Env,
		Why: "what it committed is not known"}
	if v, ok := r.book.Judge(append(list, last)); ok {
		out.Spent, out.Score, out.Bound, out.Why, out.Known = v.Below, v.Score.V, v.Bound.V, v.Why, true
	}
	if s.learnt.own == nil {
		s.learnt.own = map[int64]*record.Verdict{}
	}
	s.learnt.own[rec.Attempt] = out
	return nil
}

// stintOf is an attempt as an earlier claim tells it; numbers that nobody can have measured tell nothing.
func stintOf(v *record.Verdict) goodput.Stint {
	for _, x := range []float64{v.Work, v.StepS, v.PaidS, v.StartS, v.TailS, v.Peak} {
		if !(x >= 0) || x > 1e40 {
			return goodput.Stint{}
		}
	}
	return goodput.Stint{Work: v.Work, StepS: v.StepS, PaidS: v.PaidS, StartS: v.StartS, TailS: v.TailS, Peak: v.Peak, Nothing: v.Nothing,
		Key: goodput.Key{Platform: v.Platform, GPU: v.GPU, Mode: v.Mode}, Family: v.Family, Wait: v.Wait, At: v.End, Env: v.Env}
}

// stint is the last attempt of a lease that is not held any more. ok false: when it began or ended is not known.
func (r *records) stint(ctx context.Context, w plan.Digest, s *shelf, seen *witness.Seen) (out goodput.Stint, ok bool, err error) {
	rec := &seen.Record
	d := s.listed[rec.Dispatch]
	if d == nil || d.claim == nil || seen.Modified.IsZero() {
		return out, false, nil
	}
	begun := cmp.Or(d.receiptAt, d.modified)
	end := seen.Modified
	if e := s.stamp(record.EndKey(string(w), rec.Attempt)).Modified; s.ends[rec.Attempt] != nil && !e.IsZero() && e.Before(end) {
		end = e // a stop wrote the lease once more, later
	}
	if begun.IsZero() || end.Before(begun) {
		return out, false, nil
	}
	gpu, peak := cardOf(s.opens[rec.Attempt], d.claim)
	out = goodput.Stint{PaidS: end.Sub(begun).Seconds(), Peak: peak, At: end.Unix(), Family: shown(d.claim.Family, 512), Wait: record.WaitMerged,
		Key: goodput.Key{Platform: shown(d.claim.Platform, 128), GPU: gpu, Mode: modeOf(d.claim)}, Env: environment(s.opens[rec.Attempt], d)}
	if o := s.stamp(record.OpenKey(string(w), rec.Attempt)).Modified; s.opens[rec.Attempt] != nil && o.After(begun) {
		out.StartS = o.Sub(begun).Seconds()
	}
	if writtenOff(rec) {
		out.TailS = min(max(rec.Lease.Seconds, 0), out.PaidS)
	}
	kept, err := r.kept(ctx, s, rec, d.claim)
	if err != nil {
		return out, false, err
	}
	out.Nothing = kept == nil
	if kept != nil {
		out.Work, out.StepS, out.Wait = kept.Work, kept.StepS, cmp.Or(kept.Wait, record.WaitMerged)
	}
	return out, true, nil
}

// kept is what lies before the last pointer into the lease's attempt; nil: nothing was kept. Where its worker gave no account,
// the steps that were kept and the step time that it had put into its lease tell; without either all is 0, which is
// unknown.
func (r *records) kept(ctx context.Context, s *shelf, rec *witness.Record, c *record.Claim) (*record.Sums, error) {
	key, step := "", int64(0)
	switch {
	case rec.State == witness.Finished && rec.Finished != nil:
		key, step = rec.Finished.Manifest, rec.Progress.Step
		if e := s.ends[rec.Attempt]; e != nil && e.Sums != nil && e.Sums.Check() == nil {
			return worked(e.Sums, c), nil
		}
	case rec.Resume == nil || rec.Resume.Attempt != rec.Attempt:
		return nil, nil
	default:
		key, step = rec.Resume.Manifest, rec.Resume.Step
	}
	var m record.Manifest
	b, _, err := whole(ctx, r.b, key, maxSums)
	if err != nil && !damaged(err) && !bucket.Is(err, bucket.NotFound) {
		return nil, err
	}
	if err == nil && record.Decode(b, maxSums, &m) == nil && m.Attempt == rec.Attempt && m.Sums != nil && m.Sums.Check() == nil {
		return worked(m.Sums, c), nil
	}
	o := s.opens[rec.Attempt]
	if o == nil || !(rec.Lease.StepS > 0) || rec.Lease.StepS > 1e6 {
		return &record.Sums{}, nil
	}
	from := int64(0)
	if o.Resume != nil {
		from = o.Resume.Step
	}
	steps := float64(max(step-from, 0))
	return worked(&record.Sums{Steps: int64(steps), StepS: steps * rec.Lease.StepS}, c), nil
}

// worked adds the FLOPs of the steps where the worker did not count them and the job says what a step costs.
func worked(s *record.Sums, c *record.Claim) *record.Sums {
	out := *s
	if per := c.Terms.FLOPsPerStep; out.Work == 0 && per > 0 && per < 1e30 {
		out.Work = min(per*float64(out.Steps), 1e40)
	}
	return &out
}

// modeNone is the math mode of a job that names none.
const modeNone = "none"

func modeOf(c *record.Claim) string {
	if m, err := flops.ParseMode(c.Mode); err == nil {
		return string(m)
	}
	return modeNone
}

// cardOf is the id of the card that a worker measured and the rated peak of all its cards in the job's math mode, FLOP/s.
// "cpu": it found none; "unknown": its name is in no table, or it was never heard of; then, and without a mode, the peak is
// 0: not known, never a default.
func cardOf(o *record.Open, c *record.Claim) (id string, peak float64) {
	if o == nil {
		return "unknown", 0
	}
	name := o.Fingerprint["gpu"]
	if name == "" || name == "none" {
		return "cpu", 0
	}
	memory, err := strconv.ParseFloat(strings.TrimSpace(o.Fingerprint["gpu_mem_mib"]), 64)
	if err != nil || !(memory > 0) {
		memory = 0
	}
	g, _, err := flops.Resolve(name, memory/1024)
	if err != nil {
		return "unknown", 0
	}
	one, err := flops.Peak(g, flops.Mode(modeOf(c)))
	if err != nil {
		return g.ID, 0
	}
	return g.ID, one * float64(cardsOf(o, c))
}

// environment is what starts a new history of a platform when it changes (science.md §3.4): the major version of the driver,
// the image as far as the worker sees it, and the class of the price. An image is told by system and Python; where the worker
// found no Python, it may have had no time to ask.
func environment(o *record.Open, d *slip) (e record.Environment) {
	switch p := cmp.Or(priceIn(d.receipt), expectedIn(d.claim)); {
	case p == nil || p.Check() != nil:
	case p.PerHour == 0:
		e.Price = "free"
	default:
		e.Price = cmp.Or(p.Unit, "paid")
	}
	if o == nil {
		return e
	}
	major, _, _ := strings.Cut(o.Fingerprint["driver"], ".")
	e.Driver = fact(major)
	if python := o.Fingerprint["python"]; python != "" {
		e.Image = fact(fmt.Sprintf("%s %s, python %s", o.Fingerprint["os"], o.Fingerprint["arch"], python))
	}
	return e
}

// fact makes what a worker says of its machine fit to be stored: it is never so long or odd that an observation is refused for it.
func fact(s string) string {
	return strings.Map(func(r rune) rune {
		if r > '~' || r < ' ' || strings.ContainsRune(`"\<>&`, r) {
			return '?'
		}
		return r
	}, runners.Bound(s, 60))
}

// cardsOf is how many cards an attempt used: as many as its job asks for, and never more than were found.
func cardsOf(o *record.Open, c *record.Claim) int {
	n := min(max(c.GPUs, 1), 1<<16)
	if found, err := strconv.Atoi(o.Fingerprint["gpus"]); err == nil && found > 0 {
		n = min(n, found)
	}
	return n
}

// teach puts into a claim what its own end will be judged by, and what is known of the attempts before that no claim says yet.
func teach(c *record.Claim, j *plan.Job, h History) {
	c.Family, c.Mode, c.GPUs = j.Group, cmp.Or(j.GPU.DType, modeNone), j.GPU.Count
	said := map[int64]bool{}
	for _, a := range h.Attempts {
		if a.Judged != nil && !a.Live && !a.Carried && !said[a.N] {
			said[a.N] = true
			c.Judged = append(c.Judged, *a.Judged)
		}
	}
	c.Judged = c.Judged[max(len(c.Judged)-8, 0):]
}

// secondsSince is a difference of two stamps of the store, never below 0.
func secondsSince(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return max(to.Sub(from).Seconds(), 0)
}
