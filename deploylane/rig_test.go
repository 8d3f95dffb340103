package deploylane

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/headway-run/headway/deploylane/attest"
	"github.com/headway-run/headway/deploylane/spread"
	"github.com/headway-run/headway/deploylane/tag"
	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/bucket/readonly"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// rig is a lane over two stores in memory, a research that has finished, and a platform whose workers finish at once.
type rig struct {
	t        *testing.T
	research *mem.Bucket
	own      *mem.Bucket
	dying    *dying // in front of own: what the lane itself uses
	jobs     []plan.Job
	conf     Config
	place    *place
	entries  []tag.Entry
	policy   *tag.Policy
	told     []string          // what targets got
	files    map[string]string // below lane/, at any commit
	mu       sync.Mutex        // guards told, place.launched and place.released
	lane     *Lane
}

const tree = "aaaabbbbccccddddeeeeffff0000111122223333"

func object(n int) string { return fmt.Sprintf("%040x", n) }

// newRig has a candidate of accuracy 0.95 and as many seeds around it.
func newRig(t *testing.T, seeds int) *rig {
	t.Helper()
	g := &rig{t: t, research: mem.New(), own: mem.New()}
	g.dying = &dying{Bucket: g.own, left: -1}
	g.place = &place{g: g, metrics: map[string]float64{"val_accuracy": 0.951, "accuracy": 0.94}, machine: map[string]string{"arch": "amd64", "cpu": "x", "driver": "550.1"}}
	data := plan.Job{Name: "data", Kind: "dataset", Argv: []string{"load"}, Run: "load", Generation: 1}
	g.add(data, nil)
	train := func(name string, seed int64) plan.Job {
		return plan.Job{Name: name, Kind: "train", Code: "digits", CodeTree: tree, Run: "train ${seed}", Argv: []string{"train", fmt.Sprint(seed)}, Seed: seed, Generation: 1,
			Inputs: []plan.Input{{Job: "data", Work: g.jobs[0].Work}}, Metrics: map[string]string{"val_accuracy": "higher"}}
	}
	g.add(train("digits", 7), map[string]float64{"val_accuracy": 0.95})
	for i, v := range []float64{0.948, 0.952, 0.946, 0.954, 0.95}[:seeds] {
		g.add(train(fmt.Sprintf("digits-seeds-seed=%d", i+1), int64(i+1)), map[string]float64{"val_accuracy": v + 0.0001})
	}
	g.add(plan.Job{Name: "digits-backtest", Kind: "backtest", Run: "bt ${needs.digits}", Argv: []string{"bt", "${needs.digits}"}, Generation: 1,
		Inputs: []plan.Input{{Job: "digits", Work: g.jobs[1].Work}}}, map[string]float64{"accuracy": 0.93})
	least := 0.9
	g.conf = Config{Models: map[string]Model{"digits": {Name: "digits", Plan: "plans/digits.yaml", Job: "digits", Seeds: 5, Attempts: 2, On: []string{"pinned"},
		Backtest: Backtest{Job: "digits-backtest", Metric: "accuracy", AtLeast: &least},
		Metrics:  []spread.Metric{{Name: "val_accuracy", Direction: spread.Higher, Margin: 0.05, Gating: true}},
		Targets:  []Target{{Name: "pointer", Kind: TargetPointer}, {Name: "tell", Kind: TargetExec, Argv: []string{"deploy"}}}}},
		Platforms: map[string]Platform{"pinned": {Name: "pinned", Runner: "fake", Capture: time.Minute}}}
	g.policy = &tag.Policy{Stages: []string{"live"}, Rules: []tag.Rule{{Models: "*", Release: []string{"ann"}, Signers: 1, Requires: map[string]string{"driver": "550.1"}}}}
	g.lane = g.fresh()
	return g
}

// again is a rig with the same research, and nothing of the lane.
func (g *rig) again(t *testing.T) *rig {
	n := &rig{t: t, research: g.research, own: mem.New(), jobs: g.jobs, conf: g.conf, policy: g.policy}
	n.dying = &dying{Bucket: n.own, left: -1}
	n.place = &place{g: n, metrics: g.place.metrics, machine: g.place.machine}
	n.lane = n.fresh()
	return n
}

func (g *rig) job(name string) *plan.Job {
	return &g.jobs[slices.IndexFunc(g.jobs, func(j plan.Job) bool { return j.Name == name })]
}

