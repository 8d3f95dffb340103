package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
)

const (
	costsPage = 500    // works whose records are read at a time
	costsMost = 10_000 // works of one answer
)

// costOrphan is one instance of `costs --json` that a platform lists and nothing explains.
type costOrphan struct {
	doctorOrphan
	Since string `json:"since,omitempty"` // the store's stamp of its claim; left out: no claim of this store is known

	said string
}

func (o costOrphan) text() string {
	if o.Since == "" {
		return o.said
	}
	return o.said + "; since " + o.Since
}

// everything fills in the costs of all works that the store knows, page by page. named are those of the accepted plan.
func (d *costsDoc) everything(ctx context.Context, r *reconcile.Reconciler, named []jobCost, after plan.Digest) error {
	known := map[plan.Digest]jobCost{}
	for _, j := range named {
		known[j.Work] = j
	}
	d.Jobs = []jobCost{}
	for len(d.Jobs) < costsMost {
		works, more, err := r.Works(ctx, after, costsPage)
		if err != nil {
			return err
		}
		costs, err := r.Costs(ctx, works)
		if err != nil {
			return err
		}
		for _, w := range works {
			after = w
			j, planned := known[w]
			if j.Cost = costs[w]; !planned {
				j.Job, j.Group, j.Left = j.Named, j.Family, true
			}
			d.Jobs = append(d.Jobs, j)
		}
		if !more {
			return nil
		}
	}
	d.Next = after
	return nil
}

// unexplained adds what platforms run and nothing explains: it costs money, and is in no bill. A platform that does not say is
// named.
func (p *project) unexplained(ctx context.Context, b bucket.Bucket, d *costsDoc, ask costAsk) error {
	d.Orphans = []costOrphan{}
	if b == nil {
		return nil
	}
	rs, err := p.platforms(b)
	if err != nil {
		return err
	}
	asked, err := census(ctx, p.plan.Config.Platforms, b, rs)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		l := asked[name]
		switch {
		case l.Err != nil:
			d.NotKnown = append(d.NotKnown, fmt.Sprintf("platform %s did not say what it runs, so what nothing explains there is not known: %s", name, l.Err))
		case !l.Lists:
			d.NotKnown = append(d.NotKnown, fmt.Sprintf("platform %s cannot say what it runs, so what nothing explains there is not known", name))
		}
		for _, o := range l.Orphans {
			if ask.named != "" && !slices.ContainsFunc(d.Jobs, func(j jobCost) bool { return j.Work == o.Work }) {
				continue
			}
			c := costOrphan{doctorOrphan: orphanDoc(o), said: orphanText(o)}
			if !o.Since.IsZero() {
				c.Since = o.Since.UTC().Format(time.RFC3339)
			}
			d.Orphans = append(d.Orphans, c)
		}
	}
	return nil
}
