package reconcile

import (
	"fmt"
	"math"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Bounds on what was learnt, whatever was observed: a worker's word is a stranger's.
const (
	captureLeast  = 60 // seconds; a quarter of it is all the time that a launch's call has
	captureTimes  = 4  // times the prior at most: launches that are dead for good would stretch a window without end
	warmMost      = 3600
	milestoneMost = 6 * 3600
	deadPrior     = 20 // of so many launches one is assumed to bring nobody, until more were seen
	startFloors   = 3  // what a worker promises of its start by itself, in floors (runners/agent)
)

// Timers are the numbers of a launch on one platform that are derived where nobody states them, each with its derivation.
type Timers struct {
	Platform  string           `json:"platform"`
	Capture   patience.Derived `json:"capture"`   // seconds; how long the first lease may take
	Warm      patience.Derived `json:"warm_up"`   // seconds; from there to the first steady step
	K         patience.Derived `json:"lease_k"`   // steps; of a lease
	Lease     patience.Derived `json:"lease"`     // seconds; while steps are steady
	Milestone patience.Derived `json:"milestone"` // seconds, or steps where the job says so
	// Usual is the bound below which an attempt there costs a retry, a share of what is usual; only an explanation has it.
	Usual *patience.Derived `json:"usual,omitempty"`
	// Era is where the history began that the bound comes from; nil: no other is known.
	Era *goodput.Change `json:"history,omitempty"`
	Odd string          `json:"odd,omitempty"` // what does not fit together in what was measured
}

// lessons is what is known of a platform when launches are put together.
type lessons struct {
	capture patience.Derived // seconds
	warm    patience.Derived // likewise, before a job's own floor
	restart float64          // seconds from a launch to the first steady step, in the median
	ratios  record.Histogram
	clock   patience.Clock
	deaths  float64 // per second
}

// past is what a job's own attempts told: of the last one how long a step took and how many steps its lease lasted (0: it
// ran elsewhere), of all that are known what their snapshots took.
type past struct {
	stepS     float64
	k         float64
	snapshots patience.Snapshots
	guess     guess // of a step, where none was measured
}

// lessonsOf is what the book has on a platform, once for a pass: the fits cost milliseconds.
func (r *Reconciler) lessonsOf(pl *platform) *lessons {
	if pl.lessons != nil {
		return pl.lessons
	}
	name, prior := pl.conf.Name, priorOf(pl.runner)
	l := teachings(pl.conf, prior, capturesOf(r.book.Captures(name)), capturesOf(r.book.Warms(name)), r.leaseFloor().Seconds())
	calm := r.book.Calm(name)
	l.clock = patience.Clock{Steps: calm.Steps, Revisions: calm.Revisions, Reached: calm.Reached}
	l.ratios = r.book.Steps(name)
	losses, paidS := r.book.Losses(name)
	l.deaths = (1 + float64(losses)) / (prior.MTBF + paidS)
	pl.lessons = l
	return l
}

// leaseFloor is the shortest lease on this store.
func (r *Reconciler) leaseFloor() time.Duration {
	if r.c.LeaseFloor <= 0 {
		return witness.DefaultFloor
	}
	return r.c.LeaseFloor
}

func capturesOf(list []goodput.Wait) []patience.Capture {
	out := make([]patience.Capture, len(list))
	for i, w := range list {
		out[i] = patience.Capture{S: w.S, Censored: w.Censored}
	}
	return out
}

// priorOf is what is assumed of a runner's launches: it is a process of one's own unless it says otherwise.
func priorOf(r runners.Runner) patience.Prior {
	k, ok := r.(runners.Kin)
	if !ok {
		return patience.OwnProcess
	}
	switch k.Family() {
	case runners.ForeignRuntime:
		return patience.ForeignRuntime
	case runners.BareContainer:
		return patience.BareContainer
	case runners.OwnProcess:
	}
	return patience.OwnProcess
}

// teachings turns a platform's waits into its timers. Pure.
func teachings(conf plan.Platform, prior patience.Prior, captures, warms []patience.Capture, floor float64) *lessons {
	l := &lessons{restart: prior.Median, deaths: 1 / prior.MTBF}
	if fit, ok := patience.Fit(captures); ok {
		l.restart = fit.Quantile(.5)
	}
	if fit, ok := patience.Fit(warms); ok {
		l.restart += fit.Quantile(.5)
	}
	l.capture = captureWindow(conf, prior, captures, l.restart)
	l.warm = patience.Window(prior.Scaled("a worker's start", startFloors*floor), "warm-up", warms, patience.Costs{})
	return l
}

// captureWindow is how long after a launch the first lease may take.
func captureWindow(conf plan.Platform, prior patience.Prior, captures []patience.Capture, restart float64) patience.Derived {
	if conf.Capture > 0 {
		return patience.Derived{Value: conf.Capture.Seconds(), Unit: "s", Rule: patience.RulePlan, Why: "capture of the platform in headway.yaml"}
	}
	dead := 1.0
	for _, c := range captures {
		if c.Censored {
			dead++
		}
	}
	costs := patience.Costs{Dead: dead / (deadPrior + float64(len(captures))), Start: restart}
	return patience.Window(prior, "capture", captures, costs).
		Within(captureLeast, captureTimes*prior.Window, "60 s at least, 4 times the prior at most")
}

// timersOf derives a launch's numbers. What the plan says wins: the platform's capture, the job's lease.k and milestones.
func (r *Reconciler) timersOf(j *plan.Job, pl *platform, was past) Timers {
	if was.stepS <= 0 {
		was.guess = r.guessed(j, pl)
	}
	return derive(j, pl.conf.Name, r.lessonsOf(pl), was, max(j.Lease.Floor, r.leaseFloor()).Seconds())
}

// derive is timersOf without its sources. Pure.
func derive(j *plan.Job, platform string, l *lessons, was past, floor float64) Timers {
	least := startFloors * floor
	t := Timers{Platform: platform, Capture: l.capture,
		Warm: l.warm.Within(least, max(least, warmMost), "three floors of the lease at least, an hour at most")}
	renew := renewShare()
	start, before := patience.Survives(witness.DefaultK, renew), patience.Survives(was.k, renew)
	both := patience.Together{Step: was.stepS, Deaths: l.deaths, Upload: was.snapshots.Upload, Restart: l.restart}
	both.Tail, _ = patience.Read(l.ratios).Tail(true) // none: nothing is written off alive, as far as is known
	t.Milestone = stated(j)
	var k patience.Derived
	lease := func(b patience.Balance) patience.Derived { return patience.Lease(l.ratios, l.clock, b, start, before) }
	if t.Milestone.Rule == patience.RulePlan {
		every := t.Milestone.Value
		if t.Milestone.Unit == "steps" {
			every *= was.stepS
		}
		k = lease(both.Balance(every))
	} else {
		t.Milestone, k = both.Joint(start, func(losses float64) patience.Derived {
			return patience.Interval(was.snapshots, losses).
				Within(1, milestoneMost, "6 h at most: no more than that is lost at once")
		}, lease)
	}
	t.K = leaseK(j, k, renew)
	t.Lease = leaseSeconds(j, t.K, was.stepS, floor)
	t.Warm = was.guess.first(t.Warm, t.K.Value, least)
	return t
}

// renewShare is the part of a lease after which a worker renews it.
func renewShare() float64 {
	l := witness.Lease{Seconds: 3600}
	return l.RenewAfter().Seconds() / l.Seconds
}

// stated is the job's own interval of milestones; by another rule than the plan's: it states none.
func stated(j *plan.Job) patience.Derived {
	d := patience.Derived{Unit: "s", Rule: patience.RulePlan, Why: "milestones.every in the plan"}
	switch {
	case j.Milestones.Steps > 0:
		d.Value, d.Unit = float64(j.Milestones.Steps), "steps"
	case j.Milestones.Every > 0:
		d.Value = j.Milestones.Every.Seconds()
	default:
		return patience.Derived{}
	}
	return d
}

// untold is the interval of milestones of a job that states none, before anything was measured of it or its platform.
func untold(prior patience.Prior) time.Duration {
	return bounded(patience.Interval(patience.Snapshots{}, 1/prior.MTBF).Value)
}

// leaseK is the lease in steps that survives the ratio k.
func leaseK(j *plan.Job, k patience.Derived, renew float64) patience.Derived {
	if j.Lease.K > 0 {
		return patience.Derived{Value: j.Lease.K, Unit: "steps", Rule: patience.RulePlan, Why: "lease.k in the plan"}
	}
	k.Inputs = append(k.Inputs[:len(k.Inputs):len(k.Inputs)], patience.Input{Name: "survives a step of", Value: k.Value, Unit: "steps"})
	k.Value = math.Round(patience.Length(k.Value, renew)*1e6) / 1e6 // two thirds of fifty, and back
	return k
}

// leaseSeconds is the lease that a worker promises while its steps are steady.
func leaseSeconds(j *plan.Job, k patience.Derived, stepS, floor float64) patience.Derived {
	d := patience.Derived{Value: floor, Unit: "s", Rule: patience.RuleFloor, N: k.N, Censored: k.Censored}
	d.Inputs = []patience.Input{{Name: "lease in steps", Value: k.Value, Unit: "steps"}, {Name: "step", Value: stepS, Unit: "s"}, {Name: "floor", Value: floor, Unit: "s"}}
	switch {
	case j.Watch.Path != "":
		d.Value = max(floor, 3*j.Watch.Interval.Seconds())
		d.Why = fmt.Sprintf("a watched program: three intervals of its files, and the floor of %s at least", secondsText(floor))
	case stepS <= 0:
		d.Why = fmt.Sprintf("the floor, until a step of this job was measured: then %s steps, if that is longer", number(k.Value))
	case k.Value*stepS > floor:
		d.Value, d.Rule = k.Value*stepS, k.Rule
		d.Why = fmt.Sprintf("%s steps of %s", number(k.Value), secondsText(stepS))
	default:
		d.Why = fmt.Sprintf("the floor; %s steps of %s would be less", number(k.Value), secondsText(stepS))
	}
	return d
}

// apply puts what was derived into a claim's terms.
func (t Timers) apply(terms *record.Terms) {
	terms.LeaseK = t.K.Value
	if t.Milestone.Unit == "s" {
		terms.MilestoneS = t.Milestone.Value
		terms.MilestoneAssumed = t.Milestone.N == 0 && t.Milestone.Rule != patience.RulePlan
	}
	if t.Warm.N > 0 || t.Warm.Rule == patience.RuleWork {
		terms.WarmS = t.Warm.Value
	}
}

// window is the capture window as a claim carries it.
func (t Timers) window() time.Duration {
	return time.Duration(t.Capture.Value * float64(time.Second)).Round(100 * time.Millisecond)
}

func secondsText(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.3g s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }
