package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/process"
)

// Release ends a launch: SIGTERM to its agent, which saves what it can, and after the grace SIGKILL to everything
// that belongs to it. Closed means that the kernel runs none of it any more, or that the machine has booted since, and names
// what a kill cut off on its way to the store; an agent that ends by itself has sent or named all of it before.
// A handle comes back from the store, where a stranger may have written it: a process that does not carry the
// handle's folder in its environment is not ours and is never touched.
func (r *Runner) Release(ctx context.Context, raw json.RawMessage) (runners.Release, error) {
	var h handle
	if err := json.Unmarshal(raw, &h); err != nil || !h.Valid() || !filepath.IsAbs(h.Dir) || filepath.Clean(h.Dir) != h.Dir {
		return runners.Release{}, r.fail("release", runners.Rejected, "the receipt was not written by this platform: look at the machine by hand",
			fmt.Errorf("not a handle of a local launch: %s", runners.Sanitize([]byte(runners.Bound(string(raw), 200)))))
	}
	boot, err := process.Boot()
	if err != nil {
		return runners.Release{}, r.fail("release", runners.Unreachable, "", err)
	}
	if h.Boot != boot {
		r.drop(ctx, h)
		return runners.Release{Settlement: runners.Closed, Text: "the machine has booted since: nothing of it can run" + r.lost(h.Dir)}, nil
	}
	ours, err := process.Find(mark(h.Dir))
	if err != nil {
		return runners.Release{}, r.fail("release", runners.Unreachable, "", err)
	}
	state, err := h.Look()
	if err != nil {
		return runners.Release{}, r.fail("release", runners.Unreachable, "", err)
	}
	if state == process.Alive && !slices.Contains(ours, h.Identity) {
		return runners.Release{}, r.fail("release", runners.Rejected, "the receipt names somebody else's process, which is left alone: look who wrote it",
			fmt.Errorf("process %d is not of the launch in %s", h.PID, runners.Sanitize([]byte(runners.Bound(h.Dir, 200)))))
	}
	state, err = r.end(ctx, h)
	if state != process.Gone {
		if err != nil && ctx.Err() == nil {
			return runners.Release{}, r.fail("release", runners.Unreachable, "a process that outlives SIGKILL waits for a disk or a device", err)
		}
		return runners.Release{Settlement: runners.Pending, Text: fmt.Sprintf("pid %d was told to end and has not yet", h.PID)}, nil
	}
	r.drop(ctx, h)
	return runners.Release{Settlement: runners.Closed, Text: fmt.Sprintf("pid %d is gone", h.PID) + r.lost(h.Dir)}, nil
}

// end asks the agent to end, once, and kills what is left when the grace is over, counted from the first time.
func (r *Runner) end(ctx context.Context, h handle) (process.State, error) {
	told, left, err := r.told(ctx, h)
	if err != nil {
		return process.Unsure, err
	}
	if !told {
		return h.Terminate(ctx, r.grace, mark(h.Dir))
	}
	if state, err := h.Await(ctx, left); err != nil {
		return state, err
	}
	return h.Terminate(ctx, 0, mark(h.Dir))
}

// told reports whether a release has asked this launch to end before, and how much of the grace is left; it notes
// that it is asked now. A launch of another scratch folder has no file here: each call is then its first.
func (r *Runner) told(ctx context.Context, h handle) (told bool, left time.Duration, err error) {
	now, err := process.Uptime()
	if err != nil || filepath.Dir(h.Dir) != r.runDir() {
		return false, 0, err
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return false, 0, err
	}
	defer unlock()
	e, found, err := read(filepath.Join(r.liveDir(), filepath.Base(h.Dir)+".json"))
	if err != nil || !found || e.Identity != h.Identity {
		return false, 0, err
	}
	if e.Told > 0 {
		return true, max(0, r.grace-(now-time.Duration(e.Told*float64(time.Second)))), nil
	}
	e.Told = now.Seconds()
	return false, 0, r.write(e)
}

// drop takes the launch out of the live folder, when it is there. That it stays is harmless: the next sweep sees that
// the process is gone.
func (r *Runner) drop(ctx context.Context, h handle) {
	if filepath.Dir(h.Dir) != r.runDir() {
		return
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	file := filepath.Join(r.liveDir(), filepath.Base(h.Dir)+".json")
	if e, found, err := read(file); err == nil && found && e.Identity == h.Identity {
		r.forget(e)
	}
}

// Running lists the launches that live on this machine, whichever dispatcher made them.
func (r *Runner) Running(ctx context.Context) ([]runners.Running, error) {
	if _, err := os.Stat(r.liveDir()); errors.Is(err, os.ErrNotExist) {
		return nil, nil // nothing was ever launched here, and asking makes no folder
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return nil, r.fail("list", runners.Unreachable, unlocked(err), err)
	}
	defer unlock()
	live, _, err := r.look() // verbs that only read ask too, so what is over is left to the next launch
	if err != nil {
		return nil, r.fail("list", runners.Unreachable, "look after the scratch folder "+r.root, err)
	}
	out := make([]runners.Running, 0, len(live))
	for _, e := range live {
		h, err := json.Marshal(e.handle)
		if err != nil {
			return nil, r.fail("list", runners.ProtocolError, "", err)
		}
		out = append(out, runners.Running{Work: e.Work, Dispatch: e.Dispatch, Handle: h, Text: e.text() + ", job " + e.Job})
	}
	return out, nil
}

// startedCodes are the exit codes of an agent that had started in earnest, with an account of its own in the store
// (or nothing to do): a table of values, held against the agent's in a test. Any other code within the first moment
// means that the launch itself failed.
var startedCodes = []int{0, 10, 11, 12, 13, 14, 15, 18}

// storeCode is the agent's word for a store that gave it no usable answer.
const storeCode = 17

// diedEarly classes the end of an agent that ended at once; empty: that was no failure of the launch.
func diedEarly(err error) (c runners.Class, text string) {
	if err == nil {
		return "", ""
	}
	text = "the agent ended at once: " + err.Error()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok && slices.Contains(startedCodes, exit.ExitCode()):
		return "", ""
	case ok && exit.ExitCode() == storeCode:
		return runners.Unreachable, text + ": it could not use the store"
	}
	return runners.Rejected, text
}
