package world

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/bucket"
)

// request is one call of an actor that waits for the scheduler.
type request struct {
	by   *life
	op   string
	key  string // key, prefix, or what a platform is asked for
	body []byte
	cond bucket.Cond

	apply  func(*request) // carries it out, on the scheduler's goroutine; nil: there is nothing to carry out
	call   bool           // of a platform or of Git, not of the store
	landed int            // how often it was carried out
	stale  bool           // the answer is an old one
	half   bool           // the answer is cut

	unheard bool // whatever becomes of it, its sender gets no answer, or one that comes too late

	// The answer. Written before answered is closed, and by nobody afterwards.
	err      error
	version  bucket.Version
	object   *bucket.Object
	page     *bucket.Page
	answered chan struct{}
	done     bool // the scheduler's: an answer was given

	gone bool // under World.mu: the caller waits no longer
}

// errDead is what a process sees that is no more. It sees nothing, of course; its code has to come to an end.
var errDead = errors.New("this process is dead")

// ask hands a request to the scheduler and waits.
func (l *life) ask(ctx context.Context, r *request) error {
	w := l.w
	r.by, r.answered = l, make(chan struct{})
	w.mu.Lock()
	if l.dead || w.over {
		w.mu.Unlock()
		return &bucket.Error{Op: r.op, Key: r.key, Code: bucket.Denied, Err: errDead}
	}
	w.arrived = append(w.arrived, r)
	w.mu.Unlock()
	w.ring()
	select {
	case <-r.answered:
		return r.err
	case <-l.gone:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.gone = true
	if l.dead {
		return &bucket.Error{Op: r.op, Key: r.key, Code: bucket.Denied, Err: errDead}
	}
	return &bucket.Error{Op: r.op, Key: r.key, Code: bucket.Unknown, Err: ctx.Err()}
}

// ring wakes the scheduler.
func (w *World) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// event is something that happens at a time, on the scheduler's goroutine. It must not wait.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// events is a heap by time, then by the order in which they were made.
type events []event

func (h events) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *events) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.less(i, up) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *events) pop() event {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	s[last] = event{}
	s = s[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && s.less(down+1, down) {
			down++
		}
		if !s.less(down, i) {
			break
		}
		s[i], s[down] = s[down], s[i]
		i = down
	}
	*h = s
	return top
}

// at makes something happen at a time since the begin.
func (w *World) at(when time.Duration, do func()) {
	w.seq++
	w.events.push(event{max(when, w.now()), w.seq, do})
}

// after makes something happen in a while.
func (w *World) after(d time.Duration, do func()) { w.at(w.now()+d, do) }

// loop runs events one at a time, each when nobody else can move any more; where there is nothing to do at this instant,
// virtual time passes.
func (w *World) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		synctest.Wait()
		w.admit()
		if w.stop {
			return
		}
		if len(w.events) == 0 {
			<-w.wake
			continue
		}
		wait := w.events[0].at - w.now()
		if wait <= 0 {
			w.events.pop().do()
			continue
		}
		timer.Reset(wait)
		select {
		case <-w.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// admit draws the fate of every request that has arrived, in an order that does not depend on how goroutines ran.
func (w *World) admit() {
	w.mu.Lock()
	batch, posted := w.arrived, w.posted
	w.arrived, w.posted = nil, nil
	w.mu.Unlock()
	for _, do := range posted {
		do()
	}
	if len(batch) > 1 {
		slices.SortStableFunc(batch, func(a, b *request) int {
			return cmp.Or(strings.Compare(a.by.name, b.by.name), strings.Compare(a.op, b.op), strings.Compare(a.key, b.key), bytes.Compare(a.body, b.body))
		})
	}
	for _, r := range batch {
		w.stats.Requests++
		w.mix(w.now(), "ask", r.by, r)
		w.fate(r)
	}
}

// land carries a request out, then goes on. Where its sender is paused, it waits until that one wakes.
func (w *World) land(r *request, then func()) {
	if w.held(r.by, func() { w.land(r, then) }) {
		return
	}
	if r.landed == 0 && !w.healed && w.isGone(r) && w.rng.IntN(2) == 0 {
		return // nobody waits for it: it may never have left
	}
	w.carryOut(r)
	if then != nil {
		then()
	}
}

func (w *World) carryOut(r *request) {
	r.landed++
	if r.by.dead {
		w.fired(LandsAfterDeath)
	}
	if r.apply != nil {
		r.apply(r)
	}
	w.mix(w.now(), "land", r.by, nil)
}

// answer gives the caller what the request has come to.
func (w *World) answer(r *request) {
	if r.done || w.held(r.by, func() { w.answer(r) }) {
		return
	}
	r.done = true
	if r.by.dead || w.isGone(r) {
		return
	}
	close(r.answered)
}

// fail gives the caller an error instead.
func (w *World) fail(r *request, code bucket.Code, text string) {
	if r.done {
		return
	}
	if w.held(r.by, func() { w.fail(r, code, text) }) {
		return
	}
	if r.by.dead || w.isGone(r) {
		r.done = true
		return
	}
	r.err, r.object, r.page, r.version = &bucket.Error{Op: r.op, Key: r.key, Code: code, Err: errors.New(text)}, nil, nil, ""
	w.answer(r)
}

func (w *World) isGone(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.gone
}

// held defers what concerns a paused process until it has woken.
func (w *World) held(l *life, again func()) bool {
	if l.dead || l.paused <= w.now() {
		return false
	}
	w.at(l.paused+w.jitter(20*time.Millisecond), again)
	return true
}
