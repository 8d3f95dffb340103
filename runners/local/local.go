// Package local runs jobs on the machine that the dispatcher runs on: one agent process per job, in a session of its
// own, so that it outlives the dispatcher, and on cards of its own where they are dealt. It is the own box: the agent
// gets the store's own keys (AWS_*) and a short list of the dispatcher's environment, which a stranger's machine never does.
//
// How many run, and on which cards, is read from the machine each time, never remembered: one file per job in the
// scratch folder names the process, and the processes themselves carry their folder in their environment. So any number of
// dispatchers share one machine's slots, and one that was killed between starting and noting loses nothing.
package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/process"
	"github.com/headway-run/headway/runners/record"
)

// Config is what New needs. All of it comes in as values.
type Config struct {
	Platform string            // configured name
	Slots    int               // launches at a time; 0: 1
	Options  map[string]string // from the platform's entry: cards, scratch, grace, keep; anything else is refused
	Scratch  string            // folder for files when Options has none; required then
	Agent    []string          // command of the worker, for example [/usr/bin/headway agent]
	Environ  []string          // the dispatcher's environment; what is passed on of it is listed in env.go
	// StoreEnv says, at each launch, what an agent needs to open a store on S3, as NAME=value: it opens the store with
	// AWS_* variables alone, while a dispatcher may have its keys from a profile or a role. nil: those of Environ.
	StoreEnv func(ctx context.Context) ([]string, error)
	// Settle is how long Launch watches for an agent that dies at once, so that its last words become the failure's;
	// 0: 150 ms.
	Settle time.Duration
}

// Defaults of the options.
const (
	defaultGrace = 30 * time.Second // between SIGTERM and SIGKILL of the agent
	defaultKeep  = 20               // ended launches whose log and files stay for a look

	defaultSettle = 150 * time.Millisecond
)

// Runner is the platform. It keeps nothing that matters in memory.
type Runner struct {
	platform string
	slots    int
	cards    int      // of one launch; 0: they are not dealt
	pool     []string // slots×cards of them, in the order of the slots
	root     string   // <scratch>/<platform>
	grace    time.Duration
	keep     int
	settle   time.Duration
	agent    []string
	environ  []string
	storeEnv func(ctx context.Context) ([]string, error)
}

var (
	_ runners.Runner = (*Runner)(nil)
	_ runners.Lister = (*Runner)(nil)
	_ runners.Pricer = (*Runner)(nil)
)

// New checks the configuration, and writes nothing: the scratch folder is made by whoever first takes the lock. The error
// is one sentence that says what to change.
func New(c Config) (*Runner, error) {
	o, err := parseOptions(c)
	if err != nil {
		return nil, fmt.Errorf("platform %s: %w", c.Platform, err)
	}
	r := &Runner{platform: c.Platform, slots: max(c.Slots, 1), cards: o.cards, grace: o.grace, keep: o.keep, settle: c.Settle, agent: c.Agent, environ: c.Environ, storeEnv: c.StoreEnv}
	if r.settle <= 0 {
		r.settle = defaultSettle
	}
	if r.pool, err = pool(c.Environ, r.slots*r.cards); err != nil {
		return nil, fmt.Errorf("platform %s: %w", c.Platform, err)
	}
	root, err := filepath.Abs(filepath.Join(o.scratch, c.Platform))
	if err != nil {
		return nil, fmt.Errorf("platform %s: scratch folder: %w", c.Platform, err)
	}
	r.root = root
	return r, nil
}

func (r *Runner) liveDir() string { return filepath.Join(r.root, "live") }
func (r *Runner) runDir() string  { return filepath.Join(r.root, "run") }
func (r *Runner) logDir() string  { return filepath.Join(r.root, "log") }

// JobKinds: every kind runs on the own box.
func (r *Runner) JobKinds() []string { return nil }

// Price: the own box is free.
func (r *Runner) Price(context.Context) (record.Price, error) { return record.Price{}, nil }

