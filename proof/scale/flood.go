package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// flooder steps ten times a second and prints RATE bytes a second between the steps, while the file SENT.on is there; what it
// missed in its steps, or since its agent read no faster, it makes up for, of the last second. The file SENT says how many bytes
// got out: the pipe to its agent takes what the agent reads.
const flooder = `import fcntl, json, os, time
import headway as w
rate, line = int(os.environ["RATE"]), (b"x" * 127 + b"\n") * 8192
try:
    fcntl.fcntl(1, 1031, 1 << 20)  # F_SETPIPE_SZ: a larger pipe, fewer turns of the two processes
except OSError:
    pass
sent, since, base = 0, None, 0
with w.attach() as run:
    for step in run.steps(0, 100000):
        now = time.monotonic()
        due = now + 0.1
        if not os.path.exists(os.environ["SENT"] + ".on"):
            since = None
            time.sleep(0.1)
        elif since is None:
            since, base = now, sent
        else:
            base = min(base, sent + rate - rate * (now - since))
        while since is not None and now < due:
            if sent - base < rate * (now - since):
                sent += os.write(1, line)
            else:
                time.sleep(0.001)
            now = time.monotonic()
        if step % 2 == 0:
            with open(os.environ["SENT"] + ".part", "w") as f:
                json.dump(sent, f)
            os.replace(os.environ["SENT"] + ".part", os.environ["SENT"])
`

// floodJob is the plan file of the one job that floods, by a real agent on this machine.
const floodJob = `jobs:
  flood:
    kind: train
    code: ../prog
    run: python3 flood.py
    env: {RATE: "%d", SENT: %q}
    on: [here]
`

// quiet is how many jobs go on beside the one that floods.
const quiet = 100

// flood measures what a job that prints o.flood bytes a second does to the renewals of others and to the watch.
func flood(ctx context.Context, o options, s server, dir string) error {
	p, err := newProject(ctx, o, s, dir, "flood")
	if err != nil {
		return err
	}
	sent := filepath.Join(dir, "sent")
	if err := p.plans(ctx, quiet, perFile); err != nil {
		return err
	}
	jobs, err := p.works()
	if err != nil {
		return err
	}
	b, err := s.open(ctx, "flood")
	if err != nil {
		return err
	}
	l, err := capture(ctx, b, jobs, 15*time.Second)
	if err != nil {
		return err
	}
	loadCtx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { l.renew(loadCtx); close(done) }()
	defer func() { end(); <-done }()
	f := &flooding{p: p, b: b, l: l, sent: sent}
	return f.measure(ctx)
}

// flooding is the measurement while it runs.
type flooding struct {
	p    *project
	b    bucket.Bucket
	l    *load
	w    *watch
	sent string
}

// latency is what others had to wait during a part of the measurement.
type latency struct {
	renewals, passes []time.Duration
	resident         int64 // bytes of headway watch at the end of it
	bytes            int64
	seconds          float64
}

// during collects for a time.
func (f *flooding) during(ctx context.Context) (latency, error) {
	f.l.take()
	f.w.mu.Lock()
	from := len(f.w.passes)
	f.w.mu.Unlock()
	was, begin := f.printed(), time.Now()
	select {
	case <-ctx.Done():
		return latency{}, ctx.Err()
	case <-time.After(f.p.o.measure):
	}
	now, _, err := f.w.memory()
	if err != nil {
		return latency{}, err
	}
	out := latency{renewals: f.l.take(), bytes: f.printed() - was, seconds: time.Since(begin).Seconds(), resident: now}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for _, p := range f.w.passes[from:] {
		out.passes = append(out.passes, p.took)
	}
	if len(out.renewals) == 0 {
		return out, fmt.Errorf("no renewal in %v: nothing to compare", f.p.o.measure)
	}
	return out, nil
}

// printed is how many bytes the program has got rid of.
func (f *flooding) printed() int64 {
	b, _ := os.ReadFile(f.sent)
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n
}

// pairs is how many times the flood is turned on and off again.
const pairs = 6

