package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
	"github.com/headway-run/headway/deploylane/tag"
)

// engines are the clients of serving rings that this build has, by the adapter that a ring plan names.
func engines() map[string]deploylane.OpenEngine {
	return map[string]deploylane.OpenEngine{"ringsim": func(ctx context.Context, p *ring.Plan) (ring.Engine, func(), error) {
		agents := map[string]string{}
		for _, h := range p.Hosts {
			agents[h.Name] = h.Agent
		}
		w := ringsim.Connect(ctx, agents)
		return w.Outer(id()), w.Close, nil
	}}
}

func newRing(e env) *cobra.Command {
	c := &cobra.Command{Use: "ring", Short: "looks at serving rings, and finishes what was left half done on them"}
	c.AddCommand(newRingCheck(e), newRingStatus(e), newRingRecover(e), newRingAdopt(e))
	return c
}

func newRingCheck(e env) *cobra.Command {
	w := where{}
	var weights, model string
	c := &cobra.Command{Use: "check FILE [REPOSITORY]", Short: "every guard of a ring plan, all failures at once; nothing is sent or written", Args: cobra.RangeArgs(1, 2),
		Long: "Asks the agents what they are and holds the plan against their answers, with --model against the records of earlier loads too. What could\n" +
			"not be looked at is unknown and blocks as a refusal does. 0: nothing is in the way; 2: something is.",
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			v, err := viewOf(e, args[0], weights)
			if err != nil {
				return err
			}
			if model != "" {
				o, err := w.open(c.Context(), e, args[1:], false)
				if err != nil {
					return err
				}
				defer func() { _ = o.git.Close() }()
				if err := withRecords(c.Context(), v, ring.Records{Store: o.lane.Store, Model: model, Ring: v.Plan.Ring}); err != nil {
					return err
				}
			}
			if open := engines()[v.Plan.Engine.Adapter]; open != nil {
				engine, done, err := open(c.Context(), v.Plan)
				if err != nil {
					return err
				}
				defer done()
				v.Survey = ring.TakeSurvey(c.Context(), engine, v.Plan, v.Replaces)
			} else {
				fmt.Fprintf(e.stderr, "this build has no client of the adapter %s, so no agent was asked\n", clean(v.Plan.Engine.Adapter))
			}
			return e.report(preflight.Run(c.Context(), v.Plan.Ring, ring.Checks(v, nil), nil))
		}}
	w.flags(c)
	c.Flags().StringVar(&weights, "weights", "", "a JSON FILE with digest, arch, layers and hidden of the model")
	c.Flags().StringVar(&model, "model", "", "read the records of this model's earlier loads from the lane's store")
	return c
}

// viewOf is a plan with its prompts and weights, as they lie here.
func viewOf(e env, file, weights string) (*ring.View, error) {
	b, err := e.small(file)
	if err != nil {
		return nil, err
	}
	p, err := ring.ReadPlan(file, b)
	if err != nil {
		return nil, &exit{code: exitError, err: err, hint: "docs/preflight.md has a ring plan"}
	}
	v := &ring.View{Plan: p, Generation: uint64(max(time.Now().UnixMilli(), 1))}
	if b, err = e.small(p.Canary.Prompts); err == nil {
		v.Prompts, err = ring.ReadPrompts(p.Canary.Prompts, b)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a file that is not there is unknown, and its guard says so
		return nil, err
	}
	if weights == "" {
		return v, nil
	}
	if b, err = e.small(weights); err == nil {
		v.Weights, err = ring.ReadWeights(weights, b)
	}
	return v, err
}

// withRecords adds what earlier loads left.
func withRecords(ctx context.Context, v *ring.View, r ring.Records) error {
	loads, err := r.Loads(ctx)
	if err != nil {
		return err
	}
	for i, l := range loads {
		g := l.Intent.Generation
		v.Recorded = append(v.Recorded, ring.Recorded{Generation: g, Where: r.IntentKey(g)})
		v.Generation = max(v.Generation, g+1)
		if l.Ledger.Closed == "" {
			v.Replaces = &loads[i].Intent
		}
	}
	v.Known, v.Lease = true, r.Releaser(ctx)
	return nil
}

