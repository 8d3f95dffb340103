package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// passed is one pass, as headway watch logs it.
type passed struct {
	at    time.Time
	took  time.Duration
	works int
	gets  int64
	lists int64
	puts  int64
}

// watch is a running headway watch.
type watch struct {
	cmd    *exec.Cmd
	ended  chan error
	mu     sync.Mutex
	passes []passed
	taken  []time.Time // when it printed that it took a commit
	launch []time.Time // when it logged that a launch was done
	// answered is when it logged that a platform had answered the first launch: while others of its round are under way.
	answered time.Time
	errors   []string
	log      *os.File
}

// start starts headway watch over the project and reads what it says.
func (p *project) start(ctx context.Context, name string) (*watch, error) {
	log, err := os.Create(filepath.Join(p.dir, "..", name+".log"))
	if err != nil {
		return nil, err
	}
	c := p.headway(ctx, "watch")
	c.Env = append(c.Env, "HEADWAY_LOG=debug")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	w := &watch{cmd: c, ended: make(chan error, 1), log: log}
	if err := c.Start(); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	read := func(s *bufio.Scanner) {
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			w.line(s.Text())
		}
	}
	wg.Go(func() { read(bufio.NewScanner(out)) })
	wg.Go(func() { read(bufio.NewScanner(said)) })
	go func() {
		wg.Wait()
		w.ended <- c.Wait()
		log.Close()
	}()
	return w, nil
}

// headway is a command of the product in the project's folder.
func (p *project) headway(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.o.headway, args...)
	c.Dir = p.dir
	c.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+p.s.Access, "AWS_SECRET_ACCESS_KEY="+p.s.Secret, "AWS_REGION="+p.s.Region)
	return c
}

// line takes one line of either stream.
func (w *watch) line(text string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasPrefix(text, "commit ") {
		w.taken = append(w.taken, now)
	}
	var l struct {
		Level, Msg, Action string
		Took               time.Duration
		Works              int
		Gets, Lists, Puts  int64
	}
	if json.Unmarshal([]byte(text), &l) != nil || l.Msg != "decided" {
		fmt.Fprintln(w.log, now.Format("15:04:05.000"), text)
	}
	switch {
	case l.Msg == "pass":
		w.passes = append(w.passes, passed{now, l.Took, l.Works, l.Gets, l.Lists, l.Puts})
	case l.Msg == "answered" && w.answered.IsZero():
		w.answered = now
	case l.Msg == "done" && l.Action == "launch":
		w.launch = append(w.launch, now)
	case l.Level == "WARN" || l.Level == "ERROR":
		w.errors = append(w.errors, text)
	}
}

// until waits for a fact about what was heard.
func (w *watch) until(ctx context.Context, limit time.Duration, what string, fact func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		w.mu.Lock()
		ok := fact()
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case err := <-w.ended:
			return fmt.Errorf("headway watch ended while waiting for %s: %w", what, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("waited %v for %s; what headway watch said is in %s", limit, what, w.log.Name())
}

// stop asks it to end, and waits.
func (w *watch) stop() error {
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-w.ended:
		if err != nil {
			return fmt.Errorf("headway watch ended with %w", err)
		}
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("headway watch did not end within a minute of SIGTERM"), w.cmd.Process.Kill())
	}
}

// memory is the resident memory now and the most there ever was, in bytes.
func (w *watch) memory() (now, most int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	of := func(name string) int64 {
		_, rest, _ := strings.Cut(string(b), name+":")
		n, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
		return n << 10
	}
	return of("VmRSS"), of("VmHWM"), nil
}

// status runs a fresh headway status --json, and returns how long it took, by the clock and of a processor,
// and how many jobs it showed as held.
func (p *project) status(ctx context.Context) (took, cpu time.Duration, held int, requests int64, err error) {
	c := p.headway(ctx, "status", "--json")
	begin := time.Now()
	out, err := c.Output()
	took = time.Since(begin)
	if err != nil {
		return 0, 0, 0, 0, fmt.Errorf("headway status: %w", err)
	}
	held, requests, err = shownHeld(out)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	return took, c.ProcessState.UserTime() + c.ProcessState.SystemTime(), held, requests, nil
}

// shownHeld is how many jobs a status --json shows as held, and what it says that it cost.
func shownHeld(out []byte) (held int, requests int64, err error) {
	var doc struct {
		Requests int64 `json:"store_requests"`
		Jobs     []struct{ State string }
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return 0, 0, fmt.Errorf("headway status --json: %w", err)
	}
	for _, j := range doc.Jobs {
		if j.State == "held" {
			held++
		}
	}
	return held, doc.Requests, nil
}
