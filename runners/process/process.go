// Package process is the family of runners that start processes on this machine. It starts a command that outlives
// its starter, and finds, judges and ends it later by an identity that a reused process number cannot fake: number,
// start time in clock ticks, and the machine's boot. Only Linux can answer that; elsewhere every call is an error.
//
// Guaranteed: a process whose identity does not match is never signalled, and Gone is said only of what the kernel
// no longer runs (a zombie runs nothing). Not guaranteed: anything about processes in another process namespace, nor
// that descendants are found which left the session and cleared their environment.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Identity names one process for ever. The JSON form is what receipts carry.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/<pid>/stat
	Boot  string `json:"boot"`  // /proc/sys/kernel/random/boot_id
}

// Valid reports whether the fields can name a process that somebody else may have started. 0, negative numbers and
// 1 never do: a kill of those would reach a group, everybody, or the machine's first process.
func (id Identity) Valid() bool { return id.PID > 1 && id.Start > 0 && id.Boot != "" }

// Command is what Start runs.
type Command struct {
	Argv   []string // program and arguments; no shell
	Env    []string // the whole environment, KEY=VALUE; nothing is inherited
	Dir    string   // working folder
	Output string   // file that stdout and stderr are appended to; created with mode 0600
}

// Started is a process of this program's own. It is reaped as soon as it ends, so no zombie stays behind while this
// program lives; when this program ends first, the process lives on and is reaped by its new parent.
type Started struct {
	Identity Identity
	done     chan struct{}
	err      error
}

// Start runs a command in a session of its own, without a terminal and without a bond to this process: it gets no
// signal of ours and outlives us. When Start returns without an error the program has been executed.
func Start(c Command) (*Started, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("start a process: no command given")
	}
	if _, err := Boot(); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(c.Output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the output of %s: %w", filepath.Base(c.Argv[0]), err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append([]string{}, c.Env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	s := &Started{done: make(chan struct{})}
	// Nobody has waited for it yet, so its number cannot be another's: what is read here is surely its identity.
	id, err := Identify(cmd.Process.Pid)
	go func() {
		s.err = cmd.Wait()
		close(s.done)
	}()
	if err != nil {
		_ = cmd.Process.Kill()
		<-s.done
		return nil, fmt.Errorf("identify %s: %w", c.Argv[0], err)
	}
	s.Identity = id
	return s, nil
}

// Done is closed when the process has ended and was reaped.
func (s *Started) Done() <-chan struct{} { return s.done }

// Err is how it ended, valid after Done: nil for exit code 0, an *exec.ExitError otherwise.
func (s *Started) Err() error { return s.err }

// State is what is known of an identity.
type State uint8

const (
	// Unsure: the kernel could not be asked. Never taken for Gone.
	Unsure State = iota
	// Alive: it runs.
	Alive
	// Gone: it ended, or the machine has booted since.
	Gone
)

// Look judges an identity. err says why it is Unsure.
func (id Identity) Look() (State, error) {
	if !id.Valid() {
		return Unsure, fmt.Errorf("%+v names no process that may be judged", id)
	}
	boot, err := Boot()
	if err != nil {
		return Unsure, err
	}
	if boot != id.Boot {
		return Gone, nil
	}
	now, err := stat(id.PID)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Gone, nil
	case err != nil:
		return Unsure, err
	case now.start != id.Start || now.state == 'Z' || now.state == 'X':
		return Gone, nil
	}
	return Alive, nil
}

// pollEvery is the pause between two looks at a process that is to end.
const pollEvery = 10 * time.Millisecond

// killWait bounds how long a killed process may take to vanish (one in the kernel's uninterruptible sleep may never).
const killWait = 5 * time.Second

