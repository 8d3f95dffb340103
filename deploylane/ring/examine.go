package ring

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-run/headway/deploylane/preflight"
)

// maxInspections bounds a file of inspections, bytes.
const maxInspections = 4 << 20

// ReadInspections reads what agents have answered, a JSON list; file is what errors call it.
func ReadInspections(file string, b []byte) ([]Inspection, error) {
	var out []Inspection
	if err := strict(b, maxInspections, &out); err != nil {
		return nil, fmt.Errorf("%s: no list of inspections: %w", file, err)
	}
	return out, nil
}

// ReadWeights reads what a release says of its weights: {"digest", "arch", "layers", "hidden"}.
func ReadWeights(file string, b []byte) (Weights, error) {
	var w Weights
	if err := strict(b, 64<<10, &w); err != nil {
		return Weights{}, fmt.Errorf("%s: no description of weights: %w", file, err)
	}
	return w, nil
}

// Examine checks a ring plan against answers that agents gave before; nobody is asked but the store. What was not given is
// unknown, and blocks: weights, prompts, inspections, and the records (nil: none) with the ring's lease.
func Examine(ctx context.Context, p *Plan, w Weights, prompts []Prompt, seen []Inspection, records *Records, overrides []preflight.Override) (preflight.Report, error) {
	v := &View{Plan: p, Weights: w, Prompts: prompts, Survey: SurveyOf(p, seen)}
	now := uint64(max(time.Now().UnixMilli(), 1))
	if records != nil {
		loads, err := records.Loads(ctx)
		if err != nil {
			return preflight.Report{}, err
		}
		if now, err = records.Clock(ctx); err != nil {
			return preflight.Report{}, err
		}
		for k, l := range loads {
			v.Recorded = append(v.Recorded, Recorded{l.Intent.Generation, records.IntentKey(l.Intent.Generation)})
			if l.Ledger.Closed == "" {
				v.Replaces = &loads[k].Intent
			}
		}
		v.Known, v.Lease = true, records.Releaser(ctx)
	}
	v.Generation = choose(now, v.Recorded, v.seen())
	return preflight.Run(ctx, p.Ring, Checks(v, nil), overrides), nil
}

// Foresee runs the guards that need nobody's answer on a plan, with the generation that any load might have: what is wrong here
// is wrong whatever the agents say.
func Foresee(ctx context.Context, p *Plan, w Weights, prompts []Prompt) preflight.Report {
	v := &View{Plan: p, Weights: w, Generation: 1, Known: true, Prompts: prompts, Lease: Releaser{Known: true}}
	checks := slices.DeleteFunc(Checks(v, nil), func(c preflight.Check) bool { return c.Cost > preflight.Free })
	return preflight.Run(ctx, p.Ring, checks, nil)
}
