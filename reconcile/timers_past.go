package reconcile

import (
	"maps"
	"slices"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// pastOf is what a job's own attempts told, as far as their records are at hand. before is the lease as it stands.
func (r *Reconciler) pastOf(w plan.Digest, platform string, before *witness.Record) past {
	var out past
	if before == nil || before.Attempt == 0 {
		return out
	}
	s := r.records.shelf(w)
	out.stepS = max(before.Lease.StepS, 0)
	if sums := s.sums(before.Attempt); sums != nil && sums.Median > 0 {
		out.stepS = sums.Median
	}
	if slip := s.listed[before.Dispatch]; slip != nil && slip.claim != nil && slip.claim.Platform == platform {
		out.k = min(max(slip.claim.Terms.LeaseK, 0), patience.MostK)
	}
	out.snapshots = s.snapshots()
	return out
}

// snapshots is what the attempts that left an account told of theirs.
func (s *shelf) snapshots() patience.Snapshots {
	var out patience.Snapshots
	for _, a := range slices.Sorted(maps.Keys(s.ends)) { // in order: a sum of floats must not depend on a map's
		sums := s.sums(a)
		if sums == nil || sums.Snapshots < 1 || !(sums.SaveS > 0) {
			continue
		}
		out.N += min(sums.Snapshots, 1<<20)
		out.Blocked += sums.SaveS
		out.Upload += sums.UploadS
	}
	if out.N > 0 {
		out.Blocked, out.Upload = out.Blocked/float64(out.N), out.Upload/float64(out.N)
	}
	return out
}

// sums is an attempt's own account; nil: it left none that can be.
func (s *shelf) sums(attempt int64) *record.Sums {
	if e := s.ends[attempt]; e != nil {
		return e.Sums.Sound()
	}
	return nil
}
