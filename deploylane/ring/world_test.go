package ring_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/mem"
)

const ringPlan = `ring: step37
engine: {adapter: p4-staged, release: v0.9.0, needs: [physical-v4, layer-window]}
hosts:
  h1: {agent: "tcp://h1.ring:42011", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
  h2: {agent: "tcp://h2.ring:42012", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
shape: {batch: 128, ubatch: 32, context: 4096, parallel: 8, completion: 192MiB, output: 1024}
stages:
  - {node: step37-s0, host: h1, layers: 0-23,  device: ROCm0, mask: 0, endpoint: "127.0.0.1:42100"}
  - {node: step37-s1, host: h2, layers: 23-45, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42101"}
canary: {rounds: 3, gap: 20s, deadline: 60s, prompts: canary.jsonl, format: sim, expect: {finish: eos}}
switch: {catalog: models, drain: 120s, tokens: 3000, output: 1000}
`

// errDied is what everything answers once a process is gone.
var errDied = errors.New("this process is dead")

// life counts what a process does to the world outside, and ends it at one of these steps: before it, or after it.
type life struct {
	mu    sync.Mutex
	at    int // 0: never
	after bool
	n     int
	what  []string
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at > 0 && (l.n > l.at || l.n == l.at && !l.after)
}

// step is one effect: do is done unless the process is dead; the answer is lost when it dies behind it.
func (l *life) step(what string, do func() error) error {
	l.mu.Lock()
	l.n++
	l.what = append(l.what, what)
	n := l.n
	l.mu.Unlock()
	if l.at > 0 && (n > l.at || n == l.at && !l.after) {
		return errDied
	}
	err := do()
	if l.at > 0 && n >= l.at {
		return errDied
	}
	return err
}

type mortalStore struct {
	bucket.Bucket
	l *life
}

func (s mortalStore) Put(ctx context.Context, key string, b bucket.Body, c bucket.Cond) (v bucket.Version, err error) {
	err = s.l.step("put "+key, func() error { v, err = s.Bucket.Put(ctx, key, b, c); return err })
	return v, asUnknown(err)
}

func (s mortalStore) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	if s.l.dead() {
		return nil, asUnknown(errDied)
	}
	return s.Bucket.Get(ctx, key, r)
}

func (s mortalStore) List(ctx context.Context, prefix, after string, n int) (*bucket.Page, error) {
	if s.l.dead() {
		return nil, asUnknown(errDied)
	}
	return s.Bucket.List(ctx, prefix, after, n)
}

func asUnknown(err error) error {
	if errors.Is(err, errDied) {
		return &bucket.Error{Op: "any", Code: bucket.Denied, Err: err} // ends every retry at once
	}
	return err
}

type mortalEngine struct {
	*ringsim.Outer
	l *life
}

func (e mortalEngine) Inspect(ctx context.Context, from ring.Viewpoint, a string) (ring.Inspection, error) {
	if e.l.dead() {
		return ring.Inspection{}, errDied
	}
	return e.Outer.Inspect(ctx, from, a)
}

func (e mortalEngine) Load(ctx context.Context, c ring.Command) (a ring.Answer, err error) {
	err = e.l.step("load "+c.Envelope.Meta.Node, func() error { a, err = e.Outer.Load(ctx, c); return err })
	return a, err
}

func (e mortalEngine) Unload(ctx context.Context, c ring.Command) (a ring.Answer, err error) {
	err = e.l.step("unload "+c.Envelope.Meta.Node, func() error { a, err = e.Outer.Unload(ctx, c); return err })
	return a, err
}

func (e mortalEngine) Session(ctx context.Context, r ring.Route) (s ring.Session, err error) {
	err = e.l.step("session", func() error { s, err = e.Outer.Session(ctx, r); return err })
	if err != nil && s != nil { // its connection ends with the process
		e.Outer.Vanish()
	}
	return s, err
}

// catalog is what clients see. It outlives every lane.
type catalog struct {
	mu    sync.Mutex
	shown *ring.Entry
	log   []string
}

type mortalCatalog struct {
	*catalog
	l *life
}

func (c mortalCatalog) Show(_ context.Context, e ring.Entry) error {
	return c.l.step("show", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shown = &e
		c.log = append(c.log, fmt.Sprintf("show %d", e.Route.Load))
		return nil
	})
}

func (c mortalCatalog) Clear(context.Context, string, string) error {
	return c.l.step("clear", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shown = nil
		c.log = append(c.log, "clear")
		return nil
	})
}

func (c *catalog) entry() *ring.Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown
}

// place is everything that outlives a lane's process.
type place struct {
	t     *testing.T
	w     *ringsim.World
	store *mem.Bucket
	cat   *catalog
	dir   string
	lanes int
}

// inWorld runs f in virtual time over the post's two hosts.
func inWorld(t *testing.T, dir string, change func(*ringsim.Config), f func(t *testing.T, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := ringsim.Post()
		for i := range c.Hosts {
			c.Hosts[i].ReadRate = 1 << 30 // two minutes for a stage
		}
		if change != nil {
			change(&c)
		}
		w, err := ringsim.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f(t, &place{t: t, w: w, store: mem.New(), cat: &catalog{}, dir: dir})
	})
}

// lane starts a lane's process, which lives as long as l says.
func (p *place) lane(l *life) *ring.Loader {
	p.lanes++
	return &ring.Loader{Engine: mortalEngine{p.w.Outer(fmt.Sprintf("lane%d", p.lanes)), l}, Records: ring.Records{Store: mortalStore{p.store, l}, Model: "step37", Ring: "step37"},
		Catalog: mortalCatalog{p.cat, l}, Dir: p.dir, By: fmt.Sprintf("lane%d", p.lanes), Times: ring.Times{Load: 30 * time.Minute, Unload: 5 * time.Minute, Back: 5 * time.Minute, Poll: time.Minute}}
}

func release(name string) ring.Release {
	prompt := ringsim.Render("say " + name)
	return ring.Release{Digest: name, Weights: ring.Weights{Digest: ringsim.PostDigest, Arch: "step37", Layers: ringsim.PostLayers, Hidden: ringsim.PostHidden},
		PlanFile: "ring.yaml", Plan: []byte(ringPlan), Prompts: []ring.Prompt{{Format: "sim", Text: string(prompt), MaxTokens: 64, Want: string(ringsim.Answer(prompt))}}}
}

func thePlan(t *testing.T) *ring.Plan {
	t.Helper()
	p, err := ring.ReadPlan("ring.yaml", []byte(ringPlan))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serves asks a ring what a client would, by what the catalog says: nil when it answers twice.
func (p *place) serves(e *ring.Entry) error {
	p.lanes++
	o := p.w.Outer(fmt.Sprintf("client%d", p.lanes))
	for k := range 2 {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
		defer cancel()
		s, err := o.Session(ctx, e.Route)
		if err != nil {
			return err
		}
		r, err := s.Request(ctx, ring.Query{ID: fmt.Sprint(k), Prompt: ringsim.Render("hello"), MaxTokens: 64})
		if err == nil {
			_, err = s.Settle(ctx, r)
		}
		if err = errors.Join(err, s.Finish(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// later lets virtual time pass.
func later(d time.Duration) { time.Sleep(d) }
