package runners

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Dispatcher is the six verbs (launch, status, events, log, revoke, release) over one store. It keeps nothing between
// two calls: any number of them may work on one store at once, in one process or in many, and every method may be
// called from any goroutine. No lock is held while a platform is called.
type Dispatcher struct {
	Bucket bucket.Bucket
	// Until is how long what the orders rest on may be believed, by this process' clocks; zero: for ever. After it Launch
	// claims nothing, and neither Launch nor Release asks a platform: they answer *Late. A process that is stopped for an
	// hour, at whatever instruction, so finds out before it spends anything, but for the instant between this look at the
	// clock and the call itself. What comes of that is what a launch that starts late comes to: its worker meets a lease
	// that is held, finished or barred, and the machine is one that no lease explains, until it is released.
	Until time.Time
}

// Bounds on what a platform's answer may carry into the store.
const (
	MaxHandle = 16 << 10 // bytes of Receipt.Handle
	maxText   = 500      // bytes of a sentence that is kept for people
	maxRaw    = 4 << 10  // bytes of Failure.Raw
)

// noteTimeout is how long the receipt may take to be written after the platform has answered, even when the
// caller's context ended in the meantime: a launch without a receipt can be found only by listing the platform.
const noteTimeout = 30 * time.Second

// Launched is what became of one order.
type Launched struct {
	Work     string
	Dispatch int64
	// Claimed: the claim is in the store and it is ours. False: somebody else's claim has this number, or the store
	// did not take ours; then nothing was asked of the platform.
	Claimed bool
	// Receipt is what was written (or should have been, see Noted) beside the claim; nil when nothing was asked.
	Receipt *record.Receipt
	// Err is nil when the platform took the launch. Otherwise it is or wraps a *Failure (the platform's answer, or
	// SpawnedElsewhere when the claim was lost), a *Late, or an error of the store from before the call.
	Err error
	// Noted is nil unless the receipt could not be written after the call.
	Noted error
}

// Launch starts orders on one platform in one call of its runner: for each the spec is created if absent, then the claim,
// side by side; only those whose claim is ours go to the runner, all together and in this order; then each gets its
// receipt. The answers are in the order of the orders and as many.
//
// Guaranteed: the platform is never called for a dispatch number whose claim is not known to be ours, nor once Until has
// passed; a panic or a malformed answer of the runner is a ProtocolError and nothing worse. Not guaranteed: that a receipt exists after a
// crash between call and receipt, nor that nothing was started when the class is Unreachable or ProtocolError.
func (d Dispatcher) Launch(ctx context.Context, r Runner, orders []Launch) []Launched {
	out := make([]Launched, len(orders))
	most := AskCapacity(r)
	sideBySide(len(orders), func(i int) {
		o := orders[i]
		out[i] = Launched{Work: o.Work, Dispatch: o.Dispatch}
		if len(orders) > most {
			out[i].Err = fmt.Errorf("%d launches in one call, platform %s takes %d: split them", len(orders), o.Claim.Platform, most)
			return
		}
		out[i].Err = d.claim(ctx, o)
		out[i].Claimed = out[i].Err == nil
	})
	var ours []int
	for i := range out {
		if out[i].Claimed {
			ours = append(ours, i)
		}
	}
	if Passed(d.Until) { // the last look before the call: whoever claimed an hour ago has been replaced by now
		for _, i := range ours {
			out[i].Err = &Late{Op: "launch", Claimed: true}
		}
		return out
	}
	if len(ours) == 0 {
		return out
	}
	jobs := make([]Launch, 0, len(ours))
	for _, i := range ours {
		jobs = append(jobs, orders[i])
	}
	receipts, err := callLaunch(ctx, r, jobs)
	sideBySide(len(ours), func(k int) {
		i := ours[k]
		rec := record.Receipt{Protocol: record.Protocol, Work: jobs[k].Work, Dispatch: jobs[k].Dispatch,
			Nonce: jobs[k].Claim.Nonce, OK: err == nil, Time: time.Now().UTC().Format(time.RFC3339)}
		if err == nil {
			rec.Handle, rec.Text, rec.Outlives = receipts[k].Handle, Bound(receipts[k].Text, maxText), receipts[k].Outlives
			rec.Price, rec.Text = priced(receipts[k].Price, rec.Text)
		} else {
			rec.Class, rec.Text = string(ClassOf(err)), Bound(err.Error(), maxText)
		}
		if len(ours) > 1 {
			rec.Jobs, rec.Share = len(ours), share(jobs, k)
		}
		out[i].Err, out[i].Receipt = err, &rec
		out[i].Noted = d.note(ctx, rec)
	})
	return out
}

// share is the part of a launch's cards that its k-th job computes on; 0: all compute on equally many.
func share(jobs []Launch, k int) float64 {
	sum, equal := 0, true
	for _, j := range jobs {
		sum += max(j.Cards, 1)
		equal = equal && max(j.Cards, 1) == max(jobs[k].Cards, 1)
	}
	if equal {
		return 0
	}
	return float64(max(jobs[k].Cards, 1)) / float64(sum)
}

