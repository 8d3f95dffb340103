package witness

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/record"
)

// view is what a witness looks like from outside; the zero value is its absence.
type view struct {
	Rev, Attempt, Dispatch, Floor, Step int64
	State                               State
	Holder                              string
	At, Milestone, From                 int64 // resume pointer: attempt, milestone, step
}

func viewOf(r Record) view {
	v := view{Rev: r.Rev, Attempt: r.Attempt, Dispatch: r.Dispatch, Floor: r.Floor, Step: r.Progress.Step, State: r.State, Holder: r.Holder}
	if p := r.Resume; p != nil {
		v.At, v.Milestone, v.From = p.Attempt, p.Milestone, p.Step
	}
	return v
}

// answer is what a client learned from one operation. A closed set.
type answer string

const (
	done      answer = "done"      // the write is in the history
	unknown   answer = "unknown"   // it may have happened, or may still
	deposed   answer = "deposed"   // Lost: the lease was another's
	elsewhere answer = "elsewhere" // a capture found it held
	terminal  answer = "finished"  // a capture found it finished
	below     answer = "below"     // a capture was below the floor
	renewed   answer = "renewed"   // a revoke came too late
	overBy    answer = "over"      // a revoke or a stop found nothing to end
	nothing   answer = "nothing"   // refused by something else than the witness: no effect
	violation answer = "violation" // the store contradicted itself
)

// op is one operation of one client, from its call to its return.
type op struct {
	Client   int
	Kind     Move // the move that was asked for; "read" and "ghost" beside them
	Ghost    bool // a try whose answer was lost: it happened or it did not
	From, To int64
	Dispatch int64
	Floor    int64
	Step     int64
	Number   int64 // milestone
	Holder   string
	Judged   view
	Answer   answer
	Seen     view // after it, where it is done; what a read saw
}

const moveRead Move = "read"

// client drives one witness through a store of its own that loses answers, and notes each operation.
type client struct {
	id    int
	rand  *rand.Rand
	s     *told
	plain bucket.Bucket // for what is not the witness
	work  string
	limit time.Duration // of an operation
	now   func() int64
	late  chan struct{} // closed: what was held back lands
	ops   []op
}

// told is the store as a client knows it; it counts the writes of which nobody was told whether they happened.
type told struct {
	*faulty.Bucket
	lost int
}

func (s *told) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (bucket.Version, error) {
	twice := s.Fired("twice")
	v, err := s.Bucket.Put(ctx, key, b, c)
	if err != nil && (!bucket.CodeOf(err).Certain() || s.Fired("twice") > twice) {
		s.lost++
	}
	return v, err
}

// newClient makes a client of a work; worker or not follows from its number.
func newClient(id int, seed uint64, b bucket.Bucket, limit time.Duration, now func() int64) *client {
	c := &client{id: id, rand: rand.New(rand.NewPCG(seed, uint64(id))), plain: b, work: workNamed(int(seed)), limit: limit, now: now, late: make(chan struct{})}
	put := func(name string, e faulty.Effect, code bucket.Code, p float64) faulty.Rule {
		return faulty.Rule{Name: name, Op: "put", Key: "witness/*", Conditional: true, Effect: e, Code: code, Probability: p}
	}
	hold := put("hold", faulty.Hold, 0, 0)
	hold.Nth, hold.Times, hold.Release = 1+c.rand.IntN(6), 1, c.late
	c.s = &told{Bucket: faulty.New(b, seed*31+uint64(id), hold, put("lose", faulty.Lose, 0, 0.15), put("cut", faulty.Refuse, bucket.Unknown, 0.04),
		put("raced", faulty.Refuse, bucket.Raced, 0.04), put("twice", faulty.Twice, 0, 0.05),
		faulty.Rule{Name: "unread", Op: "get", Key: "witness/*", Effect: faulty.Refuse, Code: bucket.Unknown, Probability: 0.03},
		faulty.Rule{Name: "slow", Key: "witness/*", Effect: faulty.Slow, Delay: 300 * time.Microsecond, Probability: 0.3})}
	return c
}

