package deploylane

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// rewrite changes an object behind the lane's back.
func (g *rig) rewrite(key string, change func(string) string) {
	g.t.Helper()
	b, _, err := get(g.t.Context(), g.own, key, 1<<20)
	if err == nil {
		_, err = g.own.Put(g.t.Context(), key, strings.NewReader(change(string(b))), bucket.Always())
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// upTo brings a release as far as a stage.
func (g *rig) upTo(stage string) {
	g.t.Helper()
	for range 50 {
		if _, there := g.records()[key("digits", "v1.0.0", stage)]; there {
			return
		}
		g.dying.after = key("digits", "v1.0.0", stage)
		_, _ = g.pass(g.lane)
		g.dying.after, g.dying.left = "", -1
	}
	g.t.Fatalf("it never came to %s", stage)
}

// TestAnEditedRecord: a record that was edited by hand is found by whoever reads next, also the newest one, which no other
// names yet, and whatever else the editor put right; nothing follows from it.
func TestAnEditedRecord(t *testing.T) {
	for _, stage := range Stages() {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.upTo(stage)
				before := len(g.records())
				g.rewrite(key("digits", "v1.0.0", stage), func(s string) string { return strings.Replace(s, `"reason":"`, `"reason":"x`, 1) })
				_, trouble := g.pass(g.fresh())
				if len(trouble) == 0 || !strings.Contains(trouble[0].Error(), "does not carry a signature of the lane") || len(g.records()) != before {
					t.Errorf("%v, %d records were %d", trouble, len(g.records()), before)
				}
			})
		})
	}
}

// TestARecordOfAnotherRelease: a good record that was copied from another release is none of this one's.
func TestARecordOfAnotherRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.settle(g.lane, "v1.0.0")
		g.tagged("v1.1.0", 2)
		for k, v := range g.records() {
			if to := strings.Replace(k, "/v1.0.0/", "/v1.1.0/", 1); to != k && strings.HasSuffix(k, "/candidate.json") {
				if _, err := g.own.Put(t.Context(), to, strings.NewReader(v), bucket.IfAbsent()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, trouble := g.pass(g.fresh()); len(trouble) == 0 || !strings.Contains(trouble[0].Error(), "is the record of digits v1.0.0 candidate") {
			t.Errorf("%v", trouble)
		}
	})
}

