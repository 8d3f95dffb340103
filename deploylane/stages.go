package deploylane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/runners/record"
)

// Book is what the watch of tags knows of a model at this look.
type Book struct {
	Entries []tag.Entry // the whole ledger
	Policy  *tag.Policy
	Tip     string // commit of the protected branch; "": not known
}

// frozen says that a stage tag rests on a key which the policy revokes by now, its own or that of the version's release; or "".
func (b Book) frozen(e tag.Entry) string {
	if b.Policy == nil {
		return ""
	}
	if e.Message.Version == tag.None { // it rests on no other tag
		return tag.Frozen([]tag.Entry{e}, b.Policy, tag.None)
	}
	return tag.Frozen(b.Entries, b.Policy, e.Message.Version)
}

// stage is one step of a release. do does its work, however often it is called, and gives what its record says; a *Stop becomes
// a record that ends the release, a *Wait is asked again, any other error is no answer. Whether it is done, its record says
// (Chain): that is the read-only twin.
type stage struct {
	name string
	do   func(ctx context.Context, r *release) (Record, error)
}

// stages in their order.
func (l *Lane) stages() []stage {
	return []stage{{Retrain, l.retrain}, {Spread, l.spread}, {Backtests, l.backtest}, {Approve, l.approve}, {Release, l.release}}
}

// release is one release under way.
type release struct {
	c     *Chosen
	book  Book
	chain []Link
}

// of is the record of a stage that is done.
func (r *release) of(stage string) *Record {
	for i := range r.chain {
		if r.chain[i].Record.Stage == stage {
			return &r.chain[i].Record
		}
	}
	return nil
}

// Begin freezes the candidate of an accepted release tag, or refuses it: the release's first record. A version that another
// tag object began is not begun again, whatever the tag says now: Standing says so and nothing is written.
func (l *Lane) Begin(ctx context.Context, o Order) (Standing, error) {
	first, found, err := l.read(ctx, key(o.Model, o.Version, Candidate))
	if err != nil {
		return Standing{}, err
	}
	if !found {
		r := Record{Stage: Candidate, Model: o.Model, Version: o.Version, Object: o.Object}
		c, err := l.choose(ctx, o)
		if err == nil {
			err = l.foresee(ctx, c)
		}
		if r, err = gated(r, err); err != nil {
			return Standing{}, err
		}
		if r.Candidate = c; r.Passed {
			r.Reason = fmt.Sprintf("work %s, its backtest (%s %g) and %d seeds are there", short(o.Work), c.Model.Backtest.Metric, c.Score, len(c.Seeds))
		}
		if first, err = l.create(ctx, key(o.Model, o.Version, Candidate), r); err != nil {
			return Standing{}, err
		}
	}
	if first.Record.Object != o.Object {
		return Standing{Model: o.Model, Version: o.Version, Stage: Candidate, Done: true, Refused: true, Code: string(tag.TagMoved),
			Text: fmt.Sprintf("%s %s is being released under the tag object %s, this one is %s: what runs goes on under the first; release something else under a new version",
				o.Model, o.Version, short(first.Record.Object), short(o.Object))}, nil
	}
	return l.Look(ctx, o.Model, o.Version)
}

// gated makes a gate that did not open a record; any other error stays one.
func gated(r Record, err error) (Record, error) {
	if s, ok := errors.AsType[*Stop](err); ok {
		r.Passed, r.Code, r.Reason = false, s.Code, shown(s.Text, 4000)
		return r, nil
	}
	r.Passed = err == nil
	return r, err
}

// Look says where a release stands. It writes nothing.
func (l *Lane) Look(ctx context.Context, model, version string) (Standing, error) {
	s := Standing{Model: model, Version: version}
	chain, err := l.Chain(ctx, model, version)
	if err != nil {
		return s, err
	}
	return standing(s, chain), nil
}

func standing(s Standing, chain []Link) Standing {
	s.Chain = chain
	if len(chain) == 0 {
		return s
	}
	last := chain[len(chain)-1].Record
	s.Stage, s.Code, s.Text = last.Stage, last.Code, last.Reason
	s.Refused = !last.Passed
	s.Done = s.Refused
	return s
}

