// Package goclient is what a Go training loop imports to be finished by headway: it says how far it is, hands over
// milestones and resumes, through the agent's local socket (runners/agent/PROTOCOL.md). Without an agent every call
// does nothing, so the same program runs on a laptop. It has the shape of the Python client and no dependency.
//
// A Run is used by one goroutine, the training loop's: a lease that a side goroutine could renew would prove nothing.
package goclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// How a run may be over. After any of them write nothing more and return.
var (
	// ErrLeaseLost: another attempt owns this work, or the agent is gone.
	ErrLeaseLost = errors.New("the lease is lost: stop and write nothing more")
	// ErrRevoked: a person stopped this work. It is an ErrLeaseLost too.
	ErrRevoked = fmt.Errorf("a person stopped this work: %w", ErrLeaseLost)
	// ErrYielded: the place was wanted back, and the last milestone is in the agent's hands: leave.
	ErrYielded = errors.New("the place was wanted back: leave, another attempt goes on")
)

// Error is a request that the agent refused; the lease is not touched by it.
type Error struct {
	Code string // bad_request, disk_full, not_loop, internal, protocol; usage when this package refused it
	Text string
}

func (e *Error) Error() string { return e.Code + ": " + e.Text }

func misuse(format string, args ...any) error { return &Error{"usage", fmt.Sprintf(format, args...)} }

// Resume is where to go on from.
type Resume struct {
	Path      string // folder with the verified snapshot; do not write to it
	Step      int64  // steps that were finished when it was taken
	Milestone int64  // its number in the attempt that made it
}

// Run is one attempt. Attach makes it; the zero value is of no use.
type Run struct {
	Work    string // 64 hex digits, empty without an agent
	Attempt int64  // 0 without an agent

	env        func(name string) string
	c          *wire // nil: no agent, or closed
	lead       bool  // false: another rank leads, this one only listens
	over       error
	n, doing   int64
	saved      int64
	savedAt    time.Time
	everySteps int64
	every      time.Duration
	quietUntil time.Time
	due, minds bool // a milestone is wanted; the program has asked for or made one
	stop, left bool // leave soon; a milestone was handed over since
	phases     []declared
	sent       int64 // last step that the agent was told
	sentAt     time.Time
	at         time.Time // the last step ended
	line       []byte

	waited, saving time.Duration // since the last line
	savingSince    time.Time     // a milestone was wanted, and is being written
	savingAt       int64         // the step that it is of
}

type declared struct {
	name   string
	expect time.Duration
}

// Attach joins the agent whose socket HEADWAY_SOCKET names. Without that variable: a run that does nothing. Where
// RANK, OMPI_COMM_WORLD_RANK or LOCAL_RANK is set and not 0, the run only listens.
func Attach() (*Run, error) {
	r := newRun(os.Getenv)
	path := os.Getenv("HEADWAY_SOCKET")
	if path == "" {
		return r, nil
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("attach to the agent at %s: %w", path, err)
	}
	return r.join(c)
}

// Join is Attach over a connection that is open already, with the environment that the agent gave: for a loop that is
// no process of its own (a simulation). It closes the connection when it fails.
func Join(c net.Conn, env func(name string) string) (*Run, error) { return newRun(env).join(c) }

func newRun(env func(string) string) *Run {
	r := &Run{Work: env("HEADWAY_WORK"), env: env, lead: rank(env) == 0, savedAt: time.Now()}
	r.Attempt, _ = strconv.ParseInt(env("HEADWAY_ATTEMPT"), 10, 64) // 0 without an agent
	return r
}

// join says hello where the run leads.
func (r *Run) join(conn net.Conn) (*Run, error) {
	c := newWire(conn)
	r.c = c
	if !r.lead {
		return r, nil
	}
	began := time.Now()
	a, err := r.ask(map[string]any{"op": "hello", "protocol": 1, "client": "go", "pid": os.Getpid()})
	if err != nil {
		c.close()
		return nil, fmt.Errorf("attach to the agent: %w", err)
	}
	r.Work, r.Attempt, r.everySteps, r.every = a.Work, a.Attempt, a.EverySteps, seconds(a.EveryS)
	r.quietUntil = began.Add(seconds(a.QuietS))
	return r, nil
}

func rank(env func(string) string) int {
	for _, name := range []string{"RANK", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK"} {
		if n, err := strconv.Atoi(env(name)); err == nil {
			return n
		}
	}
	return 0
}

// Resume says where to go on from; nil: start from the beginning.
func (r *Run) Resume() (*Resume, error) {
	if r.c == nil {
		return nil, r.over
	}
	var out *Resume
	if r.lead {
		a, err := r.ask(map[string]any{"op": "resume"})
		if err != nil || a.Path == nil {
			return nil, err
		}
		out = &Resume{*a.Path, a.Step, a.Milestone}
	} else if path := r.env("HEADWAY_RESUME"); path != "" {
		step, _ := strconv.ParseInt(r.env("HEADWAY_RESUME_STEP"), 10, 64) // set with the path
		out = &Resume{Path: path, Step: step}
	}
	if out != nil {
		r.saved, r.savedAt = out.Step, time.Now()
	}
	return out, nil
}

