package reconcile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/sim"
	"github.com/headway-run/headway/runners/witness"
)

// What a commit means, held by whole files: the plan is read as a commit's is, then passed. docs/guards.md has the table.

const semanticsConfig = `headway: v1
plans: [plans/**/*.yaml]
platforms: {here: {runner: sim, slots: 20}}
defaults: {on: [here]}
`

// repoFiles is one commit's files.
type repoFiles map[string]string

// with is a copy with some files changed; an empty one is left out.
func (f repoFiles) with(changes repoFiles) repoFiles {
	out := maps.Clone(f)
	maps.Copy(out, changes)
	maps.DeleteFunc(out, func(_, text string) bool { return text == "" })
	return out
}

// jobs writes entries of a plan file, each of a hundred steps.
func jobs(entries ...string) string {
	text := "jobs:\n"
	for _, e := range entries {
		name, rest, _ := strings.Cut(e, " ")
		text += fmt.Sprintf("  %s: {run: train, code: ../code, work: {flops: 1e9, steps: 100}, milestones: {every: 10 steps}%s}\n", name, rest)
	}
	return text
}

// read is a clean read of a commit with these files.
func (f repoFiles) read(commit string) *reconcile.Desired {
	p, _ := plan.Load(plan.NewMemTree(f))
	return &reconcile.Desired{Plan: p, Commit: commit, Branch: "main", Fresh: true, Complete: true, AllowStops: -1}
}

func (f repoFiles) work(t *testing.T, name string) plan.Digest {
	t.Helper()
	p, ps := plan.Load(plan.NewMemTree(f))
	j, ok := p.Job(name)
	if !ok {
		t.Fatalf("no job %s: %v", name, ps)
	}
	return j.Work
}

func firstCommit(entries ...string) repoFiles {
	return repoFiles{plan.ConfigFile: semanticsConfig, "plans/a.yaml": jobs(entries...), "code/train.py": "1\n"}
}

func codesIn(rs []reconcile.Refusal) (out []string) {
	for _, r := range rs {
		out = append(out, r.Code)
	}
	return out
}

// Case 8: twelve works run, and the plan root is emptied, renamed, or holds but one unrelated file. None of them stops.
func TestAnEmptiedPlanRootStopsNothing(t *testing.T) {
	var twelve []string
	for i := range 12 {
		twelve = append(twelve, fmt.Sprintf("j%d , seed: %d", i, i))
	}
	first := firstCommit(twelve...)
	for name, c := range map[string]struct {
		files repoFiles
		codes []string
	}{
		"emptied":                  {first.with(repoFiles{"plans/a.yaml": ""}), []string{reconcile.CodePlanErrors}},
		"renamed":                  {first.with(repoFiles{"plans/a.yaml": "", "plans.BAK/a.yaml": first["plans/a.yaml"]}), []string{reconcile.CodePlanErrors}},
		"a readme remains":         {first.with(repoFiles{"plans/a.yaml": "", "plans/README.md": "x"}), []string{reconcile.CodePlanErrors}},
		"a file without jobs":      {first.with(repoFiles{"plans/a.yaml": "jobs: {}\n"}), []string{reconcile.CodePlanErrors}},
		"an unrelated job remains": {first.with(repoFiles{"plans/a.yaml": "", "plans/b.yaml": jobs("other , seed: 99")}), []string{reconcile.CodeTooManyStops}},
		"headway.yaml is gone":     {first.with(repoFiles{plan.ConfigFile: ""}), []string{reconcile.CodePlanErrors}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
				rec := r.reconciler(nil)
				r.pass(rec, first.read("c1"))
				<-time.After(20 * time.Second)
				d := c.files.read("c2")
				rep := r.pass(rec, d)
				if diff := cmp.Diff(c.codes, codesIn(rep.Refusals)); diff != "" {
					t.Error(diff)
				}
				for i := range 12 {
					w := first.work(t, fmt.Sprint("j", i))
					r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return r.lease(w).State == witness.Finished })
				}
				if n := r.acts(reconcile.Stop); n != 0 {
					t.Errorf("%d stops", n)
				}
			})
		})
	}
}

// Case 15, and the "revert finds finished work": a commit is reverted while what it asked for runs. What finished
// before is found, what the reverted commit asked for stops and is never begun again.
func TestARevertIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		rec := r.reconciler(nil)
		good, bad := firstCommit("a , seed: 1"), firstCommit("a , seed: 2, on_delete: revoke")
		r.until(rec, good.read("c1"), time.Hour, allFinished)
		r.pass(rec, bad.read("c2"))
		<-time.After(20 * time.Second)
		rep := r.pass(rec, good.read("c3"))
		if s := rep.States[good.work(t, "a")]; s.State != plan.StateFinished || s.Attempt != 1 {
			t.Errorf("the revert says %+v", s)
		}
		for range 100 {
			rep := r.pass(rec, good.read("c3"))
			<-time.After(max(rep.Next, time.Second))
		}
		if n := r.sim.Meter().Started; n != 2 || !r.lease(bad.work(t, "a")).Stopped() {
			t.Errorf("%d launches; %+v", n, r.lease(bad.work(t, "a")))
		}
	})
}

