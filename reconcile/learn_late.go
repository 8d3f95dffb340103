package reconcile

import (
	"context"
	"time"

	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// A worker that was written off and lives tells so when it wakes: in the account of its end, hours later perhaps, long after
// the observation of its dispatch was written. It is the only direct evidence that a lease was too short, so it is looked
// for, with growing pauses, for as long as observations may be written; a dispatcher that is restarted does not go on with it.

// toldLater is what is looked for after an observation was written: nil where its worker told of its end, or was not written off.
func (e ended) toldLater(o *record.Observation) *ended {
	if o.Class != classSilent || o.Attempt == 0 || len(o.All.Ratios.Censored) > 0 || e.late != nil {
		return nil
	}
	first := *o
	return &ended{work: e.work, dispatch: e.dispatch, late: &first, first: time.Now(), next: time.Now().Add(nextLate)}
}

// pause is until when nobody looks again: as long as it was waited for already, an hour at most.
func (e ended) pause() time.Time {
	return time.Now().Add(min(max(time.Since(e.first), nextLate), time.Hour))
}

// observeLate looks once whether a worker that was written off has told of its end.
func (r *Reconciler) observeLate(ctx context.Context, e ended) (*record.Observation, string, error) {
	if !goodput.Writable(time.Since(e.first)) {
		return nil, "", nil // nobody waits any longer
	}
	rs := records{b: r.learner.b}
	var end record.End
	var info bucket.Object
	found, err := rs.get(ctx, record.EndKey(string(e.work), e.late.Attempt), &end, &info)
	switch {
	case err != nil && !damaged(err):
		return nil, "", err
	case !found:
		return nil, "", errOpen
	}
	o := lateOf(*e.late, end, info.Modified)
	if err != nil || o == nil || end.Work != string(e.work) || end.Attempt != e.late.Attempt {
		return nil, "", nil
	}
	return r.noteObservation(ctx, o)
}

// lateOf is what an account that came late adds to the observation of its dispatch; nil: nothing. Pure.
func lateOf(first record.Observation, end record.End, at time.Time) *record.Observation {
	sums := end.Sums.Sound()
	if sums == nil || (Attempt{Off: true, End: end.Class}).class() != classSilent || at.IsZero() {
		return nil
	}
	o := first
	o.Late, o.Time = true, at.UTC().Format(time.RFC3339)
	o.All = record.Sums{Ratios: record.Histogram{Censored: sums.Ratios.Censored}}
	if _, alive := goodput.Reached(o); !alive {
		return nil
	}
	return &o
}
