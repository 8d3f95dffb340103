package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-run/headway/runners/agent/courier"
	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// desk is what the socket, the courier and the lease's goroutine know of one attempt. Evidence comes in here; the
// keeper, which alone holds the lease, is woken when it is worth a write. No method of desk touches the store.
type desk struct {
	terms record.Terms
	wake  chan struct{} // to the keeper: look at the desk
	leave chan struct{} // closed when a milestone that was accepted after the notice is settled
	vain  chan struct{} // closed when nothing of what is computed reaches the store any more: leave
	over  chan struct{} // closed when the lease is over or given up
	say   func(event string, step int64, reason string)
	mask  func(string) string // takes secrets out of what the program says, before it is cut

	mu       sync.Mutex
	changed  chan struct{} // closed and renewed whenever something below changes
	pace     pace
	book     ledger
	phase    phase
	told     int64 // last step of this loop: it never goes back
	counts   bool  // told is a number of this loop, and not yet where it begins
	step     int64 // how far the attempt is: the last step told, the resumed one before that
	ackAt    time.Time
	lease    witness.Lease // as the store last acknowledged it
	force    int64         // number of writes that were asked for ahead of time
	forced   int64         // of these, how many are acknowledged
	nextTry  time.Time     // not before: the store was unreachable
	unknown  time.Time     // since when no write had a verdict; zero: the last one had
	ended    *ending
	closing  bool             // the last write is on its way: no renewal any more
	own      witness.Record   // the last version that surely is ours
	pending  []courier.Report // acknowledged milestones that the witness does not name yet, in order
	accepted int64            // milestones taken over
	settled  int64            // of these: named, failed or skipped
	failed   int64
	named    int64 // highest milestone of this attempt that the witness names
	markStep int64 // step and time of the last accepted milestone
	markAt   time.Time
	bytes    int64         // of the last milestone
	arrived  int64         // milestones that reached the store
	carried  time.Duration // while they were on their way
	began    bool          // the program was started
	evident  bool          // a step, a phase or a milestone was seen
	notice   int64         // accepted when the notice to leave came; -1: none came
	lastWord string
	lost     []record.Pointer // the newest accepted milestones that the witness will not name

	row      int       // milestones in a row that failed to go up
	rowSince time.Time // the first of them
	rowExit  *Exit     // how the last of them failed
	why      *Exit     // vain is closed: the reason
}

// What is computed and does not reach the store is lost with the attempt. After a failed milestone the attempt goes on
// for one milestone interval (at least as long as the courier asks for one), or until the third in a row has failed.
const (
	maxRow     = 3
	minRowTime = 2 * time.Minute
)

// ending is why the lease is over.
type ending struct {
	code string // lease_lost or revoked, as the program is told
	exit Exit
}

func (e *ending) Error() string { return e.exit.Text }

func newDesk(t record.Terms, say func(string, int64, string)) *desk {
	return &desk{terms: t, say: say, mask: func(s string) string { return s }, wake: make(chan struct{}, 1), leave: make(chan struct{}), vain: make(chan struct{}), over: make(chan struct{}),
		changed: make(chan struct{}), notice: -1, phase: startPhase(t), markAt: time.Now(), book: newLedger(t, time.Now())}
}

// tell wakes everybody who waits for a change. The lock is held.
func (d *desk) tell() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// greet begins a loop: its steps count from anywhere, also from below what was resumed.
func (d *desk) greet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told, d.counts = 0, false
	d.pause(time.Now())
	d.book.greet(time.Now())
}

// pause says that what passed until now was no step: the loop stood at the agent's counter. The lock is held.
func (d *desk) pause(now time.Time) {
	d.pace.pause(now)
	d.book.skip(now)
}

// stood is pause without the lock.
func (d *desk) stood() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause(time.Now())
}

// stepped notes that n steps are finished; false when that goes back. It is the one-way path of a step: no I/O.
func (d *desk) stepped(n int64) bool { return d.steppedWith(n, outlay{}) }

// steppedWith is stepped with what the program says of its time.
func (d *desk) steppedWith(n int64, s outlay) bool {
	now := time.Now()
	d.mu.Lock()
	if n < d.told {
		d.mu.Unlock()
		return false
	}
	d.evident = true
	more := n - d.told
	if !d.counts { // how many steps this first number stands for is not known: one that goes on from 10,000 has made one
		if more = 1; n == d.step {
			more = 0
		}
	}
	d.pace.step(now, more)
	if d.pace.count == warmUp && d.lease.Seconds > 1.5*promise(d.terms, &d.pace, d.phase).Seconds {
		d.force++ // what the first steps needed is over
	}
	if d.terms.WatchPath == "" { // else the watcher has booked it
		d.book.stepped(now, more, s)
	}
	d.told, d.counts, d.step = n, true, n
	if d.phase.name == "start" {
		d.phase = phase{}
		d.force++ // shrink the start's promise to the steps'
	}
	if d.row > 0 {
		d.vainly(now, nil)
	}
	due := d.due(now)
	d.mu.Unlock()
	if due {
		d.poke()
	}
	return true
}