// Capacity is how many cards a launch has. Where they are not dealt it is one: a launch is then a process of its own, and
// costs nothing that two of them could share.
func (r *Runner) Capacity() int { return max(r.cards, 1) }

// Outlives implements runners.Outliver: an agent that has ended costs nothing.
func (r *Runner) Outlives() bool { return false }

// handle is what a receipt carries. Dir is the launch's folder and the mark in its processes' environment.
type handle struct {
	process.Identity
	Dir string `json:"dir"`
}

// entry is the file of one launch in the live folder. It is written before the process starts, without an identity,
// and again after.
type entry struct {
	Work     string `json:"work"`
	Dispatch int64  `json:"dispatch"`
	Job      string `json:"job"`
	// Launch is what those that were started together have in common, and Cards what the job was dealt: nobody else gets
	// them while it lives.
	Launch string   `json:"launch,omitempty"`
	Cards  []string `json:"cards,omitempty"`
	// Told is the machine's uptime in seconds when a release first asked the agent to end; 0: never. The grace runs
	// from then on, over all the calls that ask, so that it ends however short each of them is.
	Told float64 `json:"told_s,omitempty"`
	handle
	found bool // by its mark: its file has no identity yet
}

// launch is what an entry's launch is counted by.
func (e entry) launch() string { return cmp.Or(e.Launch, name(e.Work, e.Dispatch)) }

// name is a job's name among the files here: short, because socket paths are.
func name(work string, dispatch int64) string {
	return work[:min(len(work), 12)] + "-" + strconv.FormatInt(dispatch, 10)
}

// mark is the entry of a launch's environment that its processes are found by.
func mark(dir string) string { return "HEADWAY_SCRATCH=" + dir }

// Launch starts one agent for each job, all or none. A dispatch that runs here already keeps its process and gets
// the same receipt. The slots and the cards are counted and taken under a lock that all dispatchers of this machine share.
func (r *Runner) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	for _, j := range jobs {
		if err := checkJob(j); err != nil {
			return nil, r.fail("launch", runners.Rejected, "", err)
		}
	}
	if err := r.checkCards(jobs); err != nil {
		return nil, r.fail("launch", runners.Rejected, "", err)
	}
	lent, err := r.lend(ctx, jobs)
	if err != nil {
		return nil, r.fail("launch", runners.Rejected, "renew the store's keys where headway runs, and look that they last longer than this launch", err)
	}
	started, entries, err := r.start(ctx, jobs, lent)
	if err != nil {
		return nil, err
	}
	if err := r.watch(ctx, started); err != nil {
		r.undo(ctx, started)
		return nil, err
	}
	receipts := make([]runners.Receipt, 0, len(entries))
	for _, e := range entries {
		h, err := json.Marshal(e.handle)
		if err != nil {
			return nil, r.fail("launch", runners.ProtocolError, "", err)
		}
		receipts = append(receipts, runners.Receipt{Handle: h, Text: e.text(), Price: &record.Price{}})
	}
	return receipts, nil
}

// text is what people read of a process.
func (e entry) text() string {
	if len(e.Cards) == 0 {
		return fmt.Sprintf("pid %d", e.PID)
	}
	return fmt.Sprintf("pid %d, card %s", e.PID, strings.Join(e.Cards, ", "))
}

func checkJob(j runners.Launch) error {
	switch {
	case len(j.Work) < 12 || strings.Trim(j.Work, "0123456789abcdef") != "":
		return fmt.Errorf("work %q is not a digest in hex", runners.Bound(j.Work, 80))
	case j.Dispatch < 1:
		return fmt.Errorf("dispatch %d: numbers start at 1", j.Dispatch)
	case j.Store == "":
		return errors.New("no store URL given for the worker")
	}
	for k, v := range j.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return fmt.Errorf("secret %q cannot be an environment variable", k)
		}
	}
	return nil
}

// running is one process of this call's own making, with what is to be removed when it must not have been.
type running struct {
	entry entry
	proc  *process.Started
}

