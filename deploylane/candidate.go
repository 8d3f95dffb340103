package deploylane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// hardware are the facts of a fingerprint that make one kind of hardware. (Table of values.)
var hardware = []string{"arch", "cpu", "gpu", "gpu_pci", "gpus", "gpu_mem_mib", "gpu_mig", "capability"}

// kindOf names a machine's kind. An unknown fact stands as such: it is equal to no known one.
func kindOf(f map[string]string) string {
	var parts []string
	for _, k := range hardware {
		if v := f[k]; v != "" {
			parts = append(parts, k+" "+shown(v, 100))
		}
	}
	return strings.Join(parts, ", ")
}

// choose is the candidate's stage: everything that a release rests on is looked up, held against the tag, and frozen. Nothing
// is launched. A *Stop says which gate did not open.
func (l *Lane) choose(ctx context.Context, o Order) (*Chosen, error) {
	c := &Chosen{Order: o}
	conf, err := l.Git.Lane(ctx, o.Commit)
	if err != nil {
		return c, err
	}
	m, ok := conf.Models[o.Model]
	if !ok {
		return c, stop("UnknownModel", "%s of commit %s has no model %s: add it, and release under a new version", File, short(o.Commit), o.Model)
	}
	c.Model = m
	return c, l.freeze(ctx, c)
}

// freeze fills a candidate.
func (l *Lane) freeze(ctx context.Context, c *Chosen) error {
	o, m := c.Order, c.Model
	jobs, err := l.Git.Jobs(ctx, o.Commit)
	if err != nil {
		return err
	}
	find := func(name string) (*plan.Job, error) {
		i := slices.IndexFunc(jobs, func(j plan.Job) bool { return j.Name == name })
		if i < 0 {
			return nil, stop("PlanMismatch", "%s names job %s, and the plan of commit %s has none: mend it and release under a new version", File, shown(name, 100), short(o.Commit))
		}
		return &jobs[i], nil
	}
	train, err := find(m.Job)
	if err != nil {
		return err
	}
	check, err := find(m.Backtest.Job)
	if err != nil {
		return err
	}
	if err := suits(o, m, train, check); err != nil {
		return err
	}
	if err := l.evidence(ctx, c, train, check); err != nil {
		return err
	}
	if err := l.seeds(ctx, c, train, jobs); err != nil {
		return err
	}
	if err := spread.Ready(c.question()); err != nil { // before any money is spent
		return c.notReady(err)
	}
	c.order(train, check)
	return nil
}

// notReady is the refusal of a candidate that no retrained model could be held against. Siblings that do not count are named: one
// of them may be what is missing.
func (c *Chosen) notReady(err error) error {
	more := ""
	if n := len(c.LeftOut); n > 0 {
		more = fmt.Sprintf("; left out: %s", strings.Join(c.LeftOut[:min(n, 5)], "; "))
	}
	code := "NotJudged"
	if few, ok := errors.AsType[*spread.NotReady](err); ok && few.Cause == spread.FewSeeds {
		code = "TooFewSeeds"
	}
	return stop(code, "%v (nothing was launched)%s", err, more)
}

// suits holds the plan at the tagged commit against the tag and lane.yaml.
func suits(o Order, m Model, train, check *plan.Job) error {
	switch {
	case o.Plan.Path != m.Plan:
		return stop("PlanMismatch", "the tag names the plan %s, %s names %s", shown(o.Plan.Path, 100), File, m.Plan)
	case string(train.Work) != o.Work:
		return stop("PlanMismatch", "job %s of commit %s is work %s, the tag's candidate is %s: tag the commit whose plan made it", m.Job, short(o.Commit), train.Work.Short(), short(o.Work))
	case train.Generation != 1 || check.Generation != 1:
		return stop("NotSecondGeneration", "job %s is of generation %d, a parent is of generation 1", m.Job, train.Generation)
	case !slices.ContainsFunc(check.Inputs, func(in plan.Input) bool { return in.Work == train.Work }):
		return stop("PlanMismatch", "job %s does not need job %s, so it says nothing about it: needs: [%s]", m.Backtest.Job, m.Job, m.Job)
	case len(o.Requires) == 0:
		return stop("EnvNotPinned", "lane/policy.yaml pins no environment for %s", m.Name)
	case len(train.Secrets)+len(check.Secrets) > 0:
		return stop("Secrets", "job %s or %s asks for secrets, and the lane hands out none: take them out of the plan", m.Job, m.Backtest.Job)
	}
	return nil
}

