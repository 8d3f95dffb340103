package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/witness"
)

// A process can be stopped at any instruction and go on an hour later, believing what it read before. What it writes is
// conditional or creates what is absent, so the store refuses it; what it does beyond the store (a call to a platform, a
// stop of whoever holds a lease) is bounded here: each act has a time until which its grounds may be believed.

// groundsFor is how long what was read may be acted on without another look.
const groundsFor = 30 * time.Second

// callWithin is how long after its last look a launch may call its platform, given the capture window. Others wait
// for a whole window before they claim the next number, so a quarter of it leaves them and the worker the rest. Pure.
func callWithin(window time.Duration) time.Duration {
	if window <= 0 {
		window = capturePrior
	}
	return min(groundsFor, window/4)
}

// grounds is what the acts of one pass rest on beside the lease: the accepted plan, and when it was last known to be the
// one in force. Any goroutine may ask.
type grounds struct {
	key     string
	version bucket.Version // "": none was accepted
	mu      sync.Mutex
	asked   time.Time
}

// hold reports whether the plan that was in force still is, and asks the store again once that is old. Long passes and
// long bundles are no reason to give up: the question is one small listing, and none while the answer is fresh.
func (g *grounds) hold(ctx context.Context, b bucket.Bucket) (bool, error) {
	g.mu.Lock()
	fresh := !runners.Passed(g.asked.Add(groundsFor))
	g.mu.Unlock() // never held over a request: an act whose own time is over must not wait for another's answer
	if fresh {
		return true, nil
	}
	now := time.Now()
	p, err := b.List(ctx, g.key, "", 1)
	if err != nil {
		return false, fmt.Errorf("see whether the accepted plan is still in force: %w", err)
	}
	version := bucket.Version("")
	if len(p.Items) > 0 && p.Items[0].Key == g.key {
		version = p.Items[0].Version
	}
	if version != g.version {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.After(g.asked) {
		g.asked = now
	}
	return true, nil
}

// Why an act was dropped: the next pass decides anew.
const (
	textPlanChanged  = "the accepted plan has changed since: nothing was done"
	textLeaseChanged = "the lease has changed since: nothing was claimed"
)

// late takes an act that came too late out of the errors: nothing is wrong with the store, the platform or the job.
func (o *order) late() {
	if l, ok := errors.AsType[*runners.Late](o.a.Err); ok {
		o.a.Err, o.a.Result, o.a.Done = nil, l.Error(), false
	}
}

// stillOver reports whether nobody has taken, lost or given up the lease since the release was decided. It asks only when
// what the decision rested on is old. That the holder of another dispatch renewed meanwhile changes nothing.
func (r *Reconciler) stillOver(ctx context.Context, o *order) (bool, error) {
	if !runners.Passed(o.looked.Add(groundsFor)) {
		return true, nil
	}
	seen, err := witness.Read(ctx, r.b, string(o.t.work))
	switch {
	case errors.Is(err, witness.ErrAbsent):
		return o.seen == nil, nil
	case err != nil:
		return false, fmt.Errorf("read the lease once more before the release: %w", err)
	case o.seen == nil:
		return false, nil
	}
	was, is := o.seen.Record, seen.Record
	return was.State == is.State && was.Attempt == is.Attempt && was.Dispatch == is.Dispatch, nil
}
