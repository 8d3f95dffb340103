package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// settleFor is how long an observation waits for the platform's word that a machine which was cut off is gone; then it is
// written as it is, and says that the charge may go on.
const settleFor = 10 * time.Minute

// ended is one dispatch whose end is to be written down.
type ended struct {
	work     plan.Digest
	dispatch int64
	seen     *witness.Seen // the lease as its end was seen; nil: no worker took it
	first    time.Time     // when that was, by our own clock
	next     time.Time     // not to be asked about before
	tries    int
	late     *record.Observation // what was written already: its worker is waited for, see learn_late.go
}

// observeEnds writes down ends, a few at a time.
func (r *Reconciler) observeEnds(ctx context.Context, list []ended, f *looked) {
	f.raw = map[string]record.Observation{}
	var mu sync.Mutex
	byKey := map[string]ended{}
	var keys []string
	for _, e := range list {
		k := fmt.Sprintf("%s/%d", e.work, e.dispatch)
		byKey[k], keys = e, append(keys, k)
	}
	each(keys, func(k string) {
		e := byKey[k]
		o, key, err := r.observeEnd(ctx, e)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, errOpen):
			if e.next = time.Now().Add(nextLate); e.late != nil {
				e.next = e.pause()
			}
			f.again = append(f.again, e)
		case err != nil:
			e.next = time.Now().Add(nextLate)
			if e.tries++; e.tries < 3 {
				f.again = append(f.again, e)
			}
			f.err = err
		case o != nil:
			f.raw[key] = *o
			if later := e.toldLater(o); later != nil {
				f.again = append(f.again, *later)
			}
		}
	})
}

// errOpen: how long it was paid for is not known yet, and may be soon.
var errOpen = errors.New("the platform has not said yet that it is over")

// observeEnd writes one end down, unless somebody has; nil: there is nothing that it teaches.
func (r *Reconciler) observeEnd(ctx context.Context, e ended) (*record.Observation, string, error) {
	if e.late != nil {
		return r.observeLate(ctx, e)
	}
	o, age, err := r.observation(ctx, e)
	if err != nil || o == nil || !goodput.Writable(age) || goodput.Check(*o) != nil {
		return nil, "", err
	}
	return r.noteObservation(ctx, o)
}

// noteObservation creates an observation if absent, and returns the one that is there.
func (r *Reconciler) noteObservation(ctx context.Context, o *record.Observation) (*record.Observation, string, error) {
	at, err := time.Parse(time.RFC3339, o.Time)
	if err != nil {
		return nil, "", err
	}
	body, err := record.Encode(o)
	if err != nil {
		return nil, "", err
	}
	key := record.ObservationKey(*o, at)
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err = r.learner.b.Put(ctx, key, bytes.NewReader(body), bucket.IfAbsent())
	if bucket.Is(err, bucket.Condition) {
		there, err := readObservation(ctx, r.learner.b, key)
		return there, key, err
	}
	if err != nil {
		return nil, "", fmt.Errorf("write an observation: %w", err)
	}
	return o, key, nil
}

// observation puts together what one ended dispatch taught, and how old its end is by the store's stamps.
func (r *Reconciler) observation(ctx context.Context, e ended) (*record.Observation, time.Duration, error) {
	rs := records{b: r.learner.b}
	s := rs.shelf(e.work)
	if _, err := rs.page(ctx, e.work, s, e.dispatch-1); err != nil {
		return nil, 0, err
	}
	d := s.listed[e.dispatch]
	if d == nil {
		return nil, 0, nil
	}
	if err := rs.fill(ctx, e.work, s, e.dispatch, d); err != nil {
		return nil, 0, err
	}
	if d.claim == nil {
		return nil, 0, nil
	}
	c := d.claim
	o := &record.Observation{Protocol: record.Protocol, Platform: shown(c.Platform, 128), GPU: "unknown", Mode: modeOf(c), Family: shown(c.Family, 512), Work: string(e.work),
		Dispatch: e.dispatch, Runner: shown(c.Runner, 128), Class: classNoCapture, Price: c.Price}
	if d.receipt != nil && d.receipt.Price != nil {
		o.Price = d.receipt.Price
	}
	if e.seen == nil {
		window := min(max(c.CaptureS, 0), 7*86400)
		if window == 0 {
			window = capturePrior.Seconds()
		}
		if d.modified.IsZero() {
			return nil, 0, nil
		}
		given := d.modified.Add(time.Duration(window * float64(time.Second)))
		o.CaptureS, o.Time = window, given.UTC().Format(time.RFC3339)
		return o, d.date.Sub(given), nil
	}
	return r.captured(ctx, e, &rs, s, o)
}

