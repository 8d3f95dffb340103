package plan

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu is the processor time of this process. On a machine that others use too it says more than the clock.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// reportCPU adds the processor time per operation since start.
func reportCPU(b *testing.B, start time.Duration) {
	b.ReportMetric(float64(cpu(b)-start)/1e6/float64(b.N), "cpu-ms/op")
}

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
	start := cpu(b)
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
	reportCPU(b, start)
	b.ReportMetric(float64(peak)/1e6, "MB-from-system")
}

// BenchmarkDiff10000 holds 10,000 jobs against 10,000 accepted and observed ones: none changed; nine of ten moved to
// other limits; all computed by other code, and so all other work; and nine of ten changed each in its own way.
func BenchmarkDiff10000(b *testing.B) {
	before := bigTree(1000)
	p, _ := Load(before)
	a := Accept(p, "c")
	obs := make(map[Digest]Observed, len(p.Jobs))
	for _, j := range p.Jobs {
		obs[j.Work] = Observed{Work: j.Work, State: StateHeld, Attempt: 1, Platform: "vast"}
	}
	limits := strings.NewReplacer("limits: {retries: 5, wall: 36h", "limits: {retries: 4, wall: 30h")
	code := strings.NewReplacer("print(1)", "print(3)")
	seed, n := regexp.MustCompile(`(?m)^    seed: .*$`), 1000
	for _, c := range []struct {
		name string
		edit func(string) string
	}{
		{"unchanged", func(s string) string { return s }},
		{"other limits", limits.Replace},
		{"other code", code.Replace},
		{"other seeds", func(s string) string {
			return seed.ReplaceAllStringFunc(s, func(string) string { n++; return fmt.Sprint("    seed: ", n) })
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			files := map[string]string{}
			for path, f := range before.files {
				files[path] = c.edit(string(f.Data))
			}
			now, ps := Load(NewMemTree(files))
			if len(ps) > 0 {
				b.Fatal(ps[0])
			}
			b.ReportAllocs()
			fields := 0
			start := cpu(b)
			defer func() {
				reportCPU(b, start)
				b.ReportMetric(float64(fields), "changed-fields")
			}()
			for b.Loop() {
				d := Diff(now, &a, obs)
				if len(d.Changes) != 10000 {
					b.Fatal(len(d.Changes))
				}
				fields = 0
				for i := range d.Changes {
					fields += len(d.Changes[i].Fields)
				}
			}
		})
	}
}

// BenchmarkMarkdown10000 makes the comment of a diff in which each of 10,000 jobs is replaced, the digest of its JSON included;
// ms/op is what a pull request waits for.
func BenchmarkMarkdown10000(b *testing.B) {
	before, _ := Load(bigTree(1000))
	a := Accept(before, "c")
	files := map[string]string{}
	for path, f := range bigTree(1000).files {
		files[path] = strings.ReplaceAll(string(f.Data), "print(1)", "print(3)")
	}
	now, ps := Load(NewMemTree(files))
	if len(ps) > 0 {
		b.Fatal(ps[0])
	}
	d := Diff(now, &a, nil)
	b.ReportAllocs()
	start, size, began := cpu(b), 0, time.Now()
	for b.Loop() {
		size = len(d.Markdown(0))
	}
	b.ReportMetric(float64(time.Since(began))/1e6/float64(b.N), "ms/op")
	reportCPU(b, start)
	b.ReportMetric(float64(size), "bytes")
	b.ReportMetric(float64(d.Totals.Replace), "replaced")
}
