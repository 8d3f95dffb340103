package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const guardedConfig = `headway: v1
platforms: {here: {runner: local}, cluster: {runner: slurm}}
defaults: {on: [here]}
guard:
  prune: 30%
  replace_after: 6h
  replace_label: Kind/Replace it
  paid: 200 USD
  paid_per_job: 50
  price: 2.50 USD/h
  platforms: {cluster: [team=vision, kind=backtest]}
  pinned: [main, release/*]
  warn: [price, pinned, secrets]
`

func TestGuardIsRead(t *testing.T) {
	p, ps := Load(NewMemTree(map[string]string{ConfigFile: guardedConfig, "plans/p.yaml": "jobs:\n  a: {run: x, secrets: [KEY_OF_MINE]}\n"}))
	want := Guard{Prune: 0.3, ReplaceAfter: 6 * time.Hour, ReplaceLabel: "Kind/Replace it", Paid: Money{200, "USD"}, PaidPerJob: Money{50, ""}, Price: Money{2.5, "USD"},
		Platforms: map[string][]string{"cluster": {"team=vision", "kind=backtest"}}, Pinned: []string{"main", "release/*"}, Warn: []string{"pinned", "price", "secrets"}}
	if d := cmp.Diff(want, p.Config.Guard); d != "" {
		t.Error(d)
	}
	if len(ps) != 1 || ps[0].Code != "SecretsOnAny" || ps[0].Severity != Warning || len(p.Jobs) != 1 {
		t.Errorf("%v: want a warning of secrets on trust: any, and the job", ps)
	}
	if err := validate(t, compileSchema(t, ConfigSchema()), ConfigFile, guardedConfig); err != nil {
		t.Error(err)
	}
}

func TestGuardAsks(t *testing.T) {
	p, _ := Load(NewMemTree(map[string]string{ConfigFile: guardedConfig, "plans/p.yaml": goodFile}))
	g := p.Config.Guard
	for branch, want := range map[string]bool{"main": true, "release/3": true, "release/3/x": false, "mainly": false, "": false} {
		if g.Pins(branch) != want {
			t.Errorf("%q pinned: %v", branch, !want)
		}
	}
	for _, c := range []struct {
		platform string
		job      Job
		want     bool
	}{
		{"here", Job{Kind: "train"}, true},
		{"cluster", Job{Kind: "train"}, false},
		{"cluster", Job{Kind: "backtest"}, true},
		{"cluster", Job{Kind: "train", Labels: map[string]string{"team": "vision"}}, true},
		{"cluster", Job{Kind: "train", Labels: map[string]string{"team": "visions", "kind": "x"}}, false},
	} {
		if _, ok := g.Admits(c.platform, &c.job); ok != c.want {
			t.Errorf("%s admits %+v: %v", c.platform, c.job, ok)
		}
	}
	if !g.Warns("price") || g.Warns("paid") {
		t.Error("what only warns")
	}
}

// defaults.suspend holds for every job that does not say otherwise, also for one that is like another, and changes no work.
func TestSuspendOfEverything(t *testing.T) {
	const file = "jobs:\n  a: {run: x}\n  b: {run: y, suspend: false}\n  c: {like: b, seed: 2}\n  d: {like: a, seed: 3}\n"
	load := func(config string) *Plan {
		p, ps := Load(NewMemTree(map[string]string{ConfigFile: config, "plans/p.yaml": file}))
		if len(ps) > 0 {
			t.Fatal(ps)
		}
		if err := validate(t, compileSchema(t, ConfigSchema()), ConfigFile, config); err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := load("headway: v1\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n")
	p := load("headway: v1\nplatforms: {here: {runner: local}}\ndefaults: {on: [here], suspend: true}\n")
	got := map[string]bool{}
	for i, j := range p.Jobs {
		got[j.Name] = j.Suspend
		if j.Work != before.Jobs[i].Work {
			t.Errorf("%s is other work", j.Name)
		}
	}
	if d := cmp.Diff(map[string]bool{"a": true, "b": false, "c": false, "d": true}, got); d != "" {
		t.Error(d)
	}
}