// do performs one operation and notes it, and a ghost of it for each earlier try that may have had an effect as well: a
// capture and a stop start over when their write was lost and another's lies there.
func (c *client) do(ctx context.Context, o op, f func(context.Context) (answer, view)) answer {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	before := c.s.lost
	o.Client, o.From = c.id, c.now()
	o.Answer, o.Seen = f(ctx)
	o.To = c.now()
	if o.Kind == moveRead && o.Answer != done {
		return o.Answer
	}
	c.ops = append(c.ops, o)
	ghosts := c.s.lost - before
	if o.Kind == moveRead {
		ghosts = 0
	} else if o.Kind != MoveCapture && o.Kind != MoveStop {
		ghosts = min(ghosts, 1)
		if o.Answer == done || o.Answer == unknown {
			ghosts = 0 // one write, sent again and again
		}
	}
	answer := o.Answer
	o.Ghost, o.Answer = true, unknown
	for range ghosts {
		c.ops = append(c.ops, o)
	}
	return answer
}

// verdict translates what a holder was told.
func (c *client) verdict(h *Holder, v Verdict) (answer, view) {
	switch v.Outcome {
	case Won:
		return done, viewOf(h.Seen().Record)
	case Lost:
		return deposed, view{}
	case Unknown:
		return unknown, view{}
	case Gone:
		return violation, view{}
	case Refused:
	}
	if why(v.Err) == StoreViolation {
		return violation, view{}
	}
	return nothing, view{}
}

// worker claims, captures, advances, and gives back or finishes.
func (c *client) worker(ctx context.Context, round int64) {
	n := 100*round + int64(c.id) + 1
	b, _ := record.Encode(record.Claim{Protocol: 1, Work: c.work, Dispatch: n, Nonce: record.Nonce()})
	_, _ = c.plain.Put(ctx, record.ClaimKey(c.work, n), body(b), bucket.IfAbsent())
	var h *Holder
	c.do(ctx, op{Kind: MoveCapture, Dispatch: n}, func(ctx context.Context) (a answer, _ view) {
		got, err := Capture(ctx, c.s, CaptureRequest{Work: c.work, Dispatch: n, Lease: quick})
		if h = got; err == nil {
			return done, viewOf(h.Seen().Record)
		}
		switch why(err) {
		case SpawnedElsewhere:
			return elsewhere, view{}
		case AlreadyFinished:
			return terminal, view{}
		case BelowFloor:
			return below, view{}
		case Unsettled:
			return unknown, view{}
		case StoreViolation:
			return violation, view{}
		}
		return nothing, view{} // the rule of the absent witness, or a read that failed before anything was sent
	})
	if h == nil || h.Open(ctx, record.Open{}).Outcome != Won {
		return
	}
	me := h.Seen().Record.Holder
	step := h.Seen().Record.Progress.Step
	for m := int64(1); m <= 1+c.rand.Int64N(4); m++ {
		step++
		asked := op{Kind: MoveRenew, Holder: me, Step: step}
		f := func(ctx context.Context) (answer, view) {
			return c.verdict(h, h.Renew(ctx, Progress{Step: step}, quick))
		}
		if c.rand.IntN(2) == 0 {
			p := c.milestone(ctx, h, m, step)
			asked = op{Kind: MoveAdvance, Holder: me, Step: step, Number: m}
			f = func(ctx context.Context) (answer, view) {
				return c.verdict(h, h.Advance(ctx, p, Progress{Step: step}, quick))
			}
		}
		if a := c.do(ctx, asked, f); a == deposed || a == violation {
			return
		}
	}
	switch c.rand.IntN(8) {
	case 0:
		p := c.result(ctx, h, step)
		c.do(ctx, op{Kind: MoveFinish, Holder: me, Step: step}, func(ctx context.Context) (answer, view) {
			return c.verdict(h, h.Finish(ctx, p, Progress{Step: step}))
		})
	case 1: // it dies
	default:
		c.do(ctx, op{Kind: MoveYield, Holder: me}, func(ctx context.Context) (answer, view) { return c.verdict(h, h.Yield(ctx, "enough")) })
	}
}

