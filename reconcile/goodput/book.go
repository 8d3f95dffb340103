package goodput

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headway-run/headway/runners/record"
)

// Key is what statistics are kept apart by.
type Key struct{ Platform, GPU, Mode string }

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Platform, o.Platform), cmp.Compare(k.GPU, o.GPU), cmp.Compare(k.Mode, o.Mode))
}

// Wait is one wait that was measured: how long, whether it was given up at that point (right-censored), and how long
// before the book's newest observation that was.
type Wait struct {
	S        float64
	Censored bool
	AgeS     float64
}

// Estimate is a number and how many samples are behind it. N 0: it is unknown, whatever V says.
type Estimate struct {
	V float64
	N int
}

// Expectation is what a platform, card and math mode usually give a job of one family.
type Expectation struct {
	MFU    Estimate // median, by the reference chain of science.md §3.3
	Share  Estimate // median productive share of the key
	StartS Estimate // median seconds from the acknowledged launch to the first lease, of those that came to one
	WarmS  Estimate // median seconds from the first lease to the first steady step
	Bound  Bound    // below which an attempt costs a retry
}

// Goodput is what it usually commits per rated FLOP of the paid time; unknown while either factor is.
func (e Expectation) Goodput() Estimate {
	if e.MFU.N == 0 || e.Share.N == 0 {
		return Estimate{}
	}
	return Estimate{e.MFU.V * e.Share.V, min(e.MFU.N, e.Share.N)}
}

// Book is the histories of all keys. The zero value knows nothing. One goroutine at a time uses it.
type Book struct{ keys map[Key]*Compact }

// Put replaces what is known of a key.
func (b *Book) Put(c *Compact) {
	if b.keys == nil {
		b.keys = map[Key]*Compact{}
	}
	b.keys[c.Key()] = c
}

// Get is what is known of a key; nil: nothing.
func (b *Book) Get(k Key) *Compact { return b.keys[k] }

// Add folds one observation into the history at hand; false: it was folded before, or is none.
func (b *Book) Add(o record.Observation) bool {
	k := KeyOf(o)
	c := b.keys[k]
	if c == nil {
		c = NewCompact(k)
		b.Put(c)
	}
	return c.Fold(o)
}

// of lists the histories of one platform ("": of all), in the order of their keys.
func (b *Book) of(platform string) []*Compact {
	var out []*Compact
	for _, k := range slices.SortedFunc(maps.Keys(b.keys), Key.compare) {
		if platform == "" || k.Platform == platform {
			out = append(out, b.keys[k])
		}
	}
	return out
}

// now is the newest stamp that is known, Unix seconds: ages are counted back from it where no other moment is given.
func (b *Book) now() (at int64) {
	for _, c := range b.keys {
		at = max(at, c.newest())
	}
	return at
}

// Current is the environment of a key's newest attempt; zero: none is known.
func (b *Book) Current(k Key) record.Environment { return b.keys[k].current() }

// Captures lists how long launches of a platform's image took to take the lease, whatever their card: newest last. Those that
// were given up are among them, censored.
func (b *Book) Captures(platform string) []Wait {
	return b.waits(platform, func(c *Compact) []Timed { return c.Captures })
}

// Warms lists how long captured attempts of a platform took to their first steady step; censored are those that ended
// before it.
func (b *Book) Warms(platform string) []Wait {
	return b.waits(platform, func(c *Compact) []Timed { return c.Warms })
}

func (b *Book) waits(platform string, list func(*Compact) []Timed) []Wait {
	now := b.now()
	var out []Wait
	for _, t := range b.timed(platform, list) {
		out = append(out, Wait{t.S, t.Censored, float64(now - t.At)})
	}
	return out
}

// timed lists what was measured on a platform over all its cards, of its image, oldest first.
func (b *Book) timed(platform string, list func(*Compact) []Timed) (all []Timed) {
	for _, c := range b.of(platform) {
		all = append(all, list(c)...)
	}
	slices.SortStableFunc(all, func(x, y Timed) int { return cmp.Compare(x.At, y.At) })
	return ofImage(all)
}

// ofImage leaves out the waits of other images than the newest that is known (science.md §4.2). Those of which none is known
// count from its first day on: launches that brought nobody, workers that did not tell. list is in order of time.
func ofImage(list []Timed) []Timed {
	image, since := "", int64(0)
	for _, t := range slices.Backward(list) {
		if image == "" {
			image = t.Image
		}
		if t.Image == image && image != "" {
			since = t.At
		}
	}
	return slices.DeleteFunc(list, func(t Timed) bool { return t.Image != image && (t.Image != "" || t.At < since) })
}

