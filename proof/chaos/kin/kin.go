//go:build linux

// Package kin knows every process that descends from this one, whoever its parent is by now: it makes this process the
// one that orphans fall to, looks at the kernel's list again and again, and signals a process only by its identity
// (number and start time). So whoever started it can say of a run that nothing was left behind.
package kin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Role is what a process is to the product.
type Role string

const (
	Watcher  Role = "watcher"
	Agent    Role = "agent"
	Guardian Role = "guardian"
	Program  Role = "program" // of the user, or started by it
	Other    Role = "other"
)

// Proc is one process that lives, or lived at the last look.
type Proc struct {
	PID     int
	Parent  int    // by now
	Start   uint64 // clock ticks since boot
	State   byte   // R, S, D, Z, T, X
	Role    Role
	Binary  string // its file's name, as its command line has it
	Dir     string // its working folder when it was first seen
	Work    string // of an agent, a guardian or a program
	Number  int64  // an agent's dispatch, a guardian's or a program's attempt
	settled bool   // it runs its own program, and not its parent's any more
}

// Alive reports whether the kernel runs it.
func (p *Proc) Alive() bool { return p.State != 'Z' && p.State != 'X' }

// In reports whether its working folder is dir or below it.
func (p *Proc) In(dir string) bool {
	return p.Dir == dir || strings.HasPrefix(p.Dir, dir+string(filepath.Separator))
}

func (p *Proc) String() string {
	s := fmt.Sprintf("%s %d", p.Role, p.PID)
	if p.Work != "" {
		s += fmt.Sprintf(" (%d of %.12s)", p.Number, p.Work)
	}
	return s
}

// Family is all descendants of this process.
type Family struct {
	mu     sync.Mutex
	self   int
	known  map[int]*Proc
	own    map[int]bool // started by Start: whoever started them waits for them
	alive  []*Proc      // at the last look
	looked time.Time    // when that began

	strangers map[int]bool // numbers of other processes, which are not read again for a second
	renewed   time.Time
}

// fresh is how old a look may be for Recent, and how long a stranger's number is not read again.
const (
	fresh   = 100 * time.Millisecond
	unasked = time.Second
)

// Recent returns who lived at a look that is at most 100 ms old: for those who ask again and again.
func (f *Family) Recent() ([]*Proc, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < fresh {
		return f.alive, nil
	}
	return f.look()
}

// since returns who lived at a look that began after t: of many who ask at once, one looks.
func (f *Family) since(t time.Time) ([]*Proc, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looked.After(t) {
		return f.alive, nil
	}
	return f.look()
}

// subreaper is PR_SET_CHILD_SUBREAPER.
const subreaper = 36

// New makes this process the parent of its orphaned descendants. Once a process.
func New() (*Family, error) {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, subreaper, 1, 0); errno != 0 {
		return nil, fmt.Errorf("become the parent of orphans: %w", errno)
	}
	return &Family{self: os.Getpid(), known: map[int]*Proc{}, own: map[int]bool{}, strangers: map[int]bool{}}, nil
}

// Start starts a command that the caller will wait for with Wait.
func (f *Family) Start(c *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := c.Start(); err != nil {
		return err
	}
	f.own[c.Process.Pid] = true
	return nil
}

// Wait waits for a command that Start has started.
func (f *Family) Wait(c *exec.Cmd) error {
	err := c.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.own, c.Process.Pid)
	return err
}

// Look reads the kernel's list, buries orphans that have ended, and returns who lives.
func (f *Family) Look() ([]*Proc, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.look()
}

func (f *Family) look() ([]*Proc, error) {
	began := time.Now()
	if time.Since(f.renewed) > unasked {
		clear(f.strangers)
		f.renewed = time.Now()
	}
	all, err := processes(f.strangers)
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p.PID)
	}
	now := map[int]*Proc{}
	for queue := []int{f.self}; len(queue) > 0; queue = queue[1:] {
		for _, pid := range children[queue[0]] {
			if pid != f.self && now[pid] == nil {
				now[pid] = f.meet(all[pid])
				queue = append(queue, pid)
			}
		}
	}
	f.known = now
	for pid := range all {
		if now[pid] == nil && pid != f.self {
			f.strangers[pid] = true // an orphan of ours was ours before: a stranger never becomes family
		}
	}
	var alive []*Proc
	for _, p := range now {
		if p.Alive() {
			alive = append(alive, p)
		} else if p.Parent == f.self && !f.own[p.PID] {
			_, _ = syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil) // an orphan's end is nobody's news
		}
	}
	slices.SortFunc(alive, func(a, b *Proc) int { return a.PID - b.PID })
	f.alive, f.looked = alive, began
	return alive, nil
}

