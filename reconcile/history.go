package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// historyWindow is how many of a work's newest dispatches and attempts a decision rests on. It bounds the reads of a
// pass whatever the work's age: a work that came further 64 times since is not one that fails.
const historyWindow = 64

// ancient bounds what the store's stamps may claim of an age.
const ancient = 31 * 24 * time.Hour

// ages remembers when something in the store was first seen by our own monotonic clock. The age at that moment comes
// from the store's two stamps of one answer, so no clock of another machine is ever compared with ours.
type ages struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// age is how long ago key was written. most bounds what the stamps may claim, since they can be absurd.
func (a *ages) age(key string, modified, date time.Time, most time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	at, seen := a.first[key]
	if !seen {
		var old time.Duration
		if !modified.IsZero() && !date.IsZero() {
			old = min(max(date.Sub(modified), 0), most)
		}
		at = now.Add(-old)
		if a.first == nil {
			a.first = map[string]time.Time{}
		}
		a.first[key] = at
	}
	return now.Sub(at)
}

func (a *ages) forget(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.first, key)
}

// records reads the immutable records of works and keeps what it read.
type records struct {
	b    bucket.Bucket
	book *goodput.Book
	ages ages
	mu   sync.Mutex
	work map[plan.Digest]*shelf
	// unheard count as never claimed during one pass; see unheardOf.
	unheard map[plan.Digest]bool
	blind   map[string]bool // platforms that can't list what they run; never changed
}

// shelf is what is known of one work's immutable records. One goroutine at a time uses it.
type shelf struct {
	last      int64 // highest claim seen
	listed    map[int64]*slip
	opens     map[int64]*record.Open
	ends      map[int64]*record.End
	opensGone map[int64]bool // superseded attempts that left none
	endsGone  map[int64]bool
	learnt    learnt
	purse     purse
	// read says for which version of the witness the history was read; stale forces a new look.
	read  bucket.Version
	have  bool
	stale bool
	since time.Time // that version was read first
	asked time.Time // the dispatches were listed last
}

// slip is one dispatch as it is listed.
type slip struct {
	modified, date time.Time
	claim          *record.Claim
	hasReceipt     bool
	receiptAt      time.Time // the store's stamp of it
	receipt        *record.Receipt
	answers        int64
	release        *record.Release
	told, toldDate time.Time // stamps of its newest answer
	released       int64     // number of the answer that was read
	bad            string
}

func (r *records) shelf(w plan.Digest) *shelf {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.work == nil {
		r.work = map[plan.Digest]*shelf{}
	}
	s := r.work[w]
	if s == nil {
		s = &shelf{listed: map[int64]*slip{}} // the other maps are made when there is something to keep
		r.work[w] = s
	}
	return s
}

// spoil makes the next history of a work a fresh one: a claim was made or lost.
func (r *records) spoil(w plan.Digest) {
	r.shelf(w).stale = true
}

// givenUp makes the history of a work that is not launched any more a fresh one from time to time: a person may have launched
// it from elsewhere, and nothing else would tell before its worker takes the lease.
func (r *records) givenUp(w plan.Digest) {
	if s := r.shelf(w); time.Since(s.asked) > 5*time.Minute {
		s.stale = true
	}
}

// note takes over a claim and its receipt that this process has just written.
func (r *records) note(w plan.Digest, c record.Claim, rc record.Receipt) {
	s := r.shelf(w)
	s.listed[c.Dispatch] = &slip{claim: &c, hasReceipt: true, receipt: &rc}
	s.last = max(s.last, c.Dispatch)
}

// keep forgets the works that nobody asks about any more.
func (r *records) keep(wanted map[plan.Digest]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w, s := range r.work {
		if wanted[w] {
			continue
		}
		for n, d := range s.listed {
			r.ages.forget(record.ClaimKey(string(w), n))
			for k := range min(d.answers, historyWindow) {
				r.ages.forget(record.ReleaseKey(string(w), n, d.answers-k))
			}
		}
		delete(r.work, w)
	}
}

// claimAge is how long ago a claim that was read was written; 0 when it was not.
func (r *records) claimAge(w plan.Digest, n int64) time.Duration {
	d := r.shelf(w).listed[n]
	if d == nil {
		return 0
	}
	return r.ages.age(record.ClaimKey(string(w), n), d.modified, d.date, ancient)
}

