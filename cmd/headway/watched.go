package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/meter"
	"github.com/headway-run/headway/runners"
)

// passed tells the health and the metrics of one pass. One that a signal ended says nothing of the store.
func (w *watcher) passed(ctx context.Context, report *reconcile.Report, err error, took time.Duration) {
	if ctx.Err() != nil {
		return
	}
	w.health.passed(err == nil)
	w.meter.Passed(metered(report, err, took))
	if err == nil {
		w.tell(report)
	}
}

// metered is a pass as the metrics count it.
func metered(report *reconcile.Report, err error, took time.Duration) meter.Pass {
	p := meter.Pass{Took: took, Failed: err != nil || report == nil, States: map[string]int{}, Releases: map[string]int{}}
	if p.Failed {
		return p
	}
	p.Releasing, p.Orphans, p.Refused, p.Errors = report.Releasing, len(report.Orphans), len(report.Refusals), len(report.Errors)
	for w, s := range report.States {
		p.States[s.State]++
		if s.State == plan.StateHeld {
			p.Held = append(p.Held, meter.Work{ID: string(w), Dispatch: s.Dispatch, Platform: s.Platform})
		}
	}
	for _, s := range report.Platforms {
		p.Platforms = append(p.Platforms, meter.Platform{Name: s.Name, Parked: s.Parked, Closed: s.Closed, Series: s.Series, Live: s.Live})
	}
	for _, a := range report.Actions {
		if !a.Done && a.Err == nil && a.Result == "" {
			continue // a decision; the act itself has a line of its own
		}
		switch a.Kind {
		case reconcile.Launch:
			outcome := outcomeOf(a)
			p.Launches = append(p.Launches, meter.Launch{Platform: a.Platform, Outcome: outcome, Retries: a.Spent})
			if outcome == "launched" {
				p.Started = append(p.Started, meter.Work{ID: string(a.Work), Dispatch: a.Dispatch, Platform: a.Platform})
			}
		case reconcile.WriteOff:
			p.WriteOffs += done(a)
		case reconcile.Stop:
			p.Stops += done(a)
		case reconcile.Release:
			// The result of a release begins with the platform's answer; whoever was not asked has none.
			if answer, _, _ := strings.Cut(a.Result, ":"); slices.Contains(meter.Settlements, answer) {
				p.Releases[answer]++
			}
		case reconcile.Move:
			p.Moves += done(a)
		case reconcile.None, reconcile.Wait, reconcile.Blocked, reconcile.Fail:
		}
	}
	return p
}

func done(a reconcile.Action) int {
	if a.Done {
		return 1
	}
	return 0
}

// outcomeOf is a launch's outcome as a label.
func outcomeOf(a reconcile.Action) string {
	if a.Err == nil {
		if a.Done {
			return "launched"
		}
		return "withheld"
	}
	if f, ok := errors.AsType[*runners.Failure](a.Err); ok {
		return string(f.Class)
	}
	return "failed"
}
