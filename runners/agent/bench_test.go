package agent

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/headway-run/headway/runners/bucket/dir"
	"github.com/headway-run/headway/runners/goclient"
)

// attached is the Go client on a real socket, with the directory store behind it.
func attached(b *testing.B) *goclient.Run {
	b.Helper()
	store, err := dir.Open(b.TempDir(), dir.Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	g := newRig(b, store, terms())
	b.Setenv("HEADWAY_SOCKET", g.path)
	run, err := goclient.Attach()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = run.Close(nil) })
	return run
}

// clock takes single calls, because on a busy machine a mean says how busy it was.
type clock struct{ all []time.Duration }

func (c *clock) time(f func()) {
	began := time.Now()
	f()
	c.all = append(c.all, time.Since(began))
}

func (c *clock) median() time.Duration {
	slices.Sort(c.all)
	return c.all[len(c.all)/2]
}

// BenchmarkStepOneWay is a step that needs no verdict.
func BenchmarkStepOneWay(b *testing.B) {
	run := attached(b)
	var c clock
	n := int64(0)
	for b.Loop() {
		n++
		c.time(func() {
			if err := run.Step(n); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.ReportMetric(float64(c.median().Nanoseconds()), "median-ns")
}

// BenchmarkStepAsking is a step with the verdict on the same call: a raw exchange of lines.
func BenchmarkStepAsking(b *testing.B) {
	store, err := dir.Open(b.TempDir(), dir.Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	g := newRig(b, store, terms())
	l := g.dial(b)
	_ = l.SetDeadline(time.Time{})
	l.ask(b, hello)
	var c clock
	line, buf := []byte(`{"op":"step","n":1,"ask":true}`+"\n"), make([]byte, 4096)
	for b.Loop() {
		c.time(func() {
			if _, err := l.Write(line); err != nil {
				b.Fatal(err)
			}
			if _, err := l.Read(buf); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.ReportMetric(float64(c.median().Nanoseconds()), "median-ns")
}

// BenchmarkLoop is what a loop of short steps loses to us: the median step's share, and the difference of the medians
// with and without us (which also sees the agent's own use of the processor).
func BenchmarkLoop(b *testing.B) {
	for name, length := range map[string]time.Duration{"1ms": time.Millisecond, "10ms": 10 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			run := attached(b)
			rounds := calibrate(length)
			var bare, with, step clock
			n := int64(0)
			for b.Loop() {
				bare.time(func() { compute(rounds) })
				with.time(func() {
					compute(rounds)
					n++
					step.time(func() {
						if err := run.Step(n); err != nil {
							b.Fatal(err)
						}
					})
				})
			}
			base := float64(bare.median())
			b.ReportMetric(float64(step.median())/base*100, "%step")
			b.ReportMetric((float64(with.median())-base)/base*100, "%lost")
		})
	}
}

func compute(rounds int) {
	var block [1024]byte
	for range rounds {
		s := sha256.Sum256(block[:])
		copy(block[:], s[:])
	}
}

// calibrate finds how many rounds take about d: the best of several tries.
func calibrate(d time.Duration) int {
	best := time.Hour
	for range 20 {
		began := time.Now()
		compute(1000)
		best = min(best, time.Since(began))
	}
	return max(1, int(d*1000/best))
}
