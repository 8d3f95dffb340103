package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
)

// hurdle is why a work's last launch ended before its claim for a reason of the job's own, and when it is tried again.
// It is remembered here only for its pace: nothing was claimed, so after a restart it is simply tried anew.
type hurdle struct {
	text    string
	passing bool // it may go away without a person
	k       int  // in a row
	next    time.Time
}

// hinder notes what kept a launch from its claim, unless it was the store's trouble: that is of no single job, and
// every pass finds out anew. asked: the claim, or the platform, has answered.
func (r *Reconciler) hinder(a Action, asked bool) {
	if a.Err == nil || asked {
		delete(r.hurdles, a.Work)
		return
	}
	if ofStore(a) {
		return
	}
	h := r.hurdles[a.Work]
	if h == nil {
		h = &hurdle{}
		r.hurdles[a.Work] = h
	}
	h.k++
	e, store := errors.AsType[*bucket.Error](a.Err)
	h.passing = store && (e.Code == bucket.Unknown || e.Code == bucket.Throttled) || errors.Is(a.Err, context.DeadlineExceeded) || errors.Is(a.Err, context.Canceled)
	h.text, h.next = shown(a.Err.Error(), 500), time.Now().Add(delay(backoffBase, h.k, fmt.Sprintf("%s/%d", a.Work, h.k)))
}

// hurdleOf is what a decision needs of it.
func (r *Reconciler) hurdleOf(w plan.Digest) (h Hurdle) {
	if known := r.hurdles[w]; known != nil {
		h = Hurdle{Text: known.text, Left: max(time.Until(known.next), 0), Passing: known.passing}
	}
	return h
}

// unbundled: a job's code could not be brought into the store.
type unbundled struct {
	code string // folder
	err  error
}

func (e *unbundled) Error() string { return fmt.Sprintf("bundle the code of %q: %v", e.code, e.err) }
func (e *unbundled) Unwrap() error { return e.err }

// ofStore reports whether an act that failed says that the store is not well, so that silence proves nothing. Code that
// can't be bundled never says so, whatever its cause: a link in a folder, or an upload that is too slow, is one job's
// trouble and may come again for ever, while the leases themselves are read in each pass.
func ofStore(a Action) bool {
	if _, damaged := errors.AsType[*witness.Unreadable](a.Err); damaged || a.Err == nil {
		return false
	}
	if a.Kind == WriteOff || a.Kind == Move || a.Kind == Stop {
		return true // they speak with the store alone
	}
	if _, own := errors.AsType[*unbundled](a.Err); own {
		return false
	}
	if _, open := errors.AsType[*runners.Unsettled](a.Err); open {
		return true
	}
	e, ok := errors.AsType[*bucket.Error](a.Err)
	if !ok {
		return false
	}
	switch e.Code {
	case bucket.Unknown, bucket.Throttled, bucket.Denied, bucket.NoBucket, bucket.Full:
		return true
	case bucket.NotFound, bucket.Condition, bucket.Raced, bucket.Gone, bucket.BadKey, bucket.Unsupported:
	}
	return false
}

// soreLimit is for how many judgements in a row the store may fail one work before that counts as this work's own
// trouble: a key that this process may not read, say.
const soreLimit = 10

// shaky reports whether the store answered errors since the last judgement of silence, and begins to count anew. A few
// works that it fails again and again while it serves the others prove nothing about the others.
func (r *Reconciler) shaky(w *World) bool {
	for d, s := range w.works {
		if s.err != nil {
			r.sour[d] = true
		}
	}
	maps.DeleteFunc(r.sore, func(d plan.Digest, _ int) bool { return !r.sour[d] })
	shaky := r.storeErrors
	for d := range r.sour {
		r.sore[d]++
		shaky = shaky || r.sore[d] <= soreLimit
	}
	shaky = shaky || 2*len(r.sore) > len(w.works)
	r.storeErrors = false
	clear(r.sour)
	return shaky
}

// packing is a code bundle that is brought into the store, or was in this pass.
type packing struct {
	done chan struct{}
	err  error // once done is closed
}

// bundle brings a job's code into the store. Works that share a code tree share the effort: one of them packs and
// uploads, the others wait for it and take over its answer.
func (r *Reconciler) bundle(ctx context.Context, a asked) error {
	if r.c.Bundle == nil {
		return nil
	}
	key := a.job.CodeTree
	if key == "" {
		key = string(a.job.Work)
	}
	r.mu.Lock()
	p, others := r.packings[key]
	if !others {
		p = &packing{done: make(chan struct{})}
		r.packings[key] = p
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	if !others {
		p.err = r.c.Bundle(ctx, a.job, a.commit)
		close(p.done)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return &unbundled{a.job.Code, ctx.Err()}
	}
	if p.err != nil {
		return &unbundled{a.job.Code, p.err}
	}
	return nil
}

// unpack forgets the bundles that are over, so that the next pass looks anew.
func (r *Reconciler) unpack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.packings {
		select {
		case <-p.done:
			delete(r.packings, key)
		default:
		}
	}
}
