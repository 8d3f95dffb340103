package deploylane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
)

// protected is the folder whose files count only when a root key signed their last change.
const protected = "lane/"

// maxRing bounds what of a ring goes into the candidate's record: its plan and its canary's prompts, bytes.
const maxRing = 256 << 10

// Ring is a target that is a serving ring. Plan and prompts are frozen with the candidate: a step back loads by them again.
type Ring struct {
	File    string        `json:"file"`
	Weights Weights       `json:"weights"`
	Plan    string        `json:"plan,omitempty"` // the file's text at the tagged commit
	Prompts []ring.Prompt `json:"prompts,omitempty"`
}

// Weights says which file of a result the ring loads, and what the bound is derived from. Its digest is the release's.
type Weights struct {
	File   string `json:"file"`
	Arch   string `json:"arch"`
	Layers int    `json:"layers"`
	Hidden uint64 `json:"hidden"`
}

// OpenEngine is a client of the engine of a ring. The ring ends it with done.
type OpenEngine func(ctx context.Context, p *ring.Plan) (e ring.Engine, done func(), err error)

// Parked is a target that does not take a release until a person has mended something. Nothing is sent again before the next
// look finds it mended.
type Parked struct{ Text string }

func (p *Parked) Error() string { return p.Text }

func readRing(v, weights plan.Value) *Ring {
	r := &Ring{File: v.Path("")}
	if r.File != "" && !strings.HasPrefix(r.File, protected) {
		v.Refuse("NotProtected", fmt.Sprintf("%s is %s", v.Name(), r.File), "a file below "+protected+", such as lane/rings/digits.yaml", "who may change it decides where a model goes: a root key signs what lies there")
	}
	f := weights.Required("weights: {file: model.gguf, arch: step37, layers: 45, hidden: 4096}, what the ring loads").Fields("file", "arch", "layers", "hidden")
	r.Weights = Weights{File: f["file"].Required("the file of the job's result that the ring loads, such as file: model.gguf").Path(""),
		Arch:   f["arch"].Required("the architecture, as the engine calls it").Word(""),
		Layers: int(f["layers"].Required("layers of the model").Int(1, 10_000, 0)),
		Hidden: uint64(f["hidden"].Required("width of the state between two layers").Int(1, 1<<24, 0))}
	return r
}

// of names the weights by the digest that a result has them under.
func (w Weights) of(files []record.File) (ring.Weights, error) {
	i := slices.IndexFunc(files, func(f record.File) bool { return f.Path == w.File })
	if i < 0 {
		return ring.Weights{}, stop("EvidenceMissing", "the result has no file %s, which %s names as the ring's weights", w.File, File)
	}
	return ring.Weights{Digest: "sha256:" + files[i].SHA256, Arch: w.Arch, Layers: w.Layers, Hidden: w.Hidden}, nil
}

// foresee reads the ring plans of a candidate's targets and holds them against everything that needs no answer of an agent,
// before any money is spent.
func (l *Lane) foresee(ctx context.Context, c *Chosen) error {
	for i, t := range c.Model.Targets {
		if t.Kind != TargetRing || t.Ring == nil {
			continue
		}
		frozen, err := l.frozen(ctx, c, *t.Ring)
		if err != nil {
			return err
		}
		c.Model.Targets = slices.Clone(c.Model.Targets)
		c.Model.Targets[i].Ring = frozen
	}
	return nil
}

