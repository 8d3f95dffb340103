package agent

import (
	"crypto/sha256"
	"runtime"
	"slices"
	"syscall"
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

// BenchmarkLoopCPU is the same question asked so that a busy machine can answer it: the processor time that a paced
// step costs, as a share of the step's length: %loop in the loop's own thread, %all with agent and store. The
// ticker's own cost is taken off.
func BenchmarkLoopCPU(b *testing.B) {
	for name, length := range map[string]time.Duration{"1ms": time.Millisecond, "10ms": 10 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			run := attached(b)
			n := int64(0)
			step := func() {
				n++
				if err := run.Step(n); err != nil {
					b.Fatal(err)
				}
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var loop, all time.Duration
			for b.Loop() {
				const many = 300
				l1, a1 := paced(length, many, step)
				l0, a0 := paced(length, many, func() {})
				loop += (l1 - l0) / many
				all += (a1 - a0) / many
			}
			b.ReportMetric(float64(loop)/float64(b.N)/float64(length)*100, "%loop")
			b.ReportMetric(float64(all)/float64(b.N)/float64(length)*100, "%all")
		})
	}
}

// paced calls f once per tick and returns the processor time that this thread and this process spent meanwhile.
func paced(length time.Duration, times int, f func()) (thread, process time.Duration) {
	tick := time.NewTicker(length)
	defer tick.Stop()
	t, p := spent(syscall.RUSAGE_THREAD), spent(syscall.RUSAGE_SELF)
	for range times {
		<-tick.C
		f()
	}
	return spent(syscall.RUSAGE_THREAD) - t, spent(syscall.RUSAGE_SELF) - p
}

func spent(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
