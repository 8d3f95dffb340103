package sim

import (
	"context"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
)

// instance is one machine of the platform, with the worker on it.
type instance struct {
	id     int
	job    runners.Launch
	fault  Fault
	start  time.Time          // paid from then on
	kill   context.CancelFunc // ends the worker without a word
	once   sync.Once
	notice chan struct{} // closed: asked to leave
	done   chan struct{} // closed: the worker has ended

	// Under Runner.mu.
	over time.Time // paid until then; zero while it is paid for
	end  string    // how the worker ended
	att  int64     // attempt that it captured; 0: none
	step int64     // steps that it has done
}

// begin makes an instance and its worker. Under r.mu.
func (r *Runner) begin(ctx context.Context, j runners.Launch, late time.Duration) *instance {
	ctx, kill := context.WithCancel(context.WithoutCancel(ctx))
	in := &instance{id: len(r.all) + 1, job: j, fault: r.nextLocked(OpWorker), start: time.Now().Add(late), kill: kill,
		notice: make(chan struct{}), done: make(chan struct{})}
	r.all = append(r.all, in)
	go func() {
		defer close(in.done)
		defer kill()
		end := "killed before it started"
		if sleep(ctx, late) {
			w := worker{r: r, in: in, b: r.c.Bucket, m: r.c.Model.under(j.Claim.Terms)}
			end = w.run(ctx)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		in.end = end
		if !r.c.UntilReleased && in.over.IsZero() {
			in.over = time.Now()
		}
	}()
	return in
}

// leave asks the worker to go and kills it after the notice.
func (in *instance) leave(notice time.Duration) {
	in.once.Do(func() { close(in.notice) })
	if notice <= 0 {
		in.kill()
		return
	}
	go func() {
		t := time.NewTimer(notice)
		defer t.Stop()
		select {
		case <-t.C:
			in.kill()
		case <-in.done:
		}
	}()
}

// close ends the payment.
func (r *Runner) close(in *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.over.IsZero() {
		in.over = time.Now()
	}
}

// sleep waits, and reports false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Instance is the ground truth of one machine: what really was, whatever any answer said.
type Instance struct {
	ID       int
	Work     string
	Dispatch int64
	Attempt  int64 // that its worker captured; 0: none
	Step     int64 // steps done
	Live     bool  // it runs, or is at least paid for
	End      string
	Paid     time.Duration
}

// Truth lists every instance that ever was, in the order they were made.
func (r *Runner) Truth() []Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Instance, 0, len(r.all))
	for _, in := range r.all {
		out = append(out, Instance{ID: in.id, Work: in.job.Work, Dispatch: in.job.Dispatch, Attempt: in.att, Step: in.step,
			Live: in.over.IsZero(), End: in.end, Paid: in.paid()})
	}
	return out
}

// paid is how long the instance was paid for so far. Under Runner.mu.
func (in *instance) paid() time.Duration {
	until := in.over
	if until.IsZero() {
		until = time.Now()
	}
	return max(0, until.Sub(in.start))
}

// Meter is what the platform counted.
type Meter struct {
	Calls   map[Op]int     // workers that started are counted as calls of OpWorker
	Fired   map[Effect]int // faults that really struck: a test that injects one asserts that it did
	Started int            // instances
	Live    int
	Paid    time.Duration
	Cost    float64 // Config.Price × hours
}

// Meter reads the meter.
func (r *Runner) Meter() Meter {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := Meter{Calls: map[Op]int{}, Fired: map[Effect]int{}, Started: len(r.all)}
	for k, v := range r.calls {
		m.Calls[k] = v
	}
	for k, v := range r.fired {
		m.Fired[k] = v
	}
	for _, in := range r.all {
		m.Paid += in.paid()
		if in.over.IsZero() {
			m.Live++
		}
	}
	m.Cost = m.Paid.Hours() * r.c.Price
	return m
}