// meet returns what is known of a process, with its state of now. What was handed out before is never changed.
func (f *Family) meet(p *Proc) *Proc {
	if old := f.known[p.PID]; old != nil && old.Start == p.Start {
		p.Role, p.Binary, p.Dir, p.Work, p.Number, p.settled = old.Role, old.Binary, old.Dir, old.Work, old.Number, old.settled
	}
	if !p.settled && p.Alive() {
		p.introduce()
	}
	return p
}

// introduce reads who a process is. Between fork and exec it looks like its parent: it is read again until it does not.
func (p *Proc) introduce() {
	dir := fmt.Sprintf("/proc/%d/", p.PID)
	raw, _ := os.ReadFile(dir + "cmdline") // gone already: it stays what it was
	argv := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
	if d, err := os.Readlink(dir + "cwd"); err == nil {
		p.Dir = strings.TrimSuffix(d, " (deleted)")
	}
	env, _ := os.ReadFile(dir + "environ")
	get := func(name string) string {
		for e := range bytes.SplitSeq(env, []byte{0}) {
			if v, ok := strings.CutPrefix(string(e), name+"="); ok {
				return v
			}
		}
		return ""
	}
	p.Role, p.Binary = roleOf(argv, get("HEADWAY_ATTEMPT") != ""), filepath.Base(argv[0])
	switch p.Role {
	case Agent:
		p.Work = get("HEADWAY_WORK")
		p.Number, _ = strconv.ParseInt(get("HEADWAY_DISPATCH"), 10, 64)
	case Guardian, Program:
		p.Work = get("HEADWAY_WORK")
		p.Number, _ = strconv.ParseInt(get("HEADWAY_ATTEMPT"), 10, 64)
	case Watcher, Other:
	}
	p.settled = uptime()-float64(p.Start)/ticks > 1
}

// ticks is the kernel's USER_HZ.
const ticks = 100

// uptime is in seconds.
func uptime() float64 {
	b, _ := os.ReadFile("/proc/uptime") // Linux has it
	first, _, _ := strings.Cut(string(b), " ")
	s, _ := strconv.ParseFloat(first, 64)
	return s
}

// roleOf reads a command line: the verbs of the headway binary, or a process with an attempt in its environment.
func roleOf(argv []string, attempt bool) Role {
	words := argv[min(1, len(argv)):]
	switch {
	case len(words) >= 2 && words[0] == "agent" && words[1] == "guard", len(words) >= 1 && words[0] == "guard":
		return Guardian
	case len(words) >= 1 && words[0] == "agent", strings.HasSuffix(argv[0], "headway-agent"):
		return Agent
	case slices.Contains(words, "watch"):
		return Watcher
	case attempt:
		return Program
	}
	return Other
}

// ErrGone: the process had ended.
var ErrGone = errors.New("the process had ended")

// Signal sends a signal to exactly this process: its handle is opened first and its start time compared after.
func (p *Proc) Signal(s syscall.Signal) error {
	h, err := os.FindProcess(p.PID)
	if err != nil {
		return ErrGone
	}
	defer func() { _ = h.Release() }()
	now, err := stat(p.PID)
	if err != nil || now.Start != p.Start || !now.Alive() {
		return ErrGone
	}
	if err := h.Signal(s); err != nil {
		return ErrGone
	}
	return nil
}

// Lives looks at this process alone.
func (p *Proc) Lives() bool {
	now, err := stat(p.PID)
	return err == nil && now.Start == p.Start && now.Alive()
}

// processes reads the kernel's list, but for the numbers to leave out.
func processes(but map[int]bool) (map[int]*Proc, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	out := map[int]*Proc{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && !but[pid] {
			if p, err := stat(pid); err == nil { // else it ended while we read
				out[pid] = p
			}
		}
	}
	return out, nil
}

// stat reads one process. Its name, in brackets, may hold anything: fields are counted from the last one.
func stat(pid int) (*Proc, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return nil, fmt.Errorf("not a line of /proc/%d/stat: %.80q", pid, b)
	}
	parent, errParent := strconv.Atoi(string(f[1]))
	start, errStart := strconv.ParseUint(string(f[19]), 10, 64)
	return &Proc{PID: pid, Parent: parent, Start: start, State: f[0][0], Role: Other}, errors.Join(errParent, errStart)
}
