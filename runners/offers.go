package runners

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// Pricer is the optional extra of runners that know what a launch costs before it is made.
type Pricer interface {
	// Price is what the next launch would cost per hour: that of the cheapest offer where there are several.
	Price(ctx context.Context) (record.Price, error)
}

// Quoter is the optional extra of runners whose platform gives a certain amount and then no more until it resets.
type Quoter interface {
	// Quota is what is left of it.
	Quota(ctx context.Context) (Quota, error)
}

// Quota is what a platform still gives.
type Quota struct {
	Left   float64   // in Unit
	Whole  float64   // what there is after a reset, in Unit; 0: it is not known
	Unit   string    // "hours", "credits"
	Resets time.Time // when Left grows again, by the platform's clock; zero: it is not known, or never
}

// Check refuses a quota that no platform can mean.
func (q Quota) Check() error {
	if !(q.Left >= 0) || q.Left > 1e15 || !(q.Whole >= 0) || q.Whole > 1e15 {
		return fmt.Errorf("a quota with %v of %v left: expected numbers from 0 to 1e15", q.Left, q.Whole)
	}
	return record.Price{Unit: q.Unit}.Check()
}

// AskPrice asks a runner what a launch costs. known is false when it is no [Pricer]. err is a *Failure: a panic or an
// answer that makes no sense is a ProtocolError.
func AskPrice(ctx context.Context, r Runner, platform string) (p record.Price, known bool, err error) {
	asked, ok := r.(Pricer)
	if !ok {
		return record.Price{}, false, nil
	}
	defer func() {
		if v := recover(); v != nil {
			p, known, err = record.Price{}, false, panicked(platform, "price", v)
		}
	}()
	if p, err = asked.Price(ctx); err != nil {
		return record.Price{}, false, classed(ctx, platform, "price", err)
	}
	if err := p.Check(); err != nil {
		return record.Price{}, false, garbage(platform, "price", err)
	}
	return p, true, nil
}

// AskQuota asks a runner what is left; as AskPrice.
func AskQuota(ctx context.Context, r Runner, platform string) (q Quota, known bool, err error) {
	asked, ok := r.(Quoter)
	if !ok {
		return Quota{}, false, nil
	}
	defer func() {
		if v := recover(); v != nil {
			q, known, err = Quota{}, false, panicked(platform, "quota", v)
		}
	}()
	if q, err = asked.Quota(ctx); err != nil {
		return Quota{}, false, classed(ctx, platform, "quota", err)
	}
	if err := q.Check(); err != nil {
		return Quota{}, false, garbage(platform, "quota", err)
	}
	return q, true, nil
}

// priced checks the price in a platform's answer. One that makes no sense is left out and said so: the launch did happen,
// and its handle is worth more than its price.
func priced(p *record.Price, text string) (*record.Price, string) {
	if p == nil {
		return nil, text
	}
	if err := p.Check(); err != nil {
		return nil, Bound(text+" (its price is left out: "+err.Error()+")", maxText)
	}
	kept := *p
	return &kept, text
}