// Advance brings a release as far as it goes now, under the order that it began with. It may be called at any time, by any
// number of processes, after any crash: what is done is read, what is not is done.
func (l *Lane) Advance(ctx context.Context, model, version string, b Book) (Standing, error) {
	s := Standing{Model: model, Version: version}
	chain, err := l.Chain(ctx, model, version)
	if err != nil || len(chain) == 0 || !chain[len(chain)-1].Record.Passed {
		return standing(s, chain), err
	}
	c := chain[0].Record.Candidate
	if c == nil || c.Order.Model != model || c.Order.Version != version || c.Order.Object != chain[0].Record.Object {
		return s, &Broken{chain[0].Key, "holds no candidate of this release"}
	}
	if b.Policy != nil {
		if why := tag.Frozen(b.Entries, b.Policy, version); why != "" {
			s = standing(s, chain)
			s.Code, s.Text, s.Done = codeFrozen, why, true
			return s, nil
		}
	}
	r := &release{c: c, book: b, chain: chain}
	for _, st := range l.stages() {
		if r.of(st.name) != nil {
			continue
		}
		rec, err := st.do(ctx, r)
		if w, ok := errors.AsType[*Wait](err); ok {
			s = standing(s, r.chain)
			s.Stage, s.Text, s.After = st.name, w.Text, w.After
			return s, nil
		}
		if rec, err = gated(rec, err); err != nil {
			return standing(s, r.chain), fmt.Errorf("%s %s: %s: %w", model, version, st.name, err)
		}
		rec.Stage, rec.Model, rec.Version, rec.Object, rec.Before = st.name, model, version, c.Order.Object, r.chain[len(r.chain)-1].SHA256
		if _, err := l.create(ctx, key(model, version, st.name), rec); err != nil {
			return standing(s, r.chain), err
		}
		// What is there now may be another lane's; either way it has to follow what was read.
		if r.chain, err = l.Chain(ctx, model, version); err != nil {
			return standing(s, r.chain), err
		}
		l.log().Info("a stage is over", "model", model, "version", version, "stage", st.name, "passed", rec.Passed, "reason", rec.Reason)
		if !r.chain[len(r.chain)-1].Record.Passed {
			return standing(s, r.chain), nil
		}
	}
	s = standing(s, r.chain)
	return l.targets(ctx, r, s)
}

// retrain makes the second generation: the same work in the pinned environment.
func (l *Lane) retrain(ctx context.Context, r *release) (Record, error) {
	rec, err := l.make(ctx, r, r.c.Retrain, r.c.Model.metrics())
	if err != nil || r.c.Twin == nil {
		return rec, err
	}
	return l.again(ctx, r, rec)
}

// make brings what a work reads, drives it to its end, and gives its result.
func (l *Lane) make(ctx context.Context, r *release, o Ordered, need []string) (Record, error) {
	if err := record.CheckIdentity(o.spec()); err != nil {
		return Record{}, stop("ArtifactMismatch", "%s: its record does not hold what the work stands for: %v", o.Job, err)
	}
	for _, in := range o.Spec.Inputs {
		if in.Work == r.c.Retrain.Spec.Work {
			continue
		}
		if err := l.bring(ctx, in); err != nil {
			return Record{}, err
		}
	}
	if err := l.code(ctx, r.c.Order.Commit, o); err != nil {
		return Record{}, err
	}
	if err := l.drive(ctx, r.c, o); err != nil {
		return Record{}, err
	}
	run, _, err := l.made(ctx, o, need)
	if err != nil {
		return Record{}, err
	}
	return Record{Run: &run, Reason: fmt.Sprintf("work %s of generation 2 finished with attempt %d", short(run.Work), run.Attempt)}, nil
}

// probeRun is the fact that is computed by a command of the work's own, which the pin holds too.
const probeRun = "probe_run"

// made reads the result of one of the lane's own works, and holds its machine against what was pinned.
func (l *Lane) made(ctx context.Context, o Ordered, need []string) (Run, *result, error) {
	res, err := finished(ctx, l.Store, o.Spec.Work, o.Job)
	if err != nil {
		return Run{}, nil, err
	}
	if lacks := res.lacks(need); lacks != "" {
		return Run{}, nil, stop("EvidenceMissing", "%s (work %s): its result has no number named %s", o.Job, short(o.Spec.Work), lacks)
	}
	found, err := machine(ctx, l.Store, o.Spec.Work, res.seen.Finished.Attempt)
	if err != nil {
		return Run{}, nil, err
	}
	for _, k := range sorted(o.Spec.Requires) {
		if k == probeRun { // its worker has held what the probe printed against it, and would have ended otherwise
			continue
		}
		if found[k] != o.Spec.Requires[k] || found[k] == "" {
			return Run{}, nil, stop("EnvRefused", "%s (work %s) ran on a machine whose %s is %s, pinned is %s", o.Job, short(o.Spec.Work), k, shown(found[k], 100), shown(o.Spec.Requires[k], 100))
		}
	}
	return res.run(o.Job, string(o.spec().Identity), found, need...), res, nil
}

