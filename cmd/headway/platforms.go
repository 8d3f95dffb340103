package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/local"
	"github.com/headway-run/headway/runners/sim"
)

// platforms makes the runner of each configured platform, for acting. This switch is the only list of plugins.
func (p *project) platforms(b bucket.Bucket) (map[string]runners.Runner, error) {
	out := map[string]runners.Runner{}
	for _, name := range slices.Sorted(maps.Keys(p.plan.Config.Platforms)) {
		c := p.plan.Config.Platforms[name]
		var r runners.Runner
		var err error
		switch c.Runner {
		case "local":
			r, err = p.local(c)
		case "sim":
			r, err = simulated(c, b)
		default:
			err = fmt.Errorf("there is no runner %q; this build has: local, sim", c.Runner)
		}
		if err != nil {
			return nil, &exit{code: exitError, err: fmt.Errorf("%s: platform %s: %w", c.Pos, name, err)}
		}
		out[name] = r
	}
	return out, nil
}

// declared is what the platforms say of themselves without being touched: what a reading verb decides with.
func (p *project) declared() map[string]runners.Runner {
	out := map[string]runners.Runner{}
	for name, c := range p.plan.Config.Platforms {
		if c.Runner == "local" || c.Runner == "sim" {
			out[name] = declared{slots: max(c.Slots, 1)}
		}
	}
	return out
}

// declared is a runner that starts nothing and ends nothing.
type declared struct{ slots int }

func (d declared) JobKinds() []string { return nil }
func (d declared) Capacity() int      { return d.slots }

func (d declared) Launch(context.Context, []runners.Launch) ([]runners.Receipt, error) {
	return nil, &runners.Failure{Class: runners.Rejected, Op: "launch", Hint: "a verb that reads launches nothing; use apply or watch"}
}

func (d declared) Release(context.Context, json.RawMessage) (runners.Release, error) {
	return runners.Release{}, &runners.Failure{Class: runners.Unreachable, Op: "release", Hint: "a verb that reads releases nothing; use release"}
}

// simulated is the platform inside this process, for trying plans and faults without a machine.
func simulated(c plan.Platform, b bucket.Bucket) (runners.Runner, error) {
	config, err := sim.Config{Platform: c.Name, Slots: c.Slots, Bucket: b}.With(c.Options)
	if err != nil {
		return nil, err
	}
	return sim.New(config)
}

// local runs agents on this machine: this binary again, with the verb agent.
func (p *project) local(c plan.Platform) (runners.Runner, error) {
	return local.New(local.Config{
		Platform: c.Name, Slots: c.Slots, Options: c.Options,
		Scratch: filepath.Join(p.root, stateFolder, "scratch", strings.ReplaceAll(c.Name, "/", "_")),
		Agent:   []string{p.env.self, "agent"}, Environ: os.Environ(),
	})
}
