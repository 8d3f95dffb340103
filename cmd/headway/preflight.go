package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket/open"
)

// preflightOptions are what a ring plan does not say itself.
type preflightOptions struct {
	json                                bool
	weights, prompts, agents, store, of string
	overrides                           []string
}

func newPreflight(e env) *cobra.Command {
	var o preflightOptions
	c := &cobra.Command{Use: "preflight FILE", Short: "checks a serving host or a ring before anything is sent to it: all failures, cheap checks first",
		Long: "preflight reads a target file or a ring plan and looks at what it says: all failures at once, the cheap checks first.\n" +
			"What could not be looked at is unknown and blocks as a refusal does, unless you take it upon yourself with --override.\n" +
			"0: nothing is in the way; 2: something is. See docs/preflight.md.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			report, err := o.check(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			return o.print(e, report)
		}}
	f := c.Flags()
	f.BoolVar(&o.json, "json", false, "the report as one JSON document")
	f.StringArrayVar(&o.overrides, "override", nil, "go on although RULE of SUBJECT is unknown: 'RULE; SUBJECT; REASON', kept in the report with your name")
	f.StringVar(&o.weights, "weights", "", "ring: a JSON FILE with digest, arch, layers and hidden of the model")
	f.StringVar(&o.prompts, "prompts", "", "ring: the FILE with the canary's prompts; default the one that the plan names")
	f.StringVar(&o.agents, "inspections", "", "ring: a JSON FILE with what the agents answered to INSPECT")
	f.StringVar(&o.store, "store", "", "ring: the lane's store, for the records of earlier loads")
	f.StringVar(&o.of, "model", "", "ring: the model's name in that store")
	return c
}

// isRing tells a ring plan from a target file.
var isRing = regexp.MustCompile(`(?m)^ring\s*:`)

func (o preflightOptions) check(ctx context.Context, e env, file string) (preflight.Report, error) {
	overrides, err := o.read()
	if err != nil {
		return preflight.Report{}, err
	}
	data, err := e.small(file)
	if err != nil {
		return preflight.Report{}, err
	}
	if isRing.Match(data) {
		return o.ring(ctx, e, file, data, overrides)
	}
	t, err := preflight.ReadTarget(file, data)
	if err != nil {
		return preflight.Report{}, &exit{code: exitError, err: err, hint: "docs/preflight.md has the fields of a target file"}
	}
	return preflight.Run(ctx, t.Name, preflight.Of(t, e.dir), overrides), nil
}

// small reads a file of the command line, at most 4 MiB of it.
func (e env) small(file string) ([]byte, error) {
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(e.dir, path)
	}
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 4<<20) {
		err = fmt.Errorf("%s is no file of at most 4 MiB", file)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func (o preflightOptions) read() ([]preflight.Override, error) {
	var out []preflight.Override
	for _, text := range o.overrides {
		parts := strings.SplitN(text, ";", 3)
		if len(parts) < 3 || strings.TrimSpace(parts[2]) == "" {
			return nil, &exit{code: exitError, err: fmt.Errorf("--override %q", text), hint: "write 'RULE; SUBJECT; REASON', as the report names them"}
		}
		by, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("an override carries your name, and the system does not know it: %w", err)
		}
		out = append(out, preflight.Override{Rule: strings.TrimSpace(parts[0]), Subject: strings.TrimSpace(parts[1]), By: by.Username, Reason: strings.TrimSpace(parts[2])})
	}
	return out, nil
}

// ring examines a ring plan with what was given beside it; what was not is unknown.
func (o preflightOptions) ring(ctx context.Context, e env, file string, data []byte, overrides []preflight.Override) (preflight.Report, error) {
	var none preflight.Report
	p, err := ring.ReadPlan(file, data)
	if err != nil {
		return none, &exit{code: exitError, err: err, hint: "docs/preflight.md has a ring plan"}
	}
	var w ring.Weights
	if o.weights != "" {
		b, err := e.small(o.weights)
		if err == nil {
			w, err = ring.ReadWeights(o.weights, b)
		}
		if err != nil {
			return none, err
		}
	}
	var seen []ring.Inspection
	if o.agents != "" {
		b, err := e.small(o.agents)
		if err == nil {
			seen, err = ring.ReadInspections(o.agents, b)
		}
		if err != nil {
			return none, err
		}
	}
	name := o.prompts
	if name == "" {
		name = p.Canary.Prompts
	}
	var prompts []ring.Prompt
	b, err := e.small(name)
	if err == nil {
		prompts, err = ring.ReadPrompts(name, b)
	}
	if err != nil && (o.prompts != "" || !errors.Is(err, os.ErrNotExist)) {
		return none, err
	}
	records, err := o.records(ctx, e, p)
	if err != nil {
		return none, err
	}
	return ring.Examine(ctx, p, w, prompts, seen, records, overrides)
}

func (o preflightOptions) records(ctx context.Context, e env, p *ring.Plan) (*ring.Records, error) {
	if o.store == "" && o.of == "" {
		return nil, nil
	}
	if o.store == "" || o.of == "" {
		return nil, &exit{code: exitError, err: errors.New("--store and --model go together"), hint: "the records of a ring lie under lane/MODEL/ring in the lane's store"}
	}
	b, err := open.URL(ctx, o.store, open.Options{Getenv: e.getenv})
	if err != nil {
		return nil, err
	}
	return &ring.Records{Store: b, Model: o.of, Ring: p.Ring}, nil
}

// print shows every failure, then the count; exit 2 when anything is in the way.
func (o preflightOptions) print(e env, r preflight.Report) error {
	blocking := r.Blocking()
	if o.json {
		if err := printJSON(e.stdout, r); err != nil {
			return err
		}
	} else {
		for _, f := range r.Findings {
			if f.Verdict != preflight.OK {
				fmt.Fprintln(e.stdout, clean(plan.Redact(f.String())))
			}
		}
		fmt.Fprintf(e.stdout, "%s: %s, %d in the way\n", clean(r.Target), count(len(r.Findings), "finding"), len(blocking))
	}
	if len(blocking) > 0 {
		return &exit{code: exitBlocked}
	}
	return nil
}
