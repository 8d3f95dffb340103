package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/agent/journal"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// run is one attempt in the making: everything that Run passes from step to step.
type run struct {
	c       Config
	spec    record.Spec
	claim   record.Claim
	scratch *scratch
	oom     int64 // kills for want of memory before the program began

	h     *witness.Holder
	began time.Time // capture
	d     *desk
	keep  *keeper
	stop  context.CancelFunc // ends the keeper
	k     *courier.Courier
	logs  *journal.Stream
	happ  *journal.Stream // events
	ev    journal.Events
	out   *journal.Redactor // the program's output
	words *journal.Redactor // for single texts
	tail  *tail
	sieve *sieve
}

// Run does one dispatch from start to end and answers how it ended. It returns when no process of the program is
// left and everything that could be written is written. Cancelling ctx is the notice to leave (SIGTERM): the program
// is asked for a last milestone and the lease is yielded within the claim's grace. Run uses the process's signals,
// environment and working folder not at all; several runs may live in one process.
func Run(ctx context.Context, c Config) Exit {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.check(); err != nil {
		return Exit{CodeInternal, "internal", err.Error()}
	}
	r := &run{c: c, words: journal.NewRedactor(io.Discard, secretValues(nil, c.Environ))}
	c.Log.Info("reading the order", "work", c.Work[:12], "dispatch", c.Dispatch)
	exit := r.start(ctx)
	exit.Text = r.mask(exit.Text)
	c.Log.Info("the run is over", "class", exit.Class, "code", exit.Code, "text", exit.Text)
	return exit
}

func (c *Config) check() error {
	switch {
	case c.Bucket == nil:
		return errors.New("no store")
	case len(c.Work) != 64 || strings.Trim(c.Work, "0123456789abcdef") != "":
		return fmt.Errorf("work %.80q: expected 64 hex digits", c.Work)
	case c.Dispatch < 1:
		return fmt.Errorf("dispatch %d: the first is 1", c.Dispatch)
	case c.Inside != nil && c.Inside.Program == nil:
		return errors.New("no program to run inside this process")
	case len(c.Guard) == 0 && c.Inside == nil:
		return errors.New("no guardian command: without it the program could outlive the agent")
	}
	return nil
}

// start does what comes before the lease, takes it, and hands over to held.
func (r *run) start(ctx context.Context) Exit {
	var err error
	store := r.c.life(ctx)
	p := newPatience(r.c.Log, store.Done())
	if r.spec, r.claim, err = readOrder(ctx, &r.c, p); err != nil {
		return left(ctx, err)
	}
	r.words = journal.NewRedactor(io.Discard, secretValues(r.claim.Secrets, r.c.Environ))
	found, err := r.c.measure(ctx, &r.spec)
	if err != nil {
		r.refuses(store, err, found)
		return left(ctx, err)
	}
	if missing := missingSecrets(r.claim.Secrets, r.c.Environ); len(missing) > 0 {
		return exitOf(refused("the secrets %q are not in the agent's environment: give them to the platform", missing))
	}
	if r.scratch, err = r.c.scratch(); err != nil {
		return exitOf(err)
	}
	defer r.scratch.remove()
	if ctx.Err() != nil {
		return left(ctx, ctx.Err())
	}
	if err := r.capture(ctx, store, p); err != nil && !definite(err) {
		return left(ctx, err)
	} else if err != nil {
		return exitOf(err)
	}
	o := record.Open{Platform: r.claim.Platform, Fingerprint: found, Time: time.Now().UTC().Format(time.RFC3339)}
	if v := r.h.Open(store, o); v.Outcome != witness.Won {
		if v.Over() {
			return overBy(r.h.Seen().Record, v).exit
		}
		return Exit{CodeStore, "store", "the attempt's prefix could not be reserved; the lease runs out by itself: " + errText(v.Err)}
	}
	return r.held(ctx, store)
}

// refuses leaves beside the claim why this machine was not what a pinned work requires: its end leaves no attempt, and whoever
// launched it would see silence. It is said as well as it can be; nothing depends on it.
func (r *run) refuses(store context.Context, err error, found map[string]string) {
	e, ok := errors.AsType[*refusedOrder](err)
	if !ok {
		return
	}
	b, err := record.Encode(record.Refusal{Protocol: record.Protocol, Work: r.c.Work, Dispatch: r.c.Dispatch, Text: journal.Bound(r.mask(e.text), 4<<10),
		Fingerprint: found, Time: time.Now().UTC().Format(time.RFC3339)})
	if err == nil {
		r.create(store, record.RefusalKey(r.c.Work, r.c.Dispatch), b, 10*time.Second)
	}
}

// capture takes the lease, as long as patience lasts.
func (r *run) capture(ctx, store context.Context, p *patience) error {
	hurry := min(time.Duration(r.claim.Terms.GraceS*float64(time.Second))/3, longestOnce)
	return p.ask(ctx, func() (err error) {
		c, done := p.capturing(ctx, store, hurry)
		defer done()
		r.began = time.Now()
		r.h, err = witness.Capture(c, r.c.Bucket, witness.CaptureRequest{Work: r.c.Work, Dispatch: r.c.Dispatch,
			Lease: promise(r.claim.Terms, &pace{}, startPhase(r.claim.Terms))})
		return err
	})
}

// left is the exit for an error before the capture: the notice to leave counts more than what it interrupted.
func left(ctx context.Context, err error) Exit {
	if ctx.Err() != nil {
		return Exit{CodeYielded, "yielded", "asked to leave before the lease was taken: nothing was touched"}
	}
	return exitOf(err)
}

