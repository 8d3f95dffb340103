package sim

import (
	"context"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// Work is a worker that stands in for the platform's own: it does everything from the start of the machine
// (Post.Model.Start) to the end of the program, faults included, and returns how it ended, for Truth. ctx ends when the
// machine is killed: from then on nothing of the worker may say another word to anybody, and Work returns.
type Work func(ctx context.Context, p Post) (end string)

// Post is the machine that a Work finds itself on.
type Post struct {
	Instance int // from 1
	Job      runners.Launch
	Bucket   bucket.Bucket   // what Config.Port gave for this instance, or Config.Bucket
	Fault    Fault           // what the script has for this worker; Effect None when it has nothing. The Work plays it
	Model    Model           // complete, with what the claim's terms say put in
	Notice   <-chan struct{} // closed: asked to leave. ctx ends Model.Notice later

	// For Truth. They may be called from any goroutine, also not at all.
	Captured func(attempt int64)
	Stepped  func(step int64)
}

// work runs the worker of an instance until it ends.
func (r *Runner) work(ctx context.Context, in *instance, f Fault) (end string) {
	b := r.c.Bucket
	if r.c.Port != nil {
		b = r.c.Port(in.id)
	}
	m := r.c.Model.under(in.job.Claim.Terms)
	if r.c.Work == nil {
		w := worker{r: r, in: in, f: f, b: b, m: m}
		return w.run(ctx)
	}
	return r.c.Work(ctx, Post{Instance: in.id, Job: in.job, Bucket: b, Fault: f, Model: m, Notice: in.notice,
		Captured: func(attempt int64) { r.captured(in, attempt) },
		Stepped:  func(step int64) { r.stepped(in, step) }})
}

func (r *Runner) captured(in *instance, attempt int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.att = attempt
}

func (r *Runner) stepped(in *instance, step int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.step = step
}