// TestASwappedResult: files, manifest or lease of what was retrained are exchanged after the retraining; the next stages refuse.
func TestASwappedResult(t *testing.T) {
	for name, c := range map[string]struct {
		after, text string
		swap        func(g *rig, work string)
	}{
		"a file before the release": {Approve, "it was swapped since", func(g *rig, work string) {
			g.rewrite(record.ResultPrefix(work, 1)+"model.json", func(string) string { return "evil" })
		}},
		"the score before the release": {Approve, "is not the one that its manifest names", func(g *rig, _ string) {
			g.rewrite(record.ResultPrefix(g.place.launched[1].Work, 1)+"metrics.json", func(s string) string { return strings.Replace(s, "0.94", "0.99", 1) })
		}},
		"the numbers before the spread check": {Retrain, "is not the one that its manifest names", func(g *rig, work string) {
			g.rewrite(record.ResultPrefix(work, 1)+"metrics.json", func(s string) string { return strings.Replace(s, "0.95", "0.96", 1) })
		}},
		"the manifest": {Spread, "it was changed since", func(g *rig, work string) {
			g.rewrite(record.ResultManifestKey(work, 1), func(s string) string { return s + " " })
		}},
		"all of it, with its lease": {Spread, "it was swapped since", func(g *rig, work string) {
			sum := ""
			g.rewrite(record.ResultManifestKey(work, 1), func(s string) string { s = s + " "; sum = record.Hash([]byte(s)); return s })
			old := g.of(Retrain).Manifest.SHA256
			g.rewrite(record.WitnessKey(work), func(s string) string { return strings.Replace(s, old, sum, 1) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.upTo(c.after)
				c.swap(g, g.place.launched[0].Work)
				if s := g.settle(g.fresh(), "v1.0.0"); !s.Refused || s.Code != "ArtifactMismatch" || !strings.Contains(s.Text, c.text) || len(g.told) > 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func (g *rig) of(stage string) *Run {
	chain, err := g.fresh().Chain(g.t.Context(), "digits", "v1.0.0")
	if err != nil {
		g.t.Fatal(err)
	}
	return (&release{chain: chain}).of(stage).Run
}

// TestACopiedFlag: a spec that lies in the lane's store with a deploy flag that its work does not have launches nothing.
func TestACopiedFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.upTo(Candidate)
		c := g.candidate()
		spec := c.Retrain.spec()
		spec.Deploy = true // under the digest of the work without it
		b, err := record.Encode(spec)
		if err == nil {
			_, err = g.own.Put(t.Context(), record.SpecKey(spec.Work), bytes.NewReader(b), bucket.IfAbsent())
		}
		if err != nil {
			t.Fatal(err)
		}
		_, trouble := g.pass(g.fresh())
		if len(trouble) == 0 || !strings.Contains(trouble[0].Error(), "the spec's deploy is") || len(g.place.launched) != 0 {
			t.Errorf("%v, %d launches", trouble, len(g.place.launched))
		}
	})
}

func (g *rig) candidate() *Chosen {
	chain, err := g.fresh().Chain(g.t.Context(), "digits", "v1.0.0")
	if err != nil {
		g.t.Fatal(err)
	}
	return chain[0].Record.Candidate
}

// TestCandidates: what a candidate is refused for, each in its own sentence, before anything is launched.
func TestCandidates(t *testing.T) {
	for name, c := range map[string]struct {
		spoil      func(g *rig)
		code, text string
	}{
		"another artifact":      {func(g *rig) { g.entries[0].Message.Artifact = record.Hash(nil) }, "ArtifactMismatch", "the tag names the result of attempt 1"},
		"another work":          {func(g *rig) { g.entries[0].Message.Candidate = record.Hash(nil) }, "PlanMismatch", "tag the commit whose plan made it"},
		"no such model":         {func(g *rig) { g.conf.Models = map[string]Model{} }, "UnknownModel", "has no model digits"},
		"a bad backtest":        {func(g *rig) { m := g.conf.Models["digits"]; *m.Backtest.AtLeast = 0.99 }, "BacktestFailed", "accuracy is 0.93, at least 0.99"},
		"a metric is missing":   {func(g *rig) { g.conf.Models["digits"].Metrics[0].Name = "f1" }, "EvidenceMissing", "no number named f1"},
		"nothing is pinned":     {func(g *rig) { g.entries[0].Requires = nil }, "EnvNotPinned", "pins no environment"},
		"a backtest of another": {func(g *rig) { g.job("digits-backtest").Inputs = nil }, "PlanMismatch", "says nothing about it"},
		"secrets":               {func(g *rig) { g.job("digits").Secrets = []string{"A"} }, "Secrets", "hands out none"},
		"a margin too narrow":   {func(g *rig) { g.conf.Models["digits"].Metrics[0].Margin = 1e-6 }, "NotJudged", "nothing was launched"},
		"swapped metrics": {func(g *rig) {
			w := string(g.job("digits").Work)
			_, _ = g.research.Put(g.t.Context(), record.ResultPrefix(w, 1)+"metrics.json", strings.NewReader(`{"val_accuracy":1}`), bucket.Always())
		}, "ArtifactMismatch", "is not the one that its manifest names"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				c.spoil(g)
				s := g.settle(g.lane, "v1.0.0")
				if !s.Refused || s.Stage != Candidate || s.Code != c.code || !strings.Contains(s.Text, c.text) || len(g.place.launched) != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// anotherTree is Git that packs another folder than the one that the work names.
type anotherTree struct{ Repository }

func (r anotherTree) Bundle(ctx context.Context, commit, folder string) (string, bucket.Body, error) {
	_, body, err := r.Repository.Bundle(ctx, commit, folder)
	return strings.Repeat("b", 40), body, err
}

// TestWhatARetrainingReads: an input that was swapped in research's store, and code that is not the work's, end the release before
// anything is launched.
func TestWhatARetrainingReads(t *testing.T) {
	for name, c := range map[string]struct {
		spoil      func(g *rig, l *Lane)
		code, text string
	}{
		"a swapped input": {func(g *rig, _ *Lane) {
			key := record.ResultPrefix(string(g.job("data").Work), 1) + "model.json"
			b, _, err := get(g.t.Context(), g.research, key, 1<<20)
			if err == nil {
				_, err = g.research.Put(g.t.Context(), key, strings.NewReader(strings.ToUpper(string(b))), bucket.Always())
			}
			if err != nil {
				g.t.Fatal(err)
			}
		}, "ArtifactMismatch", "the input data: its file model.json is not the one that its manifest names"},
		"other code": {func(_ *rig, l *Lane) { l.Git = anotherTree{l.Git} }, "PlanMismatch", "the folder digits of commit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				l := g.fresh()
				c.spoil(g, l)
				if s := g.settle(l, "v1.0.0"); !s.Refused || s.Stage != Retrain || s.Code != c.code || !strings.Contains(s.Text, c.text) || len(g.place.launched) > 0 {
					t.Errorf("%+v, %d launches", s, len(g.place.launched))
				}
			})
		})
	}
}

// TestARevokedKeyStopsWhatItSigned: a release under way rests on its signer's key; once the policy revokes it nothing more is launched.
func TestARevokedKeyStopsWhatItSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.tagged("v1.0.0", 1)
		g.upTo(Spread)
		launched, records := len(g.place.launched), len(g.records())
		g.policy.Revoked = []string{"SHA256:ann"}
		if s := g.settle(g.fresh(), "v1.0.0"); s.Code != codeFrozen || len(g.place.launched) != launched || len(g.records()) != records {
			t.Errorf("%+v, %d launches more, %d records more", s, len(g.place.launched)-launched, len(g.records())-records)
		}
	})
}

