package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/faulty"
	"github.com/headway-run/headway/runners/sim"
)

// What is kept beside the leases and claims (statistics, boards, marks of what was told) may be refused for ever, or be slow:
// no pass fails, none takes longer for it, and the jobs get home as soon as without.
func TestAStormBesideTheRecordsHoldsNothing(t *testing.T) {
	home := func(t *testing.T, rule *faulty.Rule) (took, longest time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigConfig{slots: 600, model: sim.Model{Step: time.Second}})
			shaky := faulty.New(r.store, 1)
			if rule != nil {
				for _, glob := range []string{"stats/*", "board/*", "notify/*"} {
					one := *rule
					one.Key, one.Name = glob, glob
					shaky.Add(one)
				}
			}
			rec := r.reconciler(func(c *reconcile.Config) { c.Bucket, c.Board = shaky, true })
			d, began := r.desired("c1", numbered(600, func(j *plan.Job) { j.FLOPs.Steps = 100 })...), time.Now()
			r.pass(rec, d)
			for {
				start := time.Now()
				rep := r.pass(rec, d)
				longest = max(longest, time.Since(start))
				if allFinished(rep) {
					break
				}
				if time.Since(began) > time.Hour {
					t.Fatalf("not done: %v", rep.Errors)
				}
				<-time.After(rep.Next)
			}
			took = time.Since(began)
			if rule != nil && (shaky.Fired("stats/*") == 0 || shaky.Fired("board/*") == 0) {
				t.Error("nothing struck")
			}
			<-time.After(2 * time.Minute) // what is under way beside the passes comes to its end
		})
		return took, longest
	}
	calm, pass := home(t, nil)
	for _, rule := range []faulty.Rule{
		{Name: "slow", Effect: faulty.Slow, Delay: 10 * time.Second}, {Name: "500", Effect: faulty.Refuse, Code: bucket.Unknown},
		{Name: "409", Effect: faulty.Refuse, Code: bucket.Raced}, {Name: "412", Effect: faulty.Refuse, Code: bucket.Condition},
	}[:stormSorts] {
		took, longest := home(t, &rule)
		if took > calm+2*learnAtFirst || longest > pass+time.Second {
			t.Errorf("%s: home after %v with passes of up to %v, without %v and %v", rule.Name, took, longest, calm, pass)
		}
	}
}

// learnAtFirst is how long a dispatcher reads what is known before its first decision, at most.
const learnAtFirst = 30 * time.Second
