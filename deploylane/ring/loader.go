package ring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/headway-run/headway/deploylane/preflight"
	"github.com/headway-run/headway/runners/record"
)

// Catalogue is where clients read what they may use. Both methods may be asked for again and again. Clear says that the
// ring is not to be used; it is called before anything of it is unloaded. Show names a load that has passed its canary.
type Catalogue interface {
	Show(ctx context.Context, e Entry) error
	Clear(ctx context.Context, catalog, ring string) error
}

// Entry is what clients need to use a ring, within the loaded profile.
type Entry struct {
	Catalog string `json:"catalog"`
	Ring    string `json:"ring"`
	Model   string `json:"model"`
	Release string `json:"release"`
	Route   Route  `json:"route"`
	Format  string `json:"format"`
	Tokens  uint64 `json:"tokens"` // of the largest prompt
	Output  uint64 `json:"output"` // that may be asked for
}

// Release is what is to be loaded.
type Release struct {
	Digest   string // of the lane's record of the release
	Weights  Weights
	PlanFile string // what errors call the ring plan
	Plan     []byte // its text
	Prompts  []Prompt
	Since    uint64 // failures of generations below it are not held against it by Ensure: a person asked for it after them
}

// Times are deadlines. Silence after them has a name: NoAnswer.
type Times struct {
	Load   time.Duration // of one LOAD
	Unload time.Duration // of one UNLOAD
	Back   time.Duration // until memory is free again
	Poll   time.Duration // between two looks
}

// DefaultTimes are for a ring of the post's size, whose load takes 20 minutes.
func DefaultTimes() Times {
	return Times{Load: 60 * time.Minute, Unload: 5 * time.Minute, Back: 10 * time.Minute, Poll: 5 * time.Second}
}

// Loader releases models to one ring. One goroutine uses it. Whatever happens to it, in the end the ring serves the old
// or the new release, or is down with a record that lets a person unload it.
type Loader struct {
	Engine  Engine
	Records Records
	Catalog Catalogue
	Dir     string // local records; on a disk that survives a crash
	By      string // who, for people
	Times   Times
}

// Blocked is a ring that preflight refuses: nothing was sent.
type Blocked struct{ Report preflight.Report }

func (e Blocked) Error() string {
	b := e.Report.Blocking()
	return fmt.Sprintf("preflight of ring %s refuses %d things, nothing was sent; the first: %s", e.Report.Target, len(b), b[0])
}

// Halt needs a person. Nothing was changed after what it names was seen.
type Halt struct {
	Ring       string
	Generation uint64
	Why        string
}

func (e Halt) Error() string {
	return fmt.Sprintf("ring %s, generation %d: stopped: %s; nothing more was changed; look at the agents, then recover again", e.Ring, e.Generation, e.Why)
}

// TakenBack is a load that failed, and of which nothing is left.
type TakenBack struct {
	Generation uint64
	Why        string
	Again      bool // it was cut short and did not fail itself: another try may go well
}

func (e TakenBack) Error() string {
	return fmt.Sprintf("generation %d was taken back: %s", e.Generation, e.Why)
}

// Unfinished is an earlier load that is neither gone nor serving.
type Unfinished struct{ Generations []uint64 }

func (e Unfinished) Error() string {
	return fmt.Sprintf("generations %v of this ring are neither gone nor serving: recover them first", e.Generations)
}

// Outcome is how the ring stands in the end.
type Outcome struct {
	Serving    uint64            `json:"serving"` // generation; 0: the ring is down, and every record of it is closed
	Release    string            `json:"release,omitempty"`
	RolledBack bool              `json:"rolled_back,omitempty"`
	Why        string            `json:"why,omitempty"` // of a rollback, or of being down
	Report     *preflight.Report `json:"report,omitempty"`
}

// run is one call of Release or Recover.
type run struct {
	*Loader
	lease *lease
	every []Load // the oldest first
	loads []Load // of them, those that are open
	all   []Recorded
	half  bool // a load was taken back: nothing serves until another takes its place
}

