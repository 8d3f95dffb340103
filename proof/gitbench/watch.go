package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/plan"
)

// markdown renders a diff in which 10,000 jobs are replaced.
func markdown(_ context.Context, c config, _ string, o *origin, _ string) error {
	jobs := min(10_000, c.files())
	before, after := map[string]string{"headway.yaml": headwayYAML}, map[string]string{"headway.yaml": headwayYAML}
	for i := range jobs {
		before[o.path(i)] = body(i, 0)
		after[o.path(i)] = strings.Replace(before[o.path(i)], "seed: ", "seed: 9", 1)
	}
	was, _ := plan.Load(plan.NewMemTree(before))
	is, problems := plan.Load(plan.NewMemTree(after))
	if len(problems) > 0 {
		return fmt.Errorf("the plan has a problem: %s", problems[0].String())
	}
	accepted := plan.Accept(was, "before")
	diff := plan.Diff(is, &accepted, nil)
	var s series
	size := 0
	for range c.rounds {
		m, err := timed(syscall.RUSAGE_SELF, func() error { size = len(diff.Markdown(plan.MarkdownMax)); return nil })
		if err != nil {
			return err
		}
		s = append(s, m)
	}
	fmt.Printf("%d changes as Markdown of %d bytes: %s (target: under 200 ms), %s of processor time\n", len(diff.Changes), size, ms(s.wall()), ms(s.cpu()))
	return nil
}

// memory runs the real watch over the repository, commits a few times, and reads what it occupies.
func memory(ctx context.Context, c config, dir string, o *origin, url string) error {
	if c.headway == "" {
		return nil
	}
	bin, err := filepath.Abs(c.headway)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "watch.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, bin, "watch", url, "--state", filepath.Join(dir, "state"), "--interval", "5s") // the default
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself
		_ = cmd.Wait()
	}()
	pid := cmd.Process.Pid
	if err := said(ctx, log.Name(), fmt.Sprintf("%d jobs in", c.files())); err != nil {
		return err
	}
	if _, err := settled(ctx, log.Name(), pid); err != nil {
		return err
	}
	_, first, err := resident(pid)
	if err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("begin a new peak: %w", err)
	}
	for range 5 {
		mark := fmt.Sprintf("one file, %d:", o.n)
		if err := o.one(ctx, false); err != nil {
			return err
		}
		if err := said(ctx, log.Name(), mark); err != nil {
			return err
		}
	}
	now, err := settled(ctx, log.Name(), pid)
	if err != nil {
		return err
	}
	_, peak, err := resident(pid)
	if err != nil {
		return err
	}
	fmt.Printf("resident memory of headway watch between two commits: %d MB (target: under 150 MB); at its highest %d MB while it follows them, %d MB while it clones and reads everything for the first time\n", now, peak, first)
	return nil
}

// settled waits until a process has had nothing to say for a few looks, and returns its memory over the next ones, the median.
func settled(ctx context.Context, log string, pid int) (now int, err error) {
	const looks = 6 * time.Second
	var size int64
	var seen []int
	for until, quiet := time.Now().Add(3*time.Minute), time.Now(); time.Now().Before(until) && time.Since(quiet) < 2*looks; {
		i, err := os.Stat(log)
		if err != nil {
			return 0, err
		}
		if i.Size() != size {
			size, quiet, seen = i.Size(), time.Now(), nil
		}
		if now, _, err = resident(pid); err != nil {
			return 0, err
		}
		if time.Since(quiet) > looks {
			seen = append(seen, now)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	if len(seen) == 0 {
		return 0, errors.New("headway watch was never done with what it had seen")
	}
	slices.Sort(seen)
	return seen[len(seen)/2], nil
}

// said waits until a log holds a text.
func said(ctx context.Context, file, text string) error {
	until := time.Now().Add(3 * time.Minute)
	for {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(b, []byte(text)) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("headway watch did not say %q within 3 minutes: %s", text, b[max(0, len(b)-500):])
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// resident reads a process's memory, now and at its highest, in MB.
func resident(pid int) (now, peak int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kB int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			now = kB / 1000
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kB); n == 1 {
			peak = kB / 1000
		}
	}
	return now, peak, nil
}