// Case 11: a file, a folder of plans, a folder of code and a job take other names, one commit after the other, while the work
// runs. It has one launch and one lease all along.
func TestRenamesOfJobFileAndFolderKeepTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		rec := r.reconciler(nil)
		files := firstCommit("a")
		text := files["plans/a.yaml"]
		deeper := strings.ReplaceAll(text, "../code", "../../code")
		commits := []repoFiles{
			files,
			files.with(repoFiles{"plans/a.yaml": "", "plans/b.yaml": text}),
			files.with(repoFiles{"plans/a.yaml": "", "plans/team/b.yaml": deeper}),
			files.with(repoFiles{"plans/a.yaml": "", "plans/team/b.yaml": strings.ReplaceAll(deeper, "../../code", "../../prog"), "code/train.py": "", "prog/train.py": "1\n"}),
			files.with(repoFiles{"plans/a.yaml": strings.ReplaceAll(text, "  a:", "  renamed:")}),
		}
		w := files.work(t, "a")
		for i, c := range commits {
			rep := r.pass(rec, c.read(fmt.Sprint("c", i)))
			if !rep.Accepted || len(rep.Refusals) > 0 || len(rep.States) != 1 {
				t.Errorf("commit %d: %+v %v", i, rep.Refusals, rep.States)
			}
			<-time.After(5 * time.Second)
			if l := r.lease(w); l.State != witness.Held || l.Attempt != 1 {
				t.Errorf("commit %d: lease %+v", i, l)
			}
		}
		r.until(rec, commits[4].read("c4"), time.Hour, allFinished)
		if n := r.sim.Meter().Started; n != 1 {
			t.Errorf("%d launches", n)
		}
		r.wholeResult(w, 100)
	})
}

// Two branches, each with a reconciler and a name of its own, on one store: what both name is computed once, and what one
// drops goes on for the other.
func TestTwoBranchesTwoReconcilers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		branch := func(name string, entries ...string) repoFiles {
			f := firstCommit(entries...)
			f[plan.ConfigFile] += "name: " + name + "\n"
			return f
		}
		main, dev := branch("main", "both", "only , seed: 1, on_delete: revoke"), branch("dev", "both", "own , seed: 2")
		one, two := r.reconciler(nil), r.reconciler(nil)
		r.pass(one, main.read("m1"))
		r.pass(two, dev.read("d1"))
		<-time.After(20 * time.Second)
		main = branch("main", "else , seed: 3")
		for range 3 {
			r.pass(one, main.read("m2"))
			r.pass(two, dev.read("d1"))
			<-time.After(5 * time.Second)
		}
		if l := r.lease(firstCommit("only , seed: 1, on_delete: revoke").work(t, "only")); !l.Stopped() {
			t.Errorf("what only one named: %+v", l)
		}
		r.until(two, dev.read("d1"), time.Hour, allFinished)
		r.until(one, main.read("m2"), time.Hour, func(rep *reconcile.Report) bool {
			return rep.States[main.work(t, "else")].State == plan.StateFinished
		})
		if n := r.sim.Meter().Started; n != 4 {
			t.Errorf("%d launches, want 4: both, only, own, else", n)
		}
		r.wholeResult(dev.work(t, "both"), 100)
	})
}

