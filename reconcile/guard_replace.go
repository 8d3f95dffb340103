package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headway-run/headway/plan"
)

// replaced lists the live works that leave because their job now stands for other work. What an earlier commit left out,
// and what may finish as an orphan, is not among them. Pure.
func replaced(d *Desired, force *inForce, live func(plan.Digest) bool) (out []departing) {
	if d.Plan.Config.Guard.ReplaceAfter <= 0 || force == nil || force.commit() == d.Commit {
		return nil
	}
	for _, l := range leaving(d, force) {
		if _, named := d.Plan.Job(l.Job); named && !l.Waits && l.OnDelete != plan.Orphan && live(l.Work) {
			out = append(out, l)
		}
	}
	return out
}

// overdue lists the running works that are too old to be replaced without a word, and of which the commit message has none:
// Allow-Replace with the names of jobs or groups, or with their exact number, which all is. What could not be read counts as old.
// Pure.
func overdue(d *Desired, force *inForce, k known) (old []departing, all int) {
	limit := d.Plan.Config.Guard.ReplaceAfter
	for _, l := range replaced(d, force, k.live) {
		if age, ok := k.age(l.Work); !ok || age > limit {
			old = append(old, l)
		}
	}
	all = len(old)
	if len(d.AllowReplace) == 1 && d.AllowReplace[0] == strconv.Itoa(all) {
		return nil, all
	}
	groups := map[string]string{}
	for _, j := range force.jobs() {
		groups[j.Name] = j.Group
	}
	return slices.DeleteFunc(old, func(l departing) bool {
		return slices.Contains(d.AllowReplace, l.Job) || groups[l.Job] != "" && slices.Contains(d.AllowReplace, groups[l.Job])
	}), all
}

func jobsOf(list []departing) (names []string) {
	for _, l := range list {
		names = append(names, l.Job)
	}
	return names
}

// replacing says which running works may not be replaced: nobody has said that they shall be, in the message or otherwise.
func replacing(d *Desired, force *inForce, k known) breach {
	limit := d.Plan.Config.Guard.ReplaceAfter
	old, all := overdue(d, force, k)
	old = slices.DeleteFunc(old, func(l departing) bool { return slices.Contains(k.approved, l.Job) })
	if len(old) == 0 {
		return breach{}
	}
	names := jobsOf(old)
	since := "for how long is not known"
	if age, ok := k.age(old[0].Work); ok {
		since = atLeast(age) + " ago"
	}
	b := breach{rule: "replace_after", code: CodeGuardReplaceAfter,
		text: fmt.Sprintf("job %s now stands for other work, and what it runs was first launched %s: longer than guard.replace_after, %s", shown(names[0], 128), since, limit),
		hint: "if it shall be replaced, " + sayingSo(d, ": Allow-Replace: "+few(names))}
	if len(names) > 3 {
		b.hint = "if they shall be replaced, " + sayingSo(d, fmt.Sprintf(", by the names of jobs or groups or by their exact number: Allow-Replace: %d", all))
	}
	if len(names) > 1 {
		b.text += "; likewise " + few(names[1:])
	}
	if j, ok := d.Plan.Job(names[0]); ok {
		b.pos = j.Pos
	}
	return b
}

// sayingSo is how people say that work shall be replaced: by this trailer, or by a label where somebody can be asked for it.
func sayingSo(d *Desired, trailer string) string {
	message := "say so in the commit message" + trailer
	if d.Approved == nil {
		return message + " (a label would count only where headway watch --forge asks for it)"
	}
	return "put the label " + cmp.Or(d.Plan.Config.Guard.ReplaceLabel, plan.DefaultReplaceLabel) + " on its pull request, or " + message
}

// atLeast writes an age so that it is never less than it was: whoever reads that it is longer than a limit sees that it is.
func atLeast(age time.Duration) string {
	unit := time.Minute
	if age < time.Hour {
		unit = time.Second
	}
	return ((age + unit - 1) / unit * unit).String()
}

// agesOf is how long ago works were first launched, by the store's own stamps. What cannot be read is left out.
func (p *pass) agesOf(ctx context.Context, list []departing) map[plan.Digest]time.Duration {
	out := map[plan.Digest]time.Duration{}
	for _, l := range list {
		p.r.records.shelf(l.Work)
	}
	var mu sync.Mutex
	parallel(len(list), func(i int) {
		w := list[i].Work
		s := p.world.works[w]
		if s == nil {
			return
		}
		err := p.r.records.reckon(ctx, w, s.seen)
		mu.Lock()
		defer mu.Unlock()
		purse := &p.r.records.shelf(w).purse
		switch now := purse.now(); {
		case err != nil:
			p.fail(fmt.Errorf("how long work %s has run: %w", w.Short(), err))
		case !purse.first.IsZero() && !now.IsZero() && !purse.doubted():
			out[w] = max(now.Sub(purse.first), 0)
		}
	})
	return out
}
