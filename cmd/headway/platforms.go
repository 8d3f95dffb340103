package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/local"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// makers says how the runner of each kind of platform is made, for acting. It is the only list of plugins.
func (p *project) makers(b bucket.Bucket) map[string]func(plan.Platform) (runners.Runner, error) {
	return map[string]func(plan.Platform) (runners.Runner, error){
		"local": p.local,
		"sim":   func(c plan.Platform) (runners.Runner, error) { return simulated(c, b) },
	}
}

// planned are the runners that a plan may name already and that this build lacks: their platforms launch nothing.
// (Table of values.)
var planned = []string{"kaggle", "kubernetes", "lightning", "modal", "runpod", "slurm", "ssh", "vast"}

// checkRunners holds the platforms against the runners of this build: an unknown one is an error, one that only this
// build lacks a warning, and an error at a job that nothing else can run.
func (p *project) checkRunners() {
	built := slices.Sorted(maps.Keys(p.makers(nil)))
	var found []plan.Problem
	for _, name := range slices.Sorted(maps.Keys(p.plan.Config.Platforms)) {
		c := p.plan.Config.Platforms[name]
		switch {
		case c.Runner == "" || slices.Contains(built, c.Runner): // no runner at all was refused before
		case slices.Contains(planned, c.Runner):
			found = append(found, plan.Problem{Pos: c.Pos, Severity: plan.Warning, Code: "RunnerNotBuilt",
				Text: fmt.Sprintf("platform %s: this build has no runner %s: jobs skip that rung", name, c.Runner)})
		default:
			found = append(found, unknownRunner(c, slices.Sorted(slices.Values(slices.Concat(built, planned)))))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.plan.Config.Platforms)) {
		found = append(found, badOptions(p.plan.Config.Platforms[name])...)
	}
	found = append(found, p.dealtTwice()...)
	found = append(found, p.idleLabels()...)
	if found == nil {
		return
	}
	said := map[plan.Pos]bool{}
	for i := range p.plan.Jobs {
		j := &p.plan.Jobs[i]
		if lacks := p.nowhere(j); lacks != "" && !said[j.Pos] { // a matrix stands at one place
			said[j.Pos] = true
			found = append(found, plan.Problem{Pos: j.Pos, Severity: plan.Error, Code: "RunnerNotBuilt",
				Text:     fmt.Sprintf("job %s can run nowhere: this build has no runner %s", j.Group, lacks),
				Expected: "a rung with one of " + strings.Join(built, ", "), Hint: "or suspend: true until there is one"})
		}
	}
	p.plan.Problems = append(p.plan.Problems[:len(p.plan.Problems):len(p.plan.Problems)], found...)
	p.problems = append(p.problems[:len(p.problems):len(p.problems)], found...)
}

func unknownRunner(c plan.Platform, known []string) plan.Problem {
	q := plan.Problem{Pos: c.Pos, Severity: plan.Error, Code: "UnknownRunner", Text: fmt.Sprintf("platform %s: there is no runner %q", c.Name, c.Runner),
		Expected: "one of " + strings.Join(known, ", ")}
	if near := plan.Nearest(c.Runner, known); near != "" {
		q.Hint = "did you mean " + near + "?"
	}
	return q
}

// nowhere names the runners of a job's ladder when this build has none of them, and the job wants to run.
func (p *project) nowhere(j *plan.Job) string {
	var lacks []string
	for _, on := range j.On {
		c, ok := p.plan.Config.Platforms[on]
		if !ok || !slices.Contains(planned, c.Runner) {
			return ""
		}
		if !slices.Contains(lacks, c.Runner) {
			lacks = append(lacks, c.Runner)
		}
	}
	if j.Suspend {
		return ""
	}
	return strings.Join(lacks, ", ")
}

// platforms makes the runner of each configured platform, for acting. One that this build lacks is left out, so that it
// launches nothing and the others go on.
func (p *project) platforms(b bucket.Bucket) (map[string]runners.Runner, error) {
	out, makers := map[string]runners.Runner{}, p.makers(b)
	for _, name := range slices.Sorted(maps.Keys(p.plan.Config.Platforms)) {
		c := p.plan.Config.Platforms[name]
		makeIt, ok := makers[c.Runner]
		if !ok {
			continue // said when the plan was read
		}
		r, err := makeIt(c)
		if err != nil {
			return nil, &exit{code: exitError, err: fmt.Errorf("%s: platform %s: %w", c.Pos, name, err)}
		}
		out[name] = r
	}
	return out, nil
}

// declared is what the platforms say of themselves without being touched: what a reading verb decides with.
func (p *project) declared() map[string]runners.Runner {
	out, makers := map[string]runners.Runner{}, p.makers(nil)
	for name, c := range p.plan.Config.Platforms {
		if _, ok := makers[c.Runner]; ok {
			out[name] = priced{declared{capacityOf(c)}, ownPrice(c)}
		}
	}
	return out
}

// declared is a runner that starts nothing and ends nothing.
type declared struct{ capacity int }

// capacityOf is how many jobs one launch on a platform carries, as its entry says it.
func capacityOf(c plan.Platform) int {
	option := map[string]string{"local": "cards", "sim": "capacity"}[c.Runner]
	if n, err := strconv.Atoi(c.Options[option]); err == nil {
		return max(n, 1)
	}
	return 1
}

func (d declared) JobKinds() []string { return nil }
func (d declared) Capacity() int      { return d.capacity }

func (d declared) Launch(context.Context, []runners.Launch) ([]runners.Receipt, error) {
	return nil, &runners.Failure{Class: runners.Rejected, Op: "launch", Hint: "a verb that reads launches nothing; use apply or watch"}
}

func (d declared) Release(context.Context, json.RawMessage) (runners.Release, error) {
	return runners.Release{}, &runners.Failure{Class: runners.Unreachable, Op: "release", Hint: "a verb that reads releases nothing; use release"}
}

// priced is one that says what its launches cost.
type priced struct {
	declared
	price record.Price
}

// Price implements runners.Pricer.
func (p priced) Price(context.Context) (record.Price, error) { return p.price, nil }

// ownPrice is what the runner of a platform says of it, as the one that acts does: the own machine is free, and the
// simulated one costs what its entry says.
func ownPrice(c plan.Platform) record.Price {
	if c.Runner != "sim" || c.Price.Amount <= 0 {
		return record.Price{}
	}
	return record.Price{PerHour: c.Price.Amount, Unit: cmp.Or(c.Price.Unit, "USD")}
}

// simulated is the platform inside this process, for trying plans and faults without a machine.
func simulated(c plan.Platform, b bucket.Bucket) (runners.Runner, error) {
	conf, err := sim.Config{Platform: c.Name, Slots: c.Slots, Bucket: b, Price: c.Price.Amount, Unit: c.Price.Unit}.With(c.Options)
	if err != nil {
		return nil, err
	}
	r, err := sim.New(conf)
	if err != nil {
		return nil, err
	}
	if conf.Quota > 0 {
		return sim.Quoted{Runner: r}, nil
	}
	return r, nil
}

// local runs agents on this machine: this binary again, with the verb agent.
func (p *project) local(c plan.Platform) (runners.Runner, error) {
	return local.New(local.Config{
		Platform: c.Name, Slots: c.Slots, Options: c.Options,
		Scratch: filepath.Join(p.root, stateFolder, "scratch", strings.ReplaceAll(c.Name, "/", "_")),
		Agent:   []string{p.env.self, "agent"}, Environ: os.Environ(), StoreEnv: p.env.storeEnv,
	})
}
