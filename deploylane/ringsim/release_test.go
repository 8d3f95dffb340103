package ringsim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/ringsim"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
)

// site is a ring over real connections, as its loaders meet it: agents that outlive them, a store and a disk.
type site struct {
	Plan   string
	Agents map[string]string // host → where its agent is dialled
	Store  string
	Disk   string
}

// aged is a store whose clock has gone on while nobody was there: what a dead loader promised is over.
type aged struct {
	bucket.Bucket
	by time.Duration
}

func (s aged) Get(ctx context.Context, key string, r bucket.Range) (*bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, key, r)
	if o != nil {
		o.Date = o.Date.Add(s.by)
	}
	return o, err
}

func (s aged) List(ctx context.Context, prefix, after string, n int) (*bucket.Page, error) {
	p, err := s.Bucket.List(ctx, prefix, after, n)
	if p != nil {
		p.Date = p.Date.Add(s.by)
	}
	return p, err
}

// loader is one as headway-lane has it, with the waits of a small ring. later is how far the store's clock has gone on.
func (s site) loader(ctx context.Context, by string, later time.Duration) (*ring.Loader, func(), error) {
	b, err := dir.Open(s.Store, dir.Options{Create: true, NoSync: true})
	if err != nil {
		return nil, nil, err
	}
	w := ringsim.Connect(ctx, s.Agents)
	records := ring.Records{Store: aged{b, later}, Model: "step37", Ring: "step37"}
	return &ring.Loader{Engine: w.Outer(by), Records: records, Catalog: ring.StoreCatalogue{Records: records}, Dir: s.Disk, By: by,
		Times: ring.Times{Load: 5 * time.Minute, Unload: 5 * time.Minute, Back: 5 * time.Minute, Poll: 100 * time.Millisecond}}, w.Close, nil
}

// realRelease is a release of the post's model whose canary must answer as the simulator's model does.
func (s site) realRelease(name string) ring.Release {
	prompt := ringsim.Render("say " + name)
	return ring.Release{Digest: name, Weights: ring.Weights{Digest: ringsim.PostDigest, Arch: "step37", Layers: ringsim.PostLayers, Hidden: ringsim.PostHidden},
		PlanFile: "ring.yaml", Plan: []byte(s.Plan), Prompts: []ring.Prompt{{Format: "sim", Text: string(prompt), MaxTokens: 16, Want: string(ringsim.Answer(prompt))}}}
}

