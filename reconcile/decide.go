package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/ladder"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Facts is everything that a decision about one work rests on. It holds no clock and no instant: only how much time
// is left or has passed, measured by whoever observed.
type Facts struct {
	Job     *plan.Job // as desired; for leaving and frozen works nil
	Work    plan.Digest
	Name    string // the job's name, also where Job is nil
	Wish    Wish
	Lease   Lease
	History History
	Inputs  []Need
	Rungs   []Rung // the ladder, in order
	Rest    Rest   // what the ladder weighs
	On      string // where it is held
	Climb   *Climb // of a held one that a better rung could take; nil: of no other
	Stays   string // Frozen: why, one sentence
	// Leaving, when Wish says so.
	OnDelete plan.OnDelete
	Pointer  *record.Pointer // the resume pointer when the commit was accepted; a drain waits until it moves
	// Drain is how long a drain waits for that, and Drained for how long this reconciler has seen it wait.
	Drain, Drained time.Duration
	// Demand: a person asks for its launch; nil: nobody does.
	Demand *Demand
	// Brake: too much went silent at once, or the store was not well: nothing is written off.
	Brake bool
	// Unready says why it can't be launched from this process (a secret is missing), or "".
	Unready string
	// Hurdle is what kept its last launch from being claimed.
	Hurdle Hurdle
	// Over says how it stands with its limits on time and money.
	Over Over
	// Crowded says why the group may not run one more at once (limits.parallel), or "".
	Crowded string
}

// Hurdle is a trouble of a single job before its claim: its code can't be bundled, its spec is damaged.
type Hurdle struct {
	Text    string
	Left    time.Duration // how long it is still left alone for that; 0: not any more, or there is none
	Passing bool          // it may go away without a person
}

// Wish is what the plan in force wants of a work. A closed set.
type Wish uint8

const (
	Wanted  Wish = iota // a job of the plan names it
	Frozen              // it stays as it is, nothing starts and nothing stops: its file has an error, say
	Leaving             // no job of the accepted plan names it any more
)

// Lease is the witness as it was observed. State is a state of witness, or leaseAbsent or leaseUnknown.
type Lease struct {
	State    witness.State
	Text     string // leaseUnknown: why, one sentence
	Version  bucket.Version
	Attempt  int64
	Dispatch int64
	Floor    int64
	Step     int64 // of the last renewal
	Exit     int
	Resume   *record.Pointer
	Reason   string
	Suspect  bool          // held, and silent for longer than was promised
	Left     time.Duration // held and not suspect: silence that is still allowed; 0: not known
	Lacks    string        // finished: what of its result is not in the store, one clause; "": nothing is known to be missing
}

// States beside those of witness.
const (
	leaseAbsent  witness.State = "absent"
	leaseUnknown witness.State = "unknown"
)

// History is the newest part of a work's immutable records, oldest first (see historyWindow).
type History struct {
	Floor      int64 // of the lease
	Last       int64 // highest dispatch number known to be claimed
	Dispatches []Dispatch
	Attempts   []Attempt
}

// Dispatch is one claim and what became of it.
type Dispatch struct {
	N        int64
	Platform string
	Reason   string
	Launch   string // what the dispatches of one launch call have in common; "": it was to start alone
	Answered bool   // there is a receipt
	OK       bool   // the platform took it
	Class    string // of the failure, when it did not
	Text     string
	Captured bool          // a worker of it took the lease, now or earlier
	Ended    bool          // that worker wrote down its end: nothing is left to release, unless it
	Outlives bool          // is paid for until it is released all the same
	Blind    bool          // its platform can't list: whoever its receipt names need not be the worker that was heard of
	Age      time.Duration // since the claim was written, by the store's stamps and then by our own clock
	Window   time.Duration // how long after the claim a capture is waited for
	Settled  string        // newest recorded answer to a release: "", pending, bounded, closed
	Answers  int64         // how many are recorded
	Promised string        // Settled bounded: when its platform says that it ends by itself, as it wrote it down
	Asked    time.Duration // likewise: how long its platform is still left alone; 0: it is asked again
	Spent    int64         // retries that were spent before it, as its claimer counted them; 0: none, or it did not count
}

// moot: no worker of it can take the lease any more.
func (d Dispatch) moot(floor int64) bool { return d.Captured || d.N < floor }

