package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/spend"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// carriedBehind is how far behind a claim the launches lie whose cost it carries. It is less than historyWindow, so that
// whoever reads only the newest ones finds a sum that begins where they end.
const carriedBehind = historyWindow - 4

// purse is what a shelf knows of its work's costs beside the records: all of it stamps of the store.
type purse struct {
	date  time.Time // newest Date of an answer about this work,
	heard time.Time // and when it was there, by our own clock
	sure  bool      // a second answer agreed
	odd   time.Time // Date of an answer that was far from what the others say,
	oddAt time.Time // and when it was there
	lease time.Time // Date of the lease that was heard last
	first time.Time // its first claim was written
	// Of a lease that is held: when its launches were listed last, by our own clock, and for which dispatch.
	looked   time.Time
	dispatch int64
	manifest string    // that the resume pointer names,
	kept     time.Time // and when it was written
}

// clockSlack is how far two answers about the store's time may be apart: they are as old as they took to come.
const clockSlack = 2 * time.Minute

// clock notes the store's own time. One answer alone moves it no further than the slack, and back never: two that agree do.
func (p *purse) clock(date time.Time) {
	near := func(from time.Time) bool { return date.Sub(from).Abs() <= clockSlack }
	switch now := p.now(); {
	case date.IsZero():
		return
	case now.IsZero():
	case near(now):
		p.sure, p.odd = true, time.Time{}
		if !date.After(now) {
			return
		}
	case !p.odd.IsZero() && near(p.odd.Add(time.Since(p.oddAt))):
		p.sure, p.odd = true, time.Time{}
	default:
		p.odd, p.oddAt = date, time.Now()
		return
	}
	p.date, p.heard = date, time.Now()
}

// sees notes the time of a lease's answer, once: it may have been read long ago.
func (p *purse) sees(seen *witness.Seen) {
	if seen == nil || seen.Date.Equal(p.lease) {
		return
	}
	p.lease = seen.Date
	p.clock(seen.Date)
}

// doubted: one answer about the time is all there is, or two disagree.
func (p *purse) doubted() bool { return !p.date.IsZero() && !p.sure }

// now is the store's time: an answer's Date, and what has passed since by our monotonic clock. Zero: none was heard.
func (p *purse) now() time.Time {
	if p.date.IsZero() {
		return time.Time{}
	}
	return p.date.Add(time.Since(p.heard))
}

// rate is what a launch costs: as its platform said, else as its claimer expected; nil: nobody knows.
func (d *slip) rate() *spend.Rate {
	for _, p := range []*record.Price{priceIn(d.receipt), expectedIn(d.claim)} {
		if p == nil || p.Check() != nil {
			continue
		}
		r := spend.Rate{PerHour: p.PerHour, Unit: p.Unit, AtMost: p.AtMost}
		if d.receipt != nil && d.receipt.Jobs > 1 {
			if r.Share = 1 / float64(d.receipt.Jobs); d.receipt.Share > 0 && d.receipt.Share < 1 {
				r.Share = d.receipt.Share
			}
		}
		return &r
	}
	return nil
}

func priceIn(r *record.Receipt) *record.Price {
	if r == nil {
		return nil
	}
	return r.Price
}

func expectedIn(c *record.Claim) *record.Price {
	if c == nil {
		return nil
	}
	return c.Price
}

// interval is the time for which one dispatch is paid; ok false: nothing tells that anything was started. It begins with
// the receipt, or with the claim where that was lost, and ends with the first word of an end: the platform's that it is
// closed, or will be; or its worker's, where that ends the payment.
func (s *shelf) interval(w plan.Digest, n int64, d *slip, h History, seen *witness.Seen) (i spend.Interval, ok bool) {
	taken := d.receipt != nil && d.receipt.OK
	captured := slices.ContainsFunc(h.Attempts, func(a Attempt) bool { return a.Dispatch == n })
	if !taken && !captured {
		return i, false
	}
	i.From, i.Rate = d.receiptAt, d.rate()
	if !taken || i.From.IsZero() {
		i.From = d.modified
	}
	if i.From.IsZero() { // just claimed by this process: no listing has shown it yet
		i.From = s.purse.now()
	}
	first := func(t time.Time) {
		if !t.IsZero() && (i.To.IsZero() || t.Before(i.To)) {
			i.To = t
		}
	}
	if d.release != nil {
		switch d.release.Settlement {
		case runners.Closed.String():
			first(d.told)
		case runners.Bounded.String():
			if until, err := time.Parse(time.RFC3339, d.release.Until); err == nil && !d.told.IsZero() {
				first(d.told.Add(min(max(until.Sub(d.told), 0), boundMost)))
			}
		}
	}
	if d.receipt == nil || !d.receipt.Outlives {
		first(s.leftAt(w, n, h, seen))
	}
	return i, true
}

// leftAt is when the worker of a dispatch was over, by its own account; zero: it gave none, or one of it still runs.
func (s *shelf) leftAt(w plan.Digest, n int64, h History, seen *witness.Seen) (at time.Time) {
	for _, a := range h.Attempts {
		if a.Dispatch != n {
			continue
		}
		var left time.Time
		if s.ends[a.N] != nil {
			left = s.stamp(record.EndKey(string(w), a.N)).Modified
		} else if seen != nil && seen.Record.Attempt == a.N && (seen.Record.State == witness.Finished || seen.Record.State == witness.Yielded) {
			left = seen.Modified
		}
		if a.Live || left.IsZero() {
			return time.Time{}
		}
		if left.After(at) {
			at = left
		}
	}
	return at
}

