package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/deploylane"
	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

func newTag(e env) *cobra.Command {
	c := &cobra.Command{Use: "tag", Short: "prepares the message of a tag, for a person to read and sign"}
	w := where{fresh: true}
	var commit, reason string
	p := &cobra.Command{Use: "prepare release/MODEL/vVERSION | stage/MODEL/STAGE VERSION", Short: "prints the message of a release tag or of the next stage tag", Args: cobra.RangeArgs(1, 2),
		Long: "Prints what git tag -s -F is to sign:\n  headway-lane tag prepare release/digits/v1.0.0 >message && git tag -s -F message release/digits/v1.0.0 COMMIT\nA stage tag points a stage at a version: it approves a release that waits for a signer, and moves the pointer of one that is over.\nThe name that it has to have is said on standard error.",
		RunE: func(c *cobra.Command, args []string) error {
			e := e.at(c)
			o, err := w.open(c.Context(), e, nil, false)
			if err != nil {
				return err
			}
			defer func() { _ = o.git.Close() }()
			ready, would, err := o.prepare(c.Context(), args, commit, reason)
			if no, ok := errors.AsType[*tag.Refusal](err); ok {
				return &exit{code: exitRefused, err: no}
			}
			if err != nil {
				return err
			}
			if would != nil {
				fmt.Fprintf(e.stderr, "warning: signed as it stands it would be refused (%s): %s\n", would.Code, clean(would.Text))
			}
			fmt.Fprintf(e.stderr, "sign it with: git tag -s -F FILE %s %s\n", ready.Name, commit)
			_, err = fmt.Fprint(e.stdout, ready.Text)
			return err
		}}
	w.flags(p)
	p.Flags().StringVar(&commit, "commit", "", "commit of the protected branch that is tagged; default: its tip")
	p.Flags().StringVar(&reason, "reason", "", "of a stage tag: why")
	c.AddCommand(p)
	return c
}

// prepare puts a message together from the plan and the stores: what is signed is what a lane will look for. would is what the
// release would be refused for at its first stage; nil: for nothing that can be seen now.
func (o *opened) prepare(ctx context.Context, args []string, commit, reason string) (ready tag.Prepared, would *deploylane.Stop, err error) {
	if len(args) == 2 {
		ready, err = o.prepareStage(ctx, args[0], args[1], reason)
		return ready, nil, err
	}
	n, no := tag.Parse("refs/tags/"+args[0], nil)
	if no != nil || n.Stage != "" {
		return ready, nil, &exit{code: exitError, err: errors.New("expected release/MODEL/vVERSION, or stage/MODEL/STAGE and a version"), hint: "headway-lane tag prepare release/digits/v1.0.0"}
	}
	if commit == "" {
		if commit, err = o.watch.Git.Tip(ctx); err != nil {
			return ready, nil, err
		}
	}
	m, err := o.message(ctx, n, commit)
	if err != nil {
		return ready, nil, err
	}
	policy, entries, err := o.grounds(ctx, n.Model)
	if err != nil {
		return ready, nil, err
	}
	if ready, err = tag.Prepare(m, entries, policy); err != nil {
		return ready, nil, err
	}
	err = o.lane.Eligible(ctx, deploylane.Order{Tag: n.String(), Commit: commit, Model: n.Model, Version: m.Version, Plan: attest.File{Path: m.Plan, SHA256: m.PlanSHA256},
		Work: m.Candidate, Attempt: m.Attempt, Artifact: m.Artifact, Requires: policy.Rule(n.Model).Requires})
	if s, ok := errors.AsType[*deploylane.Stop](err); ok {
		return ready, s, nil
	}
	return ready, nil, err
}

// message is what a release tag says of its candidate.
func (o *opened) message(ctx context.Context, n tag.Name, commit string) (none tag.Message, err error) {
	conf, err := o.lane.Git.Lane(ctx, commit)
	if err != nil {
		return none, err
	}
	m, ok := conf.Models[n.Model]
	if !ok {
		return none, &exit{code: exitError, err: fmt.Errorf("%s has no model %s", deploylane.File, n.Model)}
	}
	jobs, err := o.lane.Git.Jobs(ctx, commit)
	if err != nil {
		return none, err
	}
	var work string
	for _, j := range jobs {
		if j.Name == m.Job {
			work = string(j.Work)
		}
	}
	if work == "" {
		return none, &exit{code: exitError, err: fmt.Errorf("the plan has no job %s", clean(m.Job))}
	}
	seen, err := witness.Read(ctx, o.lane.Research, work)
	if errors.Is(err, witness.ErrAbsent) || err == nil && seen.Record.Finished == nil {
		return none, &exit{code: exitError, err: fmt.Errorf("job %s (work %s) has not finished", clean(m.Job), short(work)), hint: "a release is of a candidate that has: headway status " + clean(m.Job)}
	}
	if err != nil {
		return none, err
	}
	file, err := o.watch.Git.File(ctx, commit, m.Plan, plan.MaxFileBytes)
	if err != nil {
		return none, fmt.Errorf("%s: %w", m.Plan, err)
	}
	f := seen.Record.Finished
	return tag.Message{Repo: o.lane.Repo, Model: n.Model, Version: n.Version.String(), Plan: m.Plan, PlanSHA256: record.Hash(file),
		Candidate: work, Attempt: f.Attempt, Artifact: f.SHA256}, nil
}

// policy is lane/policy.yaml at the tip of the branch.
func (o *opened) policy(ctx context.Context) (*tag.Policy, error) {
	tip, err := o.watch.Git.Tip(ctx)
	if err != nil {
		return nil, err
	}
	b, err := tag.Rooted(ctx, o.watch.Git, o.watch.Keys, o.watch.Roots, tip, tag.PolicyFile)
	if err != nil {
		return nil, err
	}
	return tag.ReadPolicy(b)
}

// grounds are what a tag of a model will be held against: the policy, and the ledger.
func (o *opened) grounds(ctx context.Context, model string) (*tag.Policy, []tag.Entry, error) {
	policy, err := o.policy(ctx)
	if err != nil {
		return nil, nil, err
	}
	l := tag.OpenLedger(o.lane.Store, o.watch.Seal, model)
	err = l.Read(ctx)
	return policy, l.Entries(), err
}

// prepareStage makes the message of the next tag of a stage.
func (o *opened) prepareStage(ctx context.Context, stage, version, reason string) (tag.Prepared, error) {
	parts := strings.Split(stage, "/")
	if len(parts) != 3 || parts[0] != "stage" || tag.CheckModel(parts[1]) != "" {
		return tag.Prepared{}, &exit{code: exitError, err: fmt.Errorf("%s is no stage of a model", clean(stage)), hint: "headway-lane tag prepare stage/digits/prod v1.0.0"}
	}
	policy, entries, err := o.grounds(ctx, parts[1])
	if err != nil {
		return tag.Prepared{}, err
	}
	var s *tag.Standing
	if version != tag.None {
		if s, err = o.lane.Standing(ctx, parts[1], version); err != nil {
			return tag.Prepared{}, err
		}
	}
	return tag.PrepareStage(o.lane.Repo, parts[1], parts[2], version, reason, s, entries, policy)
}