// Terminate ends a process: SIGTERM to it alone (it is the one that knows what to save), and after grace SIGKILL to
// it, its session, its descendants, and every process whose environment carries mark (KEY=VALUE; empty: none). It
// returns Gone when nothing of all that is left, Alive when something outlived SIGKILL or ctx ended first. Twice is
// harmless.
func (id Identity) Terminate(ctx context.Context, grace time.Duration, mark string) (State, error) {
	known, err := id.family(mark) // while its session and its children can still be told from another's
	if err != nil {
		return Unsure, err
	}
	if err := id.signal(syscall.SIGTERM); err != nil {
		return Unsure, err
	}
	if state, err := id.Await(ctx, grace); err != nil {
		return state, err
	}
	deadline := time.Now().Add(killWait)
	for {
		left, err := id.left(known, mark)
		if err != nil {
			return Unsure, err
		}
		if len(left) == 0 {
			return Gone, nil
		}
		known = left
		for _, m := range left {
			if err := m.signal(syscall.SIGKILL); err != nil {
				return Unsure, err
			}
		}
		if !time.Now().Before(deadline) {
			return Alive, fmt.Errorf("%d processes outlived SIGKILL, the first is %d", len(left), left[0].PID)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return Alive, err
		}
	}
}

// Await waits until the process is gone, at most for the given time. It signals nothing.
func (id Identity) Await(ctx context.Context, most time.Duration) (State, error) {
	for deadline := time.Now().Add(most); ; {
		state, err := id.Look()
		if err != nil || state == Gone || !time.Now().Before(deadline) {
			return state, err
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return state, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// signal sends one signal to exactly this process: the handle is opened first and the identity checked after, so a
// number that is reused in between is not reached. A process that is gone is no error.
func (id Identity) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return fmt.Errorf("process %d: %w", id.PID, err)
	}
	defer func() { _ = p.Release() }()
	state, err := id.Look()
	if err != nil || state == Gone {
		return err
	}
	err = p.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal %d to process %d: %w", sig, id.PID, err)
	}
	return nil
}

// left is the family, and those of an earlier family that still live.
func (id Identity) left(known []Identity, mark string) ([]Identity, error) {
	out, err := id.family(mark)
	if err != nil {
		return nil, err
	}
	for _, k := range known {
		state, err := k.Look()
		if err != nil {
			return nil, err
		}
		if state == Alive && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out, nil
}

// family is what is left of a process: itself, its session and its descendants while it lives, and whatever carries
// mark. Once it is gone nobody can say whose its session and its orphans were: then only the mark counts, and what
// was known before.
func (id Identity) family(mark string) ([]Identity, error) {
	boot, err := Boot()
	if err != nil || boot != id.Boot {
		return nil, err
	}
	all, err := processes()
	if err != nil {
		return nil, err
	}
	self, err := id.Look() // after the list: when it lives now, the number was its own when the list was made
	if err != nil {
		return nil, err
	}
	in := map[int]bool{}
	for _, p := range all {
		in[p.pid] = self == Alive && p.pid == id.PID || carries(p.pid, mark)
	}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if in[p.pid] || p.pid == os.Getpid() {
				continue
			}
			if self == Alive && (p.session == id.PID || in[p.parent]) {
				in[p.pid], grew = true, true
			}
		}
	}
	var out []Identity
	for _, p := range all {
		if in[p.pid] && p.pid != os.Getpid() && p.state != 'Z' && p.state != 'X' {
			out = append(out, Identity{PID: p.pid, Start: p.start, Boot: boot})
		}
	}
	return out, nil
}

// Find lists the live processes whose environment carries mark (KEY=VALUE), this one excepted.
func Find(mark string) ([]Identity, error) {
	return find(func(pid int) bool { return carries(pid, mark) })
}

// FindIn lists the live processes, this one excepted, that were started with a variable whose name begins with prefix and
// whose value is the folder dir or a path in it.
func FindIn(prefix, dir string) ([]Identity, error) {
	return find(func(pid int) bool { return mentions(pid, prefix, dir) })
}

func find(ours func(pid int) bool) ([]Identity, error) {
	boot, err := Boot()
	if err != nil {
		return nil, err
	}
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, p := range all {
		if p.state != 'Z' && p.state != 'X' && p.pid != os.Getpid() && ours(p.pid) {
			out = append(out, Identity{PID: p.pid, Start: p.start, Boot: boot})
		}
	}
	return out, nil
}
