package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

const benchConfig = `headway: v1
plans: [plans/**/*.yaml]
platforms:
  here: {runner: local, slots: 2}
  vast: {runner: vast, gpu: [RTX_4090, RTX_3090], max_price: 0.45/h}
  cluster: {runner: slurm, partition: gpu, gpu: [A100]}
defaults:
  on: [here]
`

// bigTree is a plan repository of files × 10 jobs: a base, seven that are like it, a sweep of two, and a backtest
// that needs the base.
func bigTree(files int) *MemTree {
	m := map[string]string{"headway.yaml": benchConfig, "train/train.py": "print(1)\n", "eval/eval.py": "print(2)\n"}
	for i := range files {
		var b strings.Builder
		fmt.Fprintf(&b, `jobs:
  m%[1]d:
    kind: train
    code: ../../train
    run: python3 train.py --lr ${params.lr} --seed ${seed}
    params: {lr: 0.05, model: net-%[1]d}
    seed: 7
    gpu: {any: [RTX_4090], dtype: fp16}
    work: {params: 124M, layers: 12, width: 768, context: 1024, tokens_per_step: 65536, steps: 20000}
    milestones: {every: 200 steps}
    metrics: {val_accuracy: higher}
    on: [vast, cluster]
    limits: {retries: 5, wall: 36h, paid: 20 USD}
    labels: {team: vision}
`, i)
		for k := range 6 {
			fmt.Fprintf(&b, `  m%[1]d-v%[2]d:
    like: m%[1]d
    run: python3 train.py --lr ${params.lr} --seed ${seed} --variant %[2]d
    params: {lr: 0.0%[2]d1, width: %[2]d}
    seed: 1%[2]d
    notes: a variant of the base
    priority: %[2]d
`, i, k)
		}
		fmt.Fprintf(&b, `  m%[1]d-sweep:
    like: m%[1]d
    matrix: {seed: [1, 2]}
  m%[1]d-backtest:
    kind: backtest
    needs: [m%[1]d]
    code: ../../eval
    run: python3 eval.py --model ${needs.m%[1]d}
    score: {name: accuracy, at_least: 0.9}
`, i)
		m[fmt.Sprintf("plans/team-%d/p%d.yaml", i%40, i)] = b.String()
	}
	return NewMemTree(m)
}

func BenchmarkLoad20000Jobs(b *testing.B) {
	t := bigTree(2000)
	var peak uint64
	b.ReportAllocs()
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, ps := Load(t)
		runtime.ReadMemStats(&after)
		if len(p.Jobs) != 20000 || len(ps) > 0 {
			b.Fatal(len(p.Jobs), ps[:min(3, len(ps))])
		}
		peak = max(peak, after.Sys-after.HeapReleased)
	}
	b.ReportMetric(float64(peak)/1e6, "MB-from-system")
}