// add puts a job into the plan and its finished work into research's store.
func (g *rig) add(j plan.Job, metrics map[string]float64) {
	g.t.Helper()
	j.Work = j.Digest()
	g.jobs = append(g.jobs, j)
	s := ordered(&j, nil).Spec
	s.Generation, s.Parent, s.Work = 1, "", string(j.Work)
	s.Identity = record.Identity(s)
	if err := runners.WriteSpec(g.t.Context(), g.research, s); err != nil {
		g.t.Fatal(err)
	}
	g.claim(s)
	if err := work(g.t.Context(), g.research, s, 1, map[string]string{"arch": "amd64", "cpu": "x", "driver": "549"}, metrics); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) claim(s record.Spec) {
	g.t.Helper()
	b, err := record.Encode(record.Claim{Protocol: 1, Work: s.Work, Dispatch: 1, Nonce: record.Nonce(), CaptureS: 60})
	if err == nil {
		_, err = g.research.Put(g.t.Context(), record.ClaimKey(s.Work, 1), bytes.NewReader(b), bucket.IfAbsent())
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// work is a worker that finishes at once.
func work(ctx context.Context, b bucket.Bucket, s record.Spec, dispatch int64, machine map[string]string, metrics map[string]float64) error {
	h, err := witness.Capture(ctx, b, witness.CaptureRequest{Work: s.Work, Dispatch: dispatch, Lease: witness.LeaseFor(0, time.Second, time.Minute)})
	if err != nil {
		return err
	}
	at := h.Seen().Record.Attempt
	if v := h.Open(ctx, record.Open{Platform: "pinned", Fingerprint: machine}); v.Outcome != witness.Won {
		return fmt.Errorf("open: %+v", v)
	}
	m := record.Manifest{Protocol: record.Protocol, Work: s.Work, Attempt: at, Step: 1}
	numbers, _ := json.Marshal(metrics)
	program := s // a deterministic one: its replicas leave the same bytes
	program.Replica = 0
	for name, body := range map[string][]byte{"metrics.json": numbers, "model.json": []byte(record.Hash(record.Identity(program)))} {
		if _, err := b.Put(ctx, record.ResultPrefix(s.Work, at)+name, bytes.NewReader(body), bucket.IfAbsent()); err != nil {
			return err
		}
		m.Files = append(m.Files, record.File{Path: name, Size: int64(len(body)), SHA256: record.Hash(body)})
	}
	slices.SortFunc(m.Files, func(a, b record.File) int { return strings.Compare(a.Path, b.Path) })
	body, err := record.Encode(m)
	if err != nil {
		return err
	}
	key := record.ResultManifestKey(s.Work, at)
	if _, err := b.Put(ctx, key, bytes.NewReader(body), bucket.IfAbsent()); err != nil {
		return err
	}
	v := h.Finish(ctx, witness.FinishedPointer{Attempt: at, Manifest: key, SHA256: record.Hash(body)}, witness.Progress{Step: 1})
	if v.Outcome != witness.Won {
		return fmt.Errorf("finish: %+v", v)
	}
	return nil
}

// place is the platform.
type place struct {
	g        *rig
	metrics  map[string]float64
	machine  map[string]string
	launched []runners.Launch
	released int
	odd      func(l runners.Launch) (handled bool, err error) // what happens instead; nil: nothing
}

func (p *place) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	var out []runners.Receipt
	for _, l := range jobs {
		if p.g.dying.dead() {
			return nil, &runners.Failure{Class: runners.Unreachable, Err: errors.New("the caller is dead")}
		}
		p.g.mu.Lock()
		p.launched = append(p.launched, l)
		n := len(p.launched)
		p.g.mu.Unlock()
		handled := false
		if p.odd != nil {
			var err error
			if handled, err = p.odd(l); err != nil {
				return nil, err
			}
		}
		if !handled {
			if err := p.work(ctx, l); err != nil {
				return nil, &runners.Failure{Class: runners.Rejected, Err: err}
			}
		}
		out = append(out, runners.Receipt{Handle: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))})
	}
	return out, nil
}

// work is what a worker does: it refuses another machine before it takes the lease.
func (p *place) work(ctx context.Context, l runners.Launch) error {
	for k, want := range l.Spec.Requires {
		if p.machine[k] == want {
			continue
		}
		text := fmt.Sprintf("this machine is not what the work is pinned to: %s: required %q, found %q", k, want, p.machine[k])
		b, err := record.Encode(record.Refusal{Protocol: 1, Work: l.Work, Dispatch: l.Dispatch, Text: text, Fingerprint: p.machine})
		if err == nil {
			_, err = p.g.own.Put(ctx, record.RefusalKey(l.Work, l.Dispatch), bytes.NewReader(b), bucket.IfAbsent())
		}
		return err
	}
	return work(ctx, p.g.own, l.Spec, l.Dispatch, p.machine, p.metrics)
}

func (p *place) Release(context.Context, json.RawMessage) (runners.Release, error) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.released++
	return runners.Release{Settlement: runners.Closed, Text: "gone"}, nil
}
func (p *place) JobKinds() []string { return nil }
func (p *place) Capacity() int      { return 1 }

