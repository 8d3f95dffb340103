package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// How a dispatcher learns from what ended: beside its passes, a little at a time.
const (
	learnEvery = 5 * time.Minute  // between two looks at what others have written down
	learnFor   = 30 * time.Second // one stretch of work beside the passes
	learnWidth = 8                // requests at a time
	mostRaw    = 2000             // observations that one look reads
	mostBad    = 50_000           // objects that are none and are not read again
	mostEnds   = 1000             // ends that one stretch writes down
	bookTail   = 512              // observations of a key, the newest, in front of which its book is kept as it was
)

// learner keeps the book of what ended dispatches taught. What follows done belongs to the goroutine beside the passes while one
// is under way; all else to whoever has the gate.
type learner struct {
	b        bucket.Bucket // counts apart from the passes
	requests meter
	dry      bool

	stored  map[goodput.Key]storedBook
	raw     map[string]record.Observation // by key: written, and not known to be in a stored compact form
	bad     map[string]bucket.Version     // by key: what is listed and is no observation
	reached string                        // key of the last observation that a look read which could not read all
	named   map[askKey]bool               // the ends that raw tells of
	last    map[goodput.Key]keyed         // the newest that the book of a key has folded, in the order of rawOf
	bases   map[goodput.Key]base          // books as they were a while ago
	tail    int                           // bookTail
	handed  map[askKey]bool               // ends that are written down, or never will be
	due     time.Time
	ends    []ended // to be written down

	done  chan struct{} // nil: nothing is under way
	found *looked       // what that has found, once done is closed
}

// storedBook is the compact form of one key as it lies in the store.
type storedBook struct {
	version bucket.Version
	compact *goodput.Compact
}

// base is a book as it was when it had folded one observation and none behind it: where the next ones belong behind that one,
// whatever their order, the book needs no making anew from its beginning.
type base struct {
	compact *goodput.Compact
	last    keyed
}

// looked is what one stretch of learning has found.
type looked struct {
	listed  bool // all of stats/ was listed: what is not among the rest is gone
	raw     map[string]record.Observation
	keys    map[string]bool           // raw ones that are listed
	bad     map[string]bucket.Version // nil: the listing did not get through
	reached string                    // as in learner
	stored  map[goodput.Key]storedBook
	again   []ended // not settled yet
	err     error
}

// start makes it ready; b is the store.
func (l *learner) start(b bucket.Bucket, dry bool) {
	l.b, l.dry = counted{b, &l.requests}, dry
	l.stored, l.raw, l.handed = map[goodput.Key]storedBook{}, map[string]record.Observation{}, map[askKey]bool{}
	l.named, l.last, l.bases, l.tail = map[askKey]bool{}, map[goodput.Key]keyed{}, map[goodput.Key]base{}, bookTail
}

// learnNow reads what is known before the first decision: a listing, and a request for each compact form. What can't be
// read then is read later; until then the threshold of science.md §3.3 rules.
func (r *Reconciler) learnNow(ctx context.Context) {
	l := &r.learner
	if !l.due.IsZero() {
		return
	}
	l.due = time.Now().Add(learnEvery)
	ctx, cancel := context.WithTimeout(ctx, learnFor)
	defer cancel()
	found := &looked{}
	l.look(ctx, found)
	r.learned(found)
}

// learns takes over what was found beside the passes, and starts the next stretch when there is anything to do.
func (r *Reconciler) learns(ctx context.Context) {
	l := &r.learner
	if l.done != nil {
		select {
		case <-l.done:
			found := l.found
			l.done, l.found = nil, nil
			r.learned(found)
		default:
		}
	}
	look, now := !time.Now().Before(l.due), time.Now()
	if l.done != nil || ctx.Err() != nil {
		return
	}
	var ends []ended
	l.ends = slices.DeleteFunc(l.ends, func(e ended) bool {
		due := len(ends) < mostEnds && !e.next.After(now)
		if due {
			ends = append(ends, e)
		}
		return due
	})
	if !look && len(ends) == 0 {
		return
	}
	if look {
		l.due = now.Add(learnEvery)
	}
	stored, raw := maps.Clone(l.stored), maps.Clone(l.raw)
	found := &looked{}
	l.done, l.found = make(chan struct{}), found
	done := l.done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, learnFor)
		defer cancel()
		r.observeEnds(ctx, ends, found)
		if look {
			beside := &learner{b: l.b, dry: l.dry, stored: stored, raw: raw, bad: l.bad, reached: l.reached}
			beside.look(ctx, found)
			if !l.dry {
				beside.compact(ctx, found)
			}
		}
	}()
}

