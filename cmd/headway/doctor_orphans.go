package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/readonly"
)

// orphanAgain is how long the doctor waits before it looks again at what nothing explains: a worker that has just finished
// needs a moment to leave.
const orphanAgain = 3 * time.Second

// doctorOrphan is one instance of `doctor --json` that a platform lists and nothing explains.
type doctorOrphan struct {
	Platform string  `json:"platform"`
	Work     string  `json:"work"`
	Job      string  `json:"job,omitempty"`
	Dispatch int64   `json:"dispatch"`
	AgeS     float64 `json:"age_s,omitempty"`
	Text     string  `json:"text,omitempty"`
	Price    string  `json:"price"`
	Why      string  `json:"why"`
	End      string  `json:"end"`
	Ours     bool    `json:"ours"`
}

// platforms says of each platform what it runs. With ask they are asked, which one may use to tidy up: not where nothing
// may be written.
func (d *doctor) platforms(ctx context.Context, p *project, b bucket.Bucket, ask bool) {
	rs, err := p.platforms(b)
	if err != nil {
		d.ill("platforms", err.Error(), "")
		return
	}
	asked := map[string]reconcile.Listing{}
	if ask {
		if asked, err = census(ctx, p.plan.Config.Platforms, b, rs); err != nil {
			d.ill("platforms", err.Error(), "")
			return
		}
		d.doc.Orphans = []doctorOrphan{}
	}
	for _, name := range slices.Sorted(maps.Keys(rs)) {
		l := asked[name]
		if l.Err != nil {
			d.ill("platform "+name, l.Err.Error(), "what it runs is not known, so what nothing explains is not known either; ask again later")
			continue
		}
		text := fmt.Sprintf("runner %s, up to %s at a time", p.plan.Config.Platforms[name].Runner, count(max(p.plan.Config.Platforms[name].Slots, 1)*rs[name].Capacity(), "job"))
		switch {
		case l.Lists:
			text += fmt.Sprintf(", %d running", l.Running)
		case ask:
			text += "; it cannot say what it runs"
		}
		d.good("platform "+name, text)
		for _, o := range l.Orphans {
			d.ill("orphan", orphanText(o), o.End)
			d.doc.Orphans = append(d.doc.Orphans, orphanDoc(o))
		}
	}
}

func orphanDoc(o reconcile.Orphan) doctorOrphan {
	return doctorOrphan{o.Platform, string(o.Work), clean(o.Job), o.Dispatch, o.Age.Seconds(), clean(o.Text), clean(o.Price), clean(o.Why), clean(o.End), o.Ours}
}

// census asks each platform what it runs, and looks twice before it calls anything an orphan.
func census(ctx context.Context, platforms map[string]plan.Platform, b bucket.Bucket, rs map[string]runners.Runner) (map[string]reconcile.Listing, error) {
	r, err := reconcile.New(reconcile.Config{Bucket: readonly.New(b), ID: "doctor", Runners: rs, Dry: true})
	if err != nil {
		return nil, err
	}
	out, again := map[string]reconcile.Listing{}, map[string]plan.Platform{}
	for _, l := range r.Listings(ctx, platforms) {
		if out[l.Platform] = l; len(l.Orphans) > 0 {
			again[l.Platform] = platforms[l.Platform]
		}
	}
	if len(again) == 0 {
		return out, nil
	}
	if err := pause(ctx, orphanAgain); err != nil {
		return nil, err
	}
	for _, l := range r.Listings(ctx, again) {
		l.Orphans = reconcile.Twice(out[l.Platform].Orphans, l.Orphans)
		out[l.Platform] = l
	}
	return out, nil
}

// orphanText is one sentence about what a platform runs and nothing explains.
func orphanText(o reconcile.Orphan) string {
	age, job := "of unknown age", ""
	if o.Age > 0 {
		age = fmt.Sprintf("launched %s ago", ago(o.Age))
	}
	if o.Job != "" {
		job = " for job " + o.Job
	}
	return clean(fmt.Sprintf("platform %s runs %s (dispatch %d of work %s%s, %s, %s), and nothing explains it: %s", o.Platform, o.Text, o.Dispatch, o.Work.Short(), job, age, o.Price, o.Why))
}
