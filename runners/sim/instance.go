package sim

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/headway-run/headway/runners"
)

// instance is one job's place on a machine of the platform, with the worker on it.
type instance struct {
	id     int
	on     int // number of its machine; what one launch carries is on one
	job    runners.Launch
	fault  Fault
	start  time.Time          // paid from then on
	kill   context.CancelFunc // ends the worker without a word
	once   sync.Once
	notice chan struct{} // closed: asked to leave
	done   chan struct{} // closed: the worker has ended
	closed chan struct{} // closed: nobody pays any more

	// Under Runner.mu.
	over time.Time // paid until then; zero while it is paid for
	left time.Time // its worker ended then; zero while it runs
	end  string    // how the worker ended
	att  int64     // attempt that it captured; 0: none

	cards [2]int // of its machine: from the first to before the second
	step  int64  // steps that it has done
}

// begin makes an instance and its worker. Under r.mu.
func (r *Runner) begin(ctx context.Context, j runners.Launch, on int, late time.Duration) *instance {
	ctx, kill := context.WithCancel(context.WithoutCancel(ctx))
	in := &instance{id: len(r.all) + 1, on: on, job: j, fault: r.nextLocked(OpWorker), start: time.Now().Add(late), kill: kill,
		notice: make(chan struct{}), done: make(chan struct{}), closed: make(chan struct{})}
	r.all = append(r.all, in)
	r.jobs[on]++
	go func() {
		defer close(in.done)
		defer kill()
		end := "killed before it started"
		if sleep(ctx, late) {
			end = r.work(ctx, in, in.fault)
		}
		if in.fault.Effect == Restart && ctx.Err() == nil {
			end = r.work(ctx, in, Fault{})
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		in.end, in.left = end, time.Now()
		if !r.c.UntilReleased {
			r.closeLocked(in)
		}
	}()
	if j.Within > 0 {
		go r.expire(in, late+j.Within)
	}
	return in
}

// expire ends an instance that lasts for longer than its launch allowed, whatever became of its worker.
func (r *Runner) expire(in *instance, after time.Duration) {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-in.closed:
		return
	case <-t.C:
	}
	in.kill()
	<-in.done
	r.close(in)
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

// Kill ends an instance's worker without a word, as a machine does that is gone. Whoever pays goes on to, where that is
// the platform's way.
func (r *Runner) Kill(instance int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if instance > 0 && instance <= len(r.all) {
		r.all[instance-1].kill()
	}
}

// close ends the payment for an instance; its machine is given back with its last one.
func (r *Runner) close(in *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeLocked(in)
}

func (r *Runner) closeLocked(in *instance) {
	if !in.over.IsZero() {
		return
	}
	in.over = time.Now()
	close(in.closed)
	if r.jobs[in.on]--; r.jobs[in.on] == 0 {
		delete(r.jobs, in.on)
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

// Instance is the ground truth of one place on a machine: what really was, whatever any answer said.
type Instance struct {
	ID       int
	Machine  int   // from 1; the jobs of one launch share one
	Cards    []int // of its machine, from 0
	Work     string
	Dispatch int64
	Attempt  int64 // that its worker captured; 0: none
	Step     int64 // steps done
	Live     bool  // it runs, or is at least paid for
	End      string
	Paid     time.Duration
	Worked   time.Duration // from its start to its worker's end
}

// Truth lists every instance that ever was, in the order they were made.
func (r *Runner) Truth() []Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Instance, 0, len(r.all))
	for _, in := range r.all {
		var cards []int
		for c := in.cards[0]; c < in.cards[1]; c++ {
			cards = append(cards, c)
		}
		out = append(out, Instance{ID: in.id, Machine: in.on, Cards: cards, Work: in.job.Work, Dispatch: in.job.Dispatch, Attempt: in.att, Step: in.step,
			Live: in.over.IsZero(), End: in.end, Paid: in.paid(), Worked: in.worked()})
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

// worked is how long its worker has run so far. Under Runner.mu.
func (in *instance) worked() time.Duration {
	until := in.left
	if until.IsZero() {
		until = time.Now()
	}
	return max(0, until.Sub(in.start))
}

// Meter is what the platform counted.
type Meter struct {
	Calls   map[Op]int     // workers that started are counted as calls of OpWorker
	Fired   map[Effect]int // faults that really struck: a test that injects one asserts that it did
	Workers map[Effect]int // of these, how many were workers'
	Started int            // instances
	Live    int            // instances that run, or are paid for
	Busy    int            // machines with at least one of these: what slots are counted in
	Paid    time.Duration  // sum over machines: each from its start until its last instance is over
	Cost    float64        // Config.Price × hours
}

// Meter reads the meter.
func (r *Runner) Meter() Meter {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := Meter{Calls: maps.Clone(r.calls), Fired: maps.Clone(r.fired), Workers: maps.Clone(r.ofWorkers), Started: len(r.all), Busy: len(r.jobs)}
	longest := make([]time.Duration, r.machines+1)
	for _, in := range r.all {
		longest[in.on] = max(longest[in.on], in.paid())
		if in.over.IsZero() {
			m.Live++
		}
	}
	for _, d := range longest {
		m.Paid += d
	}
	m.Cost = m.Paid.Hours() * r.c.Price
	return m
}
