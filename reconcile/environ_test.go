package reconcile_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
)

// What a pinned job would meet, as far as machines were measured: those that made what it starts from, the newest one of its
// platforms, and the one that its worker left. What was not measured, and who pins nothing, says nothing; what is finished or
// runs is past it.
func TestEnvironmentsOfPinnedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 4})
		rec := r.reconciler(nil)
		defer rec.Wait()
		up, parent := job("up"), job("parent")
		r.until(rec, r.desired("c1", up, parent), time.Hour, allFinished)
		measured := func(work string, facts map[string]string) {
			r.raw(record.OpenKey(work, 1), record.Open{Protocol: record.Protocol, Work: work, Attempt: 1, Dispatch: 1, Platform: "here", Fingerprint: facts, Time: "-"})
		}
		measured(string(up.Work), map[string]string{"cuda": "12.1\x1b[31m", "python": "3.12.1"})
		measured(string(parent.Work), map[string]string{"cuda": "12.4", "driver": "550"})
		pins := func(kv ...string) func(*plan.Job) {
			return func(j *plan.Job) {
				j.Requires = map[string]string{}
				for i := 0; i < len(kv); i += 2 {
					j.Requires[kv[i]] = kv[i+1]
				}
			}
		}
		child := job("child", pins("cuda", "12.4", "python", "3.12.1", "gpu", "NVIDIA T4"), func(j *plan.Job) {
			j.Inputs, j.Parent = []plan.Input{{Job: "up", Work: up.Work}}, parent.Work
		})
		after := job("after", pins("driver", "535"), func(j *plan.Job) { j.Parent = parent.Work })
		left := job("left", pins("python", "3.11.0"), func(j *plan.Job) { j.On = []string{"there"} })
		r.raw(record.ClaimKey(string(left.Work), 1), record.Claim{Protocol: record.Protocol, Work: string(left.Work), Dispatch: 1, Nonce: record.Nonce(), Platform: "there", Time: "-"})
		r.raw(record.RefusalKey(string(left.Work), 1), record.Refusal{Protocol: record.Protocol, Work: string(left.Work), Dispatch: 1, Fingerprint: map[string]string{"python": "3.9.2"}, Time: "-"})
		loose, same := job("loose"), job("same", pins("cuda", "12.4"), func(j *plan.Job) { j.On = []string{"there"} })
		d := r.desired("c2", up, parent, child, after, left, loose, same)
		<-time.After(time.Hour) // nobody came of that launch
		look := r.looker()
		var works []plan.Digest
		for _, j := range d.Plan.Jobs {
			works = append(works, j.Work)
		}
		world, err := look.Observe(t.Context(), works, d.Plan.Jobs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := look.Environments(t.Context(), d.Plan, world)
		if err != nil {
			t.Fatal(err)
		}
		text := map[string][]string{}
		for _, j := range d.Plan.Jobs {
			text[j.Name] = got[j.Work]
		}
		for _, w := range text["child"] {
			if strings.Contains(w, "\x1b") || strings.Contains(w, "gpu") || strings.Contains(w, "python") {
				t.Errorf("%q", w)
			}
		}
		if len(text["child"]) == 0 || !strings.HasPrefix(text["child"][0], "up, which it needs, was made with cuda 12.1") || !strings.HasSuffix(text["child"][0], "(required: 12.4)") {
			t.Fatalf("child: %q", text["child"])
		}
		if want := "its parent " + parent.Work.Short() + " was made with driver 550 (required: 535)"; len(text["after"]) == 0 || text["after"][0] != want {
			t.Fatalf("after: %q, want %q", text["after"], want)
		}
		if diff := cmp.Diff([]string{"the worker of dispatch 1 found python 3.9.2 (required: 3.11.0), and left"}, text["left"]); diff != "" {
			t.Error(diff)
		}
		// Which of the two finished last is the platform's doing: its machine is the newest, and one of the two would be refused by it.
		newest := strings.Join(append(text["child"][1:], text["after"][1:]...), "; ")
		if strings.Count(newest, "the newest machine of here had ") != 1 || !strings.HasSuffix(newest, ": its workers would refuse it") {
			t.Errorf("%q", newest)
		}
		if len(text["loose"])+len(text["same"])+len(text["up"]) != 0 {
			t.Errorf("%q", text)
		}
	})
}