// held runs while the lease is held, and gives it up.
func (r *run) held(ctx, store context.Context) Exit {
	seen := r.h.Seen().Record
	r.logs = journal.New(store, r.c.Bucket, record.LogPrefix(r.c.Work, seen.Attempt))
	r.happ = journal.New(store, r.c.Bucket, record.EventPrefix(r.c.Work, seen.Attempt))
	r.ev = journal.Events{W: r.happ, Attempt: seen.Attempt}
	r.tail = &tail{}
	var bad []string
	r.sieve, bad = newSieve(r.claim.Terms.Policies, r.matched)
	r.out = journal.NewRedactor(io.MultiWriter(r.logs, r.tail, r.sieve), secretValues(r.claim.Secrets, r.c.Environ))
	r.say("captured", seen.Progress.Step, fmt.Sprintf("attempt %d of dispatch %d on %s", seen.Attempt, r.claim.Dispatch, r.claim.Platform))
	for _, why := range bad {
		r.say("policy left out", seen.Progress.Step, why)
	}
	r.d = newDesk(r.claim.Terms, r.say)
	r.d.mask = r.mask
	r.keep = newKeeper(r.d, r.h, r.began)
	r.k = courier.New(store, courier.Config{Store: r.c.Bucket, Work: r.c.Work, Attempt: seen.Attempt,
		Dir: r.scratch.at("milestones"), From: seen.Resume, Sums: r.d.sums, Report: r.d.reported})
	defer r.k.Close()
	keeping, stop := context.WithCancel(store)
	r.stop = stop
	go r.keep.run(keeping)
	looking, blind := context.WithCancel(store)
	lookout := make(chan struct{})
	go func() { defer close(lookout); r.lookout(looking, seen) }()
	exit := r.program(ctx, store, seen)
	blind()
	<-lookout
	stop()
	<-r.keep.done
	return exit
}

// matched: the first line that a policy names. What follows from it is decided where the attempt is judged.
func (r *run) matched(m record.Match) {
	r.say("policy", r.d.at(), fmt.Sprintf("the output has %q, which is then: %s (log: %q)", m.Line, m.Then, m.Log))
}

// program fetches, starts the program, stands by it, and ends the attempt.
func (r *run) program(ctx, store context.Context, seen witness.Record) Exit {
	l, err := r.fetch(ctx, seen)
	if err != nil {
		if ctx.Err() != nil {
			return r.giveUp(store, Exit{CodeYielded, "yielded", "asked to leave before the program began"}, guard.Ended{}, "")
		}
		return r.giveUp(store, exitOf(err), guard.Ended{}, "")
	}
	if seen.Resume != nil {
		r.say("resumed", seen.Resume.Step, fmt.Sprintf("from milestone %d of attempt %d, verified", seen.Resume.Milestone, seen.Resume.Attempt))
	}
	r.oom = r.c.oomKills()
	srv := &server{d: r.d, k: r.k, work: r.c.Work, attempt: seen.Attempt, resume: l.resume, cwd: l.cwd}
	if path, err := r.listen(srv); err != nil {
		return r.giveUp(store, exitOf(err), guard.Ended{}, "")
	} else if r.claim.Terms.WatchPath == "" {
		l.env["HEADWAY_SOCKET"] = path
	}
	serving, hang := context.WithCancel(store)
	srv.serve(serving)
	ended, asked := r.watchOver(ctx, store, srv, l)
	hang()
	srv.close()
	r.out.Flush()
	return r.judge(ctx, store, l, ended, asked)
}

func (r *run) fetch(ctx context.Context, seen witness.Record) (*laid, error) {
	ctx, done := r.whileHeld(ctx)
	defer done()
	l, err := layAll(ctx, &r.c, &r.spec, &r.claim, r.scratch, seen, func(int64) { r.d.evidence() })
	if err == nil {
		err = r.probe(ctx, l)
	}
	if e := r.overNow(); e != nil {
		return nil, e
	}
	return l, err
}

// whileHeld is a context that also ends with the lease.
func (r *run) whileHeld(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-r.d.over:
			cancel(r.overNow())
		case <-done:
		}
	}()
	return ctx, func() { close(done); cancel(nil) }
}

// overNow is why the lease is over, or nil.
func (r *run) overNow() error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.d.ended == nil {
		return nil
	}
	return r.d.ended
}

// mask takes the values of secrets out of a text. Everything that leaves the agent in words goes through it before it
// is cut to length: half a secret would not be found any more.
func (r *run) mask(text string) string { return r.words.Text(text) }

// say writes an event, and the same to whoever watches the agent.
func (r *run) say(event string, step int64, reason string) {
	reason = r.mask(reason)
	r.ev.Say(event, step, reason)
	if event != "note" {
		r.c.Log.Info(event, "step", step, "reason", journal.Bound(reason, 500))
	}
}

// lookout reads the witness, and never writes it, when nothing was renewed for a whole lease: a program that hangs
// sends no evidence, and its agent must still learn that somebody wrote it off, or it would hold its machine for ever.
func (r *run) lookout(ctx context.Context, own witness.Record) {
	for {
		r.d.mu.Lock()
		silent, length := time.Since(r.d.ackAt), r.d.lease.Length()
		r.d.mu.Unlock()
		wait := length - silent
		if wait <= 0 {
			r.look(ctx, own)
			wait = max(length/3, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.d.over:
			return
		case <-time.After(wait):
		}
	}
}

func (r *run) look(ctx context.Context, own witness.Record) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	seen, err := witness.Read(ctx, r.c.Bucket, own.Work)
	if err != nil {
		return // a store that cannot be read says nothing
	}
	if by := seen.Record; by.Holder != own.Holder || by.Attempt != own.Attempt {
		r.d.end(r.d.mended(deposed(own, by)))
	}
}