// small reads a file of at most 4 MiB that a person named.
func (e env) small(file string) ([]byte, error) {
	info, err := os.Stat(e.path(file))
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 4<<20) {
		err = fmt.Errorf("%s is no file of at most 4 MiB", file)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(e.path(file))
}

// report prints what is in the way.
func (e env) report(r preflight.Report) error {
	for _, f := range r.Findings {
		if f.Verdict != preflight.OK {
			fmt.Fprintln(e.stdout, clean(f.String()))
		}
	}
	n := len(r.Blocking())
	fmt.Fprintf(e.stdout, "%s: %d findings, %d in the way\n", clean(r.Target), len(r.Findings), n)
	if n > 0 {
		return &exit{code: exitBlocked}
	}
	return nil
}

// onRing opens the lane and finds one ring of a model by the plans at the tip of the branch.
func (w *where) onRing(ctx context.Context, e env, args []string, name string, write bool) (*opened, *ring.Plan, error) {
	o, err := w.open(ctx, e, args[1:], write)
	if err != nil {
		return nil, nil, err
	}
	p, err := o.ring(ctx, args[0], name)
	if err != nil {
		return nil, nil, errors.Join(err, o.git.Close())
	}
	return o, p, nil
}

func (o *opened) ring(ctx context.Context, model, name string) (out *ring.Plan, err error) {
	tip, err := tags{o.git}.Tip(ctx)
	if err != nil {
		return nil, repoFailure(err)
	}
	for _, t := range o.conf.Models[model].Targets {
		if t.Kind != deploylane.TargetRing {
			continue
		}
		b, err := o.lane.Git.File(ctx, tip, t.Ring.File)
		if err != nil {
			return nil, err
		}
		p, err := ring.ReadPlan(t.Ring.File, b)
		if err != nil {
			return nil, err
		}
		switch {
		case name != "" && p.Ring != name:
		case out != nil:
			return nil, &exit{code: exitError, err: fmt.Errorf("%s has more rings than one, %s and %s", model, out.Ring, p.Ring), hint: "name it with --ring"}
		default:
			out = p
		}
	}
	if out == nil {
		return nil, &exit{code: exitError, err: fmt.Errorf("%s names no such ring of a model %s", deploylane.File, clean(model)), hint: "targets: [{ring: lane/rings/digits.yaml, weights: {…}}]"}
	}
	return out, nil
}

func newRingStatus(e env) *cobra.Command {
	w := where{}
	var name string
	c := &cobra.Command{Use: "status MODEL [REPOSITORY]", Short: "what a ring was asked for, what its clients see, its loads and who is at it", Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, p, err := w.onRing(c.Context(), e, args, name, false)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			return o.ringStatus(c.Context(), e, args[0], p)
		}}
	w.flags(c)
	c.Flags().StringVar(&name, "ring", "", "which one, when the model has several")
	return c
}

func (o *opened) ringStatus(ctx context.Context, e env, model string, p *ring.Plan) error {
	records := ring.Records{Store: o.lane.Store, Model: model, Ring: p.Ring}
	asked, err := o.lane.Asked(ctx, model, p.Ring)
	if err != nil {
		return err
	}
	loads, err := records.Loads(ctx)
	if err != nil {
		return err
	}
	shown, err := (ring.StoreCatalogue{Records: records}).Read(ctx, p.Catalog.Name)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	say := func(k, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", k, clean(fmt.Sprintf(format, args...)))
	}
	if say("ring", "%s", p.Ring); asked != nil {
		say("asked for", "%s, by %s", asked.Version, asked.Tag)
	}
	clients := "nothing"
	if shown.Serving {
		clients = fmt.Sprintf("generation %d, release %s", shown.Load, short(shown.Entry.Release))
	}
	say("clients see", "%s", clients)
	lease := "nobody"
	if l := records.Releaser(ctx); !l.Known || l.Other != "" {
		lease = cmp.Or(l.Other, "not known: the store does not answer")
	}
	say("at it", "%s", lease)
	for _, l := range loads {
		state := "open: headway-lane ring recover " + model
		switch g := l.Ledger; {
		case g.Closed != "":
			state = string(g.Closed)
		case g.Stopped != "":
			state = "stopped: " + g.Stopped
		case g.Serving:
			state = "serving"
		}
		say(fmt.Sprint(l.Intent.Generation), "release %s: %s", short(l.Intent.Release), state)
	}
	return t.Flush()
}

