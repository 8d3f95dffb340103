package plan

import "strings"

// specConfig and specPlan are the example of the format's description.
const specConfig = `headway: v1
store: s3://acme-headway/team-a
plans: [plans/**/*.yaml]
platforms:
  here:    {runner: local, slots: 2}
  kaggle:  {runner: kaggle, gpu: [T4x2]}
  vast:    {runner: vast, gpu: [RTX_4090, RTX_3090], max_price: 0.45/h, min_download: 500Mbps}
  cluster: {runner: slurm, partition: gpu, gpu: [A100]}
defaults:
  on: [here]
guard:
  prune: 20%                             # more live work than this leaving in one commit is refused
`

const specPlan = `jobs:
  digits:
    kind: train
    code: ../examples/digits             # a folder of this repository: its Git tree hash is identity
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
`

// everyField sets every field of a job.
const everyField = `jobs:
  base:
    run: true-ish --out out
  all:
    kind: train
    code: ../train
    run: python3 train.py ${params.lr} ${seed} ${replica} ${needs.base}
    params: {lr: 0.05, name: net, deep: true}
    seed: -7
    replica: 2
    needs: [base]
    requires: {cuda: "12.4", driver: 550.54.15}
    env: {OMP_NUM_THREADS: 4}
    result: out
    on: [vast, cluster]
    gpu: {any: [RTX_4090, A100], count: 2, dtype: bf16}
    work: {flops: 3.1e18, steps: 1000}
    milestones: {every: 10m}
    lease: {k: 40, floor: 90s}
    watch: {path: "ckpt/*.pt", interval: 10m}
    limits: {retries: 3, wall: 1d12h, paid: 20 USD, price: 0.45 USD/h, parallel: 2}
    priority: 10
    secrets: [WANDB_API_KEY, HF_TOKEN]
    trust: datacenter
    on_delete: revoke
    metrics: {val_loss: lower}
    score: {name: val_loss, at_least: 0, at_most: 0.5}
    labels: {team: vision}
    owner: ada
    notes: |
      a baseline
      in two lines
    suspend: true
  same:
    like: all
    matrix: {params.lr: [0.1, 0.2], seed: [1, 2]}
    gpu: [A100]
`

// specTree is the example as a repository.
func specTree(more map[string]string) *MemTree {
	files := map[string]string{
		"headway.yaml":                specConfig,
		"plans/digits.yaml":           specPlan,
		"examples/digits/train.py":    "print('train')\n",
		"examples/digits/backtest.py": "print('backtest')\n",
		"train/train.py":              "print('train')\n",
	}
	for p, s := range more {
		files[p] = s
	}
	for p, s := range files {
		if s == "" {
			delete(files, p)
		}
	}
	return NewMemTree(files)
}

// renamed replaces pairs of texts, in order.
func renamed(s string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		s = strings.ReplaceAll(s, pairs[i], pairs[i+1])
	}
	return s
}
