package plan

import (
	"testing"
)

func TestTmp(t *testing.T) {
	p, ps := Load(NewMemTree(map[string]string{
		"headway.yaml": `headway: v1
store: embedded
plans: [plans/**/*.yaml]
platforms:
  here: {runner: local, slots: 2}
  kaggle: {runner: kaggle, gpu: [T4x2]}
  vast: {runner: vast, gpu: [RTX_4090, RTX_3090], max_price: 0.45/h, min_download: 500Mbps}
  cluster: {runner: slurm, partition: gpu, gpu: [A100]}
defaults:
  on: [here]
guard:
  prune: 20%
`,
		"plans/a.yaml": `jobs:
  digits:
    kind: train
    code: ../examples/digits             # a folder
    run: python3 train.py --lr ${params.lr} --seed ${seed}
    params: {lr: 0.05}
    seed: 7
    gpu: {any: [T4x2, RTX_4090], dtype: fp16}     # left out: CPU
    work: {params: 124M, layers: 12, width: 768, context: 1024, tokens_per_step: 65536, steps: 20000}
    milestones: {every: 200 steps}
    metrics: {val_accuracy: higher}
    on: [kaggle, vast, cluster]
    limits: {retries: 5, wall: 36h, paid: 20 USD}

  digits-seeds:
    like: digits                         # copy, then change
    matrix: {seed: [1, 2, 3, 4, 5]}      # five jobs, one group: one status line, bulk verbs

  digits-backtest:
    kind: backtest
    needs: [digits]                      # identity: the work digest of digits
    code: ../examples/digits
    run: python3 backtest.py --model ${needs.digits}
    score: {name: accuracy, at_least: 0.9}
`,
		"examples/digits/train.py": "print(1)\n",
	}))
	for _, q := range ps {
		t.Log(q)
	}
	for _, j := range p.Jobs {
		t.Logf("%s %s\n%s\n%s", j.Name, j.Work.Short(), j.IdentityJSON(), j.PlacementJSON())
	}
	t.Log(p.Frozen, p.Broken, p.Files)
}