// look reads every record.
func (l *Loader) look(ctx context.Context) (*run, error) {
	loads, err := l.Records.Loads(ctx)
	if err != nil {
		return nil, Halt{l.Records.Ring, 0, Decide(Situation{Store: err}).Why}
	}
	r := &run{Loader: l, every: loads}
	for _, x := range loads {
		r.all = append(r.all, Recorded{x.Intent.Generation, l.Records.IntentKey(x.Intent.Generation)})
		if x.Ledger.Closed == "" {
			r.loads = append(r.loads, x)
		}
	}
	local, err := localLoads(l.Dir, l.Records.Ring)
	if err != nil {
		return nil, err
	}
	for _, i := range local {
		r.all = append(r.all, Recorded{i.Generation, localName(i.Generation)})
	}
	return r, nil
}

// serving is the one open load, where it serves; Unfinished for any other open load.
func (r *run) serving() (*Load, error) {
	var open []uint64
	var out *Load
	for i := range r.loads {
		if !r.loads[i].Ledger.Serving || out != nil {
			open = append(open, r.loads[i].Intent.Generation)
			continue
		}
		out = &r.loads[i]
	}
	if open != nil {
		return nil, Unfinished{open}
	}
	return out, nil
}

// Preflight checks a release against the ring as it is, and changes nothing.
func (l *Loader) Preflight(ctx context.Context, rel Release, overrides []preflight.Override) (preflight.Report, error) {
	p, err := ReadPlan(rel.PlanFile, rel.Plan)
	if err != nil {
		return preflight.Report{}, err
	}
	r, err := l.look(ctx)
	if err != nil {
		return preflight.Report{}, err
	}
	old, err := r.serving()
	if err != nil {
		return preflight.Report{}, err
	}
	report, _, err := r.preflight(ctx, p, rel, old, overrides)
	return report, err
}

// preflight chooses a generation and runs every guard.
func (r *run) preflight(ctx context.Context, p *Plan, rel Release, old *Load, overrides []preflight.Override) (preflight.Report, uint64, error) {
	if p.Ring != r.Records.Ring {
		return preflight.Report{}, 0, fmt.Errorf("the plan is of ring %s, the records are of %s", p.Ring, r.Records.Ring)
	}
	now, err := r.Records.Clock(ctx)
	if err != nil {
		return preflight.Report{}, 0, err
	}
	v := &View{Plan: p, Weights: rel.Weights, Recorded: r.all, Known: true, Prompts: rel.Prompts, Lease: r.Records.Releaser(ctx)}
	if v.Lease.Ours = r.lease != nil; v.Lease.Ours {
		v.Lease.Other = ""
	}
	if old != nil {
		v.Replaces = &old.Intent
	}
	v.Survey = TakeSurvey(ctx, r.Engine, p, v.Replaces)
	v.Generation = choose(now, r.all, v.seen())
	if r.half { // what a person let pass for the load before need not be unknown any more
		overrides = fitting(preflight.Run(ctx, p.Ring, Checks(v, nil), nil), overrides)
	}
	return preflight.Run(ctx, p.Ring, Checks(v, nil), overrides), v.Generation, nil
}

// fitting are the overrides that are needed: one that is not would block, and a ring that is half way must not wait for it.
func fitting(r preflight.Report, overrides []preflight.Override) []preflight.Override {
	var out []preflight.Override
	for _, o := range overrides {
		if slices.ContainsFunc(r.Findings, func(f preflight.Finding) bool {
			return f.Verdict == preflight.Unknown && f.Rule == o.Rule && f.Subject == o.Subject
		}) {
			out = append(out, o)
		}
	}
	return out
}

// choose is a generation that was never used: the store's clock, or one above every recorded and inspected one. 0: there
// is none left. What an agent shows from far ahead of clock and records is a number that no lane chose: it is not followed,
// since the last of all would leave none for ever, and a guard refuses it.
func choose(now uint64, recorded, seen []Recorded) uint64 {
	g := max(now, 1)
	for _, r := range recorded {
		g = max(g, r.Generation+1)
	}
	far := g + maxAhead
	for _, r := range seen {
		if r.Generation < far || now == 0 {
			g = max(g, r.Generation+1)
		}
	}
	if g > maxGeneration {
		return 0
	}
	return g
}

