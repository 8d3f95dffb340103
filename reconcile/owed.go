package reconcile

import (
	"context"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// accountWithin is how long a worker has for its account behind its last word in the lease, before a platform is told to end
// whoever the receipt names.
const accountWithin = time.Minute

// blindOf are the platforms that can't list. A launch that started twice there is known by one of its two instances at most,
// and nothing says whether that is the one that took the lease: where the other did, nobody would ever end the first.
func blindOf(platforms map[string]runners.Runner) map[string]bool {
	out := map[string]bool{}
	for name, runner := range platforms {
		if _, lists := runner.(runners.Lister); runner != nil && !lists {
			out[name] = true
		}
	}
	return out
}

// stays: that its worker has left does not say that nothing of it runs, or is paid for.
func (d Dispatch) stays() bool { return d.Outlives || d.Blind }

// outlive reports whether a machine of any platform may be paid for once the worker that was heard of has left. Where none
// may, nothing is asked of finished works, and in the end most works are.
func (r *Reconciler) outlive() bool {
	if len(r.records.blind) > 0 {
		return true
	}
	for _, runner := range r.c.Runners {
		if runners.AskOutlives(runner) {
			return true
		}
	}
	return false
}

// owes reads what is still to be released of a finished work: one GET of its receipt for each process, one more of the
// first answer to a release, and its history only while that did not close it.
func (r *Reconciler) owes(ctx context.Context, w plan.Digest, l *look, s *sight) {
	if l.clear || r.c.Dry || l.seen == nil || l.seen.Record.Dispatch < 1 {
		return
	}
	shelf, n := r.records.shelf(w), l.seen.Record.Dispatch
	if !shelf.have {
		clear, err := r.records.clear(ctx, w, shelf, n)
		if s.err = err; err != nil || clear {
			l.clear = clear
			return
		}
	}
	h, err := r.records.history(ctx, w, l.seen)
	if err != nil {
		s.err = err
		return
	}
	if f := (Facts{Work: w, Lease: s.lease, History: h}); len(releases(f)) > 0 {
		s.history = h
	} else {
		l.clear = true
	}
}

// clear reports whether the launch that finished a work is known to be over.
func (r *records) clear(ctx context.Context, w plan.Digest, s *shelf, n int64) (bool, error) {
	var rc *record.Receipt
	if d := s.listed[n]; d != nil && d.receipt != nil {
		rc = d.receipt
	} else {
		rc = &record.Receipt{}
		found, err := r.get(ctx, record.ReceiptKey(string(w), n), rc, nil)
		if err != nil && !damaged(err) {
			return false, err
		}
		if !found || err != nil {
			return true, nil // nobody can say whom to ask; the platform's own list is all there is
		}
	}
	if !rc.OK {
		return true, nil
	}
	if !rc.Outlives {
		if len(r.blind) == 0 {
			return true, nil
		}
		if c, err := r.claim(ctx, w, s, n); err != nil || c == nil || !r.blind[c.Platform] {
			return err == nil, err
		}
	}
	var rl record.Release
	found, err := r.get(ctx, record.ReleaseKey(string(w), n, 1), &rl, nil)
	if err != nil && !damaged(err) {
		return false, err
	}
	return found && err == nil && rl.Work == string(w) && rl.Dispatch == n && rl.Settlement == runners.Closed.String(), nil
}

// owed: its worker is over, and its machine is paid for, and takes a place, until its platform says that it is closed.
func (d Dispatch) owed(l Lease) bool {
	return d.OK && d.Outlives && d.Settled != runners.Closed.String() && !d.inFlight(l.Floor) && !(l.State == witness.Held && l.Dispatch == d.N)
}

// isOver: its platform has told this process that it is closed. The records may say so later, when a listing lags.
func (r *Reconciler) isOver(w plan.Digest, n int64) bool {
	q := r.asks[askKey{w, n}]
	return q != nil && q.over && !q.listed
}

// owing counts the machines that are paid for until they are released and whose platform has promised nothing yet.
func (p *pass) owing() (n int) {
	for w, s := range p.world.works {
		for _, d := range s.history.Dispatches {
			if pl := p.platforms[d.Platform]; pl != nil && pl.runner != nil && d.owed(s.lease) && !p.r.isOver(w, d.N) && d.Settled != runners.Bounded.String() {
				n++
			}
		}
	}
	return n
}
