package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headway-run/headway/runners/audit"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// repair makes a witness anew where there is none: revoked, at the highest attempt that has left a byte, with the
// pointer that a person names. The milestone is read whole before it is named. A work that was finished, and whose result
// is whole, is computed again only when a person says so with again.
func (d *doctor) repair(ctx context.Context, name, resume string, again bool) error {
	p, err := readProject(ctx, d.env, "")
	if err != nil {
		return err
	}
	b, _, err := p.openStore(ctx, true)
	if err != nil {
		return err
	}
	work := name
	if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		op, err := openNamed(ctx, d.env, name)
		if err != nil {
			return err
		}
		work = string(op.work)
	}
	if resume == "" {
		return &exit{code: exitError, err: fmt.Errorf("--repair needs --resume: the milestone that work %.12s goes on from", work),
			hint: "headway doctor --deep proposes a milestone; --resume nothing starts over"}
	}
	if !again {
		if err := d.spared(ctx, b, work); err != nil {
			return err
		}
	}
	pointer, err := d.named(ctx, b, work, resume)
	if err != nil {
		return err
	}
	now, err := witness.Repair(ctx, b, work, pointer, "made anew by an operator: headway doctor --repair")
	no, refused := errors.AsType[*witness.Refusal](err)
	_, unreadable := errors.AsType[*witness.Unreadable](err)
	if refused && no.Why == witness.BadMove && now.Version != "" || unreadable {
		return &exit{code: exitError, err: err, hint: "where it is not sound, keep a copy of " + record.WitnessKey(work) + " outside the bucket and delete it first"}
	}
	if err != nil {
		return err
	}
	from := "starts over"
	if pointer != nil {
		from = fmt.Sprintf("goes on from step %d (attempt %d, milestone %d)", pointer.Step, pointer.Attempt, pointer.Milestone)
	}
	fmt.Fprintf(d.stdout, "%s is made anew: revoked at attempt %d; whoever still computes stops at its next write\n", record.WitnessKey(work), now.Record.Attempt)
	fmt.Fprintf(d.stdout, "next: headway doctor --deep, then headway apply: the next launch %s\n", from)
	return nil
}

// spared refuses to make a lease anew for a work that was finished: its next launch would compute it again.
func (d *doctor) spared(ctx context.Context, b bucket.Bucket, work string) error {
	if _, err := witness.Read(ctx, b, work); !errors.Is(err, witness.ErrAbsent) {
		return nil // what there is, is not repaired; the repair says so itself
	}
	n, err := audit.Finished(ctx, b, work)
	if err != nil || n == 0 {
		return err
	}
	return &exit{code: exitError, err: fmt.Errorf("nothing was written: attempt %d has finished work %.12s, and its result lies whole under %s: a new lease would compute it again", n, work, record.ResultPrefix(work, n)),
		hint: "restore " + record.WitnessKey(work) + " from a backup of the bucket, or copy the result from there; --again computes it again all the same"}
}

// named is the pointer to what a person names; nil: nothing.
func (d *doctor) named(ctx context.Context, b bucket.Bucket, work, resume string) (*record.Pointer, error) {
	if resume == "nothing" {
		return nil, nil
	}
	p, bad, err := audit.Milestone(ctx, b, work, resume)
	if bucket.Is(err, bucket.BadKey) {
		return nil, &exit{code: exitError, err: fmt.Errorf("--resume: %w", err), hint: "headway doctor --deep proposes a milestone; --resume nothing starts over"}
	}
	if err != nil {
		return nil, err
	}
	if len(bad) > 0 {
		return nil, &exit{code: exitError, err: fmt.Errorf("nothing was written: %s: %s", clean(bad[0].Key), clean(bad[0].Text)), hint: bad[0].Do}
	}
	return &p, nil
}