// evidence reads the candidate's result and that of its backtest.
func (l *Lane) evidence(ctx context.Context, c *Chosen, train, check *plan.Job) error {
	o, m := c.Order, c.Model
	r, err := finished(ctx, l.Research, o.Work, "the candidate")
	if err != nil {
		return err
	}
	switch f := r.seen.Finished; {
	case f.Attempt != o.Attempt || f.SHA256 != o.Artifact:
		return stop("ArtifactMismatch", "the tag names the result of attempt %d with the sha256 %s, the store has attempt %d with %s", o.Attempt, short(o.Artifact), f.Attempt, short(f.SHA256))
	case r.lacks(m.metrics()) != "":
		return stop("EvidenceMissing", "the candidate's result has no number named %s, which %s asks for", r.lacks(m.metrics()), File)
	}
	found, err := machine(ctx, l.Research, o.Work, o.Attempt)
	if err != nil {
		return err
	}
	c.Hardware = kindOf(found)
	c.Parent = r.run(train.Name, string(train.IdentityJSON()), found, m.metrics()...)
	if r, err = finished(ctx, l.Research, string(check.Work), "the candidate's backtest"); err != nil {
		return err
	}
	score, ok := r.metrics[m.Backtest.Metric]
	if !ok {
		return stop("EvidenceMissing", "the result of the candidate's backtest has no number named %s", m.Backtest.Metric)
	}
	if why := m.Backtest.why(score); why != "" {
		return stop("BacktestFailed", "the candidate's backtest: %s", why)
	}
	if found, err = machine(ctx, l.Research, string(check.Work), r.seen.Finished.Attempt); err != nil {
		return err
	}
	c.Backtest, c.Score = r.run(check.Name, string(check.IdentityJSON()), found, m.Backtest.Metric), score
	return nil
}

func (m Model) metrics() (names []string) {
	for _, x := range m.Metrics {
		names = append(names, x.Name)
	}
	return names
}

// question is what the spread check is asked, without the new run.
func (c *Chosen) question() spread.Question {
	q := spread.Question{Metrics: c.Model.Metrics, MinRuns: c.Model.Seeds}
	for _, s := range c.Seeds {
		q.Parents = append(q.Parents, spread.Run{Name: s.Work, Metrics: s.Metrics})
	}
	return q
}

// asked is a job's identity but for seed and replica, with its command as it is written.
func asked(j *plan.Job) string {
	k := *j
	k.Seed, k.Replica, k.Argv = 0, 0, []string{j.Run}
	return string(k.IdentityJSON())
}

// seeds finds the siblings of the candidate in the plan of the tagged commit: the same question with another seed or replica,
// finished, on the same kind of hardware. The candidate itself is left out: it was picked, so it is no random one of them.
func (l *Lane) seeds(ctx context.Context, c *Chosen, train *plan.Job, jobs []plan.Job) error {
	want, seen := asked(train), map[plan.Digest]bool{train.Work: true}
	for i := range jobs {
		j := &jobs[i]
		if seen[j.Work] || asked(j) != want {
			continue
		}
		seen[j.Work] = true
		run, why, err := l.seed(ctx, c, j)
		if err != nil {
			return err
		}
		if why != "" {
			c.LeftOut = append(c.LeftOut, j.Name+": "+why)
			continue
		}
		c.Seeds = append(c.Seeds, run)
	}
	slices.SortFunc(c.Seeds, func(a, b Run) int { return strings.Compare(a.Work, b.Work) })
	slices.Sort(c.LeftOut)
	return nil
}