// Step says that n steps are finished by now. It takes microseconds, but for the one call in many that waits for a
// verdict. ErrLeaseLost, ErrRevoked and ErrYielded mean that the run is over.
func (r *Run) Step(n int64) error {
	if n < r.n {
		return misuse("Step(%d) after Step(%d): steps never go back", n, r.n)
	}
	if err := r.tell(n); err != nil {
		return err
	}
	if r.stop && (r.left || !r.minds) {
		r.over = ErrYielded
		return ErrYielded
	}
	return nil
}

// Steps runs from start+1 to total and calls Step after each body; start is the number of steps finished before. Err
// of a step that failed is Err's, after the loop.
func (r *Run) Steps(start, total int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for n := start + 1; n <= total; n++ {
			r.doing = n
			if !yield(n) || r.Step(n) != nil {
				return
			}
		}
	}
}

// Err is why the run is over, nil while it is not.
func (r *Run) Err() error { return r.over }

func (r *Run) tell(n int64) error {
	if r.over != nil {
		return r.over
	}
	further := n > r.n
	r.n = n
	if r.c == nil {
		return nil
	}
	if r.c.gone.Load() {
		r.over = ErrLeaseLost
		return r.over
	}
	if !r.lead {
		return nil
	}
	now := time.Now()
	if further {
		r.at = now
	}
	if now.Before(r.quietUntil) && !r.c.asked.Load() {
		gap := together
		if now.Sub(r.savedAt) < time.Second {
			gap = closely
		}
		if now.Sub(r.sentAt) >= gap {
			r.sentAt = now
			return r.say(0)
		}
		return nil
	}
	r.c.asked.Store(false)
	r.sentAt = now
	r.write(n, 0, `,"ask":true`)
	a, err := r.exchange(r.line)
	if err != nil {
		return err
	}
	r.quietUntil = now.Add(seconds(a.QuietS))
	r.due = r.due || a.Due
	if a.Stop != nil {
		r.stop, r.due = true, true
	}
	return nil
}

// One step's line may stand for several: the count in it does. Each line wakes the agent, which costs a loop of short
// steps far more than the line. In the second after a milestone they come closer together, because the resume pointer
// moves with the first line that follows the store's word that all of it has arrived.
const (
	together = 250 * time.Millisecond
	closely  = 25 * time.Millisecond
)

// flush sends the last step where it was left out.
func (r *Run) flush() error {
	return r.say(time.Since(r.at))
}

// say is flush where the step's end was so long ago.
func (r *Run) say(ago time.Duration) error {
	if r.n == r.sent || !r.lead {
		return r.over
	}
	r.write(r.n, ago, "")
	if err := r.c.send(r.line); err != nil {
		r.over = ErrLeaseLost
	}
	return r.over
}

// write makes the line of a step, with what is known of the seconds since the last one.
func (r *Run) write(n int64, ago time.Duration, more string) {
	r.line = append(strconv.AppendInt(append(r.line[:0], `{"op":"step","n":`...), n, 10), more...)
	r.second("wait_s", r.waited)
	r.second("save_s", r.saving)
	r.second("ago_s", ago)
	r.line = append(r.line, '}', '\n')
	r.sent, r.waited, r.saving = n, 0, 0
}

func (r *Run) second(name string, d time.Duration) {
	if d >= time.Microsecond {
		r.line = strconv.AppendFloat(append(append(append(r.line, `,"`...), name...), `":`...), d.Seconds(), 'f', 6, 64)
	}
}

// Waiting says that the loop waits for data from now until end is called. It is no evidence of progress: it keeps the
// waits apart from the computing in the attempt's account, so that a slow disk is not taken for a slow card.
func (r *Run) Waiting() (end func()) {
	began := time.Now()
	return func() { r.waited += time.Since(began) }
}

// Stopping reports that the place is wanted back soon. Loops that use MilestoneDue need not look.
func (r *Run) Stopping() bool { return r.stop }

// MilestoneDue reports whether a milestone is wanted now, by the plan's interval or because the place is wanted back.
func (r *Run) MilestoneDue() bool {
	if r.c == nil || !r.lead {
		return false
	}
	r.minds = true
	due := r.due
	switch {
	case due:
	case r.everySteps > 0:
		due = max(r.n, r.doing)/r.everySteps > r.saved/r.everySteps
	default:
		due = r.every > 0 && time.Since(r.savedAt) >= r.every
	}
	if due {
		r.savingSince, r.savingAt = time.Now(), max(r.n, r.doing)
	}
	return due
}