// Case 29: two pull requests are each fine and together name one job twice. Both files stay as they were accepted, what they
// run goes on, others proceed; the message lists both places; when one of the two is renamed, it starts.
func TestTwoPullRequestsThatTogetherNameOneJobTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		rec := r.reconciler(nil)
		base := firstCommit("a , seed: 1").with(repoFiles{"plans/b.yaml": jobs("b , seed: 2"), "plans/c.yaml": jobs("c , seed: 3")})
		one := base.with(repoFiles{"plans/a.yaml": jobs("a , seed: 1", "eval , seed: 10")})
		two := base.with(repoFiles{"plans/b.yaml": jobs("b , seed: 22", "eval , seed: 11")})
		both := one.with(repoFiles{"plans/b.yaml": two["plans/b.yaml"], "plans/c.yaml": jobs("c , seed: 3", "new , seed: 4")})
		for name, f := range map[string]repoFiles{"one": one, "two": two} {
			if d := f.read("x"); !d.Plan.OK() {
				t.Fatalf("%s by itself: %v", name, d.Plan.Problems)
			}
		}
		r.pass(rec, base.read("c1"))
		<-time.After(20 * time.Second)
		d := both.read("c2")
		rep := r.pass(rec, d)
		var said []string
		for _, q := range d.Plan.Errors() {
			said = append(said, q.String())
		}
		if len(said) != 2 || !strings.HasPrefix(said[0], `plans/a.yaml:3:3: job "eval" is also in plans/b.yaml:3:3`) || !strings.HasPrefix(said[1], `plans/b.yaml:3:3: job "eval" is also in plans/a.yaml:3:3`) {
			t.Errorf("said: %q", said)
		}
		if !rep.Accepted || !slices.Equal(codesIn(rep.Refusals), []string{reconcile.CodePlanErrors}) {
			t.Errorf("accepted %v: %+v", rep.Accepted, rep.Refusals)
		}
		old, fresh := []plan.Digest{base.work(t, "a"), base.work(t, "b"), base.work(t, "c")}, both.read("x").Plan
		if r.sim.Meter().Started != 4 || len(fresh.Jobs) != 2 {
			t.Errorf("%d launches, want those of before and the new job of the sound file; %d jobs", r.sim.Meter().Started, len(fresh.Jobs))
		}
		for _, w := range old {
			r.until(rec, d, time.Hour, func(*reconcile.Report) bool { return r.lease(w).State == witness.Finished })
		}
		mended := both.with(repoFiles{"plans/b.yaml": jobs("b , seed: 22", "eval-b , seed: 11")})
		r.until(rec, mended.read("c3"), time.Hour, allFinished)
		if n := r.sim.Meter().Started; n != 7 || r.acts(reconcile.Stop) != 0 {
			t.Errorf("%d launches and %d stops, want 7 and 0", n, r.acts(reconcile.Stop))
		}
	})
}

// A change of a job reaches what needs it, and only that: its successors become other works, which wait for the new one.
func TestAChangeReachesWhatNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
		rec := r.reconciler(nil)
		entries := func(seed int) []string {
			return []string{fmt.Sprintf("a , seed: %d", seed), "b , needs: [a]", "c , needs: [b]", "z , seed: 99"}
		}
		one, two := firstCommit(entries(1)...), firstCommit(entries(2)...)
		r.until(rec, one.read("c1"), time.Hour, allFinished)
		before := r.sim.Meter().Started
		r.pass(rec, two.read("c2"))
		if n := r.sim.Meter().Started - before; n != 1 {
			t.Errorf("%d launches at once, want a alone", n)
		}
		r.until(rec, two.read("c2"), time.Hour, allFinished)
		for _, name := range []string{"a", "b", "c"} {
			if one.work(t, name) == two.work(t, name) {
				t.Errorf("%s is the same work", name)
			}
			r.wholeResult(two.work(t, name), 100)
		}
		if n := r.sim.Meter().Started - before; n != 3 || one.work(t, "z") != two.work(t, "z") {
			t.Errorf("%d launches, want 3", n)
		}
		r.until(rec, one.read("c3"), time.Hour, allFinished)
		if n := r.sim.Meter().Started - before; n != 3 {
			t.Errorf("%d launches after the revert, want none more", n)
		}
	})
}

// Case 11: one job leaves and another one comes with the same work, in one commit and in two that follow each other within
// the drain: it is adopted, whatever its name and file.
func TestAnAddedJobOfTheSameWorkIsAdopted(t *testing.T) {
	for name, between := range map[string]bool{"in one commit": false, "within the drain": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigConfig{slots: 20, model: sim.Model{Step: time.Second}})
				rec := r.reconciler(nil)
				first := firstCommit("old", "z , seed: 9")
				r.pass(rec, first.read("c1"))
				<-time.After(15 * time.Second)
				if between {
					rep := r.pass(rec, firstCommit("z , seed: 9").read("c2"))
					if s := rep.States[first.work(t, "old")]; !strings.Contains(s.Reason, "stops after its next milestone") {
						t.Fatalf("%+v", s)
					}
					<-time.After(2 * time.Second)
				}
				next := firstCommit("z , seed: 9").with(repoFiles{"plans/n.yaml": jobs("other")})
				r.until(rec, next.read("c3"), time.Hour, allFinished)
				if n := r.sim.Meter().Started; n != 2 || r.lease(first.work(t, "old")).Attempt != 1 || r.acts(reconcile.Stop) != 0 {
					t.Errorf("%d launches, %d stops", n, r.acts(reconcile.Stop))
				}
			})
		})
	}
}
