package tag

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/headway-run/headway/runners/record"
)

// maxPlan bounds the plan file that a release names, bytes.
const maxPlan = 1 << 20

// inquiry is what is known about one tag. The checks read it and nothing else; the looks fill it, each no sooner than the
// first check that needs it: what a stranger pushed is not followed further than his signature lets him.
type inquiry struct {
	ref     Ref
	now     time.Time
	repo    string
	policy  *Policy
	verify  Verify
	entries []Entry

	name      Name
	kind      string
	raw       []byte
	object    *Object
	malformed error
	who, key  string
	unsigned  *KeyError
	message   *Message
	onBranch  bool
	planSum   string // sha256 of the plan file at the commit; empty: there is none
	candidate *Candidate
	standing  *Standing
}

// check is one step: what has to be looked up for it, and what it decides.
type check struct {
	look   func(*judgement, context.Context, *inquiry) error
	decide func(*inquiry) *Refusal
}

// checks is the table of all steps in their order; the first refusal is the verdict.
var checks = []check{
	{nil, checkName},
	{(*judgement).object, checkKind},
	{nil, checkObject},
	{(*judgement).signature, checkSignature},
	{nil, checkSigner},
	{nil, checkMessage},
	{nil, checkRepo},
	{(*judgement).branch, checkBranch},
	{nil, checkMoved},
	{nil, checkVersion},
	{nil, checkStage},
	{(*judgement).plan, checkPlan},
	{nil, checkPinned},
	{(*judgement).evidence, checkEvidence},
}

// judgement is where the looks look.
type judgement struct {
	git   Git
	facts Facts
	tip   string
}

// judge comes to a verdict, or to an error: then there is none.
func (j *judgement) judge(ctx context.Context, q *inquiry) (*Refusal, error) {
	for _, c := range checks {
		if c.look != nil {
			if err := c.look(j, ctx, q); err != nil {
				return nil, err
			}
		}
		if r := c.decide(q); r != nil {
			return r, nil
		}
	}
	return nil, nil
}

func (j *judgement) object(ctx context.Context, q *inquiry) (err error) {
	q.kind, q.raw, err = j.git.Object(ctx, q.ref)
	if _, large := errors.AsType[*TooLarge](err); large {
		q.kind, q.raw, q.malformed = "tag", nil, fmt.Errorf("it has more than %d bytes", MaxObject)
		return nil
	}
	if err == nil && q.kind == "tag" {
		q.object, q.malformed = ParseObject(q.raw)
	}
	return err
}

func (j *judgement) signature(_ context.Context, q *inquiry) (err error) {
	if q.object.Signatures != 1 {
		return nil
	}
	q.who, q.key, err = q.verify(q.object.Payload, q.object.Signature, q.now)
	if bad, ok := errors.AsType[*KeyError](err); ok {
		q.unsigned, err = bad, nil
	}
	return err
}

func (j *judgement) branch(ctx context.Context, q *inquiry) (err error) {
	q.onBranch, err = j.git.Descends(ctx, q.object.Target, j.tip)
	return err
}

func (j *judgement) plan(ctx context.Context, q *inquiry) error {
	if q.name.Stage != "" {
		return nil
	}
	b, err := j.git.File(ctx, q.object.Target, q.message.Plan, maxPlan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		q.planSum = record.Hash(b)
	}
	return err
}

func (j *judgement) evidence(ctx context.Context, q *inquiry) (err error) {
	switch {
	case q.name.Stage == "":
		q.candidate, err = j.facts.Candidate(ctx, q.message.Candidate, q.message.Attempt)
	case q.message.Version != None:
		q.standing, err = j.facts.Standing(ctx, q.name.Model, q.message.Version)
	}
	return err
}

// entry is what the ledger says of a verdict.
func (q *inquiry) entry(r *Refusal, t *trust) Entry {
	e := Entry{Ref: q.ref.Name, Object: q.ref.Object, Signer: q.who, Key: q.key, Signers: t.signersAt, Policy: t.policyAt,
		Seen: q.now.UTC().Format(time.RFC3339)}
	if q.kind == "tag" && len(q.raw) > 0 {
		e.RawHash = record.Hash(q.raw)
	}
	if q.object != nil && q.object.Kind == "commit" {
		e.Commit = q.object.Target
	}
	if r != nil {
		e.Code, e.Text = r.Code, r.Text
		return e
	}
	e.Code, e.Message = Accepted, q.message
	if q.name.Stage == "" {
		e.Requires = q.policy.Rule(q.name.Model).Requires
		e.Text = fmt.Sprintf("%s asks for the release of %s %s", q.who, q.name.Model, q.name.Version)
	} else {
		e.Text = fmt.Sprintf("%s points %s of %s at %s", q.who, q.name.Stage, q.name.Model, q.message.Version)
	}
	e.Text = clip(e.Text)
	return e
}