// history is the newest part of a work's records, as far as a decision needs it. seen is nil for an absent lease. It
// costs nothing while neither the lease nor anything that is still open has changed.
func (r *records) history(ctx context.Context, w plan.Digest, seen *witness.Seen) (History, error) {
	s := r.shelf(w)
	var rec witness.Record
	var version bucket.Version
	if seen != nil {
		rec, version = seen.Record, seen.Version
	}
	if !s.have || s.stale || s.read != version || s.open(rec) {
		if err := r.list(ctx, w, s, rec.Dispatch); err != nil {
			return History{}, err
		}
		if err := r.attempts(ctx, w, s, rec); err != nil {
			return History{}, err
		}
		if err := r.judge(ctx, w, s, seen); err != nil {
			return History{}, err
		}
		if !s.have || s.read != version {
			s.since = time.Now()
		}
		s.have, s.stale, s.read, s.asked = true, false, version, time.Now()
	} else if s.awaits(&rec) {
		if err := r.attempts(ctx, w, s, rec); err != nil {
			return History{}, err
		}
	}
	return r.build(w, s, rec), nil
}

// open reports whether a dispatch still waits for its receipt: then nothing but a look tells.
func (s *shelf) open(rec witness.Record) bool {
	d := s.listed[s.last]
	return d != nil && s.last >= rec.Floor && s.last > rec.Dispatch && d.receipt == nil && d.bad == ""
}

// list reads the dispatches behind the window's start.
func (r *records) list(ctx context.Context, w plan.Digest, s *shelf, captured int64) error {
	work := string(w)
	if s.last == 0 && captured == 0 {
		// A work nobody has touched yet is the common case: one GET tells, where a LIST costs twelve times as much.
		if r.unheard[w] && !s.stale {
			return nil
		}
		if _, err := r.claim(ctx, w, s, 1); err != nil {
			return err
		}
		if s.listed[1] == nil {
			return nil
		}
	}
	known := max(s.last, captured)
	after := max(known-historyWindow, 0)
	for first := true; ; first = false {
		more, err := r.page(ctx, w, s, after)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if first {
			last, err := runners.LastDispatch(ctx, r.b, work, s.last)
			if err != nil {
				return fmt.Errorf("dispatches of work %s: %w", w.Short(), err)
			}
			after = max(last-historyWindow, after)
			continue
		}
		after = s.last - 1
	}
	maps.DeleteFunc(s.listed, func(n int64, _ *slip) bool { return n <= s.last-historyWindow-1 })
	for _, n := range slices.Sorted(maps.Keys(s.listed)) {
		if err := r.fill(ctx, w, s, n, s.listed[n]); err != nil {
			return err
		}
	}
	return nil
}

// page notes one page of dispatch records whose number is greater than after.
func (r *records) page(ctx context.Context, w plan.Digest, s *shelf, after int64) (more bool, err error) {
	from := record.DispatchPrefix(string(w))
	if after > 0 {
		from = strings.TrimSuffix(record.ClaimKey(string(w), after), "json") + "~"
	}
	p, err := r.b.List(ctx, record.DispatchPrefix(string(w)), from, 1000)
	if err != nil {
		return false, fmt.Errorf("dispatches of work %s: %w", w.Short(), err)
	}
	s.purse.clock(p.Date)
	for _, it := range p.Items {
		k, ok := record.Parse(it.Key)
		if !ok || k.Work != string(w) || k.Dispatch < 1 || k.Dispatch > runners.MaxDispatch {
			continue
		}
		d := s.listed[k.Dispatch]
		if d == nil {
			d = &slip{}
			s.listed[k.Dispatch] = d
		}
		s.last = max(s.last, k.Dispatch)
		switch answer, isRelease := record.ReleaseNumber(k.Rest); {
		case k.Rest == "json":
			d.modified, d.date = it.Modified, p.Date
		case k.Rest == "receipt.json":
			d.hasReceipt, d.receiptAt = true, it.Modified
		case isRelease:
			if answer >= d.answers {
				d.answers, d.told, d.toldDate = answer, it.Modified, p.Date
			}
		}
	}
	return p.More && len(p.Items) > 0, nil
}

