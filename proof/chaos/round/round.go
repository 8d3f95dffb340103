//go:build linux

// Package round is one round of real processes: watchers, the agents that they launch, the programs of those, a Git
// repository, and an S3 server behind a proxy that fails on command. It carries out a schedule of disturbances, waits
// until everything is finished, and says what does not hold: results that differ from an undisturbed run's, work that was
// lost, invariants that are broken, processes that stayed.
package round

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/proof/chaos/account"
	"github.com/headway-run/headway/proof/chaos/kin"
	"github.com/headway-run/headway/proof/chaos/proxy"
	"github.com/headway-run/headway/proof/chaos/schedule"
	"github.com/headway-run/headway/proof/chaos/server"
)

// Lease is the shortest lease that the product gives on this store.
const Lease = 15 * time.Second

// Settings of the platform, so that a round does not take an hour.
const (
	grace   = 5 * time.Second  // SIGTERM to SIGKILL of an agent
	capture = 20 * time.Second // claim to lease
)

// Results are the files of each job's result.
type Results map[string]map[string][]byte

// Config is what Run needs.
type Config struct {
	Number   int
	Dir      string // made by Run; removed by Run when nothing was wrong, unless Keep
	Keep     bool
	Headway  string // the binary
	Agent    string // the headway-agent binary, for the workers; "": they are `headway agent`
	Path     string // the PATH of the processes
	Family   *kin.Family
	Server   *server.Server
	Shape    Shape
	Schedule schedule.Round
	Watchers int
	Disk     bool    // scratch lies on a disk of its own, which needs the right to mount
	Proven   []byte  // the store's verdict of an earlier round, or nil: it is probed
	Want     Results // of an undisturbed run; nil: this is one
	Seed     uint64
	Limit    time.Duration  // for everything
	Patience time.Duration  // for processes to end after that; 0: a minute
	Spoil    func(*Spoiler) // tests of the harness: breaks something before the round is judged; nil: nothing
}

// Report is what a round came to.
type Report struct {
	Number  int
	Hits    map[schedule.Kind]int   // disturbances that met something that lived
	Killed  map[schedule.Victim]int // of the kills: whom they met
	Missed  int                     // events that found nobody any more
	Writers Writers
	Workers map[string]int // binary → lives of workers that asked the store for something
	Sum     account.Sum
	Took    time.Duration
	Broken  []string // one sentence each; empty: all is well
	Results Results
	Proven  []byte // the store's verdict
	Dir     string // where everything lies, when it was kept
}

// run is one round under way.
type run struct {
	c      Config
	prefix string
	proxy  *proxy.Proxy
	book   *ledger
	begun  time.Time
	full   *disk

	mu     sync.Mutex
	words  *os.File // what happened, for people
	report Report
	over   chan struct{} // closed when no watcher is to be started again
	met    map[string]bool
	guards []*watcher
	states map[string]bool   // jobs that are finished
	cuts   []account.Span    // when the server was gone, or the workers' disk full
	agents map[string]string // life of a worker → its binary
}

func (r *run) repo() string    { return filepath.Join(r.c.Dir, "repo") }
func (r *run) scratch() string { return filepath.Join(r.c.Dir, "scratch") }

