package deploylane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/attest"
)

// States of a release, as people see them.
const (
	StateUnderWay = "under way"
	StateRefused  = "refused"
	StateReleased = "released"
	StateBroken   = "broken"       // a record does not follow the one before it, or is none
	StateUnread   = "not read yet" // of a Viewer: its records come with one of the next looks
)

// What is known of a record's signature.
const (
	Verified   = "verified"
	Unverified = "not verified here" // whoever looked has none of the lane's keys
)

// How much of a record is shown.
const (
	maxWord   = 200 // bytes of a name or a digest
	maxText   = 2000
	maxSeeds  = 200
	maxLeft   = 20
	maxValues = 64 // metrics of a run, facts of a machine, tags
)

// Lineage is where one release comes from, as its records say: what `headway-lane show` and the dashboard draw. Everything in it
// is bounded, every text is printable, and every digest is whole.
type Lineage struct {
	Model   string `json:"model"`
	Version string `json:"version"`
	State   string `json:"state"`
	Live    bool   `json:"live"`
	Stage   string `json:"stage,omitempty"`   // of the newest record
	Verdict string `json:"verdict,omitempty"` // of the spread check
	Signer  string `json:"signer,omitempty"`  // of the release tag
	Code    string `json:"code,omitempty"`    // stable word of the gate that did not open
	Text    string `json:"text,omitempty"`    // the newest record's reason, or what is wrong with it
	Steps   []Step `json:"records"`           // stages, then targets
}

// Step is what one record says.
type Step struct {
	Stage     string    `json:"stage"`
	Key       string    `json:"key"`
	SHA256    string    `json:"sha256"`
	Before    string    `json:"before,omitempty"`
	Written   time.Time `json:"written"` // the store's stamp
	Signature string    `json:"signature"`
	Passed    bool      `json:"passed"`
	Code      string    `json:"code,omitempty"`
	Reason    string    `json:"reason"`

	Tag         *attest.Tag   `json:"tag,omitempty"`
	Plan        *attest.File  `json:"plan,omitempty"`
	Candidate   *Work         `json:"candidate,omitempty"` // generation 1
	Backtest    *Work         `json:"backtest,omitempty"`  // its backtest
	Hardware    string        `json:"hardware,omitempty"`  // that the seeds share
	Seeds       []Work        `json:"seeds,omitempty"`
	MoreSeeds   int           `json:"more_seeds,omitempty"` // that are not shown
	LeftOut     []string      `json:"left_out,omitempty"`
	Spread      *Spreading    `json:"spread,omitempty"`
	Run         *Work         `json:"run,omitempty"` // generation 2
	Score       *attest.Score `json:"score,omitempty"`
	Approvals   []attest.Tag  `json:"approvals,omitempty"`
	Artifact    *attest.Link  `json:"artifact,omitempty"`
	Attestation *attest.Link  `json:"attestation,omitempty"`
	Target      *TargetAnswer `json:"target,omitempty"`

	id    ident
	moved *Move
}

// Move is one place that a model's pointer had.
type Move struct {
	N         int64  `json:"n"`
	Version   string `json:"version"`
	Tag       string `json:"tag"`
	Cause     string `json:"cause"` // object of the tag
	Reason    string `json:"reason,omitempty"`
	SHA256    string `json:"sha256"` // of the record
	Signature string `json:"signature"`
}