// sideBySide calls f for 0 … n-1 at once, and returns when all are done. A launch carries few jobs.
func sideBySide(n int, f func(int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// claim writes the spec and the claim of one order. nil: the claim is ours.
func (d Dispatcher) claim(ctx context.Context, o Launch) error {
	if o.Work == "" || o.Claim.Work != o.Work || o.Spec.Work != o.Work || o.Claim.Dispatch != o.Dispatch || o.Dispatch < 1 || o.Claim.Nonce == "" {
		return fmt.Errorf("launch of work %q dispatch %d: claim and spec must name the same work and dispatch, and the claim needs a nonce", o.Work, o.Dispatch)
	}
	if err := WriteSpec(ctx, d.Bucket, o.Spec); err != nil {
		return err
	}
	body, err := record.Encode(o.Claim)
	if err != nil {
		return err
	}
	if Passed(d.Until) {
		return &Late{Op: "launch"}
	}
	var other record.Claim
	won, err := create(ctx, d.Bucket, record.ClaimKey(o.Work, o.Dispatch), body, func(b []byte) bool {
		other = record.Claim{}
		return record.Decode(b, record.MaxRecord, &other) == nil && other.Nonce == o.Claim.Nonce
	})
	if err != nil {
		return fmt.Errorf("claim dispatch %d of work %s: %w", o.Dispatch, short(o.Work), err)
	}
	if !won {
		return &Failure{Class: SpawnedElsewhere, Platform: o.Claim.Platform, Op: "launch",
			Hint: "nothing to do: the other dispatcher's launch counts",
			Err:  fmt.Errorf("dispatch %d of work %s was claimed by %s", o.Dispatch, short(o.Work), Sanitize([]byte(Bound(other.Dispatcher, 100))))}
	}
	return nil
}

// note writes a receipt, also when ctx has ended.
func (d Dispatcher) note(ctx context.Context, rec record.Receipt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	body, err := record.Encode(rec)
	if err != nil {
		return err
	}
	won, err := create(ctx, d.Bucket, record.ReceiptKey(rec.Work, rec.Dispatch), body, func(b []byte) bool {
		var there record.Receipt
		return record.Decode(b, record.MaxRecord, &there) == nil && there.Nonce == rec.Nonce
	})
	if err == nil && !won {
		err = fmt.Errorf("another receipt is there already")
	}
	if err != nil {
		return fmt.Errorf("receipt of dispatch %d of work %s: %w", rec.Dispatch, short(rec.Work), err)
	}
	return nil
}

// callLaunch calls the runner and turns every breach of its contract into a ProtocolError.
func callLaunch(ctx context.Context, r Runner, jobs []Launch) (receipts []Receipt, err error) {
	platform := jobs[0].Claim.Platform
	defer func() {
		if p := recover(); p != nil {
			receipts, err = nil, panicked(platform, "launch", p)
		}
	}()
	receipts, err = r.Launch(ctx, jobs)
	if err != nil {
		return nil, classed(ctx, platform, "launch", err)
	}
	if len(receipts) != len(jobs) {
		return nil, garbage(platform, "launch", fmt.Errorf("%d receipts for %d launches", len(receipts), len(jobs)))
	}
	seen := map[string]bool{}
	for _, rc := range receipts {
		if err := checkHandle(rc.Handle); err != nil {
			return nil, garbage(platform, "launch", err)
		}
		if h := string(compact(rc.Handle)); seen[h] {
			return nil, garbage(platform, "launch", fmt.Errorf("two jobs of one launch with the handle %q: the release of one would end the other", Bound(h, 200)))
		} else {
			seen[h] = true
		}
	}
	return receipts, nil
}

func checkHandle(h json.RawMessage) error {
	switch {
	case len(h) == 0:
		return fmt.Errorf("a receipt without a handle: the launch could never be released")
	case len(h) > MaxHandle:
		return fmt.Errorf("a handle of %d bytes, at most %d are kept", len(h), MaxHandle)
	case !json.Valid(h):
		return fmt.Errorf("a handle that is not JSON: %q", Bound(string(h), 200))
	}
	return nil
}

func panicked(platform, op string, p any) *Failure {
	return &Failure{Class: ProtocolError, Platform: platform, Op: op, Hint: ProtocolError.Advice(),
		Stack: Bound(string(debug.Stack()), maxRaw), Err: fmt.Errorf("the runner panicked: %s", Bound(fmt.Sprint(p), maxText))}
}

func garbage(platform, op string, err error) *Failure {
	return &Failure{Class: ProtocolError, Platform: platform, Op: op, Hint: ProtocolError.Advice(), Err: err}
}

// classed makes a runner's error a *Failure of a known class with every field filled. An error that is none is a
// breach of the contract, except when the caller's own context ended: then nobody knows what the platform did.
func classed(ctx context.Context, platform, op string, err error) *Failure {
	f, ok := asFailure(err)
	switch {
	case ok && f.Class.Advice() != "":
		whole := *f
		whole.Raw = Bound(whole.Raw, maxRaw)
		whole.Op = op
		if whole.Platform == "" {
			whole.Platform = platform
		}
		if whole.Hint == "" {
			whole.Hint = whole.Class.Advice()
		}
		return &whole
	case ctx.Err() != nil:
		return &Failure{Class: Unreachable, Platform: platform, Op: op, Hint: Unreachable.Advice(), Err: err}
	}
	return garbage(platform, op, fmt.Errorf("an error outside of the contract: %w", err))
}