// frozen is a ring with its plan and prompts at the tagged commit.
func (l *Lane) frozen(ctx context.Context, c *Chosen, r Ring) (*Ring, error) {
	text, err := l.Git.File(ctx, c.Order.Commit, r.File)
	if err != nil {
		return nil, err
	}
	p, err := ring.ReadPlan(r.File, text)
	if err != nil {
		return nil, stop("RingPlan", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if _, err := l.engine(p); err != nil {
		return nil, err
	}
	if err := ring.CheckCatalog(p.Catalog.Name); err != nil {
		return nil, stop("RingPlan", "%s: %v", r.File, err)
	}
	if !strings.HasPrefix(p.Canary.Prompts, protected) {
		return nil, stop("RingPlan", "%s: canary.prompts is %s: expected a file below %s, which a root key signs", r.File, shown(p.Canary.Prompts, 200), protected)
	}
	b, err := l.Git.File(ctx, c.Order.Commit, p.Canary.Prompts)
	if err != nil {
		return nil, err
	}
	if r.Plan = string(text); len(text)+len(b) > maxRing {
		return nil, stop("RingPlan", "%s and %s have %d bytes, at most %d", r.File, p.Canary.Prompts, len(text)+len(b), maxRing)
	}
	if r.Prompts, err = ring.ReadPrompts(p.Canary.Prompts, b); err != nil {
		return nil, stop("RingPlan", "%v", err)
	}
	parent, err := l.files(ctx, c.Parent.Manifest, l.Research)
	if err != nil {
		return nil, err
	}
	w, err := r.Weights.of(parent)
	if err != nil {
		return nil, err
	}
	if report := ring.Foresee(ctx, p, w, r.Prompts); report.Blocked {
		return nil, stop("RingRefused", "%s: %s", r.File, sentences(report))
	}
	return &r, nil
}

// files are those of a result, by the manifest that a record names.
func (l *Lane) files(ctx context.Context, m attest.Link, b bucket.Bucket) ([]record.File, error) {
	body, _, err := get(ctx, b, m.Key, record.MaxManifest)
	if err != nil {
		return nil, err
	}
	var out record.Manifest
	if record.Hash(body) != m.SHA256 || record.Decode(body, record.MaxManifest, &out) != nil {
		return nil, &Broken{m.Key, "is not the manifest that the records name"}
	}
	return out.Files, nil
}

// engine is the client that a plan's adapter asks for.
func (l *Lane) engine(p *ring.Plan) (OpenEngine, error) {
	if open := l.Engines[p.Engine.Adapter]; open != nil {
		return open, nil
	}
	return nil, stop("NoEngine", "the ring plan names the adapter %s, and this build has a client of %s alone: there is none of the p4 engine to be had yet",
		shown(p.Engine.Adapter, 100), strings.Join(slices.Sorted(maps.Keys(l.Engines)), ", "))
}

func sentences(r preflight.Report) string {
	var all []string
	for _, f := range r.Blocking() {
		all = append(all, f.String())
	}
	return strings.Join(all, "; ")
}

// RingOf is the loader of a model's ring, by its plan. done ends its engine.
func (l *Lane) RingOf(ctx context.Context, model string, p *ring.Plan) (out *ring.Loader, done func(), err error) {
	open, err := l.engine(p)
	if err != nil {
		return nil, nil, err
	}
	e, done, err := open(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	records := ring.Records{Store: l.Store, Model: model, Ring: p.Ring}
	return &ring.Loader{Engine: e, Records: records, Catalog: ring.StoreCatalogue{Records: records}, Dir: filepath.Join(l.State, "rings", model),
		By: l.ID, Times: ring.DefaultTimes()}, done, nil
}

// askedOf is where the places of a ring lie: which release it is to have, the last one counts.
func askedOf(model, name string) string { return "lane/" + model + "/ring/" + name + "/asked/" }

// frozen is the plan that a candidate's record holds.
func (r Ring) frozen() (*ring.Plan, error) {
	return ring.ReadPlan(r.File+" in the candidate's record", []byte(r.Plan))
}

// loadable is a release as a ring's loader takes it.
func (l *Lane) loadable(ctx context.Context, rel Link, r Ring) (ring.Release, error) {
	if rel.Record.Release == nil {
		return ring.Release{}, &Broken{rel.Key, "names no release"}
	}
	files, err := l.files(ctx, rel.Record.Release.Artifact, l.Store)
	if err != nil {
		return ring.Release{}, err
	}
	w, err := r.Weights.of(files)
	return ring.Release{Digest: rel.SHA256, Weights: w, PlanFile: r.File, Plan: []byte(r.Plan), Prompts: r.Prompts}, err
}

// Asked is the release that a ring was last asked for. With the version none it was taken down: Plan is that of the release before,
// and Release is empty.
type Asked struct {
	Version string
	Tag     string
	Plan    *ring.Plan
	Release ring.Release
}

// Asked reads which release a ring is to have; nil: it was never asked for one.
func (l *Lane) Asked(ctx context.Context, model, name string) (*Asked, error) {
	all, err := l.places(ctx, model, askedOf(model, name))
	if err != nil || len(all) == 0 {
		return nil, err
	}
	last := all[len(all)-1].Record.Moved
	if last.Version == tag.None {
		named := slices.DeleteFunc(all, func(k Link) bool { return k.Record.Moved.Version == tag.None })
		if len(named) == 0 {
			return nil, &Broken{askedOf(model, name), "takes down what was never asked for"}
		}
		a, err := l.askedFor(ctx, model, name, named[len(named)-1])
		if err != nil {
			return nil, err
		}
		return &Asked{Version: tag.None, Tag: last.Tag, Plan: a.Plan}, nil
	}
	return l.askedFor(ctx, model, name, all[len(all)-1])
}

// askedFor is what one place of a ring asks for.
func (l *Lane) askedFor(ctx context.Context, model, name string, place Link) (*Asked, error) {
	last := place.Record.Moved
	chain, err := l.Chain(ctx, model, last.Version)
	if err != nil {
		return nil, err
	}
	if len(chain) < len(Stages()) || chain[len(chain)-1].SHA256 != last.Release || chain[0].Record.Candidate == nil {
		return nil, &Broken{place.Key, "names a release that is not there"}
	}
	for _, t := range chain[0].Record.Candidate.Model.Targets {
		if t.Kind != TargetRing || t.Ring == nil {
			continue
		}
		p, err := t.Ring.frozen()
		if err != nil {
			return nil, err
		}
		if p.Ring == name {
			rel, err := l.loadable(ctx, chain[len(chain)-1], *t.Ring)
			return &Asked{Version: last.Version, Tag: last.Tag, Plan: p, Release: rel}, err
		}
	}
	return nil, &Broken{place.Key, "names a release that has no such ring"}
}

// load brings a release onto a ring: what an earlier lane left is finished or taken back first, a release that serves is left
// alone. It takes as long as a load takes, and the lane does nothing else meanwhile. Of several releases that a ring was asked
// for the last one is loaded: a lane that comes back late does not go back to an older one.
func (l *Lane) load(ctx context.Context, rel Link, t Target, h PointerHistory, late tooLate) (string, error) {
	model := rel.Record.Model
	p, err := t.Ring.frozen()
	if err != nil {
		return "", err
	}
	all, err := l.place(ctx, "ring", model, askedOf(model, p.Ring), h, late)
	if err != nil {
		return "", err
	}
	last := all[len(all)-1]
	if m := last.Record.Moved; m.Cause != h.Cause {
		return fmt.Sprintf("ring %s was asked for %s by %s: it is not loaded with %s", p.Ring, m.Version, m.Tag, rel.Record.Version), nil
	}
	what, err := l.loadable(ctx, rel, *t.Ring)
	if err != nil {
		return "", err
	}
	what.Since = uint64(max(last.At.UnixMilli(), 0))
	loader, done, err := l.RingOf(ctx, model, p)
	if err != nil {
		return "", err
	}
	defer done()
	var since []string // what was asked for behind the last none, this release among it
	taken := false
	for _, k := range all {
		if m := k.Record.Moved; m.Version == tag.None {
			taken, since = true, nil
		} else {
			since = append(since, m.Release)
		}
	}
	if taken { // a lane that died may not have taken it down whole: what it served does not come back
		if err := loader.Empty(ctx, p, since...); err != nil {
			return "", l.parked(ctx, rel, t, p.Ring, err)
		}
	}
	out, err := loader.Ensure(ctx, what, nil)
	if err != nil {
		return "", l.parked(ctx, rel, t, p.Ring, err)
	}
	return fmt.Sprintf("ring %s serves it as generation %d", p.Ring, out.Serving), nil
}

// parked tells what a person has to mend from what the next try may find otherwise. What the guards refused is recorded beside
// the release: every failure, once for each set of them.
func (l *Lane) parked(ctx context.Context, rel Link, t Target, name string, err error) error {
	blocked, refused := errors.AsType[ring.Blocked](err)
	_, halted := errors.AsType[ring.Halt](err)
	_, failed := errors.AsType[ring.FailedBefore](err)
	over, taken := errors.AsType[ring.LeaseOver](err)
	switch {
	case taken:
		return &Wait{over.Error(), 30 * time.Second}
	case refused && !halted:
		report := blocked.Report
		var what []string
		for _, f := range report.Blocking() {
			what = append(what, strings.Join([]string{f.Rule, f.Subject, string(f.Verdict)}, "\x00"))
		}
		k := key(rel.Record.Model, rel.Record.Version, "target-"+t.Name+"-refused-"+short(record.Hash([]byte(strings.Join(what, "\n")))))
		how, _, _ := strings.Cut(err.Error(), "; the first: ")
		text := fmt.Sprintf("ring %s: %s: %s", name, how, sentences(report))
		r := Record{Stage: "target", Model: rel.Record.Model, Version: rel.Record.Version, Object: rel.Record.Object, Before: rel.SHA256, Code: "RingRefused",
			Reason: shown(text, 4000), Answer: &TargetAnswer{Target: t.Name, Kind: t.Kind, Key: rel.SHA256, Text: shown(text, 2000), Preflight: &report}}
		if _, err := l.create(ctx, k, r); err != nil {
			return err
		}
		return &Parked{text}
	case halted, failed:
		return &Parked{err.Error()}
	}
	return err
}
