package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
)

// Spend says when a way of ending costs the work one of its retries.
type Spend uint8

const (
	SpendNever        Spend = iota // the platform's or an operator's doing
	SpendUnlessGained              // costs one, unless the attempt moved the resume pointer
	SpendBelow                     // costs one when the attempt committed less than its usual share (goodput); where that is not known, as SpendUnlessGained
	SpendKnownBelow                // likewise; where it is not known, nothing
	SpendAlways
)

// Effect says what a failed launch does to its platform.
type Effect uint8

const (
	EffectNone  Effect = iota
	EffectPark         // leave it alone for a while, longer each time in a row
	EffectFatal        // leave it alone until a person looks
)

// Rule is one row of the budget table: what a failure class means. It is the only place that reads a class.
type Rule struct {
	Class    string
	Spend    Spend
	Platform Effect
	Backoff  bool   // the work itself waits, longer each time in a row, before its next launch
	Program  bool   // the program's own doing: the same error at the same step twice ends the job; never walks the ladder
	Unbegun  bool   // surely nothing was started: tried again even with retries: 0, which every other end exhausts
	InFlight bool   // the launch may have happened all the same: its capture window is waited for
	Why      string // one clause, for explain
}

// Classes that no runner and no worker writes: what is inferred from records that are missing.
const (
	classSilent    = "silent"     // the lease was held, then written off or lost; no account of the end
	classNoStep    = "no_step"    // ran, and never said that a step ended, until its lease was written off; also a worker's word
	classNoFile    = "no_file"    // the same, of a watched file; a worker's word
	classUncalled  = "no_receipt" // claimed; whoever claimed it died before it wrote an answer down
	classNoCapture = "no_capture" // launched, says the platform; no worker took the lease in its window
	classUnstarted = "not_starting"
	classStopped   = "stopped" // its lease was ended for a limit that was crossed
	classMoved     = "moved"   // its lease was ended so that it goes on on a better rung
)

// crashesBeforeCapture is how many launches in a row may fail to take the lease before they count as refused.
const crashesBeforeCapture = 3

// budget is a table of values: every class of runners, every class that a worker writes at its end, and the
// inferred ones. A class that is not in it is read like "silent": the cautious, bounded reading.
var budget = []Rule{
	{Class: string(runners.NoSlots), Unbegun: true, Platform: EffectPark, Why: "the platform had no room; nothing is spent"},
	{Class: string(runners.QuotaExhausted), Unbegun: true, Platform: EffectPark, Why: "the quota is used up until it resets; nothing is spent"},
	{Class: string(runners.SpawnedElsewhere), Unbegun: true, Why: "another launch was first; nothing is spent"},
	{Class: string(runners.Unreachable), Platform: EffectPark, Backoff: true, InFlight: true, Why: "the platform could not be reached, the launch may have happened; nothing is spent"},
	{Class: string(runners.Rejected), Spend: SpendAlways, Backoff: true, Why: "the platform refused this launch; one retry is spent"},
	{Class: string(runners.ProtocolError), Platform: EffectFatal, Backoff: true, InFlight: true, Why: "the platform's answer made no sense; it is left alone until a person looks"},
	{Class: string(runners.UserCode), Spend: SpendUnlessGained, Backoff: true, Program: true, Why: "the program failed"},

	{Class: "finished", Why: "finished"},
	{Class: "no_result", Spend: SpendUnlessGained, Backoff: true, Program: true, Why: "the program ended without a result"},
	{Class: "out_of_memory", Spend: SpendUnlessGained, Backoff: true, Program: true, Why: "the program ran out of memory"},
	{Class: "yielded", Spend: SpendKnownBelow, Backoff: true, Why: "asked to leave, and left"},
	{Class: "deposed", Spend: SpendBelow, Backoff: true, Why: "its lease was taken away: it was silent, or somebody revoked it"},
	{Class: "lease_lost", Spend: SpendBelow, Backoff: true, Why: "its lease was taken away: it was silent, or somebody revoked it"},
	{Class: "revoked", Why: "stopped on purpose; nothing is spent"},
	{Class: "nothing_to_do", Why: "another attempt was first; nothing is spent"},
	{Class: "refused", Spend: SpendUnlessGained, Backoff: true, Why: "the worker refused: the machine or what it was given is not what was asked for"},
	{Class: "store", Backoff: true, Why: "the store gave the worker no usable answer; nothing is spent"},
	{Class: "store_refused", Spend: SpendAlways, Backoff: true, Why: "the store refused the worker's result for good (rights, space or keys); one retry is spent"},
	{Class: "snapshot_unreadable", Spend: SpendUnlessGained, Backoff: true, Program: true, Why: "the milestone to resume from can't be read"},
	{Class: classRetryable, Spend: SpendUnlessGained, Backoff: true, Why: "the program ended with an exit code that the job names as retryable"},
	{Class: "disk_full", Spend: SpendBelow, Backoff: true, Why: "the worker's disk was full"},
	{Class: "internal", Spend: SpendBelow, Backoff: true, Why: "a defect of the worker"},

	{Class: classMoved, Why: "left for a better rung behind a milestone; nothing is spent"},
	{Class: classStopped, Why: "was stopped by a limit"},
	{Class: classSilent, Spend: SpendBelow, Backoff: true, Why: "went silent"},
	{Class: classNoStep, Spend: SpendUnlessGained, Backoff: true, Why: whyNoStep},
	{Class: classNoFile, Spend: SpendUnlessGained, Backoff: true, Why: whyNoFile},
	{Class: classUncalled, InFlight: true, Why: "claimed, and no answer was written down; nothing is spent"},
	{Class: classNoCapture, Platform: EffectPark, Backoff: true, InFlight: true, Why: "launched, but no worker took the lease in its window; the platform is charged, the work is not"},
	{Class: classUnstarted, Spend: SpendAlways, Backoff: true, Why: "launched again and again without a worker taking the lease; one retry is spent"},
}

