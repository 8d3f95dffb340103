package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/agent/journal"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
)

const (
	floodRate  = 200 << 20 // bytes a second
	floodSteps = 2000      // one each millisecond
)

// flooding is a program that prints 200 MB/s for two seconds, makes a step each millisecond, and then says goodbye.
func flooding(wrote *int64, heap *uint64) func(ctx context.Context, p Program) int {
	chunk := bytes.Repeat([]byte("all work and no play makes jack a dull boy\n"), floodRate/1000/43)
	return func(_ context.Context, p Program) int {
		r, err := joined(p)
		if err != nil {
			return 4
		}
		var m runtime.MemStats
		for n := range r.Steps(0, floodSteps) {
			time.Sleep(time.Millisecond)
			k, _ := p.Output.Write(chunk)
			if *wrote += int64(k); n%100 == 0 {
				runtime.ReadMemStats(&m)
				*heap = max(*heap, m.HeapAlloc)
			}
		}
		time.Sleep(time.Minute)
		k, _ := io.WriteString(p.Output, "the end\n")
		*wrote += int64(k)
		return code(r.Err(), r.Finish(map[string]float64{"sum": 1}), r.Close(nil))
	}
}

// Given 200 MB/s of output from one job. Then the log says how much of it is missing where it is missing, byte for byte,
// the agent's memory stays bounded, and no step waits (cases/jobs.md, E6).
func TestAFloodOfOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.MilestoneSteps, w.terms.Policies = 0, []record.Policy{stop("CUDA out of memory"), stop("NCCL (timeout|error)")}
		var wrote int64
		var heap uint64
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		exit := w.inside(t.Context(), &Inside{Program: flooding(&wrote, &heap)})
		if exit.Code != CodeFinished {
			t.Fatalf("%+v", exit)
		}
		log := w.text(record.LogPrefix(w.work, 1))
		kept, dropped, lines, marks := int64(len(log)), int64(0), int64(0), 0
		for _, m := range regexp.MustCompile(`\[headway: dropped (\d+) bytes, (\d+) lines here[^\n]*\n`).FindAllStringSubmatch(log, -1) {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			l, _ := strconv.ParseInt(m[2], 10, 64)
			kept, dropped, lines, marks = kept-int64(len(m[0])), dropped+n, lines+l, marks+1
		}
		if marks == 0 || kept+dropped != wrote || lines != dropped/43 || kept > 16<<20 {
			t.Errorf("%d bytes kept and %d, in %d lines, said to be dropped at %d places, of %d", kept, dropped, lines, marks, wrote)
		}
		if !strings.HasSuffix(log, "too much output for the store]\nthe end\n") {
			t.Errorf("the log ends with %q", log[max(0, len(log)-120):])
		}
		if grown := int64(heap) - int64(before.HeapAlloc); grown > 64<<20 {
			t.Errorf("the heap grew by %d MB under %d MB of output", grown>>20, wrote>>20)
		}
		if s := w.end(1).Sums; s.Steps != floodSteps || s.StepS > 2 {
			t.Errorf("%+v: a step waited for the output", s)
		}
	})
}

// deafLog never answers a write of the log.
type deafLog struct{ bucket.Bucket }

func (d deafLog) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if strings.Contains(key, "/log/") {
		<-ctx.Done()
		return "", &bucket.Error{Op: "put", Key: key, Code: bucket.Unknown}
	}
	return d.Bucket.Put(ctx, key, body, c)
}

// The same before a store that takes no log at all: the program does not notice, and its result is kept.
func TestAFloodBeforeADeafStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMemWorld(t, nil)
		w.terms.MilestoneSteps = 0
		w.claim(1)
		var wrote int64
		var heap uint64
		exit := Run(t.Context(), Config{Bucket: deafLog{w.b}, Work: w.work, Dispatch: 1, Scratch: w.scratch,
			Environ: []string{"MY_SECRET=correct horse"}, Inside: &Inside{Program: flooding(&wrote, &heap)}})
		if s := w.end(1).Sums; exit.Code != CodeFinished || s == nil || s.Steps != floodSteps || s.StepS > 2 {
			t.Errorf("%+v, %+v", exit, s)
		}
	})
}