// start takes the slots and starts the processes, under the lock. On an error nothing of it runs any more.
func (r *Runner) start(ctx context.Context, jobs []runners.Launch, lent []string) (started []running, entries []entry, err error) {
	unlock, err := r.lock(ctx)
	if err != nil {
		return nil, nil, r.fail("launch", runners.Unreachable, unlocked(err), err)
	}
	defer unlock()
	live, err := r.sweep()
	if err != nil {
		return nil, nil, r.fail("launch", runners.Rejected, "look after the scratch folder "+r.root, err)
	}
	known := map[string]entry{}
	for _, e := range live {
		known[name(e.Work, e.Dispatch)] = e
	}
	fresh := 0
	for _, j := range jobs {
		if e, ok := known[name(j.Work, j.Dispatch)]; !ok {
			fresh++
		} else if e.Work != j.Work {
			return nil, nil, r.fail("launch", runners.NoSlots, "wait until the other one has ended", fmt.Errorf("work %s shares its first 12 digits with one that runs here", j.Work))
		}
	}
	var at table
	if fresh > 0 {
		if at, err = r.seat(live, jobs); err != nil {
			return nil, nil, err
		}
	}
	for _, j := range jobs {
		e, ok := known[name(j.Work, j.Dispatch)]
		if !ok {
			run, err := r.startOne(ctx, j, lent, &at)
			if err != nil {
				r.undo(ctx, started)
				return nil, nil, err
			}
			started = append(started, run)
			e = run.entry
		}
		entries = append(entries, e)
	}
	return started, entries, nil
}

// startOne starts one agent: the entry without an identity first, then the process, then the identity.
func (r *Runner) startOne(ctx context.Context, j runners.Launch, lent []string, at *table) (running, error) {
	cards, err := r.deal(at, j)
	if err != nil {
		return running{}, err
	}
	dir := filepath.Join(r.runDir(), name(j.Work, j.Dispatch))
	e := entry{Work: j.Work, Dispatch: j.Dispatch, Job: j.Job, Launch: at.launch, Cards: cards, handle: handle{Dir: dir}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return running{}, r.diskFail(err)
	}
	if err := r.write(e); err != nil {
		return running{}, r.diskFail(err)
	}
	p, err := process.Start(process.Command{Argv: r.agent, Env: append(environment(r.environ, lent, r.platform, dir, j), ownCards(cards)...), Dir: dir, Output: r.logFile(e)})
	if err != nil {
		r.forget(e)
		return running{}, r.fail("launch", runners.Rejected, "is the headway program still where it was, and is the scratch folder's disk mounted?", err)
	}
	e.Identity = p.Identity
	if err := r.write(e); err != nil {
		r.undo(ctx, []running{{entry: e, proc: p}})
		return running{}, r.diskFail(err)
	}
	return running{entry: e, proc: p}, nil
}

// undo ends processes that must not stay: all or nothing. It works on after the caller's context has ended.
func (r *Runner) undo(ctx context.Context, started []running) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, s := range started {
		state, err := s.entry.Terminate(ctx, 0, mark(s.entry.Dir))
		if err == nil && state == process.Gone {
			r.forget(s.entry)
		}
	}
}

// watch looks for agents that die at once and makes their last words a failure.
func (r *Runner) watch(ctx context.Context, started []running) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(r.settle); ; {
		ended := 0
		for _, s := range started {
			select {
			case <-s.proc.Done():
				ended++
				if class, text := diedEarly(s.proc.Err()); class != "" {
					return &runners.Failure{Class: class, Platform: r.platform, Op: "launch",
						Hint: "the agent died at once; its whole log is " + r.logFile(s.entry), Raw: lastWords(r.logFile(s.entry)), Err: errors.New(text)}
				}
			default:
			}
		}
		if ended == len(started) || !time.Now().Before(deadline) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // they run; whoever stops waiting wants their receipts all the more
		case <-tick.C:
		}
	}
}