// learned takes over what a stretch of learning has found.
func (r *Reconciler) learned(f *looked) {
	l := &r.learner
	if f.err != nil {
		r.c.Log.Warn("the statistics of what ended could not be read or written in full", "error", shown(f.err.Error(), 300))
	}
	touched, fresh := map[goodput.Key]bool{}, map[goodput.Key][]keyed{}
	for k, s := range f.stored {
		s.compact.Named("") // made now: from here on several read it at once
		l.stored[k], touched[k] = s, true
	}
	for key, o := range f.raw {
		if _, known := l.raw[key]; !known {
			k := goodput.KeyOf(o)
			fresh[k] = append(fresh[k], keyed{o, key})
		}
		l.raw[key], l.named[endOf(o)] = o, true
	}
	if f.listed {
		for key, o := range l.raw {
			if _, fresh := f.raw[key]; !fresh && !f.keys[key] {
				delete(l.raw, key)
				delete(l.named, endOf(o))
				touched[goodput.KeyOf(o)] = true
			}
		}
	}
	if f.bad != nil {
		l.bad, l.reached = f.bad, f.reached
	}
	l.ends = append(l.ends, f.again...)
	for k, list := range fresh {
		if !touched[k] {
			r.adds(k, list)
		}
	}
	for k := range touched {
		delete(l.bases, k)
		r.book.Put(l.bookOf(k, nil))
	}
}

func endOf(o record.Observation) askKey { return askKey{plan.Digest(o.Work), o.Dispatch} }

// adds folds what is new into the book of a key. Where something of it belongs before what was folded already, the book is
// made anew, from where it was before that: so it is the same whatever the order in which things were found.
func (r *Reconciler) adds(k goodput.Key, list []keyed) {
	l := &r.learner
	slices.SortFunc(list, keyed.compare)
	c, last := r.book.Get(k), l.last[k]
	if c == nil || last.key == "" || last.compare(list[0]) > 0 {
		r.book.Put(l.bookOf(k, &list[0]))
		return
	}
	for _, o := range list {
		c.Fold(o.Observation)
		l.last[k] = o
	}
}

// bookOf is what is known of one key: its stored form, and what is not folded into that yet. first is the oldest that is new,
// if only that is.
func (l *learner) bookOf(k goodput.Key, first *keyed) *goodput.Compact {
	c, from := goodput.NewCompact(k), keyed{}
	if s, ok := l.stored[k]; ok {
		c = s.compact.Clone()
	}
	if b, ok := l.bases[k]; ok && first != nil && b.last.compare(*first) < 0 {
		c, from = b.compact.Clone(), b.last
	}
	list := l.rawOf(k, from)
	for i, o := range list {
		c.Fold(o.Observation)
		l.last[k] = o
		if len(list) > 2*l.tail && i == len(list)-l.tail-1 {
			l.bases[k] = base{c.Clone(), o}
		}
	}
	return c
}

// keyed is an observation and where it lies.
type keyed struct {
	record.Observation
	key string
}

// rawOf lists the raw observations of one key that come after one, oldest first.
func (l *learner) rawOf(k goodput.Key, after keyed) (out []keyed) {
	for key, o := range l.raw {
		if goodput.KeyOf(o) == k && cmp.Or(cmp.Compare(o.Time, after.Time), cmp.Compare(key, after.key)) > 0 {
			out = append(out, keyed{o, key})
		}
	}
	slices.SortFunc(out, keyed.compare)
	return out
}

// compare orders by the end, then by the key.
func (a keyed) compare(b keyed) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.key, b.key))
}

// look lists stats/, reads the compact forms that changed and the raw observations that are new.
func (l *learner) look(ctx context.Context, f *looked) {
	if f.raw == nil {
		f.raw = map[string]record.Observation{}
	}
	f.keys, f.stored = map[string]bool{}, map[goodput.Key]storedBook{}
	bad := map[string]bucket.Version{}
	var raws, compacts []bucket.Info
	after := ""
	for {
		p, err := l.b.List(ctx, record.StatsPrefix, after, 1000)
		if err != nil {
			f.err = fmt.Errorf("list the statistics: %w", err)
			return
		}
		for _, it := range p.Items {
			after = it.Key
			k, ok := record.ParseStats(it.Key)
			if !ok {
				continue
			}
			if k.Day != "" {
				f.keys[it.Key] = true
				if v, none := l.bad[it.Key]; none && v == it.Version {
					bad[it.Key] = v
				} else if _, known := l.raw[it.Key]; !known {
					raws = append(raws, it)
				}
			} else if s := l.stored[goodput.Key{Platform: k.Platform, GPU: k.GPU, Mode: k.Mode}]; s.version != it.Version {
				compacts = append(compacts, it)
			}
		}
		if !p.More || len(p.Items) == 0 {
			break
		}
	}
	f.bad = bad
	l.read(ctx, raws, compacts, f)
}