// Work is one finished work of a release.
type Work struct {
	Job         string             `json:"job"` // name in the plan of the tagged commit
	Work        string             `json:"work"`
	Parent      string             `json:"parent,omitempty"`
	Attempt     int64              `json:"attempt"`
	Fingerprint map[string]string  `json:"fingerprint,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Artifact    attest.Link        `json:"artifact"` // manifest of the result
}

// Spreading is the spread check's judgement.
type Spreading struct {
	Verdict string `json:"verdict"`
	Bands   []Band `json:"bands,omitempty"`
}

// Band is one metric of it, in the metric's unit.
type Band struct {
	Metric  string  `json:"metric"`
	Verdict string  `json:"verdict"`
	Value   float64 `json:"value"`
	Lo      float64 `json:"lo"`
	Hi      float64 `json:"hi"`
	Seeds   int     `json:"seeds"`
}

// ident is what a record has to say of its place.
type ident struct{ stage, model, version, before, object string }

func (r Record) ident() ident { return ident{r.Stage, r.Model, r.Version, r.Before, r.Object} }

// follows says why a record does not follow what lies before it, or "".
func (got ident) follows(want ident) string {
	switch {
	case got.stage != want.stage || got.model != want.model || got.version != want.version:
		return "is the record of " + shown(got.model+" "+got.version+" "+got.stage, maxWord)
	case got.before != want.before:
		return fmt.Sprintf("follows a record %s, and the one before it is %s: one of them was changed", shown(short(got.before), 100), short(want.before))
	case got.object != want.object:
		return "is of another tag than the first record"
	}
	return ""
}

func word(s string) string { return shown(s, maxWord) }

func link(l attest.Link) attest.Link { return attest.Link{Key: word(l.Key), SHA256: word(l.SHA256)} }

func tagOf(t attest.Tag) attest.Tag {
	return attest.Tag{Name: word(t.Name), Object: word(t.Object), Commit: word(t.Commit), Signer: word(t.Signer), Key: word(t.Key)}
}

// some are the first values of a map, by their names.
func some[V any](m map[string]V, f func(V) V) map[string]V {
	out := make(map[string]V, min(len(m), maxValues))
	for i, k := range sorted(m) {
		if i == maxValues {
			break
		}
		out[word(k)] = f(m[k])
	}
	return out
}

func workOf(r Run) Work {
	return Work{Job: word(r.Name), Work: word(r.Work), Attempt: r.Attempt, Fingerprint: some(r.Fingerprint, word),
		Metrics: some(r.Metrics, func(v float64) float64 { return v }), Artifact: link(r.Manifest)}
}

// StepOf is what a record says.
func StepOf(k Link, signature string) Step {
	r := k.Record
	s := Step{Stage: word(r.Stage), Key: word(k.Key), SHA256: k.SHA256, Before: word(r.Before), Written: k.At.UTC(), Signature: signature,
		Passed: r.Passed, Code: word(r.Code), Reason: shown(r.Reason, maxText),
		id: ident{word(r.Stage), word(r.Model), word(r.Version), word(r.Before), word(r.Object)}}
	if m := r.Moved; m != nil {
		s.moved = &Move{N: m.N, Version: word(m.Version), Tag: word(m.Tag), Cause: word(m.Cause), Reason: shown(m.Reason, maxText), SHA256: k.SHA256, Signature: signature}
	}
	if c := r.Candidate; c != nil {
		s.candidate(c)
	}
	if r.Run != nil {
		run := workOf(*r.Run)
		s.Run, s.Artifact = &run, &run.Artifact
	}
	if p := r.Spread; p != nil {
		s.Spread = &Spreading{Verdict: word(string(p.Verdict))}
		for _, j := range p.Metrics[:min(len(p.Metrics), maxValues)] {
			s.Spread.Bands = append(s.Spread.Bands, Band{word(j.Name), word(string(j.Verdict)), j.Value, j.Lo, j.Hi, j.N})
		}
	}
	if c := r.Score; c != nil {
		score := *c
		score.Name = word(c.Name)
		s.Score = &score
	}
	for _, t := range r.Approval[:min(len(r.Approval), maxValues)] {
		s.Approvals = append(s.Approvals, tagOf(t))
	}
	if r.Release != nil {
		artifact, attestation := link(r.Release.Artifact), link(r.Release.Attestation)
		s.Artifact, s.Attestation = &artifact, &attestation
	}
	if a := r.Answer; a != nil {
		s.Target = &TargetAnswer{Target: word(a.Target), Kind: word(a.Kind), Key: word(a.Key), Text: shown(a.Text, maxText)}
	}
	return s
}

// candidate fills in what the first record froze.
func (s *Step) candidate(c *Chosen) {
	o := c.Order
	t := tagOf(attest.Tag{Name: o.Tag, Object: o.Object, Commit: o.Commit, Signer: o.Signer, Key: o.Key})
	s.Tag, s.Plan, s.Hardware = &t, &attest.File{Path: word(o.Plan.Path), SHA256: word(o.Plan.SHA256)}, shown(c.Hardware, maxText)
	if c.Parent.Work != "" {
		parent := workOf(c.Parent)
		s.Candidate = &parent
	}
	if c.Backtest.Work != "" {
		check := workOf(c.Backtest)
		s.Backtest = &check
	}
	for _, seed := range c.Seeds[:min(len(c.Seeds), maxSeeds)] {
		s.Seeds = append(s.Seeds, workOf(seed))
	}
	s.MoreSeeds = len(c.Seeds) - len(s.Seeds)
	for _, why := range c.LeftOut[:min(len(c.LeftOut), maxLeft)] {
		s.LeftOut = append(s.LeftOut, shown(why, maxText))
	}
}

// Draw puts a release together from its records, in their order, and the answers of its targets. live is what the model's pointer
// names, nil where there is none. Pure; whether each record follows the one before it is looked at here.
func Draw(model, version string, steps, targets []Step, live *Current) Lineage {
	l := Lineage{Model: model, Version: version, State: StateUnderWay, Steps: []Step{}}
	stages := Stages()
	for i, s := range steps[:min(len(steps), len(stages))] {
		want := ident{stages[i], model, version, "", s.id.object}
		if i > 0 {
			want.before, want.object = steps[i-1].SHA256, steps[0].id.object
		}
		l.Steps = append(l.Steps, s)
		if why := s.id.follows(want); why != "" {
			l.State, l.Stage, l.Text = StateBroken, stages[i], s.Key+" "+why
			return l
		}
		l.Stage, l.Code, l.Text = s.Stage, s.Code, s.Reason
		if s.Tag != nil && i == 0 {
			l.Signer = s.Tag.Signer
		}
		if s.Spread != nil {
			l.Verdict = s.Spread.Verdict
		}
		if s.Run != nil && s.Stage == Retrain && steps[0].Candidate != nil {
			run := *s.Run
			run.Parent = steps[0].Candidate.Work
			l.Steps[i].Run = &run
		}
		if !s.Passed {
			l.State = StateRefused
			return l
		}
	}
	if len(l.Steps) < len(stages) {
		return l
	}
	rel := l.Steps[len(l.Steps)-1]
	l.State, l.Live = StateReleased, live != nil && live.Version == version && live.Release.SHA256 == rel.SHA256
	for _, s := range targets {
		if s.Target != nil && s.id.model == model && s.id.version == version && s.Before == rel.SHA256 {
			l.Steps = append(l.Steps, s)
		}
	}
	return l
}

// Lineage reads where a release comes from. Each record carries the lane's signature and follows the one before it; what does
// not is a *Broken.
func (l *Lane) Lineage(ctx context.Context, model, version string, live *Current) (Lineage, error) {
	chain, err := l.Chain(ctx, model, version)
	if err != nil {
		return Lineage{}, err
	}
	var steps, targets []Step
	for _, k := range chain {
		steps = append(steps, StepOf(k, Verified))
	}
	if len(chain) == len(Stages()) && chain[0].Record.Candidate != nil {
		for _, t := range chain[0].Record.Candidate.Model.Targets {
			k, found, err := l.read(ctx, key(model, version, "target-"+t.Name))
			if err != nil {
				return Lineage{}, err
			}
			if found {
				targets = append(targets, StepOf(k, Verified))
			}
		}
	}
	return Draw(model, version, steps, targets, live), nil
}

// Outcome is the gate's answer in a word or two.
func (s Step) Outcome() string {
	switch {
	case !s.Passed:
		return "refused (" + s.Code + ")"
	case s.Code != "":
		return "passed (" + s.Code + ")"
	}
	return "passed"
}

// Lines is what the record says, for people: digests shortened.
func (s Step) Lines() (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if t := s.Tag; t != nil {
		say("tag %s %s on commit %s, signed by %s (%s)", t.Name, short(t.Object), short(t.Commit), t.Signer, t.Key)
		say("plan %s, sha256 %s", s.Plan.Path, short(s.Plan.SHA256))
	}
	if w := s.Candidate; w != nil {
		say("generation 1: %s", w.line())
		out = append(out, w.machine()...)
	}
	if w := s.Backtest; w != nil {
		say("its backtest: %s", w.line())
	}
	for _, w := range s.Seeds {
		say("seed: work %s%s (%s)", short(w.Work), numbers(w.Metrics), w.Job)
	}
	if s.MoreSeeds > 0 {
		say("%d more seeds", s.MoreSeeds)
	}
	for _, why := range s.LeftOut {
		say("no seed: %s", why)
	}
	if p := s.Spread; p != nil {
		for _, b := range p.Bands {
			say("%s: %s is %g, %d seeds predict %g to %g", b.Verdict, b.Metric, b.Value, b.Seeds, b.Lo, b.Hi)
		}
	}
	if w := s.Run; w != nil {
		say("generation 2: %s", w.line())
		out = append(out, w.machine()...)
	}
	if c := s.Score; c != nil {
		say("score %s is %g, at %s %g", c.Name, c.Value, map[bool]string{true: "least", false: "most"}[c.Direction == "higher"], c.Bound)
	}
	for _, a := range s.Approvals {
		say("tag %s %s, signed by %s (%s)", a.Name, short(a.Object), a.Signer, a.Key)
	}
	if a := s.Attestation; a != nil {
		say("artifact %s at %s", short(s.Artifact.SHA256), s.Artifact.Key)
		say("attestation %s at %s", short(a.SHA256), a.Key)
	}
	if t := s.Target; t != nil {
		say("%s (%s): %s", t.Target, t.Kind, t.Text)
		return out
	}
	return append(out, s.Reason)
}

func (w *Work) line() string {
	parent := ""
	if w.Parent != "" {
		parent = ", parent " + short(w.Parent)
	}
	return fmt.Sprintf("work %s attempt %d%s, artifact %s%s (%s)", short(w.Work), w.Attempt, parent, short(w.Artifact.SHA256), numbers(w.Metrics), w.Job)
}

func (w *Work) machine() []string {
	var facts []string
	for _, k := range sorted(w.Fingerprint) {
		facts = append(facts, k+" "+w.Fingerprint[k])
	}
	if len(facts) == 0 {
		return nil
	}
	return []string{"its machine: " + strings.Join(facts, ", ")}
}

func numbers(m map[string]float64) (s string) {
	for _, k := range sorted(m) {
		s += fmt.Sprintf(", %s %g", k, m[k])
	}
	return s
}