// Release loads a release, proves it and switches the catalog to it. When the load fails, it is taken back and the
// release that served before is loaded again, under a generation of its own. The error is Blocked, Unfinished, Halt,
// LeaseOver, or a store's or an engine's.
func (l *Loader) Release(ctx context.Context, rel Release, overrides []preflight.Override) (Outcome, error) {
	r, err := l.look(ctx)
	if err != nil {
		return Outcome{}, err
	}
	old, err := r.serving()
	if err != nil {
		return Outcome{}, err
	}
	defer func() {
		if r.lease != nil {
			r.lease.leave(context.WithoutCancel(ctx))
		}
	}()
	return r.replace(ctx, rel, old, overrides)
}

// replace brings rel in the place of old, or old back.
func (r *run) replace(ctx context.Context, rel Release, old *Load, overrides []preflight.Override) (Outcome, error) {
	g, report, err := r.bring(ctx, rel, old, overrides)
	if err == nil {
		return Outcome{Serving: g, Release: rel.Digest, Report: report}, nil
	}
	failed, is := errors.AsType[TakenBack](err)
	if !is {
		return Outcome{Report: report}, err
	}
	if old == nil {
		return Outcome{Why: failed.Error(), Report: report}, nil
	}
	out, err := r.reload(ctx, old.Intent, failed.Error(), overrides)
	out.RolledBack = out.Serving != 0
	return out, err
}

// reload loads the release of an earlier load again: a new load, by the plan and the prompts that its record holds.
func (r *run) reload(ctx context.Context, was Intent, why string, overrides []preflight.Override) (Outcome, error) {
	r.half = true
	rel := Release{Digest: was.Release, Weights: was.Weights, PlanFile: fmt.Sprintf("the record of generation %d", was.Generation), Plan: []byte(was.Plan), Prompts: was.Prompts}
	g, report, err := r.bring(ctx, rel, nil, append(slices.Clone(was.Overrides), overrides...))
	if back, is := errors.AsType[TakenBack](err); is {
		return Outcome{Why: why + "; and again: " + back.Error(), Report: report}, nil
	}
	if err != nil {
		return Outcome{Why: why, Report: report}, err
	}
	return Outcome{Serving: g, Release: rel.Digest, Why: why, Report: report}, nil
}

// bring writes the intent of a load, makes room for it, and drives it until it serves or is taken back (TakenBack).
func (r *run) bring(ctx context.Context, rel Release, old *Load, overrides []preflight.Override) (uint64, *preflight.Report, error) {
	p, err := ReadPlan(rel.PlanFile, rel.Plan)
	if err != nil {
		return 0, nil, err
	}
	report, g, err := r.ready(ctx, p, rel, old, overrides)
	if err != nil {
		return 0, nil, err
	}
	if report.Blocked {
		return 0, &report, Blocked{report}
	}
	i, err := r.intent(p, rel, g, old, report, overrides)
	if err != nil {
		return 0, &report, err
	}
	load, err := r.write(ctx, i)
	if err != nil {
		return 0, &report, err
	}
	if old != nil {
		if err := r.clearOut(ctx, old); err != nil {
			return 0, &report, errors.Join(err, r.abandon(ctx, load, err))
		}
		if report, err = r.again(ctx, p, rel, g, overrides); err != nil {
			return 0, &report, errors.Join(fmt.Errorf("the old release is unloaded, and the new one may not be loaded: %w", err), r.abandon(ctx, load, err))
		}
	}
	if err := r.send(ctx, p, load); err != nil {
		return 0, &report, err
	}
	return g, &report, r.drive(ctx, p, rel.Prompts, load)
}

// ready is preflight, again and again while a ring that is half way waits for nothing but the memory of what was taken back.
func (r *run) ready(ctx context.Context, p *Plan, rel Release, old *Load, overrides []preflight.Override) (preflight.Report, uint64, error) {
	deadline := time.Now().Add(r.Times.Back)
	for {
		report, g, err := r.preflight(ctx, p, rel, old, overrides)
		if other := slices.ContainsFunc(report.Blocking(), func(f preflight.Finding) bool { return f.Rule != "R10" || f.Verdict != preflight.Refused }); err != nil || !report.Blocked || !r.half || other || time.Now().After(deadline) {
			return report, g, err
		}
		if r.lease == nil {
			err = pause(ctx, r.Times.Poll)
		} else {
			err = r.wait(ctx, "memory", r.Times.Poll)
		}
		if err != nil {
			return report, 0, err
		}
	}
}