// launchPaid is one dispatch and the time for which it is paid.
type launchPaid struct {
	n int64
	spend.Interval
}

// paid lists the launches of a history that are paid for, and what was carried over from those before it. gone counts the
// launches in between of which nothing is known any more.
func (s *shelf) paid(w plan.Digest, h History, seen *witness.Seen, through int64) (list []launchPaid, carried spend.Bill, gone int64) {
	first := h.first()
	from := int64(0) // what follows is counted one by one
	if first > 1 {
		carried, from = s.carried(first - 1)
		if missing := min(first-1, through) - from; missing > 0 {
			gone = missing
		}
	}
	last := max(from, first-1)
	for _, d := range h.Dispatches {
		if d.N <= from || d.N > through {
			continue
		}
		gone += d.N - last - 1
		last = d.N
		slip := s.listed[d.N]
		if slip == nil {
			continue
		}
		if i, ok := s.interval(w, d.N, slip, h, seen); ok {
			list = append(list, launchPaid{d.N, i})
		}
	}
	return list, carried, gone
}

// carried is the sum that claims carry of the launches 1 to at least n, and how far it reaches: the shortest that does, or
// the farthest when none does; 0: none.
func (s *shelf) carried(n int64) (b spend.Bill, through int64) {
	var best *record.Paid
	for at, d := range s.listed {
		if d.claim == nil || d.claim.Paid == nil || d.claim.Paid.Check() != nil || d.claim.Paid.Through >= at {
			continue
		}
		p := d.claim.Paid
		switch {
		case best == nil,
			best.Through < n && p.Through > best.Through,
			p.Through >= n && p.Through < best.Through:
			best = p
		}
	}
	if best == nil {
		return b, 0
	}
	for _, a := range best.Amounts {
		b.Amounts = append(b.Amounts, spend.Amount{Sum: a.Sum, Unit: a.Unit, AtMost: a.AtMost})
	}
	b.Unknown = best.Unknown
	return b, best.Through
}

// account is what is known of a work's costs now.
func (s *shelf) account(w plan.Digest, h History, seen *witness.Seen) spend.Account {
	list, carried, gone := s.paid(w, h, seen, runners.MaxDispatch)
	carried.Unknown += gone
	a := spend.Account{Now: s.purse.now(), First: s.purse.first, Carried: carried}
	for _, l := range list {
		a.Launches = append(a.Launches, l.Interval)
	}
	return a
}

// carry is what the claim of dispatch n carries: the cost of those that whoever reads the newest ones will not see. What is
// still paid for by then is counted until now, and as unknown from now on. nil: there are none.
func (s *shelf) carry(w plan.Digest, h History, seen *witness.Seen, n int64) *record.Paid {
	through := n - carriedBehind
	if through < 1 {
		return nil
	}
	list, b, gone := s.paid(w, h, seen, through)
	b.Unknown += gone
	for _, l := range list {
		one := spend.Charge(l.Interval, s.purse.now())
		if one.Open > 0 {
			one.Unknown, one.Open = 1, 0
		}
		b = b.Add(one)
	}
	out := &record.Paid{Through: through, Unknown: b.Unknown}
	for _, a := range b.Amounts[:min(len(b.Amounts), record.MaxUnits)] {
		out.Amounts = append(out.Amounts, record.Amount{Sum: a.Sum, Unit: a.Unit, AtMost: a.AtMost})
	}
	return out
}

// relook is how often the launches of a held lease are listed again for its limits: an earlier one may have been closed.
const relook = 5 * time.Minute

// reckon brings what a work's limits rest on up to date. It costs nothing while the lease is not held and its records were
// read, and one listing in five minutes while it is.
func (r *records) reckon(ctx context.Context, w plan.Digest, seen *witness.Seen) error {
	s := r.shelf(w)
	p := &s.purse
	p.sees(seen)
	held := seen != nil && seen.Record.State == witness.Held
	if held && (!s.have || p.dispatch != seen.Record.Dispatch || time.Since(p.looked) > relook) {
		s.stale = true
		if _, err := r.history(ctx, w, seen); err != nil {
			return err
		}
		p.looked, p.dispatch = time.Now(), seen.Record.Dispatch
	}
	if d := s.listed[1]; d != nil && !d.modified.IsZero() && p.first.IsZero() {
		p.first = d.modified
	}
	if (!p.first.IsZero() || s.last == 0) && !p.doubted() {
		return nil
	}
	page, err := r.b.List(ctx, record.DispatchPrefix(string(w)), "", 1) // the first one is never let go
	if err != nil {
		return fmt.Errorf("first launch of work %s: %w", w.Short(), err)
	}
	if p.clock(page.Date); len(page.Items) == 1 && p.first.IsZero() {
		p.first = page.Items[0].Modified
	}
	return nil
}

// keptAt is when the snapshot was written that the resume pointer names; zero: there is none.
func (r *records) keptAt(ctx context.Context, w plan.Digest, rec *witness.Record) (time.Time, error) {
	p := &r.shelf(w).purse
	if rec.Resume == nil {
		return time.Time{}, nil
	}
	if p.manifest == rec.Resume.Manifest {
		return p.kept, nil
	}
	page, err := r.b.List(ctx, rec.Resume.Manifest, "", 1)
	if err != nil {
		return time.Time{}, fmt.Errorf("milestone of work %s: %w", w.Short(), err)
	}
	if len(page.Items) == 0 || page.Items[0].Key != rec.Resume.Manifest {
		return time.Time{}, nil
	}
	p.manifest, p.kept = rec.Resume.Manifest, page.Items[0].Modified
	return p.kept, nil
}