func newRingRecover(e env) *cobra.Command {
	w := where{}
	var name string
	c := &cobra.Command{Use: "recover MODEL [REPOSITORY]", Short: "finishes or takes back what a lane that died left on a ring", Args: cobra.RangeArgs(1, 2),
		Long: "Does what the next look of headway-lane run would do first. A lane that died lets a ring go within four minutes; until then, and while\n" +
			"another lane is at it, this is refused. It sends nothing that the records and the agents do not both call for.",
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, p, err := w.onRing(c.Context(), e, args, name, true)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			out, err := o.lane.RecoverRing(c.Context(), args[0], p)
			if err != nil {
				return err
			}
			if out.Serving == 0 {
				fmt.Fprintf(e.stdout, "%s: nothing serves: %s\n", clean(p.Ring), clean(out.Why))
				return &exit{code: exitParked}
			}
			fmt.Fprintf(e.stdout, "%s: generation %d serves release %s\n", clean(p.Ring), out.Serving, short(out.Release))
			return nil
		}}
	w.flags(c)
	c.Flags().StringVar(&name, "ring", "", "which one, when the model has several")
	return c
}

func newRingAdopt(e env) *cobra.Command {
	w := where{}
	var name string
	var generation uint64
	c := &cobra.Command{Use: "adopt MODEL [REPOSITORY]", Short: "vouches for nodes whose records are lost, here and in the store", Args: cobra.RangeArgs(1, 2),
		Long: "Writes a record for nodes of a ring that no record names, as of the release that the ring was last asked for. It holds your name. Look at\n" +
			"the agents first: the generation is the one that they show. Then headway-lane ring recover treats it as any other load.",
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			who, err := user.Current()
			if err != nil {
				return fmt.Errorf("the record carries your name, and the system does not know it: %w", err)
			}
			o, p, err := w.onRing(c.Context(), e, args, name, true)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			asked, err := o.lane.Asked(c.Context(), args[0], p.Ring)
			if err != nil {
				return err
			}
			if asked == nil {
				return &exit{code: exitError, err: fmt.Errorf("ring %s was never asked for a release, so its nodes are of nobody here", p.Ring), hint: "unload them with the engine's own tools"}
			}
			if asked.Version == tag.None {
				return &exit{code: exitError, err: fmt.Errorf("ring %s was taken down by %s, so its nodes are of no release", p.Ring, clean(asked.Tag)), hint: "unload them with the engine's own tools"}
			}
			l, done, err := o.lane.RingOf(c.Context(), args[0], asked.Plan)
			if err != nil {
				return err
			}
			defer done()
			l.By = who.Username + " (" + l.By + ")"
			if err := l.Adopt(c.Context(), asked.Release, generation); err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "%s: generation %d is recorded as %s, vouched for by %s; now: headway-lane ring recover %s\n", clean(p.Ring), generation, asked.Version, clean(who.Username), clean(args[0]))
			return nil
		}}
	w.flags(c)
	c.Flags().StringVar(&name, "ring", "", "which one, when the model has several")
	c.Flags().Uint64Var(&generation, "generation", 0, "that the agents show")
	_ = c.MarkFlagRequired("generation")
	return c
}
