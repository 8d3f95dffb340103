package ring

import (
	"context"
	"fmt"

	"github.com/headway-run/headway/deploylane/preflight"
)

// FailedBefore is a release that was loaded on this ring, failed by itself, and was taken back. It is not tried again
// without a person: a load takes as long as it takes, and the answer would be the same.
type FailedBefore struct {
	Release    string
	Generation uint64
	Why        string
	Serving    uint64 // generation that serves instead; 0: none
}

func (e FailedBefore) Error() string {
	return fmt.Sprintf("release %s failed on this ring as generation %d: %s; generation %d serves; tag another release", e.Release, e.Generation, e.Why, e.Serving)
}

// Ensure is Release for a caller that asks again and again, such as a lane that is started anew: what an earlier process
// left is recovered first, a release that serves is left alone, and one that failed is FailedBefore.
func (l *Loader) Ensure(ctx context.Context, rel Release, overrides []preflight.Override) (Outcome, error) {
	p, err := ReadPlan(rel.PlanFile, rel.Plan)
	if err != nil {
		return Outcome{}, err
	}
	r, err := l.look(ctx)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{}
	if len(r.loads) > 0 {
		if out, err = l.Recover(ctx, p); err != nil || out.Serving != 0 && out.Release == rel.Digest {
			return out, err
		}
		if r, err = l.look(ctx); err != nil {
			return Outcome{}, err
		}
	}
	if err := r.failed(rel, out.Serving); err != nil {
		return out, err
	}
	if out, err = l.Release(ctx, rel, overrides); err != nil || out.Serving != 0 && !out.RolledBack {
		return out, err
	}
	if r, err = l.look(ctx); err != nil {
		return out, err
	}
	if err := r.failed(rel, out.Serving); err != nil {
		return out, err
	}
	return out, fmt.Errorf("release %s was cut short, and generation %d serves: %s; ask again", rel.Digest, out.Serving, out.Why)
}

// failed finds a load of a release that failed and never served, the newest one since it was asked for.
func (r *run) failed(rel Release, serving uint64) error {
	for k := len(r.every) - 1; k >= 0; k-- {
		l := &r.every[k]
		if l.Intent.Release != rel.Digest || l.Intent.Generation < rel.Since {
			continue
		}
		if l.Ledger.Failed && !l.Ledger.Served {
			return FailedBefore{rel.Digest, l.Intent.Generation, refusals(l), serving}
		}
		return nil
	}
	return nil
}
