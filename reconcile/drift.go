package reconcile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// driftMost bounds how many drifts a report lists; one more says how many are left out.
const driftMost = 100

// drifted lists what is otherwise than the accepted plan says though no commit asks for it. It is said and nothing is decided by
// it. A pass that brings a commit into force leaves out what follows from that: only a later one finds it as drift.
func (p *pass) drifted() {
	var out []plan.Drift
	var before, now map[plan.Digest]plan.AcceptedJob
	intended := func(w plan.Digest) bool { // this pass' commit has just asked for it
		if p.was == p.base.force {
			return false
		}
		if before == nil {
			before, now = byWork(p.was.jobs()), byWork(p.base.force.jobs())
		}
		return !bytes.Equal(before[w].Placement, now[w].Placement)
	}
	for _, t := range p.targets {
		s := p.world.works[t.work]
		if s == nil || s.record == nil {
			continue
		}
		list := driftOf(t, s, p.r.c.LeaseFloor)
		if len(list) == 0 || list[0].Kind != plan.DriftEnded && t.wish == Wanted && intended(t.work) {
			continue
		}
		for _, d := range list {
			d.Job, d.Work = t.name, t.work
			out = append(out, d)
		}
	}
	for _, o := range p.report.Orphans {
		d := plan.Drift{Kind: plan.DriftOrphan, Job: o.Job, Work: o.Work, Then: "to end it: " + o.End,
			Text: fmt.Sprintf("dispatch %d runs on %s and nothing explains it: %s; %s", o.Dispatch, o.Platform, o.Why, o.Price)}
		if o.Ours {
			d.Then = "it is released by itself"
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b plan.Drift) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Work, b.Work), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	if more := len(out) - driftMost; more > 0 {
		last := out[driftMost]
		out = append(out[:driftMost], plan.Drift{Kind: last.Kind, Job: last.Job, Work: last.Work, Text: last.Text, Then: fmt.Sprintf("and %d more are not listed", more-1)})
	}
	p.report.Drift = out
}

func byWork(jobs []plan.AcceptedJob) map[plan.Digest]plan.AcceptedJob {
	out := make(map[plan.Digest]plan.AcceptedJob, len(jobs))
	for _, j := range jobs {
		out[j.Work] = j
	}
	return out
}

// driftOf is what of one work's lease is otherwise than the plan says. floor is the shortest lease on the store; 0: not known.
// Pure.
func driftOf(t *target, s *sight, floor time.Duration) (out []plan.Drift) {
	rec := s.record
	switch {
	case t.wish == Leaving && t.leaving.OnDelete == plan.Orphan && rec.State == witness.Held:
		return []plan.Drift{{Kind: plan.DriftUnnamed, Text: fmt.Sprintf("attempt %d runs on %s and no job names it", rec.Attempt, onOf(s)),
			Then: "on_delete: orphan lets it finish"}}
	case t.wish != Wanted || t.job == nil:
		return nil
	case rec.State == witness.Revoked && !t.job.Suspend && !ownEnd(rec):
		what := fmt.Sprintf("attempt %d was revoked", rec.Attempt)
		switch {
		case rec.Attempt == 0:
			what = "its launches were barred"
		case rec.Stopped():
			what = fmt.Sprintf("attempt %d was stopped", rec.Attempt)
		}
		then := "the plan still names it, so it is launched again as soon as it may be; to keep it stopped, set suspend: true or remove it"
		if doomed(s.history) != "" { // no pass launches it, whatever its lease says
			then = "it had failed for good before, so it is not launched again"
		}
		return []plan.Drift{{Kind: plan.DriftEnded, Text: fmt.Sprintf("%s outside the plan (%s)", what, shown(rec.Reason, 200)), Then: then}}
	case rec.State != witness.Held:
		return nil
	}
	if s.platform != "" && !slices.Contains(t.job.On, s.platform) {
		out = append(out, plan.Drift{Kind: plan.DriftPlatform, Text: fmt.Sprintf("attempt %d runs on %s, and its ladder is %s", rec.Attempt, s.platform, shown(strings.Join(t.job.On, ", "), 200)),
			Then: "it stays there until it ends"})
	}
	if s.claim == nil {
		return out
	}
	if old := olderTerms(t.job, &s.claim.Terms, floor); len(old) > 0 {
		out = append(out, plan.Drift{Kind: plan.DriftTerms, Text: fmt.Sprintf("attempt %d was launched with %s", rec.Attempt, strings.Join(old, ", ")),
			Then: "the next attempt goes by the plan; headway revoke makes one begin at the last milestone"})
	}
	return out
}

func onOf(s *sight) string { return cmp.Or(s.platform, "a platform that is not known") }

// ownEnd says that the loop itself ended a lease: silent, for a better rung, at a limit, or since it had left the plan. Whoever
// gives such a reason by hand is believed.
func ownEnd(rec *witness.Record) bool {
	return strings.Contains(rec.Reason, "silent for longer than it promised") || strings.HasPrefix(rec.Reason, moveReason) ||
		strings.HasPrefix(rec.Reason, "limits.") || strings.HasPrefix(rec.Reason, "left the plan")
}

// olderTerms lists the fields that a running attempt obeys otherwise than its job says now, as "field VALUE, now VALUE". What
// the job leaves out was derived when the attempt was launched, and would be derived anew: that is none. A floor may be the
// store's: where that is not known, one that the plan has lowered is not told from it.
func olderTerms(j *plan.Job, t *record.Terms, floor time.Duration) (out []string) {
	differ := func(field, old, now string) {
		if old != now {
			out = append(out, fmt.Sprintf("%s %s, now %s", field, shown(cmp.Or(old, "left out"), 100), shown(cmp.Or(now, "left out"), 100)))
		}
	}
	steps := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%d steps", n)
	}
	span := func(s float64) string {
		if s <= 0 {
			return ""
		}
		return time.Duration(s * float64(time.Second)).String()
	}
	switch {
	case t.MilestoneSteps != j.Milestones.Steps:
		differ("milestones", steps(t.MilestoneSteps), cmp.Or(steps(j.Milestones.Steps), span(j.Milestones.Every.Seconds())))
	case j.Milestones.Every > 0:
		differ("milestones", span(t.MilestoneS), span(j.Milestones.Every.Seconds()))
	}
	if j.Lease.K > 0 {
		differ("lease.k", number(t.LeaseK), number(j.Lease.K))
	}
	if now := max(j.Lease.Floor, floor); j.Lease.Floor > 0 && (floor > 0 || now.Seconds() > t.LeaseFloorS) {
		differ("lease.floor", span(t.LeaseFloorS), span(now.Seconds()))
	}
	differ("watch.path", t.WatchPath, j.Watch.Path)
	differ("watch.interval", span(t.WatchIntervalS), span(j.Watch.Interval.Seconds()))
	if !slices.Equal(t.RetryCodes, j.ExitCodes.Retry) && len(t.RetryCodes)+len(j.ExitCodes.Retry) > 0 {
		differ("exit_codes.retry", codes(t.RetryCodes), codes(j.ExitCodes.Retry))
	}
	if !slices.Equal(t.Policies, policies(j)) {
		out = append(out, "other policies")
	}
	return out
}

func codes(list []int) string { return strings.Trim(fmt.Sprint(list), "[]") }