// Steps is the histogram of step / median step over all cards of a platform.
func (b *Book) Steps(platform string) record.Histogram {
	var h record.Histogram
	for _, c := range b.of(platform) {
		h.Merge(c.Steps)
	}
	return h
}

// Losses is how many attempts of a platform ended by its doing (silent, taken away, asked to leave) in how many paid
// seconds: the ground of a mean time between losses.
func (b *Book) Losses(platform string) (n int64, paidS float64) {
	for _, c := range b.of(platform) {
		n = min(n+c.Totals.Losses, 1e18)
		paidS += c.Totals.PaidS
	}
	return n, paidS
}

// Expect says what a key usually gives a job of a family, in the environment that it had last.
func (b *Book) Expect(platform, gpu, mode, family string) Expectation {
	k := Key{platform, gpu, mode}
	at := b.now() + 1
	env := b.Current(k)
	e := Expectation{MFU: b.reference(k, env, family, record.WaitSplit, at), Bound: BoundOf(b.scores(k, env, at))}
	if merged := b.reference(k, env, family, record.WaitMerged, at); merged.N > e.MFU.N {
		e.MFU = merged
	}
	c := b.keys[k]
	if c == nil {
		e.StartS = b.Start(platform, at)
		return e
	}
	var shares, warms []Sample
	for _, o := range c.Scores {
		if o.Env != env {
			continue
		}
		shares = append(shares, Sample{o.Share, float64(at - o.At)})
	}
	for _, t := range ofImage(slices.Clone(c.Warms)) {
		if !t.Censored {
			warms = append(warms, Sample{t.S, float64(at - t.At)})
		}
	}
	e.Share, e.WarmS = estimate(shares), estimate(warms)
	e.StartS = b.Start(platform, at)
	return e
}

func estimate(list []Sample) Estimate { return Estimate{Median(list), len(list)} }

// Start is S: the median seconds from the acknowledged launch to the first lease on a platform, before the moment at.
func (b *Book) Start(platform string, at int64) Estimate {
	var list []Sample
	for _, t := range b.timed(platform, func(c *Compact) []Timed { return c.Starts }) {
		if t.At < at {
			list = append(list, Sample{t.S, float64(at - t.At)})
		}
	}
	return estimate(list)
}

// BoundOf is the bound of a key in one environment now.
func (b *Book) BoundOf(k Key, env record.Environment) Bound {
	return BoundOf(b.scores(k, env, b.now()+1))
}

// scores are those of a key's attempts in one environment that ended before the moment at, by the references of that moment.
func (b *Book) scores(k Key, env record.Environment, at int64) []Sample {
	c := b.keys[k]
	if c == nil {
		return nil
	}
	type kind struct{ family, wait string }
	refs := map[kind]Estimate{}
	var out []Sample
	for _, o := range c.Scores {
		if o.At >= at || o.Env != env {
			continue
		}
		s := o.Share
		f := kind{o.Family, o.Wait}
		if _, ok := refs[f]; !ok {
			refs[f] = b.reference(k, env, o.Family, o.Wait, at)
		}
		if ref := refs[f]; o.MFU > 0 && ref.N > 0 && ref.V > 0 {
			s *= o.MFU / ref.V
		}
		out = append(out, Sample{s, float64(at - o.At)})
	}
	return out
}

// reference is MFU_ref before the moment at: of the key and family, else of the same card, mode and family on any platform.
// Of the platform itself nothing of another environment counts. N 0: neither has three samples.
func (b *Book) reference(k Key, env record.Environment, family, wait string, at int64) Estimate {
	pick := func(list []*Compact) Estimate {
		var mfus []Sample
		for _, c := range list {
			for _, o := range c.Scores {
				if o.Family == family && o.Wait == wait && o.MFU > 0 && o.At < at && (c.Platform != k.Platform || o.Env == env) {
					mfus = append(mfus, Sample{o.MFU, float64(at - o.At)})
				}
			}
		}
		if len(mfus) < leastMFU {
			return Estimate{}
		}
		return estimate(mfus)
	}
	if c := b.keys[k]; c != nil {
		if e := pick([]*Compact{c}); e.N > 0 {
			return e
		}
	}
	return pick(slices.DeleteFunc(b.of(""), func(c *Compact) bool { return c.GPU != k.GPU || c.Mode != k.Mode }))
}
