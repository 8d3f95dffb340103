package goodput

import "fmt"

// Verdict says whether an attempt costs a retry, and by what.
type Verdict struct {
	Below  bool     // a retry is spent
	Judged bool     // it, or the window that ends with it, was held against the bound
	Score  Estimate // Share × MFU / reference of the window; N is the number of its attempts
	Bound  Bound
	Why    string // one clause
}

// Judge judges the last of a job's attempts on one platform (oldest first) by science.md §3.2: a retry is spent when the
// attempts that end with it, going back until their paid time is long enough to be judged, committed less than the
// platform's usual share, and it did so itself. ok false: what was paid or kept is not known, so nothing can be said.
func (b *Book) Judge(list []Stint) (v Verdict, ok bool) {
	if len(list) == 0 {
		return v, false
	}
	last := list[len(list)-1]
	if !last.known() {
		return v, false
	}
	at := last.At
	if at == 0 {
		at = b.now() + 1
	}
	v.Bound = BoundOf(b.scores(last.Key, last.Env, at))
	defer func() {
		if ch, is := b.Changed(last.Key, last.Env, at); is && v.Bound.Threshold {
			v.Why += "; " + ch.String()
		}
	}()
	own := b.score(last, list, at)
	v.Score = Estimate{own, 1}
	if own > 0 && own >= v.Bound.V { // nothing is nobody's share, also where it is all that a platform usually gives
		v.Judged, v.Why = true, fmt.Sprintf("it committed its usual share: %s", against(own, v.Bound))
		return v, true
	}
	start := b.Start(last.Key.Platform, at)
	if start.N == 0 {
		start = estimate(starts(list))
	}
	if len(list) > 1 && last.Nothing && list[len(list)-2].Nothing && last.PaidS < LeastPaid(start.V+last.TailS, Theta) {
		v.Judged, v.Below, v.Why = true, true, "two attempts in a row kept nothing"
		return v, true
	}
	from, window := len(list)-1, last
	for from > 0 && window.PaidS < LeastPaid(start.V+window.TailS, Theta) && list[from-1].known() {
		from--
		window = Total(list[from:])
	}
	least := LeastPaid(start.V+window.TailS, Theta)
	score := b.score(window, list, at)
	v.Score = Estimate{score, len(list) - from}
	switch short := window.PaidS < least; {
	case short:
		v.Why = fmt.Sprintf("too short to be judged: %s s were paid, %s s are needed for a start of %s s", worth(window.PaidS), worth(least), worth(start.V))
	case score > 0 && score >= v.Bound.V:
		v.Judged, v.Why = true, fmt.Sprintf("its last %d attempts on %s committed their usual share: %s", v.Score.N, last.Key.Platform, against(score, v.Bound))
	default:
		v.Judged, v.Below, v.Why = true, true, "it committed less than its usual share: "+against(score, v.Bound)
	}
	return v, true
}

// worth prints seconds with as many digits as they are worth: less than a second is not none.
func worth(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.2g", s)
	}
	return fmt.Sprintf("%.0f", s)
}

func starts(list []Stint) (out []Sample) {
	for _, s := range list {
		out = append(out, Sample{V: s.StartS})
	}
	return out
}

// score is Share × MFU / reference: the key's and family's, the family's on such cards anywhere, this job's so far; else
// the attempt's own, which leaves the share.
func (b *Book) score(s Stint, job []Stint, at int64) float64 {
	share, _ := s.Share()
	mfu, ok := s.MFU()
	if !ok {
		return share
	}
	ref := b.reference(s.Key, s.Env, s.Family, s.Wait, at)
	if ref.N == 0 {
		var own []Sample
		for _, o := range job {
			if m, ok := o.MFU(); ok && o.Key.GPU == s.Key.GPU && o.Key.Mode == s.Key.Mode && o.Wait == s.Wait && o.Env == s.Env {
				own = append(own, Sample{V: m})
			}
		}
		if len(own) >= leastMFU {
			ref = estimate(own)
		}
	}
	if ref.N == 0 || !(ref.V > 0) {
		return share
	}
	return share * mfu / ref.V
}

// against says a score beside its bound.
func against(score float64, b Bound) string {
	if b.Threshold {
		return fmt.Sprintf("%.2f of its speed-corrected paid time was kept work, the least is %.2f until 8 attempts are known (%d so far)", score, b.V, b.N)
	}
	return fmt.Sprintf("score %.3f, the bound is %.3f (median %.3f of %d attempts)", score, b.V, b.Median, b.N)
}