// ruleOf finds a class's row.
func ruleOf(class string) Rule {
	for _, r := range budget {
		if r.Class == class {
			return r
		}
	}
	r := ruleOf(classSilent)
	r.Class, r.Why = class, fmt.Sprintf("ended as %q, which this version does not know", shown(class, 40))
	return r
}

// spends says whether an end of this class costs a retry. Goodput decides where it is known, and the class lets it.
func (r Rule) spends(gained bool, v *record.Verdict) bool {
	switch r.Spend {
	case SpendNever:
	case SpendAlways:
		return true
	case SpendUnlessGained:
		return !gained
	case SpendBelow, SpendKnownBelow:
		if v != nil && v.Known {
			return v.Spent
		}
		return r.Spend == SpendBelow && !gained
	}
	return false
}

// byGoodput is how goodput was judged, where that decided; "": it did not.
func (c Charge) byGoodput() string {
	if s := ruleOf(c.Class).Spend; c.judged == nil || !c.judged.Known || s != SpendBelow && s != SpendKnownBelow {
		return ""
	}
	return shown(c.judged.Why, 300)
}

// Charge is one row of the account of a work: how one dispatch or attempt ended and what it cost.
type Charge struct {
	Dispatch int64  `json:"dispatch"`          // 0: unknown, the worker died before it wrote its first record
	Attempt  int64  `json:"attempt,omitempty"` // 0: no worker took the lease
	Platform string `json:"platform,omitempty"`
	Class    string `json:"class"`
	Gained   bool   `json:"gained"` // the resume pointer moved
	Spent    bool   `json:"spent"`
	Why      string `json:"why"`
	judged   *record.Verdict
}

// account turns a history into charges, oldest first, leaving out what is still running or may still start. It is a
// pure function of immutable records: nothing is counted in place, and asking twice changes nothing.
func account(h History) []Charge {
	var out []Charge
	unsaid := map[int64]string{}
	for _, d := range h.Dispatches {
		class := d.class()
		if d.Captured || class == "" || d.inFlight(h.Floor) {
			continue
		}
		out = append(out, Charge{Dispatch: d.N, Platform: d.Platform, Class: class})
	}
	for _, a := range h.Attempts {
		if !a.Live {
			if unsaid[a.N] = a.unsaid(); a.Stopped != "" {
				unsaid[a.N] = "was stopped: " + a.Stopped
			}
			out = append(out, Charge{Dispatch: a.Dispatch, Attempt: a.N, Platform: a.Platform, Class: a.class(), Gained: a.Gained, judged: a.Judged})
		}
	}
	slices.SortStableFunc(out, func(a, b Charge) int {
		return cmp.Or(cmp.Compare(a.order(h), b.order(h)), cmp.Compare(a.Attempt, b.Attempt))
	})
	uncaptured := map[string]int{}
	for i := range out {
		c := &out[i]
		if c.Class == classNoCapture {
			if uncaptured[c.Platform]++; uncaptured[c.Platform] >= crashesBeforeCapture {
				c.Class, uncaptured[c.Platform] = classUnstarted, 0
			}
		} else if c.Attempt != 0 {
			uncaptured[c.Platform] = 0
		}
		r := ruleOf(c.Class)
		c.Spent, c.Why = r.spends(c.Gained, c.judged), r.Why
		if why := unsaid[c.Attempt]; why != "" && (c.Class == classSilent || c.Class == classStopped) {
			c.Why = why
		}
	}
	return out
}

// order is the dispatch number; an attempt whose dispatch is unknown stands behind its predecessor's.
func (c Charge) order(h History) int64 {
	if c.Dispatch != 0 {
		return c.Dispatch
	}
	var last int64
	for _, a := range h.Attempts {
		if a.N < c.Attempt && a.Dispatch > last {
			last = a.Dispatch
		}
	}
	return last
}

