package world

import (
	"context"
	"time"

	"github.com/headway-run/headway/runners"
)

// quota is what a platform says of machine time that it gives for nothing, and then no more until it renews it.
type quota struct{ at line }

// quotaLine and listingQuotaLine are lines to a platform with one.
type (
	quotaLine struct {
		line
		quota
	}
	listingQuotaLine struct {
		listingLine
		quota
	}
)

var (
	_ runners.Quoter = quotaLine{}
	_ runners.Quoter = listingQuotaLine{}
	_ runners.Lister = listingQuotaLine{}
)

// Quota implements runners.Quoter.
func (q quota) Quota(ctx context.Context) (runners.Quota, error) {
	return through(ctx, q.at, "quota", "", nil, func() (runners.Quota, error) {
		left, renews := q.at.p.leftOver()
		return runners.Quota{Left: left.Hours(), Whole: q.at.p.d.share.Hours(), Unit: "hours", Resets: renews}, nil
	})
}

// leftOver is what is left of the share, and when there is a new one. Nobody has to be there when it is renewed: whoever asks
// first after that finds it so.
func (p *place) leftOver() (left time.Duration, renews time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	paid := p.sim.Meter().Paid
	if now := time.Now(); p.renewed.IsZero() || now.Sub(p.renewed) >= p.d.renews {
		p.renewed, p.before = now, paid
	}
	return max(p.d.share-(paid-p.before), 0), p.renewed.Add(p.d.renews)
}

// usedUp refuses a launch where nothing is left.
func (p *place) usedUp() error {
	if p.d.share <= 0 {
		return nil
	}
	left, renews := p.leftOver()
	if left > 0 {
		return nil
	}
	p.w.post(func() { p.w.stats.Reached["a quota was used up"]++ })
	return &runners.Failure{Class: runners.QuotaExhausted, Platform: p.d.name, Op: "launch", Until: renews}
}