// fresh is a lane as a new process has it.
func (g *rig) fresh() *Lane {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	block, err := ssh.MarshalPrivateKey(private, "lane")
	if err != nil {
		g.t.Fatal(err)
	}
	signer, err := attest.ParseSigner(pem.EncodeToMemory(block))
	if err != nil {
		g.t.Fatal(err)
	}
	return &Lane{Research: readonly.New(g.research), Store: g.dying, StoreURL: "mem:", Git: git{g}, Runners: map[string]runners.Runner{"pinned": g.place},
		Platforms: g.conf.Platforms, Key: private, Attester: signer, Repo: "git.example.com/team", Version: "test", ID: "lane-1",
		Exec: func(_ context.Context, argv []string, key string, body []byte) (string, error) {
			if g.dying.dead() {
				return "", errors.New("dead")
			}
			if _, err := attest.Verify(body, []attest.Key{signer.Key()}); err != nil {
				return "", err
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.told = append(g.told, argv[0]+" "+key)
			return "done", nil
		}}
}

type git struct{ g *rig }

func (r git) Lane(context.Context, string) (Config, error)     { return r.g.conf, nil }
func (r git) Jobs(context.Context, string) ([]plan.Job, error) { return r.g.jobs, nil }
func (r git) File(_ context.Context, _, path string) ([]byte, error) {
	if text, ok := r.g.files[path]; ok {
		return []byte(text), nil
	}
	return nil, stop("NoLane", "%s is not there", path)
}
func (r git) Bundle(context.Context, string, string) (string, bucket.Body, error) {
	return tree, strings.NewReader("code"), nil
}

// tagged adds an accepted release tag of the candidate to the ledger.
func (g *rig) tagged(version string, n int) tag.Entry {
	j := g.job("digits")
	seen, err := witness.Read(g.t.Context(), g.research, string(j.Work))
	if err != nil {
		g.t.Fatal(err)
	}
	e := tag.Entry{Ref: "refs/tags/release/digits/" + version, Object: object(n), Commit: object(1000), Code: tag.Accepted, Signer: "ann", Key: "SHA256:ann", Hash: record.Hash([]byte(version)),
		Message: &tag.Message{Model: "digits", Version: version, Plan: "plans/digits.yaml", PlanSHA256: record.Hash(nil), Candidate: string(j.Work),
			Attempt: 1, Artifact: seen.Record.Finished.SHA256, Generation: 2, Parent: string(j.Work)}, Requires: g.policy.Rules[0].Requires}
	g.entries = append(g.entries, e)
	return e
}

// staged adds an accepted stage tag.
func (g *rig) staged(version, who string, n int) tag.Entry {
	e := tag.Entry{Ref: fmt.Sprintf("refs/tags/stage/digits/live/%d", n), Object: object(100 + n), Commit: object(1000), Code: tag.Accepted, Signer: who, Key: "SHA256:" + who,
		Message: &tag.Message{Model: "digits", Version: version, Reason: "as asked"}}
	g.entries = append(g.entries, e)
	return e
}

// pass makes one pass of a lane.
func (g *rig) pass(l *Lane) ([]Standing, []error) {
	return l.Pass(g.t.Context(), &tag.Look{Policy: g.policy, Models: []tag.Model{{Name: "digits", Entries: g.entries}}})
}

// settle makes passes until nothing changes by itself, and gives the standing of a version.
func (g *rig) settle(l *Lane, version string) Standing {
	g.t.Helper()
	for range 100 {
		all, trouble := g.pass(l)
		if len(trouble) > 0 {
			g.t.Fatal(trouble)
		}
		i := slices.IndexFunc(all, func(s Standing) bool { return s.Version == version && s.Code != string(tag.TagMoved) })
		if i < 0 {
			g.t.Fatalf("no standing of %s: %+v", version, all)
		}
		if all[i].Done || all[i].After == 0 {
			return all[i]
		}
		<-time.After(all[i].After)
	}
	g.t.Fatal("it never settles")
	return Standing{}
}

// records are the bytes of everything that the lane wrote about a model.
func (g *rig) records() map[string]string {
	out := map[string]string{}
	for after := ""; ; {
		page, err := g.own.List(g.t.Context(), "lane/", after, 1000)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, it := range page.Items {
			b, _, err := get(g.t.Context(), g.own, it.Key, 1<<20)
			if err != nil {
				g.t.Fatal(err)
			}
			out[it.Key], after = string(b), it.Key
		}
		if !page.More {
			return out
		}
	}
}

// dying is a store whose user dies after so many requests: what was asked is done, and nothing more is asked.
type dying struct {
	bucket.Bucket
	left  int    // -1: for ever
	after string // dies once this was written
	asked int
}

func (d *dying) dead() bool { return d.left == 0 }

func (d *dying) spend(op, key string) error {
	if d.left == 0 {
		return &bucket.Error{Op: op, Key: key, Code: bucket.Unknown, Err: errors.New("the process is dead")}
	}
	d.asked++
	d.left = max(-1, d.left-1)
	return nil
}

func (d *dying) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if err := d.spend("get", key); err != nil {
		return nil, err
	}
	return d.Bucket.Get(ctx, key, r)
}

func (d *dying) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	if err := d.spend("put", key); err != nil {
		return "", err
	}
	v, err := d.Bucket.Put(ctx, key, body, c)
	if err == nil && key == d.after {
		d.left = 0
	}
	return v, err
}

func (d *dying) List(ctx context.Context, prefix, after string, limit int) (*bucket.Page, error) {
	if err := d.spend("list", prefix); err != nil {
		return nil, err
	}
	return d.Bucket.List(ctx, prefix, after, limit)
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