// measure starts the one job, and turns its flood off and on: the same processes in all windows, so that what differs is the
// flood, or this machine.
func (f *flooding) measure(ctx context.Context) (err error) {
	if f.w, err = f.p.start(ctx, "flood"); err != nil {
		return err
	}
	defer f.w.cmd.Process.Kill()
	if err := f.w.until(ctx, 2*time.Minute, "the third pass", func() bool { return len(f.w.passes) >= 3 }); err != nil {
		return err
	}
	if err := f.write(); err != nil {
		return err
	}
	if err := f.p.commit(ctx); err != nil {
		return err
	}
	var calm, loud []latency
	for i := range 2 * pairs {
		on := i%4 == 1 || i%4 == 2 // calm, loud, loud, calm: a drift of the machine falls on both alike
		if err := f.turn(on); err != nil {
			return err
		}
		if err := f.w.until(ctx, 2*time.Minute, "the program that floods", f.started); err != nil {
			return err
		}
		select { // what is in the pipe and in the agent's memory belongs to the window before
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
		}
		part, err := f.during(ctx)
		if err != nil {
			return err
		}
		if on {
			loud = append(loud, part)
		} else {
			calm = append(calm, part)
		}
	}
	if err := f.report(ctx, calm, loud); err != nil {
		return err
	}
	if err := f.resident(calm, loud); err != nil {
		return err
	}
	return f.finish(ctx)
}

// write puts the program and its plan into the folder.
func (f *flooding) write() error {
	if err := os.MkdirAll(filepath.Join(f.p.dir, "prog"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.p.dir, "prog", "flood.py"), []byte(flooder), 0o644); err != nil {
		return err
	}
	text := fmt.Sprintf(floodJob, f.p.o.flood, f.sent)
	return os.WriteFile(filepath.Join(f.p.dir, "plans", "flood.yaml"), []byte(text), 0o644)
}

// started: the program steps.
func (f *flooding) started() bool {
	_, err := os.Stat(f.sent)
	return err == nil
}

// turn turns the flood on or off.
func (f *flooding) turn(on bool) error {
	if on {
		return os.WriteFile(f.sent+".on", nil, 0o644)
	}
	if err := os.Remove(f.sent + ".on"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// finish ends the one job, so that its agent does not outlive the measurement.
func (f *flooding) finish(ctx context.Context) error {
	work, err := f.work(ctx)
	if err != nil {
		return err
	}
	c := f.p.headway(ctx, "revoke", "flood", "--stop", "--reason", "measured")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("headway revoke: %w: %s", err, out)
	}
	err = f.w.until(ctx, 2*time.Minute, "the flood to end", func() bool {
		keys, err := f.b.List(ctx, record.EndKey(work, 1), "", 1)
		return err == nil && len(keys.Items) > 0
	})
	return errors.Join(err, f.w.stop())
}

// work is the one whose lease is not the load's: code is part of its identity, and the repository alone knows its hash.
func (f *flooding) work(ctx context.Context) (string, error) {
	ours := map[string]bool{}
	for _, h := range f.l.hold {
		ours[h.Seen().Record.Work] = true
	}
	page, err := f.b.List(ctx, record.WitnessPrefix, "", 1000)
	if err != nil {
		return "", err
	}
	for _, it := range page.Items {
		// A server may list what it is just writing under a name of its own.
		if work := strings.TrimPrefix(it.Key, record.WitnessPrefix); !ours[work] && len(work) == 64 {
			return work, nil
		}
	}
	return "", errors.New("the flood has no lease")
}

// dropped is what the agent says in the log that it did not keep.
var dropped = regexp.MustCompile(`\[headway: dropped (\d+) bytes`)

// report prints the parts beside each other, and what the store has of the flood.
func (f *flooding) report(ctx context.Context, calm, loud []latency) error {
	work, err := f.work(ctx)
	if err != nil {
		return err
	}
	seen, err := witness.Read(ctx, f.b, work)
	if err != nil {
		return err
	}
	if n := seen.Record.Attempt; n != 1 {
		return fmt.Errorf("the flood runs in attempt %d: its lease was lost on the way, and what it printed cannot be told apart", n)
	}
	var kept, lost, markers int64
	after := ""
	for more := true; more; {
		page, err := f.b.List(ctx, record.LogPrefix(work, 1), after, 1000)
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			after = it.Key
			o, err := f.b.Get(ctx, it.Key, bucket.Range{})
			if err != nil {
				return err
			}
			text, err := io.ReadAll(o.Body)
			o.Body.Close()
			if err != nil {
				return err
			}
			kept += int64(len(text))
			for _, m := range dropped.FindAllSubmatch(text, -1) {
				n, _ := strconv.ParseInt(string(m[1]), 10, 64)
				lost, markers = lost+n, markers+1
			}
		}
		more = page.More && len(page.Items) > 0
	}
	fmt.Printf("one job prints %.0f MB/s, in %d of %d windows of %v, beside %d jobs that renew leases of %v by thirds\n",
		float64(f.p.o.flood)/1e6, len(loud), len(loud)+len(calm), f.p.o.measure, quiet, witness.LeaseFor(0, 300*time.Millisecond, 0).Length())
	var printed int64
	var seconds float64
	for _, l := range loud {
		printed, seconds = printed+l.bytes, seconds+l.seconds
	}
	reached := float64(printed) / seconds
	figure("taken by its agent in those windows", fmt.Sprintf("%.0f MB/s", reached/1e6), beside(reached > 0.98*float64(f.p.o.flood), fmt.Sprintf("%.0f MB/s offered", float64(f.p.o.flood)/1e6)))
	figure("taken in all", fmt.Sprintf("%.1f GB", float64(f.printed())/1e9), "")
	figure("  in the store, and dropped by the words of its log", fmt.Sprintf("%.1f MB, %.1f GB in %d markers", float64(kept)/1e6, float64(lost)/1e9, markers), beside(markers > 0, "a marker that is seen"))
	for _, l := range []struct {
		name string
		of   func(latency) []time.Duration
		n    int
	}{{"a renewal of the others", func(l latency) []time.Duration { return l.renewals }, 99}, {"a renewal of the others", func(l latency) []time.Duration { return l.renewals }, 50}, {"a pass of headway watch", func(l latency) []time.Duration { return l.passes }, 50}} {
		a, b := centiles(calm, loud, l.of, l.n)
		if len(a) == 0 {
			return fmt.Errorf("no window had %s in both of a pair: measure for longer", l.name)
		}
		compare(fmt.Sprintf("%s, p%d", l.name, l.n), a, b)
	}
	return nil
}