// release brings one onto the ring; alter changes loader and release.
func (s site) release(t *testing.T, name string, alter func(*ring.Loader, *ring.Release)) (ring.Outcome, error) {
	t.Helper()
	l, done, err := s.loader(t.Context(), "lane-"+name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	rel := s.realRelease(name)
	if alter != nil {
		alter(l, &rel)
	}
	return l.Release(t.Context(), rel, nil)
}

func (s site) recover(t *testing.T, later time.Duration) (ring.Outcome, error) {
	t.Helper()
	p, err := ring.ReadPlan("ring.yaml", []byte(s.Plan))
	if err != nil {
		t.Fatal(err)
	}
	l, done, err := s.loader(t.Context(), "person", later)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	return l.Recover(t.Context(), p)
}

// mustServe: the release serves, the catalog says so, and a client that reads it is answered twice.
func (s site) mustServe(t *testing.T, release string, out ring.Outcome, err error) {
	t.Helper()
	if err != nil || out.Serving == 0 || out.Release != release {
		t.Fatalf("%+v, %v; want %s", out, err, release)
	}
	l, done, err := s.loader(t.Context(), "client", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	shown, err := l.Catalog.(ring.StoreCatalogue).Read(t.Context(), "models")
	if err != nil || shown.Entry == nil || shown.Entry.Release != release || shown.Entry.Route.Load != out.Serving {
		t.Fatalf("the catalog: %+v, %v; %d serves %s", shown.Entry, err, out.Serving, release)
	}
	for k := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		session, err := l.Engine.Session(ctx, shown.Entry.Route)
		if err != nil {
			t.Fatal(err)
		}
		r, err := session.Request(ctx, ring.Query{ID: fmt.Sprint(k), Prompt: ringsim.Render("hello"), MaxTokens: 16})
		if err == nil {
			_, err = session.Settle(ctx, r)
		}
		if err = errors.Join(err, session.Finish(ctx)); err != nil || string(r.Text) != string(ringsim.Answer(ringsim.Render("hello"))) {
			t.Fatalf("%q, %v", r.Text, err)
		}
	}
}

// nthSession is an engine at whose n-th session something happens to the ring, before it is asked for and after.
type nthSession struct {
	ring.Engine
	mu            sync.Mutex
	n             int
	before, after func()
}

func (e *nthSession) Session(ctx context.Context, r ring.Route) (ring.Session, error) {
	e.mu.Lock()
	e.n--
	now := e.n == 0
	e.mu.Unlock()
	if !now {
		return e.Engine.Session(ctx, r)
	}
	e.before()
	s, err := e.Engine.Session(ctx, r)
	e.after()
	return s, err
}

// course is a ring's life over real connections: a release, one whose answer is wrong, one that replaces, one whose head dies in
// its last round, an agent that comes back without its stages. head ends the head's agent, or starts it.
func (s site) course(t *testing.T, head func(up bool)) {
	t.Helper()
	first, err := s.release(t, "r1", nil)
	s.mustServe(t, "r1", first, err)

	out, err := s.release(t, "r2", func(_ *ring.Loader, r *ring.Release) { r.Prompts[0].Want = "something else" })
	if !out.RolledBack || out.Serving <= first.Serving || !strings.Contains(out.Why, "round 1: the reply is") {
		t.Fatalf("a wrong answer: %+v, %v", out, err)
	}
	s.mustServe(t, "r1", out, err)

	out, err = s.release(t, "r3", nil)
	s.mustServe(t, "r3", out, err)

	out, err = s.release(t, "r4", func(l *ring.Loader, _ *ring.Release) {
		l.Engine = &nthSession{Engine: l.Engine, n: 3, before: func() { head(false) }, after: func() { head(true) }}
	})
	if !out.RolledBack || !strings.Contains(out.Why, "round 3") || !strings.Contains(out.Why, "cannot be reached") {
		t.Fatalf("a head that dies in the last round: %+v, %v", out, err)
	}
	s.mustServe(t, "r3", out, err)

	again, err := s.recover(t, 0)
	if again.Serving != out.Serving {
		t.Fatalf("a ring that serves is left alone: %+v, %v", again, err)
	}
	head(false)
	head(true)
	again, err = s.recover(t, 0)
	if again.Serving <= out.Serving {
		t.Fatalf("an agent came back without its stages: %+v, %v", again, err)
	}
	s.mustServe(t, "r3", again, err)
}

// oneHost is a ring of two stages on one host, whose agent listens on the loopback.
func oneHost(t *testing.T) (s site, head func(up bool)) {
	t.Helper()
	h := ringsim.Post().Hosts[0]
	h.Back = 10 * time.Millisecond
	at, w := startTCP(t, h)
	text := strings.NewReplacer("AGENT", at).Replace(`ring: step37
engine: {adapter: ringsim, release: v0.9.0, needs: [physical-v4, layer-window]}
hosts:
  h1: {agent: "AGENT", journal: required, retained: 256MiB, native: {path: /opt/p4/p4_staged_server, sha256: 5e4e000000000000000000000000000000000000000000000000000000000001}, backend: hip, memory: {need: 60GiB}}
stages:
  - {node: step37-s0, host: h1, layers: 0-23,  device: ROCm0, mask: 0, endpoint: "127.0.0.1:42100"}
  - {node: step37-s1, host: h1, layers: 23-45, device: ROCm0, mask: 2, endpoint: "127.0.0.1:42101"}
` + shared)
	return site{Plan: text, Agents: map[string]string{"h1": at}, Store: filepath.Join(t.TempDir(), "store"), Disk: t.TempDir()}, func(up bool) {
		if !up {
			w.Kill("h1")
		} else if err := w.Restart("h1"); err != nil {
			t.Fatal(err)
		}
	}
}

// shared is what the plans of real rings have in common.
const shared = `shape: {batch: 128, ubatch: 32, context: 4096, parallel: 8, completion: 192MiB, output: 1024}
canary: {rounds: 3, gap: 100ms, deadline: 120s, prompts: canary.jsonl, format: sim, expect: {finish: eos}}
switch: {catalog: models, drain: 100ms, tokens: 3000, output: 1000}
`

// TestReleaseOverTCP: the loader and its guards against agents over TCP, in real time.
func TestReleaseOverTCP(t *testing.T) {
	t.Parallel() // it waits more than it computes
	s, head := oneHost(t)
	s.course(t, head)
}

// doomed ends this process by SIGKILL at one of its steps, as the kernel or a person does.
type doomed struct {
	ring.Engine
	ring.Catalogue
	at string
}

func (d doomed) die(step string) {
	if d.at == step {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it is dead in a moment
	}
}

func (d doomed) Load(ctx context.Context, c ring.Command) (ring.Answer, error) {
	d.die("before load " + c.Envelope.Meta.Node)
	a, err := d.Engine.Load(ctx, c)
	d.die("after load " + c.Envelope.Meta.Node)
	return a, err
}

func (d doomed) Unload(ctx context.Context, c ring.Command) (ring.Answer, error) {
	a, err := d.Engine.Unload(ctx, c)
	d.die("after unload " + c.Envelope.Meta.Node)
	return a, err
}

func (d doomed) Show(ctx context.Context, e ring.Entry) error {
	err := d.Catalogue.Show(ctx, e)
	d.die("after show")
	return err
}

func (d doomed) Clear(ctx context.Context, catalog, ring string) error {
	err := d.Catalogue.Clear(ctx, catalog, ring)
	d.die("after clear")
	return err
}

// doomedSite has a site and a step, in the environment of a loader that is a process of its own.
const doomedSite = "HEADWAY_TEST_RING_LOADER"

type doom struct {
	Site     site
	At, Name string
}

func TestMain(m *testing.M) {
	if s := os.Getenv(doomedSite); s != "" {
		fmt.Fprintln(os.Stderr, releaseAndDie(s))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func releaseAndDie(config string) error {
	var d doom
	if err := json.Unmarshal([]byte(config), &d); err != nil {
		return err
	}
	ctx := context.Background()
	l, done, err := d.Site.loader(ctx, "doomed", 0)
	if err != nil {
		return err
	}
	defer done()
	ends := doomed{l.Engine, l.Catalog, d.At}
	l.Engine, l.Catalog = ends, ends
	out, err := l.Release(ctx, d.Site.realRelease(d.Name), nil)
	return errors.Join(err, fmt.Errorf("it lives: %+v", out))
}

// TestKilledLoader: a loader that is a process is killed with SIGKILL in the middle of a release; the next one brings the ring
// to the new release, or back to the old one, and the catalog and the agents agree with it.
func TestKilledLoader(t *testing.T) {
	t.Parallel() // it waits more than it computes
	s, _ := oneHost(t)
	out, err := s.release(t, "r1", nil)
	s.mustServe(t, "r1", out, err)
	for k, at := range []string{"after clear", "after unload step37-s0", "before load step37-s1", "after load step37-s0", "after show"} {
		config, err := json.Marshal(doom{s, at, fmt.Sprintf("r%d", k+2)})
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), doomedSite+"="+string(config))
		said, err := c.CombinedOutput()
		if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: %v: %s", at, err, said)
		}
		if _, err := s.recover(t, 0); !errors.As(err, new(ring.LeaseOver)) {
			t.Errorf("%s: while its lease is fresh: %v", at, err)
		}
		next, err := s.recover(t, 5*time.Minute)
		if next.Release != out.Release && next.Release != fmt.Sprintf("r%d", k+2) {
			t.Fatalf("%s: %+v, %v", at, next, err)
		}
		t.Logf("killed %s: %s serves as %d", at, next.Release, next.Serving)
		s.mustServe(t, next.Release, next, err)
		out = next
	}
}
