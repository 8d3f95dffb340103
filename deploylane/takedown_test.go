package deploylane

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/tag"
)

// down says what is left of a ring that was taken down; "": nothing.
func (g *onRing) down(t *testing.T) (left string) {
	t.Helper()
	shown, err := ring.StoreCatalogue{Records: ring.Records{Store: g.own, Model: "digits", Ring: "step37"}}.Read(t.Context(), "models")
	if err != nil || shown.Serving {
		left += "clients see it; "
	}
	for _, l := range g.loads(t) {
		if l.Ledger.Closed == "" {
			left += "a load is open; "
		}
	}
	p, err := ring.ReadPlan("lane/ring.yaml", []byte(ringFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range p.Hosts {
		in, err := g.w.Outer("watcher").Inspect(t.Context(), "", h.Agent)
		if err != nil || len(in.Nodes) > 0 {
			left += h.Name + " has nodes; "
		}
	}
	return left
}

// TestRingIsTakenDown: a stage tag with the version none takes the ring down as well, once: clients are kept off and nothing is left
// loaded, whatever is asked of it afterwards, until a stage tag points at a release again.
func TestRingIsTakenDown(t *testing.T) {
	withRing(t, func(t *testing.T, g *onRing) {
		disk := t.TempDir()
		g.tagged("v1.0.0", 1)
		g.settle(g.process(disk), "v1.0.0")
		if v, _ := g.serving(t); v != "v1.0.0" {
			t.Fatalf("%s serves", v)
		}
		g.staged(tag.None, "bob", 1)
		if _, trouble := g.pass(g.process(disk)); len(trouble) > 0 || g.down(t) != "" || g.at(t) != "2 none" {
			t.Fatalf("%v, %s, at %s", trouble, g.down(t), g.at(t))
		}
		l := g.process(disk)
		k, found, err := l.read(t.Context(), "lane/digits/stage/"+object(101)+".json")
		if err != nil || !found || !strings.HasSuffix(k.Record.Reason, "; ring step37 is taken down") {
			t.Errorf("%+v, %v", k, err)
		}
		sent := g.w.Sent()
		asked, err := l.Asked(t.Context(), "digits", "step37")
		if err != nil || asked.Version != tag.None || asked.Tag != "stage/digits/live/1" {
			t.Fatalf("%+v, %v", asked, err)
		}
		out, err := l.RecoverRing(t.Context(), "digits", asked.Plan)
		if err != nil || out.Serving != 0 || !strings.Contains(out.Why, "stage/digits/live/1 took it down") {
			t.Errorf("%+v, %v", out, err)
		}
		if g.settle(l, "v1.0.0"); g.w.Sent() != sent || g.down(t) != "" {
			t.Errorf("%d commands more; %s", g.w.Sent()-sent, g.down(t))
		}
		g.staged("v1.0.0", "bob", 2)
		if _, trouble := g.pass(g.process(disk)); len(trouble) > 0 {
			t.Error(trouble)
		}
		if v, _ := g.serving(t); v != "v1.0.0" {
			t.Errorf("%s serves", v)
		}
	})
}

// TestRingTakenDownKilled: a lane dies after any of its requests to the store while it takes a ring down. Another one finishes it: nothing
// is left. Where a newer release was tagged meanwhile, that one serves in the end, and the one that was taken away never again.
func TestRingTakenDownKilled(t *testing.T) {
	dies := func(t *testing.T, at int, newer bool) (over bool) {
		withRing(t, func(t *testing.T, g *onRing) {
			disk := t.TempDir()
			g.tagged("v1.0.0", 1)
			g.settle(g.process(disk), "v1.0.0")
			_, first := g.serving(t)
			g.staged(tag.None, "bob", 1)
			g.dying.left = at
			g.pass(g.process(disk))
			over = !g.dying.dead()
			g.dying.left = -1
			<-time.After(5 * time.Minute) // in the bubble that withRing makes: until a dead lane lets its ring go
			if !newer {
				if _, trouble := g.pass(g.process(disk)); len(trouble) > 0 || g.down(t) != "" || g.at(t) != "2 none" {
					t.Errorf("at %d: %v, %s, at %s", at, trouble, g.down(t), g.at(t))
				}
				return
			}
			g.tagged("v1.1.0", 2)
			for range 3 {
				g.settle(g.process(disk), "v1.1.0")
			}
			if v, _ := g.serving(t); v != "v1.1.0" {
				t.Errorf("at %d: %s serves", at, v)
			}
			loads := g.loads(t)
			for _, x := range loads {
				if x.Intent.Generation > first && x.Intent.Release == loads[0].Intent.Release {
					t.Errorf("at %d: what was taken away was loaded again", at)
				}
			}
		})
		return over
	}
	quiet := 0
	withRing(t, func(t *testing.T, g *onRing) {
		g.tagged("v1.0.0", 1)
		g.settle(g.process(t.TempDir()), "v1.0.0")
		quiet = g.quiet(t)
	})
	for at := quiet; !dies(t, at, false); at += 8 {
	}
	for at := quiet + 2; !dies(t, at, true); at += 24 {
	}
}