// resident prints the memory of headway watch while one job floods, beside the calm windows and the target.
func (f *flooding) resident(calm, loud []latency) error {
	_, most, err := f.w.memory()
	if err != nil {
		return err
	}
	top := func(parts []latency) (n int64) {
		for _, p := range parts {
			n = max(n, p.resident)
		}
		return n
	}
	figure("resident memory of headway watch, most of the windows without", fmt.Sprintf("%.0f MB", mb(top(calm))), "")
	figure("  with the flood", fmt.Sprintf("%.0f MB", mb(top(loud))), fmt.Sprintf("ratio %.2f", float64(top(loud))/float64(top(calm))))
	figure("  at its highest, at any time", fmt.Sprintf("%.0f MB", mb(most)), beside(most < 100e6, "100 MB"))
	return nil
}

// centiles are one centile of the windows of each pair, as they came; a pair of which one has no value is left out.
func centiles(calm, loud []latency, of func(latency) []time.Duration, n int) (a, b []time.Duration) {
	for i := range min(len(calm), len(loud)) {
		if x, y := of(calm[i]), of(loud[i]); len(x) > 0 && len(y) > 0 {
			a, b = append(a, centile(x, n)), append(b, centile(y, n))
		}
	}
	return a, b
}

// compare prints a figure of the windows without and with the flood: their medians, their spread, the ratios of neighbours, of
// which one is with the flood, and how often those would differ as much in that direction if the flood moved nothing.
func compare(what string, calm, loud []time.Duration) {
	text := func(d []time.Duration) string {
		return fmt.Sprintf("%v (%v to %v)", centile(slices.Clone(d), 50).Round(100*time.Microsecond), slices.Min(d).Round(100*time.Microsecond), slices.Max(d).Round(100*time.Microsecond))
	}
	var ratios []float64
	for i := range min(len(calm), len(loud)) {
		ratios = append(ratios, float64(loud[i])/float64(max(calm[i], 1)))
	}
	slices.Sort(ratios)
	figure(what+", median of the windows (least to most), without", text(calm), "")
	figure("  with the flood", text(loud), fmt.Sprintf("ratio of neighbours %.2f (%.2f to %.2f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1]))
	p := chance(calm, loud)
	figure("  by chance as much later or more", fmt.Sprintf("p = %.3f", p), beside(p > 0.05, "more than 0.05: not moved"))
}

// centile of durations, sorted in place.
func centile(d []time.Duration, n int) time.Duration {
	slices.Sort(d)
	return d[len(d)*n/100]
}
