package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/agent"
	"github.com/headway-run/headway/runners/goclient"
	"github.com/headway-run/headway/runners/sim"
)

// loop is the training program of one machine.
type loop struct {
	c    Config
	p    sim.Post
	lose context.CancelFunc // takes the whole machine away

	dir   string
	out   io.Writer
	state sim.State

	run  *goclient.Run
	turn chan struct{} // held by who speaks to the agent: matters with Config.SideThread alone; a mutex would stop fake time
}

// speak takes the turn; what it returns gives it back.
func (l *loop) speak() (done func()) {
	l.turn <- struct{}{}
	return func() { <-l.turn }
}

// errGone ends a program that a signal has ended, or whose machine is no more.
var errGone = errors.New("ended by a signal")

// program runs from the start to the exit code.
func (l *loop) program(ctx context.Context, in agent.Program) int {
	conn, err := in.Dial()
	if err != nil {
		return 1
	}
	defer context.AfterFunc(in.Term, func() { _ = conn.Close() })() // it handles no signal: it is gone, whatever it does
	env := map[string]string{}
	for _, e := range in.Env {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	conn = paced{conn}
	l.dir, l.out, l.turn = in.Dir, in.Output, make(chan struct{}, 1)
	if l.run, err = goclient.Join(conn, func(k string) string { return env[k] }); err == nil {
		err = l.train(in.Term)
		switch {
		case errors.Is(err, errGone):
			_ = conn.Close() // and not a word more
		default:
			err = errors.Join(err, l.run.Close(err))
		}
	}
	switch {
	case in.Term.Err() != nil:
		return 128 + int(syscall.SIGTERM)
	case err == nil, errors.Is(err, goclient.ErrYielded):
		return 0
	}
	fmt.Fprintln(l.out, err)
	return 1
}

// paced takes a moment for each line, so that of two lines the first has done all that it does before the second comes:
// else what the agent makes of them would hang on the order in which goroutines run.
type paced struct{ net.Conn }

// Write implements net.Conn.
func (c paced) Write(b []byte) (int, error) {
	time.Sleep(time.Microsecond)
	return c.Conn.Write(b)
}

// train does what is left of the steps, and leaves the result.
func (l *loop) train(ctx context.Context) error {
	if err := l.restore(); err != nil {
		return err
	}
	if l.c.SideThread {
		defer l.beside(ctx)()
	}
	begun, err := l.begin()
	for first := true; err == nil && l.state.Step < l.p.Model.Steps; first = false {
		if err = l.step(ctx); err == nil && first {
			done := l.speak()
			err = begun()
			done()
		}
	}
	if err != nil {
		return err
	}
	return l.result()
}

// begin declares the first step where it is long: until it has seen one, the agent promises a few floors and no more.
func (l *loop) begin() (begun func() error, err error) {
	defer l.speak()()
	if l.c.Undeclared || l.p.Model.Step <= l.p.Model.LeaseFloor || l.state.Step >= l.p.Model.Steps {
		return func() error { return nil }, nil
	}
	return l.run.Phase("first step", 2*l.p.Model.Step)
}

// restore goes on from the snapshot that the agent names.
func (l *loop) restore() error {
	l.state = sim.Begin(l.p.Job.Work)
	from, err := l.run.Resume()
	if err != nil || from == nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(from.Path, sim.StateFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &l.state); err != nil {
		return err
	}
	if l.state.Step != from.Step {
		return fmt.Errorf("the snapshot of step %d holds step %d", from.Step, l.state.Step)
	}
	return nil
}

// step computes one step, says so, and hands over a milestone when one is due.
func (l *loop) step(ctx context.Context) error {
	next, f := l.state.Step+1, l.p.Fault
	// No two machines have quite the same step time: what happens at one instant has no order of its own.
	long := l.p.Model.Step + time.Duration(1+l.p.Instance%97)
	if !sleep(ctx, long/2) {
		return errGone
	}
	switch {
	case dies(f) && next >= f.Step:
		l.lose()
		return errGone
	case f.Effect == sim.Hang && next >= f.Step:
		<-ctx.Done()
		return errGone
	case f.Effect == sim.Fail && next >= f.Step:
		return fmt.Errorf("ValueError: loss is not a number at step %d", f.Step)
	}
	if !sleep(ctx, long-long/2) {
		return errGone
	}
	defer l.speak()()
	l.state = l.state.Next()
	fmt.Fprintf(l.out, "step %d loss %.4f\n", next, 1/float64(next+1))
	if l.p.Stepped != nil {
		l.p.Stepped(next)
	}
	if err := l.gone(ctx, l.run.Step(next)); err != nil {
		return err
	}
	if l.run.MilestoneDue() && next < l.p.Model.Steps {
		return l.gone(ctx, l.milestone())
	}
	if l.c.PhaseEvery > 0 && next%l.c.PhaseEvery == 0 {
		return l.gone(ctx, l.phase(ctx))
	}
	return nil
}

// gone is err, unless the program has ended meanwhile.
func (l *loop) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errGone
	}
	return err
}

// milestone writes the state and gives it away.
func (l *loop) milestone() error {
	if err := l.write(l.dir); err != nil {
		return err
	}
	err := l.run.Milestone(filepath.Join(l.dir, sim.StateFile), l.state.Step, true)
	if e, ok := errors.AsType[*goclient.Error](err); ok && e.Code == "disk_full" {
		return nil // the one before it stays
	}
	return err
}

func (l *loop) write(dir string) error {
	b, err := json.Marshal(l.state)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sim.StateFile), b, 0o600)
}

// phase is a declared silence.
func (l *loop) phase(ctx context.Context) error {
	end, err := l.run.Phase("evaluate", l.c.PhaseFor)
	if err != nil {
		return err
	}
	if !sleep(ctx, l.c.PhaseFor) {
		return errGone
	}
	return end()
}

// result leaves the last state and the metrics that the plan asks for.
func (l *loop) result() error {
	defer l.speak()()
	dir, err := l.run.ResultDir()
	if err == nil {
		err = l.write(dir)
	}
	if err != nil || len(l.p.Job.Spec.Metrics) == 0 {
		return err
	}
	metrics := map[string]float64{}
	for name := range l.p.Job.Spec.Metrics {
		metrics[name] = l.state.Metric(name)
	}
	return l.run.Finish(metrics)
}

// beside reports steps from a goroutine of its own, on a timer: what a loop must never do. The answer ends it.
func (l *loop) beside(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, l.p.Model.Step) {
			done := l.speak()
			err := l.run.Step(l.state.Step)
			done()
			if err != nil {
				return // the loop hears the same
			}
		}
	}()
	return func() { cancel(); <-done }
}
