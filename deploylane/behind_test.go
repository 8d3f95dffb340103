package deploylane

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/ring"
	"github.com/headway-run/headway/deploylane/tag"
)

// TestTakenDownBehindTwo: a lane dies while it takes a ring down, and two newer releases are asked for before the ring can be reached
// again. The last of them serves, and does not replace, and so cannot go back to, what was taken away.
func TestTakenDownBehindTwo(t *testing.T) {
	dies := func(t *testing.T, at int) (over bool) {
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
			g.tagged("v1.1.0", 2)
			g.tagged("v1.2.0", 3)
			for range 20 {
				<-time.After(5 * time.Minute)
				l := g.process(disk)
				l.Engines = map[string]OpenEngine{"ringsim": func(context.Context, *ring.Plan) (ring.Engine, func(), error) {
					return nil, nil, errors.New("no way to the agents")
				}}
				g.pass(l)
			}
			g.settle(g.process(disk), "v1.2.0")
			if v, _ := g.serving(t); v != "v1.2.0" {
				t.Errorf("at %d: %s serves", at, v)
			}
			for _, x := range g.loads(t) {
				if x.Intent.Replaces == first {
					t.Errorf("at %d: generation %d goes back to what was taken away", at, x.Intent.Generation)
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
	for at := quiet + 2; !dies(t, at); at += 3 {
	}
}
