//go:build linux

package round

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/proof/chaos/kin"
	"github.com/headway-run/headway/proof/chaos/proxy"
	"github.com/headway-run/headway/proof/chaos/schedule"
)

// glance is how often a chain looks whether its moment has come.
const glance = 25 * time.Millisecond

// strike carries out the schedule: its chains side by side. It returns when all have ended, or soon after ctx has.
func (r *run) strike(ctx context.Context) {
	if len(r.c.Schedule.Chains) == 0 || !r.awaitAgent(ctx) {
		return
	}
	var wg sync.WaitGroup
	for _, chain := range r.c.Schedule.Chains {
		wg.Go(func() {
			for _, e := range chain {
				if !r.event(ctx, e) {
					r.mu.Lock()
					r.report.Missed++
					r.mu.Unlock()
					r.say("missed: %s", e)
				}
			}
		})
	}
	wg.Wait()
}

// awaitAgent waits for the first agent of the round.
func (r *run) awaitAgent(ctx context.Context) bool {
	for ctx.Err() == nil {
		if len(r.living(func(p *kin.Proc) bool { return p.Role == kin.Agent })) > 0 {
			return true
		}
		pause(ctx, 5*glance)
	}
	return false
}

// event carries one out; false: it found nobody.
func (r *run) event(ctx context.Context, e schedule.Event) bool {
	if e.Job != "" {
		return r.onAttempt(ctx, e)
	}
	if pause(ctx, e.After); ctx.Err() != nil {
		return false
	}
	switch e.Kind {
	case schedule.Cut, schedule.Delay:
		return r.traffic(ctx, e, nil)
	case schedule.Disk:
		return r.fill(ctx, e)
	case schedule.Restart:
		return r.restart(ctx, e)
	case schedule.Kill, schedule.Pause, schedule.Term:
		pid := r.guards[e.Which].pid()
		return r.signal(ctx, e, r.living(func(p *kin.Proc) bool { return p.PID == pid }))
	}
	return false
}

// onAttempt waits for the job's next attempt and the moment in it, and strikes.
func (r *run) onAttempt(ctx context.Context, e schedule.Event) bool {
	agent := r.nextAgent(ctx, e.Job)
	if agent == nil {
		return false
	}
	if e.Steps == 0 {
		pause(ctx, e.After)
	} else if !r.awaitSteps(ctx, agent, e.Steps) {
		return false
	}
	if e.Only {
		return agent.Lives() && r.traffic(ctx, e, func(q proxy.Request) bool {
			return q.Who == name(agent) || strings.HasPrefix(q.Who, somebody) && strings.Contains(q.Key, agent.Work)
		})
	}
	return r.signal(ctx, e, r.living(func(p *kin.Proc) bool {
		switch e.Victim {
		case schedule.Agent:
			return p.PID == agent.PID
		case schedule.Program:
			return p.Role == kin.Program && r.under(p, agent)
		case schedule.Guard:
			return p.Role == kin.Guardian && r.under(p, agent)
		case schedule.Tree:
			return p.PID == agent.PID || r.under(p, agent)
		case schedule.Watch, schedule.Nobody:
		}
		return false
	}))
}

// under reports whether a guardian or a program belongs to an agent's life: they share its launch's folder.
func (r *run) under(p, agent *kin.Proc) bool { return p.PID != agent.PID && p.In(agent.Dir) }

// nextAgent waits for an agent of the job that no event has met; nil: the job is finished, or the round over.
func (r *run) nextAgent(ctx context.Context, job string) *kin.Proc {
	for ctx.Err() == nil && !r.isFinished(job) {
		work := r.book.works()[job]
		for _, p := range r.living(func(p *kin.Proc) bool { return p.Role == kin.Agent && work != "" && p.Work == work }) {
			r.mu.Lock()
			known := r.met[name(p)]
			r.met[name(p)] = true
			r.mu.Unlock()
			if !known {
				return p
			}
		}
		pause(ctx, 2*glance)
	}
	return nil
}

