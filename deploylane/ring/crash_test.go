package ring_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
)

// between is what happens to the hosts while no lane lives.
type between struct {
	name string
	do   func(p *place)
}

func betweens() []between {
	return []between{
		{"nothing happens", func(*place) {}},
		{"an agent restarts", func(p *place) { must(p.w.Restart("h2")) }},
		{"every agent restarts", func(p *place) { must(errors.Join(p.w.Restart("h1"), p.w.Restart("h2"))) }},
		{"a native server dies", func(p *place) { p.w.KillServer("h1", "step37-s0") }},
		{"an agent stays away", func(p *place) { p.w.Kill("h2") }},
		{"a native server freezes", func(p *place) { p.w.FreezeServer("h2", "step37-s1", true) }},
	}
}

func must(err error) {
	if err != nil {
		panic(err) // of the fixture
	}
}

// afterwards judges how a ring stands when recovery is over: it serves the old or the new release and the catalog says
// so, or it is down, the catalog is empty, and every node that still exists has an open record that names its generation.
// Never: the catalog names a ring that does not answer.
func (p *place) afterwards(out ring.Outcome, err error) string {
	l := p.lane(&life{})
	loads, rerr := l.Records.Loads(p.t.Context())
	if rerr != nil {
		return rerr.Error()
	}
	open := map[uint64]bool{}
	for _, x := range loads {
		open[x.Intent.Generation] = x.Ledger.Closed == ""
	}
	for _, agent := range []string{"tcp://h1.ring:42011", "tcp://h2.ring:42012"} {
		in, ierr := l.Engine.Inspect(p.t.Context(), "", agent)
		for _, n := range in.Nodes {
			if !open[n.Generation] {
				return fmt.Sprintf("%s@%d on %s has no open record", n.ID, n.Generation, agent)
			}
		}
		if ierr != nil && err == nil {
			return ierr.Error()
		}
	}
	e := p.cat.entry()
	switch {
	case e != nil:
		if serr := p.serves(e); serr != nil {
			return fmt.Sprintf("the catalog says serving, and: %v", serr)
		}
		if err == nil && out.Serving != e.Route.Load {
			return fmt.Sprintf("%d serves, the catalog says %d", out.Serving, e.Route.Load)
		}
	case err == nil && out.Serving != 0:
		return fmt.Sprintf("%d serves, and the catalog says nothing", out.Serving)
	case err == nil && len(p.cat.log) > 0:
		return "nothing serves, although nothing is wrong any more: " + out.Why
	}
	return ""
}

// TestCrashAtEveryStep kills the lane before and after each effect of a release that replaces another, lets something
// happen to the hosts, and recovers.
func TestCrashAtEveryStep(t *testing.T) {
	whole := &life{}
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		if _, err := p.lane(&life{}).Release(t.Context(), release("r1"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.lane(whole).Release(t.Context(), release("r2"), nil); err != nil {
			t.Fatal(err)
		}
	})
	if whole.n < 30 {
		t.Fatalf("only %d steps: %v", whole.n, whole.what)
	}
	ends := map[string]int{}
	for k, b := range betweens() {
		for at := 1; at <= whole.n; at++ {
			for _, after := range []bool{true, false} {
				if what := whole.what[at-1]; k > 0 && (strings.HasPrefix(what, "put ") && at%3 != 0 || !after && !strings.HasPrefix(what, "load")) {
					continue // nearly as after the step before
				}
				name := fmt.Sprintf("%s after a crash at step %d (%s), done: %v", b.name, at, whole.what[at-1], after)
				inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
					ends[p.crash(t, name, &life{at: at, after: after}, b)]++
				})
			}
		}
	}
	t.Log(whole.n, ends)
	for _, end := range []string{"r1", "r2", "stopped"} {
		if ends[end] == 0 {
			t.Errorf("no crash ended as %s: %v", end, ends)
		}
	}
}

func (p *place) crash(t *testing.T, name string, l *life, b between) string {
	if _, err := p.lane(&life{}).Release(t.Context(), release("r1"), nil); err != nil {
		t.Fatal(err)
	}
	if out, err := p.lane(l).Release(t.Context(), release("r2"), nil); err == nil && out.Serving != 0 && l.n < l.at {
		t.Fatalf("%s: it did not crash: %+v", name, out)
	}
	later(5 * time.Minute) // its lease is silent, whatever it was at
	b.do(p)
	later(time.Minute)
	out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
	if wrong := p.afterwards(out, err); wrong != "" {
		t.Errorf("%s: %s\n%+v, %v", name, wrong, out, err)
	}
	if err != nil {
		return "stopped"
	}
	return out.Release
}