// Spent counts the retries that a work has spent. charges is the account of h. While h reaches back to the first
// dispatch that is all of them. Behind that its claims help: each carries what was spent before it, as its claimer
// counted, so the count goes on from there. Each such sum is a lower bound (a claim of an older version carries none,
// a worker may take the lease late), so the highest one counts.
func Spent(h History, charges []Charge) (n int64) {
	for _, c := range charges {
		if c.Spent {
			n++
		}
	}
	if first := h.first(); first <= 1 {
		return n
	}
	for _, d := range h.Dispatches {
		if d.Spent <= 0 {
			continue
		}
		sum := d.Spent
		for _, c := range charges {
			if c.Spent && c.order(h) >= d.N {
				sum++
			}
		}
		n = max(n, sum)
	}
	return n
}

// first is the oldest dispatch that is known.
func (h History) first() int64 {
	if len(h.Dispatches) == 0 {
		return 0
	}
	return h.Dispatches[0].N
}

// failed says why a work is given up for good, or "". retries is limits.retries.
func failed(h History, charges []Charge, retries int) string {
	return cmp.Or(doomed(h), exhausted(h, charges, retries))
}

// doomed says why one more launch would be no use: it ended, or would end, as before.
func doomed(h History) string { return cmp.Or(stopped(h), repeated(h), unheard(h)) }

// exhausted says why no launch follows by itself, or "": the retries are spent. With retries: 0 that is so after any launch
// that may have happened, whatever came of it. While a launch that a person asked for all the same is waited for, it is not.
func exhausted(h History, charges []Charge, retries int) string {
	if len(charges) == 0 || h.waits() {
		return ""
	}
	for _, c := range slices.Backward(charges) {
		if retries <= 0 && (c.Attempt != 0 || !ruleOf(c.Class).Unbegun) {
			return fmt.Sprintf("dispatch %d on %s: %s, and limits.retries is 0", c.Dispatch, c.Platform, c.Why)
		}
	}
	if n := Spent(h, charges); n > int64(max(retries, 0)) {
		last := charges[len(charges)-1]
		if why := last.byGoodput(); last.Spent && why != "" {
			last.Why += " (" + why + ")"
		}
		return fmt.Sprintf("%s spent, limits.retries is %d; the last one: %s", count(int(n), "retry", "retries"), retries, last.Why)
	}
	return ""
}

// repeated says whether the program failed twice in the same way: the same class at the same step, and the same error
// but for its numbers.
func repeated(h History) string {
	type failure struct {
		class, text string
		step        int64
	}
	seen := map[failure]int64{}
	for _, a := range h.Attempts {
		if a.Live || !ruleOf(a.class()).Program || a.Policy.Then == record.ThenExclude { // the platform's doing, says the job
			continue
		}
		f := failure{a.class(), alike(a.Error), a.Step}
		if first, again := seen[f]; again {
			return fmt.Sprintf("attempts %d and %d failed at step %d in the same way (%s: %s)", first, a.N, a.Step, a.class(), shown(cmp.Or(a.account(), a.Text, "no error text"), 200))
		}
		seen[f] = a.N
	}
	return ""
}

// Backoff between tries: base × 2^(series-1), capped, times a jitter of 0.5 to 1.5 that is drawn from the record
// itself. So it survives a restart, is the same for every dispatcher that reads the record, and differs from work to
// work.
const (
	capturePrior = 2 * time.Minute // capture window of a platform that says none: the prior of one's own processes
	backoffBase  = 5 * time.Second
	backoffCap   = 15 * time.Minute
	parkBase     = 15 * time.Second
)

// delay is how long to leave something alone after a series of failures in a row. series < 1: not at all.
func delay(base time.Duration, series int, seed string) time.Duration {
	if series < 1 {
		return 0
	}
	d := backoffCap
	if shift := series - 1; shift < 16 && base<<shift < backoffCap {
		d = base << shift
	}
	return time.Duration(float64(d) * (0.5 + unit(seed)))
}

// unit maps a text to [0,1), evenly.
func unit(seed string) float64 {
	var x uint64 = 14695981039346656037
	for i := range len(seed) {
		x = (x ^ uint64(seed[i])) * 1099511628211
	}
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// workDelay is how long after its last claim a work's next launch has to wait. A launch that surely began nothing, in between,
// neither ends a series nor adds to it.
func workDelay(work plan.Digest, charges []Charge) time.Duration {
	series, last := 0, int64(0)
	for _, c := range slices.Backward(charges) {
		r := ruleOf(c.Class)
		if r.Unbegun && c.Attempt == 0 {
			continue
		}
		if c.Gained || !r.Backoff {
			break
		}
		series++
		last = max(last, c.Dispatch)
	}
	return delay(backoffBase, series, fmt.Sprintf("%s/%d", work, last))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// shown bounds text that came from elsewhere and leaves nothing in it that a terminal obeys.
func shown(s string, n int) string { return runners.Sanitize([]byte(runners.Bound(s, n))) }
