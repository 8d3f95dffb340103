//go:build linux

package round

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// watcher is one `headway watch`, started again whenever it has ended.
type watcher struct {
	r    *run
	n    int
	done chan struct{}

	mu   sync.Mutex
	cmd  *exec.Cmd // nil: it is not running
	life int
}

// modest is the nice value of the product's processes.
const modest = 5

// quit is how long a watcher may take to end when it is asked to: a pass, and what is under way at a platform.
const quit = 45 * time.Second

func (r *run) watch(n int) *watcher {
	w := &watcher{r: r, n: n, done: make(chan struct{})}
	go w.keep()
	return w
}

// keep runs life after life until the round is over.
func (w *watcher) keep() {
	defer close(w.done)
	for {
		select {
		case <-w.r.over:
			return
		default:
		}
		if err := w.start(); err != nil {
			w.r.broken("watcher %d cannot be started: %v", w.n+1, err)
			return
		}
		err := w.r.c.Family.Wait(w.cmd)
		w.mu.Lock()
		w.cmd = nil
		w.mu.Unlock()
		w.r.say("watcher %d ended: %v", w.n+1, err)
		select {
		case <-w.r.over:
			return
		case <-time.After(time.Duration(200+300*((w.n+w.life)%4)) * time.Millisecond):
		}
	}
}

func (w *watcher) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life++
	out, err := os.Create(w.log(w.life))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own
	binary, err := w.r.binary(w.n, w.life)
	if err != nil {
		return err
	}
	c := exec.Command(binary, "watch", "--interval", "1200ms")
	c.Dir, c.Stdout, c.Stderr, c.Env = w.r.repo(), out, out, w.r.environ()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's ctrl-C is for the harness
	if err := w.r.c.Family.Start(c); err != nil {
		return err
	}
	w.cmd = c
	if err := w.r.swap(binary); err != nil {
		return err
	}
	// What the product starts inherits this: where there is too much to do, the harness between it and the store goes first.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, c.Process.Pid, modest)
	w.r.say("watcher %d is process %d", w.n+1, c.Process.Pid)
	return nil
}

// pid of the life that runs, or 0.
func (w *watcher) pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return 0
	}
	return w.cmd.Process.Pid
}

// end asks it to end, and kills it when it does not.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return
	}
	p := w.cmd.Process
	_ = p.Signal(syscall.SIGCONT)
	_ = p.Signal(syscall.SIGTERM)
	go func() {
		select {
		case <-w.done:
		case <-time.After(quit):
			w.r.broken("watcher %d does not end within %s of SIGTERM", w.n+1, quit)
			_ = p.Kill()
		}
	}()
}

// environ is what the product's processes get: no key, no proxy and no configuration of whoever runs the harness.
func (r *run) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "HEADWAY_") || strings.HasPrefix(name, "GIT_") || strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "PATH"
	})
	return append(append(env, r.c.Server.Environ()...), "PATH="+r.c.Path, "PYTHONDONTWRITEBYTECODE=1")
}

// givenUp returns the line with which a watcher that runs has said that an unfinished job has failed for good, or "".
func (r *run) givenUp() string {
	for _, w := range r.guards {
		w.mu.Lock()
		life := w.life
		w.mu.Unlock()
		said, err := os.ReadFile(w.log(life))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(said)) {
			if job, what, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasPrefix(what, "fail: ") && !r.isFinished(job) {
				return fmt.Sprintf("watcher %d: %s: %s", w.n+1, job, what)
			}
		}
	}
	return ""
}

func (w *watcher) log(life int) string {
	return filepath.Join(w.r.c.Dir, fmt.Sprintf("watch-%d.%d.log", w.n+1, life))
}