// milestone puts a snapshot without files under the holder's attempt.
func (c *client) milestone(ctx context.Context, h *Holder, m, step int64) record.Pointer {
	r := h.Seen().Record
	b, _ := record.Encode(record.Manifest{Protocol: 1, Work: c.work, Attempt: r.Attempt, Milestone: m, Step: step, Parent: r.Resume})
	key := record.MilestoneManifestKey(c.work, r.Attempt, m)
	_, _ = c.plain.Put(ctx, key, body(b), bucket.Always())
	return record.Pointer{Attempt: r.Attempt, Milestone: m, Step: step, Manifest: key, SHA256: record.Hash(b)}
}

func (c *client) result(ctx context.Context, h *Holder, step int64) FinishedPointer {
	r := h.Seen().Record
	b, _ := record.Encode(record.Manifest{Protocol: 1, Work: c.work, Attempt: r.Attempt, Step: step, Parent: r.Resume})
	key := record.ResultManifestKey(c.work, r.Attempt)
	_, _ = c.plain.Put(ctx, key, body(b), bucket.Always())
	return FinishedPointer{Attempt: r.Attempt, Manifest: key, SHA256: record.Hash(b)}
}

// dispatcher reads, and ends what it has read, now and then for good.
func (c *client) dispatcher(ctx context.Context, round int64) {
	var seen Seen
	c.do(ctx, op{Kind: moveRead}, func(ctx context.Context) (answer, view) {
		var err error
		switch seen, err = Read(ctx, c.s, c.work); {
		case err == nil:
			return done, viewOf(seen.Record)
		case errors.Is(err, ErrAbsent):
			return done, view{}
		}
		return nothing, view{}
	})
	if c.rand.IntN(10) == 0 {
		floor := 100 * round
		c.do(ctx, op{Kind: MoveStop, Floor: floor}, func(ctx context.Context) (answer, view) {
			r, now, err := Stop(ctx, c.s, c.work, floor, "stopped")
			return c.ended(r, now, err)
		})
		return
	}
	if seen.Version == "" || c.rand.IntN(3) > 0 {
		return
	}
	c.do(ctx, op{Kind: MoveRevoke, Judged: viewOf(seen.Record)}, func(ctx context.Context) (answer, view) {
		r, now, err := Revoke(ctx, c.s, seen, "silent")
		return c.ended(r, now, err)
	})
}

func (c *client) ended(r Revocation, now Seen, err error) (answer, view) {
	switch r {
	case Ended:
		return done, viewOf(now.Record)
	case Renewed:
		return renewed, view{}
	case AlreadyOver:
		return overBy, view{}
	case Unwritten:
	}
	switch why(err) {
	case StoreViolation:
		return violation, view{}
	case UnknownHistory:
		return nothing, view{}
	}
	return unknown, view{}
}

// play is a client's whole part in a history; what it held back lands somewhere in the middle.
func (c *client) play(ctx context.Context, rounds int) []op {
	for round := range int64(rounds) {
		if round == int64(rounds)/2 {
			close(c.late)
		}
		if c.id%2 == 0 {
			c.worker(ctx, round)
			continue
		}
		for range 3 {
			c.dispatcher(ctx, round)
		}
	}
	return c.ops
}

// lost marks the holder of a capture whose nonce died with an answer.
const lost = "lost/"

func sameHolder(a, b string) bool {
	return a == b || strings.HasPrefix(a, lost) || strings.HasPrefix(b, lost)
}
