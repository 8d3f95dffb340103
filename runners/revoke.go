package runners

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-run/headway/runners/witness"
)

// RevokeOptions says which kind of end is meant.
type RevokeOptions struct {
	// Stop ends the work for good: every dispatch claimed so far is barred, also one whose launch starts hours late.
	// False is a take-over: the next dispatch may capture, and a holder that renewed in between keeps the lease.
	Stop bool
	// Judged is the version that was judged silent; a take-over ends that version and no other. nil: what is read now.
	Judged *witness.Seen
}

// Revoked is the answer of Revoke.
type Revoked struct {
	// Answer is Ended, Renewed, Unwritten or AlreadyOver (finished, yielded or revoked before; nothing was written).
	Answer witness.Revocation
	Text   string       // one sentence for people
	Seen   witness.Seen // the newest that is known; zero when there is no witness
}

// Revoke ends the lease of a work in the store, which needs no platform and no worker: a revoked holder's next write
// fails and it stops itself. Stop first bars what is claimed (the floor rises to the last claim + 1). err is nil
// unless the answer is Unwritten; it then says why, and the write may have landed: read again before concluding.
func (d Dispatcher) Revoke(ctx context.Context, work, reason string, o RevokeOptions) (Revoked, error) {
	if o.Stop {
		return d.stop(ctx, work, reason)
	}
	var judged witness.Seen
	if o.Judged != nil {
		judged = *o.Judged
	} else {
		seen, found, err := readWitness(ctx, d.Bucket, work)
		if err != nil {
			return Revoked{Text: "the lease could not be read, nothing was written"}, fmt.Errorf("revoke work %s: %w", short(work), err)
		}
		if !found {
			return Revoked{Answer: witness.AlreadyOver, Text: "nobody ever held the lease of work " + short(work) + ": there is nothing to take over"}, nil
		}
		judged = seen
	}
	answer, now, err := witness.Revoke(ctx, d.Bucket, judged, Bound(reason, maxText))
	return said(work, answer, now, err)
}

func (d Dispatcher) stop(ctx context.Context, work, reason string) (Revoked, error) {
	seen, _, err := readWitness(ctx, d.Bucket, work)
	if err != nil {
		return Revoked{Text: "the lease could not be read, nothing was written"}, fmt.Errorf("stop work %s: %w", short(work), err)
	}
	last, err := LastDispatch(ctx, d.Bucket, work, max(seen.Record.Dispatch, 0))
	if err != nil {
		return Revoked{Seen: seen, Text: "the claims could not be listed, nothing was written"}, fmt.Errorf("stop work %s: %w", short(work), err)
	}
	answer, now, err := witness.Stop(ctx, d.Bucket, work, last+1, Bound(reason, maxText))
	return said(work, answer, now, err)
}

// said puts the answer into a sentence.
func said(work string, answer witness.Revocation, now witness.Seen, err error) (Revoked, error) {
	r := Revoked{Answer: answer, Seen: now}
	rec := now.Record
	switch answer {
	case witness.Ended:
		r.Text = fmt.Sprintf("work %s: the lease is ended; whoever still computes stops at its next write", short(work))
	case witness.Renewed:
		r.Text = fmt.Sprintf("work %s: attempt %d renewed in between and keeps the lease", short(work), rec.Attempt)
	case witness.AlreadyOver:
		switch rec.State {
		case witness.Finished:
			r.Text = fmt.Sprintf("work %s finished with attempt %d: there is nothing to revoke, its result stays", short(work), rec.Attempt)
		case witness.Held:
			r.Text = fmt.Sprintf("work %s: another attempt (%d) holds the lease now; nothing was written", short(work), rec.Attempt)
		case witness.Yielded, witness.Revoked:
			r.Text = fmt.Sprintf("work %s was %s before; nothing was written", short(work), rec.State)
		}
	case witness.Unwritten:
		r.Text = fmt.Sprintf("work %s: the store gave no verdict; look again before concluding anything", short(work))
	}
	if answer == witness.Unwritten && err == nil {
		err = errors.New("no verdict of the store")
	}
	if answer != witness.Unwritten {
		return r, nil
	}
	return r, fmt.Errorf("revoke work %s: %w", short(work), err)
}