// still says that a run is what its record says: the lease, the manifest and the numbers.
func (l *Lane) still(ctx context.Context, r *release, stage string, o Ordered, need []string) (*result, error) {
	was := r.of(stage).Run
	run, res, err := l.made(ctx, o, need)
	if err != nil {
		return nil, err
	}
	if was == nil || was.Work != run.Work || was.Attempt != run.Attempt || was.Manifest != run.Manifest || was.Identity != run.Identity {
		return nil, stop("ArtifactMismatch", "%s: the store has the result %s of work %s, the record of the %s names another one: it was swapped since", o.Job, short(run.Manifest.SHA256), short(run.Work), stage)
	}
	return res, nil
}

// spread asks whether the retrained model is one of those that its configuration gives.
func (l *Lane) spread(ctx context.Context, r *release) (Record, error) {
	if _, err := l.still(ctx, r, Retrain, r.c.Retrain, r.c.Model.metrics()); err != nil {
		return Record{}, err
	}
	run := r.of(Retrain).Run
	q := r.c.question()
	q.New = []spread.Run{{Name: run.Work, Metrics: run.Metrics}}
	report, err := spread.Judge(q)
	if err != nil {
		return Record{}, stop("SpreadTooWide", "%v", err)
	}
	rec := Record{Spread: &report, Reason: report.Text}
	switch report.Verdict {
	case spread.Within, spread.Better:
		if report.Verdict == spread.Better {
			rec.Code = string(spread.Better)
		}
		return rec, nil
	case spread.Inconclusive:
		return rec, stop("inconclusive", "%s: a person has to look; with more seeds it can be released under a new version", report.Text)
	case spread.Worse:
	}
	return rec, stop(string(report.Verdict), "%s", report.Text)
}

// backtest runs the backtest of the second generation, with the deploy flag, and holds its score against the least one.
func (l *Lane) backtest(ctx context.Context, r *release) (Record, error) {
	if _, err := l.still(ctx, r, Retrain, r.c.Retrain, r.c.Model.metrics()); err != nil {
		return Record{}, err
	}
	bt := r.c.Model.Backtest
	rec, err := l.make(ctx, r, r.c.Check, []string{bt.Metric})
	if err != nil {
		return rec, err
	}
	value := rec.Run.Metrics[bt.Metric]
	rec.Score = bt.score(value)
	if why := bt.why(value); why != "" {
		return rec, stop("BacktestFailed", "the backtest of generation 2: %s", why)
	}
	rec.Reason = fmt.Sprintf("%s is %g; %s", bt.Metric, value, rec.Reason)
	return rec, nil
}

func (b Backtest) score(value float64) *attest.Score {
	if b.AtLeast != nil {
		return &attest.Score{Name: b.Metric, Direction: spread.Higher, Value: value, Bound: *b.AtLeast}
	}
	return &attest.Score{Name: b.Metric, Direction: spread.Lower, Value: value, Bound: *b.AtMost}
}

// approve waits until as many people have signed as the policy wants; two at least where the spread check says better.
func (l *Lane) approve(_ context.Context, r *release) (Record, error) {
	c := r.c
	if r.book.Policy == nil {
		return Record{}, &Wait{"the policy could not be read", l.poll()}
	}
	others := r.book.others(c.Order)
	better := r.of(Spread).Spread.Verdict == spread.Better
	if no := tag.Approved(r.book.Entries, r.book.Policy, c.Order.Model, c.Order.Version); no != nil {
		return Record{}, &Wait{no.Text, 0}
	}
	if better && len(others) == 0 {
		return Record{}, &Wait{fmt.Sprintf("%s: better: a second person has to look at it and to sign a stage tag for it (headway-lane tag prepare stage/%s/STAGE %s)",
			r.of(Spread).Reason, c.Order.Model, c.Order.Version), 0}
	}
	rec := Record{Approval: others, Reason: "no second signer is asked for"}
	if len(others) > 0 {
		rec.Reason = fmt.Sprintf("%s signed %s", others[0].Signer, others[0].Name)
	}
	return rec, nil
}

// others are the stage tags of a version by other people and other keys than the release's own.
func (b Book) others(o Order) (out []attest.Tag) {
	for _, e := range b.Entries {
		n := e.Name()
		if e.Code != tag.Accepted || e.Message == nil || n.Stage == "" || e.Message.Version != o.Version || n.Model != o.Model || e.Signer == o.Signer || e.Key == o.Key || e.Signer == "" {
			continue
		}
		if slices.ContainsFunc(out, func(t attest.Tag) bool { return t.Signer == e.Signer || t.Key == e.Key }) {
			continue
		}
		out = append(out, attest.Tag{Name: n.String(), Object: e.Object, Commit: e.Commit, Signer: e.Signer, Key: e.Key})
	}
	return out
}