// TestCrashesInARow: lanes die again and again, at any step of a release or of a recovery, and things happen to the hosts
// meanwhile; the last one is left alone.
func TestCrashesInARow(t *testing.T) {
	for seed := range uint64(15) {
		inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
			r := rand.New(rand.NewPCG(seed, 6))
			befalls := betweens()[:4] // after these a ring can be served again
			if _, err := p.lane(&life{}).Release(t.Context(), release("r1"), nil); err != nil {
				t.Fatal(err)
			}
			var did []string
			for n := range 2 + r.IntN(4) {
				l := &life{at: 1 + r.IntN(40), after: r.IntN(2) == 0}
				if n == 0 || r.IntN(4) == 0 {
					_, err := p.lane(l).Release(t.Context(), release(fmt.Sprintf("r%d", n+2)), nil)
					did = append(did, fmt.Sprintf("release %d %v: %v", l.at, l.after, err))
				} else {
					_, err := p.lane(l).Recover(t.Context(), thePlan(t))
					did = append(did, fmt.Sprintf("recover %d %v: %v", l.at, l.after, err))
				}
				later(time.Hour)
				b := befalls[r.IntN(len(befalls))]
				b.do(p)
				did = append(did, b.name)
				later(time.Minute)
			}
			out, err := p.lane(&life{}).Recover(t.Context(), thePlan(t))
			if wrong := p.afterwards(out, err); wrong != "" || err != nil {
				t.Errorf("seed %d: %s\n%+v, %v\n%s", seed, wrong, out, err, strings.Join(did, "\n"))
			}
		})
	}
}

// TestWriteAhead: when the first command leaves, the load is on the local disk, in the store, in the ring's lease and in
// an event of its own, made durable in this order.
func TestWriteAhead(t *testing.T) {
	inWorld(t, t.TempDir(), nil, func(t *testing.T, p *place) {
		first := &life{at: 1}
		if _, err := p.lane(first).Release(t.Context(), release("r1"), nil); err == nil {
			t.Fatal("it did not crash")
		}
		local, err := filepath.Glob(filepath.Join(p.dir, "step37", "load-*.json"))
		if err != nil || len(local) != 1 || !strings.HasPrefix(first.what[0], "put lane/step37/ring/step37/load/") {
			t.Fatalf("before the store: %v; the store: %v", local, first.what)
		}
		b, err := os.ReadFile(local[0])
		if err != nil {
			t.Fatal(err)
		}
		if i, err := ring.DecodeIntent(b); err != nil || i.Release != "r1" || len(i.Stages) != 2 || i.Generation == 0 {
			t.Errorf("%+v, %v", i, err)
		}
		later(5 * time.Minute)
		l := &life{}
		lane := p.lane(l)
		probe := &peek{Engine: lane.Engine, records: ring.Records{Store: p.store, Model: "step37", Ring: "step37"}}
		lane.Engine = probe
		out, err := lane.Release(t.Context(), release("r1"), nil)
		if err != nil || out.Serving == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		for _, seen := range probe.seen {
			if !strings.Contains(seen, fmt.Sprintf("generation %d (load)", out.Serving)) || !strings.Contains(seen, "sent step37-s0, sent step37-s1") {
				t.Errorf("when a LOAD left: %s", seen)
			}
		}
		if len(probe.seen) != 2 {
			t.Errorf("%d commands", len(probe.seen))
		}
	})
}

// peek looks at the store when a LOAD leaves.
type peek struct {
	ring.Engine
	records ring.Records
	mu      sync.Mutex
	seen    []string
}

func (e *peek) Load(ctx context.Context, c ring.Command) (ring.Answer, error) {
	loads, err := e.records.Loads(ctx)
	said := fmt.Sprint(e.records.Releaser(ctx).Other, err)
	for _, l := range loads {
		var ops []string
		for _, v := range l.Events {
			ops = append(ops, fmt.Sprintf("%s %s", v.Op, v.Node))
		}
		said += fmt.Sprintf("; %d: %s", l.Intent.Generation, strings.Join(ops, ", "))
	}
	e.mu.Lock()
	e.seen = append(e.seen, said)
	e.mu.Unlock()
	return e.Engine.Load(ctx, c)
}