func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.words, "%8.3f %s\n", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (r *run) broken(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.say("BROKEN: %s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Broken = append(r.report.Broken, text)
}

func (r *run) hit(k schedule.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Hits[k]++
}

// Run makes one round. An error means that it could not be made, or was called off; what the product did wrong is in the
// report.
func Run(ctx context.Context, c Config) (Report, error) {
	r := &run{c: c, prefix: fmt.Sprintf("round-%04d", c.Number), begun: time.Now(), over: make(chan struct{}), met: map[string]bool{},
		states: map[string]bool{}, agents: map[string]string{}, report: Report{Number: c.Number, Hits: map[schedule.Kind]int{}, Killed: map[schedule.Victim]int{}, Dir: c.Dir}}
	if err := r.open(); err != nil {
		return r.report, fmt.Errorf("round %d: %w", c.Number, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	r.play(ctx)
	r.stop()
	r.judge(ctx)
	return r.close(context.Cause(ctx))
}

// open makes the folder, the disk, the proxy and the repository.
func (r *run) open() (err error) {
	for _, d := range []string{r.repo(), r.scratch(), filepath.Join(r.c.Dir, "trace")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if r.words, err = os.Create(filepath.Join(r.c.Dir, "round.log")); err != nil {
		return err
	}
	if r.c.Disk {
		if r.full, err = mount(r.scratch()); err != nil {
			return err
		}
	}
	r.book = newLedger()
	traffic, err := os.Create(filepath.Join(r.c.Dir, "proxy.log"))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	r.proxy, err = proxy.New(proxy.Config{Upstream: r.c.Server.Addr(), Bucket: r.c.Server.Bucket, Prefix: r.prefix, Seed: r.c.Seed + uint64(r.c.Number),
		Who: r.who, Sink: r.book, Stored: func(key string) ([]byte, bool) { return r.c.Server.Stored(r.prefix, key) },
		Log: func(line string) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(traffic, line)
		}})
	if err != nil {
		return err
	}
	if err := r.lay(); err != nil {
		return err
	}
	if err := r.writeShim(); err != nil {
		return err
	}
	return r.proven()
}

// who names the process at the other end of a connection: one name for each life.
func (r *run) who(addr string) string {
	p, err := r.c.Family.Behind(addr, r.proxy.Addr(), r.c.Dir)
	if err != nil {
		r.say("a connection of nobody: %s: %v", addr, err)
		return somebody + addr
	}
	if p.Role == kin.Agent {
		r.mu.Lock()
		r.agents[name(p)] = p.Binary
		r.mu.Unlock()
	}
	return name(p)
}

func name(p *kin.Proc) string {
	s := fmt.Sprintf("%s %d.%d", p.Role, p.PID, p.Start)
	if p.Role == kin.Agent {
		s += fmt.Sprintf(" of dispatch %d of %.12s", p.Number, p.Work)
	}
	return s
}

// doubt is how long a watcher's word that a job has failed is let stand before it is believed.
const doubt = 10 * time.Second

// play starts the watchers, carries out the schedule and waits until everything is finished.
func (r *run) play(ctx context.Context) {
	for n := range r.c.Watchers {
		r.guards = append(r.guards, r.watch(n))
	}
	struck := make(chan struct{})
	striking, calm := context.WithCancel(ctx)
	defer calm()
	go func() {
		defer close(struck)
		r.strike(striking)
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var lost time.Time
	for done := false; !done; {
		select {
		case <-ctx.Done():
			r.broken("not finished within %s: %s", r.c.Limit, r.unfinished())
			done = true
		case now := <-tick.C:
			done = r.finished()
			switch given := r.givenUp(); {
			case given == "":
				lost = time.Time{}
			case lost.IsZero():
				lost = now
			case now.Sub(lost) > doubt && !done:
				r.broken("a job was given up, which no disturbance may lead to: %s", given)
				done = true
			}
		}
	}
	if ctx.Err() == nil {
		r.say("everything is finished")
	}
	calm() // what is left of the schedule has nobody to meet
	<-struck
	r.proxy.Heal()
}

// stop ends the watchers, and waits until no process of the round is left.
func (r *run) stop() {
	close(r.over)
	for _, w := range r.guards {
		w.end()
	}
	for _, w := range r.guards {
		<-w.done
	}
	patience := cmp.Or(r.c.Patience, time.Minute)
	var left []*kin.Proc
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		alive, err := r.c.Family.Look()
		if err != nil {
			r.broken("the processes cannot be listed: %v", err)
			return
		}
		left = left[:0]
		for _, p := range alive {
			if p.In(r.c.Dir) {
				left = append(left, p)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, p := range left {
		r.broken("%s is still there %s after the end", p, patience)
		_ = p.Signal(syscall.SIGKILL)
	}
	r.proxy.Settle()
}

// close puts away what was right, and keeps what was wrong.
func (r *run) close(called error) (Report, error) {
	err := r.proxy.Close()
	r.report.Took = time.Since(r.begun)
	if len(r.report.Broken) > 0 || r.c.Keep {
		err = errors.Join(err, r.book.save(filepath.Join(r.c.Dir, "history.jsonl")))
	}
	r.say("took %s; %s", r.report.Took.Round(time.Millisecond), strings.Join(r.report.Broken, "; "))
	err = errors.Join(err, r.words.Close())
	if r.full != nil {
		err = errors.Join(err, r.full.unmount(len(r.report.Broken) > 0 || r.c.Keep))
	}
	if len(r.report.Broken) == 0 && !r.c.Keep {
		err = errors.Join(err, os.RemoveAll(r.c.Dir), r.c.Server.Forget(r.prefix))
		r.report.Dir = ""
	}
	if errors.Is(called, context.Canceled) {
		err = errors.Join(err, called)
	}
	return r.report, err
}