// captured adds what a worker did.
func (r *Reconciler) captured(ctx context.Context, e ended, rs *records, s *shelf, o *record.Observation) (*record.Observation, time.Duration, error) {
	rec, d, w := &e.seen.Record, s.listed[e.dispatch], string(e.work)
	var open record.Open
	var end record.End
	found, err := rs.get(ctx, record.OpenKey(w, rec.Attempt), &open, s.stamp(record.OpenKey(w, rec.Attempt)))
	if err != nil && !damaged(err) {
		return nil, 0, err
	}
	if found && err == nil && open.Work == w && open.Attempt == rec.Attempt {
		keep(&s.opens, rec.Attempt, &open)
	}
	found, err = rs.get(ctx, record.EndKey(w, rec.Attempt), &end, s.stamp(record.EndKey(w, rec.Attempt)))
	if err != nil && !damaged(err) {
		return nil, 0, err
	}
	if found && err == nil && end.Work == w && end.Attempt == rec.Attempt {
		keep(&s.ends, rec.Attempt, &end)
	}
	st, ok, err := rs.stint(ctx, e.work, s, e.seen)
	if err != nil || !ok {
		return nil, 0, err
	}
	at := Attempt{N: rec.Attempt, Off: writtenOff(rec), Yielded: rec.State == witness.Yielded, Stepped: rec.Progress.Step, Gained: !st.Nothing}
	if s.ends[rec.Attempt] != nil {
		at.End = told(&end, rec, e.dispatch)
	}
	o.Class = at.class()
	if rec.State == witness.Finished {
		o.Class = "finished"
	}
	o.Attempt, o.Captured, o.GPU, o.GPUs, o.Env = rec.Attempt, true, st.Key.GPU, 1, st.Env
	o.WorkKept, o.StepKeptS, o.StartS, o.PaidS, o.TailS = st.Work, st.StepS, st.StartS, st.PaidS, st.TailS
	o.Unmeasured = !st.Nothing && st.StepS == 0
	if p := s.opens[rec.Attempt]; p != nil {
		o.GPUs = cardsOf(p, d.claim)
		o.Peak = st.Peak / float64(o.GPUs)
		o.CaptureS = max(secondsSince(d.modified, s.stamp(record.OpenKey(w, rec.Attempt)).Modified), 0.001)
		if p.Resume != nil {
			at.From = p.Resume.Step
		}
	}
	if at.Off && at.End == "" {
		switch {
		case d.release != nil && d.release.Settlement == runners.Closed.String():
			rest := secondsSince(e.seen.Modified, d.told)
			o.PaidS, o.TailS = o.PaidS+rest, o.TailS+rest
		case time.Since(e.first) < settleFor:
			return nil, 0, errOpen
		default:
			o.PaidOpen = true
		}
	}
	o.All = r.all(ctx, rs, s, rec, d.claim)
	o.LostS = max(o.All.StepS-o.StepKeptS, 0)
	o.FirstStepS = o.All.WarmS
	if o.All.Steps == 0 && at.Stepped <= at.From && st.Nothing {
		o.FirstStepS, o.All.WarmS = 0, max(st.PaidS-st.StartS, 0) // it came to no step in that time
	}
	o.All.Wait = cmp.Or(st.Wait, o.All.Wait)
	o.Time = time.Unix(st.At, 0).UTC().Format(time.RFC3339)
	return o, d.date.Sub(time.Unix(st.At, 0)), nil
}

// all is a worker's account of its whole attempt: its own at its end, else the one that the last pointer kept; without either
// nothing.
func (r *Reconciler) all(ctx context.Context, rs *records, s *shelf, rec *witness.Record, c *record.Claim) record.Sums {
	if e := s.ends[rec.Attempt]; e != nil && e.Sums != nil && e.Sums.Check() == nil {
		return *worked(e.Sums, c)
	}
	if kept, err := rs.kept(ctx, s, rec, c); err == nil && kept != nil {
		return *kept
	}
	return record.Sums{}
}