// inFlight: a worker of it may still take the lease, and is waited for.
func (d Dispatch) inFlight(floor int64) bool {
	return !d.moot(floor) && d.Settled != "closed" && ruleOf(d.rawClass()).InFlight && d.Age < d.Window
}

// rawClass is the class before the capture window is held against it.
func (d Dispatch) rawClass() string {
	switch {
	case !d.Answered:
		return classUncalled
	case d.OK:
		return classNoCapture
	}
	return d.Class
}

// class is how an uncaptured dispatch ended; "" while that is open.
func (d Dispatch) class() string {
	if d.Captured {
		return ""
	}
	return d.rawClass()
}

// Attempt is one capture of the lease.
type Attempt struct {
	N        int64
	Dispatch int64 // 0: it died before it wrote its first record
	Platform string
	From     int64  // step it started from
	End      string // class of its own account; "": it left none
	Yielded  bool   // the lease says that it gave the place back
	Off      bool   // its lease was ended without a stop: as silent, or
	Moved    bool   // for a better rung
	Stopped  string // for a limit that was crossed: the sentence; "": it was not
	Stepped  int64  // highest step that is known of it
	Leased   int64  // highest step that its lease told
	Step     int64
	Error    string // the program's last error line
	Text     string
	Exit     int
	Gained   bool            // it moved the resume pointer
	Judged   *record.Verdict // what it committed of what it was paid for; nil: not known
	Carried  bool            // a claim says so, for good
	Kept     int64
	Live     bool         // it holds the lease
	Policy   record.Match // the line of its output that a policy of the job named
}

// madeToLeave is what a worker that was written off may say of its end, which is no reason of its own: a table of values.
var madeToLeave = []string{"", "yielded", "deposed", "lease_lost"}

// account is what people are told of an end: the worker's sentence where that quotes the program's last line, since it also
// has the exit code or the signal (of a program that ran out of memory the signal is all that tells); else the line.
func (a Attempt) account() string {
	if a.Error != "" && strings.Contains(a.Text, a.Error) {
		return a.Text
	}
	return a.Error
}

// class is how an attempt ended.
func (a Attempt) class() string {
	switch {
	case a.Stopped != "" && slices.Contains(madeToLeave, a.End):
		return classStopped
	case a.Moved && slices.Contains(madeToLeave, a.End):
		return classMoved
	case a.Off && a.End == "yielded" && !a.heard():
		return classNoStep // it was there to be asked to leave, after it had been written off
	case a.Off && slices.Contains(madeToLeave, a.End):
		return classSilent
	case a.End != "":
		return a.End
	case a.Yielded:
		return "yielded"
	}
	return classSilent
}

// Need is one input of a work.
type Need struct {
	Job       string
	Work      plan.Digest
	Finished  bool
	Exit      int
	Failed    string // why it never will finish, or ""
	Suspended bool   // nothing of it runs, and nothing is launched until the plan says so
}

// Decide says what to do about one work. It is pure: equal facts give equal actions, and it is the only place that
// decides. It never launches a finished work, never one that is held and not written off, never below the floor,
// and never while an earlier launch may still take the lease.
func Decide(f Facts) Action { return choose(f).ending(f.History) }

func choose(f Facts) Action {
	a := Action{Work: f.Work, Job: f.Name}
	switch f.Lease.State {
	case leaseUnknown:
		return a.wait(time.Minute, "the lease cannot be read, so nothing is decided: "+f.Lease.Text)
	case witness.Finished:
		if why := f.Lease.unwhole(); why != "" {
			a.Kind, a.Reason = Blocked, why
			return a
		}
		return a.none(fmt.Sprintf("finished by attempt %d with exit code %d", f.Lease.Attempt, f.Lease.Exit))
	}
	if f.Wish == Leaving {
		return leave(a, f)
	}
	if f.Wish == Wanted && f.Over.Why != "" {
		return halt(a, f)
	}
	if f.Lease.State == witness.Held {
		if a = watch(a, f); a.Kind != WriteOff && f.Stays != "" {
			a.Reason += "; " + f.Stays
		}
		if next := f.Over.Next; a.Kind == None && next > 0 {
			a.Until = min(cmp.Or(a.Until, next), next)
		}
		return a
	}
	if f.Wish == Frozen || f.Job == nil {
		return a.none(cmp.Or(f.Stays, staysError))
	}
	if f.Job.Suspend {
		return a.none("suspended: nothing is launched")
	}
	if b, stuck := needs(a, f); stuck {
		return b
	}
	if f.Over.Blind {
		return a.wait(nextBusy, "it has a limit, and what it has cost cannot be read")
	}
	charges := account(f.History)
	why, spent := cmp.Or(doomed(f.History), nowhere(f.Job.On, f.History)), exhausted(f.History, charges, f.Job.Limits.Retries)
	if why == "" && spent != "" && f.Demand == nil {
		why = spent + "; headway launch " + f.Name + " launches it once more"
	}
	if why != "" {
		a.Kind, a.Reason = Fail, why
		return a
	}
	if a = start(a, f, charges); a.Kind == Launch && spent != "" {
		a.Reason += "; a person asked for it, beyond its limits.retries"
	}
	return a
}