// watched books the steps of a finished file, before it is taken: its manifest has them.
func (d *desk) watched(step int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := max(d.step, d.book.filed)
	d.book.filed = max(step, from)
	d.book.stepped(time.Now(), d.book.filed-from, outlay{})
}

// vainly looks whether the milestones have failed for too long; err is a new failure. The lock is held.
func (d *desk) vainly(now time.Time, err error) {
	if err != nil {
		if d.row++; d.row == 1 {
			d.rowSince = now
		}
		e := exitOf(err)
		d.rowExit = &e
	}
	if d.why != nil || d.row == 0 || d.row < maxRow && now.Sub(d.rowSince) < max(d.interval(), minRowTime) {
		return
	}
	e := *d.rowExit
	e.Text = fmt.Sprintf("no milestone reached the store for %s (%d in a row failed): stopped, since what is computed would be lost: %s",
		now.Sub(d.rowSince).Round(time.Second), d.row, e.Text)
	d.why = &e
	close(d.vain)
}

// refusedMilestone notes a milestone that was not taken over. Want of space is no fault of who handed it over, and
// counts like an upload that failed.
func (d *desk) refusedMilestone(step int64, err error) {
	d.say("milestone refused", step, err.Error())
	if _, ok := errors.AsType[*files.DiskFull](err); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.vainly(time.Now(), err)
	}
}

// interval is the time between two milestones as the terms ask for it; 0 when the step time is not known yet. The lock
// is held.
func (d *desk) interval() time.Duration {
	s := max(d.terms.MilestoneS, float64(d.terms.MilestoneSteps)*d.pace.median().Seconds())
	if d.terms.WatchPath != "" {
		s = max(s, d.terms.WatchIntervalS)
	}
	return time.Duration(min(s, maxExpect) * float64(time.Second))
}

// evidence notes progress that is no step: verified or acknowledged bytes, a finished file, a loop that waits.
func (d *desk) evidence() {
	d.mu.Lock()
	due := d.due(time.Now())
	d.mu.Unlock()
	if due {
		d.poke()
	}
}

func (d *desk) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// due says whether evidence that arrives now is worth a write. The lock is held.
func (d *desk) due(now time.Time) bool {
	if d.ended != nil || d.closing || now.Before(d.nextTry) {
		return false
	}
	return len(d.pending) > 0 || d.forced < d.force || now.Sub(d.ackAt) >= d.lease.RenewAfter()
}

// fresh says whether the last acknowledged renewal is far enough from running out. The lock is held.
func (d *desk) fresh(now time.Time) bool {
	l := d.lease.Length()
	return now.Sub(d.ackAt) < l-l/4
}

// quiet is for how long one-way steps suffice. The lock is held.
func (d *desk) quiet() float64 {
	return min(d.lease.Seconds, promise(d.terms, &d.pace, phase{}).Seconds) / 6
}

