package main

import (
	"context"
	"fmt"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/reconcile/notify"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
)

// failuresToTell is how many failures in a row make a platform's pause worth a message.
const failuresToTell = 3

// newSender makes what sends the messages of one store.
func (w *watcher) newSender(ctx context.Context, b bucket.Bucket) *notify.Sender {
	return notify.New(ctx, notify.Config{Bucket: w.meter.Bucket(b, nil), Plan: w.loop.p.plan.Config.Name, Dispatcher: w.id, Log: w.logger(), Count: w.meter.Told,
		Secret: func(name string) (string, bool) {
			v := w.getenv(name)
			w.hidden.add(v)
			return v, v != ""
		}})
}

// tell offers what a pass saw to the rules of the plan.
func (w *watcher) tell(report *reconcile.Report) {
	if w.sender == nil {
		return
	}
	rules := w.loop.p.plan.Config.Notify
	var events []notify.Event
	if len(rules) > 0 {
		events = eventsOf(report, w.loop.before)
	}
	out := make([]notify.Rule, 0, len(rules))
	for _, r := range rules {
		out = append(out, notify.Rule{Secret: r.Secret, Form: r.Form, On: r.On})
	}
	w.sender.Offer(out, events)
}

// warnOfPlaces says which rules could not send anything as things are. unset: also that a variable is not set, which only
// the dispatcher's own environment can tell.
func warnOfPlaces(e env, rules []plan.Notify, unset bool) {
	said := map[string]bool{}
	for _, r := range rules {
		v := e.getenv(r.Secret)
		e.hidden.add(v)
		err := notify.Check(r.Secret, v, v != "")
		if err == nil || v == "" && !unset || said[r.Secret] {
			continue
		}
		said[r.Secret] = true
		warn(e, "notify: %v; until then nothing is sent there", err)
	}
}

// eventsOf is what holds at the end of a pass and may be told. before is the plan that was in force when it began, or nil.
func eventsOf(report *reconcile.Report, before *plan.Accepted) (out []notify.Event) {
	known, launched, refused := map[plan.Digest]bool{}, map[plan.Digest]bool{}, map[string]bool{}
	if before != nil {
		for _, j := range before.Jobs {
			known[j.Work] = true
		}
	}
	for _, a := range report.Actions {
		if a.Kind == reconcile.Launch && (a.Done || a.Err != nil) {
			launched[a.Work] = true
			refused[a.Platform] = refused[a.Platform] || a.Err != nil
		}
	}
	for work, s := range report.States {
		e := notify.Event{Job: s.Job, Work: string(work), Attempt: s.Attempt, Dispatch: s.Dispatch, Platform: s.Platform, Reason: s.Reason}
		e.Fresh = launched[work] || s.Dispatch == 0 && !known[work]
		switch {
		case s.Final == reconcile.Fail || s.State == plan.StateFailed:
			e.What = notify.Failed
		case s.Final == reconcile.Blocked:
			e.What, e.Platform = notify.Blocked, ""
		case s.State == plan.StateFinished:
			e.What = notify.Finished
		default:
			continue
		}
		e.Key = fmt.Sprintf("%s/%d", work, s.Attempt)
		if e.What != notify.Finished { // it may be launched in vain again, without another attempt
			e.Key += fmt.Sprintf("/%d", s.Dispatch)
		}
		out = append(out, e)
	}
	for _, p := range report.Platforms {
		if told, why := worthTelling(p); told {
			key := p.Name + "/" + p.Spell
			if p.Closed && p.Series > 1 { // its series may have been told of as a pause, which ends by itself; this does not
				key += "/closed"
			}
			out = append(out, notify.Event{What: notify.Parked, Key: key, Platform: p.Name, Reason: why, Fresh: refused[p.Name]})
		}
	}
	for _, o := range report.Orphans {
		out = append(out, notify.Event{What: notify.Orphan, Key: fmt.Sprintf("%s/%s/%d/%s", o.Platform, o.Work, o.Dispatch, o.Text), Job: o.Job, Work: string(o.Work),
			Dispatch: o.Dispatch, Platform: o.Platform, Reason: orphanText(o) + "; to end it: " + o.End})
	}
	return out
}

// worthTelling: a platform that is full is no news; one that is closed, that has used up its quota, or that has failed
// several times in a row is.
func worthTelling(p reconcile.PlatformState) (bool, string) {
	switch {
	case p.Closed:
		return true, "closed until somebody looks: " + p.Why
	case p.Parked <= 0 || p.Class == string(runners.NoSlots):
		return false, ""
	case p.Class == string(runners.QuotaExhausted):
		return true, "its quota is used up: " + p.Why
	case p.Series >= failuresToTell:
		return true, fmt.Sprintf("%d failures in a row: %s", p.Series, p.Why)
	}
	return false, ""
}
