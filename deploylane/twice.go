package deploylane

import (
	"context"
	"fmt"

	"github.com/headway-run/headway/deploylane/attest"
)

// Repeated is what a second run of the retraining came to, where lane.yaml asks for one.
type Repeated struct {
	Run   Run              `json:"run"`
	Shows attest.Guarantee `json:"shows"`
}

// again makes the pinned work a second time, as its next replica, and holds the two results against each other by the hashes of
// their files. Other bytes end the release; what equal ones show is worded by attest.
func (l *Lane) again(ctx context.Context, r *release, rec Record) (Record, error) {
	second, err := l.make(ctx, r, *r.c.Twin, nil)
	if err != nil {
		return second, err
	}
	need := r.c.Model.metrics()
	_, a, err := l.made(ctx, r.c.Retrain, need)
	if err != nil {
		return rec, err
	}
	_, b, err := l.made(ctx, *r.c.Twin, nil)
	if err != nil {
		return rec, err
	}
	one, two := rec.Run, second.Run
	g := attest.CompareRuns(attest.Twin{Name: one.Work, Fingerprint: one.Fingerprint, Files: a.manifest.Files}, attest.Twin{Name: two.Work, Fingerprint: two.Fingerprint, Files: b.manifest.Files})
	rec.Again = &Repeated{*two, g}
	if !g.Identical {
		return rec, stop("NotRepeated", "%s ran twice (works %s and %s): %s", r.c.Retrain.Job, short(one.Work), short(two.Work), g.Text)
	}
	rec.Reason += fmt.Sprintf("; work %s repeats it: %s", short(two.Work), g.Text)
	return rec, nil
}
