package ring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// LeaseOver says that the ring's lease is another's now, or may be: change nothing more.
type LeaseOver struct {
	Ring string
	Why  string
}

func (e LeaseOver) Error() string {
	return fmt.Sprintf("the lease of ring %s is over: %s; nothing more was changed", e.Ring, e.Why)
}

// A lease is promised for leaseTime, and renewed every leaseBeat while something takes its time. A successor of a loader that
// died waits for leaseTime and leaseSlack, by the store's clock: its answers take their time.
const (
	leaseTime  = 2 * time.Minute
	leaseBeat  = 30 * time.Second
	leaseSlack = 2 * time.Minute
)

// below is a part of a store. The lease has the keys of any other witness, inside the ring's own prefix.
type below struct {
	s      witness.Store
	prefix string
}

func (b below) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := b.s.Get(ctx, b.prefix+key, r)
	if o != nil {
		o.Key = strings.TrimPrefix(o.Key, b.prefix)
	}
	return o, err
}

func (b below) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	return b.s.Put(ctx, b.prefix+key, body, c)
}

func (b below) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if after != "" {
		after = b.prefix + after
	}
	p, err := b.s.List(ctx, b.prefix+prefix, after, limit)
	if p != nil {
		for i := range p.Items {
			p.Items[i].Key = strings.TrimPrefix(p.Items[i].Key, b.prefix)
		}
	}
	return p, err
}

func (r Records) leaseStore() below { return below{r.Store, r.prefix() + "lease/"} }

// work is the name of the ring's lease, as a witness has it.
func (r Records) work() string {
	sum := sha256.Sum256([]byte("lane\x00" + r.Model + "\x00" + r.Ring))
	return hex.EncodeToString(sum[:])
}

// Releaser reads who holds the ring's lease.
func (r Records) Releaser(ctx context.Context) Releaser {
	seen, err := witness.Read(ctx, r.leaseStore(), r.work())
	switch {
	case errors.Is(err, witness.ErrAbsent):
		return Releaser{Known: true}
	case err != nil:
		return Releaser{}
	case seen.Record.State != witness.Held || silent(seen):
		return Releaser{Known: true}
	}
	return Releaser{Known: true, Other: fmt.Sprintf("generation %d (%s), seen %s ago by the store's clock", max(seen.Record.Progress.Step, seen.Record.Dispatch), seen.Record.Lease.Phase, age(seen))}
}

// age is by the store's own two stamps.
func age(s witness.Seen) time.Duration {
	if s.Date.IsZero() || s.Modified.IsZero() {
		return 0
	}
	return max(0, s.Date.Sub(s.Modified))
}

// silent says that a holder has let its own promise pass. Ending its lease is safe all the same: it is done on exactly
// this version, and the holder learns of it before its next command.
func silent(s witness.Seen) bool { return age(s) > s.Record.Lease.Length()+leaseSlack }

// lease is the ring's, held by this process. It is renewed before each command, and while its answer is waited for, so that
// nobody takes a slow load for a dead loader, nor waits long for one that is dead.
type lease struct {
	r          Records
	h          *witness.Holder
	generation uint64
}

// takeLease makes this process the ring's one releaser, for the generation that it names. A holder that has let its own
// promise pass is deposed.
func takeLease(ctx context.Context, r Records, generation uint64, by string) (*lease, error) {
	s, work := r.leaseStore(), r.work()
	claim := record.Claim{Protocol: record.Protocol, Work: work, Dispatch: int64(generation), Nonce: record.Nonce(), Dispatcher: by, Platform: "ring", Job: r.Ring}
	claimed := Records{Store: s}.create(ctx, record.ClaimKey(work, int64(generation)), claim)
	if claimed != nil && !errors.Is(claimed, ErrTaken) { // there is one of an earlier life of this load: as good
		return nil, claimed
	}
	ask := witness.CaptureRequest{Work: work, Dispatch: int64(generation), Lease: promise("starting")}
	h, err := witness.Capture(ctx, s, ask)
	if no, is := errors.AsType[*witness.Refusal](err); is && no.Why == witness.SpawnedElsewhere {
		seen, readErr := witness.Read(ctx, s, work)
		if readErr != nil || !silent(seen) {
			return nil, LeaseOver{r.Ring, "another release holds it: " + r.Releaser(ctx).Other}
		}
		if _, _, err := witness.Revoke(ctx, s, seen, "silent for longer than it promised"); err != nil {
			return nil, fmt.Errorf("the lease of ring %s: %w", r.Ring, err)
		}
		h, err = witness.Capture(ctx, s, ask)
	}
	if err != nil {
		return nil, fmt.Errorf("the lease of ring %s: %w", r.Ring, err)
	}
	if v := h.Open(ctx, record.Open{Platform: "ring", Fingerprint: map[string]string{}}); v.Outcome != witness.Won {
		return nil, LeaseOver{r.Ring, fmt.Sprintf("its attempt could not be opened: %v", v.Err)}
	}
	return &lease{r: r, h: h, generation: generation}, nil
}

func promise(phase string) witness.Lease {
	return witness.Lease{Seconds: leaseTime.Seconds(), Phase: phase}
}

// hold renews before the next step. An error is the end of every write of this process.
func (l *lease) hold(ctx context.Context, phase string) error {
	v := l.renew(ctx, phase)
	if v.Outcome == witness.Won {
		return nil
	}
	return l.lost(v)
}

func (l *lease) renew(ctx context.Context, phase string) witness.Verdict {
	return l.h.Renew(ctx, witness.Progress{Step: int64(l.generation)}, promise(phase))
}

// during renews before something that takes its time, and as long as do has not returned. A lease that is another's by now
// ends do. A store that does not answer ends nothing: what is under way sends no command, and the next one needs its word.
func (l *lease) during(ctx context.Context, phase string, do func(context.Context)) error {
	if err := l.hold(ctx, phase); err != nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(within)
	}()
	beat := time.NewTicker(leaseBeat)
	defer beat.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-beat.C:
		}
		if v := l.renew(ctx, phase); v.Over() {
			cancel()
			<-done
			return l.lost(v)
		}
	}
}

func (l *lease) lost(v witness.Verdict) error {
	why := "no verdict from the store"
	switch {
	case v.By != nil:
		why = fmt.Sprintf("it is %s now (%s)", v.By.State, clip(v.By.Reason))
	case v.Err != nil:
		why = v.Err.Error()
	}
	return LeaseOver{l.r.Ring, why}
}

// leave gives the lease back.
func (l *lease) leave(ctx context.Context) { l.h.Yield(ctx, "the release is over") }
