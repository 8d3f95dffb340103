// Package guard starts the user's program so that nothing of it can outlive the agent. Between the two stands a
// guardian: the same binary started again, in a session of its own, parent of the program and (on Linux) adopter of
// whatever the program leaves behind. A pipe ties it to the agent: end of file, however the agent died, makes it kill
// the whole tree with SIGKILL. Should the guardian be killed first, the kernel kills the program.
//
// Guaranteed on Linux: after SIGKILL of the agent, and after the program's own exit, no descendant lives on, whatever
// sessions or groups it moved to. Elsewhere only the program's process group is covered. Not covered anywhere:
// processes that the program asked another daemon to start.
package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Command is what to start.
type Command struct {
	Guard  []string // how to run Main in this binary
	Argv   []string // the program
	Dir    string
	Env    []string
	Output io.Writer // stdout and stderr, merged, in one goroutine
}

// Ended says how the program itself ended.
type Ended struct {
	Code   int            `json:"code"`             // exit code; 128+signal when a signal ended it
	Signal syscall.Signal `json:"signal,omitempty"` // 0: it exited
	Failed string         `json:"failed,omitempty"` // it never started, and why
}

// Process is a running program with its guardian.
type Process struct {
	PID int // of the program

	guardian *exec.Cmd
	mu       sync.Mutex
	orders   *os.File
	done     chan struct{}
	ended    Ended
}

// order is what the agent tells the guardian, one JSON object per line.
type order struct {
	Signal syscall.Signal `json:"signal"`
}

// report is what the guardian tells the agent.
type report struct {
	PID   int    `json:"pid,omitempty"`
	Ended *Ended `json:"ended,omitempty"`
}

// startLimit bounds how long the guardian may take to report the program's number.
const startLimit = 30 * time.Second

// Start starts the guardian and through it the program. An error means that nothing runs.
func Start(c Command) (*Process, error) {
	if len(c.Guard) == 0 || len(c.Argv) == 0 {
		return nil, errors.New("start program: no guardian command or no program named")
	}
	orderR, orderW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	defer orderR.Close()
	reportR, reportW, err := os.Pipe()
	if err != nil {
		orderW.Close()
		return nil, fmt.Errorf("start program: %w", err)
	}
	g := exec.Command(c.Guard[0], append(append(c.Guard[1:len(c.Guard):len(c.Guard)], "--"), c.Argv...)...)
	g.Dir, g.Env = c.Dir, c.Env
	g.ExtraFiles = []*os.File{orderR, reportW}
	if c.Output != nil {
		out := &drain{c.Output}
		g.Stdout, g.Stderr = out, out
	}
	g.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	g.WaitDelay = time.Second // a guardian that was killed may leave holders of the output
	err = g.Start()
	reportW.Close()
	if err != nil {
		orderW.Close()
		reportR.Close()
		return nil, fmt.Errorf("start program: %w", err)
	}
	p := &Process{guardian: g, orders: orderW, done: make(chan struct{})}
	reports := bufio.NewReader(reportR)
	_ = reportR.SetReadDeadline(time.Now().Add(startLimit))
	first, ok := readReport(reports)
	_ = reportR.SetReadDeadline(time.Time{})
	if !ok || first.PID == 0 {
		_ = g.Process.Kill() // it may hang, or be stopped by the program; gone already is as well
		p.finish(reportR, reports, first, ok)
		if p.ended.Failed == "" {
			p.ended.Failed = "the guardian ended before the program began"
		}
		return nil, fmt.Errorf("start program: %s", p.ended.Failed)
	}
	p.PID = first.PID
	go p.finish(reportR, reports, report{}, true)
	return p, nil
}

// drain reads the program's output in large pieces, from a pipe that holds one: a program that prints much waits less often
// for its agent's turn, and neither of the two is woken for every 32 KiB.
type drain struct{ to io.Writer }

// piece is what is read at once. A user's pipes may hold 64 MiB together before the kernel makes them small: 256 agents.
const piece = 256 << 10

// Write implements io.Writer for what os/exec asks of an output; it calls ReadFrom.
func (d *drain) Write(p []byte) (int, error) { return d.to.Write(p) }

// ReadFrom implements io.ReaderFrom.
func (d *drain) ReadFrom(r io.Reader) (n int64, err error) {
	if f, ok := r.(syscall.Conn); ok {
		widen(f, piece)
	}
	for buf := make([]byte, piece); ; {
		k, err := r.Read(buf)
		if n += int64(k); k > 0 {
			if _, err := d.to.Write(buf[:k]); err != nil {
				return n, err
			}
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
	}
}

func readReport(r *bufio.Reader) (report, bool) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return report{}, false
	}
	var rep report
	return rep, json.Unmarshal(line, &rep) == nil
}

// finish reads the guardian's last report, waits for it (and so for all output), and closes done.
func (p *Process) finish(f *os.File, r *bufio.Reader, rep report, ok bool) {
	for ok && rep.Ended == nil {
		rep, ok = readReport(r)
	}
	f.Close()
	_ = p.guardian.Wait() // its exit code says nothing; the report does
	if rep.Ended != nil {
		p.ended = *rep.Ended
	} else {
		// The guardian was killed. The kernel has killed the program; what is left of its group is killed here.
		if p.PID > 0 {
			_ = syscall.Kill(-p.PID, syscall.SIGKILL)
		}
		p.ended = Ended{Code: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL}
	}
	p.mu.Lock()
	p.orders.Close()
	p.mu.Unlock()
	close(p.done)
}

// Done is closed when the program, all its descendants and the guardian are gone and all output was delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended says how it ended. Only after Done.
func (p *Process) Ended() Ended { <-p.done; return p.ended }

// Signal sends a signal to the program's group; SIGKILL goes to every descendant. A program that has ended is no error.
// The guardian carries it out, so one that somebody stopped is woken first.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, _ := json.Marshal(order{Signal: s}) // a struct of one number
	_, _ = p.orders.Write(append(b, '\n')) // a guardian that is gone has killed everything
	_ = p.guardian.Process.Signal(syscall.SIGCONT)
}