func (a Action) none(reason string) Action {
	a.Kind, a.Reason = None, reason
	return a
}

func (a Action) wait(until time.Duration, reason string) Action {
	a.Kind, a.Until, a.Reason = Wait, until, reason
	return a
}

// watch decides about a held lease.
func watch(a Action, f Facts) Action {
	l := f.Lease
	a.Dispatch = l.Dispatch
	switch {
	case !l.Suspect:
		a.Kind, a.Until, a.Reason = None, l.Left, fmt.Sprintf("attempt %d holds the lease", l.Attempt)
		a = climb(a, f)
	case f.Brake:
		a = a.wait(0, fmt.Sprintf("attempt %d is silent, but so is too much else: an outage of the store looks like this, so nothing is written off", l.Attempt))
	default:
		a.Kind, a.Version = WriteOff, l.Version
		a.Reason = fmt.Sprintf("attempt %d of dispatch %d was silent for longer than it promised", l.Attempt, l.Dispatch)
	}
	return a
}

// needs decides whether the inputs allow a start.
func needs(a Action, f Facts) (Action, bool) {
	var missing []string
	for _, n := range f.Inputs {
		switch {
		case n.Finished && n.Exit == 0:
		case n.Finished:
			a.Kind, a.Reason = Blocked, fmt.Sprintf("needs %s, which finished with exit code %d", n.Job, n.Exit)
			return a, true
		case notWhole(n.Failed):
			a.Kind, a.Reason = Blocked, fmt.Sprintf("needs %s, which is %s", n.Job, n.Failed)
			return a, true
		case n.Failed != "":
			a.Kind, a.Reason = Blocked, fmt.Sprintf("needs %s, which %s: %s", n.Job, map[bool]string{true: "stands still", false: "failed"}[strings.HasPrefix(n.Failed, "limits.")], n.Failed)
			return a, true
		case n.Suspended:
			a.Kind, a.Reason = Blocked, fmt.Sprintf("needs %s, which is suspended", n.Job)
			return a, true
		default:
			missing = append(missing, n.Job)
		}
	}
	if len(missing) == 0 {
		return a, false
	}
	first := missing[:min(len(missing), 5)]
	more := ""
	if rest := len(missing) - len(first); rest > 0 {
		more = fmt.Sprintf(" and %d more", rest)
	}
	return a.wait(0, "needs "+strings.Join(first, ", ")+more+", not finished yet"), true
}