// awaitSteps waits until the agent's program has done so many steps; false: it ended before.
func (r *run) awaitSteps(ctx context.Context, agent *kin.Proc, steps int64) bool {
	var program *kin.Proc
	for ; ctx.Err() == nil && agent.Lives(); pause(ctx, glance) {
		if program == nil || !program.Lives() {
			found := r.living(func(p *kin.Proc) bool { return p.Role == kin.Program && r.under(p, agent) })
			if len(found) == 0 {
				continue
			}
			program = found[0]
		}
		if trace, err := os.ReadFile(r.trace(program.Work, program.Number)); err == nil && int64(bytes.Count(trace, []byte("\n"))) >= steps {
			return true
		}
	}
	return false
}

func (r *run) trace(work string, attempt int64) string {
	return filepath.Join(r.c.Dir, "trace", fmt.Sprintf("%s-%d", work, attempt))
}

// living lists the round's live processes.
func (r *run) living(is func(*kin.Proc) bool) (out []*kin.Proc) {
	alive, err := r.c.Family.Recent()
	if err != nil {
		r.say("the processes cannot be listed: %v", err)
		return nil
	}
	for _, p := range alive {
		if p.In(r.c.Dir) && is(p) {
			out = append(out, p)
		}
	}
	return out
}

// signal kills, pauses or asks to leave; false: nobody of them lived.
func (r *run) signal(ctx context.Context, e schedule.Event, whom []*kin.Proc) bool {
	s := map[schedule.Kind]syscall.Signal{schedule.Kill: syscall.SIGKILL, schedule.Pause: syscall.SIGSTOP, schedule.Term: syscall.SIGTERM}[e.Kind]
	struck := whom[:0]
	for _, p := range whom {
		if p.Signal(s) == nil {
			r.proxy.Note("", fmt.Sprintf("%s: %s", s, name(p)))
			r.say("%s: %s", e, p)
			struck = append(struck, p)
		}
	}
	if len(struck) == 0 {
		return false
	}
	r.hit(e.Kind)
	if e.Kind == schedule.Kill {
		r.mu.Lock()
		r.report.Killed[e.Victim]++
		r.mu.Unlock()
	}
	if e.Kind == schedule.Pause {
		pause(ctx, e.For)
		for _, p := range struck {
			if p.Signal(syscall.SIGCONT) == nil {
				r.proxy.Note("", "SIGCONT: "+name(p))
				r.say("goes on: %s", p)
			}
		}
	}
	return true
}

// traffic makes requests fail or be slow for a while; false: none came.
func (r *run) traffic(ctx context.Context, e schedule.Event, whose func(proxy.Request) bool) bool {
	match := func(q proxy.Request) bool { return (whose == nil || whose(q)) && strings.HasPrefix(q.Key, e.Keys) }
	rule := r.proxy.Set(&proxy.Rule{Fault: e.Fault, Match: match, Share: e.Share, Delay: e.Slow})
	r.say("%s", e)
	pause(ctx, e.For)
	rule.Lift()
	r.say("over: %s (%d requests)", e.Fault, rule.Hits())
	if rule.Hits() == 0 {
		return false
	}
	r.hit(e.Kind)
	return true
}

func (r *run) fill(ctx context.Context, e schedule.Event) bool {
	users := r.living(func(p *kin.Proc) bool { return p.Role == kin.Agent })
	if r.full == nil || len(users) == 0 {
		return false
	}
	defer r.cut(time.Now())
	err := r.full.fill()
	r.say("%s: %d agents use it: %v", e, len(users), err)
	pause(ctx, e.For)
	if err := r.full.free(); err != nil {
		r.broken("the disk cannot be freed: %v", err)
	}
	r.say("the disk is free again")
	if err != nil {
		return false
	}
	r.hit(e.Kind)
	return true
}

func (r *run) restart(ctx context.Context, e schedule.Event) bool {
	r.say("%s", e)
	defer r.cut(time.Now())
	r.c.Server.Kill()
	pause(ctx, e.For)
	if err := r.c.Server.Start(); err != nil {
		r.broken("the server does not start again: %v", err)
		return false
	}
	r.say("the server is back")
	r.hit(e.Kind)
	return true
}

// pause waits, or ends with ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