// BenchmarkFlood is what a step loses while its program prints as fast as it can through the agent's pipe of output:
// medians of the step call with and without the flood, their ratio, and how fast the output is taken.
func BenchmarkFlood(b *testing.B) {
	chunk := bytes.Repeat([]byte("all work and no play makes jack a dull boy\n"), 762) // 32 KiB
	for b.Loop() {
		run, stop := attached(b), make(chan struct{})
		var calm, wild clock
		steps := func(c *clock, from int64) {
			for n := from; n < from+500_000; n++ {
				c.time(func() {
					if err := run.Step(n); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
		steps(&calm, 1)
		out, done := floodedOutput(b), make(chan int64)
		go func() {
			var wrote int64
			for {
				select {
				case <-stop:
					done <- wrote
					return
				default:
					n, _ := out.Write(chunk)
					wrote += int64(n)
				}
			}
		}()
		began := time.Now()
		steps(&wild, 500_001)
		close(stop)
		wrote := <-done
		b.ReportMetric(float64(wrote)/1e6/time.Since(began).Seconds(), "MB/s")
		b.ReportMetric(float64(wild.median())/float64(calm.median()), "flood/calm")
	}
}

// floodRole is a program that prints a gigabyte, in pieces of so many bytes.
func floodRole(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	line := append(bytes.Repeat([]byte("x"), 127), '\n')
	for piece, left := bytes.Repeat(line, n/len(line)), floodTotal; left > 0; left -= n {
		if _, err := os.Stdout.Write(piece); err != nil {
			return 1
		}
	}
	return 0
}

const floodTotal = 1 << 30 // bytes

// BenchmarkFloodOfAProcess is how fast the output of a real program is taken through its guardian's pipe, and what a gigabyte
// of it costs of this process's processor time: with nothing behind the pipe, and with the log, the secrets and a policy.
func BenchmarkFloodOfAProcess(b *testing.B) {
	for _, size := range []int{8 << 10, 1 << 20} {
		for _, c := range []struct {
			name string
			to   func(b *testing.B) io.Writer
		}{{"nothing", func(*testing.B) io.Writer { return io.Discard }}, {"log", floodedOutput}} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, c.name), func(b *testing.B) {
				out := c.to(b)
				var took, own time.Duration
				for b.Loop() {
					began, used := time.Now(), ownCPU(b)
					p, err := guard.Start(guard.Command{Guard: []string{"/proc/self/exe", guardWord}, Env: os.Environ(), Output: out,
						Argv: []string{os.Args[0], "flood", strconv.Itoa(size)}})
					if err != nil {
						b.Fatal(err)
					}
					if e := p.Ended(); e.Code != 0 {
						b.Fatal(e)
					}
					took, own = took+time.Since(began), own+ownCPU(b)-used
				}
				gb := float64(b.N) * floodTotal / 1e9
				b.ReportMetric(gb*1e3/took.Seconds(), "MB/s")
				b.ReportMetric(own.Seconds()/gb, "cpu-s/GB")
			})
		}
	}
}

// ownCPU is the processor time of this process.
func ownCPU(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// floodedOutput is what a program's output goes into, before a store that takes it.
func floodedOutput(b *testing.B) io.Writer {
	j := journal.New(b.Context(), mem.New(), "log/")
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), time.Second)
		defer cancel()
		j.Close(ctx)
	})
	s, _ := newSieve([]record.Policy{stop("CUDA out of memory")}, func(record.Match) {})
	return journal.NewRedactor(io.MultiWriter(j, &tail{}, s), []string{"correct horse"})
}
