package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/agent/journal"
)

// afterLoss is how long a program whose lease is lost has between SIGTERM and SIGKILL.
const afterLoss = 5 * time.Second

// asked is what the agent asked of the program.
type asked struct {
	leave time.Time // when the notice came; zero: none came
	why   *Exit     // the agent's own reason to leave; nil: somebody asked for it
}

// watchOver starts the program and stands by it until nothing of it is left. ctx ending is the notice to leave.
func (r *run) watchOver(ctx, store context.Context, srv *server, l *laid) (guard.Ended, asked) {
	env := programEnv(r.c.Environ, &r.spec, r.claim.Secrets, l.env, r.pythonPath())
	var w *watcher
	if glob := r.claim.Terms.WatchPath; glob != "" { // looks before the program begins: its first file is progress
		w = newWatcher(r.d, r.k, l.cwd, glob, r.claim.Terms.WatchIntervalS)
	}
	p, name, err := r.launch(store, srv, guard.Command{Guard: r.c.Guard, Argv: l.argv, Dir: l.cwd, Env: env, Output: r.out})
	if err != nil {
		return guard.Ended{Code: 127, Failed: err.Error()}, asked{}
	}
	r.d.running()
	r.say("started", r.d.at(), fmt.Sprintf("%.200q as %s", l.argv, name))
	watching, blind := context.WithCancel(store)
	var wg sync.WaitGroup
	if w != nil {
		wg.Go(func() { w.run(watching) })
	}
	a := r.standBy(ctx, p, srv)
	blind()
	wg.Wait()
	if w != nil && p.Ended().Signal == 0 && r.overNow() == nil {
		w.final()
	}
	return p.Ended(), a
}

// launch starts the program; name is how people find it.
func (r *run) launch(store context.Context, srv *server, c guard.Command) (p process, name string, err error) {
	if r.c.Inside != nil {
		return startInside(store, r.c.Inside, c, srv.inside), "a part of this process", nil
	}
	child, err := guard.Start(c)
	if err != nil {
		return nil, "", err
	}
	return child, fmt.Sprintf("process %d", child.PID), nil
}

func (r *run) pythonPath() string {
	if r.c.Python == nil {
		return ""
	}
	return r.scratch.at("python")
}

// standBy passes on what is asked of the program: a notice to leave, also where the agent itself gives up; a lost lease.
func (r *run) standBy(ctx context.Context, p process, srv *server) (a asked) {
	grace := time.Duration(r.claim.Terms.GraceS * float64(time.Second))
	var term, kill <-chan time.Time
	notice, vain, over, settled := ctx.Done(), r.d.vain, r.d.over, (<-chan struct{})(nil)
	leave := func() {
		notice, vain, a.leave = nil, nil, time.Now()
		kill = time.After(grace)
		term = time.After(r.ask(srv, grace))
		settled = r.d.leave
	}
	for {
		select {
		case <-p.Done():
			return a
		case <-notice:
			leave()
		case <-vain:
			a.why = r.d.reason()
			r.say("giving up", r.d.at(), a.why.Text)
			leave()
		case <-settled: // its last milestone is safe; a loop that has heard leaves by itself
			settled, term = nil, time.After(min(2*time.Second, grace/5))
		case <-over:
			over, notice, vain, settled, term = nil, nil, nil, nil, nil
			r.k.Stop()
			r.say("lease over", r.d.at(), r.overNow().Error())
			srv.ask() // so that it looks up from its one-way steps
			p.Signal(syscall.SIGTERM)
			kill = time.After(afterLoss)
		case <-term:
			term = nil
			p.Signal(syscall.SIGTERM)
		case <-kill:
			kill = nil
			r.say("killed", r.d.at(), "the program did not leave in time")
			p.Signal(syscall.SIGKILL)
		}
	}
}

// ask tells the loop to save and leave, and returns how long it may take before SIGTERM. A program without a loop, or
// one whose last upload was slower than the grace, is signalled at once.
func (r *run) ask(srv *server, grace time.Duration) time.Duration {
	r.d.leaving()
	r.d.mu.Lock()
	bytes := r.d.bytes
	r.d.mu.Unlock()
	if estimate := r.k.Estimate(bytes); estimate > grace*7/10 {
		r.say("asked to leave", r.d.at(), fmt.Sprintf("a milestone takes %s to upload, the notice is %s: leaving without one", estimate.Round(time.Second), grace))
		return 0
	}
	if !srv.ask() {
		r.say("asked to leave", r.d.at(), "no training loop is connected: the program is signalled at once")
		return 0
	}
	r.say("asked to leave", r.d.at(), "waiting for a last milestone")
	return grace * 7 / 10
}

// tail keeps the last output of the program.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailLength = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailLength):]...)
	t.buf = t.buf[max(0, len(t.buf)-tailLength):]
	return len(p), nil
}

// lastLine is the last line that is not blank.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLine(string(t.buf))
}

// lastLine returns the last line of a text that is not blank, bounded, in printable characters.
func lastLine(text string) string {
	lines := strings.Split(text, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		clean := strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(lines[i], "")))
		if clean != "" {
			return journal.Bound(clean, 1024)
		}
	}
	return ""
}

// oomKills counts the processes of this control group that were killed for want of memory; 0 where it is not known.
func (c *Config) oomKills() int64 {
	if c.Inside != nil {
		return 0
	}
	root := c.cgroup
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	for _, file := range []string{"memory.events", "memory/memory.oom_control"} { // version 2, version 1
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if name, n, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == "oom_kill" {
				kills, _ := strconv.ParseInt(n, 10, 64) // 0 when it is no number
				return kills
			}
		}
	}
	return 0
}