// Milestone hands over a finished file or folder with the state after step steps. It returns as soon as the agent has a
// private copy; move gives the path itself away, which costs nothing. The next attempt starts from here once the
// store has acknowledged all of it. An *Error (disk_full among others) leaves the previous milestone in place.
func (r *Run) Milestone(path string, step int64, move bool) error {
	if r.over != nil {
		return r.over
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return misuse("Milestone(%q): %v", path, err)
	}
	if _, err := os.Stat(path); err != nil {
		return misuse("Milestone(%q): write the file or folder before handing it over: %v", path, err)
	}
	r.minds = true
	if r.c == nil || !r.lead {
		return nil
	}
	if !r.savingSince.IsZero() && r.savingAt == step && step > r.n { // else the step's own end tells it
		r.saving = time.Since(r.savingSince)
	}
	r.savingSince = time.Time{}
	if step > r.n {
		if err := r.tell(step); err != nil {
			return err
		}
	}
	if _, err := r.ask(map[string]any{"op": "milestone", "step": step, "path": path, "move": move}); err != nil {
		return err
	}
	r.saved, r.savedAt, r.due, r.left = step, time.Now(), false, r.stop
	return nil
}

// Note says metrics of the moment. They may be dropped; it never waits for an answer.
func (r *Run) Note(values map[string]float64) {
	if r.c == nil || r.over != nil || !r.lead {
		return
	}
	kept := map[string]float64{}
	for k, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			kept[k] = v
		}
	}
	if b, err := json.Marshal(map[string]any{"op": "note", "values": kept}); err == nil && len(b) < maxLine {
		_ = r.c.send(append(b, '\n')) // the next step learns that the agent is gone
	}
}

// Phase declares a silence of about the given length before it begins (evaluation, compilation, saving) and returns
// what ends it: defer it, or call it when the steps go on. Phases may nest.
func (r *Run) Phase(name string, expect time.Duration) (end func() error, err error) {
	r.phases = append(r.phases, declared{name, expect})
	if err := r.declare(); err != nil {
		r.phases = r.phases[:len(r.phases)-1]
		return func() error { return nil }, err
	}
	return func() error {
		if len(r.phases) > 0 {
			r.phases = r.phases[:len(r.phases)-1]
		}
		return r.declare()
	}, nil
}

func (r *Run) declare() error {
	if r.over != nil {
		return r.over
	}
	if r.c == nil || !r.lead {
		return nil
	}
	m := map[string]any{"op": "phase_end"}
	if n := len(r.phases); n > 0 {
		m = map[string]any{"op": "phase", "name": r.phases[n-1].name, "expect_s": r.phases[n-1].expect.Seconds()}
	}
	began := time.Now()
	a, err := r.ask(m)
	if err == nil {
		r.quietUntil = began.Add(seconds(a.QuietS))
	}
	return err
}

// ResultDir is the folder for the result, made when missing: what lies in it when the program exits with 0 is the
// result. Without an agent: "result" in the working folder.
func (r *Run) ResultDir() (string, error) {
	path := r.env("HEADWAY_RESULT")
	if path == "" {
		path = "result"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return path, os.MkdirAll(path, 0o755)
}

// Finish writes the final metrics to metrics.json of the result. Values must be finite.
func (r *Run) Finish(metrics map[string]float64) error {
	if r.over != nil || !r.lead {
		return r.over
	}
	for _, k := range slices.Sorted(maps.Keys(metrics)) {
		if v := metrics[k]; math.IsNaN(v) || math.IsInf(v, 0) {
			return misuse("Finish(%s=%g): expected a finite number", k, v)
		}
	}
	dir, err := r.ResultDir()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(metrics, "", " ")
	if err != nil {
		return err
	}
	part := filepath.Join(dir, "metrics.json.part")
	if err := os.WriteFile(part, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, "metrics.json"))
}

// Close ends the run. cause nil: it waits until every milestone is safe. Otherwise cause's text becomes the program's
// last words. Call it once, last, and then exit with 0 or not as the program would anyway.
func (r *Run) Close(cause error) error {
	if r.c == nil {
		return nil
	}
	defer func() {
		r.c.close()
		r.c = nil
		if r.over == nil {
			r.over = misuse("the run has ended: attach again")
		}
	}()
	switch {
	case !r.lead || r.over != nil && !errors.Is(r.over, ErrYielded):
		return nil
	case r.flush() != nil && !errors.Is(r.over, ErrYielded):
		return r.over
	case cause == nil || errors.Is(cause, ErrYielded):
		if !r.minds {
			return nil
		}
		_, err := r.ask(map[string]any{"op": "drain"})
		return err
	}
	text := cause.Error()
	if len(text) > maxError {
		text = text[len(text)-maxError:]
	}
	b, err := json.Marshal(map[string]any{"op": "error", "text": text})
	if err == nil {
		err = r.c.send(append(b, '\n'))
	}
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
