package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// environMost bounds how many records of each sort one look at environments reads.
const environMost = 64

// Environments says of the works of a plan that pin their environment (requires) and are still to be done where what was
// measured is another one: on the machines that made what they start from (needs and parent), on the newest machine that each
// platform of their ladder gave this plan, and on the one that a worker of theirs left for that reason. What was not measured
// says nothing. It costs a few GETs, none where no job pins anything, and writes nothing. The sentences are safe to print.
func (r *Reconciler) Environments(ctx context.Context, pl *plan.Plan, world *World) (map[plan.Digest][]string, error) {
	v := &environs{b: r.b, world: world, opens: map[string]*record.Open{}, refusals: map[plan.Digest]*record.Refusal{}}
	var pinned []*plan.Job
	var dispatched []plan.Observed // pinned, and launched before
	var ups []plan.Digest
	for i := range pl.Jobs {
		j := &pl.Jobs[i]
		if len(j.Requires) == 0 {
			continue
		}
		if s := world.works[j.Work]; s != nil {
			o := s.observed(j.Work)
			if o.Live() || o.State == plan.StateFinished {
				continue
			}
			if o.Dispatch > 0 {
				dispatched = append(dispatched, o)
			}
		}
		pinned = append(pinned, j)
		for _, in := range j.Inputs {
			ups = append(ups, in.Work)
		}
		if j.Parent != "" {
			ups = append(ups, j.Parent)
		}
	}
	if len(pinned) == 0 {
		return nil, nil
	}
	slices.Sort(ups)
	made, err := v.upstream(ctx, slices.Compact(ups))
	if err == nil {
		err = v.platforms(ctx)
	}
	if err == nil {
		err = v.refused(ctx, dispatched[:min(len(dispatched), environMost)])
	}
	if err != nil {
		return nil, fmt.Errorf("read where works were made: %w", err)
	}
	out := map[plan.Digest][]string{}
	for _, j := range pinned {
		if list := v.warnings(j, made); len(list) > 0 {
			out[j.Work] = list
		}
	}
	return out, nil
}

// environs is one look.
type environs struct {
	b        bucket.Bucket
	world    *World
	mu       sync.Mutex
	opens    map[string]*record.Open // newest, by platform
	refusals map[plan.Digest]*record.Refusal
}

// warnings of one job, from what was read. Pure.
func (v *environs) warnings(j *plan.Job, made map[plan.Digest]*record.Open) (out []string) {
	names := map[plan.Digest]string{}
	for _, in := range slices.Backward(j.Inputs) {
		names[in.Work] = in.Job + ", which it needs,"
	}
	if j.Parent != "" {
		names[j.Parent] = cmp.Or(names[j.Parent], "its parent "+j.Parent.Short())
	}
	for _, w := range slices.SortedFunc(maps.Keys(names), func(a, b plan.Digest) int { return strings.Compare(names[a], names[b]) }) {
		if o := made[w]; o != nil {
			if d := unlikePins(j.Requires, o.Fingerprint); d != "" {
				out = append(out, fmt.Sprintf("%s was made with %s", names[w], d))
			}
		}
	}
	for _, name := range j.On {
		if o := v.opens[name]; o != nil {
			if d := unlikePins(j.Requires, o.Fingerprint); d != "" {
				out = append(out, fmt.Sprintf("the newest machine of %s had %s: its workers would refuse it", name, d))
			}
		}
	}
	if q := v.refusals[j.Work]; q != nil {
		if d := unlikePins(j.Requires, q.Fingerprint); d != "" {
			out = append(out, fmt.Sprintf("the worker of dispatch %d found %s, and left", q.Dispatch, d))
		}
	}
	return out
}

// unlikePins lists what a fingerprint says otherwise than is required, or "".
func unlikePins(requires, found map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(requires)) {
		if got, measured := found[k]; measured && got != requires[k] {
			out = append(out, fmt.Sprintf("%s %s (required: %s)", shown(k, 60), shown(got, 100), shown(requires[k], 100)))
		}
	}
	return strings.Join(out, ", ")
}

// upstream reads what the machines of finished works were.
func (v *environs) upstream(ctx context.Context, works []plan.Digest) (map[plan.Digest]*record.Open, error) {
	works = works[:min(len(works), environMost)]
	made, errs := map[plan.Digest]*record.Open{}, make([]error, len(works))
	parallel(len(works), func(i int) {
		w := works[i]
		var attempt int64
		if s := v.world.works[w]; s != nil && s.record != nil {
			attempt = finishedBy(s.record)
		} else if s == nil {
			seen, err := witness.Read(ctx, v.b, string(w))
			if _, bad := errors.AsType[*witness.Unreadable](err); err != nil && !bad && !errors.Is(err, witness.ErrAbsent) {
				errs[i] = err
				return
			}
			attempt = finishedBy(&seen.Record)
		}
		if attempt == 0 {
			return
		}
		var o record.Open
		if ok, err := v.read(ctx, record.OpenKey(string(w), attempt), &o); err != nil || !ok {
			errs[i] = err
			return
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		made[w] = &o
	})
	return made, errors.Join(errs...)
}

func finishedBy(rec *witness.Record) int64 {
	if rec.State != witness.Finished {
		return 0
	}
	return rec.Attempt
}

// platforms reads the newest attempts of the works at hand, and keeps for each platform the newest machine.
func (v *environs) platforms(ctx context.Context) error {
	var list []*sight
	for _, s := range v.world.works {
		if s.record != nil && s.record.Attempt > 0 && s.seen != nil {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *sight) int {
		return cmp.Or(b.seen.Modified.Compare(a.seen.Modified), strings.Compare(a.record.Work, b.record.Work))
	})
	list = list[:min(len(list), environMost)]
	opens, errs := make([]*record.Open, len(list)), make([]error, len(list))
	parallel(len(list), func(i int) {
		var o record.Open
		var ok bool
		if ok, errs[i] = v.read(ctx, record.OpenKey(list[i].record.Work, list[i].record.Attempt), &o); ok {
			opens[i] = &o
		}
	})
	for _, o := range opens {
		if o != nil && v.opens[o.Platform] == nil {
			v.opens[o.Platform] = o
		}
	}
	return errors.Join(errs...)
}

// refused reads why workers of the pinned works left before they took a lease.
func (v *environs) refused(ctx context.Context, list []plan.Observed) error {
	errs := make([]error, len(list))
	parallel(len(list), func(i int) {
		var q record.Refusal
		ok, err := v.read(ctx, record.RefusalKey(string(list[i].Work), list[i].Dispatch), &q)
		if errs[i] = err; ok {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.refusals[list[i].Work] = &q
		}
	})
	return errors.Join(errs...)
}

// read reads a record of a worker; one that is absent or damaged says nothing.
func (v *environs) read(ctx context.Context, key string, into any) (bool, error) {
	body, _, err := whole(ctx, v.b, key, record.MaxRecord)
	switch {
	case bucket.Is(err, bucket.NotFound) || damaged(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return record.Decode(body, record.MaxRecord, into) == nil, nil
}