// fill reads the records of one dispatch that are listed and not read yet.
func (r *records) fill(ctx context.Context, w plan.Digest, s *shelf, n int64, d *slip) error {
	if d.claim == nil && d.bad == "" {
		if _, err := r.claim(ctx, w, s, n); err != nil {
			return err
		}
	}
	if d.hasReceipt && d.receipt == nil && d.bad == "" {
		var rc record.Receipt
		found, err := r.get(ctx, record.ReceiptKey(string(w), n), &rc, nil)
		switch {
		case err != nil && !damaged(err):
			return err
		case err != nil || rc.Work != string(w) || rc.Dispatch != n || rc.Protocol > record.Protocol:
			d.bad = "its receipt cannot be read"
		case found:
			d.receipt = &rc
		}
	}
	if d.answers > d.released {
		var rl record.Release
		found, err := r.get(ctx, record.ReleaseKey(string(w), n, d.answers), &rl, nil)
		if err != nil && !damaged(err) {
			return err
		}
		d.released = d.answers
		if found && err == nil && rl.Work == string(w) && rl.Dispatch == n {
			d.release = &rl
		}
	}
	return nil
}

// claim reads one claim; nil: there is none.
func (r *records) claim(ctx context.Context, w plan.Digest, s *shelf, n int64) (*record.Claim, error) {
	if d := s.listed[n]; d != nil && (d.claim != nil || d.bad != "") {
		return d.claim, nil
	}
	var c record.Claim
	var o bucket.Object
	found, err := r.get(ctx, record.ClaimKey(string(w), n), &c, &o)
	if err != nil && !damaged(err) {
		return nil, err
	}
	if !found {
		return nil, nil
	}
	d := s.listed[n]
	if d == nil {
		d = &slip{}
		s.listed[n] = d
		s.last = max(s.last, n)
	}
	if d.modified.IsZero() {
		d.modified, d.date = o.Modified, o.Date
	}
	if err != nil || c.Work != string(w) || c.Dispatch != n || c.Protocol > record.Protocol {
		d.bad = "its claim cannot be read"
		return nil, nil
	}
	// Thousands of claims say the same words: each is kept once.
	c.Work, c.Dispatcher, c.Platform, c.Runner, c.Commit = string(w), once(c.Dispatcher), once(c.Platform), once(c.Runner), once(c.Commit)
	c.Reason = once(c.Reason)
	d.claim = &c
	return d.claim, nil
}

func once(s string) string { return unique.Make(s).Value() }

// attempts reads what the attempts of the window wrote about themselves.
func (r *records) attempts(ctx context.Context, w plan.Digest, s *shelf, rec witness.Record) error {
	for a := max(rec.Attempt-historyWindow, 0) + 1; a <= rec.Attempt; a++ {
		superseded := a < rec.Attempt
		if s.opens[a] == nil && !s.opensGone[a] {
			var o record.Open
			found, err := r.get(ctx, record.OpenKey(string(w), a), &o, s.stamp(record.OpenKey(string(w), a)))
			switch {
			case err != nil && !damaged(err):
				return err
			case err == nil && found && o.Work == string(w) && o.Attempt == a:
				keep(&s.opens, a, &o)
			case superseded:
				keep(&s.opensGone, a, true) // a later attempt was captured: whoever captured this one writes no open.json now
			}
		}
		if s.ends[a] == nil && !s.endsGone[a] && !(a == rec.Attempt && rec.State == witness.Held) {
			var e record.End
			found, err := r.get(ctx, record.EndKey(string(w), a), &e, s.stamp(record.EndKey(string(w), a)))
			switch {
			case err != nil && !damaged(err):
				return err
			case err == nil && found && e.Work == string(w) && e.Attempt == a:
				keep(&s.ends, a, &e)
			case superseded:
				keep(&s.endsGone, a, true)
			}
		}
	}
	return nil
}

