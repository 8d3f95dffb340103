// Package courier takes private copies of milestones and uploads them in the background: files first, manifest last.
// It only reports what the store has acknowledged. It is handed a store that can put and nothing else, so that it
// can neither renew a lease nor move a pointer: not by rule, by type.
//
// Guaranteed: one upload at a time, in the order of acceptance; a milestone that has begun is finished or reported
// as failed; of those that wait only the newest is kept, the others are reported as skipped. A failed upload leaves
// the previous milestone as it was. Not guaranteed: that every accepted milestone arrives.
package courier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/headway-run/headway/runners/agent/files"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// Store is the one verb that an upload needs.
type Store interface {
	Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error)
}

// Config of a Courier.
type Config struct {
	Store    Store
	Work     string
	Attempt  int64
	Dir      string              // private folder for copies; same file system as the program's files makes moves free
	From     *record.Pointer     // what the attempt resumed from: parent of its first milestone
	Patience time.Duration       // how long one milestone's upload may fail before it is given up; 0: two minutes
	Sums     func() *record.Sums // the attempt's account, for the manifest of a milestone that is staged now; nil: none
	Report   func(Report)        // called once for each accepted milestone, from any goroutine; must not block
}

// Report is what became of one accepted milestone.
type Report struct {
	Pointer record.Pointer // complete in the store when Err is nil
	Bytes   int64
	Took    time.Duration
	Err     error // ErrSkipped, ErrLost, or why the upload failed
}

// Copy is the name of a milestone's private copy below Config.Dir, which is there from its acceptance until its report; what is
// left there of an agent that was killed says what was on its way.
func Copy(milestone, step int64) string { return fmt.Sprintf("milestone-%d-step-%d", milestone, step) }

// ResultMark is a file below Config.Dir for as long as the result is on its way.
const ResultMark = "result"

// ErrLost is a milestone that the end of its attempt left behind.
var ErrLost = errors.New("lost: the attempt ended before this milestone could go up")

// ErrSkipped is a milestone that a newer one replaced before its upload began.
var ErrSkipped = errors.New("skipped: a newer milestone was ready before this one could go up")

// Bad is a milestone that cannot be taken, by fault of who handed it over.
type Bad struct{ Err error }

func (b *Bad) Error() string { return b.Err.Error() }

// Unwrap returns the cause.
func (b *Bad) Unwrap() error { return b.Err }

// Courier uploads for one attempt. Make one with New and end it with Close.
type Courier struct {
	c      Config
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu     sync.Mutex
	last   int64 // number of the last accepted milestone
	step   int64 // of the last accepted milestone
	next   *staged
	speed  float64 // bytes per second of the last upload
	closed bool
}

// staged is a milestone whose private copy is complete.
type staged struct {
	number, step int64
	dir          string
	files        []files.Found
	total        int64
	sums         *record.Sums
	moved        bool // not copied: whoever handed it over may still have its files open
}

