package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/spend"
	"github.com/headway-run/headway/runners"
)

// jobCost is one job of `costs --json`.
type jobCost struct {
	Job   string `json:"job"` // of a work that left the plan: as its newest claim called it; "": none is known
	Group string `json:"group"`
	Left  bool   `json:"left,omitempty"` // the accepted plan does not name it
	*reconcile.Cost
}

// sumCost is a group or a platform of it.
type sumCost struct {
	Name     string     `json:"name"` // platform "": launches that are too old to be told apart
	Launches int        `json:"launches"`
	PaidS    float64    `json:"paid_s"`
	Cost     spend.Bill `json:"cost"`
}

type costsDoc struct {
	FormatVersion string     `json:"format_version"`
	Jobs          []jobCost  `json:"jobs"`
	Groups        []sumCost  `json:"groups"` // of more than one job
	Platforms     []sumCost  `json:"platforms"`
	Total         spend.Bill `json:"total"`
	// All: Jobs are the works that the store knows, and not only those of the accepted plan.
	All  bool        `json:"all,omitempty"`
	Next plan.Digest `json:"next,omitempty"` // there are more works behind this one
	// Orphans are what platforms run and nothing explains; no bill has them.
	Orphans  []costOrphan `json:"orphans"`
	NotKnown []string     `json:"not_known,omitempty"` // platforms that did not say what they run
}

