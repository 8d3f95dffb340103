//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headway-run/headway/proof/chaos/kin"
	"github.com/headway-run/headway/proof/chaos/round"
	"github.com/headway-run/headway/proof/chaos/schedule"
	"github.com/headway-run/headway/proof/chaos/server"
)

// options are the flags.
type options struct {
	rounds, from, lanes int
	seed                uint64
	dir, build, headway string
	keep                bool
	limit               time.Duration
}

// apart is between the starts of the lanes.
const apart = 2 * time.Second

// watchers is how many reconcilers share a round's store.
const watchers = 2

// run makes all rounds and prints what came of them. The error says that something was broken, or could not be made.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "headway-chaos-"); err != nil {
			return err
		}
		defer func() {
			if err == nil && !o.keep {
				_ = os.RemoveAll(o.dir)
			}
		}()
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	t, err := prepare(ctx, o, out)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.undisturbed(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "undisturbed: %.1f s\n", time.Since(start).Seconds())
	err = t.all(ctx)
	if t.total.rounds > 0 {
		fmt.Fprint(out, t.total.text(time.Since(start)))
	}
	if left := t.left(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("processes are left: %v", left))
	}
	return errors.Join(err, t.total.verdict())
}

// table is what all rounds share.
type table struct {
	o     options
	out   io.Writer
	c     round.Config // of each round, but for its number, folder, server and schedule
	s3    string       // binary
	agent string       // the headway-agent binary: every second round's workers
	mu    sync.Mutex
	next  int
	total total
}

// prepare builds the binaries, and finds out what this machine lets us do.
func prepare(ctx context.Context, o options, out io.Writer) (*table, error) {
	family, err := kin.New()
	if err != nil {
		return nil, err
	}
	t := &table{o: o, out: out, next: o.from, c: round.Config{Keep: o.keep, Headway: o.headway, Family: family, Shape: round.Usual(), Watchers: watchers, Seed: o.seed, Limit: o.limit}}
	t.total.disk = true
	if why := round.MayMount(o.dir); why != nil {
		fmt.Fprintf(out, "SKIPPED: the worker's disk is never full: %v\n", why)
		t.total.disk = false
	}
	t.c.Disk = t.total.disk
	build := o.build
	if build == "" {
		build = filepath.Join(o.dir, "build")
	}
	if build, err = filepath.Abs(build); err != nil {
		return nil, err
	}
	root, err := root()
	if err != nil {
		return nil, err
	}
	t.s3 = filepath.Join(build, "s3server")
	if err := gobuild(ctx, filepath.Join(root, ".ci", "s3server"), t.s3, "."); err != nil {
		return nil, err
	}
	if t.c.Headway == "" {
		t.c.Headway = filepath.Join(o.dir, "bin", "headway")
		if err := gobuild(ctx, root, t.c.Headway, "./cmd/headway"); err != nil {
			return nil, err
		}
	}
	t.agent = filepath.Join(o.dir, "bin", round.AgentName)
	if err := gobuild(ctx, root, t.agent, "./cmd/headway-agent"); err != nil {
		return nil, err
	}
	t.c.Path, err = searchPath(ctx)
	return t, err
}

// root is the folder of this module.
func root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, serr := os.Stat(filepath.Join(dir, ".ci", "s3server", "go.mod")); serr == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("start it from a clone of headway: it builds the binaries that it tests")
		}
	}
	return "", err
}

func gobuild(ctx context.Context, dir, binary, pkg string) error {
	c := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, pkg)
	c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=-mod=readonly")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, dir, err, out)
	}
	return nil
}

// searchPath puts the folder of the real python3 first: a wrapper script would be one more process to hit, and slow.
func searchPath(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "python3", "-c", "import os, sys; print(os.path.dirname(sys.executable))").Output()
	if err != nil {
		return "", fmt.Errorf("the programs need python3 on the PATH: %w", err)
	}
	return strings.TrimSpace(string(out)) + string(filepath.ListSeparator) + os.Getenv("PATH"), nil
}

// undisturbed makes the round that nothing befalls: what all others must come to.
func (t *table) undisturbed(ctx context.Context) error {
	s, err := server.New(t.c.Family, t.s3, filepath.Join(t.o.dir, "lane-0"))
	if err != nil {
		return err
	}
	defer s.Kill()
	c := t.c
	c.Dir, c.Server, c.Watchers, c.Limit = filepath.Join(t.o.dir, "undisturbed"), s, 1, time.Minute
	r, err := round.Run(ctx, c)
	if err != nil {
		return err
	}
	if len(r.Broken) > 0 {
		return fmt.Errorf("the undisturbed run is broken, see %s:\n  %s", r.Dir, strings.Join(r.Broken, "\n  "))
	}
	t.c.Want, t.c.Proven = r.Results, r.Proven
	return nil
}

// all makes the rounds, some at a time.
func (t *table) all(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, min(t.o.lanes, t.o.rounds))
	for lane := range errs {
		wg.Go(func() {
			select { // not all at the same moment: a round's start is most of its work
			case <-ctx.Done():
			case <-time.After(time.Duration(lane) * apart):
			}
			errs[lane] = t.lane(ctx, lane+1)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lane makes round after round on a server of its own.
func (t *table) lane(ctx context.Context, n int) error {
	s, err := server.New(t.c.Family, t.s3, filepath.Join(t.o.dir, fmt.Sprintf("lane-%d", n)))
	if err != nil {
		return err
	}
	defer s.Kill()
	for {
		number, more := t.take()
		if !more || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c := t.c
		c.Number, c.Server, c.Dir = number, s, filepath.Join(t.o.dir, fmt.Sprintf("round-%04d", number))
		c.Schedule = schedule.Make(t.o.seed, number, schedule.Terms{Trainings: c.Shape.Jobs(), Steps: c.Shape.Steps, Lease: round.Lease, Watchers: c.Watchers, Disk: c.Disk})
		if number%2 == 1 {
			c.Agent = t.agent
		}
		if number%10 == 0 {
			c.Proven = nil // the probe too must get through
		}
		r, err := round.Run(ctx, c)
		if err != nil {
			return err
		}
		t.file(r)
	}
}

func (t *table) take() (number int, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return t.next - 1, t.next <= t.o.from+t.o.rounds
}

// file adds a round to the total, and says what was broken at once.
func (t *table) file(r round.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.add(r)
	if len(r.Broken) > 0 {
		fmt.Fprintf(t.out, "BROKEN: round %d, all of it is in %s; again: go run ./proof/chaos -seed %d -from %d -rounds 1 -keep\n", r.Number, r.Dir, t.o.seed, r.Number)
		for _, b := range r.Broken {
			fmt.Fprintf(t.out, "  %s\n", strings.ReplaceAll(strings.TrimSpace(b), "\n", "\n    "))
		}
		return
	}
	fmt.Fprintf(t.out, "round %d: %.1f s, %d attempts, %d steps repeated, %d disturbances, %d came too late\n", r.Number, r.Took.Seconds(), r.Sum.Attempts, r.Sum.Repeated, sum(r.Hits), r.Missed)
}

// left lists the processes that should not be there any more.
func (t *table) left() (left []string) {
	alive, err := t.c.Family.Look()
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range alive {
		left = append(left, p.String())
	}
	return left
}