// New starts a courier; ctx ends its uploads.
func New(ctx context.Context, c Config) *Courier {
	if c.Patience == 0 {
		c.Patience = 2 * time.Minute
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &Courier{c: c, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	if c.From != nil {
		k.step = c.From.Step
	}
	go k.run(ctx)
	return k
}

// Stage takes a private copy of a finished file or folder (move: the path itself) and returns the milestone's number.
// *Bad when it is not what it should be, *files.DiskFull when there is no space: then nothing of it is left, and the
// previous milestone is untouched. One goroutine stages. A folder's files keep their paths relative to it; below prefix when that is set.
func (k *Courier) Stage(path, prefix string, move bool, step int64) (int64, error) {
	found, total, err := files.List(path)
	if err != nil {
		return 0, &Bad{fmt.Errorf("milestone %q: %w", path, err)}
	}
	if err := k.acceptable(found, step); err != nil {
		return 0, &Bad{fmt.Errorf("milestone %q: %w", path, err)}
	}
	k.mu.Lock()
	number := k.last + 1
	k.mu.Unlock()
	s := &staged{number: number, step: step, dir: filepath.Join(k.c.Dir, Copy(number, step)), files: found, total: total}
	if err := k.copy(path, prefix, move, s); err != nil {
		if files.Full(err) {
			err = &files.DiskFull{What: fmt.Sprintf("a copy of the milestone at step %d", step), Need: total, Free: files.Free(k.c.Dir)}
		}
		return 0, err
	}
	if prefix != "" {
		for i := range s.files {
			s.files[i].Path = prefix + "/" + s.files[i].Path
		}
	}
	if k.c.Sums != nil {
		s.sums = k.c.Sums()
	}
	return number, k.enqueue(s)
}

func (k *Courier) acceptable(found []files.Found, step int64) error {
	if len(found) == 0 {
		return errors.New("the folder holds no file")
	}
	for _, f := range found {
		if f.Path == manifestName {
			return fmt.Errorf("a file named %s is the store's own: give it another name", manifestName)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if step < k.step {
		return fmt.Errorf("step %d is behind the last milestone's step %d", step, k.step)
	}
	return nil
}

const manifestName = "manifest.json"

// copy brings the files to s.dir, whole or not at all.
func (k *Courier) copy(path, prefix string, move bool, s *staged) error {
	tmp := s.dir + ".part"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if move && prefix == "" {
		err := moveInto(path, tmp)
		if err == nil {
			s.moved = true
			return os.Rename(tmp, s.dir)
		}
		if !errors.Is(err, syscall.EXDEV) {
			return err
		}
	}
	if free := files.Free(k.c.Dir); free >= 0 && s.total > free {
		return &files.DiskFull{What: fmt.Sprintf("a copy of the milestone at step %d", s.step), Need: s.total, Free: free}
	}
	into := filepath.Join(tmp, filepath.FromSlash(prefix))
	err := os.MkdirAll(into, 0o700)
	if err == nil {
		err = files.CopyTree(path, s.files, into)
	}
	if err == nil {
		err = os.Rename(tmp, s.dir)
	}
	if err != nil {
		_ = os.RemoveAll(tmp) // the first error counts
		return err
	}
	if move {
		_ = os.RemoveAll(path) // given to us; the copy is what counts
	}
	return nil
}

// moveInto makes tmp hold path's file or files without copying. After an error path is where it was.
func moveInto(path, tmp string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return os.Rename(path, tmp)
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(tmp, filepath.Base(path))); err != nil {
		_ = os.Remove(tmp) // the first error counts
		return err
	}
	return nil
}

func (k *Courier) enqueue(s *staged) error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		_ = os.RemoveAll(s.dir) // nobody will upload it
		return errors.New("the attempt is over: no milestone is taken any more")
	}
	old := k.next
	k.next, k.last, k.step = s, s.number, s.step
	k.mu.Unlock()
	if old != nil {
		_ = os.RemoveAll(old.dir)
		k.c.Report(Report{Pointer: k.pointer(old), Bytes: old.total, Err: ErrSkipped})
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

func (k *Courier) pointer(s *staged) record.Pointer {
	return record.Pointer{Attempt: k.c.Attempt, Milestone: s.number, Step: s.step,
		Manifest: record.MilestoneManifestKey(k.c.Work, k.c.Attempt, s.number)}
}

// Result marks the result as being on its way until the returned function is called. Best effort, like all that is read after a
// kill.
func (k *Courier) Result() (arrived func()) {
	mark := filepath.Join(k.c.Dir, ResultMark)
	_ = os.WriteFile(mark, nil, 0o600)
	return func() { _ = os.Remove(mark) }
}

// Estimate is how long an upload of n bytes would take at the speed of the last one; 0 when none was made.
func (k *Courier) Estimate(n int64) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.speed <= 0 {
		return 0
	}
	return time.Duration(float64(n) / k.speed * float64(time.Second))
}

// Stop gives up what is not uploaded yet and takes nothing more, at once: the lease is lost.
func (k *Courier) Stop() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.cancel()
}

// Close is Stop, and waits until the courier is gone. It may be called twice.
func (k *Courier) Close() {
	k.Stop()
	<-k.done
}

func (k *Courier) run(ctx context.Context) {
	defer close(k.done)
	parent := k.c.From
	for {
		select {
		case <-ctx.Done():
		case <-k.wake:
		}
		k.mu.Lock()
		s := k.next
		k.next = nil
		k.closed = k.closed || ctx.Err() != nil
		k.mu.Unlock()
		if ctx.Err() != nil {
			if s != nil { // it would fail at once
				_ = os.RemoveAll(s.dir)
				k.c.Report(Report{Pointer: k.pointer(s), Bytes: s.total, Err: ErrLost})
			}
			return
		}
		if s == nil {
			continue
		}
		r := k.carry(ctx, s, parent)
		if r.Err == nil {
			p := r.Pointer
			parent = &p
		}
		_ = os.RemoveAll(s.dir) // the private copy has served
		k.c.Report(r)
		k.mu.Lock()
		if r.Err == nil && r.Took > 0 {
			k.speed = float64(r.Bytes) / r.Took.Seconds()
		}
		k.mu.Unlock()
	}
}

// carry uploads one milestone.
func (k *Courier) carry(ctx context.Context, s *staged, parent *record.Pointer) (r Report) {
	began := time.Now()
	r = Report{Pointer: k.pointer(s), Bytes: s.total}
	defer func() { r.Took = time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, k.c.Patience+time.Duration(s.total>>20)*time.Second) // 1 MiB/s at the least
	defer cancel()
	m := record.Manifest{Protocol: record.Protocol, Work: k.c.Work, Attempt: k.c.Attempt, Milestone: s.number, Step: s.step, Parent: parent, Sums: s.sums}
	r.Pointer.SHA256, r.Err = upload(ctx, k.c.Store, os.DirFS(s.dir), s.files, record.MilestonePrefix(k.c.Work, k.c.Attempt, s.number), m, nil, !s.moved)
	return r
}
