package reconcile

import (
	"context"
	"fmt"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// Explanation is everything the store says about why a work is where it is.
type Explanation struct {
	Work     plan.Digest `json:"work"`
	Job      string      `json:"job,omitempty"`
	State    string      `json:"state"` // one of plan's states
	Now      Action      `json:"now"`   // what a pass would decide now
	Spent    int         `json:"spent"`
	Limit    int         `json:"limit"`             // limits.retries
	Earlier  int64       `json:"earlier,omitempty"` // dispatches that are older than what is shown
	Lines    []Line      `json:"lines"`             // in order of dispatch
	Timers   *Timers     `json:"timers,omitempty"`  // of its next launch; nil: it has finished, or its platform is not configured
	Cost     *Cost       `json:"cost"`              // of all its launches
	Requests int64       `json:"requests"`
}

// Line is one dispatch, and the attempt it led to, if any. Times are those that their writers wrote down, for people;
// texts are made safe to print.
type Line struct {
	Dispatch int64     `json:"dispatch,omitempty"` // 0: the worker died before it wrote its first record
	Attempt  int64     `json:"attempt,omitempty"`  // 0: no worker took the lease
	Platform string    `json:"platform,omitempty"`
	By       string    `json:"by,omitempty"`     // dispatcher
	Commit   string    `json:"commit,omitempty"` // that asked for it
	Time     string    `json:"time,omitempty"`
	Reason   string    `json:"reason,omitempty"`   // why it was launched
	Answer   string    `json:"answer,omitempty"`   // of the platform
	Released string    `json:"released,omitempty"` // newest answer to a release: pending, bounded, closed
	Ends     string    `json:"ends,omitempty"`     // bounded: what is known of its end, one sentence
	Class    string    `json:"class"`              // how it ended; "running", "starting"
	Why      string    `json:"why,omitempty"`      // what that class means
	Error    string    `json:"error,omitempty"`    // how the program ended, with its last error line
	From     int64     `json:"from_step"`          // step it started from
	Step     int64     `json:"step"`               // last step that is known of it
	Kept     int64     `json:"kept_step"`          // step of its last acknowledged milestone; 0: none
	Lost     int64     `json:"lost_steps"`         // steps that nobody resumes from
	Spent    bool      `json:"spent"`
	Goodput  *Achieved `json:"goodput,omitempty"` // of an attempt that is over
	Cost     string    `json:"cost,omitempty"`    // what was paid for it, at what price and for how long; "": nothing that is known of
}

// Steps says in one clause how far the line's attempt came. A finished one keeps all that it did, whatever its last
// milestone was.
func (l *Line) Steps() string {
	text := fmt.Sprintf("from step %d to %d", l.From, l.Step)
	if l.Class == "finished" {
		return text + ", all of it kept"
	}
	return fmt.Sprintf("%s, kept %d, lost %d", text, l.Kept, l.Lost)
}

// Explain reads everything there is about one job's work, bounded to its newest dispatches, and writes nothing.
// conf is the plan's; its platforms let Now say where the work would go.
func (r *Reconciler) Explain(ctx context.Context, job *plan.Job, conf *plan.Config) (*Explanation, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	r.learnNow(ctx)
	works := []plan.Digest{job.Work}
	for _, in := range job.Inputs {
		works = append(works, in.Work)
	}
	start := r.requests.Load()
	world, err := r.observe(ctx, works)
	if err != nil {
		return nil, err
	}
	s := world.works[job.Work]
	s.job = job
	if s.err != nil {
		return nil, s.err
	}
	h, err := r.records.history(ctx, job.Work, s.seen) // also where the lease is held or finished
	if err != nil {
		return nil, err
	}
	pls, err := r.platforms(ctx, conf.Platforms)
	if err != nil {
		return nil, err
	}
	guarded(pls, &conf.Guard)
	if err := r.records.reckon(ctx, job.Work, s.seen); err != nil {
		return nil, err
	}
	p := &pass{r: r, world: world, platforms: pls, byWork: map[plan.Digest]*target{},
		allowed: map[string]bool{record.WitnessKey(string(job.Work)): true}}
	p.tally()
	charges := account(h)
	out := &Explanation{Work: job.Work, Job: job.Name, State: s.observed(job.Work).State, Spent: int(Spent(h, charges)),
		Limit: job.Limits.Retries, Now: Decide(p.facts(&target{work: job.Work, name: job.Name, asked: asked{job: job}, unready: r.unready(job)}))}
	out.Timers = r.timersFor(job, s, pls, out.Now)
	out.Cost = r.records.shelf(job.Work).cost(job.Work, h, s)
	out.Lines = out.Cost.tell(r.lines(job.Work, h, charges, s))
	if len(h.Dispatches) > 0 {
		out.Earlier = h.Dispatches[0].N - 1
	}
	out.Requests = r.requests.Load() - start
	return out, nil
}

// lines tells a history, dispatch by dispatch.
func (r *Reconciler) lines(w plan.Digest, h History, charges []Charge, s *sight) []Line {
	shelf := r.records.shelf(w)
	byAttempt, byDispatch := map[int64]Charge{}, map[int64]Charge{}
	for _, c := range charges {
		if c.Attempt != 0 {
			byAttempt[c.Attempt] = c
		} else {
			byDispatch[c.Dispatch] = c
		}
	}
	steps := map[int64]int64{} // how far attempts had come when they were given up
	for _, slip := range shelf.listed {
		if slip.claim != nil && slip.claim.Before != nil {
			b := slip.claim.Before
			steps[b.Attempt] = max(steps[b.Attempt], b.Step)
		}
	}
	for i := range h.Attempts {
		h.Attempts[i].Step = max(h.Attempts[i].Step, steps[h.Attempts[i].N])
	}
	var out []Line
	told := map[int64]bool{}
	for _, a := range h.Attempts {
		if a.Dispatch == 0 {
			out = append(out, attemptLine(Line{Class: a.class()}, a, byAttempt[a.N], s))
			told[a.N] = true
		}
	}
	for _, d := range h.Dispatches {
		line := Line{Dispatch: d.N, Platform: d.Platform, Reason: shown(d.Reason, 300), Released: d.Settled}
		if !d.Ended {
			line.Ends = d.ends()
		}
		if slip := shelf.listed[d.N]; slip != nil && slip.claim != nil {
			line.By, line.Commit, line.Time = shown(slip.claim.Dispatcher, 100), shown(slip.claim.Commit, 80), shown(slip.claim.Time, 40)
		}
		switch {
		case !d.Answered:
			line.Answer = "no answer was written down"
		case d.OK:
			line.Answer = "launched: " + shown(d.Text, 200)
		default:
			line.Answer = shown(fmt.Sprintf("%s: %s", d.Class, d.Text), 300)
		}
		any := false
		for _, a := range h.Attempts {
			if a.Dispatch == d.N {
				out = append(out, attemptLine(line, a, byAttempt[a.N], s))
				told[a.N], any = true, true
			}
		}
		if any {
			continue
		}
		line.Class, line.Why = "starting", "no worker has taken the lease yet"
		if c, ok := byDispatch[d.N]; ok {
			line.Class, line.Why, line.Spent = c.Class, c.Why, c.Spent
		}
		out = append(out, line)
	}
	for _, a := range h.Attempts {
		if !told[a.N] { // its dispatch is older than what is shown, or its claim was removed
			out = append(out, attemptLine(Line{Dispatch: a.Dispatch, Platform: a.Platform}, a, byAttempt[a.N], s))
		}
	}
	return out
}

// attemptLine adds what an attempt did to its dispatch's line.
func attemptLine(l Line, a Attempt, c Charge, s *sight) Line {
	l.Attempt, l.From, l.Step, l.Kept, l.Error = a.N, a.From, a.Step, a.Kept, shown(a.account(), 300)
	l.Class, l.Why, l.Spent, l.Goodput = c.Class, c.Why, c.Spent, achieved(a)
	if a.Live {
		l.Class, l.Why = "running", "holds the lease"
	}
	if rec := s.record; rec != nil && rec.Attempt == a.N {
		l.Step = max(l.Step, rec.Progress.Step)
		if rec.State == witness.Finished {
			l.Class, l.Why, l.Spent = "finished", fmt.Sprintf("with exit code %d", s.lease.Exit), false
		}
	}
	if !a.Live && l.Class != "finished" {
		l.Lost = max(l.Step-max(l.Kept, l.From), 0)
	}
	return l
}