// TestARevokedKeyMovesNothing: a stage tag whose key was revoked before it was acted on moves no pointer, whether it points back
// or takes the release away; nor does a good one to a version whose release a revoked key signed. What moved before stays.
func TestARevokedKeyMovesNothing(t *testing.T) {
	for _, c := range []struct{ to, revoked string }{{"v1.0.0", "bob"}, {"v1.0.0", "eve"}, {tag.None, "bob"}} {
		t.Run(c.to+" "+c.revoked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, 5)
				g.tagged("v1.0.0", 1)
				g.entries[0].Key = "SHA256:eve"
				g.settle(g.lane, "v1.0.0")
				g.tagged("v1.1.0", 2)
				g.settle(g.lane, "v1.1.0")
				before := g.records()
				g.staged(c.to, "bob", 1)
				g.policy.Revoked = []string{"SHA256:" + c.revoked}
				for _, l := range []*Lane{g.lane, g.fresh()} {
					all, trouble := g.pass(l)
					i := slices.IndexFunc(all, func(s Standing) bool { return s.Version == "stage/digits/live/1" })
					if len(trouble) > 0 || i < 0 || all[i].Code != codeFrozen || !all[i].Done || !strings.Contains(all[i].Text, "lane/policy.yaml revokes") {
						t.Errorf("%+v, %v", all, trouble)
					}
				}
				if d := cmp.Diff(before, g.records()); d != "" {
					t.Error(d)
				}
				g.policy.Revoked = nil // it was a mistake: the same tag moves the pointer, and its key is revoked afterwards
				g.pass(g.fresh())
				g.policy.Revoked = []string{"SHA256:" + c.revoked}
				all, trouble := g.pass(g.fresh())
				if live, err := g.lane.Live(t.Context(), "digits"); err != nil || live.Version != c.to || len(trouble) > 0 || slices.ContainsFunc(all, func(s Standing) bool { return strings.HasPrefix(s.Version, "stage/") }) {
					t.Errorf("%+v, %v; %+v, %v", live, err, all, trouble)
				}
			})
		})
	}
}

// TestAWorkerThatRefusesNothing: what ran is held against the pinned environment by the lane as well, whatever its worker let pass.
func TestAWorkerThatRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		g.place.odd = func(l runners.Launch) (bool, error) {
			return true, work(t.Context(), g.own, l.Spec, l.Dispatch, map[string]string{"arch": "amd64", "cpu": "x", "driver": "560.2"}, g.place.metrics)
		}
		g.tagged("v1.0.0", 1)
		if s := g.settle(g.lane, "v1.0.0"); !s.Refused || s.Stage != Retrain || s.Code != "EnvRefused" || !strings.Contains(s.Text, "ran on a machine whose driver is 560.2, pinned is 550.1") {
			t.Errorf("%+v", s)
		}
	})
}

// TestAStrayRecord: something that somebody puts where a version will lie keeps the release from nothing, and is said where no
// tag asks for the version.
func TestAStrayRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 5)
		for _, v := range []string{"v1.0.0", "v9.0.0"} {
			if _, err := g.own.Put(t.Context(), key("digits", v, "note"), strings.NewReader("x"), bucket.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		g.tagged("v1.0.0", 1)
		g.upTo(Release)
		all, trouble := g.pass(g.fresh())
		if len(all) != 1 || !all[0].Done || len(trouble) != 1 || !strings.Contains(trouble[0].Error(), "v9.0.0/candidate.json is missing") {
			t.Errorf("%+v, %v", all, trouble)
		}
	})
}
