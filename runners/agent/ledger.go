package agent

import (
	"math"
	"slices"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// mode is what a program's time is booked as.
type mode uint8

const (
	inStep mode = iota // computing: the part of a step that has not ended yet
	inSave             // blocked by a snapshot
	inEval             // a declared phase
)

// together is how long our clients keep the steps that they tell of in one line. All but the last of them ended within
// it, so what a line's time has beyond it is the last step's: a hang among many short steps is not thinned out.
const together = 250 * time.Millisecond

// ledger adds up where an attempt's time goes (record.Sums), by the agent's own monotonic clock. What is in none of the
// sums is neither work nor the program's own: waits for the store, the agent's start and end. It allocates nothing per step.
//
// The first step is warm-up, and so is what came before it; among the first lines a step that takes less than half as
// long as the mean so far says that all before it was warm-up too (compilation and tuning come in several steps). Their
// steps and FLOPs count, their seconds are WarmS.
type ledger struct {
	began   time.Time // capture
	mark    time.Time // all before it is booked
	ended   time.Time // the last boundary of a step
	mode    mode
	was     mode  // before a snapshot
	watched bool  // a step is a file: the single steps are not seen
	filed   int64 // watched: step of the last file
	perStep float64
	over    bool // the lease is lost: nothing is booked any more
	cold    bool // a second loop begins: its first step is no steady one

	lines, steps, steady         int64
	warm, step, wait, save, eval time.Duration
	part                         time.Duration // of the step under way, before mark
	split                        bool          // the program says when it waits

	seen   int64 // steady lines
	ring   [64]time.Duration
	median time.Duration
	early  [settled]line // until there is a median

	done, censored [record.MaxBin + 1]int64
}

// line is what one line said of steady steps: the last one, and the mean of the n before it.
type line struct {
	last, mean time.Duration
	n          int64
}

// outlay is what a program itself says of the seconds since its last line; ago: how long before this one its step ended.
type outlay struct{ wait, save, ago time.Duration }

func newLedger(t record.Terms, now time.Time) ledger {
	return ledger{began: now, mark: now, ended: now, watched: t.WatchPath != "", perStep: t.FLOPsPerStep}
}

// turn books what has passed, and says what comes next.
func (l *ledger) turn(now time.Time, to mode) {
	if l.over {
		return
	}
	d := max(now.Sub(l.mark), 0)
	switch l.mode {
	case inStep:
		l.part += d
	case inSave:
		l.save += d
	case inEval:
		l.eval += d
	}
	l.mark, l.mode = now, to
}

// skip leaves out what has passed since the last turn: the loop stood at the agent's counter.
func (l *ledger) skip(now time.Time) {
	if l.mode == inStep && !l.over && !l.watched {
		l.mark = now
	}
}

// greet: a loop begins.
func (l *ledger) greet(now time.Time) {
	l.turn(now, inStep)
	l.part, l.cold = 0, true
}

// saving: a milestone is handed over. What the loop did since its last boundary was to write it.
func (l *ledger) saving(now time.Time) {
	l.was = l.mode
	l.turn(now, inSave)
	if l.was == inStep && !l.over {
		l.save, l.part = l.save+l.part, 0
	}
}

func (l *ledger) saved(now time.Time) { l.turn(now, l.was) }

// stepped books n more finished steps.
func (l *ledger) stepped(now time.Time, n int64, s outlay) {
	if l.over {
		return
	}
	l.turn(now, inStep)
	if n <= 0 {
		return
	}
	ago := min(max(s.ago, 0), l.part)
	d := l.part - ago
	now = now.Add(-ago)
	wait := min(max(s.wait, 0), d)
	save := min(max(s.save, 0), d-wait)
	d -= wait + save
	l.steps, l.lines, l.part, l.split = l.steps+n, l.lines+1, ago, l.split || s.wait > 0
	each := d / time.Duration(n)
	began, cold := l.ended, l.cold
	l.ended, l.cold = now, false
	switch {
	case l.lines == 1:
		l.dawn(now)
		return
	case cold:
		return
	case l.lines <= warmUp && l.steady > 0 && each < l.step/time.Duration(2*l.steady):
		l.dawn(began)
	}
	l.steady, l.step, l.wait, l.save = l.steady+n, l.step+d, l.wait+wait, l.save+save
	if l.watched {
		return
	}
	x := line{last: max(each, d-together), n: n - 1}
	if n > 1 {
		x.mean = (d - x.last) / time.Duration(n-1)
	}
	l.tally(x)
}

// dawn says that the steady steps began at that time.
func (l *ledger) dawn(at time.Time) {
	l.warm = max(at.Sub(l.began), 0)
	l.steady, l.step, l.wait, l.save, l.eval = 0, 0, 0, 0, 0
	l.seen, l.median = 0, 0
	clear(l.done[:])
}

// tally counts the ratios of one line's steps to the running median.
func (l *ledger) tally(x line) {
	typical := x.mean
	if x.n == 0 {
		typical = x.last
	}
	l.ring[l.seen%int64(len(l.ring))] = typical
	l.seen++
	if l.seen <= int64(len(l.ring)) || l.seen%8 == 0 {
		sorted := l.ring // a copy, on the stack
		n := min(l.seen, int64(len(sorted)))
		slices.Sort(sorted[:n])
		l.median = sorted[n/2]
	}
	switch {
	case l.seen < settled:
		l.early[l.seen] = x
		return
	case l.seen == settled:
		for _, e := range l.early[1:] {
			l.count(e)
		}
	}
	l.count(x)
}

func (l *ledger) count(x line) {
	l.done[record.BinOf(ratio(x.last, l.median))]++
	if x.n > 0 {
		l.done[record.BinOf(ratio(x.mean, l.median))] += x.n
	}
}

func ratio(d, median time.Duration) float64 {
	if median <= 0 {
		return 1
	}
	return float64(d) / float64(median)
}

// lost: the lease is over. The step under way is counted as cut off where it was.
func (l *ledger) lost(now time.Time) {
	if l.over {
		return
	}
	if l.mode == inStep && !l.watched && l.seen >= settled {
		l.censored[record.BinOf(ratio(l.part+max(now.Sub(l.mark), 0), l.median))]++
	}
	l.turn(now, l.mode)
	l.over = true
}

// sums is the account until now.
func (l *ledger) sums(now time.Time) *record.Sums {
	save, eval, warm := l.save, l.eval, l.warm
	switch since := max(now.Sub(l.mark), 0); {
	case l.lines == 0:
		warm, save, eval = max(now.Sub(l.began), 0), 0, 0
	case l.over:
	case l.mode == inSave:
		save += since
	case l.mode == inEval:
		eval += since
	}
	s := &record.Sums{Steps: l.steps, Work: float64(l.steps) * l.perStep, StepS: l.step.Seconds(), WarmS: warm.Seconds(),
		WaitS: l.wait.Seconds(), SaveS: save.Seconds(), EvalS: eval.Seconds(), Wait: record.WaitMerged,
		Ratios: record.Histogram{Done: bins(&l.done), Censored: bins(&l.censored)}}
	if l.split {
		s.Wait = record.WaitSplit
	}
	if l.seen >= settled {
		s.Median = l.median.Seconds()
	}
	if !(s.Work >= 0) || s.Work > math.MaxFloat32 { // whoever gave the terms meant no such thing
		s.Work = 0
	}
	return s
}

func bins(counts *[record.MaxBin + 1]int64) (m map[int]int64) {
	for bin, n := range counts {
		if n > 0 {
			if m == nil {
				m = map[int]int64{}
			}
			m[bin] = n
		}
	}
	return m
}
