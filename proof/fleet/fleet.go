// Package fleet makes the real worker a worker of the simulated platform: the whole agent (lease, keeper, socket
// protocol, courier, journal, lookout) with a small training loop that speaks to it through the real Go client, as
// goroutines of this process. Many of them live in the fake time of one testing/synctest bubble.
//
// What is computed is sim.State's chain of hashes, one link a step, so that a result shows whether it is that of one
// unbroken run. Real are the files (scratch, milestones, result), in a folder that the caller names.
package fleet

import (
	"context"
	"strconv"
	"time"

	"github.com/headway-run/headway/runners/agent"
	"github.com/headway-run/headway/runners/sim"
)

// Config is what all workers of a fleet have in common.
type Config struct {
	// Scratch is the folder for the files of runs, best in memory (tmpfs). Each run has a folder of its own in it, and
	// removes it at its end.
	Scratch string

	// PhaseEvery: after so many steps, each time, the loop declares a phase, for as long as PhaseFor. 0: never.
	PhaseEvery int64
	PhaseFor   time.Duration

	// Undeclared: the loop says nothing before its first step, however long that takes; else it declares a long one.
	Undeclared bool

	// SideThread takes a protection away: a goroutine beside the loop reports the steps, on a timer, whether the loop goes
	// on or hangs. What it renews is no evidence of anything.
	SideThread bool

	// Ended hears how each run ended, as the agent says it, from the run's goroutine; nil: nobody does. A machine that
	// was lost says nothing.
	Ended func(p sim.Post, e agent.Exit)
}

// Work is the worker for sim.Config.Work. How it ended, for Truth: "died", "killed", or the class of agent.Exit
// ("finished", "yielded", "deposed", "nothing_to_do", …), with its text where that says more.
//
// The faults of a script are played so: mute starts no agent; die takes the machine away in the middle of the step, or
// before the agent begins (step 0), and so does restart, after which the platform runs the command once more; hang stops
// the loop in the middle of the step, and the agent lives on; fail ends the program with code 1 in the middle of the step;
// slow gives every step its time.
func (c Config) Work() sim.Work {
	return func(ctx context.Context, p sim.Post) string {
		if p.Fault.Effect == sim.Slow {
			p.Model.Step = p.Fault.For
		}
		if p.Fault.Effect == sim.Mute {
			<-ctx.Done()
			return "killed"
		}
		if !sleep(ctx, p.Model.Start) {
			return "killed"
		}
		if dies(p.Fault) && p.Fault.Step == 0 {
			return "died"
		}
		return c.run(ctx, p)
	}
}

// dies: the machine goes without a word.
func dies(f sim.Fault) bool { return f.Effect == sim.Die || f.Effect == sim.Restart }

// run is one machine from the start of the agent on.
func (c Config) run(ctx context.Context, p sim.Post) string {
	life, lose := context.WithCancel(ctx)
	defer lose()
	notice, leave := context.WithCancel(life)
	defer leave()
	go func() {
		select {
		case <-p.Notice:
			leave()
		case <-notice.Done():
		}
	}()
	l := &loop{c: c, p: p, lose: lose}
	exit := agent.Run(notice, agent.Config{
		Bucket: &port{b: p.Bucket, life: life, captured: p.Captured}, Work: p.Job.Work, Dispatch: p.Job.Dispatch, Platform: p.Job.Claim.Platform,
		Scratch: c.Scratch, Environ: environ(p),
		Inside: &agent.Inside{Life: life, Facts: map[string]string{"os": "none", "gpu": p.Model.GPU}, Program: l.program},
	})
	switch {
	case ctx.Err() != nil:
		return "killed"
	case life.Err() != nil:
		return "died"
	}
	if c.Ended != nil {
		c.Ended(p, exit)
	}
	switch exit.Code {
	case agent.CodeFinished, agent.CodeYielded, agent.CodeLeaseLost, agent.CodeRevoked, agent.CodeNothingToDo:
		return exit.Class
	}
	return exit.Class + ": " + exit.Text
}

// environ is the agent's own environment.
func environ(p sim.Post) []string {
	env := []string{"HEADWAY_INSTANCE=" + strconv.Itoa(p.Instance)}
	for k, v := range p.Job.Env {
		env = append(env, k+"="+v)
	}
	return env
}

// sleep waits, and reports false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