func newCosts(e env) *cobra.Command {
	var asJSON bool
	var ask costAsk
	var after string
	c := &cobra.Command{Use: "costs [JOB]", Short: "what jobs have cost until now, by job, group and platform, in each platform's own unit", Args: cobra.MaximumNArgs(1),
		Long: "Adds up what every launch of a job costs, from its receipt until its end is confirmed, in the platform's own unit, and names what\nplatforms run that nothing explains. What is not known is said, and never guessed; docs/costs.md says how each number comes about.\nThe total is that of the accepted plan's jobs; costs WORK tells of one that left it, costs --all of every work in the store.",
		RunE: func(c *cobra.Command, args []string) error {
			if ask.after = plan.Digest(after); len(args) == 1 {
				ask.named = args[0]
			}
			switch {
			case ask.named != "" && ask.all:
				return &exit{code: exitError, err: fmt.Errorf("costs of %s, and --all", clean(ask.named)), hint: "give one of them"}
			case after != "" && !ask.all:
				return &exit{code: exitError, err: fmt.Errorf("--after without --all"), hint: "works are listed by --all"}
			case after != "" && (len(after) != 64 || strings.Trim(after, "0123456789abcdef") != ""):
				return &exit{code: exitError, err: fmt.Errorf("--after %s: expected the 64 digits of a work", clean(after)), hint: "the end of the list before names it"}
			}
			p, err := readProject(c.Context(), e.at(c), "")
			if err != nil {
				return err
			}
			doc, err := p.costs(c.Context(), ask)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(e.stdout, doc)
			}
			p.printWarnings()
			return printCosts(e, doc)
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	c.Flags().BoolVar(&ask.all, "all", false, "every work that the store knows, also those that left the plan, at most 10000 at a time")
	c.Flags().StringVar(&after, "after", "", "with --all: only works behind this one")
	return c
}

// costAsk is whose costs are asked for.
type costAsk struct {
	named string      // a job, a group or the first digits of a work; "": see all
	all   bool        // every work that the store knows, else those of the accepted plan
	after plan.Digest // with all: only works behind this one
}

// costs adds up what the accepted jobs, one job or group, or all works have cost. It writes nothing.
func (p *project) costs(ctx context.Context, ask costAsk) (*costsDoc, error) {
	r, b, err := p.reader(ctx)
	if err != nil {
		return nil, err
	}
	accepted, err := r.Accepted(ctx, p.plan.Config.Name)
	if err != nil {
		return nil, err
	}
	jobs := p.priced(accepted)
	doc := &costsDoc{FormatVersion: "1.0", Jobs: jobs, All: ask.all}
	switch {
	case ask.all:
		err = doc.everything(ctx, r, jobs, ask.after)
	case ask.named != "":
		if jobs = slices.DeleteFunc(jobs, func(j jobCost) bool { return j.Job != ask.named && j.Group != ask.named }); len(jobs) == 0 {
			name, work, err := p.named(ctx, b, ask.named, accepted)
			if err != nil {
				return nil, err
			}
			jobs = []jobCost{{Job: name, Group: name, Cost: &reconcile.Cost{Work: work}}}
		}
		doc.Jobs = jobs
		fallthrough
	default:
		works := make([]plan.Digest, len(jobs))
		for i := range jobs {
			works[i] = jobs[i].Work
		}
		var costs map[plan.Digest]*reconcile.Cost
		if costs, err = r.Costs(ctx, works); err == nil {
			for i := range jobs {
				jobs[i].Cost = costs[jobs[i].Work]
			}
		}
	}
	if err != nil {
		return nil, err
	}
	doc.sum()
	return doc, p.unexplained(ctx, b, doc, ask)
}

// priced lists the jobs whose costs are asked for: as accepted, else those of the files. Two names of one work are one.
func (p *project) priced(accepted *plan.Accepted) (out []jobCost) {
	seen := map[plan.Digest]bool{}
	add := func(name, group string, w plan.Digest) {
		if !seen[w] {
			seen[w] = true
			out = append(out, jobCost{Job: name, Group: group, Cost: &reconcile.Cost{Work: w}})
		}
	}
	if accepted != nil {
		for _, j := range accepted.Jobs {
			add(j.Name, j.Group, j.Work)
		}
		return out
	}
	for i := range p.plan.Jobs {
		j := &p.plan.Jobs[i]
		add(j.Name, j.Group, j.Work)
	}
	return out
}

// sum fills in what follows from the jobs.
func (d *costsDoc) sum() {
	groups, members, platforms := map[string]*sumCost{}, map[string]int{}, map[string]*sumCost{}
	add := func(m map[string]*sumCost, name string, launches int, paid float64, b spend.Bill) {
		if m[name] == nil {
			m[name] = &sumCost{Name: name}
		}
		m[name].Launches, m[name].PaidS, m[name].Cost = m[name].Launches+launches, m[name].PaidS+paid, m[name].Cost.Add(b)
	}
	for _, j := range d.Jobs {
		d.Total = d.Total.Add(j.Total)
		members[j.Group]++
		add(groups, j.Group, len(j.Launches), j.paid(), j.Total)
		for _, l := range j.Launches {
			add(platforms, l.Platform, 1, l.PaidS, l.Cost)
		}
		if j.Earlier != nil {
			add(platforms, "", 0, 0, *j.Earlier)
		}
	}
	d.Groups, d.Platforms = []sumCost{}, []sumCost{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if members[name] > 1 {
			d.Groups = append(d.Groups, *groups[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		d.Platforms = append(d.Platforms, *platforms[name])
	}
}

func (j jobCost) paid() (s float64) {
	for _, l := range j.Launches {
		s += l.PaidS
	}
	return s
}

func printCosts(e env, d *costsDoc) error {
	switch {
	case len(d.Jobs) == 0 && d.All:
		fmt.Fprintln(e.stdout, "no works: nothing was launched on this store")
	case len(d.Jobs) == 0:
		fmt.Fprintln(e.stdout, "no jobs: nothing was accepted yet and the files name none")
	default:
		if err := printBills(e, d); err != nil {
			return err
		}
	}
	for _, l := range leaks(d.Jobs) {
		fmt.Fprintln(e.stdout, clean(l))
	}
	for _, o := range d.Orphans {
		fmt.Fprintf(e.stdout, "%s\n    to end it: %s\n", o.text(), clean(o.End))
	}
	for _, what := range d.NotKnown {
		fmt.Fprintln(e.stdout, clean(what))
	}
	if d.Next != "" {
		fmt.Fprintf(e.stdout, "more works: headway costs --all --after %s\n", d.Next)
	}
	return nil
}

func printBills(e env, d *costsDoc) error {
	rows := [][]string{{"JOB", "WORK", "LAUNCHES", "PAID FOR", "COST"}}
	for _, j := range d.Jobs {
		row := []string{cmp.Or(j.Job, "unknown"), j.Work.Short(), launches(len(j.Launches), j.Earlier != nil), spell(j.paid()), j.Total.String()}
		if j.Left {
			row[0] += " (left the plan)"
		}
		rows = append(rows, row)
	}
	if err := table(e.stdout, rows); err != nil {
		return err
	}
	for _, part := range []struct {
		head string
		list []sumCost
	}{{"GROUP", d.Groups}, {"PLATFORM", d.Platforms}} {
		if len(part.list) == 0 {
			continue
		}
		fmt.Fprintln(e.stdout)
		rows := [][]string{{part.head, "LAUNCHES", "PAID FOR", "COST"}}
		for _, s := range part.list {
			name := s.Name
			if name == "" {
				name = "(earlier launches)"
			}
			rows = append(rows, []string{name, strconv.Itoa(s.Launches), spell(s.PaidS), s.Cost.String()})
		}
		if err := table(e.stdout, rows); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.stdout, "\ntotal: %s\n", clean(d.Total.String()))
	return nil
}

func launches(n int, earlier bool) string {
	if earlier {
		return strconv.Itoa(n) + " and earlier ones"
	}
	return strconv.Itoa(n)
}

// spell is a paid time for people.
func spell(s float64) string {
	if s <= 0 {
		return ""
	}
	return ago(time.Duration(s * float64(time.Second)))
}

// leaks says what is still paid for although nobody works on it, and what is not released yet, with its price and since when.
func leaks(jobs []jobCost) (out []string) {
	for _, j := range jobs {
		for _, l := range j.Launches {
			head := "still paid for"
			if !l.Leaks() {
				if head = "not released yet"; l.Running || !l.Open || l.Release != runners.Pending.String() {
					continue
				}
			}
			end := "its end is not confirmed"
			if l.Release != "" {
				end = "its release is " + l.Release
			}
			price := l.Price
			if price == "unknown" {
				price = "price unknown"
			}
			out = append(out, fmt.Sprintf("%s: launch %d of %s on %s, %s, since %s (%s): %s", head, l.Dispatch, cmp.Or(j.Job, j.Work.Short()), l.Platform, price,
				l.From.UTC().Format(time.RFC3339), cmp.Or(spell(l.PaidS), "0s"), end))
		}
	}
	return out
}

// price adds to a status what each job has cost, and says what is still paid for although nobody works on it.
func (d *statusDoc) price(ctx context.Context, r *reconcile.Reconciler) (owed []string, err error) {
	works := make([]plan.Digest, len(d.Jobs))
	for i := range d.Jobs {
		works[i] = plan.Digest(d.Jobs[i].Work)
	}
	costs, err := r.Costs(ctx, works)
	if err != nil {
		return nil, err
	}
	var list []jobCost
	seen := map[plan.Digest]bool{}
	for i := range d.Jobs {
		c := costs[works[i]]
		d.Jobs[i].Cost = &c.Total
		if !seen[works[i]] {
			seen[works[i]] = true
			list = append(list, jobCost{Job: d.Jobs[i].Job, Cost: c})
		}
	}
	return leaks(list), nil
}
