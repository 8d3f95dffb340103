package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile/goodput"
	"github.com/headway-run/headway/reconcile/patience"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// timersFor are the numbers that the next launch of a job would have: where it would go now, else where it runs, else on
// the first rung of its ladder. nil: it has finished, or no such platform is configured.
func (r *Reconciler) timersFor(j *plan.Job, s *sight, pls map[string]*platform, now Action) *Timers {
	if s.lease.State == witness.Finished {
		return nil
	}
	on := []string{s.platform}
	if now.Kind == Launch {
		on = []string{now.Platform}
	}
	for _, name := range slices.Concat(on, j.On) {
		if pl := pls[name]; pl != nil {
			was := r.pastOf(j.Work, name, s.record)
			t := r.timersOf(j, pl, was)
			r.usual(&t, j, pl)
			if name == s.platform {
				t.Odd = r.oddStep(j, pl, was.stepS)
			}
			return &t
		}
	}
	return nil
}

// oddStep says that a job's steps take more than twice, or less than half, of what its work, its card's peak and the usual
// MFU there make of them (science.md §4.3), or "": then that is so, or one of them is not known.
func (r *Reconciler) oddStep(j *plan.Job, pl *platform, stepS float64) string {
	work := stepWork(j)
	card, peak, ok := plan.Card(pl.conf, j.GPU)
	if !ok || !(work > 0) || !(stepS > 0) {
		return ""
	}
	mfu := r.book.Expect(pl.conf.Name, card, j.GPU.DType, j.Group).MFU
	if mfu.N == 0 || !(mfu.V > 0) {
		return ""
	}
	want := work / (peak * mfu.V)
	if ratio := stepS / want; ratio <= 2 && ratio >= 0.5 {
		return ""
	}
	return fmt.Sprintf("a step takes %s, and its work on a %s at the usual MFU of %.2g would take %s: another card than that, a work: that is wrong, or a card that is slowed down",
		secondsText(stepS), card, mfu.V, secondsText(want))
}

// usual adds the bound below which an attempt of the job costs a retry there, and since when attempts count for it. The card is
// the one that the job's last attempt there found, else the one that the plan asks for.
func (r *Reconciler) usual(t *Timers, j *plan.Job, pl *platform) {
	card, _, _ := plan.Card(pl.conf, j.GPU)
	k := goodput.Key{Platform: pl.conf.Name, GPU: cmp.Or(card, "cpu"), Mode: cmp.Or(j.GPU.DType, modeNone)}
	env, last := r.book.Current(k), int64(0)
	for a, v := range r.records.shelf(j.Work).verdicts() {
		if v.Platform == k.Platform && a > last {
			last, env = a, v.Env
			k.GPU, k.Mode = cmp.Or(v.GPU, k.GPU), cmp.Or(v.Mode, k.Mode)
		}
	}
	if now := r.book.Current(k); now != (record.Environment{}) {
		env = now // somebody has run there since
	}
	b := r.book.BoundOf(k, env)
	d := patience.Derived{Value: b.V, Rule: patience.RuleUsual, N: int64(b.N)}
	d.Why = fmt.Sprintf("of the speed-corrected share of the paid time: three deviations below the median of %s (%s, %s)", count(b.N, "attempt", "attempts"), k.GPU, k.Mode)
	if b.Threshold {
		d.Rule = patience.RulePrior
		d.Why = fmt.Sprintf("of the speed-corrected paid time must be kept work until 8 attempts are known (%d so far; %s, %s)", b.N, k.GPU, k.Mode)
	}
	if b.N > 0 {
		d.Inputs = []patience.Input{{Name: "median", Value: b.Median}, {Name: "deviation", Value: b.Spread}, {Name: "worth in fresh attempts", Value: b.Effective}}
	}
	if ch, is := r.book.ChangedNow(k, env); is {
		t.Era = &ch
		d.Why += "; " + ch.String()
	}
	t.Usual = &d
}

// Lines tells the timers to people: each number, the rule that gave it, and the samples behind it.
func (t *Timers) Lines() []string {
	out := []string{"timers of a launch on " + t.Platform + ":"}
	type row struct {
		name string
		d    patience.Derived
	}
	rows := []row{{"capture window", t.Capture}, {"warm-up", t.Warm}, {"lease", t.Lease}, {"lease", t.K}, {"milestones every", t.Milestone}}
	if t.Usual != nil {
		rows = append(rows, row{"least goodput", *t.Usual})
	}
	for _, row := range rows {
		out = append(out, fmt.Sprintf("  %s %s: %s", row.name, valueText(row.d.Value, row.d.Unit), row.d.Why))
		if from := inputsText(row.d.Inputs); from != "" {
			out = append(out, "    from "+from)
		}
	}
	if t.Odd != "" {
		out = append(out, "  warning: "+t.Odd)
	}
	return out
}

func inputsText(list []patience.Input) string {
	var parts []string
	for _, in := range list {
		parts = append(parts, in.Name+" "+valueText(in.Value, in.Unit))
	}
	return strings.Join(parts, ", ")
}

func valueText(v float64, unit string) string {
	switch unit {
	case "s":
		return secondsText(v)
	case "":
		return number(v)
	}
	return number(v) + " " + unit
}
