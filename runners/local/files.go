package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/process"
)

// maxEntry bounds a live file, bytes.
const maxEntry = 64 << 10

func (r *Runner) liveFile(e entry) string {
	return filepath.Join(r.liveDir(), name(e.Work, e.Dispatch)+".json")
}

// logFile is what the agent itself prints. It is not in the launch's folder, which the agent may empty.
func (r *Runner) logFile(e entry) string {
	return filepath.Join(r.logDir(), name(e.Work, e.Dispatch)+".log")
}

// lock takes the platform's lock of this machine, in a scratch folder that is made when it is missing; the kernel frees
// it when its holder dies.
func (r *Runner) lock(ctx context.Context) (unlock func(), err error) {
	for _, dir := range []string{r.liveDir(), r.runDir(), r.logDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("scratch folder: %w (choose another with the option scratch)", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(r.root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), ctx.Err())
		case <-t.C:
		}
	}
}

// write puts an entry into the live folder, whole or not at all. Under the lock.
func (r *Runner) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	tmp := r.liveFile(e) + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, r.liveFile(e))
}

// forget takes an entry out of the live folder. What remains of the launch stays for a look until it is pruned.
func (r *Runner) forget(e entry) { _ = os.Remove(r.liveFile(e)) }

// read returns one entry. found is false when there is none.
func read(file string) (e entry, found bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxEntry))
	if err != nil {
		return e, false, err
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, false, fmt.Errorf("%s: %w", file, err)
	}
	return e, true, nil
}

// sweep lists the launches that live, and takes those out of the live folder that surely do not. Under the lock.
func (r *Runner) sweep() ([]entry, error) {
	live, gone, err := r.look()
	if err != nil {
		return nil, err
	}
	for _, e := range gone {
		r.forget(e)
	}
	for _, e := range live {
		if e.found {
			if err := r.write(e); err != nil {
				return nil, err
			}
		}
	}
	r.prune(live)
	return live, nil
}

// look tells the launches that live from those that surely do not, and writes nothing. Under the lock.
func (r *Runner) look() (live, gone []entry, err error) {
	files, err := os.ReadDir(r.liveDir())
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		e, found, err := read(filepath.Join(r.liveDir(), f.Name()))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: look at it, end the process it names, and remove it", err)
		}
		if !found {
			continue
		}
		alive, err := settleEntry(&e)
		switch {
		case err != nil:
			return nil, nil, err
		case alive:
			live = append(live, e)
		default:
			gone = append(gone, e)
		}
	}
	return live, gone, nil
}

// settleEntry learns whether a launch lives. An entry without an identity is of a dispatcher that died while it
// started the process: the process is found by its mark, or there is none.
func settleEntry(e *entry) (alive bool, err error) {
	if e.PID == 0 {
		found, err := process.Find(mark(e.Dir))
		if err != nil {
			return false, err
		}
		if len(found) == 0 {
			return false, nil
		}
		e.Identity = slices.MinFunc(found, func(a, b process.Identity) int {
			if a.Start != b.Start {
				return int(int64(a.Start) - int64(b.Start))
			}
			return a.PID - b.PID
		})
		e.found = true
		return true, nil
	}
	state, err := e.Look()
	if err != nil || state != process.Gone {
		return err == nil, err
	}
	if boot, err := process.Boot(); len(e.Cards) > 0 && err == nil && boot == e.Boot {
		// A killed agent's guardian may still be ending the program, which uses the cards until then.
		if left, err := process.FindIn("HEADWAY_", e.Dir); err != nil || len(left) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// prune removes the files of ended launches beyond the newest r.keep. Under the lock; what cannot be removed stays.
func (r *Runner) prune(live []entry) {
	logs, err := os.ReadDir(r.logDir())
	if err != nil || len(logs) <= r.keep+len(live) {
		return
	}
	type ended struct {
		name string
		at   time.Time
	}
	var old []ended
	for _, l := range logs {
		n := strings.TrimSuffix(l.Name(), ".log")
		if slices.ContainsFunc(live, func(e entry) bool { return name(e.Work, e.Dispatch) == n }) {
			continue
		}
		if info, err := l.Info(); err == nil {
			old = append(old, ended{n, info.ModTime()})
		}
	}
	slices.SortFunc(old, func(a, b ended) int { return b.at.Compare(a.at) })
	for _, o := range old[min(r.keep, len(old)):] {
		_ = os.RemoveAll(filepath.Join(r.runDir(), o.name))
		_ = os.Remove(filepath.Join(r.logDir(), o.name+".log"))
	}
}

// lastWords returns the line of the end of a log that says most: the last one, or the last that begins as errors do. It
// has at most 300 bytes; where the whole lies, the failure's hint says.
func lastWords(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const most = 8 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, most))
	last, telling := "", ""
	for line := range strings.SplitSeq(strings.ToValidUTF8(string(b), "?"), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		last = line
		for _, begin := range []string{"error: ", "panic: ", "fatal error: "} {
			if strings.HasPrefix(line, begin) {
				telling = line
			}
		}
	}
	if telling != "" {
		last = telling
	}
	return runners.Bound(last, 300)
}

func (r *Runner) fail(op string, c runners.Class, hint string, err error) *runners.Failure {
	if hint == "" {
		hint = c.Advice()
	}
	return &runners.Failure{Class: c, Platform: r.platform, Op: op, Hint: hint, Err: err}
}

// diskFail classes a failure of the scratch folder. A full disk is a full platform: it is waited for.
func (r *Runner) diskFail(err error) *runners.Failure {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return r.fail("launch", runners.NoSlots, "free some space on the disk of "+r.root, err)
	}
	return r.fail("launch", runners.Rejected, "make "+r.root+" writable, or choose another folder with the option scratch", err)
}

// unlocked says why the lock was not had: only whoever waited for it in vain waited for somebody.
func unlocked(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "another dispatcher holds the lock of this platform's scratch folder"
	}
	return "this user must be able to read and write this platform's scratch folder; the option scratch names another one"
}
