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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

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
	conf, err := sim.Config{Platform: c.Name, Slots: c.Slots, Bucket: b}.With(c.Options)
	if err != nil {
		return nil, err
	}
	return sim.New(conf)
}

// local runs agents on this machine: this binary again, with the verb agent.
func (p *project) local(c plan.Platform) (runners.Runner, error) {
	return local.New(local.Config{
		Platform: c.Name, Slots: c.Slots, Options: c.Options,
		Scratch: filepath.Join(p.root, stateFolder, "scratch", strings.ReplaceAll(c.Name, "/", "_")),
		Agent:   []string{p.env.self, "agent"}, Environ: os.Environ(), StoreEnv: p.storeEnv,
	})
}

// leastKeys is how long the store's keys must still last when an agent is started with them. A run that takes longer
// than its keys loses the store then, and goes on from its last milestone with fresh ones: below this it is not worth
// the start.
const leastKeys = 15 * time.Minute

// storeEnv is what an agent on this machine needs to open the store on S3: the keys that this program itself would use
// now, wherever they come from.
func (p *project) storeEnv(ctx context.Context) ([]string, error) {
	chain, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("keys for the store: %w", err)
	}
	keys, err := chain.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("keys for the store: %w", err)
	}
	if left := time.Until(keys.Expires); keys.CanExpire && left >= leastKeys {
		p.env.logger().Warn("the store's keys expire: a longer run loses the store then, and goes on from its last milestone with fresh ones",
			"left", left.Round(time.Minute).String())
	}
	return lent(keys, chain.Region, time.Now())
}

// lent makes keys the variables that an agent opens a store with.
func lent(keys aws.Credentials, region string, now time.Time) ([]string, error) {
	if left := keys.Expires.Sub(now); keys.CanExpire && left < leastKeys {
		return nil, fmt.Errorf("the store's keys run out in %s, a run needs them for %s at the least", left.Round(time.Second), leastKeys)
	}
	env := []string{"AWS_ACCESS_KEY_ID=" + keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + keys.SecretAccessKey}
	if keys.SessionToken != "" {
		env = append(env, "AWS_SESSION_TOKEN="+keys.SessionToken)
	}
	if region != "" {
		env = append(env, "AWS_REGION="+region)
	}
	return env, nil
}