// read reads raw observations, of more than one look allows any, and compact forms.
func (l *learner) read(ctx context.Context, raws, compacts []bucket.Info, f *looked) {
	if len(raws) > mostRaw { // whatever lies first, what is behind it gets its turn
		at, _ := slices.BinarySearchFunc(raws, l.reached+"\x00", func(it bucket.Info, key string) int { return cmp.Compare(it.Key, key) })
		raws = slices.Concat(raws[at:], raws[:at])[:mostRaw]
		f.reached = raws[mostRaw-1].Key
	}
	var mu sync.Mutex
	each(raws, func(it bucket.Info) {
		o, err := readObservation(ctx, l.b, it.Key)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			f.err = err
		case o != nil:
			f.raw[it.Key] = *o
		case len(f.bad) < mostBad:
			f.bad[it.Key] = it.Version
		}
	})
	each(compacts, func(it bucket.Info) {
		s, err := readCompact(ctx, l.b, it.Key)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			f.err = err
		} else if s.compact != nil {
			f.stored[s.compact.Key()] = s
		}
	})
	f.listed = f.err == nil
}

// each calls do for every item, a few at a time.
func each[T any](list []T, do func(T)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(list), learnWidth) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list); i = int(next.Add(1)) - 1 {
				do(list[i])
			}
		})
	}
	wg.Wait()
}

// readObservation reads one; nil: it is gone, or is none.
func readObservation(ctx context.Context, b bucket.Bucket, key string) (*record.Observation, error) {
	data, at, err := whole(ctx, b, key, record.MaxRecord)
	if bucket.Is(err, bucket.NotFound) || damaged(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read an observation: %w", err)
	}
	var o record.Observation
	k, _ := record.ParseStats(key)
	if record.Decode(data, record.MaxRecord, &o) != nil || goodput.Check(o) != nil || o.Work != k.Work || o.Dispatch != k.Dispatch || o.Late != k.Late ||
		goodput.KeyOf(o) != (goodput.Key{Platform: k.Platform, GPU: k.GPU, Mode: k.Mode}) || !strings.HasPrefix(o.Time, k.Day) {
		return nil, nil
	}
	// An end lies before it is written down. One from the future would make all that is known old, everywhere.
	if end, bad := time.Parse(time.RFC3339, o.Time); bad != nil || !at.Modified.IsZero() && end.After(at.Modified.Add(time.Hour)) {
		return nil, nil
	}
	return &o, nil
}

// readCompact reads one compact form. A nil one: it is gone, or its bytes are no compact form; that is started anew, over the
// version that was read.
func readCompact(ctx context.Context, b bucket.Bucket, key string) (storedBook, error) {
	data, o, err := whole(ctx, b, key, goodput.MaxCompact)
	if bucket.Is(err, bucket.NotFound) {
		return storedBook{}, nil
	}
	if err != nil && !damaged(err) {
		return storedBook{}, fmt.Errorf("read the statistics: %w", err)
	}
	k, _ := record.ParseStats(key)
	want := goodput.Key{Platform: k.Platform, GPU: k.GPU, Mode: k.Mode}
	if err == nil {
		if c, bad := goodput.Decode(data); bad == nil && c.Key() == want {
			return storedBook{o.Version, c}, nil
		}
	}
	return storedBook{o.Version, goodput.NewCompact(want)}, nil
}

// wait returns when nothing is under way.
func (l *learner) wait() {
	if l.done != nil {
		<-l.done
	}
}

// hand queues the ends of one work that nobody has written down.
func (p *pass) hand(t *target) {
	l, s := &p.r.learner, p.world.works[t.work]
	if l.dry || s == nil || s.err != nil {
		return
	}
	if rec := s.record; rec != nil && rec.Attempt > 0 && rec.Dispatch > 0 && s.lease.State != witness.Held && s.lease.State != leaseUnknown {
		l.queue(ended{work: t.work, dispatch: rec.Dispatch, seen: s.seen})
	}
	for _, d := range s.history.Dispatches {
		if d.class() == classNoCapture && !d.inFlight(s.history.Floor) && d.Age < 2*d.Window+nextLate {
			l.queue(ended{work: t.work, dispatch: d.N})
		}
	}
}

// queue notes one end, unless it was before, or is too old to be written down.
func (l *learner) queue(e ended) {
	k := askKey{e.work, e.dispatch}
	if l.handed[k] {
		return
	}
	l.handed[k] = true
	if seen := e.seen; seen != nil && !seen.Date.IsZero() && !goodput.Writable(seen.Date.Sub(seen.Modified)) {
		return
	}
	name := goodput.Name(string(e.work), e.dispatch)
	for _, s := range l.stored {
		if s.compact.Named(name) {
			return
		}
	}
	if l.named[k] {
		return
	}
	e.first = time.Now()
	l.ends = append(l.ends, e)
}