// start decides when and where the next dispatch goes out.
func start(a Action, f Facts, charges []Charge) Action {
	h := f.History
	for _, d := range slices.Backward(h.Dispatches) {
		if d.inFlight(f.Lease.Floor) {
			a.Platform, a.Dispatch = d.Platform, d.N
			what := "was launched, and has not taken the lease yet"
			switch {
			case !d.Answered:
				what = "is claimed, without an answer of the platform yet"
			case !d.OK:
				what = "may have been launched: " + ruleOf(d.Class).Why
			}
			return a.wait(d.Window-d.Age, fmt.Sprintf("dispatch %d on %s %s", d.N, d.Platform, what))
		}
	}
	if d, ok := h.newest(); ok && f.Demand == nil {
		if rest := workDelay(f.Work, charges) - d.Age; rest > 0 {
			return a.wait(rest, "backing off: "+lastWhy(charges))
		}
	}
	if f.Unready != "" {
		a.Kind, a.Reason = Blocked, f.Unready
		return a
	}
	if h := f.Hurdle; h.Left > 0 && f.Demand == nil {
		a = a.wait(h.Left, "could not be launched, and is tried again: "+h.Text)
		if !h.Passing {
			a.Kind = Blocked
		}
		return a
	}
	if f.Crowded != "" {
		return a.wait(0, f.Crowded)
	}
	r := rung(f, charges)
	a.Rungs = r.Rungs
	switch r.Kind {
	case ladder.Wait:
		return a.wait(r.Until, r.Reason)
	case ladder.Blocked:
		a.Kind, a.Reason = Blocked, r.Reason
		return a
	case ladder.Launch, ladder.Stay, ladder.Move:
	}
	next := max(h.Last, f.Lease.Dispatch, f.Lease.Floor-1) + 1
	if next > runners.MaxDispatch {
		a.Kind, a.Reason = Blocked, fmt.Sprintf("all %d dispatch numbers are used: give the job another seed or replica", runners.MaxDispatch)
		return a
	}
	a.Kind, a.Platform, a.Dispatch = Launch, r.Platform, next
	a.Reason = "first launch"
	if len(charges) > 0 {
		last := charges[len(charges)-1]
		a.Reason = fmt.Sprintf("dispatch %d on %s: %s", last.Dispatch, last.Platform, last.Why)
		if last.Attempt != 0 {
			a.Reason = fmt.Sprintf("attempt %d on %s: %s", last.Attempt, last.Platform, last.Why)
		}
		if last.Attempt != 0 && last.Attempt == f.Lease.Attempt {
			a.Reason += fmt.Sprintf("; it was at step %d, ", f.Lease.Step)
			if f.Lease.Resume != nil {
				a.Reason += fmt.Sprintf("the next one resumes from %d", f.Lease.Resume.Step)
			} else {
				a.Reason += "the next one starts anew"
			}
		}
	} else if f.Lease.State == witness.Revoked && f.Lease.Attempt == 0 {
		a.Reason = "named by the plan again"
	}
	if r.Reason != "" {
		a.Reason += "; not on " + r.Reason
	}
	return a
}

// waits reports whether a dispatch may still bring a worker.
func (h History) waits() bool {
	return slices.ContainsFunc(h.Dispatches, func(d Dispatch) bool { return d.inFlight(h.Floor) })
}

func (h History) newest() (Dispatch, bool) {
	if len(h.Dispatches) == 0 {
		return Dispatch{}, false
	}
	return h.Dispatches[len(h.Dispatches)-1], true
}

func lastWhy(charges []Charge) string {
	if len(charges) == 0 {
		return "nothing is known of the last launch"
	}
	return charges[len(charges)-1].Why
}

// releases lists the dispatches of a work whose launch is over for us and not known to be over at its platform: cut
// off by a write-off or a stop, or never seen to take the lease. Pure; it is asked again for ever, since Pending is
// not an end and a promised one no more than a promise (the caller spaces the questions; Until is the first pause).
func releases(f Facts) []Action {
	var out []Action
	if f.Lease.State == leaseUnknown {
		return nil // whoever looks dead may hold it
	}
	for _, d := range f.History.Dispatches {
		if !d.OK || d.Ended && !d.stays() || d.Settled == "closed" || d.inFlight(f.Lease.Floor) {
			continue
		}
		why, until := "", d.Asked
		switch {
		case f.Lease.State == witness.Held && f.Lease.Dispatch == d.N:
			continue
		case f.Lease.State == witness.Finished || f.Lease.State == witness.Yielded:
			switch {
			case f.Lease.Dispatch != d.N:
				why = "its worker was replaced"
			case d.Outlives:
				why = "its worker has left, and it is paid for until it is released"
			case d.Blind:
				if why = "its worker has left, and whether it was the one of the receipt only its platform knows"; !d.Ended {
					until = max(until, accountWithin)
				}
			default:
				continue // its worker left by itself
			}
		case !d.Captured:
			why = "no worker of it took the lease in time"
		default:
			why = "its worker was cut off"
		}
		out = append(out, Action{Kind: Release, Work: f.Work, Job: f.Name, Platform: d.Platform, Dispatch: d.N, Reason: why, Until: until})
	}
	return out
}