func (r *run) intent(p *Plan, rel Release, g uint64, old *Load, report preflight.Report, overrides []preflight.Override) (*Intent, error) {
	b, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	i := &Intent{Schema: 1, Why: whyKept, Model: r.Records.Model, Ring: p.Ring, Release: rel.Digest, Weights: rel.Weights, Plan: string(rel.Plan), PlanDigest: p.Digest,
		Prompts: rel.Prompts, Overrides: overrides, Generation: g, Engine: p.Engine.Release, Preflight: hex.EncodeToString(sum[:]), By: r.By, Nonce: record.Nonce(), At: time.UnixMilli(int64(g)).UTC().Format(time.RFC3339)}
	for _, s := range p.Stages {
		i.Stages = append(i.Stages, IntentStage{Node: s.Node, Host: s.Host, Agent: p.Host(s.Host).Agent})
	}
	if old != nil {
		i.Replaces = old.Intent.Generation
	}
	if b, err = json.Marshal(i); err == nil && len(b) > maxIntent/2 { // the local one is indented
		err = fmt.Errorf("the record of the load would have %d bytes, at most %d: give fewer or shorter prompts", len(b), maxIntent/2)
	}
	return i, err
}

// write makes an intent durable: here, in the store, and in the ring's lease, in this order. Whoever else was quicker
// since the records were read wins.
func (r *run) write(ctx context.Context, i *Intent) (*Load, error) {
	if err := localKeep(r.Dir, i, (*os.File).Sync); err != nil {
		return nil, err
	}
	if err := r.Records.create(ctx, r.Records.IntentKey(i.Generation), i); err != nil {
		return nil, err
	}
	load := &Load{Intent: *i}
	r.all = append(r.all, Recorded{i.Generation, r.Records.IntentKey(i.Generation)})
	if r.lease != nil {
		r.lease.generation = i.Generation
		return load, r.lease.hold(ctx, "written")
	}
	var err error
	if r.lease, err = takeLease(ctx, r.Records, i.Generation, r.By); err != nil {
		return nil, errors.Join(err, r.abandon(ctx, load, err))
	}
	now, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	mine, old := false, i.Replaces == 0
	for _, o := range now.loads {
		switch g := o.Intent.Generation; {
		case g == i.Generation:
			mine = true
		case g == i.Replaces && o.Ledger.Serving:
			old = true
		case o.Ledger.Sent: // an intent without a command is of somebody who does not have the lease, and will not send one
			return nil, errors.Join(Unfinished{[]uint64{g}}, r.abandon(ctx, load, Unfinished{[]uint64{g}}))
		}
	}
	if !mine || !old {
		why := Halt{r.Records.Ring, i.Generation, "another release was at this ring while this one began"}
		return nil, errors.Join(why, r.abandon(ctx, load, why))
	}
	return load, nil
}

// again runs every guard a second time, right before the first LOAD: the ring is empty now, and its memory must be back.
func (r *run) again(ctx context.Context, p *Plan, rel Release, g uint64, overrides []preflight.Override) (preflight.Report, error) {
	deadline := time.Now().Add(r.Times.Back)
	for {
		if err := r.lease.hold(ctx, "memory"); err != nil {
			return preflight.Report{}, err
		}
		now, err := r.look(ctx)
		if err != nil {
			return preflight.Report{}, err
		}
		var others []Recorded
		for _, x := range now.all {
			if x.Generation != g {
				others = append(others, x)
			}
		}
		v := &View{Plan: p, Weights: rel.Weights, Generation: g, Recorded: others, Known: true, Prompts: rel.Prompts, Lease: Releaser{Known: true, Ours: true}, Survey: TakeSurvey(ctx, r.Engine, p, nil)}
		report := preflight.Run(ctx, p.Ring, Checks(v, nil), fitting(preflight.Run(ctx, p.Ring, Checks(v, nil), nil), overrides))
		if !report.Blocked {
			return report, nil
		}
		if time.Now().After(deadline) {
			return report, Blocked{report}
		}
		if err := r.wait(ctx, "memory", r.Times.Poll); err != nil {
			return report, err
		}
	}
}
