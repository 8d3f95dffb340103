package deploylane

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/deploylane/spread"
)

const good = `lane: v1
research: s3://acme-headway/team-a
store: s3://acme-lane/team-a
worker_keys: [worker-keys]
platforms:
  pinned: {runner: local, slots: 2, capture: 5m, grace: 10s}
models:
  digits:
    plan: plans/digits.yaml
    job: digits
    seeds: 5
    backtest: {job: digits-backtest, metric: accuracy, at_least: 0.9}
    metrics:
      val_accuracy: {direction: higher, range: share, margin: 0.02, examples: 270}
      loss: {direction: lower, gating: false}
    on: [pinned]
    attempts: 2
    twice: true
    targets:
      - pointer: true
      - {name: deploy, exec: [/opt/bin/deploy, prod]}
      - {webhook: {secret: DEPLOY_HOOK}}
`

func TestLaneYAMLIsRead(t *testing.T) {
	c, err := Read(File, []byte(good), here())
	if err != nil {
		t.Fatal(err)
	}
	least := 0.9
	want := Config{Research: "s3://acme-headway/team-a", Store: "s3://acme-lane/team-a", Keys: []string{"worker-keys"},
		Platforms: map[string]Platform{"pinned": {Name: "pinned", Runner: "local", Slots: 2, Capture: 5 * time.Minute, Options: map[string]string{"grace": "10s"}}},
		Models: map[string]Model{"digits": {Name: "digits", Plan: "plans/digits.yaml", Job: "digits", Backtest: Backtest{Job: "digits-backtest", Metric: "accuracy", AtLeast: &least},
			Metrics: []spread.Metric{{Name: "loss", Direction: spread.Lower}, {Name: "val_accuracy", Direction: spread.Higher, Range: spread.Share, Margin: 0.02, Gating: true, Examples: 270}},
			Seeds:   5, On: []string{"pinned"}, Attempts: 2, Twice: true,
			Targets: []Target{{Name: "pointer", Kind: TargetPointer}, {Name: "deploy", Kind: TargetExec, Argv: []string{"/opt/bin/deploy", "prod"}}, {Name: "webhook-3", Kind: TargetWebhook, Secret: "DEPLOY_HOOK"}}}}}
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
}

// TestLaneYAMLIsStrict: each mistake is said where it stands, and how to mend it.
func TestLaneYAMLIsStrict(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"lane: v1", "lane: v2", `lane/lane.yaml:1:7: lane is "v2": expected one of v1`},
		{"s3://acme-lane/team-a", "s3://acme-headway/team-a", "lane/lane.yaml:3:8: store is the store of research: expected a bucket or a prefix of the lane's own; whoever may write the one must not be able to write the other"},
		{"s3://acme-lane/team-a", "s3://acme-headway/team-a/lane", "lane/lane.yaml:3:8: store lies in the store of research, or the other way round: expected a bucket or a prefix of the lane's own"},
		{"s3://acme-lane/team-a", "s3://acme-headway/", "lane/lane.yaml:3:8: store lies in the store of research, or the other way round: expected a bucket or a prefix of the lane's own"},
		{"worker_keys: [worker-keys]\n", "", "lane/lane.yaml:1:1: worker_keys is missing: expected a command that makes keys for a policy, such as worker_keys: [/usr/local/bin/worker-keys]"},
		{"s3://acme-lane/team-a", "dir:///srv/lane", "lane/lane.yaml:4:14: worker_keys is given, and the store is a folder: expected none"},
		{"s3://acme-lane/team-a", "s3://key:word@acme-lane", "lane/lane.yaml:3:8: this value looks like "},
		{"research: s3://acme-headway/team-a\nstore: s3://acme-lane/team-a\nworker_keys: [worker-keys]", "research: dir:///srv/store\nstore: dir:///srv/store/lane", "lane/lane.yaml:3:8: store lies in the store of research, or the other way round"},
		{"research: s3://acme-headway/team-a\nstore: s3://acme-lane/team-a\nworker_keys: [worker-keys]", "research: dir:///srv/store/research\nstore: dir:///srv/x/../store/", "lane/lane.yaml:3:8: store lies in the store of research, or the other way round"},
		{"name: deploy, exec", "name: pointer, exec", "models.digits.targets[1] has the name pointer, as one before it: expected a name of its own"},
		{"name: deploy, exec", "name: webhook-3, exec", "models.digits.targets[2] has the name webhook-3, as one before it"},
		{"seeds: 5", "seeds: 2", "lane/lane.yaml:11:12: models.digits.seeds is 2: expected 3 to 10000"},
		{"seeds: 5", "sedes: 5", `lane/lane.yaml:11:5: unknown key "sedes" in models.digits: `},
		{", at_least: 0.9", "", "lane/lane.yaml:12:15: models.digits.backtest has no bound, so every score would do: expected at_least or at_most"},
		{"direction: higher", "direction: up", `models.digits.metrics.val_accuracy.direction is "up": expected one of higher, lower, target`},
		{"margin: 0.02, ", "", "models.digits.metrics.val_accuracy.margin is missing: expected the largest loss that is accepted"},
		{"margin: 0.02", "margin: 0", "models.digits.metrics.val_accuracy.margin is 0: expected more than 0"},
		{"on: [pinned]", "on: [pined]", "models.digits.on names pined, which is no platform of this file: expected one of pinned"},
		{"pointer: true", "pointer: true, exec: [x]", "models.digits.targets[0]"},
		{"exec: [/opt/bin/deploy, prod]", "exec: bin/deploy prod", "write it in brackets: [bin/deploy, prod]"},
		{"exec: [/opt/bin/deploy, prod]", "exec: [bin/deploy, prod]", "lane/lane.yaml:21:31: models.digits.targets[1].exec[0] is bin/deploy: expected an absolute path, or a name on the PATH; the lane has no checkout, and files of the folder that it runs in are signed by nobody"},
		{"worker_keys: [worker-keys]", "worker_keys: [./worker-keys]", "lane/lane.yaml:4:15: worker_keys[0] is ./worker-keys: expected an absolute path, or a name on the PATH"},
		{"exec: [/opt/bin/deploy, prod]", "exec: sh -c 'a b'", "write it in brackets: [sh -c 'a b']"},
		{"  digits:\n", "  Digits:\n", "the model Digits must be of lower-case letters"},
		{"runner: local, ", "", "platforms.pinned names no runner"},
		{"runner: local, ", "runner: lcoal, ", `platforms.pinned.runner is "lcoal": expected one of local, kaggle; did you mean local?`},
	} {
		_, err := Read(File, []byte(strings.Replace(strings.Replace(good, "- pointer: true", "- {pointer: true}", 1), c.from, c.to, 1)), here())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %s", c.to, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("lane: v1\nmodels: {a: {targets: [1]}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(File, data, here())
		if err != nil {
			return
		}
		for name, m := range c.Models {
			if name == "" || m.Seeds < spread.LeastRuns || len(m.On) == 0 && len(data) == 0 || m.Backtest.AtLeast == nil && m.Backtest.AtMost == nil {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// here are the runners of a program.
func here() []string { return []string{"local", "kaggle"} }
