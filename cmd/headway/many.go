package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/operate"
	"github.com/headway-run/headway/runners/bucket"
)

// crowd is the works of which a verb was asked something: jobs by name, or all of a group.
type crowd struct {
	p        *project
	b        bucket.Bucket // takes writes
	accepted *plan.Accepted
	targets  []operate.Target
}

// openMany finds the works that names mean, each once.
func openMany(ctx context.Context, e env, names []string) (*crowd, error) {
	p, err := readProject(ctx, e, "")
	if err != nil {
		return nil, err
	}
	r, b, err := p.reader(ctx)
	if err != nil {
		return nil, err
	}
	c := &crowd{p: p}
	if c.accepted, err = r.Accepted(ctx, p.plan.Config.Name); err != nil {
		return nil, err
	}
	seen := map[plan.Digest]bool{}
	add := func(job string, work plan.Digest) {
		if !seen[work] {
			seen[work] = true
			c.targets = append(c.targets, operate.Target{Job: job, Work: string(work)})
		}
	}
	for _, name := range names {
		job, work, err := p.named(ctx, b, name, c.accepted)
		if err == nil {
			add(job, work)
			continue
		}
		members := p.members(name, c.accepted)
		if len(members) == 0 {
			return nil, err
		}
		for _, m := range members {
			add(m.Job, plan.Digest(m.Work))
		}
	}
	c.b, _, err = p.openStore(ctx, true)
	return c, err
}

// members are the jobs of a group: of the accepted plan, which is what runs, else of the files.
func (p *project) members(group string, accepted *plan.Accepted) (out []operate.Target) {
	if accepted != nil {
		for _, j := range accepted.Jobs {
			if j.Group == group {
				out = append(out, operate.Target{Job: j.Name, Work: string(j.Work)})
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	for i := range p.plan.Jobs {
		if j := &p.plan.Jobs[i]; j.Group == group {
			out = append(out, operate.Target{Job: j.Name, Work: string(j.Work)})
		}
	}
	return out
}

// outcome is what one of many came to: a word for the count, a sentence, and the error where it did not do what was asked.
type outcome struct {
	job, word, text string
	err             error
}

// tell prints one line for each of several and then one that counts them; of a single one that line alone, or its error.
func tell(e env, all []outcome) error {
	if len(all) == 1 {
		o := all[0]
		if o.text != "" {
			fmt.Fprintln(e.stdout, clean(o.text))
		}
		return o.err
	}
	count := map[string]int{}
	var words []string
	bad := 0
	for _, o := range all {
		if o.err != nil {
			bad++
			if o.text == "" {
				o.text = o.err.Error()
			}
		}
		if count[o.word]++; count[o.word] == 1 {
			words = append(words, o.word)
		}
		fmt.Fprintln(e.stdout, clean(o.job+": "+strings.TrimPrefix(o.text, o.job+": ")))
	}
	slices.Sort(words)
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", count[w], w)
	}
	fmt.Fprintf(e.stdout, "%d jobs: %s\n", len(all), strings.Join(words, ", "))
	if bad == 0 {
		return nil
	}
	worst := &exit{code: exitError}
	for _, o := range all {
		if x, ok := errors.AsType[*exit](o.err); ok {
			worst.code = max(worst.code, x.code)
		}
	}
	return worst
}