// await waits until cond holds (asked under the lock), the lease is over, or ctx ends. standing: who waits is a loop
// that stands at its line, or the agent at the end of its work, so that waiting is evidence for as long as it lasts;
// otherwise only a milestone that has arrived is.
func (d *desk) await(ctx context.Context, standing bool, cond func(now time.Time) bool) error {
	for {
		d.mu.Lock()
		end, ok, changed, arrived := d.ended, cond(time.Now()), d.changed, len(d.pending) > 0
		d.mu.Unlock()
		if end != nil {
			return end
		}
		if ok {
			return nil
		}
		if standing || arrived {
			d.evidence()
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// verdict waits as the verdict rule says and answers an asking step.
func (d *desk) verdict(ctx context.Context) (stepAnswer, error) {
	if err := d.await(ctx, true, d.fresh); err != nil {
		return stepAnswer{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause(time.Now())
	a := stepAnswer{OK: true, QuietS: d.quiet()}
	if d.notice >= 0 {
		stop := "yield"
		a.Stop, a.Due = &stop, d.accepted == d.notice
	}
	if d.terms.MilestoneS > 0 && time.Since(d.markAt).Seconds() >= d.terms.MilestoneS {
		a.Due = true
	}
	return a, nil
}

// enter declares a phase (name empty: back to steps) and returns when the lease covers it.
func (d *desk) enter(ctx context.Context, ph phase) (quiet float64, err error) {
	d.mu.Lock()
	now := time.Now()
	d.phase, d.evident = ph, true
	d.book.turn(now, ph.mode())
	want := d.forced
	switch left := d.lease.Length() - now.Sub(d.ackAt); {
	case ph.name != "" && left-left/4 <= ph.expect:
		d.force++
		want = d.force
	case ph.name == "" && d.lease.Seconds > 1.5*promise(d.terms, &d.pace, phase{}).Seconds:
		d.force++ // shrink it soon; nobody waits for that
	}
	d.mu.Unlock()
	d.evidence() // the loop stands at its line
	if err := d.await(ctx, true, func(time.Time) bool { return d.forced >= want }); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause(time.Now())
	return d.quiet(), nil
}

// took notes an accepted milestone. It is called after the courier's Stage; the report may have come before.
func (d *desk) took(step int64) {
	d.mu.Lock()
	d.accepted++
	d.evident = true
	d.step = max(d.step, step)
	d.markStep, d.markAt = step, time.Now()
	d.pace.pause(d.markAt)
	d.tell()
	d.mu.Unlock()
	d.evidence()
}

// reported takes a courier's report: what is complete waits for the keeper, what is not is settled.
func (d *desk) reported(r courier.Report) {
	d.mu.Lock()
	d.bytes = r.Bytes
	if r.Err == nil {
		d.row = 0
		d.arrived, d.carried = d.arrived+1, d.carried+r.Took
		d.pending = append(d.pending, r)
		d.tell() // whoever stands and waits is evidence enough to move the pointer; else the next step is
	} else {
		d.settle(false)
		d.lose(r)
	}
	d.mu.Unlock()
	if r.Err != nil {
		d.say("milestone failed", r.Pointer.Step, r.Err.Error())
	}
}

// pop takes the milestone off whose pointer was moved or refused. The lock is held.
func (d *desk) pop() {
	if len(d.pending) > 0 { // else the end has given it up meanwhile
		d.pending = d.pending[1:]
	}
}

// settle counts one milestone as named or failed. The lock is held.
func (d *desk) settle(named bool) {
	d.settled++
	if !named {
		d.failed++
	}
	if d.notice >= 0 && d.settled > d.notice {
		select {
		case <-d.leave:
		default:
			close(d.leave)
		}
	}
	d.tell()
}

// drain waits until every accepted milestone is settled, and says which one the witness names.
func (d *desk) drain(ctx context.Context, standing bool) (named, failed int64, err error) {
	err = d.await(ctx, standing, func(time.Time) bool { return d.settled >= d.accepted && len(d.pending) == 0 })
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.named, d.failed, err
}

// leaving notes that the agent was asked to leave.
func (d *desk) leaving() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.notice < 0 {
		d.notice = d.accepted
		d.tell()
	}
}

// reason is why vain is closed.
func (d *desk) reason() *Exit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

// end notes that the lease is over; the first reason stays.
func (d *desk) end(e *ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		d.close(e)
		d.tell()
	}
}

// close ends the lease's time. The lock is held.
func (d *desk) close(e *ending) {
	d.ended = e
	d.book.lost(time.Now())
	close(d.over)
}

// sums is where the attempt's time went so far.
func (d *desk) sums() *record.Sums {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.book.sums(time.Now())
	s.Snapshots, s.UploadS = d.arrived, d.carried.Seconds()
	return s
}

// saving: a milestone is being handed over, until the answer is called.
func (d *desk) saving() (saved func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.saving(time.Now())
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.book.saved(time.Now())
	}
}

// What the author of a program can do that gave no evidence of progress until its lease was written off.
const (
	noStep = "the program never said that a step ended: call run.step from its loop, declare a long first step with run.phase, set watch:, or promise a longer silence with lease: {floor: 30m}"
	noFile = "no finished file has matched the watch path %.120q: mend the path, or promise a longer silence with watch: {interval: 30m} or lease: {floor: 30m}"
)

// mended makes the end of an attempt that was written off say what its author can do, when the program ran and never
// gave any evidence of progress. It has a class of its own: that the worker was there to see it makes it the program's.
func (d *desk) mended(e *ending) *ending {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.exit.Class != "deposed" || d.evident || !d.began || time.Since(d.ackAt) < d.lease.Length() {
		return e
	}
	class, what := "no_step", noStep
	if d.terms.WatchPath != "" {
		class, what = "no_file", fmt.Sprintf(noFile, d.terms.WatchPath)
	}
	e.exit.Class, e.exit.Text = class, what+" ("+e.exit.Text+")"
	return e
}

// running notes that the program was started.
func (d *desk) running() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = true
}

// word keeps the program's own last words.
func (d *desk) word(text string) {
	text = d.mask(text)
	if len(text) > maxErrorText {
		text = text[len(text)-maxErrorText:]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastWord = text
}

// at is how far the attempt is.
func (d *desk) at() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.step
}

// record is the last version of the witness that surely is ours.
func (d *desk) record() witness.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.own
}

// settledRecord is record after the last milestone: what has not arrived by now is not waited for. Where a pointer
// may still be on its way the record names none, so that nothing is built on the wrong one.
func (d *desk) settledRecord() witness.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaveBehind()
	r := d.own
	if !d.unknown.IsZero() {
		r.Resume = nil
	}
	return r
}