// build makes the history out of what lies on the shelf. Pure but for the ages.
func (r *records) build(w plan.Digest, s *shelf, rec witness.Record) History {
	h := History{Floor: rec.Floor, Last: max(s.last, rec.Dispatch)}
	if rec.Attempt == 0 && len(s.listed) == 0 {
		return h
	}
	captured, ended := map[int64]bool{}, map[int64]bool{}
	pointers := map[int64]int64{} // attempt → highest step that a pointer into it was named with
	name := func(p *record.Pointer) {
		if p != nil {
			pointers[p.Attempt] = max(pointers[p.Attempt], p.Step)
		}
	}
	name(rec.Resume)
	for _, o := range s.opens {
		name(o.Resume)
	}
	before, said := s.before(), s.verdicts()
	for a := max(rec.Attempt-historyWindow, 0) + 1; a <= rec.Attempt; a++ {
		last := a == rec.Attempt
		at := Attempt{N: a, Live: last && rec.State == witness.Held, Yielded: last && rec.State == witness.Yielded, Off: last && writtenOff(&rec), Moved: last && movedUp(&rec)}
		if b := before[a]; b != nil {
			at.Dispatch, at.Off, at.Moved, at.Stepped, at.Stopped = b.Dispatch, at.Off || b.Off, at.Moved || b.Moved, b.Step, shown(b.Stopped, 300)
		}
		if last {
			at.Stepped, at.Stopped = max(at.Stepped, rec.Progress.Step), stoppedBy(&rec)
		}
		at.Leased = at.Stepped
		if o := s.opens[a]; o != nil {
			at.Dispatch, at.Platform = o.Dispatch, shown(o.Platform, 128)
			if o.Resume != nil {
				at.From = o.Resume.Step
			}
		}
		if last {
			at.Dispatch = rec.Dispatch
		}
		if at.Platform == "" && s.listed[at.Dispatch] != nil && s.listed[at.Dispatch].claim != nil {
			at.Platform = shown(s.listed[at.Dispatch].claim.Platform, 128)
		}
		at.Kept, at.Gained = pointers[a]
		at.Judged, at.Carried = said[a], said[a] != nil && said[a] != s.learnt.own[a]
		if e := s.ends[a]; e != nil {
			at.Stepped = max(at.Stepped, e.Step)
			at.End, at.Step, at.Error, at.Text, at.Exit, at.Policy = told(e, &rec, at.Dispatch), e.Step, shown(e.Error, 1024), shown(e.Text, 500), e.ExitCode, matchOf(e)
			ended[at.Dispatch] = true
		}
		captured[at.Dispatch] = true
		h.Attempts = append(h.Attempts, at)
	}
	for _, n := range slices.Sorted(maps.Keys(s.listed)) {
		d := s.listed[n]
		if d.claim == nil && d.bad == "" {
			continue // a receipt or a release without a claim: of nobody
		}
		h.Dispatches = append(h.Dispatches, r.dispatch(w, n, d, captured[n], ended[n]))
	}
	return h
}

func (r *records) dispatch(w plan.Digest, n int64, d *slip, captured, ended bool) Dispatch {
	out := Dispatch{N: n, Captured: captured, Ended: ended, Window: capturePrior, Answers: d.answers}
	if c := d.claim; c != nil {
		out.Platform, out.Reason = shown(c.Platform, 128), shown(c.Reason, 500)
		out.Launch, out.Blind = shown(c.Launch, 64), r.blind[c.Platform]
		out.Spent = min(max(c.Spent, 0), 2*n) // what earlier dispatches can have spent, with room for launches that started twice
		if c.CaptureS > 0 {
			out.Window = time.Duration(min(c.CaptureS, 7*86400) * float64(time.Second))
		}
	}
	if rc := d.receipt; rc != nil {
		out.Answered, out.OK, out.Outlives, out.Class, out.Text = true, rc.OK, rc.Outlives, shown(rc.Class, 60), shown(rc.Text, 500)
		if !rc.OK && rc.Class == "" {
			out.Class = string(runners.ProtocolError)
		}
	}
	if d.bad != "" {
		out.Text = d.bad // damaged: counts as a launch that may be alive, until its window is over
	}
	if d.release != nil {
		out.Settled = d.release.Settlement
		if out.Settled == runners.Bounded.String() {
			out.Promised, out.Asked = shown(d.release.Until, 40), r.promised(w, n, d)
		}
	}
	out.Age = r.ages.age(record.ClaimKey(string(w), n), d.modified, d.date, ancient)
	return out
}

func damaged(err error) bool {
	_, ok := errors.AsType[*broken](err)
	return ok
}

// get reads one record. found is false when the key is absent; a damaged one is found.
func (r *records) get(ctx context.Context, key string, v any, info *bucket.Object) (found bool, err error) {
	b, o, err := whole(ctx, r.b, key, record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) {
		return false, nil
	}
	if err != nil {
		return damaged(err), err
	}
	if info != nil {
		info.Info, info.Date = o.Info, o.Date
	}
	if err := record.Decode(b, record.MaxRecord, v); err != nil {
		return true, &broken{key, err}
	}
	return true, nil
}