// seed reads one sibling; why says why it is no seed.
func (l *Lane) seed(ctx context.Context, c *Chosen, j *plan.Job) (run Run, why string, err error) {
	r, err := finished(ctx, l.Research, string(j.Work), "seed "+j.Name)
	var found map[string]string
	if err == nil {
		found, err = machine(ctx, l.Research, string(j.Work), r.seen.Finished.Attempt)
	}
	if no, is := errors.AsType[*Stop](err); is {
		return run, no.Text, nil
	}
	if err != nil {
		return run, "", err
	}
	if lacks := r.lacks(c.Model.metrics()); lacks != "" {
		return run, "its result has no number named " + lacks, nil
	}
	if kind := kindOf(found); kind != c.Hardware {
		return run, fmt.Sprintf("it ran on other hardware (%s) than the candidate (%s)", kind, c.Hardware), nil
	}
	return r.run(j.Name, string(j.IdentityJSON()), nil, c.Model.metrics()...), "", nil
}

// order makes the two works of the second generation.
func (c *Chosen) order(train, check *plan.Job) {
	c.Retrain = ordered(train, c.Order.Requires)
	c.Retrain.finish()
	if c.Model.Twice {
		twin := c.Retrain
		twin.Spec.Replica++
		twin.finish()
		c.Twin = &twin
	}
	c.Check = ordered(check, c.Order.Requires)
	c.Check.Spec.Deploy = true
	needed := slices.Clone(c.Retrain.Spec.Inputs)
	for i, in := range c.Check.Spec.Inputs {
		if in.Work == string(train.Work) {
			c.Check.Spec.Inputs[i].Work = c.Retrain.Spec.Work
		} else {
			needed = append(needed, in)
		}
	}
	c.Check.finish()
	slices.SortFunc(needed, func(a, b record.Input) int {
		return cmp.Or(strings.Compare(a.Work, b.Work), strings.Compare(a.Job, b.Job))
	})
	c.Inputs = slices.CompactFunc(needed, func(a, b record.Input) bool { return a.Work == b.Work })
}

// ordered is a job of the plan as the lane runs it: the same work, but for generation, parent and the pinned environment.
func ordered(j *plan.Job, requires map[string]string) Ordered {
	o := Ordered{Job: j.Name, Code: j.Code, Cards: 0, Spec: record.Spec{Protocol: record.Protocol, Kind: j.Kind, CodeTree: j.CodeTree, Argv: j.Argv,
		Params: j.Params, Seed: j.Seed, Replica: j.Replica, Env: j.Env, Result: j.Result, Metrics: j.Metrics,
		Generation: 2, Parent: string(j.Work), Requires: map[string]string{}}}
	maps.Copy(o.Spec.Requires, j.Requires)
	maps.Copy(o.Spec.Requires, requires)
	for _, in := range j.Inputs {
		o.Spec.Inputs = append(o.Spec.Inputs, record.Input{Job: in.Job, Work: string(in.Work)})
	}
	if len(j.GPU.Any) > 0 {
		o.Cards = max(j.GPU.Count, 1)
	}
	o.Terms = record.Terms{MilestoneSteps: j.Milestones.Steps, MilestoneS: j.Milestones.Every.Seconds(), LeaseK: cmp.Or(j.Lease.K, witness.DefaultK),
		LeaseFloorS: j.Lease.Floor.Seconds(), WatchPath: j.Watch.Path, WatchIntervalS: j.Watch.Interval.Seconds(), FLOPsPerStep: j.FLOPs.PerStep, Steps: j.FLOPs.Steps,
		GraceS: grace.Seconds()}
	return o
}

// finish names the work by what it computes.
func (o *Ordered) finish() { o.Spec.Work = record.Hash(record.Identity(o.Spec)) }
